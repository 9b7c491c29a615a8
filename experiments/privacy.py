"""Ask what features give away: to the base station, to a neighbour who listens, and to whom an encoder is a stranger's.

20 clients with 3 classes of CIFAR-10 and 150 images each send features over AWGN at 10 dB; FedAvg and FedPer share an
encoder, FedCL and Local have personal ones. All train through the channel, at k/n = 1/96 (64 features of an image) or
1/12 (512). At 1/96 stand three more settings: a channel of 0 dB; noise of the clients' own that makes the total at 10
dB the same (gradients come down at 10 dB in all); and an adversary in training. After training, attackers with 2,000
images of their own are tried on the test images of the first two clients, as `semcom attack` has them: at the base
station, over links of their own of -10, 0 and 20 dB, and with pairs by other clients' encoders alone. The choices are
ours: nothing is taken from a paper.

Scale `small`: 60 rounds, three seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from semcom.config import ChannelConfig, RunConfig
from semcom.files import ARRAYS
from semcom.runs.folder.arrays import LEAK, add_arrays
from semcom.studies.experiment import Experiment, Grid, Variant, each_scale
from semcom.studies.results.outcome import train_and_add_outcome
from semcom_papers.experiments import wireless
from semcom_papers.experiments.verdicts import Row, decide, decide_level, describe

if TYPE_CHECKING:
    from semcom.attacks.options import Attack
    from semcom.runs.result.result import Result

FIELDS = ("model.features", "channel.snr_db", "channel.feature_noise", "train.adversary")
OWN_NOISE = 0.9 / 1.1
"""v with v + (1 + v) 0.1 = 1: noise of the clients and that of 10 dB are together that of 0 dB."""
WEIGHT = 0.1
"""Of the adversary against which encoders are trained."""
FEW, MANY, HIDDEN, POOR, OPPOSED = SETTINGS = (
    (64, 10.0, 0.0, 0.0),
    (512, 10.0, 0.0, 0.0),
    (64, 10.0, OWN_NOISE, 0.0),
    (64, 0.0, 0.0, 0.0),
    (64, 10.0, 0.0, WEIGHT),
)
SHARED, PERSONAL = ("fedavg", "fedper"), ("fedcl", "local")
"""Methods with one encoder, and with one for each client."""
METHODS = (*SHARED, *PERSONAL)
VARIANTS = ("local", *SHARED, Variant("fedcl", "fedcl", {"channel.downlink_snr_db": 10.0}))
SNRS = (-10.0, 0.0, 20.0)
"""Mean SNRs of listeners in dB, beside the base station's 10."""
NEAR = "eavesdropper-20dB."
FAR = "eavesdropper--10dB."
STRANGER = "clients."
"""Names of listeners in `leak`."""
WITHIN, WITHIN_DB = 2.0, 1.0
"""Points within which two accuracies are level, and dB within which two PSNRs are."""


def list_attacks(scale: str) -> list[Attack]:
    """List the attacks on each run of a scale."""
    from semcom.attacks.options import Attack  # brings torch, which who draws the figures does not need

    size: dict[str, Any] = (
        {"clients": 1, "known": 100, "steps": 3} if scale == "smoke" else {"clients": 2, "steps": 300}
    )
    told = {name: size[name] for name in ("clients", "known") if name in size}
    return [
        Attack(**size),
        Attack(knows="clients", **size),
        *(Attack(at="eavesdropper", snr_db=snr_db, **size) for snr_db in SNRS),
        Attack(kind="member", clients=size["clients"]),
        Attack(kind="labels", **told),
    ]


def train_and_attack(config: RunConfig) -> None:
    """Train, attack, and store what leaks as `leak`; of seed 0 with a few rebuilt images in arrays.npz."""
    train_and_add_outcome(config, attack_all)


def attack_all(result: Result) -> dict[str, Any]:
    """Carry out all attacks on a run."""
    from semcom.attacks.attack import carry_out_attack, note_leak

    scale = "smoke" if result.config.data.name == "digits" else "small"
    leak: dict[str, Any] = {}
    for wanted in list_attacks(scale):
        found = carry_out_attack(result, wanted)
        note_leak(leak, wanted, found)
        if found.rebuilt is not None and result.config.seed == 0 and result.out is not None:
            add_arrays(result.out / ARRAYS, found.rebuilt.list_arrays(found.setting), result.summary["hash"])
    return {LEAK: leak}


def _make_grid(scale: str) -> Grid:
    smoke = scale == "smoke"
    base = wireless.make_wireless_base(scale)
    fixed = replace(
        base,
        channel=ChannelConfig(kind="awgn"),
        train=replace(base.train, rounds=1 if smoke else 60, eval_every=5),
        keep=("weights",),
    )
    seeds = wireless.SIZES[scale]["seeds"]
    return Grid(fixed, {FIELDS: (MANY,) if smoke else SETTINGS, "seed": seeds})


PRIVACY = Experiment(
    name="privacy",
    title="What features give away: shared and personal encoders, listeners near and far, noise of one's own",
    paper="none",
    variants=VARIANTS,
    scales=each_scale(_make_grid, ("smoke", "small")),
    axis="model.features",
    figures=("privacy", "privacy-images"),
    train=train_and_attack,
)


def judge_privacy(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge what personal encoders, channels, noise of one's own and fewer features hide; PSNRs in dB."""

    def read(number: str, setting: tuple[float, ...] = FEW) -> pd.DataFrame:
        here = frame[np.isclose(frame[list(FIELDS)].to_numpy(float), setting).all(axis=1)]
        return here.pivot(index="seed", columns="variant", values=number)

    def above_class(listener: str, setting: tuple[float, ...] = FEW) -> pd.DataFrame:
        """Read how far rebuilt images are above the mean image of their class."""
        return read(f"leak.{listener}psnr", setting) - read(f"leak.{listener}psnr_class", setting)

    stranger, heard = above_class(STRANGER), above_class("")
    for name in METHODS:
        whose, how = ("shared", "better") if name in SHARED else ("personal", "worse")
        title = f"whom a {whose} encoder is a stranger's rebuilds {how} than the class"
        yield decide(title, name, stranger[name], above=name in SHARED)
    for name in PERSONAL:
        title = f"with pairs of its own a personal encoder hides no more than FedPer's, within {WITHIN_DB:g} dB"
        yield decide_level(title, name, heard[name] - heard["fedper"], WITHIN_DB)
    classes = 100 * read(f"leak.{STRANGER}accuracy")
    title = "global centroids tell strangers the classes: of rebuilt images FedCL minus Local, in points"
    yield decide(title, "fedcl", classes["fedcl"] - classes["local"])
    near, far = above_class(NEAR), above_class(FAR)
    for name in METHODS:
        yield decide("a listener at -10 dB rebuilds worse than one at 20 dB", name, far[name] - near[name], above=False)
        yield decide("and worse than the class", name, far[name], above=False)
    accuracy = {setting: 100 * read("accuracy", setting) for setting in SETTINGS}
    hidden, poor = above_class(NEAR, HIDDEN), above_class(NEAR, POOR)
    for name in METHODS:
        title = f"noise of one's own costs what the channel's does, within {WITHIN:g} points"
        yield decide_level(title, name, accuracy[HIDDEN][name] - accuracy[POOR][name], WITHIN)
        title = "and hides from a listener at 20 dB what that does not"
        yield decide(title, name, hidden[name] - poor[name], above=False)
    opposed = above_class(NEAR, OPPOSED)
    for name in METHODS:
        title = "an adversary in training hides from a listener at 20 dB"
        yield decide(title, name, (opposed - near)[name], above=False)
        title = f"and costs nothing, within {WITHIN:g} points"
        yield decide_level(title, name, (accuracy[OPPOSED] - accuracy[FEW])[name], WITHIN)
        title = "more accurate than noise of one's own, in points"
        yield decide(title, name, (accuracy[OPPOSED] - accuracy[HIDDEN])[name])
    many = above_class("", MANY)
    for name in METHODS:
        yield decide("more features give away more", name, many[name] - heard[name])
        yield describe("accuracy, 512 features minus 64, in points", name, accuracy[MANY][name] - accuracy[FEW][name])
    for setting in SETTINGS:
        place = "{} features, {:g} dB, own noise {:.2g}, adversary {:g}".format(*setting)
        for name in METHODS:
            yield describe(f"accuracy in percent, {place}", name, accuracy[setting][name])
            for who, listener in (("base station", ""), ("a stranger", STRANGER), ("20 dB", NEAR), ("-10 dB", FAR)):
                yield describe(f"PSNR over the class's, {place}, {who}", name, above_class(listener, setting)[name])
    for name in METHODS:
        for who, listener in (("the base station", ""), ("a stranger", STRANGER)):
            right = 100 * read(f"leak.{listener}accuracy")[name]
            yield describe(f"classes of images that {who} rebuilds, in percent", name, right)
    for number, what in (("auc", "AUC of membership, times 100"), ("label", "error of shares of classes, times 100")):
        for name in METHODS:
            yield describe(what, name, 100 * read(f"leak.{number}")[name])
