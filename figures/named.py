"""Figures of experiments: requests as `semcom plot` takes them, with a name."""

from __future__ import annotations

from figures.base import Drawing, Plot

DEMO = Drawing("demo", "demo", Plot(kind="lines", x="channel.snr_db"))
"""The figure of `make demo`."""
LETTER_FIG2B = Drawing("letter-fig2b", "letter-fig2b", Plot(kind="lines", x="channel.snr_db"))
"""Fig. 2(b) of the FedCL letter."""
ARMS_SMALL = Drawing("arms-small", "arms-small", Plot(kind="dots", x="variant", hue="partition.kind"))
"""All methods side by side, a mark for each partition."""
REPPER_TABLE2 = Drawing(
    "repper-table2", "repper-table2", Plot(kind="dots", x="variant", hue="data.name", facet="partition.beta")
)
"""Table 2 of RepPer."""
REPPER_TABLE3 = Drawing("repper-table3", "repper-table3", Plot(kind="dots", x="variant", hue="finish.kind"))
"""Table 3 of RepPer."""
REPPER_TABLE4 = Drawing(
    "repper-table4",
    "repper-table4",
    Plot(kind="dots", x="variant", hue="data.name", facet="model.encoder"),
    shows=("data.name", "model.encoder", "model.features"),
)
"""Table 4 of RepPer."""
REPPER_FIG3 = Drawing("repper-fig3", "repper-fig3", Plot(kind="divisions", facet="partition.beta"))
"""Fig. 3 of RepPer."""
