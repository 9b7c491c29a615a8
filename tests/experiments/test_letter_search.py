"""The rule that chooses what the letter leaves open, and what its experiments are made of."""

from __future__ import annotations

import pandas as pd
import pytest

from semcom.config import ConfigError
from semcom.runs.request.resolve import resolve
from semcom.studies.experiment import Experiment
from semcom.studies.registry import find_experiment
from semcom.studies.results.archive import read_stored_table
from semcom.studies.sweep.divisions import mark_images
from semcom_papers.experiments.claims.evidence import COMMITTED
from semcom_papers.experiments.letter import figures as letter
from semcom_papers.experiments.letter import search
from semcom_papers.experiments.letter.lead import LETTER_LEAD
from semcom_papers.experiments.letter.regime import LETTER_REGIME

TIMES = {
    "lambda / 4": 1 / 4,
    "16 lambda": 16,
    "fedcl | lambda of FedCL: 16 times": 16,
    "fedcl | rounds: many with a quarter of lambda": 1 / 4,
}
"""Variant -> times the lambda that was found."""


def table(scores: dict[tuple[str, int, int], tuple[float, float, float]], failed: int = 0) -> pd.DataFrame:
    """The table of a sweep: (optimiser, batch, epochs) -> validation accuracies of the three arms."""
    rows = []
    for (optimizer, batch, epochs), values in scores.items():
        for variant, value in zip(letter.ARMS, values, strict=True):
            rows.append(
                {
                    **{"variant": variant, "method": variant, "view": "v", "views.v.validation": value},
                    **{"train.optimizer": optimizer, "train.batch_size": batch, "train.local_epochs": epochs},
                    **{"train.rounds": 60 // epochs, "status": "failed" if len(rows) < failed else "done"},
                }
            )
    return pd.DataFrame(rows)


def test_the_tied_schedule_with_the_fewest_steps_is_chosen() -> None:
    scores = {
        ("adam", 10, 1): (0.600, 0.600, 0.300),  # 50.0 %, 24 steps an epoch
        ("adam", 50, 1): (0.600, 0.600, 0.288),  # 49.6 %: tied, with 5 steps an epoch
        ("sgd", 50, 5): (0.600, 0.600, 0.288),  # as many steps: SGD's is the letter's
        ("sgd", 50, 1): (0.600, 0.600, 0.282),  # 49.4 %: not tied
    }
    rows = search.score_schedules(table(scores))
    assert rows["score"].tolist() == pytest.approx([50.0, 49.6, 49.6, 49.4])
    assert rows["steps"].tolist() == [1440, 300, 300, 300]
    chosen = search.choose_schedule(rows)
    assert (chosen["train.optimizer"], chosen["train.batch_size"], chosen["train.local_epochs"]) == ("sgd", 50, 5)


def test_nothing_is_chosen_while_a_run_has_failed() -> None:
    with pytest.raises(ConfigError, match="^search: 1 of 3 runs failed; repeat them before a choice is made$"):
        search.score_schedules(table({("adam", 10, 1): (0.6, 0.6, 0.3)}, failed=1))


def test_the_tied_lambda_nearest_to_the_default_is_chosen() -> None:
    rows = pd.DataFrame(
        {
            "method": ["fedcl"] * 3 + ["fedproto"] * 2,
            "lam": [1 / 1024, 1 / 64, 1 / 4, 0.1, 10.0],
            "score": [60.4, 60.0, 60.0, 50.0, 50.6],
        }
    )
    assert search.choose_lambda(rows) == {"fedcl": 1 / 64, "fedproto": 10.0}


def test_the_figures_have_the_schedule_that_the_stored_search_chose() -> None:
    found = search.choose_schedule(search.score_schedules(read_stored_table(COMMITTED / "letter-search-small.zip")))
    train = letter.base("small").train
    assert (found["train.optimizer"], found["train.batch_size"]) == (train.optimizer, train.batch_size)
    assert found["train.local_epochs"] == 1 and found["train.rounds"] == train.rounds and train.local_epochs is None


def test_the_figures_have_the_lambdas_that_the_stored_search_chose() -> None:
    """FedCL's is set in each of its runs with a regulariser, a multiple of it where an arm is called so."""
    found = search.choose_lambda(search.score_lambdas(read_stored_table(COMMITTED / "letter-search-lambda-small.zip")))
    assert found == {"fedcl": letter.LAMBDA["small"], "fedproto": search.LAMBDAS["fedproto"][2]}
    of_letter = [value for value in vars(letter).values() if isinstance(value, Experiment)]
    for experiment in (*of_letter, LETTER_LEAD, LETTER_REGIME):
        for run in experiment.runs("small"):
            fields = dict(run.config.hyper or {})
            if run.config.method != "fedcl" or fields.get("centroids") == "none":
                assert "lam" not in fields or run.variant == "fedproto | lambda of FedProto: 64 times"
                continue
            assert fields["lam"] == TIMES.get(run.variant, 1) * found["fedcl"], (experiment.name, run.variant)


@pytest.mark.parametrize(
    ("searched", "study"),
    [
        ("letter-search", "letter-fig2b"),
        ("letter-search-lambda", "letter-fig2b"),
        ("letter-low-search", "letter-low"),
        ("letter-full-search", "letter-full"),
    ],
)
def test_no_search_saw_a_test_image(searched: str, study: str) -> None:
    """Tests of `shots` are the dataset's own, and the searches take training images alone."""
    configs = [[resolve(c) for c in find_experiment(name).grid("smoke")] for name in (searched, study)]
    seen, tests = mark_images(configs[0], ("train", "validation")), mark_images(configs[1], ("test",))
    assert seen.keys() == tests.keys()
    assert all(seen[data].any() and marks.any() and not (marks & seen[data]).any() for data, marks in tests.items())
