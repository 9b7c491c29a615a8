"""Physical layer: links that carry complex symbols, or features forth and gradients back.

    from channels import make_link

    link = make_link("rayleigh", equaliser="mmse")
    rows = link.draw([50], d=64, generator=torch.Generator().manual_seed(0))
    received = link(features, {name: row[None] for name, row in rows.items()}, torch.tensor([10.0]))

Nothing here imports semcom, and importing this package does not import torch. `docs/channels.md` has the equations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from channels.registry import Registry

if TYPE_CHECKING:
    from channels.link import Link
    from channels.meter import Meter

__all__ = ["LINKS", "Link", "Meter", "make_link"]

LINKS: Registry[type[Link]] = Registry(
    "channel",
    {"ideal": "channels.fading:Ideal", "awgn": "channels.fading:AWGN", "rayleigh": "channels.fading:Rayleigh"},
)
"""Link classes by name; `@LINKS.register("mine")` over a subclass of `Link` adds one."""


def make_link(
    kind: str = "awgn", *, equaliser: str = "mmse", coherence: str = "sample", downlink: str = "noisy"
) -> Link:
    """The link called `kind`.

    Args:
        kind: a name in `LINKS`.
        equaliser: "mmse", "zf" or "none"; of no effect where the link does not fade.
        coherence: how long a fading coefficient lasts: "symbol", "sample", "batch" or "round".
        downlink: "noisy" sends gradients through the channel too, "ideal" does not.

    Raises:
        ValueError: one line that names the argument, its value and what would be accepted.
    """
    return LINKS.get(kind)(equaliser=equaliser, coherence=coherence, downlink=downlink)


def __getattr__(name: str) -> Any:
    """Imports `Link` and `Meter`, and torch with them, when they are first asked for."""
    if name == "Link":
        from channels.link import Link

        return Link
    if name == "Meter":
        from channels.meter import Meter

        return Meter
    raise AttributeError(f"module 'channels' has no attribute {name!r}")
