"""What a study says of the hypotheses of docs/protocol.md, each by the rule that is written there.

    python -m experiments.hypotheses experiments/results/letter-ablation-small.zip

prints a row for each hypothesis and place. Differences are paired by seed and in percentage points, but for rank
correlations (rho); intervals are 95 %, Student's t over seeds, and nothing is corrected for the number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.claims.scorecard import NEAR
from experiments.letter.answers import of_full, of_low, of_readings, of_scg
from experiments.letter.lead import BASE, GIVES, GIVES_NOT, STATED, effects, reaches
from experiments.letter.regime import OWN_DECODERS, PLACE, SETTINGS, THE_MAPS, in_setting
from experiments.letter.weight import INFONCE, LARGEST, PLAIN, UNTRAINED
from experiments.shell import on_studies
from experiments.verdicts import (
    OPEN,
    REFUTED,
    SUPPORTED,
    Row,
    answer,
    at_each,
    by_seed,
    decided,
    level,
    of_view,
    over_places,
    reported,
)
from semcom.config import ConfigError
from semcom.studies.analysis.means import markdown
from semcom.studies.analysis.statistics import t_interval
from semcom.studies.results.archive import stored_table

SMALL_GAIN = 3.0
"""Points that methods without a common encoder are said not to gain."""
MAP = ("partition.ways", "partition.shots")
"""The fields of collaboration's places: m, q."""
CHANNEL, ENCODER, LAMBDA, TAU, DIVISION = "channel.kind", "model.encoder", "hyper.lam", "hyper.tau", "division"
NAMED = "q {:g}, m {:g}, K {:g}"
"""What a place of the letter's map is called."""
COMMON_DECODER = ("fedcl", "lg_fedavg", "fedgh")
"""Methods with personal encoders under a common decoder, as the view `personal` has them."""
SAME_ORDER = 0.95
"""Rank correlation above which two orders of methods are said to be the same."""
LARGE_LOSS, SMALL_LOSS = 5.0, 2.0
"""Points that exchange over the air is said to cost at least, and at most."""


def hypotheses(path: Path | str) -> pd.DataFrame:
    """Return the hypotheses about a study's experiment, a row for each and place.

    Args:
        path: folder or archive of a sweep.

    Returns:
        Columns: hypothesis, place, difference, low, high (points), seeds, answer (supported, refuted, open).

    Raises:
        ConfigError: docs/protocol.md has none about it, or its runs are missing.
    """
    frame = stored_table(path)
    name = frame["experiment"].iloc[0]
    if name not in OF:
        raise ConfigError(f"hypotheses: docs/protocol.md has none about {name}; it has some about {', '.join(OF)}")
    try:
        return pd.DataFrame(OF[name](frame[frame["status"] == "done"]))
    except KeyError as error:
        raise ConfigError(f"hypotheses: the runs of {error} are missing") from None


def of_ablation(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield what FedCL's regulariser does to the power of features, and its common decoder to answers."""
    common, between = (by_seed(frame, f"clusters.power_{part}") for part in ("common", "between"))
    title = "the regulariser gives power to what classes have in common"
    for other in ("no regulariser", "fedproto"):
        yield decided(title, f"FedCL minus {other}", common["fedcl"] - common[other])
    for other in ("no regulariser", "fedproto"):
        name = f"FedCL minus {other}"
        yield reported("power of what tells classes apart grows", name, between["fedcl"] - between[other])
    among_ten, among_own = (by_seed(frame, f"{metric}.-9") for metric in ("at", "among_own_at"))
    g, h = (part["own decoders"] - part["fedcl"] for part in (among_ten, among_own))
    yield reported("own decoders gain", "-9 dB, among ten classes: g", g)
    yield reported("own decoders gain", "-9 dB, among own classes: h", h)
    title = "a common decoder answers classes that the client does not have"
    yield decided(title, "-9 dB: h - g / 2", h - g / 2, above=False)


def of_lead(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield whether a level gives FedCL a large lead, what its lead over FedAvg depends on, what the SCG is worth."""
    found = effects(frame)
    over = {rival: rows.set_index(["factor", "level"]) for rival, rows in found.groupby("rival")}
    proto, avg = over["fedproto"].dropna(subset=["lead_high"]), over["fedavg"]
    most = proto.loc[proto["lead_high"].idxmax()]
    all_below = answer(proto["lead_low"].max(), proto["lead_high"].max(), 10, above=False)
    place = f"highest: {': '.join(filter(None, most.name))}"
    yield _of_interval("no level gives a lead of 10 points over FedProto", place, most, "lead", all_below)
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


def _of_interval(hypothesis: str, place: str, row: pd.Series, number: str, said: str) -> Row:
    """Return the row of a hypothesis from one of `effects`: its lead or its effect."""
    low, high = ("lead_low", "lead_high") if number == "lead" else ("low", "high")
    ends = {"difference": row[number], "low": row[low], "high": row[high], "seeds": row["seeds"]}
    return {"hypothesis": hypothesis, "place": place, **ends, "answer": said}


def of_weight(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield FedCL's lead over FedProto with regularisers of one weight, what it could be, and whose work it is."""
    places = [ENCODER, LAMBDA]
    found = by_seed(frame, places=places)
    lead, plain = (found[name] - found["fedproto"] for name in ("fedcl", PLAIN.name))
    title = f"FedCL leads FedProto by more than {NEAR:g} points with lambda {LARGEST:g} for both"
    for row in at_each(title, lead.xs(LARGEST, level=LAMBDA), [ENCODER], limit=NEAR):
        yield row
        for stated in STATED["fedproto"]:
            said = {GIVES: SUPPORTED, GIVES_NOT: REFUTED}.get(reaches(row["low"], row["high"], stated), OPEN)
            yield {**row, "hypothesis": f"this can be the letter's lead of {stated:g}", "answer": said}
    title = f"it is so without the generator: more than {NEAR:g} points"
    yield from at_each(title, plain.xs(LARGEST, level=LAMBDA), [ENCODER], limit=NEAR)
    by_lambda = lead.unstack(LAMBDA).dropna()
    grown = by_lambda[LARGEST] - by_lambda[1.0]
    yield from at_each("the lead grows with lambda", grown, [ENCODER], f"{{}}, {LARGEST:g} minus 1")
    yield from at_each("FedCL minus FedProto", lead, places, "{}, lambda {:g}", reported)
    for name in ("fedcl", PLAIN.name, "fedproto"):
        by_lambda = found[name].unstack(LAMBDA).dropna()
        more = by_lambda[LARGEST] - by_lambda.drop(columns=LARGEST).max(axis=1)
        yield from at_each(f"lambda {LARGEST:g} minus the best one below", more, [ENCODER], f"{{}}, {name}", reported)


def of_pull(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield whether generated centroids stand a large lambda by their contrast, or by their length alone."""
    for number, place in (("accuracy", "{}"), ("among_own", "{}, among own classes")):
        found = by_seed(frame, number, [ENCODER])
        trained = found["fedcl"] - found[UNTRAINED.name]
        yield from at_each("training the generator helps", trained, [ENCODER], place)
        for name in (UNTRAINED.name, INFONCE.name):
            title = f"{name} leads FedProto by more than {NEAR:g} points"
            yield from at_each(title, found[name] - found["fedproto"], [ENCODER], place, limit=NEAR)


def of_regime(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield where FedCL's gain over `local` grows, and what an averaged encoder and the SCG add."""
    found = by_seed(frame, places=PLACE)
    gain = found["fedcl"] - found["local"]
    yield decided("the gain grows as images become few", "q 5 minus q 100", gain[5, 3, 20] - gain[100, 3, 20])
    yield decided("the gain grows with the clients", "K 50 minus K 20", gain[5, 3, 50] - gain[5, 3, 20])
    pairs = {
        "averaging the encoder adds to FedCL": ("fedcl with a common encoder", "fedcl"),
        "the rest of FedCL adds to sharing the encoder": ("fedcl with common encoder and own decoders", "fedper"),
        "the SCG is worth more than mean centroids": ("fedcl", "fedcl with mean centroids"),
    }
    for title, (first, second) in pairs.items():
        difference = found[first] - found[second]
        yield decided(title, "mean over all places", over_places(difference))
        yield from at_each(title, difference, PLACE, NAMED)


def of_encoder(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield what a common encoder gains in each setting, what a setting adds, and what FedCL's training adds to it."""
    found = by_seed(frame, places=PLACE)
    gains = {s: found[in_setting("fedper", s)] - found[in_setting("local", s)] for s in SETTINGS}
    rest = {s: found[in_setting(OWN_DECODERS.name, s)] - found[in_setting("fedper", s)] for s in SETTINGS}

    for setting, gain in gains.items():
        yield from at_each("FedPer minus local", gain, PLACE[:1], f"{setting}, q {{:g}}", reported)
    for setting in SETTINGS:
        if setting != THE_MAPS:
            title = "the setting raises what a common encoder gains"
            yield from at_each(title, gains[setting] - gains[THE_MAPS], PLACE[:1], f"{setting}, q {{:g}}")
    for setting, more in rest.items():
        yield from at_each("FedCL's training minus FedPer's", more, PLACE[:1], f"{setting}, q {{:g}}", reported)
    title = "FedCL's training adds less to a common encoder with GroupNorm"
    yield from at_each(title, rest[THE_MAPS] - rest["GroupNorm"], PLACE[:1], "GroupNorm, q {:g}")


def of_unseen(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield whether FedCL leaves new clients a better encoder than local training, and than sharing the encoder."""
    number = "new_clients.head.accuracy"
    ours = of_view(frame, "fedcl", number, PLACE)
    for rival in ("local", "fedper"):
        title = f"FedCL leaves new clients a better encoder than {rival}"
        yield from at_each(title, ours - of_view(frame, rival, number, PLACE), PLACE, NAMED)


def of_collaboration(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield which methods gain over `local`: those with a common encoder, those without, and most with two classes."""
    found = by_seed(frame, "last", MAP)
    personal = 100 * frame[frame["variant"] == "fedbabu"].set_index([*MAP, "seed"])["views.personal.last"].astype(float)
    gains = found.assign(fedbabu=personal).drop(columns="local").sub(found["local"], axis=0)
    several = gains[gains.index.get_level_values("partition.ways") > 2]
    for method in ("fedper", "fedrep", "fedbabu"):
        title = "a common encoder and an own head gain with several classes"
        yield decided(title, method, over_places(several[method]))
    for method in ("fedproto", "lg_fedavg", "fedgh", "fedcl"):
        cells = gains[method].groupby(list(MAP)).mean()
        place = f"{method} (largest {cells.max():.1f} at m {cells.idxmax()[0]:g}, q {cells.idxmax()[1]:g})"
        title = f"prototypes or heads alone gain less than {SMALL_GAIN:g} points"
        yield decided(title, place, over_places(gains[method]), SMALL_GAIN, above=False)
    for method in gains:
        yield reported("mean gain over all places", method, over_places(gains[method]))
    for method in gains.columns.drop("fedavg_ft"):
        more = over_places(gains["fedavg_ft"] - gains[method])
        yield reported("fine-tuned FedAvg minus others, all places", method, more)
    headline = found.drop(columns="local").sub(found["local"], axis=0)
    for shots, part in headline.xs(2, level="partition.ways").groupby("partition.shots"):
        intervals = [t_interval(part[method].dropna().to_numpy()) for method in part]
        none, some = (sum(test) for test in zip(*((i.high < 1, i.low > 0) for i in intervals), strict=True))
        said = SUPPORTED if none > len(intervals) / 2 else REFUTED if some > len(intervals) / 2 else OPEN
        place = f"q {shots:g}: {none} of {len(intervals)} methods gain less than 1 point, {some} gain"
        mean = t_interval(part.mean(axis=1).to_numpy())
        ends = {"difference": mean.mean, "low": mean.low, "high": mean.high, "seeds": len(part)}
        yield {"hypothesis": "with two classes most methods do not gain", "place": place, **ends, "answer": said}


def of_wireless_snr(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield what a common decoder loses in noise, and whether channels change the order of methods."""
    more: dict[str, dict[str, pd.Series]] = {}  # number -> method -> what it loses more than local, in points
    for number in ("last_at", "among_own_at"):
        lost = {
            name: of_view(frame, name, f"views.personal.{number}.10", [CHANNEL])
            - of_view(frame, name, f"views.personal.{number}.-5", [CHANNEL])
            for name in ("local", *COMMON_DECODER)
        }
        more[number] = {name: lost[name] - lost["local"] for name in COMMON_DECODER}
    title = "under a common decoder more is lost in noise than with local training"
    for name, values in more["last_at"].items():
        yield from at_each(title, values, [CHANNEL], f"{name}, {{}}")
    g, h = (pd.concat(list(of.values()), axis=1).mean(axis=1, skipna=False) for of in more.values())
    for channel in g.index.get_level_values(CHANNEL).unique():
        lost = reported("what is lost more, mean of the three", f"{channel}, among ten classes: g", g[channel])
        yield lost
        yield reported("what is lost more, mean of the three", f"{channel}, among own: h", h[channel])
        half = decided("that is knowing the classes: h - g / 2", channel, h[channel] - g[channel] / 2, above=False)
        yield half if lost["low"] > 0 else {**half, "answer": OPEN}
    of_methods = by_seed(frame, "last_at.10", [CHANNEL]).drop(columns="fedcrl").dropna()
    over_awgn = of_methods.loc["awgn"]
    pairs = combinations(over_awgn.index, 2)
    between = [over_awgn.loc[one].corr(over_awgn.loc[other], "spearman") for one, other in pairs]
    ends = {"low": min(between, default=math.nan), "high": max(between, default=math.nan)}
    yield {
        **{"hypothesis": "(reported: rho of two seeds over AWGN, least to largest)", "place": ""},
        **{"difference": float(np.mean(between)), **ends, "seeds": len(over_awgn), "answer": ""},
    }
    for channel in ("rayleigh", "ofdm"):
        rho = over_awgn.corrwith(of_methods.loc[channel], axis=1, method="spearman")
        yield decided(f"the order of methods is that over AWGN: rho above {SAME_ORDER:g}", channel, rho, SAME_ORDER)


def of_wireless_exchange(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield what exchange over the air costs methods that average encoders, and those that do not."""
    found = by_seed(frame, "last_at.10", ["air.parameters"])
    free = found.loc["ideal"]
    for name in ("fedavg", "fedper", "fedrep"):
        analog = frame[frame["air.parameters"] == "analog"]
        received = of_view(analog, name, "views.received.last_at.10", [])
        title = f"exchange over the air costs more than {LARGE_LOSS:g} points where encoders are averaged"
        yield decided(title, name, free[name] - received, LARGE_LOSS)
        yield reported("with the base station's encoder", name, free[name] - found.loc["analog"][name])
    for name in ("fedproto", "fedgh", "lg_fedavg"):
        title = f"it costs less than {SMALL_LOSS:g} points where they are not"
        yield decided(title, name, free[name] - found.loc["analog"][name], SMALL_LOSS, above=False)


def of_wireless_heterogeneity(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield whether common encoders gain over `local` with several classes, and less in noise."""
    several = frame[frame["partition.ways"] > 3]
    gains = {}
    for snr in (10, 0):
        found = by_seed(several, f"last_at.{snr}", ["partition.ways"])
        for name in ("fedper", "fedrep"):
            gains[name, snr] = over_places(found[name] - found["local"])
    for (name, snr), gain in gains.items():
        yield decided("a common encoder gains with several classes", f"{name}, {snr} dB", gain)
    for name in ("fedper", "fedrep"):
        difference = gains[name, 0] - gains[name, 10]
        yield decided("it gains less in noise", f"{name}, 0 dB minus 10 dB", difference, above=False)


def of_fedcrc_table1(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield whether FedCRC's models are above or level with others, at each division and on average, at the end."""
    frame = frame.assign(division=_divisions(frame))

    def of(method: str, view: str) -> pd.Series:
        return of_view(frame, method, f"views.{view}.last", [DIVISION])

    def and_mean(title: str, difference: pd.Series) -> Iterator[Row]:
        yield from at_each(title, difference, [DIVISION])
        yield decided(title, "mean over the divisions", over_places(difference))

    yield from and_mean("FedCRC's global model is above fedavg", of("fedcrc", "global") - of("fedavg", "global"))
    for row in and_mean(
        "FedCRC's global model is level with fedbabu", of("fedcrc", "global") - of("fedbabu", "global")
    ):
        yield {**row, "answer": level(row["low"], row["high"])}
    for view in ("personal", "own_body"):
        for rival in ("fedper", "fedrep"):
            yield from and_mean(f"FedCRC's {view} model is above {rival}", of("fedcrc", view) - of(rival, "personal"))
        yield from and_mean(
            f"FedCRC's {view} model is above its global one", of("fedcrc", view) - of("fedcrc", "global")
        )


def of_fedcrc_table2(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield whether FedCRC's global model is above FedAvg's on clients that took no part, at each beta."""
    places, number = ["partition.beta"], "new_clients.global.accuracy"
    difference = of_view(frame, "fedcrc", number, places) - of_view(frame, "fedavg", number, places)
    yield from at_each("on new clients FedCRC is above FedAvg", difference, places, "beta {:g}")


def of_fedcrc_table3(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield whether a tau of 0.99 is better than one of 0.2, at each division, and how personal models compare."""
    frame = frame.assign(division=_divisions(frame))
    found = of_view(frame, "fedcrc", "accuracy", [TAU, DIVISION])
    yield from at_each("tau 0.99 is better than 0.2", found[0.99] - found[0.2], [DIVISION])
    for view in ("personal", "own_body"):
        own = of_view(frame, "fedcrc", f"views.{view}.accuracy", [TAU, DIVISION])
        yield from at_each(f"{view}: tau 0.99 minus 0.2", own[0.99] - own[0.2], [DIVISION], of=reported)
        yield from at_each(f"{view} minus global", own - found, [TAU, DIVISION], "tau {:g}, {}", reported)


def _divisions(frame: pd.DataFrame) -> pd.Series:
    """Return the names of the divisions of FedCRC's runs: dataset and beta, or iid."""
    iid = frame["partition.kind"] == "iid"
    beta = frame["partition.beta"].astype(float).map("beta {:g}".format)
    return frame["data.name"] + " " + beta.where(~iid, "iid")


OF: Mapping[str, Callable[[pd.DataFrame], Iterator[Row]]] = {
    "letter-ablation": of_ablation,
    "letter-lead": of_lead,
    "letter-weight": of_weight,
    "letter-pull": of_pull,
    "letter-low": of_low,
    "letter-scg": of_scg,
    "letter-full": of_full,
    "letter-full-adam": of_full,
    "letter-readings": of_readings,
    "letter-regime": of_regime,
    "letter-encoder": of_encoder,
    "letter-unseen": of_unseen,
    "collaboration": of_collaboration,
    "wireless-snr": of_wireless_snr,
    "wireless-exchange": of_wireless_exchange,
    "wireless-heterogeneity": of_wireless_heterogeneity,
    "fedcrc-table1": of_fedcrc_table1,
    "fedcrc-table2": of_fedcrc_table2,
    "fedcrc-table3": of_fedcrc_table3,
}
"""Experiment -> its hypotheses."""


def _tell(path: str) -> None:
    print(markdown(hypotheses(path).map(lambda v: f"{v:z.2f}" if isinstance(v, float) else str(v))))


if __name__ == "__main__":
    on_studies(_tell)
