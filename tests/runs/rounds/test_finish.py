"""The last stage of a method: what it counts for, that it counts nothing, and what a kill in it leaves."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from semcom.cli import printing as report
from semcom.config import FINISH, ConfigError, FinishConfig, RunConfig, RunError
from semcom.engine.train.phase import Phase
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.fedavg import FedAvg
from semcom.methods.registry import METHODS
from semcom.runs.folder.folder import CHECKPOINT, SUMMARY
from semcom.runs.request.resolve import resolve
from semcom.runs.result.evaluation import evaluate_views
from semcom.runs.result.result import Result
from semcom.runs.rounds.progress import RoundProgress
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.commands import read
from tests.engine.train.test_known import counting
from tests.processes import Forked
from tests.runs.rounds.test_run import lines, one_line, same, snapshot, stored, timeless, weights

OWN = ("tests.worlds", "tests.runs.rounds.test_finish")
"""What is registered here, for runs that are the same whatever a test has put in its place."""


@METHODS.register("test-tuned")
class Tuned(FedAvg):
    """FedAvg with a second name for its model; at the end each client trains a copy."""

    rate: float | None = None
    begun = 0

    def views(self, state: FedAvg.State, world: World) -> dict[str, View]:
        return {"global": View(state.model), "again": View(state.model)}

    def finish(self, state: FedAvg.State, world: World) -> dict[str, View]:
        Tuned.begun += 1
        assert world.round == world.config.train.rounds + 1
        world.air.down(state.model, "")  # must not be counted
        optimizer = world.optimizer(lr=self.rate) if self.rate else None
        tuned = world.fit(
            state.model.select(state.model.ids), self.objective, optimizer=optimizer, phase=Phase(stream="tune")
        ).models
        return {"personal": View(tuned), "global": View(state.model)}


@METHODS.register("test-blind")
class Blind(Tuned):
    def views(self, state: FedAvg.State, world: World) -> dict[str, View]:
        return {}


@METHODS.register("test-viewless")
class Viewless(FedAvg):
    """Nothing to evaluate at all, which shows at the end."""

    def views(self, state: FedAvg.State, world: World) -> dict[str, View]:
        return {}

    def finish(self, state: FedAvg.State, world: World) -> None:
        return None


def by_hand(result: Result, name: str) -> list[float]:
    """Accuracy of each client in a view, in torch's own words, over an ideal link."""
    federation, found = result.world.session.draws.federation, []
    for k in range(result.config.clients):
        index = federation.test[k]
        logits = worlds.plain(worlds.client(result.views[name].population, k), federation.gather(index, torch.float64))
        found.append(float((logits.argmax(1) == federation.labels[index]).double().mean()))
    return found


def test_the_accuracy_is_that_after_the_last_stage() -> None:
    result = run(worlds.request("test-tuned", channel={"kind": "ideal"}))
    summary, row = result.summary, result.summary["finish"]
    personal = by_hand(result, "personal")
    assert summary["accuracy"] == pytest.approx(np.mean(personal)) and summary["accuracy"] != row["views"]["global"]
    assert summary["accuracy_std"] == pytest.approx(np.std(personal))
    assert list(summary["views"]) == ["personal", "global", "again"] == list(result.views)
    assert row["round"] == 7 and list(row["views"]) == ["personal", "global"] and row["tune/loss"] > 0
    assert row["views"]["personal"]["clients"] == pytest.approx(personal)
    assert len(row["views"]["personal"]["classes"]) == 4
    assert row["views"]["global"]["clients"] == pytest.approx(by_hand(result, "global"))
    view = summary["views"]["personal"]
    assert (view["best"], view["best_round"], view["last"]) == (summary["accuracy"], 7, summary["accuracy"])
    # A view of the rounds alone is the mean over them, as ever.
    rounds = [r["views"]["again"]["accuracy"] for r in result.metrics]
    assert len(rounds) == 6 and summary["views"]["again"]["accuracy"] == pytest.approx(np.mean(rounds))


def test_nothing_of_the_last_stage_is_counted() -> None:
    plain, tuned = (run(worlds.request(m, train={"participation": 0.75})) for m in ("fedavg", "test-tuned"))
    for name in ("samples", "traffic", "rounds"):
        assert tuned.summary[name] == plain.summary[name], name
    for way in ("train_up", "train_down"):
        assert tuned.summary["snr_received_db"][way] == plain.summary["snr_received_db"][way]
    assert tuned.world.air.counters() == plain.world.air.counters()
    assert tuned.world.session.tally.visited == plain.world.session.tally.visited
    assert tuned.world.round == plain.world.round == 6
    assert [row["loss"] for row in tuned.metrics] == [row["loss"] for row in plain.metrics]
    assert torch.equal(*(r.views["global"].population.cohorts[0].tensors["head.0.bias"] for r in (tuned, plain)))
    assert {"finish", "finish/evaluate"} <= tuned.summary["seconds"].keys() and "finish" not in plain.summary


def test_views_that_train_are_not_counted_either(monkeypatch: pytest.MonkeyPatch) -> None:
    def views(self: Tuned, state: FedAvg.State, world: World) -> dict[str, View]:
        return {
            "global": View(state.model),
            "tuned": View(world.fit(state.model.select(state.model.ids), self.objective).models),
        }

    monkeypatch.setattr(Tuned, "views", views)
    often, seldom = (run(worlds.request("test-tuned", train={"rounds": 12, "eval_every": n})) for n in (1, 100))
    for name in ("samples", "traffic"):
        assert often.summary[name] == seldom.summary[name] == run(worlds.request(train={"rounds": 12})).summary[name]
    assert [row["loss"] for row in often.metrics] == [row["loss"] for row in seldom.metrics]


def test_a_finished_run_repeats_its_last_stage_only_when_it_is_asked_for(tmp_path: Path) -> None:
    config = worlds.request("test-tuned", out=str(tmp_path), channel={"snr_db": "0:18"}, plugins=OWN)
    first, before, begun = run(config), snapshot(tmp_path), Tuned.begun
    second = run(config)
    assert Tuned.begun == begun
    assert second.summary == first.summary and second.metrics == first.metrics and len(lines(tmp_path)) == 6
    assert list(second.views) == list(first.views) and Tuned.begun == begun + 1
    assert all(torch.equal(a, b) for a, b in zip(weights(first), weights(second), strict=True))
    images = first.world.session.draws.federation.images
    for view in (None, "again"):
        assert torch.equal(first.predict(1, images, view), second.predict(1, images, view))
    assert Tuned.begun == begun + 1 and second.world.session.tally.visited == first.world.session.tally.visited
    assert snapshot(tmp_path) == before


def test_views_may_come_with_the_last_stage_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with RoundProgress(6) as progress:
        result = run(worlds.request("test-blind", channel={"kind": "ideal"}), on_round=progress)
    tuned = run(worlds.request("test-tuned", channel={"kind": "ideal"}))
    assert not any("views" in row for row in result.metrics)
    assert list(result.summary["views"]) == ["personal", "global"]
    assert result.summary["finish"] == tuned.summary["finish"]
    assert result.summary["accuracy"] == tuned.summary["accuracy"]
    for k in range(4):
        index = result.federation.test[k]
        hit = result.predict(k, result.federation.images[index]) == result.federation.labels[index]
        assert result.summary["finish"]["views"]["personal"]["clients"][k] == pytest.approx(float(hit.double().mean()))
    text = report.format_result_table(result.summary)
    assert text.startswith(
        f"test-blind: accuracy {100 * result.summary['accuracy']:.1f} % after 6 rounds and its last stage\n"
    )


def test_a_method_that_is_never_evaluated_says_so() -> None:
    with pytest.raises(RunError, match="test-viewless: nothing was evaluated") as error:
        run(worlds.request("test-viewless", train={"rounds": 1}))
    one_line(error.value)


def test_divergence_in_the_last_stage_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = worlds.request("test-tuned", out=str(tmp_path), train={"optimizer": "sgd"}, plugins=OWN)
    with monkeypatch.context() as patch, pytest.raises(RunError) as error:
        patch.setattr(Tuned, "rate", 1e300)
        run(config)
    found = re.fullmatch(
        r"finish: non-finite loss or weights at client [\d, ]+; last good state: round 6, in (.*)",
        one_line(error.value),
    )
    assert found and found[1] == str(tmp_path / CHECKPOINT) and not (tmp_path / SUMMARY).exists()
    assert timeless(run(config).summary) == timeless(
        run(worlds.request("test-tuned", train={"optimizer": "sgd"}, plugins=OWN)).summary
    )


# -- finish.kind -----------------------------------------------------------------------------------------------------

KINDS: Any = pytest.mark.parametrize("kind", ["linear", "mlp", "svm", "lr"])
ARMS = ["local", "fedavg", "fedper", "fedcl", "perfedavg", "repper", "test-tuned"]


@pytest.mark.parametrize("arm", ARMS)
def test_every_method_can_have_classifiers_of_its_clients_own(arm: str) -> None:
    """They are the headline; nothing else moves by them. They see the encoders of the method's headline."""
    train = {"rounds": 2, "eval_clients": 3}
    plain, own = (run(worlds.request(arm, train=train, finish=f)) for f in ({}, {"kind": "lr"}))
    headline = next(iter(plain.views))
    assert list(own.summary["views"]) == ["finished", *plain.summary["views"]] == list(own.views)
    assert own.summary["accuracy"] == own.summary["finish"]["views"]["finished"]["accuracy"]
    for name in plain.summary["views"]:
        assert own.summary["views"][name] == plain.summary["views"][name]
    assert own.summary["traffic"] == plain.summary["traffic"] and own.summary["samples"] == plain.summary["samples"]
    body = own.views["finished"].population
    assert body.ids.tolist() == own.world.tested().tolist() and len(body.ids) == 3
    before = plain.views[headline].population.select(body.ids)
    for name, t in body.named("encoder.").items():
        assert torch.equal(t, before.named("encoder.")[name])


@KINDS
def test_predictions_are_those_of_the_finished_models(kind: str, tmp_path: Path) -> None:
    """Also of a finished run, which trains them again."""
    settings = {} if kind in ("svm", "lr") else {"epochs": 5, "lr": 0.2, "optimizer": "sgd"}
    finish = {"kind": kind, **settings}
    config = worlds.request("fedper", channel={"kind": "ideal"}, finish=finish, out=str(tmp_path))
    first, again = run(config), run(config)
    federation = first.federation
    for k in range(4):
        index = federation.test[k]
        answers = first.predict(k, federation.images[index])
        hit = float((answers == federation.labels[index]).double().mean())
        assert first.summary["finish"]["views"]["finished"]["clients"][k] == pytest.approx(hit)
        assert torch.equal(answers, again.predict(k, federation.images[index]))
    usual = first.predict(0, federation.images, "personal")
    assert not torch.equal(usual, first.predict(0, federation.images))


def test_the_defaults_train_to_convergence() -> None:
    """On digits, after a schedule that has ended: a head is as good as logistic regression on the same features."""
    train = {"rounds": 3, "batch_size": 15, "lr_milestones": (2, 3), "lr_decay": 0.01, "eval_every": 10}
    config = RunConfig("repper", clients=6, model={"encoder": "dcgan-narrow"}, train=train, finish={"kind": "lr"})  # type: ignore[arg-type]
    views = run(config).summary["views"]
    assert views["finished"]["accuracy"] > 0.7 and views["personal"]["accuracy"] > views["finished"]["accuracy"] - 0.03


@pytest.mark.parametrize("method", ["fedper", "fedala", "fedamp", "fedcosr", "pfedme", "fedavg_ft"])
def test_a_round_more_is_the_next_round(method: str) -> None:
    """Where all clients are in each round. A copy that is fine-tuned draws as its own stage does, a round later."""
    plain = {"channel": {"kind": "awgn"}, "finish": {}}
    more, next_ = (
        run(worlds.request(method, **{**plain, "finish": {"kind": kind} if kind else {}}, train={"rounds": n}))
        for n, kind in ((2, "round"), (3, None))
    )
    last = next_.metrics[-1]["views"]
    found = more.summary["finish"]["views"]
    for name in found.keys() & last.keys():
        assert found[name]["clients"] == last[name]["clients"], name
    assert found.keys() >= last.keys() and len(more.metrics) == 2


def test_new_clients_join_after_the_round_more() -> None:
    """They get the model of a run of as many rounds, and a head of its kind."""
    more, next_ = (
        run(worlds.request("fedavg", new_clients=2, new_steps=3, finish=finish, train={"rounds": n}))
        for n, finish in ((2, {"kind": "round"}), (3, {}))
    )
    assert more.summary["new_clients"] == next_.summary["new_clients"]


def test_after_a_round_more_no_model_is_an_earlier_one() -> None:
    """With half of the clients in a round some heads would be an earlier one's; all clients' heads have moved."""
    part = {"train": {"rounds": 2, "participation": 0.5}}
    usual = run(worlds.request("fedper", **part))
    more = run(worlds.request("fedper", **part, finish={"kind": "round"}))
    before, after = (of.views["personal"].population.named()["head.0.bias"] for of in (usual, more))
    assert len(after) == 4 and ((after - before).abs().amax(1) > 0).all()
    for name in ("samples", "traffic", "rounds"):
        assert more.summary[name] == usual.summary[name], name


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"air": {"privacy": "gaussian"}}, "not go with air.privacy"),
        ({"train": {"patience": 2}, "partition": {"validation": 0.2}}, "not go with train.patience"),
        ({"network": {"kind": "cell"}}, "not go with network.kind"),
        ({"air": {"rate": "capacity", "options": {"repeat": False}}}, "not go with air.repeat"),
        ({"finish": {"lr": 0.1}}, "trains by the run's optimiser"),
    ],
)
def test_a_round_more_is_refused_where_there_is_none(options: dict[str, Any], why: str) -> None:
    finish = {"kind": "round", **options.pop("finish", {})}
    with pytest.raises(ConfigError, match=why):
        resolve(worlds.request("fedavg", **options, finish=finish))


@pytest.mark.parametrize("method", ["fedavg_ft", "repper"])
def test_the_last_stage_is_tested_with_one_pass_through_the_encoder(method: str) -> None:
    """On digits: of views with heads of their own on the common encoder, and of the model that they are made from."""
    options: dict[str, Any] = {"model": {"encoder": "dcgan-narrow"}, "train": {"rounds": 1}}
    result = run(RunConfig(method, clients=6, finish=FinishConfig("mlp", epochs=1), **options))
    last = {name: result.views[name] for name in result.summary["finish"]["views"]}
    assert set(last) == {"finished", "personal"} | ({"global"} if method == "fedavg_ft" else set())
    test = result.federation.test.flat
    with counting() as seen:
        found = evaluate_views(result.world.session, last)
        assert sum(seen) == len(test.unique()) < len(test)
    for name, view in last.items():
        assert evaluate_views(result.world.session, {name: view})[name] == found[name]


@pytest.mark.parametrize("kind", ["linear", "svm"])
def test_new_clients_have_the_same_kind_of_classifier(kind: str) -> None:
    """And receive the model as the rounds left it, whatever the others made of it."""
    options: dict[str, Any] = {"clients": 3, "new_clients": 2}
    plain, own = (run(worlds.request("local", finish=f, **options)) for f in ({}, {"kind": kind}))
    a, b = plain.summary["new_clients"], own.summary["new_clients"]
    assert a["global"] == b["global"] and (a["head"] == b["head"]) == (kind == "linear")


def test_what_a_run_without_a_last_stage_is_does_not_depend_on_the_defaults() -> None:
    """Fields without an effect stay open, in the configuration and in its hash; the others are filled."""

    def resolved(method: str, **options: Any) -> dict[str, Any]:
        return vars(resolve(RunConfig(method, **options)).finish)

    empty = {"kind": None, "epochs": None, "lr": None, "optimizer": None}
    assert resolved("local") == resolved("test-tuned") == empty
    assert resolved("local", finish={"kind": "svm"}) == {**empty, "kind": "svm"}
    assert resolved("local", finish=FINISH) == empty  # a default is never refused
    assert resolved("local", finish={"kind": "mlp", "lr": 0.5}) == {"kind": "mlp", **FINISH, "lr": 0.5}
    assert resolved("repper") == resolved("fedavg_ft") == {"kind": None, **FINISH}
    assert resolved("fedbabu") == {"kind": None, **FINISH, "epochs": 5}  # its paper's number
    assert resolved("local", new_clients=2) == {**empty, **FINISH, "epochs": None}
    assert resolved("fedavg_ft", finish={"epochs": 0}) == {**empty, "epochs": 0}


def test_the_flag_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("--finish", "--finish.kind"):
        assert read("local", flag, "svm").finish == FinishConfig("svm")


# -- kills -----------------------------------------------------------------------------------------------------------

PLACES = ("finish", "evaluate_new_clients")
"""Where a run kills itself."""


def request(folder: Path | None, **options: Any) -> RunConfig:
    """A run with a last stage and new clients."""
    options["plugins"] = OWN
    out = None if folder is None else str(folder)
    train = {"rounds": 3, "participation": 0.75, **({} if out is None else {"checkpoint_every": 2})}
    usual = {"clients": 4, "new_clients": 2, "new_steps": 3, "chunk": 1, "finish": {"kind": "mlp", "epochs": 3}}
    return worlds.request("test-tuned", out=out, train=train, **{**usual, **options})


def die(folder: Path, where: str) -> None:
    from semcom.runs.rounds import new_clients

    owner: Any = {"finish": Tuned, "evaluate_new_clients": new_clients}[where]
    name = {"finish": "finish", "evaluate_new_clients": "average_model_for_new_clients"}[where]
    usual = getattr(owner, name)

    def killed(*arguments: Any) -> None:
        usual(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, killed)
    run(request(folder))


def test_a_run_that_is_killed_after_its_last_round_does_the_rest_again(tmp_path: Path) -> None:
    for where in PLACES:
        with Forked(die, tmp_path / where, where) as process:
            assert process.wait() == -signal.SIGKILL, process.stderr.read()
    whole = run(request(tmp_path / "whole"))
    for where in PLACES:
        out = tmp_path / where
        config = request(out)
        assert stored(config)["progress"]["round"] == 3 and not (out / SUMMARY).exists()
        before = lines(out)
        seen: list[Any] = []
        again = run(config, on_round=seen.append)
        assert not seen and lines(out) == before and again.metrics == before
        assert timeless(again.summary) == timeless(whole.summary)
        assert len(again.summary["new_clients"]["head"]["clients"]) == 2
        assert same(stored(config)["state"], stored(whole.config)["state"])
        assert all(torch.equal(a, b) for a, b in zip(weights(again), weights(whole), strict=True))


@pytest.mark.usefixtures("forked_ranks")
def test_the_last_stage_on_two_processes_is_that_on_one(tmp_path: Path) -> None:
    one, two = run(request(None)), run(request(tmp_path, processes=2))
    assert list(one.views)[0] == "finished"
    assert one.summary["finish"]["views"] == two.summary["finish"]["views"]
    assert one.summary["new_clients"] == two.summary["new_clients"]
    assert one.summary["views"] == json.loads((tmp_path / SUMMARY).read_text())["views"]
    assert all(torch.equal(a, b) for a, b in zip(weights(one), weights(two), strict=True))
