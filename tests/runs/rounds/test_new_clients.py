"""New clients: what they receive, what they train, and that the run is none the wiser."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from semcom.cli import printing as report
from semcom.config import RunConfig, run_hash
from semcom.data.dataset import Dataset
from semcom.data.federation import Federation
from semcom.data.load import load_dataset
from semcom.data.partitions import partition_dataset
from semcom.data.registry import DATASETS
from semcom.data.split import Split
from semcom.data.split_file import write_split
from semcom.engine.air.links import build_link
from semcom.engine.store import population
from semcom.engine.store.population import Population
from semcom.engine.train.session import Session
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.fedavg import FedAvg
from semcom.methods.registry import METHODS
from semcom.runs.request.images import read_run_images
from semcom.runs.request.new_clients import configure_new_clients
from semcom.runs.result.result import Result
from semcom.runs.rounds import new_clients
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.runs.rounds.test_run import weights


@METHODS.register("test-heads")
class Heads(FedAvg):
    """A shared encoder and heads of one's own."""

    averages = ("encoder.",)


@METHODS.register("test-scores")
class Scores(FedAvg):
    """Decides by something else than its head."""

    def views(self, state: FedAvg.State, world: World) -> dict[str, View]:
        return {"global": View(state.model, lambda features, logits, rows: -logits)}


@DATASETS.register("test-dots")
def dots(root: str | None) -> Dataset:
    """Two classes of 8x8 images; 60 to train, 40 to test."""
    rng = np.random.default_rng(1)
    labels = np.arange(100) % 2
    images = rng.integers(0, 128, (100, 1, 8, 8)) + 100 * labels[:, None, None, None]
    return Dataset("test-dots", images.astype(np.uint8), labels.astype(np.int64), 60, ("dark", "bright"))


@DATASETS.register("test-colours")
def colours(root: str | None) -> Dataset:
    """The same with three channels."""
    grey = dots(root)
    return dataclasses.replace(grey, name="test-colours", images=grey.images.repeat(3, axis=1))


def request(method: str = "fedavg", **options: Any) -> RunConfig:
    """Three clients train, two join."""
    options = {"clients": 3, "new_clients": 2, "new_steps": 7, "channel": {"kind": "ideal"}} | options
    options["train"] = {"rounds": 2, **options.get("train", {})}
    return worlds.request(method, **options)


def own(config: RunConfig) -> tuple[Federation, Federation]:
    """The images of the clients that train, and of the new ones."""
    data = read_run_images(config)
    return data.members, data.newcomers


def images_of(federation: Federation, k: int) -> tuple[Tensor, Tensor]:
    index = federation.test[k]
    return federation.gather(index, torch.float64), federation.labels[index]


def accuracies(federation: Federation, models: list[dict[str, Tensor]], link: str = "ideal") -> list[float]:
    """Of each new client with its model, over the link ideal or none, in torch's own words."""
    found = []
    for k, model in enumerate(models):
        x, y = images_of(federation, k)
        found.append(float((worlds.plain(model, x, link).argmax(1) == y).double().mean()))
    return found


def mean(result: Result, members: Federation) -> dict[str, Tensor]:
    """The models in the headline's view, averaged by their clients' numbers of training samples."""
    population = next(iter(result.views.values())).population
    shares = members.train.sizes[population.ids] / members.train.sizes[population.ids].sum()
    models = [worlds.client(population, k) for k in population.ids]
    return {name: sum(p * m[name] for p, m in zip(shares, models, strict=True)) for name in models[0]}  # type: ignore[misc]


IDEAL = [(method, "ideal") for method in ("fedavg", "test-heads", "local", "fedproto", "fedcl")]


@pytest.mark.parametrize(("method", "link"), [*IDEAL, ("test-heads", "none"), ("fedcl", "none")])
def test_global_is_the_average_of_what_was_trained(method: str, link: str) -> None:
    result = run(request(method, channel={"kind": link}))
    members, joined = own(result.config)
    expected = accuracies(joined, [mean(result, members)] * 2, link)
    row = result.summary["new_clients"]["global"]
    assert row["clients"] == pytest.approx(expected) and row["accuracy"] == pytest.approx(np.mean(expected))
    assert row.keys() == result.metrics[-1]["views"][next(iter(result.views))].keys()
    if method == "fedavg":
        assert torch.equal(mean(result, members)["head.0.bias"], weights(result)[-1][0])


def test_models_made_for_tests_are_averaged_over_all_clients() -> None:
    """Those that FedCoSR mixes, too, whoever is tested."""
    result = run(request("fedcosr", train={"eval_clients": 2}))
    members, joined = own(result.config)
    assert len(result.world.tested()) == 2 < len(members.train.sizes)
    assert len(next(iter(result.views.values())).population.ids) == len(members.train.sizes)
    expected = accuracies(joined, [mean(result, members)] * 2)
    assert result.summary["new_clients"]["global"]["clients"] == pytest.approx(expected)


def test_the_average_does_not_depend_on_how_many_models_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(request("test-heads", clients=5))
    members, _ = own(result.config)
    expected = mean(result, members)
    for at_once in (1, 2, 64):
        monkeypatch.setattr(population, "AT_ONCE", at_once)
        model = new_clients.average_model_for_new_clients(result.world, result.views["personal"].population)
        assert model.keys() == expected.keys()
        for name, t in model.items():
            torch.testing.assert_close(t[0], expected[name], rtol=0, atol=1e-14)


def test_heads_are_trained_on_the_frozen_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full batches of plain SGD, in torch's own words: features in evaluation mode, cross-entropy, seven steps."""
    views: dict[str, View] = {}
    seen: list[Population] = []
    evaluate, fit = new_clients.evaluate_views, World.fit

    def watch(session: Session, found: dict[str, View]) -> Any:
        views.update(found)
        return evaluate(session, found)

    def begun(self: World, pop: Population, *arguments: Any, **options: Any) -> Any:
        seen.append(pop)
        return fit(self, pop, *arguments, **options)

    monkeypatch.setattr(new_clients, "evaluate_views", watch)
    monkeypatch.setattr(World, "fit", begun)
    finish = {"optimizer": "sgd", "lr": 0.5}  # whatever the run's own optimiser and schedule are
    result = run(request("test-heads", train={"batch_size": 50, "lr_milestones": (2,)}, finish=finish))
    members, joined = own(result.config)
    encoder, models = mean(result, members), []
    for k in range(2):
        start = worlds.client(views["head"].population, k) | worlds.client(seen[-1], k)
        for name in encoder:
            if name.startswith("encoder."):
                torch.testing.assert_close(start[name], encoder[name], rtol=0, atol=1e-14)
            else:  # fresh weights, not those of the run
                assert (start[name] - encoder[name]).abs().min() > 0
        models.append(trained_by_hand(start, joined, k))
        got = worlds.client(views["head"].population, k)
        for name, t in models[-1].items():
            torch.testing.assert_close(got[name], t, rtol=0, atol=1e-12)
    assert result.summary["new_clients"]["head"]["clients"] == pytest.approx(accuracies(joined, models))


def trained_by_hand(model: dict[str, Tensor], federation: Federation, k: int) -> dict[str, Tensor]:
    index = federation.train[k]
    x, y = federation.gather(index, torch.float64), federation.labels[index]
    head = {name: t.clone().requires_grad_() for name, t in model.items() if name.startswith("head.")}
    for _ in range(7):
        loss = functional.cross_entropy(worlds.plain({**model, **head}, x), y)
        grads = torch.autograd.grad(loss, list(head.values()))
        with torch.no_grad():
            for t, grad in zip(head.values(), grads, strict=True):
                t -= 0.5 * grad
    return {**model, **{name: t.detach() for name, t in head.items()}}


def test_more_steps_are_other_heads() -> None:
    """And nothing else: the steps are those of a new client alone."""
    options: dict[str, Any] = {
        "channel": {"test_snr_db": "10,0"},
        "train": {"rounds": 6, "lr": 0.05},
        "finish": {"lr": 0.05},
    }
    few, many = (run(request(new_steps=n, **options)) for n in (1, 60))
    a, b = (r.summary["new_clients"] for r in (few, many))
    assert a["global"] == b["global"] and a["head"] != b["head"]
    assert b["head"]["accuracy"] > 0.6 and list(b["head"]["at"]) == ["10", "0"]  # two classes each: 0.5 by guessing
    assert [row["views"] for row in few.metrics] == [row["views"] for row in many.metrics]


@pytest.mark.parametrize("method", ["fedavg", "fedcl"])
def test_the_run_is_that_of_its_own_clients(method: str, tmp_path: Path) -> None:
    """Its data are the first parts of a partition over all; with these alone it has the same numbers, bit for bit."""
    config = request(method, channel={"kind": "rayleigh"}, train={"participation": 0.7})
    split = partition_dataset(load_dataset(config.data), config.partition, 5, config.seed)
    members, joined = own(config)
    for k in range(5):
        federation, place = (members, k) if k < 3 else (joined, k - 3)
        assert federation.train[place].tolist() == split.train[k].tolist()
        assert federation.test[place].tolist() == split.test[k].tolist()
    assert len(members.train) == 3 == len(members.owned) and members.images is joined.images
    first = Split(*(lists[:3] for lists in (split.train, split.test, split.validation)))
    write_split(tmp_path / "split.npz", first, load_dataset(config.data))
    alone = dataclasses.replace(
        config, new_clients=0, new_steps=100, partition=worlds.divided(kind="file", path=str(tmp_path / "split.npz"))
    )
    one, other = run(config), run(alone)
    strip = [[{k: v for k, v in row.items() if k != "seconds"} for row in r.metrics] for r in (one, other)]
    assert strip[0] == strip[1]
    assert all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))
    for name in ("samples", "traffic", "snr_received_db", "views", "clients"):
        assert one.summary[name] == other.summary[name]
    assert "new_clients" not in other.summary and one.summary["new_clients"].keys() == {"global", "head"}
    assert {"newcomers"} == one.summary["seconds"].keys() - other.summary["seconds"].keys()


@pytest.mark.parametrize("kind", ["awgn", "rayleigh"])
def test_the_chunk_changes_nothing(kind: str) -> None:
    one, many = (run(request("test-heads", new_clients=3, chunk=k, channel={"kind": kind})) for k in (1, 3))
    assert one.summary["new_clients"] == many.summary["new_clients"]
    assert run_hash(one.config) == run_hash(many.config)


def test_their_draws_are_their_own() -> None:
    """A new client's noise is not that of the client of the same number, in any round."""
    config = request("test-heads", channel={"kind": "awgn"})
    world = run(config).world
    link = build_link(configure_new_clients(config))[0]
    joined = World(configure_new_clients(config), own(config)[1], world.session.draws.device, link, split=False)
    noise = []
    for w in (world, joined):
        for r in (1, 2, 3):
            w.session.tally.begin(r)
            noise += [
                w.session.draws.realisation(w.session.draws.link, np.array([0]), [[5]], stream, "uplink")["noise"]
                for stream in ("train", "test")
            ]
    assert all((a - b).abs().min() > 0 for i, a in enumerate(noise) for b in noise[:i])


def test_clients_of_another_dataset_train_heads_of_their_own() -> None:
    partition_ = {"ways": 2, "shots": 6, "scarce": (0,), "scarce_fraction": 0.5}
    finish = {"lr": 0.01}
    result = run(request("test-heads", new_data="test-dots", new_steps=80, partition=partition_, finish=finish))
    members, joined = own(result.config)
    assert len(members.train) == 3 and len(joined.train) == 2 and joined.classes == ("dark", "bright")
    split = partition_dataset(dots(None), dataclasses.replace(result.config.partition, scarce=()), 2, 0)
    assert [joined.train[k].tolist() for k in range(2)] == [indices.tolist() for indices in split.train]
    plenty, _ = own(request("test-heads", new_data="test-dots", partition={"ways": 2, "shots": 6}))
    assert (members.train.sizes / plenty.train.sizes).tolist() == pytest.approx([0.5, 1, 1], abs=0.05)
    found = result.summary["new_clients"]
    assert list(found) == ["head"] and len(found["head"]["classes"]) == 2 and found["head"]["accuracy"] > 0.5
    assert "new client " in report.format_result_table(result.summary)


def test_a_head_that_does_not_decide_is_not_received() -> None:
    assert list(run(request("test-scores")).summary["new_clients"]) == ["head"]


def test_values_per_client_are_taken_in_turn() -> None:
    train = {"lr": (0.1, 0.2, 0.3), "local_epochs": (1, 2, 3), "participation": 2 / 3, "eval_clients": 2}
    channel = {"kind": "awgn", "snr_db": "1,2,3", "downlink_snr_db": "0:9"}
    config = configure_new_clients(request("fedcl", new_clients=5, train=train, channel=channel))
    assert config.train.lr == (0.1, 0.2, 0.3, 0.1, 0.2) and config.channel.snr_db == "1,2,3,1,2"
    assert config.channel.downlink_snr_db == "0:9" and config.clients == 5 and config.train.eval_clients is None
    assert round(config.train.participation * 5) == 2  # type: ignore[operator]
    result = run(request("fedcl", new_clients=5, train=train, channel=channel))
    assert len(result.summary["new_clients"]["head"]["clients"]) == 5


@pytest.mark.parametrize(
    ("method", "found"), [("apfl", ["global", "head"]), ("fedrod", ["head"]), ("feddbe", ["head"])]
)
def test_methods_with_further_parts_hand_on_what_a_usual_model_has(method: str, found: list[str]) -> None:
    """APFL's w is a usual model; a second head and a bias are no part of one. w is FedAvg's model."""
    result = run(worlds.request(method, new_clients=2, new_steps=2, train={"rounds": 1}))
    assert list(result.summary["new_clients"]) == found
    if method == "apfl":
        usual = run(worlds.request("fedavg", new_clients=2, new_steps=2, train={"rounds": 1}))
        assert result.summary["new_clients"] == usual.summary["new_clients"]
