"""Physical layer: links that carry complex symbols, or features forth and gradients back.

    from channels import make_link

    link = make_link("rayleigh", equaliser="mmse")
    drawn = link.draw([50], d=64, generator=torch.Generator().manual_seed(0))
    received = link(features, {name: tensor[None] for name, tensor in drawn.items()}, torch.tensor([10.0]))

Nothing here imports semcom, and importing this package does not import torch. `docs/channels.md` has the equations.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from channels.registry import Registry

if TYPE_CHECKING:
    from channels.cell import PathLoss
    from channels.link import Link
    from channels.meter import Meter
    from channels.ofdm.profiles import Profile

__all__ = ["LINKS", "PATH_LOSSES", "PROFILES", "Link", "Meter", "link_options", "make_link"]

LINKS: Registry[type[Link]] = Registry(
    "channel",
    {
        "none": "channels.fading:NoChannel",
        "ideal": "channels.fading:Ideal",
        "awgn": "channels.fading:AWGN",
        "rayleigh": "channels.fading:Rayleigh",
        "rician": "channels.fading:Rician",
        "ofdm": "channels.ofdm.link:OFDM",
        "cir": "channels.ofdm.cir:CIR",
        "digital": "channels.coding.digital:Digital",
    },
    base="channels.link:Link",
    options="Options",
)
"""Link classes by name. Decorate a subclass of `Link` with `@LINKS.register("mine")` to add one."""

PROFILES: Registry[type[Profile]] = Registry(
    "profile",
    {
        "rayleigh": "channels.ofdm.profiles:RAYLEIGH",
        **{
            f"{kind}-{x}": f"channels.ofdm.profiles:{kind.upper()}_{x.upper()}"
            for kind in ("tdl", "cdl")
            for x in "abcde"
        },
    },
    base="channels.ofdm.profiles:Profile",
)
"""Profiles of the link `ofdm` by name. Decorate a subclass of `Profile` with `@PROFILES.register("mine")` to add it."""

PATH_LOSSES: Registry[type[PathLoss]] = Registry(
    "path loss",
    {"umi": "channels.cell:UMi", "exponent": "channels.cell:Exponent"},
    base="channels.cell:PathLoss",
    options="Options",
)
"""Losses by distance: name -> subclass of `PathLoss`."""


def link_options(kind: str) -> dict[str, Any]:
    """List the options of the link called `kind` with their defaults: the fields of its class `Options`.

    Raises ValueError for an unknown kind.
    """
    return {field.name: field.default for field in dataclasses.fields(LINKS.get(kind).Options)}


def make_link(kind: str = "awgn", **options: Any) -> Link:
    """Build the link called `kind`, a name in `LINKS`, with those `options` that it takes (`link_options`).

    Raises:
        ValueError: one line that names the option, its value and the accepted values. An option that the link does not
            take is refused, since it would have no effect.
    """
    known = link_options(kind)
    for name, value in options.items():
        if name not in known:
            others = [other for other in LINKS.names() if name in link_options(other)]
            hint = f"; it is for {', '.join(others)}" if others else ""
            takes = ", ".join(known) or "no options"
            raise ValueError(f"{name}: {value!r} is not for {kind}, which takes {takes}{hint}")
    link = LINKS.get(kind)
    return link(link.Options(**options))


def __getattr__(name: str) -> Any:
    """Import `Link` and `Meter`, and torch with them, when they are first asked for."""
    if name == "Link":
        from channels.link import Link

        return Link
    if name == "Meter":
        from channels.meter import Meter

        return Meter
    raise AttributeError(f"module 'channels' has no attribute {name!r}")
