"""Find where FedCL helps: its gain over `local` with few images and many clients (experiments/protocol.md).

Methods that share nothing, prototypes, heads, a generator of centroids, or the encoder, at 9 dB: the map is over images
per class, classes per client and clients. All runs have the same number of local steps, 15 in each of 30 rounds, those
of 300 images in batches of 20; with fewer images a step sees them more often. `fedcl with mean centroids` has the plain
mean of the clients' centroids in the place of the generator's. `fedcl with a common encoder` averages the encoders too,
which then cross the air: all of the model is common then, as in FedAvg. `fedcl with common encoder and own decoders`,
with mean centroids, is FedPer with FedCL's training.

`letter-encoder` asks why the map has FedPer below `local` with few classes and the one of `collaboration` has it above:
what makes the two settings differ, the radio, the network, the optimiser with its batch, or the length of training, is
changed one at a time from the letter's to the other's, then together. A level with GroupNorm tells whether of the
network it is BatchNorm, whose averaged statistics fit no client where clients have other classes.

`letter-unseen` asks what is left for clients that took no part: they receive the encoder, or where each client has its
own the average of these, and train a head. Its numbers are `new_clients` in a run's summary.

    semcom sweep letter-regime --scale small
    python -m semcom_papers.experiments.hypotheses results/letter-regime-small
    semcom sweep letter-encoder --scale small
    python -m semcom_papers.experiments.hypotheses results/letter-encoder-small
    semcom sweep letter-unseen --scale small
    semcom table results/letter-unseen-small --metric new_clients.head.accuracy
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from semcom.config import ChannelConfig, RunConfig
from semcom.studies.experiment import Grid, Variant
from semcom.studies.grid import set_fields
from semcom_papers.experiments.letter.figures import base, seeds, set_lambda_of_letter
from semcom_papers.experiments.papers.items import make_item
from semcom_papers.experiments.verdicts import (
    Row,
    decide,
    decide_at_each,
    describe,
    over_places,
    read_variant,
    tabulate_by_seed,
)

ORIGIN = "none (where the FedCL letter's idea should pay)"
PLACE = ("partition.shots", "partition.ways", "clients")
"""The fields of the map: q, m, K."""
PLACES = {
    "smoke": ((5, 3, 4), (2, 3, 4)),
    "small": ((5, 3, 20), (20, 3, 20), (100, 3, 20), (10, 5, 50), (5, 3, 50)),
    "paper": tuple(
        (q, m, k) for q in (5, 10, 20, 50, 100) for m in (3, 5) for k in (5, 20, 50, 100) if q * m * k <= 30_000
    ),
}
"""Scale -> places of the map. No image has two owners: of CIFAR-10's 5,000 of each class some have to be left."""
STEPS = {"smoke": (2, 2), "small": (30, 15), "paper": (200, 15)}
"""Scale -> rounds, and local steps in each."""

OWN_DECODERS = Variant(
    "fedcl with common encoder and own decoders",
    "fedcl",
    {"hyper.centroids": "mean", "hyper.average_encoder": True, "hyper.average_decoder": False},
)
"""FedPer with FedCL's training."""
VARIANTS = (
    *("local", "fedproto", "lg_fedavg", "fedgh", "fedcl"),
    Variant("fedcl with mean centroids", "fedcl", {"hyper.centroids": "mean"}),
    "fedper",
    Variant("fedcl with a common encoder", "fedcl", {"hyper.average_encoder": True}),
    OWN_DECODERS,
)
"""Methods that share nothing, prototypes, heads, a generator of centroids, the encoder, or encoder and centroids."""
ENCODER_PLACES = {
    "smoke": PLACES["smoke"],
    "small": ((5, 3, 20), (100, 3, 20)),
    "paper": ((5, 3, 20), (100, 3, 20)),
}
"""Scale -> places at which a common encoder is compared with personal encoders."""
SHORT = {"train.rounds": 3, "train.local_steps": 1}
"""Another length of training at scale `smoke`."""
THE_MAPS = "the map's"
LEVELS: Mapping[str, Mapping[str, Any]] = {
    "no radio": {"channel.kind": "none", "channel.snr_db": ChannelConfig().snr_db},
    "two convolutions": {"model.encoder": "cnn-linear"},
    "Adam with batch 10": {"train.optimizer": "adam", "train.batch_size": 10},
    "20 rounds of 10 steps": {"train.rounds": 20, "train.local_steps": 10},
}
"""Differences of `collaboration` from the map: name -> settings."""
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    THE_MAPS: {},
    "GroupNorm": {"model.encoder": "dcgan-narrow-groupnorm"},
    **LEVELS,
    "all four": {name: value for fields in LEVELS.values() for name, value in fields.items()},
}
"""Setting -> its differences from the map's."""
COMPARED = (Variant("local", "local"), Variant("fedper", "fedper"), OWN_DECODERS)
"""Variants in each setting."""


def name_in_regime(name: str, setting: str) -> str:
    """Name a variant in a setting."""
    return f"{name} | {setting}"


IN_SETTINGS = tuple(
    Variant(name_in_regime(one.name, setting), one.method, {**one.set, **fields})
    for setting, fields in SETTINGS.items()
    for one in COMPARED
)
"""All variants in all settings."""

UNSEEN = {"smoke": ((5, 3, 4),), "small": ((5, 3, 20), (100, 3, 20)), "paper": ((5, 3, 20), (20, 3, 20), (100, 3, 20))}
"""Scale -> places of the study with new clients, as many as others."""
PARTAKERS = (*VARIANTS[: VARIANTS.index("fedper") + 1], "fedavg")
"""Its methods: those of the map with encoders that some paper shares or does not share, and FedAvg."""


def _make_gain_map(scale: str) -> Grid:
    own = set_lambda_of_letter(scale, VARIANTS)
    return Grid(_make_base(scale), {PLACE: PLACES[scale], "seed": seeds(scale)}, own=own)


def _make_encoder(scale: str) -> Grid:
    own = set_lambda_of_letter(scale, IN_SETTINGS)
    short = SHORT if scale == "smoke" else {}
    for one in IN_SETTINGS:
        own[one.name] = {**own.get(one.name, {}), **one.set, **{name: short[name] for name in one.set if name in short}}
    return Grid(_make_base(scale), {PLACE: ENCODER_PLACES[scale], "seed": seeds(scale)}, own=own)


def _make_unseen(scale: str) -> Grid:
    vary = {(*PLACE, "new_clients"): tuple((*place, place[-1]) for place in UNSEEN[scale]), "seed": seeds(scale)}
    return Grid(_make_base(scale), vary, own=set_lambda_of_letter(scale, PARTAKERS))


def _make_base(scale: str) -> RunConfig:
    rounds, steps = STEPS[scale]
    return set_fields(base(scale, 9.0), {"train.rounds": rounds, "train.local_steps": steps, "train.batch_size": 20})


# fmt: off
# The map.
LETTER_REGIME = make_item("letter-regime", ORIGIN,
                          "Methods with personal or common encoders against images per class, classes and clients",
                          VARIANTS, _make_gain_map, PLACE[0], ("letter-regime", "letter-regime-uses"))
# Why the map and that of `collaboration` differ.
LETTER_ENCODER = make_item("letter-encoder", ORIGIN,
                           "What a common encoder gains, with one thing changed at a time between two settings",
                           tuple(Variant(one.name, one.method) for one in IN_SETTINGS), _make_encoder, PLACE[0])
# New clients. The table that a sweep prints is of the run's own clients.
LETTER_UNSEEN = make_item("letter-unseen", ORIGIN,
                          "What methods leave for clients that took no part, which train a head alone",
                          PARTAKERS, _make_unseen, PLACE[0], figures=())
# fmt: on

NAMED = "q {:g}, m {:g}, K {:g}"
"""Format of the name of a place of the map."""


def judge_regime_map(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge where FedCL's gain over `local` grows, and the gains by an averaged encoder and the SCG."""
    found = tabulate_by_seed(frame, places=PLACE)
    gain = found["fedcl"] - found["local"]
    yield decide("the gain grows as images become few", "q 5 minus q 100", gain[5, 3, 20] - gain[100, 3, 20])
    yield decide("the gain grows with the clients", "K 50 minus K 20", gain[5, 3, 50] - gain[5, 3, 20])
    pairs = {
        "averaging the encoder adds to FedCL": ("fedcl with a common encoder", "fedcl"),
        "the rest of FedCL adds to sharing the encoder": ("fedcl with common encoder and own decoders", "fedper"),
        "the SCG is worth more than mean centroids": ("fedcl", "fedcl with mean centroids"),
    }
    for title, (first, second) in pairs.items():
        difference = found[first] - found[second]
        yield decide(title, "mean over all places", over_places(difference))
        yield from decide_at_each(title, difference, PLACE, NAMED)


def judge_regime_encoder(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge the gain by a common encoder in each setting, by the setting, and by FedCL's training."""
    found = tabulate_by_seed(frame, places=PLACE)
    gains = {s: found[name_in_regime("fedper", s)] - found[name_in_regime("local", s)] for s in SETTINGS}
    rest = {s: found[name_in_regime(OWN_DECODERS.name, s)] - found[name_in_regime("fedper", s)] for s in SETTINGS}

    for setting, gain in gains.items():
        yield from decide_at_each("FedPer minus local", gain, PLACE[:1], f"{setting}, q {{:g}}", describe)
    for setting in SETTINGS:
        if setting != THE_MAPS:
            title = "the setting raises what a common encoder gains"
            yield from decide_at_each(title, gains[setting] - gains[THE_MAPS], PLACE[:1], f"{setting}, q {{:g}}")
    for setting, more in rest.items():
        yield from decide_at_each("FedCL's training minus FedPer's", more, PLACE[:1], f"{setting}, q {{:g}}", describe)
    title = "FedCL's training adds less to a common encoder with GroupNorm"
    yield from decide_at_each(title, rest[THE_MAPS] - rest["GroupNorm"], PLACE[:1], "GroupNorm, q {:g}")


def judge_regime_unseen(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge whether FedCL leaves new clients a better encoder than local training, and than sharing the encoder."""
    number = "new_clients.head.accuracy"
    ours = read_variant(frame, "fedcl", number, PLACE)
    for rival in ("local", "fedper"):
        theirs = read_variant(frame, rival, number, PLACE)
        title = f"FedCL leaves new clients a better encoder than {rival}"
        yield from decide_at_each(title, ours - theirs, PLACE, NAMED)
