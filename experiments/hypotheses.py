"""Judge the hypotheses of experiments/protocol.md by a study, each by the rule that is written there.

    python -m semcom_papers.experiments.hypotheses experiments/results/letter-ablation-small.zip

prints a row for each hypothesis and place. Differences are paired by seed and in percentage points, but for rank
correlations (rho); intervals are 95 %, Student's t over seeds, without correction for the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd

from semcom.channels.registry import Registry
from semcom.config import ConfigError
from semcom.studies.analysis.means import format_markdown
from semcom.studies.results.archive import read_stored_table
from semcom_papers.experiments.shell import run_on_named_studies
from semcom_papers.experiments.verdicts import Row

JUDGES: Registry[Callable[[pd.DataFrame], Iterator[Row]]] = Registry(
    "experiment",
    {
        "letter-ablation": "semcom_papers.experiments.letter.figures:judge_letter_ablation",
        "letter-lead": "semcom_papers.experiments.letter.lead:judge_levels",
        "letter-lead-low": "semcom_papers.experiments.letter.lead:judge_low_levels",
        "letter-weight": "semcom_papers.experiments.letter.weight:judge_lambda_weight",
        "letter-pull": "semcom_papers.experiments.letter.weight:judge_pull_weight",
        "letter-low": "semcom_papers.experiments.letter.low:judge_low_arms",
        "letter-scg": "semcom_papers.experiments.letter.low:judge_scg",
        "letter-full": "semcom_papers.experiments.letter.full:judge_full_methods",
        "letter-full-adam": "semcom_papers.experiments.letter.full:judge_full_methods",
        "letter-full-adam-weights": "semcom_papers.experiments.letter.full:judge_adam_weights",
        "letter-full-infonce": "semcom_papers.experiments.letter.full:judge_infonce",
        "letter-readings": "semcom_papers.experiments.letter.full:judge_readings",
        "letter-regime": "semcom_papers.experiments.letter.regime:judge_regime_map",
        "letter-encoder": "semcom_papers.experiments.letter.regime:judge_regime_encoder",
        "letter-unseen": "semcom_papers.experiments.letter.regime:judge_regime_unseen",
        "benchmark": "semcom_papers.experiments.benchmark_ends:judge_benchmark_ranks",
        "city": "semcom_papers.experiments.city:judge_city",
        "collaboration": "semcom_papers.experiments.collaboration:judge_collaboration_gains",
        "privacy": "semcom_papers.experiments.privacy:judge_privacy",
        "wireless-snr": "semcom_papers.experiments.wireless:judge_wireless_snr",
        "wireless-exchange": "semcom_papers.experiments.wireless:judge_wireless_exchange",
        "wireless-network": "semcom_papers.experiments.network:judge_network_settings",
        "wireless-heterogeneity": "semcom_papers.experiments.wireless:judge_wireless_heterogeneity",
        "wireless-time": "semcom_papers.experiments.wireless_time:judge_wireless_costs",
        "fedcrc-table1": "semcom_papers.experiments.fedcrc.items:judge_fedcrc_table1",
        "fedcrc-table2": "semcom_papers.experiments.fedcrc.items:judge_fedcrc_table2",
        "fedcrc-table3": "semcom_papers.experiments.fedcrc.items:judge_fedcrc_table3",
    },
)
"""Experiment -> function that answers its hypotheses from the finished runs of its table."""
READERS: Registry[Callable[[Path | str], pd.DataFrame]] = Registry(
    "experiment",
    {
        "benchmark": "semcom_papers.experiments.benchmark_ends:read_ends",
        "city": "semcom_papers.experiments.city:read_quarters",
    },
)
"""Experiment -> function that reads the argument of its judge in place of these runs."""


def judge_study(path: Path | str) -> pd.DataFrame:
    """Judge the hypotheses about a study's experiment: a row for each and place.

    Args:
        path: folder or archive of a sweep.

    Returns:
        Columns: hypothesis, place, difference, low, high (points), seeds, answer (supported, refuted, open). A variant
        all of whose runs failed has a row of its own, without numbers.

    Raises:
        ConfigError: experiments/protocol.md has no hypotheses about it, or its runs are missing.
    """
    frame = read_stored_table(path)
    name = frame["experiment"].iloc[0]
    if name not in JUDGES:
        known = ", ".join(JUDGES.names())
        raise ConfigError(f"hypotheses: no judge answers those of {name}; there are some of {known}")
    try:
        runs = READERS.get(name)(path) if name in READERS else frame[frame["status"] == "done"]
        found = pd.DataFrame(JUDGES.get(name)(runs))
    except KeyError as error:
        raise ConfigError(f"hypotheses: the runs of {error} are missing") from None
    lost = sorted({*frame["variant"]} - {*frame[frame["status"] == "done"]["variant"]})
    failed = pd.DataFrame({"hypothesis": "(all runs failed)", "place": lost, "seeds": 0, "answer": ""})
    return pd.concat([found, failed], ignore_index=True) if lost else found


def _print(path: str) -> None:
    print(format_markdown(judge_study(path).map(lambda v: f"{v:z.2f}" if isinstance(v, float) else str(v))))


if __name__ == "__main__":
    run_on_named_studies(_print)
