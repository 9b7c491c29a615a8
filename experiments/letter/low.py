"""The FedCL letter at low SNR, and generated centroids against plain means (experiments/protocol.md).

`letter-fig2b` has one lambda for each method, a downlink as noisy as the uplink, and prototypes without errors.
`letter-low` has, at each SNR, both methods at two weights and those that validation images choose; FedCL with a noisy
and with an ideal downlink, FedProto with prototypes that are error-free and that cross the air. So there are two
settings in which both have the same air: *error-free*, where the features alone are noisy, and *over the air*, where
all that is sent is. Lambda is the weight of the mean squared distance, for both: FedCL's 1/16 and 1/64 of the sum are 4
and 1.

    semcom sweep letter-low-search --scale small
    python -m semcom_papers.experiments.letter.low results/letter-low-search-small      # the choice, for CHOSEN
    semcom sweep letter-low --scale small
    python -m semcom_papers.experiments.hypotheses results/letter-low-small
    semcom sweep letter-scg --scale small --reuse results/letter-low-small
    python -m semcom_papers.experiments.hypotheses results/letter-scg-small

Scale `small` has what the letter's figures have: the narrow encoder, 60 rounds, 20 clients with 3 classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from semcom.config import ConfigError
from semcom.studies.analysis.means import format_markdown
from semcom.studies.experiment import Grid, Variant
from semcom.studies.grid import set_fields
from semcom.studies.results.archive import read_stored_table
from semcom_papers.experiments.claims.claim import Comparison, Values
from semcom_papers.experiments.claims.rule import FIRST, Rule
from semcom_papers.experiments.letter.figures import base
from semcom_papers.experiments.letter.lead import STATED
from semcom_papers.experiments.letter.search import choose_nearest, read_validation
from semcom_papers.experiments.letter.weight import AS_PRINTED, MEAN, PLAIN
from semcom_papers.experiments.papers.items import make_item
from semcom_papers.experiments.shell import run_on_named_studies
from semcom_papers.experiments.verdicts import (
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

IDEAL = Variant("fedcl with ideal downlink", "fedcl", {**MEAN, "channel.downlink": "ideal"})
BY_AIR = Variant("fedproto over the air", "fedproto", {"air.parameters": "analog"})
TUNED = (AS_PRINTED, IDEAL, Variant("fedproto", "fedproto"), BY_AIR)
"""The arms whose lambda is chosen."""
SNR, LAMBDA = "channel.snr_db", "hyper.lam"
SNRS = {"smoke": (-9.0, 9.0), "small": (-15.0, -9.0, -3.0, 0.0, 3.0, 9.0), "paper": (-15.0, -9.0, -3.0, 0.0, 3.0, 9.0)}
EVEN = (1.0, 4.0)
"""Weights of all runs: FedProto's default, and FedCL's in the letter's figures."""
CANDIDATES = (0.25, 1.0, 4.0)
"""Candidates of the search."""
CHOSEN: Mapping[float, Mapping[str, float]] = {
    -15.0: {"fedcl": 0.25, "fedcl with ideal downlink": 0.25, "fedproto": 0.25, "fedproto over the air": 0.25},
    -9.0: {"fedcl": 0.25, "fedcl with ideal downlink": 0.25, "fedproto": 0.25, "fedproto over the air": 0.25},
    -3.0: {"fedcl": 0.25, "fedcl with ideal downlink": 0.25, "fedproto": 0.25, "fedproto over the air": 0.25},
    0.0: {"fedcl": 1.0, "fedcl with ideal downlink": 1.0, "fedproto": 1.0, "fedproto over the air": 1.0},
    3.0: {"fedcl": 1.0, "fedcl with ideal downlink": 1.0, "fedproto": 1.0, "fedproto over the air": 1.0},
    9.0: {"fedcl": 1.0, "fedcl with ideal downlink": 1.0, "fedproto": 1.0, "fedproto over the air": 1.0},
}
"""SNR -> arm -> weight that `letter-low-search` chose at `small`, filled in before the first run of `letter-low`."""
SEEDS = {"smoke": (20,), "small": (20, 21, 22, 23, 24), "paper": (20, 21, 22, 23, 24)}
"""Other seeds than those with which the loss at low SNR was seen first."""
SEARCH_SEEDS = {"smoke": (1000,), "small": (1000, 1001)}
SEARCH_ROUNDS = {"smoke": 2, "small": 30}


def _make_search(scale: str) -> Grid:
    """Make the grid of the search, on images set aside from training; the few test images are not used."""
    rounds = SEARCH_ROUNDS[scale]
    aside = {"partition.validation": 0.2, "partition.test_per_class": 10, "train.rounds": rounds}
    start = set_fields(base(scale, eval_every=rounds), aside)
    return Grid(start, {SNR: SNRS[scale], LAMBDA: CANDIDATES, "seed": SEARCH_SEEDS[scale]})


LETTER_LOW_SEARCH = make_item(
    "letter-low-search", "FedCL letter (not in it)",
    "lambda of FedCL and of FedProto at each SNR, on validation images",
    TUNED, _make_search, SNR, (), ("smoke", "small"),
)  # fmt: skip


def read_low_scores(frame: pd.DataFrame) -> pd.DataFrame:
    """Read SNR, variant, lam and score of each candidate: its mean validation accuracy over seeds, in %.

    Raises:
        ConfigError: a run has failed.
    """
    runs = frame.assign(score=100 * read_validation(frame)).rename(columns={SNR: "snr", LAMBDA: "lam"})
    numbers = runs.astype({"snr": float, "lam": float})
    return numbers.groupby(["snr", "variant", "lam"], as_index=False)["score"].mean()


def choose_low_lambdas(rows: pd.DataFrame) -> dict[float, dict[str, float]]:
    """Choose SNR -> arm -> the best weight; of the weights within half a point of it the nearest to 1, as a factor."""
    found: dict[float, dict[str, float]] = {}
    for (snr, variant), candidates in rows.groupby(["snr", "variant"]):
        found.setdefault(float(snr), {})[str(variant)] = choose_nearest(candidates, 1.0)
    return found


def list_low_places(scale: str) -> tuple[tuple[float, float], ...]:
    """List SNR and lambda of the runs: two weights everywhere, and the weights chosen for an arm at an SNR."""
    return tuple((snr, lam) for snr in SNRS[scale] for lam in sorted({*EVEN, *CHOSEN.get(snr, {}).values()}))


def _make_low(scale: str) -> Grid:
    return Grid(base(scale), {(SNR, LAMBDA): list_low_places(scale), "seed": SEEDS[scale]})


LETTER_LOW = make_item(
    "letter-low", "FedCL letter, Fig. 2(b), with what it leaves open varied",
    "FedCL and FedProto at low SNR, over the same air and at the same weight",
    (AS_PRINTED, IDEAL, PLAIN, "fedproto", BY_AIR), _make_low, SNR, figures=(),
)  # fmt: skip

HEAVY = (4.0, 16.0, 64.0)
"""Weights of `letter-scg`: lambda 1/16, 1/4 and 1 of Eq. 10's sum."""
SCG_SNRS = (0.0, 9.0)


def _make_scg(scale: str) -> Grid:
    return Grid(base(scale), {SNR: SCG_SNRS, LAMBDA: HEAVY, "seed": SEEDS[scale]})


LETTER_SCG = make_item(
    "letter-scg", "FedCL letter, Fig. 2(b), read as trainable against aggregated centroids",
    "FedCL with generated and with plain mean centroids, over lambda",
    (AS_PRINTED, PLAIN), _make_scg, LAMBDA, figures=(),
)  # fmt: skip


def _print_choice(path: str) -> None:
    rows = read_low_scores(read_stored_table(path))
    wide = rows.pivot(index=["variant", "snr"], columns="lam", values="score").round(2).rename(columns=str)
    print(format_markdown(wide.reset_index().map(str)) + "\n")
    print(choose_low_lambdas(rows))


SAME_AIR: Mapping[str, tuple[str, str]] = {
    "error-free": (IDEAL.name, "fedproto"),
    "over the air": ("fedcl", BY_AIR.name),
}
"""Setting -> its variants of FedCL and FedProto: with noise on the features only, and on all that is sent."""
READINGS: Mapping[str, tuple[str, str | None]] = {
    "over FedProto's head": ("accuracy", None),
    "over its nearest prototype": ("accuracy", "prototype"),
    "over its head, both among own classes": ("among_own", None),
    "over its nearest prototype, both among own classes": ("among_own", "prototype"),
}
"""Comparison -> number of both arms, and FedProto's view (None: the headline). The nearest prototype is one of the
client's own classes by either number."""
NUMBERS = {"accuracy": "", "among_own": ", among own classes"}
"""Number -> its ending of the names of places."""
FROM, TO = 9.0, -9.0
"""SNRs of the loss at low SNR."""
ABOUT_TEN = 10.0
"""FedCL's loss at low SNR in the letter, in percent."""


def judge_low_arms(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge FedCL's lead over FedProto at low SNR, the effect of each choice, and the letter's statement."""
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
                yield from judge_losses(where, mine, theirs)
        yield from _judge_choices(found[number], place)
    for number, place in NUMBERS.items():
        for weight in EVEN:
            of = found[number].xs(weight, level=LAMBDA)
            title = "generated centroids are above plain means"
            yield from decide_at_each(
                title, of["fedcl"] - of[PLAIN.name], [SNR], f"{{:g}} dB, lambda {weight:g}{place}"
            )


def _pair_at_weights(found: pd.DataFrame, one: str, other: str) -> dict[str, tuple[pd.Series, pd.Series]]:
    """Pair both arms at equal weights, and at the chosen weights, by SNR and seed."""
    even = {f"lambda {lam:g}": found.xs(lam, level=LAMBDA) for lam in EVEN}
    pairs = {name: (part[one], part[other]) for name, part in even.items()}
    return {**pairs, "chosen lambda": (_select_chosen(found, one), _select_chosen(found, other))}


def list_leads(frame: pd.DataFrame) -> Iterator[tuple[str, str, str, pd.Series]]:
    """List setting, weights, reading and FedCL's lead over FedProto in points, by SNR and seed.

    Raises:
        ConfigError: runs of another study, without weights.
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


def _select_chosen(found: pd.DataFrame, name: str) -> pd.Series:
    """Select an arm's numbers at each SNR with the lambda chosen for it there, by SNR and seed."""
    return pd.concat({snr: found.loc[(snr, chosen[name]), name] for snr, chosen in CHOSEN.items()}, names=[SNR])


def _judge_choices(found: pd.DataFrame, among: str) -> Iterator[Row]:
    """Judge the effect of each of the three choices of `letter-fig2b` at each SNR; `among` ends the names of places."""
    one, four = (found.xs(lam, level=LAMBDA) for lam in EVEN)
    for name in ("fedcl", IDEAL.name):
        title = "a quarter of lambda raises FedCL"
        yield from decide_at_each(title, one[name] - four[name], [SNR], f"{{:g}} dB, {name}{among}")
    for weight, part in zip(EVEN, (one, four), strict=True):
        place = f"{{:g}} dB, lambda {weight:g}{among}"
        yield from decide_at_each("an ideal downlink raises FedCL", part[IDEAL.name] - part["fedcl"], [SNR], place)
        title = "prototypes over the air lower FedProto"
        yield from decide_at_each(title, part["fedproto"] - part[BY_AIR.name], [SNR], place)
    as_stored = four["fedcl"] - one["fedproto"]
    yield from decide_at_each(
        "FedCL minus FedProto as letter-fig2b has them", as_stored, [SNR], f"{{:g}} dB{among}", describe
    )


def judge_scg(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge the lead of generated over plain mean centroids, and whether it can be the letter's."""
    for number, place in NUMBERS.items():
        found = tabulate_by_seed(frame, number, [SNR, LAMBDA])
        lead = found["fedcl"] - found[PLAIN.name]
        named = f"{{:g}} dB, lambda {{:g}}{place}"
        yield from decide_at_each("generated centroids are above plain means", lead, [SNR, LAMBDA], named)
        for stated in STATED["fedproto"]:
            for place_of, part in lead.groupby([SNR, LAMBDA], sort=False):
                rival = found.loc[part.index, PLAIN.name]
                whole = "the accuracy with plain means"
                yield from judge_stated_lead("the lead is", whole, named.format(*place_of), part, rival, stated)
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


def judge_losses(place: str, mine: pd.Series, theirs: pd.Series, edition: frozenset[str] = FIRST) -> Iterator[Row]:
    """Judge how much FedCL and FedProto lose at low SNR; their accuracies are by SNR and seed."""
    losses = [each[FROM] - each[TO] for each in (mine, theirs)]
    yield _answer_as_stated(
        "FedCL loses about 10 points from 9 to -9 dB", place, losses[0], ABOUT_TEN, edition, lead=False
    )
    yield decide("FedProto loses more from 9 to -9 dB", place, losses[1] - losses[0])


def judge_stated_lead(
    title: str,
    whole: str,
    place: str,
    lead: pd.Series,
    rival: pd.Series,
    stated: float,
    edition: frozenset[str] = FIRST,
) -> Iterator[Row]:
    """Judge whether a lead is a stated percentage: as points, and as a fraction of the rival's accuracy, the whole.

    By the rule for claims in the edition in which the hypothesis was written.
    """
    share = stated * float(rival.mean()) / 100
    yield _answer_as_stated(f"{title} {stated:g} points", place, lead, stated, edition)
    yield _answer_as_stated(f"{title} {stated:g} % of {whole}", place, lead, share, edition)


def _answer_as_stated(
    title: str, place: str, values: pd.Series, target: float, edition: frozenset[str], lead: bool = True
) -> Row:
    """Judge a number that the letter states by an edition of the rule for claims."""
    known = values.dropna()
    one = Comparison((Values(known.to_numpy()),), target, None, "fedcl", PLAIN.name, place, lead=lead)
    (judged,) = Rule(changes=edition).judge([one])
    return {**decide(title, place, known), "answer": {"yes": SUPPORTED, "no": REFUTED, "open": OPEN}[judged.answer]}


if __name__ == "__main__":
    run_on_named_studies(_print_choice)
