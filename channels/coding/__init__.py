"""Bits over the air: quantiser, LDPC, QAM, the link `digital`, and the chain of compressed images."""
