"""Find the sources of FedCL's lead, one factor at a time from the base of its figures (experiments/protocol.md).

Under each level of each factor FedCL, FedProto and FedAvg are trained with the same seeds as in the base. The *lead*
over an arm is FedCL's accuracy minus the arm's; the *effect* of a level is the lead under it minus the lead in the
base, paired by seed (for a level that changes another level further, minus the lead under that level). Factors of FedCL
only are compared with the base's runs of the other arms, factors that FedCL lacks with the base's runs of FedCL. FedAvg
is left out where it cannot run (encoders that differ). A *reading* is another number of the same runs: another view of
an arm, answers among a client's own classes, the best round.

    semcom sweep letter-lead --scale small
    python -m semcom_papers.experiments.letter.lead results/letter-lead-small
    semcom sweep letter-lead-low --scale small
    python -m semcom_papers.experiments.letter.lead results/letter-lead-low-small

prints a row for each level and rival, the verdicts on the letter's numbers, and the levels to be confirmed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import pandas as pd

from semcom.config import ChannelConfig
from semcom.studies.analysis.guessing import CHANCE
from semcom.studies.analysis.means import format_markdown
from semcom.studies.analysis.statistics import compute_t_interval
from semcom.studies.experiment import Grid, Variant
from semcom.studies.grid import set_fields
from semcom.studies.results.archive import read_stored_table
from semcom_papers.experiments.claims.rule import NEAR, WIDEST
from semcom_papers.experiments.letter.figures import LAMBDA, MIXED, SCHEDULES, base, set_lambda_of_letter
from semcom_papers.experiments.papers.items import make_item
from semcom_papers.experiments.shell import run_on_named_studies
from semcom_papers.experiments.verdicts import Row, answer, read_variant

ORIGIN = "none (what the FedCL letter's lead could follow from)"
ARMS = ("fedcl", "fedproto", "fedavg")
"""The methods that the letter compares."""
RIVALS = ARMS[1:]
STATED = {"fedproto": (12.75, 25.09), "fedavg": (38.55, 66.24)}
"""Rival -> the letter's leads, with 20 clients and at 9 dB, in percent."""
GIVES, INCONCLUSIVE, GIVES_NOT = "can give it", "inconclusive", "no setting tried gives it"
"""Verdicts on a stated lead."""
READINGS = ("points", "relative")
"""Readings of a stated percentage: points, or a fraction of the rival's accuracy."""
ROUNDS = {"smoke": 2, "small": 30, "paper": 200}
MANY = {"smoke": 3, "small": 200, "paper": 1000}
"""Scale -> rounds that are many: at `small` the letter's."""
SEEDS = {"smoke": (10,), "small": (10, 11, 12, 13), "paper": (10, 11, 12, 13, 14)}
"""Other seeds than those of the letter's figures, whose results were known before."""
BASE = "base"
FEWER = {"clients": 20, "partition.shots": 60, "train.batch_size": 30}
"""Field -> its largest value at scale `smoke`, where images are few."""


@dataclass(frozen=True)
class Level:
    """One level of a factor.

    Attributes:
        set: dotted field -> value under the level.
        arms: methods that the level changes; the others keep their runs in the base.
        never: methods that cannot run under the level.
        metric: number of the headline view that is compared.
        start: title of the level that this level changes further, with all arms: methods that it does not change keep
            their runs there, and its effect is on the lead there.
        others: method -> title of the level with the same runs as this level.
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
        """Names of factor and level."""
        return name_level(self.factor, self.name)


@dataclass(frozen=True)
class Reading:
    """Other numbers of the same runs, as a level without its own runs.

    Attributes:
        numbers: method -> number of its headline view, or with dots of its runs; the default is the accuracy.
        rivals: rivals that FedCL is compared with.
        level: title of the level with the rivals' runs.
    """

    factor: str
    name: str
    numbers: Mapping[str, str]
    rivals: Sequence[str] = RIVALS
    level: str = BASE


def name_level(factor: str, level: str) -> str:
    """Name a level of a factor; the base has neither."""
    return f"{factor}: {level}" if level else BASE


def list_levels(scale: str, snr_db: float = 9.0) -> tuple[Level, ...]:
    """List the levels of all factors in experiments/protocol.md, for a base with an SNR in dB."""
    own, others = ("fedcl",), RIVALS
    other = "sgd" if base(scale).train.optimizer == "adam" else "adam"
    passes = {"train.local_epochs": 5, "train.rounds": max(1, ROUNDS[scale] // 5)}
    rounds = {"train.rounds": MANY[scale]}
    many = name_level("rounds", "many")
    steps = {"train.local_steps": 300 // SCHEDULES[scale]["batch_size"]}  # those of the base, for 300 images
    noisy = {
        "data.name": "noisy",
        "data.options": {"of": base(scale).data.name, "snr_db": snr_db},
        "channel.kind": "ideal",
        "channel.snr_db": ChannelConfig().snr_db,  # the default, as an ideal channel has none
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
        "view of FedProto",
        "nearest prototype, over the air",
        {"fedproto": "views.prototype.accuracy"},
        ("fedproto",),
        AIR,
    ),
    Reading(
        "view of FedAvg", "encoder as received over the air", {"fedavg": "views.received.accuracy"}, ("fedavg",), AIR
    ),
    Reading("number", "best round", dict.fromkeys(ARMS, "best")),
)
"""Readings of the runs in the base, or over the air."""


def _make_grid(scale: str) -> Grid:
    start = set_fields(base(scale, 9.0), {"train.rounds": ROUNDS[scale]})
    return Grid(start, {"seed": SEEDS[scale]}, own=_list_own_settings(scale, _list_variants(list_levels(scale))))


def _list_variants(levels: Sequence[Level], arms: Sequence[str] = ARMS) -> list[Variant]:
    """List the arms in the base and under each level that changes them, with the settings of the level."""
    return [
        Variant(f"{arm} | {level.title}", arm, level.set)
        for level in (Level(BASE, "", {}, arms), *levels)
        for arm in level.arms
    ]


def _list_own_settings(scale: str, variants: Sequence[Variant]) -> dict[str, dict[str, Any]]:
    """Map variants to their settings at a scale, lambda among them; the names are the same at all scales."""
    most = FEWER if scale == "smoke" else {}
    found = set_lambda_of_letter(scale, variants)
    for variant in variants:
        own = {name: min(value, most[name]) if name in most else value for name, value in variant.set.items()}
        found[variant.name] = {**found.get(variant.name, {}), **own}
    return found


LETTER_LEAD = make_item(
    "letter-lead", ORIGIN, "FedCL, FedProto and FedAvg with one factor changed at a time",
    tuple(Variant(variant.name, variant.method) for variant in _list_variants(list_levels("small"))),
    _make_grid, "seed", ("letter-lead", "letter-lead-large"),
)  # fmt: skip

LOW = (0.0, -3.0)
"""SNRs of `letter-lead-low` in dB."""
LOW_ARMS = ARMS[:2]


def list_low_levels(scale: str, snr_db: float) -> tuple[Level, ...]:
    """List the levels at a low SNR: those at 9 dB but the SNRs 3 dB off, as these are in `LOW`."""
    return tuple(
        replace(level, arms=tuple(arm for arm in level.arms if arm in LOW_ARMS))
        for level in list_levels(scale, snr_db)
        if level.factor != "SNR" or "data.name" in level.set
    )


def _name_at(name: str, snr_db: float) -> str:
    return f"{name} at {snr_db:g} dB"


def _list_low_variants(scale: str) -> list[Variant]:
    """List FedCL and FedProto in the base and under each level, at each low SNR."""
    return [
        Variant(_name_at(one.name, snr), one.method, {"channel.snr_db": snr, **one.set})
        for snr in LOW
        for one in _list_variants(list_low_levels(scale, snr), LOW_ARMS)
    ]


def _make_low(scale: str) -> Grid:
    start = set_fields(base(scale), {"train.rounds": ROUNDS[scale]})
    return Grid(start, {"seed": SEEDS[scale]}, own=_list_own_settings(scale, _list_low_variants(scale)))


LETTER_LEAD_LOW = make_item(
    "letter-lead-low", ORIGIN, "FedCL and FedProto at 0 and -3 dB with one factor changed at a time",
    tuple(Variant(variant.name, variant.method) for variant in _list_low_variants("small")),
    _make_low, "seed", figures=(),
)  # fmt: skip


def measure_low_effects(frame: pd.DataFrame, snr_db: float, view: str | None) -> pd.DataFrame:
    """Measure lead and effect of each level at one of `LOW` over a view of FedProto, as `measure_effects` does.

    The view `prototype` is the nearest prototype, FedProto's own rule; None is its head.
    """
    end = _name_at("", snr_db)
    part = frame[frame["variant"].str.endswith(end)]
    part = part.assign(variant=part["variant"].str.removesuffix(end))
    return measure_effects(part, "small", list_low_levels("small", snr_db), RIVALS[:1], (), view)


CONFIRMED = ("lambda of FedProto: 64 times", "classes at 300 images: 2")
"""Titles of the levels that `find_strongest_levels` chose from the screening's stored results."""


def list_confirmed_levels(scale: str) -> tuple[Level, ...]:
    """List the levels of the confirmation: those of `CONFIRMED`, and both together.

    Together they are other runs for FedProto only: its lambda does not change FedCL, and FedAvg has none.
    """
    known = {level.title: level for level in list_levels(scale)}
    weight, classes = (known[title] for title in CONFIRMED)
    both, others = {**weight.set, **classes.set}, {"fedcl": classes.title}
    return weight, classes, Level("together", " and ".join(CONFIRMED), both, ("fedproto",), ("fedavg",), others=others)


def _make_confirmation(scale: str) -> Grid:
    start = set_fields(base(scale, 9.0), {"model.encoder": "dcgan"})
    return Grid(start, {"seed": SEEDS[scale][:3]}, own=_list_confirmed_settings(scale))


def _list_confirmed_settings(scale: str) -> dict[str, dict[str, Any]]:
    return _list_own_settings(scale, _list_variants(list_confirmed_levels(scale)))


LETTER_LEAD_CONFIRM = make_item(
    "letter-lead-confirm", ORIGIN,
    "The base of letter-lead and what raises FedCL's lead most, with a wider encoder and 60 rounds",
    tuple(Variant(name, name.partition(" ")[0]) for name in _list_confirmed_settings("small")),
    _make_confirmation, "seed", figures=(),
)  # fmt: skip


def measure_effects(
    frame: pd.DataFrame,
    scale: str = "small",
    levels: Sequence[Level] | None = None,
    rivals: Sequence[str] = RIVALS,
    readings: Sequence[Reading] = READ,
    view: str | None = None,
) -> pd.DataFrame:
    """Measure the lead over each rival under each level and reading, and the effect on it, in points.

    Args:
        frame: table of the sweep.
        scale: scale of the sweep.
        levels: levels of the sweep (None: those of the screening).
        rivals: rivals of FedCL.
        readings: other numbers of the runs.
        view: view of the rivals (None: their headline).

    Returns:
        Columns: factor, level, rival, lead, lead_low, lead_high, rival_accuracy (its mean over the same seeds), effect,
        low, high, own, own_low, own_high (the lead if both answer among their clients' own classes), seeds; 95 %
        intervals, Student's t over the seeds' differences, NaN if undefined. The base comes first, without an effect;
        readings come last, without `own`.
    """
    done = frame[frame["status"] == "done"]

    @functools.cache
    def read(arm: str, level: str, number: str = "accuracy") -> pd.Series:
        return read_variant(done, f"{arm} | {level}", number, ())

    def pair(rival: str, where: Mapping[str, str], metric: str = "accuracy") -> Pair:
        of_view = metric if view is None else f"views.{view}.{metric}"
        return read("fedcl", where.get("fedcl", BASE), metric), read(rival, where.get(rival, BASE), of_view)

    rows = [_make_row(BASE, "", rival, pair(rival, {}), among=pair(rival, {}, OWN)) for rival in rivals]
    for level in list_levels(scale) if levels is None else levels:
        begun = dict.fromkeys(ARMS, level.start)
        where = {**begun, **level.others, **dict.fromkeys(level.arms, level.title)}
        for rival in (name for name in rivals if name not in level.never):
            both, start = pair(rival, where, level.metric), pair(rival, begun, level.metric)
            among = pair(rival, where, OWN) if level.metric == "accuracy" else None
            rows.append(_make_row(level.factor, level.name, rival, both, start, among))
    for reading in readings:
        for rival in reading.rivals:
            first = read("fedcl", BASE, reading.numbers.get("fedcl", "accuracy"))
            second = read(rival, reading.level, reading.numbers.get(rival, "accuracy"))
            start = read("fedcl", BASE), read(rival, BASE)
            rows.append(_make_row(reading.factor, reading.name, rival, (first, second), start))
    return pd.DataFrame(rows)


Pair = tuple[pd.Series, pd.Series]
"""A number of FedCL and of a rival by seed, in percent."""


def _make_row(
    factor: str, level: str, rival: str, both: Pair, start: Pair | None = None, among: Pair | None = None
) -> dict[str, Any]:
    """Make a row of `measure_effects` from a pair under a level, where the level starts, and among own classes."""
    lead, second, none = _subtract(both), both[1], pd.Series(dtype=float)
    effect = none if start is None else (lead - _subtract(start)).dropna()
    own = none if among is None else _subtract(among)
    return {
        "factor": factor,
        "level": level,
        "rival": rival,
        **_measure_interval(lead, "lead", "lead_low", "lead_high"),
        "rival_accuracy": second[second.index.isin(lead.index)].mean(),
        **_measure_interval(effect, "effect", "low", "high"),
        **_measure_interval(own, "own", "own_low", "own_high"),
        "seeds": len(lead),
    }


def _subtract(both: Pair) -> pd.Series:
    return (both[0] - both[1]).dropna()


def _measure_interval(values: pd.Series, *names: str) -> dict[str, float]:
    """Compute the mean of values and the ends of its interval, by three names; NaN without values."""
    if values.empty:
        return dict.fromkeys(names, math.nan)
    found = compute_t_interval(values.to_numpy())
    return dict(zip(names, (found.mean, found.low, found.high), strict=True))


def judge_stated_leads(found: pd.DataFrame) -> pd.DataFrame:
    """Judge each of the letter's leads by the rule of experiments/protocol.md.

    Args:
        found: result of `measure_effects`.

    Returns:
        Columns: rival, stated (percent), reading, verdict ("can give it", "inconclusive" or "no setting tried gives
        it"), settings (titles of those that can give it, else of the inconclusive ones). Levels at which the rival
        guesses among the ten classes, which the protocol does not speak of, are left out.
    """
    rows = []
    for rival in found["rival"].unique():
        can = found["lead"].notna() & (found["rival_accuracy"] > 100 * CHANCE / 10)
        mine, numbers = found[(found["rival"] == rival) & can], STATED[rival]
        for stated, reading in product(numbers, READINGS):
            reaches = {}
            for row in mine.to_dict("records"):
                goal = stated if reading == "points" else stated * row["rival_accuracy"] / 100
                title = name_level(row["factor"], row["level"])
                reaches[title] = describe_reach(row["lead_low"], row["lead_high"], goal)
            verdict = next((v for v in (GIVES, INCONCLUSIVE) if v in reaches.values()), GIVES_NOT)
            settings = "; ".join(title for title, one in reaches.items() if one == verdict != GIVES_NOT)
            rows.append((rival, stated, reading, verdict, settings))
    return pd.DataFrame(rows, columns=["rival", "stated", "reading", "verdict", "settings"])


def describe_reach(low: float, high: float, goal: float) -> str:
    """Describe by the interval of a lead whether it can be a number of points."""
    if high < goal - NEAR:
        return GIVES_NOT
    sure = low > goal + NEAR or (low > 0 and high - low <= WIDEST)
    return GIVES if sure else INCONCLUSIVE


def find_strongest_levels(found: pd.DataFrame) -> list[str]:
    """Find the titles of the levels to be confirmed by the protocol's rule: at most one for each rival.

    For each rival in turn, the level with the largest effect above zero whose interval excludes zero, if it can be
    combined with the levels found before. `found` is the result of `measure_effects` at `small`.
    """
    known = {level.title: level for level in list_levels("small")}
    chosen: list[str] = []
    for rival in RIVALS:
        up = found[(found["rival"] == rival) & (found["low"] > 0)].sort_values("effect", ascending=False, kind="stable")
        titles = [name_level(factor, level) for factor, level in zip(up["factor"], up["level"], strict=True)]
        for title in titles:
            if title in known and title not in chosen and _can_combine_levels(known[title], [known[t] for t in chosen]):
                chosen.append(title)
                break
    return chosen


def _can_combine_levels(one: Level, others: Sequence[Level]) -> bool:
    """Check whether a level has another factor and other fields than the others and the confirmation itself."""
    fields = {*one.set}
    apart = all(other.factor != one.factor and not fields & {*other.set} for other in others)
    return apart and not fields & {"model.encoder", "train.rounds"}


def mark_significant(found: pd.DataFrame) -> pd.Series:
    """Mark the effects, in a result of `measure_effects`, whose intervals exclude zero."""
    return (found["low"] > 0) | (found["high"] < 0)


def _print_effects(path: str) -> None:
    frame = read_stored_table(path)
    if frame["experiment"].iloc[0] == LETTER_LEAD_LOW.name:
        for (snr, name), found in _measure_all_low(frame):
            print(f"{snr:g} dB, over FedProto's {name}\n")
            for table in (found, judge_stated_leads(found)):
                print(format_markdown(table.map(_format_cell)), end="\n\n")
        return
    screening = frame["experiment"].iloc[0] == LETTER_LEAD.name
    found = measure_effects(frame, levels=None if screening else list_confirmed_levels("small"))
    for table in (found[found["seeds"] > 0], judge_stated_leads(found)):
        print(format_markdown(table.map(_format_cell)), end="\n\n")
    if screening:
        print(f"to be confirmed: {' and '.join(find_strongest_levels(found)) or 'the base alone'}")


def _measure_all_low(frame: pd.DataFrame) -> Iterator[tuple[tuple[float, str], pd.DataFrame]]:
    """Measure the effects at each low SNR over both of FedProto's views: SNR and view, and the effects."""
    for snr, (view, name) in product(LOW, ((None, "head"), ("prototype", "nearest prototype"))):
        yield (snr, name), measure_low_effects(frame, snr, view)


def _format_cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return "" if math.isnan(value) else f"{value:z.1f}"


def judge_levels(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge whether a level gives FedCL a large lead, what its lead over FedAvg depends on, and the SCG's worth."""
    found = measure_effects(frame)
    over = {rival: rows.set_index(["factor", "level"]) for rival, rows in found.groupby("rival")}
    proto, avg = over["fedproto"], over["fedavg"]
    yield _judge_highest(proto.dropna(subset=["lead_high"]))
    title = "the lead over FedAvg exceeds 15 points where it answers among ten classes"
    yield _decide_by_row(title, "base", avg.loc[BASE, ""], 15, number="lead")
    for place in (("answer", "among own classes"), ("classes of the tests", "all ten")):
        yield _decide_by_row(
            "the lead over FedAvg falls with other tests", ": ".join(place), avg.loc[place], above=False
        )
    title = "with mean centroids FedCL is at least as accurate (to 1 point)"
    yield _decide_by_row(title, "mean minus SCG", proto.loc["centroids", "plain mean"], -1)
    title = "with many rounds FedCL is more accurate without Eq. 9, or with less of it"
    for changed in ("many with plain mean", "many with InfoNCE", "many with a quarter of lambda"):
        yield _decide_by_row(title, changed, proto.loc["rounds", changed])


def judge_low_levels(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge whether a level gives FedCL a large lead at low SNR, and the effects of three levels there."""
    for (snr, name), found in _measure_all_low(frame):
        rows = found.set_index(["factor", "level"]).dropna(subset=["lead_high"])
        where = f"{snr:g} dB, over FedProto's {name}"
        yield _judge_highest(rows, f"{where}, ")
        yield _decide_by_row("InfoNCE raises FedCL", where, rows.loc["loss of the SCG", "InfoNCE"])
        yield _decide_by_row("plain means lower FedCL", where, rows.loc["centroids", "plain mean"], above=False)
        yield _decide_by_row("prototypes over the air lower FedProto", where, rows.loc["exchange", "over the air"])


def _judge_highest(rows: pd.DataFrame, where: str = "") -> Row:
    """Judge whether no level gives a lead of 10 points over FedProto."""
    most = rows.loc[rows["lead_high"].idxmax()]
    place = f"{where}highest: {': '.join(filter(None, most.name))}"
    row = _decide_by_row("no level gives a lead of 10 points over FedProto", place, most, number="lead")
    return {**row, "answer": answer(rows["lead_low"].max(), rows["lead_high"].max(), 10, above=False)}


def _decide_by_row(
    title: str, place: str, row: pd.Series, limit: float = 0, above: bool = True, number: str = "effect"
) -> Row:
    """Decide a hypothesis on the lead or the effect in a row of `measure_effects`, as `verdicts.decide` does."""
    low, high = ("lead_low", "lead_high") if number == "lead" else ("low", "high")
    ends = {"difference": row[number], "low": row[low], "high": row[high], "seeds": row["seeds"]}
    return {"hypothesis": title, "place": place, **ends, "answer": answer(row[low], row[high], limit, above)}


if __name__ == "__main__":
    run_on_named_studies(_print_effects)
