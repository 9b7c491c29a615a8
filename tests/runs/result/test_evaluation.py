"""Who is evaluated, and on what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from semcom.channels import make_link
from semcom.cli.printing import format_result_table
from semcom.data.federation import Federation
from semcom.engine.train.draws import Draws
from semcom.engine.train.view import count_confusion, infer_in_view
from semcom.models.registry import ENCODERS
from semcom.runs.result.accuracy import summarize_accuracies
from semcom.runs.result.evaluation import evaluate_views, narrow_evaluated_views
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.runs.rounds.test_run import ARMS, timeless, weights


@ENCODERS.register("test-patches-wide")
def patches_wide(channels: int, features: int) -> torch.nn.Module:
    """Another architecture with the features of `test-patches`."""
    return torch.nn.Sequential(torch.nn.Conv2d(channels, features, 32, bias=False), torch.nn.Flatten())


class Loud(torch.nn.Flatten):
    """Features of 1e30, whose squares are too large for float32."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1e30 + 0 * super().forward(x)[..., :8]


ENCODERS.register("test-loud")(lambda channels, features: Loud())


def test_nothing_but_noise_is_said() -> None:
    for encoder, silent in (("test-loud", True), ("test-patches", False)):
        found = run(worlds.request(encoder=encoder, model={"features": 8}, train={"rounds": 1}, precision="float32"))
        said = [text for text in found.summary["warnings"] if "nothing but noise was received" in text]
        assert bool(said) == silent and (not silent or "their squares overflow" in said[0])


@pytest.mark.parametrize("method", ARMS)
@pytest.mark.parametrize("encoder", ["test-patches", "test-patches,test-patches-wide"])
def test_some_clients_have_the_accuracies_that_they_have_among_all(method: str, encoder: str) -> None:
    if "," in encoder and method == "fedavg":
        pytest.skip("averages the encoder")
    options: dict[str, Any] = {"clients": 5, "encoder": encoder, "channel": {"kind": "rayleigh", "test_snr_db": "3,9"}}
    everyone = run(worlds.request(method, train={"rounds": 3}, **options))
    some = run(worlds.request(method, train={"rounds": 3, "eval_clients": 3}, **options))
    ids = some.summary["evaluated"]
    assert len(ids) == 3 and ids == sorted(set(ids)) and everyone.summary["evaluated"] is None
    for row, whole in zip(some.metrics, everyone.metrics, strict=True):
        for name, view in row["views"].items():
            expected = np.array(whole["views"][name]["clients"])[ids]
            assert view["clients"] == expected.tolist()
            assert {key: view[key] for key in summarize_accuracies(expected)} == summarize_accuracies(expected)
            assert view["at"].keys() == whole["views"][name]["at"].keys()
    trained = [[timeless(row) | {"views": None} for row in result.metrics] for result in (some, everyone)]
    assert trained[0] == trained[1], "training is none the wiser"
    assert all(torch.equal(a, b) for a, b in zip(weights(some), weights(everyone), strict=True))
    assert len(some.summary["views"][name]["clients"]) == 3


def test_the_draw_is_keyed_by_the_seed_alone() -> None:
    def draw(**overrides: Any) -> list[int]:
        train = {"eval_clients": 5, **overrides.pop("train", {})}
        config = worlds.request(clients=20, train=train, **overrides)
        data = worlds.random_federation([1] * 20)
        return Draws(config, data, torch.device("cpu"), make_link("ideal"), split=False).tested().tolist()

    assert draw() == draw(train={"rounds": 9, "participation": 0.5}, channel={"kind": "rayleigh"})
    assert len({tuple(draw(seed=seed)) for seed in range(5)}) == 5
    assert draw(train={"eval_clients": None}) == list(range(20))
    drawn = [k for seed in range(200) for k in draw(seed=seed)]
    assert np.ptp(np.bincount(drawn, minlength=20)) < 50  # 50 times each on average, standard deviation 6


def test_views_of_one_population_go_on_sharing_it() -> None:
    """So that their forward passes, and the noise in these, are the same."""
    result = run(worlds.request("fedproto", train={"rounds": 1}))
    chosen = narrow_evaluated_views(result.views, np.array([1, 3]))
    assert chosen["personal"].population is chosen["prototype"].population
    assert chosen["prototype"].population.ids.tolist() == [1, 3]
    assert torch.equal(chosen["prototype"].per_client["among"], result.views["prototype"].per_client["among"][[1, 3]])


@pytest.mark.parametrize("method", ["fedavg", "fedproto", "fedcl"])
def test_answers_among_own_classes(method: str) -> None:
    """Counted again from scores, one image at a time, over a channel without noise; in two chunks of clients too."""
    options: dict[str, Any] = {"channel": {"kind": "ideal"}, "train": {"rounds": 1}, "partition": {"shots_spread": 2}}
    result = run(worlds.request(method, **options))
    data, snr = result.federation, None
    for name, view in result.views.items():
        shares = []
        for k in range(4):
            own, hits = np.flatnonzero(data.owned[k]), 0
            images, labels = data.images[data.test[k]], data.labels[data.test[k]]
            (heard,) = infer_in_view(result.world.session, view, k, images, snr)
            scores = heard.logits
            if view.scores is not None:
                given = {key: t[[k]] for key, t in view.per_client.items()}
                scores = view.scores(heard.features, heard.logits, given)
            for row, label in zip(scores[0].tolist(), labels.tolist(), strict=True):
                hits += max(own, key=lambda c: row[c]) == label
            shares.append(hits / len(labels))
        line = result.metrics[0]["views"][name]
        assert line["among_own"] == pytest.approx(np.mean(shares)) and "among_own_at" not in line
        assert result.summary["views"][name]["among_own"] == line["among_own"] >= line["accuracy"]
    chunked = run(worlds.request(method, **options, chunk=2))
    assert chunked.summary["views"] == result.summary["views"]


def test_answers_among_own_classes_at_each_snr() -> None:
    """Without any signal one of two own classes is right as often as not, and one of four a quarter of the time."""
    request = worlds.request("fedavg", channel={"test_snr_db": "9,-60"}, train={"rounds": 20})
    found = run(request).summary["views"]["global"]
    assert found["among_own_at"].keys() == found["at"].keys() and found["among_own_at"]["9"] == found["among_own"]
    images = 10 * 4 * 30  # that ten evaluations test, of four clients
    assert found["among_own_at"]["-60"] == pytest.approx(1 / 2, abs=4 * (0.25 / images) ** 0.5)
    assert found["at"]["-60"] < 0.4
    everything = run(worlds.request("fedavg", partition={"ways": 4, "shots": 6}, train={"rounds": 1}))
    assert "among_own" not in everything.summary["views"]["global"], "it would be the accuracy"


def test_the_pooled_accuracy_counts_a_client_by_its_test_images() -> None:
    """As PFLlib does, at each test SNR; equal to the mean over clients where these test equally many images."""
    options: dict[str, Any] = {"channel": {"test_snr_db": "9,-60"}, "train": {"rounds": 1}}
    result = run(worlds.request("local", partition={"kind": "dirichlet", "options": {"beta": 0.5}}, **options))
    sizes, view = result.federation.test.sizes, result.summary["views"]["personal"]
    assert len(set(sizes)) > 1
    assert view["pooled"] == pytest.approx(np.average(view["clients"], weights=sizes)) != view["accuracy"]
    assert view["pooled_at"]["9"] == view["pooled"] and set(view["pooled_at"]) == {"9", "-60"}
    assert "over images" in format_result_table(result.summary)
    equal = run(worlds.request("local", **options))
    assert len(set(equal.federation.test.sizes)) == 1
    of_equal = equal.summary["views"]["personal"]
    assert of_equal["pooled"] == pytest.approx(of_equal["accuracy"])
    assert "over images" not in format_result_table(equal.summary)


def test_validation_samples_are_evaluated_beside_the_tests() -> None:
    """By the model of each client, through the channel; the same models and tests as in a run of the same training."""
    options: dict[str, Any] = {"channel": {"kind": "ideal"}, "train": {"rounds": 2}}
    result = run(worlds.request("local", partition={"validation": 0.4}, **options))
    own, data = [], result.federation
    for k in range(4):
        index = data.validation[k]
        assert len(index) and not set(index.tolist()) & set(data.train[k].tolist())
        own.append(float((result.predict(k, data.images[index]) == data.labels[index]).double().mean()))
    lines = [line["views"]["personal"]["validation"] for line in result.metrics]
    assert len(lines) == 2 and lines[-1] == pytest.approx(np.mean(own))
    assert result.summary["views"]["personal"]["validation"] == pytest.approx(np.mean(lines))
    assert "validation" not in run(worlds.request("local", **options)).summary["views"]["personal"]


def test_validation_leaves_the_received_snr_of_the_test_as_it_is() -> None:
    result = run(worlds.request("fedcl", partition={"validation": 0.4}, train={"rounds": 1}))
    session, federation = result.world.session, result.federation
    before = session.counters()
    evaluate_views(session, result.views)
    assert session.counters() != before, "the meter of the test counts each evaluation"
    before = session.counters()
    count_confusion(session, result.views, 3.0, federation.validation, "validation", metered=False)
    assert session.counters() == before


@pytest.mark.parametrize("method", ARMS)
def test_an_evaluation_sees_test_samples_only(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[int]] = []
    gather = Federation.gather

    def noting(self: Federation, index: torch.Tensor, *arguments: Any) -> torch.Tensor:
        seen.append(set(index.flatten().tolist()))
        return gather(self, index, *arguments)

    def watched(*arguments: Any) -> Any:
        seen.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Federation, "gather", noting)
            row = evaluate(*arguments)
        looked.append(set().union(*seen))
        return row

    from semcom.runs.rounds import loop

    evaluate, looked = loop.evaluate_views, list[set[int]]()
    monkeypatch.setattr(loop, "evaluate_views", watched)
    federation = run(worlds.request(method, train={"rounds": 2})).world.session.draws.federation
    test = set(torch.cat([federation.test[k] for k in range(4)]).tolist())
    train = set(torch.cat([federation.train[k] for k in range(4)]).tolist())
    assert looked == [test, test] and not test & train


@pytest.mark.parametrize("kind", ["awgn", "digital"])
def test_each_test_snr_is_measured_by_itself(kind: str) -> None:
    """Over AWGN what is received has the SNR of the test, and digital errors are those of a run that tests there alone.

    Until now one number was over all tests: 10 and -10 dB together were near -7 dB.
    """
    found = {}
    for tests in ("10,-10", "10", "-10"):
        asked = worlds.request(
            "local", model={"features": 64}, channel={"kind": kind, "test_snr_db": tests}, train={"rounds": 2}
        )
        found[tests] = run(asked).summary
    both = found["10,-10"]
    for name in ("snr_received_db", "error_rates"):
        if name in both:
            each = both[name]["test_at"]
            assert each["10"] == both[name]["test"]
            alone = {snr: found[snr][name]["test"] for snr in each}
            assert each == (pytest.approx(alone, abs=1e-9) if name == "snr_received_db" else alone)
    if kind == "awgn":
        assert both["snr_received_db"]["test_at"] == pytest.approx({"10": 10, "-10": -10}, abs=0.5)
    else:
        assert both["error_rates"]["test_at"]["-10"]["bits"] > both["error_rates"]["test"]["bits"]
