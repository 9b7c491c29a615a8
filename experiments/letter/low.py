"""The FedCL letter at low SNR, and generated centroids against plain means (docs/protocol.md).

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
from collections.abc import Mapping

import pandas as pd

from experiments.letter.figures import base
from experiments.letter.search import TIED, validation
from experiments.letter.weight import AS_PRINTED, MEAN, PLAIN
from experiments.shell import on_studies
from semcom.studies.analysis.means import markdown
from semcom.studies.experiment import Experiment, Grid, Variant, each_scale
from semcom.studies.grid import set_fields
from semcom.studies.results.archive import stored_table

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
CHOSEN: Mapping[float, Mapping[str, float]] = {}
"""SNR -> arm -> the weight that `letter-low-search` has chosen at `small`. Empty until it is stored; filled before the
first run of `letter-low`."""
SEEDS = {"smoke": (20,), "small": (20, 21, 22, 23, 24), "paper": (20, 21, 22, 23, 24)}
"""None of those with which all this was seen."""
SEARCH_SEEDS = {"smoke": (1000,), "small": (1000, 1001)}
SEARCH_ROUNDS = {"smoke": 2, "small": 30}


def _search(scale: str) -> Grid:
    """Return the runs that lambda is chosen by: images set aside from training; the few tests count for nothing."""
    rounds = SEARCH_ROUNDS[scale]
    aside = {"partition.validation": 0.2, "partition.test_per_class": 10, "train.rounds": rounds}
    start = set_fields(base(scale, eval_every=rounds), aside)
    return Grid(start, {SNR: SNRS[scale], LAMBDA: CANDIDATES, "seed": SEARCH_SEEDS[scale]})


LETTER_LOW_SEARCH = Experiment(
    name="letter-low-search",
    title="lambda of FedCL and of FedProto at each SNR, on validation images",
    paper="FedCL letter (not in it)",
    variants=TUNED,
    scales=each_scale(_search, ("smoke", "small")),
    axis=SNR,
)
"""The search for lambda at each SNR."""


def scores(frame: pd.DataFrame) -> pd.DataFrame:
    """Return SNR, variant, lam and score of each candidate: its mean validation accuracy over seeds, in %.

    Raises:
        ConfigError: a run has failed, and there is nothing to choose from yet.
    """
    each = frame.assign(score=100 * validation(frame))
    of = each.rename(columns={SNR: "snr", LAMBDA: "lam"}).astype({"snr": float, "lam": float})
    return of.groupby(["snr", "variant", "lam"], as_index=False)["score"].mean()


def chosen(rows: pd.DataFrame) -> dict[float, dict[str, float]]:
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


LETTER_LOW = Experiment(
    name="letter-low",
    title="FedCL and FedProto at low SNR, over the same air and at the same weight",
    paper="FedCL letter, Fig. 2(b), with what it leaves open varied",
    variants=(AS_PRINTED, IDEAL, PLAIN, "fedproto", BY_AIR),
    scales=each_scale(_low),
    axis=SNR,
)
"""What FedCL loses at low SNR, and what that rests on."""

HEAVY = (4.0, 16.0, 64.0)
"""Weights of `letter-scg`: lambda 1/16, 1/4 and 1 of Eq. 10's sum."""
SCG_SNRS = {"smoke": (0.0, 9.0), "small": (0.0, 9.0), "paper": (0.0, 9.0)}


def _scg(scale: str) -> Grid:
    return Grid(base(scale), {SNR: SCG_SNRS[scale], LAMBDA: HEAVY, "seed": SEEDS[scale]})


LETTER_SCG = Experiment(
    name="letter-scg",
    title="FedCL with generated and with plain mean centroids, over lambda",
    paper="FedCL letter, Fig. 2(b), read as trainable against aggregated centroids",
    variants=(AS_PRINTED, PLAIN),
    scales=each_scale(_scg),
    axis=LAMBDA,
)
"""The letter's own comparison, in one architecture."""


def _tell(path: str) -> None:
    """Print the scores and the choice."""
    rows = scores(stored_table(path))
    wide = rows.pivot(index=["variant", "snr"], columns="lam", values="score").round(2).rename(columns=str)
    print(markdown(wide.reset_index().map(str)) + "\n")
    print(chosen(rows))


if __name__ == "__main__":
    on_studies(_tell)
