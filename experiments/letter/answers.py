"""What the letter's studies at low SNR, at its own size and under other readings say of the protocol's hypotheses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from experiments.claims.claim import Comparison
from experiments.claims.scorecard import judge
from experiments.letter.lead import STATED
from experiments.letter.low import BY_AIR, CHOSEN, EVEN, HEAVY, IDEAL, LAMBDA, SNR
from experiments.letter.weight import PLAIN
from experiments.verdicts import OPEN, REFUTED, SUPPORTED, Row, at_each, by_seed, decided, reported

SAME_AIR: Mapping[str, tuple[str, str]] = {
    "error-free": (IDEAL.name, "fedproto"),
    "over the air": ("fedcl", BY_AIR.name),
}
"""Setting -> FedCL and FedProto as they are in it: where features alone are noisy, and where all that is sent is."""
NUMBERS = {"accuracy": "", "among_own": ", among own classes"}
"""Number -> what a place is called where it is that."""
FROM, TO = 9.0, -9.0
"""The SNRs between which a loss at low SNR is taken."""
ABOUT_TEN = 10.0
"""What FedCL loses at low SNR by the letter, in percent."""


def of_low(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield where FedCL stands to FedProto at low SNR, what each choice does, and what the letter says of it."""
    found = {number: by_seed(frame, number, [SNR, LAMBDA]) for number in NUMBERS}
    for number, place in NUMBERS.items():
        for air, (fedcl, fedproto) in SAME_AIR.items():
            for name, (mine, theirs) in _at_weights(found[number], fedcl, fedproto).items():
                where = f"{air}, {name}{place}"
                lead = (mine - theirs).dropna()
                yield from at_each("FedCL is above FedProto", lead, [SNR], f"{{:g}} dB, {where}")
                by_snr = lead.unstack(SNR)
                grown = by_snr[TO] - by_snr[FROM]
                yield decided("its lead is larger at -9 dB than at 9 dB", where, grown)
                losses = [each.unstack(SNR)[FROM] - each.unstack(SNR)[TO] for each in (mine, theirs)]
                yield _stated("FedCL loses about 10 points from 9 to -9 dB", where, losses[0], ABOUT_TEN, lead=False)
                yield decided("FedProto loses more from 9 to -9 dB", where, losses[1] - losses[0])
    yield from _choices(found["accuracy"])
    for number, place in NUMBERS.items():
        for weight in EVEN:
            of = found[number].xs(weight, level=LAMBDA)
            title = "generated centroids are above plain means"
            yield from at_each(title, of["fedcl"] - of[PLAIN.name], [SNR], f"{{:g}} dB, lambda {weight:g}{place}")


def _at_weights(found: pd.DataFrame, one: str, other: str) -> dict[str, tuple[pd.Series, pd.Series]]:
    """Return both arms at weights of one size, and at those that were chosen, by SNR and seed."""
    pairs = {f"lambda {lam:g}": tuple(found.xs(lam, level=LAMBDA)[name] for name in (one, other)) for lam in EVEN}
    if CHOSEN:
        pairs["chosen lambda"] = tuple(_chosen(found, name) for name in (one, other))
    return pairs  # type: ignore[return-value]


def _chosen(found: pd.DataFrame, name: str) -> pd.Series:
    """Return an arm's numbers at each SNR with the lambda that was chosen for it there, by SNR and seed."""
    parts = {snr: found.loc[(snr, of[name]), name] for snr, of in CHOSEN.items()}
    return pd.concat(parts, names=[SNR])


def _choices(found: pd.DataFrame) -> Iterator[Row]:
    """Yield what each of the three choices of `letter-fig2b` costs or gains, by itself, at each SNR."""
    one, four = (found.xs(lam, level=LAMBDA) for lam in EVEN)
    for name in ("fedcl", IDEAL.name):
        title = "a quarter of lambda raises FedCL"
        yield from at_each(title, one[name] - four[name], [SNR], f"{{:g}} dB, {name}")
    for weight, of in zip(EVEN, (one, four), strict=True):
        place = f"{{:g}} dB, lambda {weight:g}"
        yield from at_each("an ideal downlink raises FedCL", of[IDEAL.name] - of["fedcl"], [SNR], place)
        title = "prototypes over the air lower FedProto"
        yield from at_each(title, of["fedproto"] - of[BY_AIR.name], [SNR], place)
    as_stored = four["fedcl"] - one["fedproto"]
    yield from at_each("FedCL minus FedProto as letter-fig2b has them", as_stored, [SNR], "{:g} dB", reported)


def of_scg(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield the lead of generated over plain mean centroids, and whether it can be the letter's."""
    for number, place in NUMBERS.items():
        found = by_seed(frame, number, [SNR, LAMBDA])
        lead = found["fedcl"] - found[PLAIN.name]
        named = f"{{:g}} dB, lambda {{:g}}{place}"
        yield from at_each("generated centroids are above plain means", lead, [SNR, LAMBDA], named)
        for stated in STATED["fedproto"]:
            for (snr, lam), of in lead.groupby([SNR, LAMBDA], sort=False):
                where = named.format(snr, lam)
                rival = float(found.loc[of.index, PLAIN.name].mean())
                title = f"the lead is {stated:g}"
                yield _stated(f"{title} points", where, of, stated)
                yield _stated(f"{title} % of the accuracy with plain means", where, of, stated * rival / 100)
        by_snr, by_lambda = lead.unstack(SNR), lead.unstack(LAMBDA)
        grown = by_snr[0.0] - by_snr[FROM]
        yield from at_each("the lead is larger at 0 dB than at 9 dB", grown, [LAMBDA], f"lambda {{:g}}{place}")
        more = by_lambda[HEAVY[-1]] - by_lambda[HEAVY[0]]
        yield from at_each("the lead is larger with lambda 64 than with 4", more, [SNR], f"{{:g}} dB{place}")
        for name in ("fedcl", PLAIN.name):
            lost = found[name].unstack(LAMBDA)
            for lam in HEAVY[1:]:
                title = f"lambda {lam:g} minus {HEAVY[0]:g}"
                difference = lost[lam] - lost[HEAVY[0]]
                yield from at_each(title, difference, [SNR], f"{{:g}} dB, {name}{place}", reported)


def of_full(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield FedCL's leads at the letter's size, whether they can be the letter's, and what its generator is worth."""
    for number, place in NUMBERS.items():
        found = by_seed(frame, number, [SNR])
        mine, theirs = (_with_tuned(found, method) for method in ("fedcl", "fedproto"))
        leads = {"default lambda": found["fedcl"] - found["fedproto"]}
        if any("chosen" in name for name in found):
            leads["chosen lambda"] = mine - theirs
        for name, lead in leads.items():
            yield from at_each("FedCL is above FedProto", lead, [SNR], f"{{:g}} dB, {name}{place}")
            for stated in STATED["fedproto"]:
                where = f"{FROM:g} dB, {name}{place}"
                rival = float((found["fedproto"] if name == "default lambda" else theirs)[FROM].mean())
                yield _stated(f"the lead over FedProto is {stated:g} points", where, lead[FROM], stated)
                share = f"the lead over FedProto is {stated:g} % of its accuracy"
                yield _stated(share, where, lead[FROM], stated * rival / 100)
        for stated in STATED["fedavg"]:
            lead = (found["fedcl"] - found["fedavg"])[FROM]
            where, rival = f"{FROM:g} dB{place}", float(found["fedavg"][FROM].mean())
            yield _stated(f"the lead over FedAvg is {stated:g} points", where, lead, stated)
            yield _stated(f"the lead over FedAvg is {stated:g} % of its accuracy", where, lead, stated * rival / 100)
        title = "generated centroids are above plain means"
        yield from at_each(title, found["fedcl"] - found[PLAIN.name], [SNR], f"{{:g}} dB{place}")
        for other in [name for name in ("local",) if name in found]:
            yield from at_each("FedCL gains over training alone", mine - found[other], [SNR], f"{{:g}} dB{place}")


def _with_tuned(found: pd.DataFrame, method: str) -> pd.Series:
    """Return a method's numbers, at each SNR those with the lambda that was chosen there, where there are such."""
    better = [found[name] for name in found if name.startswith(f"{method} with lambda chosen")]
    series = found[method]
    for other in better:
        series = other.combine_first(series)
    return series


PLAIN_ARMS = {
    **dict.fromkeys(("fedcl bounded features", "fedproto bounded features"), "bounded features"),
    **dict.fromkeys(("fedcl public setting", "fedproto public setting"), "public setting"),
    **dict.fromkeys(("fedcl one update", "fedproto one update"), "one update"),
}
"""Variants of `letter-readings` that change both arms -> the reading."""


def of_readings(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield the lead over FedProto under each reading, held against 10 points, and what it changes in the lead."""
    for number, place in NUMBERS.items():
        found = by_seed(frame, number)
        base = found["fedcl"] - found["fedproto"]
        for name in [name for name in found if name.startswith("fedcl")]:
            rival = name.replace("fedcl", "fedproto") if name in PLAIN_ARMS else "fedproto"
            lead = found[name] - found[rival]
            title = "no reading gives a lead of 10 points over FedProto"
            yield decided(title, f"{name}{place}", lead, 10, above=False)
            if name != "fedcl":
                yield reported("what it adds to the lead", f"{name}{place}", lead - base)


def _stated(title: str, place: str, values: pd.Series, target: float, lead: bool = True) -> Row:
    """Return the row of a number that the letter states, answered by the rule for claims."""
    known = values.dropna()
    judged = judge(Comparison((known.reset_index(drop=True),), target, None, "fedcl", PLAIN.name, place, lead=lead))
    said = {"yes": SUPPORTED, "no": REFUTED, "open": OPEN}[judged.answer]
    return {**decided(title, place, known), "answer": said}
