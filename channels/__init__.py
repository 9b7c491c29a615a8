"""Physical layer: links that carry complex symbols, or features forth and gradients back.

    from semcom.channels import make_link

    link = make_link("rayleigh", equaliser="mmse")
    drawn = link.draw([50], d=64, generator=torch.Generator().manual_seed(0))
    received = link(features, {name: tensor[None] for name, tensor in drawn.items()}, torch.tensor([10.0]))

Nothing here imports semcom, and importing this package does not import torch. `docs/channels.md` has the equations.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from semcom.channels.registry import Registry

if TYPE_CHECKING:
    from semcom.channels.cell import PathLoss
    from semcom.channels.link import Link
    from semcom.channels.meter import Meter
    from semcom.channels.ofdm.profiles import Profile

__all__ = ["LINKS", "PATH_LOSSES", "PROFILES", "Link", "Meter", "link_options", "make_link"]

LINKS: Registry[type[Link]] = Registry(
    "channel",
    {
        "none": "semcom.channels.fading:NoChannel",
        "ideal": "semcom.channels.fading:Ideal",
        "awgn": "semcom.channels.fading:AWGN",
        "rayleigh": "semcom.channels.fading:Rayleigh",
        "rician": "semcom.channels.fading:Rician",
        "ofdm": "semcom.channels.ofdm.link:OFDM",
        "cir": "semcom.channels.ofdm.cir:CIR",
        "digital": "semcom.channels.coding.digital:Digital",
    },
    base="semcom.channels.link:Link",
    options="Options",
)
"""Link classes by name. Decorate a subclass of `Link` with `@LINKS.register("mine")` to add one."""

PROFILES: Registry[type[Profile]] = Registry(
    "profile",
    {
        "rayleigh": "semcom.channels.ofdm.profiles:RAYLEIGH",
        **{
            f"{kind}-{x}": f"semcom.channels.ofdm.profiles:{kind.upper()}_{x.upper()}"
            for kind in ("tdl", "cdl")
            for x in "abcde"
        },
    },
    base="semcom.channels.ofdm.profiles:Profile",
)
"""Profiles of the link `ofdm` by name. Decorate a subclass of `Profile` with `@PROFILES.register("mine")` to add it."""

PATH_LOSSES: Registry[type[PathLoss]] = Registry(
    "path loss",
    {"umi": "semcom.channels.cell:UMi", "exponent": "semcom.channels.cell:Exponent"},
    base="semcom.channels.cell:PathLoss",
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
        from semcom.channels.link import Link

        return Link
    if name == "Meter":
        from semcom.channels.meter import Meter

        return Meter
    raise AttributeError(f"module 'channels' has no attribute {name!r}")
