"""The letter at its own size: its rounds, clients and features, and DCGAN's widths (experiments/protocol.md).

The letter has 200 rounds, 20 clients, 64 features and DCGAN-like encoders. It does not give their widths: here DCGAN's
for images of 32x32, 64, 128 and 256. Its other open settings are those of its figures at scale `small`: 3 classes of
100 images, batches of 20, at most 100 test images of a class per client. Scale `small` is 9, 0 and -9 dB and three
seeds; `paper` has every test image, all twelve SNRs and five seeds.

    semcom sweep letter-full-search --scale small
    python -m semcom_papers.experiments.letter.low results/letter-full-search-small      # the choice, for CHOSEN
    semcom sweep letter-full --scale small
    semcom sweep letter-full-adam --scale small
    semcom sweep letter-full-infonce --scale small --reuse results/letter-full-small
    semcom sweep letter-full-adam-weights --scale small --reuse results/letter-full-adam-small
    python -m semcom_papers.experiments.hypotheses results/letter-full-small
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import pandas as pd

from semcom.config import RunConfig
from semcom.studies.experiment import Grid, Variant
from semcom.studies.grid import set_fields
from semcom_papers.experiments.claims.rule import SECOND
from semcom_papers.experiments.letter.figures import TEST_SNRS, base
from semcom_papers.experiments.letter.lead import STATED
from semcom_papers.experiments.letter.low import (
    CANDIDATES,
    FROM,
    LAMBDA,
    NUMBERS,
    READINGS,
    SNR,
    judge_losses,
    judge_stated_lead,
)
from semcom_papers.experiments.letter.weight import AS_PRINTED
from semcom_papers.experiments.papers.items import make_item
from semcom_papers.experiments.verdicts import Row, decide, decide_at_each, describe, read_variant, tabulate_by_seed

PLAIN = Variant("fedcl with mean centroids", "fedcl", {"hyper.centroids": "mean"})
SNRS = {"smoke": (-9.0, 9.0), "small": (-9.0, 0.0, 9.0), "paper": TEST_SNRS}
SEEDS = {"smoke": (0,), "small": (20, 21, 22), "paper": (20, 21, 22, 23, 24)}
ROUNDS = {"smoke": 2, "small": 200, "paper": 200}
FEATURES = 64
"""d, the ratio of a weight of the mean squared distance to one of the sum (Eq. 10)."""
CHOSEN: Mapping[float, Mapping[str, float]] = {
    -9.0: {"fedcl": 1.0, "fedproto": 1.0},
    0.0: {"fedcl": 0.25, "fedproto": 1.0},
    9.0: {"fedcl": 0.25, "fedproto": 1.0},
}
"""SNR -> `fedcl` or `fedproto` -> weight that `letter-full-search` chose at `small`, filled in before the first run of
`letter-full`, as in `semcom_papers.experiments.letter.low`."""


def make_full_base(scale: str, encoder: str = "dcgan") -> RunConfig:
    """Make the configuration that the runs of a scale share: the letter's size, but for a smoke test."""
    size = {"train.rounds": ROUNDS[scale], "train.batch_size": 50 if scale == "smoke" else 20}
    whole = {} if scale == "smoke" else {"train.optimizer": "sgd", "model.encoder": encoder}
    return set_fields(base(scale, 9.0), {**size, **whole})


def _make_search(scale: str) -> Grid:
    rounds = ROUNDS[scale]
    aside = {"partition.validation": 0.2, "partition.test_per_class": 10, "train.eval_every": rounds}
    fixed = set_fields(make_full_base(scale, "dcgan-narrow"), aside)
    return Grid(fixed, {SNR: SNRS[scale], LAMBDA: CANDIDATES, "seed": (1000,)})


LETTER_FULL_SEARCH = make_item(
    "letter-full-search", "FedCL letter (not in it)",
    "lambda of FedCL and of FedProto for 200 rounds, on validation images",
    (AS_PRINTED, "fedproto"), _make_search, SNR, (), ("smoke", "small"),
)  # fmt: skip
"""The search for lambda where training is as long as the letter's; with the narrow encoder."""


def list_tuned() -> tuple[Variant, ...]:
    """List FedCL and FedProto with the weights chosen at an SNR, if these are not the default."""
    return tuple(
        Variant(
            f"{method} with lambda chosen at {snr:g} dB",
            method,
            {LAMBDA: weight / FEATURES if method == "fedcl" else weight, SNR: snr},
        )
        for snr, weights in CHOSEN.items()
        for method, weight in weights.items()
        if weight != 1
    )


def _make_full(scale: str) -> Grid:
    return Grid(make_full_base(scale), {SNR: SNRS[scale], "seed": SEEDS[scale]})


INFONCE = Variant("fedcl with InfoNCE", "fedcl", {"hyper.scg_loss": "infonce"})


def _make_infonce(scale: str) -> Grid:
    seeds = SEEDS["smoke" if scale == "smoke" else "paper"]
    return Grid(make_full_base(scale), {SNR: SNRS[scale], "seed": seeds})


def _make_adam_grid(scale: str, snrs: Sequence[float] = (9.0,)) -> Grid:
    adam = {"train.optimizer": "adam", "train.batch_size": 50}
    return Grid(set_fields(make_full_base(scale), adam), {SNR: snrs, "seed": SEEDS[scale]})


WEIGHTED = tuple(
    Variant(f"fedcl with lambda {Fraction(lam)}", "fedcl", {LAMBDA: lam}) for lam in (1 / 64, 1 / 16, 1 / 4, 1.0, 4.0)
)

# fmt: off
# 200 rounds of 20 clients with the wider encoder; FedCL with its default lambda, 1/64 of the sum.
LETTER_FULL = make_item("letter-full", "FedCL letter, Figs. 2(a) and 2(b)", "The letter's methods at its own size",
                        ("fedcl", PLAIN, "fedproto", "fedavg", "local", *list_tuned()), _make_full, SNR)
# Whether what FedCL loses at its own size is Eq. 9's work; five seeds, three of them those of `letter-full`.
LETTER_FULL_INFONCE = make_item("letter-full-infonce", "FedCL letter, Fig. 2(b), with another loss of the generator",
                                "FedCL with InfoNCE in the place of Eq. 9 at the letter's own size",
                                (INFONCE, "fedproto"), _make_infonce, SNR, figures=())
# The only schedule at which FedCL led FedProto after 30 rounds, for 200.
LETTER_FULL_ADAM = make_item("letter-full-adam", "FedCL letter, Figs. 2(a) and 2(b)",
                             "The letter's methods at its own size, trained by Adam",
                             ("fedcl", PLAIN, "fedproto", "fedavg"), _make_adam_grid, SNR, figures=())
# Whether another weight, or another SNR, gives FedCL a lead with Adam.
LETTER_FULL_ADAM_WEIGHTS = make_item("letter-full-adam-weights", "FedCL letter, Figs. 2(a) and 2(b)",
                                     "FedCL's lambda at the letter's own size, trained by Adam",
                                     (*WEIGHTED, "fedproto", "local"),
                                     lambda scale: _make_adam_grid(scale, SNRS[scale]), SNR, figures=())
# fmt: on

PAIRED = ("fedcl bounded features", "fedcl public setting", "fedcl one update")
"""Variants of `letter-readings` whose change FedProto has, too."""


def judge_full_methods(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge FedCL's leads at the letter's size, whether they can be the letter's, and the worth of its generator."""
    for number, place in NUMBERS.items():
        found = tabulate_by_seed(frame, number, [SNR])
        mine, theirs = (_merge_tuned(found, method) for method in ("fedcl", "fedproto"))
        leads = {"default lambda": found["fedcl"] - found["fedproto"]}
        if any("chosen" in name for name in found):
            leads["chosen lambda"] = mine - theirs
        for name, lead in leads.items():
            yield from decide_at_each("FedCL is above FedProto", lead, [SNR], f"{{:g}} dB, {name}{place}")
            rival = (found["fedproto"] if name == "default lambda" else theirs)[FROM]
            where = f"{FROM:g} dB, {name}{place}"
            for stated in STATED["fedproto"]:
                title = "the lead over FedProto is"
                yield from judge_stated_lead(title, "its accuracy", where, lead[FROM], rival, stated)
        for stated in STATED["fedavg"]:
            rival, where = found["fedavg"][FROM], f"{FROM:g} dB{place}"
            lead = found["fedcl"][FROM] - rival
            yield from judge_stated_lead("the lead over FedAvg is", "its accuracy", where, lead, rival, stated)
        title = "generated centroids are above plain means"
        yield from decide_at_each(title, found["fedcl"] - found[PLAIN.name], [SNR], f"{{:g}} dB{place}")
        if "local" in found:
            title = "FedCL gains over training alone"
            yield from decide_at_each(title, mine - found["local"], [SNR], f"{{:g}} dB{place}")


def judge_infonce(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge FedCL's leads with InfoNCE under each reading, whether they can be the letter's, and the loss over SNR."""
    for reading, (number, view) in READINGS.items():
        mine = read_variant(frame, INFONCE.name, number, [SNR])
        theirs = read_variant(frame, "fedproto", number, [SNR], view)
        lead, place = mine - theirs, f"{{:g}} dB, {reading}"
        yield from decide_at_each("FedCL with InfoNCE is above FedProto", lead, [SNR], place)
        for snr, of in lead.groupby(SNR, sort=False):
            for stated in STATED["fedproto"] if snr == FROM else STATED["fedproto"][:1]:
                where, whole = place.format(snr), "FedProto's accuracy"
                yield from judge_stated_lead("its lead is", whole, where, of, theirs[snr], stated, SECOND)
        yield from judge_losses(reading, mine, theirs, SECOND)


def judge_adam_weights(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge FedCL's lead over FedProto under each reading and its gain over Local, with Adam and each lambda."""
    for weighted in WEIGHTED:
        place = f"{{:g}} dB, lambda {Fraction(weighted.set[LAMBDA])}"
        for reading, (number, view) in READINGS.items():
            mine = read_variant(frame, weighted.name, number, [SNR])
            lead, where = mine - read_variant(frame, "fedproto", number, [SNR], view), f"{place}, {reading}"
            yield from decide_at_each("FedCL is above FedProto", lead, [SNR], where)
            title = "its lead over FedProto is below 10 points"
            yield from decide_at_each(title, lead, [SNR], where, limit=10.0, above=False)
        for number, among in NUMBERS.items():
            mine, alone = (read_variant(frame, name, number, [SNR]) for name in (weighted.name, "local"))
            yield from decide_at_each("FedCL gains over training alone", mine - alone, [SNR], f"{place}{among}")


def _merge_tuned(found: pd.DataFrame, method: str) -> pd.Series:
    """Replace a method's numbers by those with the lambda that was chosen at an SNR."""
    series = found[method]
    for name in found:
        if name.startswith(f"{method} with lambda chosen"):
            series = found[name].combine_first(series)
    return series


def judge_readings(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge whether the lead over FedProto is below 10 points under each reading, and the change of the lead."""
    for number, place in NUMBERS.items():
        found = tabulate_by_seed(frame, number)
        base = found["fedcl"] - found["fedproto"]
        for name in [name for name in found if name.startswith("fedcl")]:
            rival = name.replace("fedcl", "fedproto") if name in PAIRED else "fedproto"
            lead = found[name] - found[rival]
            title = "no reading gives a lead of 10 points over FedProto"
            yield decide(title, f"{name}{place}", lead, 10, above=False)
            if name != "fedcl":
                yield describe("what it adds to the lead", f"{name}{place}", lead - base)
