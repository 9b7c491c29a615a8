"""What FedCL's lead is made of: one factor at a time from the base of the letter's figures (experiments/protocol.md).

Under each level of each factor FedCL, FedProto and FedAvg are trained with the same seeds as in the base. The *lead*
over an arm is FedCL's accuracy minus the arm's; the *effect* of a level is the lead under it minus the lead in the
base, paired by seed (of a level that changes another one further, minus the lead under that one). Factors that FedCL
alone has are held against the base's runs of the other arms, factors that FedCL has not against the base's runs of
FedCL; FedAvg is left out where it cannot run (encoders that differ). A *reading* is another number of runs that are
there: another view of an arm, answers among a client's own classes, the best round.

    semcom sweep letter-lead --scale small
    python -m experiments.letter.lead results/letter-lead-small
    semcom sweep letter-lead-low --scale small
    python -m experiments.letter.lead results/letter-lead-low-small

prints a row for each level and rival, what is said of the letter's numbers, and what is to be confirmed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import pandas as pd

from experiments.claims.rule import NEAR, WIDEST
from experiments.letter.figures import LAMBDA, MIXED, SCHEDULES, base, set_lambda_of_letter
from experiments.papers.items import make_item
from experiments.shell import run_on_named_studies
from experiments.verdicts import Row, answer
from semcom.config import ChannelConfig
from semcom.studies.analysis.means import format_markdown
from semcom.studies.analysis.statistics import compute_t_interval
from semcom.studies.experiment import Grid, Variant
from semcom.studies.grid import set_fields
from semcom.studies.results.archive import read_stored_table
from semcom.studies.results.table import read_number_in_row

ORIGIN = "none (what the FedCL letter's lead could follow from)"
ARMS = ("fedcl", "fedproto", "fedavg")
"""The methods that the letter compares."""
RIVALS = ARMS[1:]
STATED = {"fedproto": (12.75, 25.09), "fedavg": (38.55, 66.24)}
"""Rival -> the letter's leads, with 20 clients and at 9 dB, in percent."""
GIVES, INCONCLUSIVE, GIVES_NOT = "can give it", "inconclusive", "no setting tried gives it"
"""What is said of one of them."""
READINGS = ("points", "relative")
"""What its percentages may be: points, or parts of the rival's accuracy."""
ROUNDS = {"smoke": 2, "small": 30, "paper": 200}
MANY = {"smoke": 3, "small": 200, "paper": 1000}
"""Scale -> rounds that are many: at `small` the letter's."""
SEEDS = {"smoke": (10,), "small": (10, 11, 12, 13), "paper": (10, 11, 12, 13, 14)}
"""None of those of the letter's figures, whose results were known before."""
BASE = "base"
Runs = dict[str, dict[Any, dict[Any, Any]]]
"""Variant -> seed -> its row in the table of a sweep."""
FEWER = {"clients": 20, "partition.shots": 60, "train.batch_size": 30}
"""Field -> its largest value at scale `smoke`, where images are few."""


@dataclass(frozen=True)
class Level:
    """One level of a factor.

    Attributes:
        factor: what it is a level of.
        name: its own name.
        set: dotted field -> value under it.
        arms: the methods that are run under it; what it does not change keeps its runs in the base.
        never: methods that cannot be run under it.
        metric: number of the headline view that is compared, with the same one where it starts.
        start: title of the level that it changes further, with all arms: those that it does not change keep their runs
            there, and its effect is on the lead there.
        others: method -> title of the level whose runs are its own ones here too, as they would be the same.
    """

    factor: str
    name: str
    set: Mapping[str, Any]
    arms: Sequence[str] = ARMS
    never: Sequence[str] = ()
    metric: str = "accuracy"
    start: str = BASE
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Its name and that of its factor."""
        return name_level(self.factor, self.name)


@dataclass(frozen=True)
class Reading:
    """Other numbers of runs that are there, as a level without runs of its own.

    Attributes:
        factor: as of a level.
        name: its own name.
        numbers: method -> number of its headline view, or with dots of its runs; the accuracy of those not named.
        rivals: those whose lead it is about.
        level: title of the level under which the rivals' runs are taken.
    """

    factor: str
    name: str
    numbers: Mapping[str, str]
    rivals: Sequence[str] = RIVALS
    level: str = BASE


def name_level(factor: str, level: str) -> str:
    """Return what a level of a factor is called; the base has neither."""
    return f"{factor}: {level}" if level else BASE


def list_levels(scale: str, snr_db: float = 9.0) -> tuple[Level, ...]:
    """Return the levels of all factors, those of experiments/protocol.md, where the base has an SNR in dB."""
    own, others = ("fedcl",), RIVALS
    other = "sgd" if base(scale).train.optimizer == "adam" else "adam"
    passes = {"train.local_epochs": 5, "train.rounds": max(1, ROUNDS[scale] // 5)}
    rounds = {"train.rounds": MANY[scale]}
    many = name_level("rounds", "many")
    steps = {"train.local_steps": 300 // SCHEDULES[scale]["batch_size"]}  # those of the base, for 300 images
    noisy = {  # the images are, and the channel is not, whose SNR is left as it is
        **{"data.name": "noisy", "data.options": {"of": base(scale).data.name, "snr_db": snr_db}},
        **{"channel.kind": "ideal", "channel.snr_db": ChannelConfig().snr_db},
    }
    return (
        Level("exchange", "over the air", {"air.parameters": "analog"}, others),
        Level("training of the others", "no channel", {"train.through_link": False}, others),
        Level("training of FedCL", "no noise", {"channel.snr_db": math.inf, "channel.test_snr_db": snr_db}, own),
        Level("power", "free", {"channel.power": "free"}),
        Level("optimiser", "SGD 0.001 with batch 10", {"train.optimizer": "sgd", "train.batch_size": 10}),
        Level("optimiser", "Adam 0.001 with batch 50", {"train.optimizer": "adam", "train.batch_size": 50}),
        # Six rounds have no ten evaluations after the first rounds: the last one is compared.
        Level("5 local epochs", "as many passes", passes, metric="last"),
        Level("5 local epochs", "as many rounds", {"train.local_epochs": 5}),
        Level("rounds", "many", rounds),
        Level("rounds", "many with plain mean", {**rounds, "hyper.centroids": "mean"}, own, start=many),
        Level("rounds", "many with InfoNCE", {**rounds, "hyper.scg_loss": "infonce"}, own, start=many),
        Level("rounds", "many with a quarter of lambda", {**rounds, "hyper.lam": LAMBDA[scale] / 4}, own, start=many),
        Level("participation", "4 of 20", {"train.participation": 0.2}),
        Level("initial weights", "own", {"model.init": "client"}, ARMS[:2]),  # FedAvg's model is common to all
        Level("clients", "5", {"clients": 5}),
        Level("clients", "50", {"clients": 50}),
        Level("classes at 300 images", "2", {"partition.ways": 2, "partition.shots": 150}),
        Level("classes at 300 images", "5", {"partition.ways": 5, "partition.shots": 60}),
        Level("images per class with as many steps", "20", {"partition.shots": 20, **steps}),
        Level("images per class with as many steps", "500", {"partition.shots": 500, **steps}),
        Level("classes of the tests", "all ten", {"partition.test_classes": "all"}),
        Level("features", "16", {"model.features": 16}),
        Level("head", "mlp", {"model.head": "mlp"}),
        Level("lambda of FedCL", "16 times", {"hyper.lam": 16 * LAMBDA[scale]}, own),
        Level("lambda of FedProto", "64 times", {"hyper.lam": 64.0}, ("fedproto",), ("fedavg",)),
        Level("loss of the SCG", "InfoNCE", {"hyper.scg_loss": "infonce"}, own),
        Level("optimiser of the SCG", "the other one", {"hyper.scg_optimizer": other}, own),
        Level("steps of the SCG", "50", {"hyper.scg_steps": 50}, own),
        Level("steps of the SCG", "50 with InfoNCE", {"hyper.scg_steps": 50, "hyper.scg_loss": "infonce"}, own),
        Level("centroids", "plain mean", {"hyper.centroids": "mean"}, own),
        Level("centroids", "none", {"hyper.centroids": "none"}, own),
        Level("decoder", "not averaged", {"hyper.average_decoder": False}, own),
        Level("encoders", "four in turn", {"model.encoder": MIXED}, ARMS[:2], ("fedavg",)),
        Level("channel", "Rayleigh with MMSE", {"channel.kind": "rayleigh"}),
        Level("channel", "Rayleigh without equaliser", {"channel.kind": "rayleigh", "channel.equaliser": "none"}),
        Level("SNR", f"{snr_db - 3:g} dB", {"channel.snr_db": snr_db - 3}),
        Level("SNR", f"{snr_db + 3:g} dB", {"channel.snr_db": snr_db + 3}),
        Level("SNR", f"{snr_db:g} dB on the images", noisy),
    )


AIR = name_level("exchange", "over the air")
OWN = "among_own"
READ = (
    Reading("answer", "among own classes", dict.fromkeys(ARMS, OWN)),
    Reading("answer", "FedCL's among own classes", {"fedcl": OWN}),
    Reading("view of FedProto", "nearest prototype", {"fedproto": "views.prototype.accuracy"}, ("fedproto",)),
    Reading(
        *("view of FedProto", "nearest prototype, over the air", {"fedproto": "views.prototype.accuracy"}),
        *(("fedproto",), AIR),
    ),
    Reading(
        *("view of FedAvg", "encoder as received over the air", {"fedavg": "views.received.accuracy"}),
        *(("fedavg",), AIR),
    ),
    Reading("number", "best round", dict.fromkeys(ARMS, "best")),
)
"""Readings of the runs in the base, or over the air."""


def _grid(scale: str) -> Grid:
    start = set_fields(base(scale, 9.0), {"train.rounds": ROUNDS[scale]})
    return Grid(start, {"seed": SEEDS[scale]}, own=_list_own_settings(scale, _variants(scale)))


def _variants(scale: str) -> list[Variant]:
    """Return the arms in the base and under each level, with what the level sets at a scale."""
    changed = [Variant(f"{arm} | {level.title}", arm, level.set) for level in list_levels(scale) for arm in level.arms]
    return [*(Variant(f"{arm} | {BASE}", arm) for arm in ARMS), *changed]


def _list_own_settings(scale: str, variants: Sequence[Variant]) -> dict[str, dict[str, Any]]:
    """Return variant -> its settings at a scale, lambda among them; the names are the same at all scales."""
    most = FEWER if scale == "smoke" else {}
    found = set_lambda_of_letter(scale, variants)
    for variant in variants:
        own = {name: min(value, most[name]) if name in most else value for name, value in variant.set.items()}
        found[variant.name] = {**found.get(variant.name, {}), **own}
    return found


LETTER_LEAD = make_item(
    "letter-lead", ORIGIN, "FedCL, FedProto and FedAvg with one factor changed at a time",
    tuple(Variant(variant.name, variant.method) for variant in _variants("small")), _grid, "seed",
    ("letter-lead", "letter-lead-large"),
)  # fmt: skip
"""The screening of experiments/protocol.md."""

LOW = (0.0, -3.0)
"""SNRs of `letter-lead-low` in dB."""
LOW_ARMS = ARMS[:2]


def list_low_levels(scale: str, snr_db: float) -> tuple[Level, ...]:
    """Return the levels at a low SNR: those at 9 dB but the SNRs 3 dB off, as the other of `LOW` is one of them."""
    return tuple(
        replace(level, arms=tuple(arm for arm in level.arms if arm in LOW_ARMS))
        for level in list_levels(scale, snr_db)
        if level.factor != "SNR" or "data.name" in level.set
    )


def _at(name: str, snr_db: float) -> str:
    """Return what a variant is called at one of the low SNRs."""
    return f"{name} at {snr_db:g} dB"


def _list_low_variants(scale: str) -> list[Variant]:
    """Return FedCL and FedProto in the base and under each level, at each low SNR."""
    found = []
    for snr in LOW:
        there = {"channel.snr_db": snr}
        found += [Variant(_at(f"{arm} | {BASE}", snr), arm, there) for arm in LOW_ARMS]
        for level in list_low_levels(scale, snr):
            found += [Variant(_at(f"{arm} | {level.title}", snr), arm, {**there, **level.set}) for arm in level.arms]
    return found


def _make_low(scale: str) -> Grid:
    start = set_fields(base(scale), {"train.rounds": ROUNDS[scale]})
    return Grid(start, {"seed": SEEDS[scale]}, own=_list_own_settings(scale, _list_low_variants(scale)))


LETTER_LEAD_LOW = make_item(
    "letter-lead-low", ORIGIN, "FedCL and FedProto at 0 and -3 dB with one factor changed at a time",
    tuple(Variant(variant.name, variant.method) for variant in _list_low_variants("small")),
    _make_low, "seed", figures=(),
)  # fmt: skip
"""The screening at the SNRs where FedCL has led FedProto's own rule."""


def measure_low_effects(frame: pd.DataFrame, snr_db: float, view: str | None, scale: str = "small") -> pd.DataFrame:
    """Measure lead and effect of each level at a low SNR over a view of FedProto, as `measure_effects` does.

    Args:
        frame: the table of the sweep.
        snr_db: one of `LOW`.
        view: `prototype` for the nearest prototype, FedProto's own rule (None: its head).
        scale: of the sweep.
    """
    end = _at("", snr_db)
    part = frame[frame["variant"].str.endswith(end)]
    part = part.assign(variant=part["variant"].str.removesuffix(end))
    return measure_effects(part, scale, list_low_levels(scale, snr_db), RIVALS[:1], (), view)


CONFIRMED = ("lambda of FedProto: 64 times", "classes at 300 images: 2")
"""Titles of the levels that `find_strongest_levels` has chosen from the screening's stored results."""
TOGETHER = "together"
"""The factor of both of them at once."""


def list_confirmed_levels(scale: str, titles: Sequence[str] = CONFIRMED) -> tuple[Level, ...]:
    """Return the levels of the confirmation: each of the titles, and where there are two both together.

    The fields that both together set depend on the method (`_list_confirmed_fields`): it has none of its own. A
    method that only one of them changes is run once, under that one.
    """
    chosen = tuple(level for title in titles for level in list_levels(scale) if level.title == title)
    if len(chosen) < 2:
        return chosen
    by = {arm: [level.title for level in chosen if arm in level.arms] for arm in ARMS}
    never = tuple(arm for arm in ARMS if any(arm in level.never for level in chosen))
    arms = tuple(arm for arm, changed in by.items() if len(changed) > 1 and arm not in never)
    once = {arm: changed[0] for arm, changed in by.items() if len(changed) == 1}
    return (*chosen, Level(TOGETHER, " and ".join(titles), {}, arms, never, others=once))


def _list_confirmed_fields(scale: str, titles: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return variant -> its settings in the confirmation, the base's among them."""
    parts, variants = list_confirmed_levels(scale, titles), [Variant(f"{arm} | {BASE}", arm) for arm in ARMS]
    for level in parts:
        of = [one for one in parts if one.factor != TOGETHER] if level.factor == TOGETHER else [level]
        for arm in level.arms:
            both = {name: value for one in of if arm in one.arms for name, value in one.set.items()}
            variants.append(Variant(f"{arm} | {level.title}", arm, both))
    return _list_own_settings(scale, variants)


def _confirm(scale: str) -> Grid:
    start = set_fields(base(scale, 9.0), {"model.encoder": "dcgan"})
    return Grid(start, {"seed": SEEDS[scale][:3]}, own=_list_confirmed_fields(scale, CONFIRMED))


LETTER_LEAD_CONFIRM = make_item(
    "letter-lead-confirm", ORIGIN,
    "The base of letter-lead and what raises FedCL's lead most, with a wider encoder and 60 rounds",
    tuple(Variant(name, name.partition(" ")[0]) for name in _list_confirmed_fields("small", CONFIRMED)),
    _confirm, "seed", figures=(),
)  # fmt: skip
"""The confirmation of experiments/protocol.md."""


def measure_effects(
    frame: pd.DataFrame,
    scale: str = "small",
    of: Sequence[Level] | None = None,
    rivals: Sequence[str] = RIVALS,
    readings: Sequence[Reading] = READ,
    view: str | None = None,
) -> pd.DataFrame:
    """Return lead and effect of each level and reading on the lead over each rival, in points.

    Args:
        frame: the table of the sweep.
        scale: of it.
        of: its levels (None: those of the screening).
        rivals: those that FedCL is held against.
        readings: other numbers of its runs.
        view: the view of the rivals (None: their headline).

    Returns:
        Columns: factor, level, rival, lead, lead_low, lead_high, rival_accuracy (its mean over the same seeds), effect,
        low, high, own, own_low, own_high (the lead where both answer among their clients' own classes), seeds; 95 %
        intervals, Student's t over the seeds' differences, NaN where there is none. The base comes first, without an
        effect; readings come last, with neither seeds of their own nor `own`.
    """
    runs: Runs = {}
    for row in frame[frame["status"] == "done"].to_dict("records"):
        runs.setdefault(row["variant"], {})[row["seed"]] = row
    pair = partial(_pair, runs, view=view)
    rows = [_make_row(BASE, "", rival, *pair(rival, {}), None, pair(rival, {}, OWN)) for rival in rivals]
    for level in list_levels(scale) if of is None else of:
        begun = dict.fromkeys(ARMS, level.start)
        where = {**begun, **level.others, **dict.fromkeys(level.arms, level.title)}
        for rival in (name for name in rivals if name not in level.never):
            start = _lead(*pair(rival, begun, level.metric))
            among = pair(rival, where, OWN) if level.metric == "accuracy" else None
            rows.append(_make_row(level.factor, level.name, rival, *pair(rival, where, level.metric), start, among))
    for reading in readings:
        for rival in reading.rivals:
            first = _numbers(runs, f"fedcl | {BASE}", reading.numbers.get("fedcl", "accuracy"))
            second = _numbers(runs, f"{rival} | {reading.level}", reading.numbers.get(rival, "accuracy"))
            rows.append(
                _make_row(reading.factor, reading.name, rival, first, second, _lead(*_pair(runs, rival, {})), None)
            )
    return pd.DataFrame(rows)


def _pair(
    runs: Runs, rival: str, where: Mapping[str, str], metric: str = "accuracy", view: str | None = None
) -> tuple[pd.Series, pd.Series]:
    """Return a number of FedCL and of a view of a rival by seed, in percent; of those in `where` under their levels."""
    numbers = {"fedcl": metric, rival: metric if view is None else f"views.{view}.{metric}"}
    first, second = (_numbers(runs, f"{arm} | {where.get(arm, BASE)}", number) for arm, number in numbers.items())
    return first, second


def _numbers(runs: Runs, variant: str, metric: str) -> pd.Series:
    """Return a number of a variant's runs by seed, in percent: of the headline view, or with dots of the whole run."""
    return 100 * pd.Series(
        {seed: read_number_in_row(row, metric) for seed, row in runs.get(variant, {}).items()}, dtype=float
    )


def _lead(first: pd.Series, second: pd.Series) -> pd.Series:
    """Return the differences of the seeds that both have."""
    return (first - second).dropna()


def _make_row(
    factor: str,
    level: str,
    rival: str,
    first: pd.Series,
    second: pd.Series,
    start: pd.Series | None,
    among: tuple[pd.Series, pd.Series] | None,
) -> dict[str, Any]:
    """Return a row of `measure_effects` from both arms' numbers, leads in the base, and numbers of own classes."""
    lead = _lead(first, second)
    effect = pd.Series(dtype=float) if start is None else _lead(lead, start)
    own = pd.Series(dtype=float) if among is None else _lead(*among)
    return {
        **{"factor": factor, "level": level, "rival": rival},
        **_measure_interval(lead, "lead", "lead_low", "lead_high"),
        "rival_accuracy": second[second.index.isin(lead.index)].mean(),
        **_measure_interval(effect, "effect", "low", "high"),
        **_measure_interval(own, "own", "own_low", "own_high"),
        "seeds": len(lead),
    }


def _measure_interval(values: pd.Series, *names: str) -> dict[str, float]:
    """Return the mean of values and the ends of its interval by three names; NaN where there are none."""
    if values.empty:
        return dict.fromkeys(names, math.nan)
    found = compute_t_interval(values.to_numpy())
    return dict(zip(names, (found.mean, found.low, found.high), strict=True))


def judge_stated(found: pd.DataFrame) -> pd.DataFrame:
    """Return what is said of each of the letter's numbers, by the rule of experiments/protocol.md.

    Args:
        found: what `measure_effects` returned.

    Returns:
        Columns: rival, stated (percent), reading, verdict ("can give it", "inconclusive" or "no setting tried gives
        it"), settings (titles of those that can; of inconclusive ones, where none can).
    """
    rows = []
    for rival in found["rival"].unique():
        mine, numbers = found[(found["rival"] == rival) & found["lead"].notna()], STATED[rival]
        for stated, reading in product(numbers, READINGS):
            said = {}
            for row in mine.to_dict("records"):
                goal = stated if reading == "points" else stated * row["rival_accuracy"] / 100
                said[name_level(row["factor"], row["level"])] = describe_reach(row["lead_low"], row["lead_high"], goal)
            verdict = next((v for v in (GIVES, INCONCLUSIVE) if v in said.values()), GIVES_NOT)
            settings = "; ".join(title for title, one in said.items() if one == verdict != GIVES_NOT)
            rows.append(
                {"rival": rival, "stated": stated, "reading": reading, "verdict": verdict, "settings": settings}
            )
    return pd.DataFrame(rows)


def describe_reach(low: float, high: float, goal: float) -> str:
    """Return what the interval of a lead says of a number of points that it could be."""
    if high < goal - NEAR:
        return GIVES_NOT
    sure = low > goal + NEAR or (low > 0 and high - low <= WIDEST)
    return GIVES if sure else INCONCLUSIVE


def find_strongest_levels(found: pd.DataFrame, scale: str = "small") -> list[str]:
    """Return the titles of the levels that are confirmed, by the protocol's rule: at most one for each rival.

    For each rival in turn, the level with the largest effect above zero whose interval excludes zero, of those that can
    be combined with what is there.

    Args:
        found: what `measure_effects` returned.
        scale: of it.
    """
    known = {level.title: level for level in list_levels(scale)}
    chosen: list[str] = []
    for rival in RIVALS:
        up = found[(found["rival"] == rival) & (found["low"] > 0)].sort_values("effect", ascending=False, kind="stable")
        titles = [name_level(factor, level) for factor, level in zip(up["factor"], up["level"], strict=True)]
        usable = (
            t for t in titles if t in known and t not in chosen and _can_combine(known[t], *map(known.get, chosen))
        )
        chosen += [title for title in (next(usable, None),) if title]
    return chosen


def _can_combine(one: Level, *others: Level | None) -> bool:
    """Return whether a level can be confirmed beside others: all are of other factors, and set other fields.

    The confirmation has an encoder and a number of rounds of its own.
    """
    fields = {*one.set}
    apart = all(other and other.factor != one.factor and not fields & {*other.set} for other in others)
    return apart and not fields & {"model.encoder", "train.rounds"}


def mark_significant(found: pd.DataFrame) -> pd.Series:
    """Return which effects, of those that `measure_effects` returned, have an interval that excludes zero."""
    return (found["low"] > 0) | (found["high"] < 0)


def _print_effects(path: str) -> None:
    """Print what the screening or the confirmation has found."""
    frame = read_stored_table(path)
    if frame["experiment"].iloc[0] == LETTER_LEAD_LOW.name:
        for (snr, name), found in _measure_all_low(frame):
            print(f"{snr:g} dB, over FedProto's {name}\n")
            for table in (found, judge_stated(found)):
                print(format_markdown(table.map(_cell)), end="\n\n")
        return
    screening = frame["experiment"].iloc[0] == LETTER_LEAD.name
    found = measure_effects(frame, of=None if screening else list_confirmed_levels("small"))
    for table in (found[found["seeds"] > 0], judge_stated(found)):
        print(format_markdown(table.map(_cell)), end="\n\n")
    if screening:
        print(f"to be confirmed: {' and '.join(find_strongest_levels(found)) or 'the base alone'}")


def _measure_all_low(frame: pd.DataFrame) -> Iterator[tuple[tuple[float, str], pd.DataFrame]]:
    """Yield SNR, what FedProto answers by, and what `measure_low_effects` returns."""
    for snr, (view, name) in product(LOW, ((None, "head"), ("prototype", "nearest prototype"))):
        yield (snr, name), measure_low_effects(frame, snr, view)


def _cell(value: Any) -> str:
    """Return a cell's text: nothing where there is no number."""
    if not isinstance(value, float):
        return str(value)
    return "" if math.isnan(value) else f"{value:z.1f}"


if __name__ == "__main__":
    run_on_named_studies(_print_effects)


def judge_levels(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield whether a level gives FedCL a large lead, what its lead over FedAvg depends on, what the SCG is worth."""
    found = measure_effects(frame)
    over = {rival: rows.set_index(["factor", "level"]) for rival, rows in found.groupby("rival")}
    proto, avg = over["fedproto"].dropna(subset=["lead_high"]), over["fedavg"]
    yield _judge_highest(proto)
    base = avg.loc[BASE, ""]
    title = "the lead over FedAvg exceeds 15 points where it answers among ten classes"
    yield _of_interval(title, "base", base, "lead", answer(base["lead_low"], base["lead_high"], 15))
    for place in (("answer", "among own classes"), ("classes of the tests", "all ten")):
        row = avg.loc[place]
        falls = answer(row["low"], row["high"], above=False)
        yield _of_interval("the lead over FedAvg falls with other tests", ": ".join(place), row, "effect", falls)
    row = over["fedproto"].loc["centroids", "plain mean"]
    title = "with mean centroids FedCL is at least as accurate (to 1 point)"
    yield _of_interval(title, "mean minus SCG", row, "effect", answer(row["low"], row["high"], -1))
    for changed in ("many with plain mean", "many with InfoNCE", "many with a quarter of lambda"):
        row = over["fedproto"].loc["rounds", changed]
        title = "with many rounds FedCL is more accurate without Eq. 9, or with less of it"
        yield _of_interval(title, changed, row, "effect", answer(row["low"], row["high"]))


def judge_low_levels(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield whether a level gives FedCL a large lead at low SNR, and what three of them do to it."""
    changes = (
        (("loss of the SCG", "InfoNCE"), "InfoNCE raises FedCL", True),
        (("centroids", "plain mean"), "plain means lower FedCL", False),
        (("exchange", "over the air"), "prototypes over the air lower FedProto", True),
    )
    for (snr, name), found in _measure_all_low(frame):
        rows = found.set_index(["factor", "level"]).dropna(subset=["lead_high"])
        where = f"{snr:g} dB, over FedProto's {name}"
        yield _judge_highest(rows, f"{where}, ")
        for place, title, above in changes:
            row = rows.loc[place]
            yield _of_interval(title, where, row, "effect", answer(row["low"], row["high"], above=above))


def _judge_highest(rows: pd.DataFrame, where: str = "") -> Row:
    """Return the row of the hypothesis that no level gives a lead of 10 points over FedProto."""
    most = rows.loc[rows["lead_high"].idxmax()]
    said = answer(rows["lead_low"].max(), rows["lead_high"].max(), 10, above=False)
    place = f"{where}highest: {': '.join(filter(None, most.name))}"
    return _of_interval("no level gives a lead of 10 points over FedProto", place, most, "lead", said)


def _of_interval(hypothesis: str, place: str, row: pd.Series, number: str, said: str) -> Row:
    """Return the row of a hypothesis from one of `measure_effects`: its lead or its effect."""
    low, high = ("lead_low", "lead_high") if number == "lead" else ("low", "high")
    ends = {"difference": row[number], "low": row[low], "high": row[high], "seeds": row["seeds"]}
    return {"hypothesis": hypothesis, "place": place, **ends, "answer": said}
