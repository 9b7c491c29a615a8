"""The FedCL letter at low SNR, and generated centroids against plain means (experiments/protocol.md).

`letter-fig2b` has one lambda for each method, a downlink as noisy as the uplink, and prototypes without errors.
`letter-low` has, at each SNR, both methods at two weights and those that validation images choose; FedCL with a noisy
and with an ideal downlink, FedProto with prototypes that are error-free and that cross the air. So there are two
settings in which both have the same air: *error-free*, where the features alone are noisy, and *over the air*, where
all that is sent is. Lambda is the weight of the mean squared distance, for both: FedCL's 1/16 and 1/64 of the sum are 4
and 1.

    semcom sweep letter-low-search --scale small
    python -m experiments.letter.low results/letter-low-search-small      # the choice, which goes into CHOSEN
    semcom sweep letter-low --scale small
    python -m experiments.hypotheses results/letter-low-small
    semcom sweep letter-scg --scale small --reuse results/letter-low-small
    python -m experiments.hypotheses results/letter-scg-small

Scale `small` has what the letter's figures have: the narrow encoder, 60 rounds, 20 clients with 3 classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import pandas as pd

from experiments.claims.claim import Comparison
from experiments.claims.rule import FIRST, Rule
from experiments.letter.figures import base
from experiments.letter.lead import STATED
from experiments.letter.search import TIED, read_validation
from experiments.letter.weight import AS_PRINTED, MEAN, PLAIN
from experiments.papers.items import make_item
from experiments.shell import run_on_named_studies
from experiments.verdicts import (
    OPEN,
    REFUTED,
    SUPPORTED,
    Row,
    decide,
    decide_at_each,
    describe,
    read_variant,
    tabulate_by_seed,
)
from semcom.config import ConfigError
from semcom.studies.analysis.means import format_markdown
from semcom.studies.experiment import Grid, Variant
from semcom.studies.grid import set_fields
from semcom.studies.results.archive import read_stored_table

IDEAL = Variant("fedcl with ideal downlink", "fedcl", {**MEAN, "channel.downlink": "ideal"})
BY_AIR = Variant("fedproto over the air", "fedproto", {"air.parameters": "analog"})
TUNED = (AS_PRINTED, IDEAL, Variant("fedproto", "fedproto"), BY_AIR)
"""The arms whose lambda is chosen."""
SNR, LAMBDA = "channel.snr_db", "hyper.lam"
SNRS = {"smoke": (-9.0, 9.0), "small": (-15.0, -9.0, -3.0, 0.0, 3.0, 9.0), "paper": (-15.0, -9.0, -3.0, 0.0, 3.0, 9.0)}
EVEN = (1.0, 4.0)
"""Weights that are run everywhere: FedProto's default, and what the letter's figures have for FedCL."""
CANDIDATES = (0.25, 1.0, 4.0)
"""Weights that are chosen among."""
CHOSEN: Mapping[float, Mapping[str, float]] = {
    -15.0: {"fedcl": 0.25, "fedcl with ideal downlink": 0.25, "fedproto": 0.25, "fedproto over the air": 0.25},
    -9.0: {"fedcl": 0.25, "fedcl with ideal downlink": 0.25, "fedproto": 0.25, "fedproto over the air": 0.25},
    -3.0: {"fedcl": 0.25, "fedcl with ideal downlink": 0.25, "fedproto": 0.25, "fedproto over the air": 0.25},
    0.0: {"fedcl": 1.0, "fedcl with ideal downlink": 1.0, "fedproto": 1.0, "fedproto over the air": 1.0},
    3.0: {"fedcl": 1.0, "fedcl with ideal downlink": 1.0, "fedproto": 1.0, "fedproto over the air": 1.0},
    9.0: {"fedcl": 1.0, "fedcl with ideal downlink": 1.0, "fedproto": 1.0, "fedproto over the air": 1.0},
}
"""SNR -> arm -> the weight that `letter-low-search` has chosen at `small`. Empty until it is stored; filled before the
first run of `letter-low`."""
SEEDS = {"smoke": (20,), "small": (20, 21, 22, 23, 24), "paper": (20, 21, 22, 23, 24)}
"""None of those with which all this was seen."""
SEARCH_SEEDS = {"smoke": (1000,), "small": (1000, 1001)}
SEARCH_ROUNDS = {"smoke": 2, "small": 30}


def _make_search(scale: str) -> Grid:
    """Return the runs that lambda is chosen by: images set aside from training; the few tests count for nothing."""
    rounds = SEARCH_ROUNDS[scale]
    aside = {"partition.validation": 0.2, "partition.test_per_class": 10, "train.rounds": rounds}
    start = set_fields(base(scale, eval_every=rounds), aside)
    return Grid(start, {SNR: SNRS[scale], LAMBDA: CANDIDATES, "seed": SEARCH_SEEDS[scale]})


LETTER_LOW_SEARCH = make_item(
    "letter-low-search", "FedCL letter (not in it)",
    "lambda of FedCL and of FedProto at each SNR, on validation images",
    TUNED, _make_search, SNR, (), ("smoke", "small"),
)  # fmt: skip
"""The search for lambda at each SNR."""


def read_scores(frame: pd.DataFrame) -> pd.DataFrame:
    """Return SNR, variant, lam and score of each candidate: its mean validation accuracy over seeds, in %.

    Raises:
        ConfigError: a run has failed, and there is nothing to choose from yet.
    """
    each = frame.assign(score=100 * read_validation(frame))
    of = each.rename(columns={SNR: "snr", LAMBDA: "lam"}).astype({"snr": float, "lam": float})
    return of.groupby(["snr", "variant", "lam"], as_index=False)["score"].mean()


def choose_lambdas(rows: pd.DataFrame) -> dict[float, dict[str, float]]:
    """Return SNR -> arm -> the best weight; of those within half a point of it the nearest to 1, as a factor."""
    found: dict[float, dict[str, float]] = {}
    for (snr, variant), of in rows.groupby(["snr", "variant"]):
        tied = of[of["score"] >= of["score"].max() - 100 * TIED]
        found.setdefault(float(snr), {})[str(variant)] = float(min(tied["lam"], key=lambda lam: abs(math.log(lam))))
    return found


def places(scale: str) -> tuple[tuple[float, float], ...]:
    """Return SNR and lambda of the runs: two weights everywhere, and those that some arm has chosen at an SNR."""
    weights = {snr: sorted({*EVEN, *CHOSEN.get(snr, {}).values()}) for snr in SNRS[scale]}
    return tuple((snr, lam) for snr, of in weights.items() for lam in of)


def _low(scale: str) -> Grid:
    return Grid(base(scale), {(SNR, LAMBDA): places(scale), "seed": SEEDS[scale]})


LETTER_LOW = make_item(
    "letter-low", "FedCL letter, Fig. 2(b), with what it leaves open varied",
    "FedCL and FedProto at low SNR, over the same air and at the same weight",
    (AS_PRINTED, IDEAL, PLAIN, "fedproto", BY_AIR), _low, SNR, figures=(),
)  # fmt: skip
"""What FedCL loses at low SNR, and what that rests on."""

HEAVY = (4.0, 16.0, 64.0)
"""Weights of `letter-scg`: lambda 1/16, 1/4 and 1 of Eq. 10's sum."""
SCG_SNRS = {"smoke": (0.0, 9.0), "small": (0.0, 9.0), "paper": (0.0, 9.0)}


def _scg(scale: str) -> Grid:
    return Grid(base(scale), {SNR: SCG_SNRS[scale], LAMBDA: HEAVY, "seed": SEEDS[scale]})


LETTER_SCG = make_item(
    "letter-scg", "FedCL letter, Fig. 2(b), read as trainable against aggregated centroids",
    "FedCL with generated and with plain mean centroids, over lambda",
    (AS_PRINTED, PLAIN), _scg, LAMBDA, figures=(),
)  # fmt: skip
"""The letter's own comparison, in one architecture."""


def _print_choice(path: str) -> None:
    """Print the scores and the choice."""
    rows = read_scores(read_stored_table(path))
    wide = rows.pivot(index=["variant", "snr"], columns="lam", values="score").round(2).rename(columns=str)
    print(format_markdown(wide.reset_index().map(str)) + "\n")
    print(choose_lambdas(rows))


SAME_AIR: Mapping[str, tuple[str, str]] = {
    "error-free": (IDEAL.name, "fedproto"),
    "over the air": ("fedcl", BY_AIR.name),
}
"""Setting -> FedCL and FedProto as they are in it: where features alone are noisy, and where all that is sent is."""
READINGS: Mapping[str, tuple[str, str | None]] = {
    "over FedProto's head": ("accuracy", None),
    "over its nearest prototype": ("accuracy", "prototype"),
    "over its head, both among own classes": ("among_own", None),
    "over its nearest prototype, both among own classes": ("among_own", "prototype"),
}
"""What FedCL is held against -> the number of both, and FedProto's view (None: the headline). The nearest prototype is
one of the client's own classes by either number."""
NUMBERS = {"accuracy": "", "among_own": ", among own classes"}
"""Number -> what a place is called where it is that."""
FROM, TO = 9.0, -9.0
"""The SNRs between which a loss at low SNR is taken."""
ABOUT_TEN = 10.0
"""What FedCL loses at low SNR by the letter, in percent."""


def judge_arms(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield where FedCL stands to FedProto at low SNR, what each choice does, and what the letter says of it."""
    found = {number: tabulate_by_seed(frame, number, [SNR, LAMBDA]) for number in NUMBERS}
    for number, place in NUMBERS.items():
        for air, (fedcl, fedproto) in SAME_AIR.items():
            for name, (mine, theirs) in _pair_at_weights(found[number], fedcl, fedproto).items():
                where = f"{air}, {name}{place}"
                lead = (mine - theirs).dropna()
                yield from decide_at_each("FedCL is above FedProto", lead, [SNR], f"{{:g}} dB, {where}")
                by_snr = lead.unstack(SNR)
                grown = by_snr[TO] - by_snr[FROM]
                yield decide("its lead is larger at -9 dB than at 9 dB", where, grown)
                losses = [each.unstack(SNR)[FROM] - each.unstack(SNR)[TO] for each in (mine, theirs)]
                yield answer_as_stated(
                    "FedCL loses about 10 points from 9 to -9 dB", where, losses[0], ABOUT_TEN, lead=False
                )
                yield decide("FedProto loses more from 9 to -9 dB", where, losses[1] - losses[0])
    yield from _judge_choices(found["accuracy"])
    for number, place in NUMBERS.items():
        for weight in EVEN:
            of = found[number].xs(weight, level=LAMBDA)
            title = "generated centroids are above plain means"
            yield from decide_at_each(
                title, of["fedcl"] - of[PLAIN.name], [SNR], f"{{:g}} dB, lambda {weight:g}{place}"
            )


def _pair_at_weights(found: pd.DataFrame, one: str, other: str) -> dict[str, tuple[pd.Series, pd.Series]]:
    """Return both arms at weights of one size, and at those that were chosen, by SNR and seed."""
    pairs = {f"lambda {lam:g}": tuple(found.xs(lam, level=LAMBDA)[name] for name in (one, other)) for lam in EVEN}
    if CHOSEN:
        pairs["chosen lambda"] = tuple(_chosen(found, name) for name in (one, other))
    return pairs  # type: ignore[return-value]


def list_leads(frame: pd.DataFrame) -> Iterator[tuple[str, str, str, pd.Series]]:
    """Yield setting, weights, reading and FedCL's lead over FedProto in points, by SNR and seed, under each reading.

    Raises:
        ConfigError: runs of other studies, which have no weights.
    """
    if LAMBDA not in frame:
        raise ConfigError(f"study: its runs have no {LAMBDA}; letter-low has")
    for air, (fedcl, fedproto) in SAME_AIR.items():
        for reading, (number, view) in READINGS.items():
            sides = [
                read_variant(frame, fedcl, number, [SNR, LAMBDA]),
                read_variant(frame, fedproto, number, [SNR, LAMBDA], view),
            ]
            both = pd.concat(sides, axis=1, keys=[fedcl, fedproto]).sort_index()
            for weights, (mine, theirs) in _pair_at_weights(both, fedcl, fedproto).items():
                yield air, weights, reading, (mine - theirs).dropna()


def _chosen(found: pd.DataFrame, name: str) -> pd.Series:
    """Return an arm's numbers at each SNR with the lambda that was chosen for it there, by SNR and seed."""
    parts = {snr: found.loc[(snr, of[name]), name] for snr, of in CHOSEN.items()}
    return pd.concat(parts, names=[SNR])


def _judge_choices(found: pd.DataFrame) -> Iterator[Row]:
    """Yield what each of the three choices of `letter-fig2b` costs or gains, by itself, at each SNR."""
    one, four = (found.xs(lam, level=LAMBDA) for lam in EVEN)
    for name in ("fedcl", IDEAL.name):
        title = "a quarter of lambda raises FedCL"
        yield from decide_at_each(title, one[name] - four[name], [SNR], f"{{:g}} dB, {name}")
    for weight, of in zip(EVEN, (one, four), strict=True):
        place = f"{{:g}} dB, lambda {weight:g}"
        yield from decide_at_each("an ideal downlink raises FedCL", of[IDEAL.name] - of["fedcl"], [SNR], place)
        title = "prototypes over the air lower FedProto"
        yield from decide_at_each(title, of["fedproto"] - of[BY_AIR.name], [SNR], place)
    as_stored = four["fedcl"] - one["fedproto"]
    yield from decide_at_each("FedCL minus FedProto as letter-fig2b has them", as_stored, [SNR], "{:g} dB", describe)


def judge_scg(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield the lead of generated over plain mean centroids, and whether it can be the letter's."""
    for number, place in NUMBERS.items():
        found = tabulate_by_seed(frame, number, [SNR, LAMBDA])
        lead = found["fedcl"] - found[PLAIN.name]
        named = f"{{:g}} dB, lambda {{:g}}{place}"
        yield from decide_at_each("generated centroids are above plain means", lead, [SNR, LAMBDA], named)
        for stated in STATED["fedproto"]:
            for (snr, lam), of in lead.groupby([SNR, LAMBDA], sort=False):
                where = named.format(snr, lam)
                rival = float(found.loc[of.index, PLAIN.name].mean())
                title = f"the lead is {stated:g}"
                yield answer_as_stated(f"{title} points", where, of, stated)
                yield answer_as_stated(f"{title} % of the accuracy with plain means", where, of, stated * rival / 100)
        by_snr, by_lambda = lead.unstack(SNR), lead.unstack(LAMBDA)
        grown = by_snr[0.0] - by_snr[FROM]
        yield from decide_at_each("the lead is larger at 0 dB than at 9 dB", grown, [LAMBDA], f"lambda {{:g}}{place}")
        more = by_lambda[HEAVY[-1]] - by_lambda[HEAVY[0]]
        yield from decide_at_each("the lead is larger with lambda 64 than with 4", more, [SNR], f"{{:g}} dB{place}")
        for name in ("fedcl", PLAIN.name):
            lost = found[name].unstack(LAMBDA)
            for lam in HEAVY[1:]:
                title = f"lambda {lam:g} minus {HEAVY[0]:g}"
                difference = lost[lam] - lost[HEAVY[0]]
                yield from decide_at_each(title, difference, [SNR], f"{{:g}} dB, {name}{place}", describe)


def answer_as_stated(title: str, place: str, values: pd.Series, target: float, lead: bool = True) -> Row:
    """Return the row of a number that the letter states, answered by the rule for claims."""
    known = values.dropna()
    one = Comparison((known.reset_index(drop=True),), target, None, "fedcl", PLAIN.name, place, lead=lead)
    (judged,) = Rule(changes=FIRST).judge([one])  # that of the protocol when the hypothesis was written
    said = {"yes": SUPPORTED, "no": REFUTED, "open": OPEN}[judged.answer]
    return {**decide(title, place, known), "answer": said}


if __name__ == "__main__":
    run_on_named_studies(_print_choice)
