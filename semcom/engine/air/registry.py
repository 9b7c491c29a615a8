"""Parts of the air and the network by name. Nothing here imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semcom.channels.registry import Registry

if TYPE_CHECKING:
    from semcom.engine.air.access import Access
    from semcom.engine.air.compression import Compression
    from semcom.engine.air.places import Places
    from semcom.engine.air.privacy import Privacy
    from semcom.engine.air.rates import Rates
    from semcom.engine.air.speeds import Speeds

ACCESS: Registry[type[Access]] = Registry(
    "access",
    {"orthogonal": "semcom.engine.air.access:Orthogonal", "superposed": "semcom.engine.air.access:Superposed"},
    base="semcom.engine.air.access:Access",
    options="Options",
)
"""Ways in which averaged models reach the base station: name -> subclass of `Access`."""
COMPRESSIONS: Registry[type[Compression]] = Registry(
    "compression",
    {
        "none": "semcom.engine.air.compression:Whole",
        "quantise": "semcom.engine.air.compression:Quantise",
        "top-k": "semcom.engine.air.compression:TopK",
    },
    base="semcom.engine.air.compression:Compression",
    options="Options",
)
"""Ways to compress error-free uploads: name -> subclass of `Compression`."""
RATES: Registry[type[Rates]] = Registry(
    "rate",
    {
        "fixed": "semcom.engine.air.rates:Fixed",
        "capacity": "semcom.engine.air.rates:Capacity",
        "mcs": "semcom.engine.air.rates:MCS",
    },
    base="semcom.engine.air.rates:Rates",
    options="Options",
)
"""Rates of error-free exchange: name -> subclass of `Rates`."""
PRIVACY: Registry[type[Privacy]] = Registry(
    "privacy",
    {"none": "semcom.engine.air.privacy:Privacy", "gaussian": "semcom.engine.air.privacy:Gaussian"},
    base="semcom.engine.air.privacy:Privacy",
    options="Options",
)
"""Ways to protect what is averaged: name -> subclass of `Privacy`."""
PLACES: Registry[type[Places]] = Registry(
    "places",
    {
        "list": "semcom.engine.air.places:Listed",
        "cell": "semcom.engine.air.places:Cell",
        "scene": "semcom.engine.air.places:InScene",
    },
    base="semcom.engine.air.places:Places",
    options="Options",
)
"""Places of the clients, from which their SNRs follow: name -> subclass of `Places`."""
SPEEDS: Registry[type[Speeds]] = Registry(
    "speeds",
    {"log-normal": "semcom.engine.air.speeds:LogNormal"},
    base="semcom.engine.air.speeds:Speeds",
    options="Options",
)
"""Speeds at which clients compute: name -> subclass of `Speeds`."""
DOING = ("receive_s", "compute_s", "send_s")
"""Activities of a client in a round, as the columns of its seconds."""
