"""Figures of experiments: requests as `semcom plot` takes them, with a name."""

from __future__ import annotations

from figures.base import Drawing, Plot

DEMO = Drawing("demo", "demo", Plot(kind="lines", x="channel.snr_db"))
"""The figure of `make demo`."""
LETTER_FIG2B = Drawing("letter-fig2b", "letter-fig2b", Plot(kind="lines", x="channel.snr_db"))
"""Fig. 2(b) of the FedCL letter."""
ARMS_SMALL = Drawing("arms-small", "arms-small", Plot(kind="dots", x="variant", hue="partition.kind"))
"""All methods side by side, a mark for each partition."""
