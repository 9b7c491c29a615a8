"""LG-FedAvg: worked by hand, with and without FedAvg before it."""

from __future__ import annotations

import pytest
import torch

from semcom.config import ConfigError
from semcom.methods.lg_fedavg import LGFedAvg
from semcom.runs.folder.checkpoint import state_from_checkpoint, state_to_checkpoint
from tests.methods.arms import X, Y, assert_toys, flat, play, rounds, toy_world, toys
from tests.methods.by_hand import mean
from tests.worlds import client, gap, world


def test_two_rounds_by_hand() -> None:
    """Heads are averaged, bodies are kept."""
    before, *after = rounds(toy_world("lg_fedavg"), n=2)
    models = toys(before.model)
    for state in after:
        trained = [m.step(X[k], Y[k], 0.5) for k, m in enumerate(models)]
        head = mean(trained)
        models = [m.under(head) for m in trained]
        assert_toys(state.model, models)


@pytest.mark.parametrize("heard", [1, 2, 3])
def test_pretraining_by_hand(heard: int) -> None:
    """One round of FedAvg, then every client takes over its model, then one round of LG-FedAvg.

    So it is where nobody can take part in the first rounds.
    """
    before, first, second = rounds(toy_world("lg_fedavg", hyper={"pretraining": 1}), n=2, first=heard)
    start = mean([model.step(X[k], Y[k], 0.5) for k, model in enumerate(toys(before.model))])
    trained = [start.step(X[k], Y[k], 0.5) for k in (0, 1)]
    assert_toys(first.model, start)
    assert_toys(second.model, [model.under(mean(trained)) for model in trained])


def test_fedavgs_model_is_tested_until_it_is_taken_over() -> None:
    """Nobody has taken part in round 1, which was to be its last."""
    w = world("lg_fedavg", hyper={"pretraining": 1})
    method = LGFedAvg(w.config.hyper)
    state = method.setup(w)
    assert method.views(state, w)["personal"].population is state.pretrained


@pytest.mark.parametrize("init", ["common", "client"])
def test_pretraining_is_fedavg(init: str) -> None:
    """During pretraining, FedAvg's model is evaluated. In the last round every client takes it over, absent or not."""
    setting = {"sizes": (7, 5, 3, 6), "train": {"participation": 0.5}}
    w = world("lg_fedavg", hyper={"pretraining": 3}, model={"init": init}, **setting)
    method = LGFedAvg(w.config.hyper)
    fedavg = rounds(world("fedavg", **setting), n=3)
    states = rounds(w, method, n=3)
    for r, state in enumerate(states):
        w.session.tally.begin(r)
        shown = method.views(state, w)["personal"].population
        assert gap(shown.spread(), fedavg[r].model.spread()) == 0
        assert r == 3 or gap(state.model, states[0].model) == 0
    assert shown is state.model and shown.cohorts[0].shared == {"head.0.weight", "head.0.bias"}


def test_without_pretraining_clients_start_from_their_own_encoders() -> None:
    start = rounds(world("lg_fedavg", model={"init": "client"}), n=0)[0].model
    own, theirs = (client(start, k) for k in (0, 1))
    assert {n for n in own if torch.equal(own[n], theirs[n])} >= {"head.0.weight", "head.0.bias"}
    assert not torch.equal(own["encoder.0.weight"], theirs["encoder.0.weight"])


@pytest.mark.parametrize("done", [1, 2, 3])
def test_pretraining_resumes(done: int) -> None:
    """From a checkpoint inside it, at its end and after it."""
    hyper = {"pretraining": 2}
    straight = rounds(world("lg_fedavg", hyper=hyper), n=4)
    w = world("lg_fedavg", hyper=hyper)
    method = LGFedAvg(w.config.hyper)
    state = state_from_checkpoint(method.setup(w), state_to_checkpoint(straight[done]))
    for r in range(done + 1, 5):
        w.session.tally.begin(r)
        state = method.round(state, w)
    assert torch.equal(flat(state), flat(straight[4]))


def test_traffic() -> None:
    """The head both ways. In pretraining the whole model, and the encoder to every client at its end."""
    for pretraining in (0, 1):
        w = world("lg_fedavg", hyper={"pretraining": pretraining}, train={"participation": 2 / 3})
        model = rounds(w, n=3)[-1].model
        head, whole = (float(model.numbers(part)[0]) for part in ("head.", ""))
        want = 2 * ((3 - pretraining) * head + pretraining * whole)
        assert w.air.totals["up"].floats == want
        assert w.air.totals["down"].floats == want + 3 * pretraining * (whole - head)


def test_the_encoder_that_fedavg_leaves_crosses_the_downlink() -> None:
    hyper, channel = {"pretraining": 1}, {"kind": "awgn", "snr_db": 60.0}
    last = rounds(world("lg_fedavg", hyper=hyper, air={"parameters": "analog"}, channel=channel), n=1)[-1]
    sent, own, theirs = (
        client(of, k)["encoder.0.weight"] for of, k in ((last.pretrained, 0), (last.model, 0), (last.model, 1))
    )
    assert not torch.equal(own, theirs)
    assert all(0 < (some - sent).pow(2).mean() / sent.pow(2).mean() < 1e-5 for some in (own, theirs))


def test_pretraining_to_the_end_is_warned_of() -> None:
    for pretraining, told in ((2, False), (3, True)):
        w = world("lg_fedavg", hyper={"pretraining": pretraining}, train={"rounds": 3})
        rounds(w, n=1)
        assert ("pretraining" in w.session.tally.warnings) == told


def test_encoders_may_differ_unless_they_are_pretrained() -> None:
    mixed = {"encoder": "test-conv,test-conv-wide"}
    model = play("lg_fedavg", **mixed).model
    assert len(model.cohorts) == 2 and torch.equal(client(model, 0)["head.0.weight"], client(model, 1)["head.0.weight"])
    w = world("lg_fedavg", **mixed)
    rounds(w)
    head = float(w.population().numbers("head.")[0])
    down = w.air.totals["down"]
    assert (down.floats, down.uses) == (3 * head, head * 32 / 2), "one broadcast to both architectures"
    with pytest.raises(ConfigError, match="model.encoder: lg_fedavg averages the encoder"):
        world("lg_fedavg", hyper={"pretraining": 1}, **mixed)
