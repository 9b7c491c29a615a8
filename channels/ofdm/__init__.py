"""The link `ofdm`: a grid of subcarriers under 3GPP fading profiles."""
