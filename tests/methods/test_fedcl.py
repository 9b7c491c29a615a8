"""FedCL: by hand, Eq. 9 against loops, the SCG, and the traffic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from semcom.engine.world import World
from semcom.methods.fedcl import FedCL
from semcom.models.scg import SCG
from semcom.runs.folder.checkpoint import state_from_checkpoint, state_to_checkpoint
from tests.methods.arms import X, Y, as_toy, assert_toys, flat, play, rounds, toy_world
from tests.methods.by_hand import mean
from tests.worlds import client, gap, world


def hyper(**values: Any) -> FedCL.Hyper:
    return FedCL.Hyper(**values)


def test_round_by_hand() -> None:
    """Eq. 10 (sum over d) pulls by 2 lambda (f - F) / n, Eq. 5 averages decoders, and encoders stay personal."""
    lam = 0.25
    start, after = rounds(toy_world("fedcl", hyper={"lam": lam}))
    centroids = start.centroids.values.numpy()
    trained = []
    for k in (0, 1):
        model = as_toy(start.model, k)
        f = model.features(X[k])
        trained.append(model.step(X[k], Y[k], 0.5, pull=2 * lam * (f - centroids[Y[k]]) / len(f)))
    common = mean(trained)
    assert_toys(after.model, [model.under(common) for model in trained])


@pytest.mark.parametrize("train", [{}, {"weight_decay": 0.3}, {"momentum": 0.9}, {"optimizer": "adam"}])
def test_scg_step_by_hand(train: dict[str, Any]) -> None:
    """One SGD step on Eqs. 8 and 9 with written-out derivatives. Decay and momentum are the clients'.

    The SCG's optimiser is theirs, or its own.
    """
    lr = 0.5
    hyper = {"scg_optimizer": "sgd"} if "optimizer" in train else {}
    start, after = rounds(toy_world("fedcl", lr, train=train, hyper=hyper))
    assert list(after.moments.tensors()) == []
    t = {n: v.numpy() for n, v in client(start.scg, 0).items()}
    local = np.stack(
        [
            [m[Y[k] == c].mean(0) for c in (0, 1)]
            for k, m in enumerate(as_toy(start.model, k).features(X[k]) for k in (0, 1))
        ]
    )
    a = t["vectors"] @ t["layers.0.weight"].T + t["layers.0.bias"]
    h = np.maximum(a, 0)
    # Two classes: the log-sum over "the others" is one term, so L = mean over clients of sum_c f_c . (F_other - F_c).
    dF = np.zeros((2, 2))
    for k in (0, 1):
        for c in (0, 1):
            dF[1 - c] += local[k, c] / 2
            dF[c] -= local[k, c] / 2
    da = (dF @ t["layers.2.weight"]) * (a > 0)
    want = {
        "layers.2.weight": t["layers.2.weight"] - lr * dF.T @ h,
        "layers.2.bias": t["layers.2.bias"] - lr * dF.sum(0),
        "layers.0.weight": t["layers.0.weight"] - lr * da.T @ t["vectors"],
        "layers.0.bias": t["layers.0.bias"] - lr * da.sum(0),
        "vectors": t["vectors"],
    }
    got = {n: v.numpy() for n, v in client(after.scg, 0).items()}
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, atol=1e-12, err_msg=name)
    h = np.maximum(got["vectors"] @ got["layers.0.weight"].T + got["layers.0.bias"], 0)
    np.testing.assert_allclose(after.centroids.values, h @ got["layers.2.weight"].T + got["layers.2.bias"], atol=1e-12)


@pytest.mark.parametrize("steps", [1, 2])
def test_the_adam_of_the_scg_goes_on_from_round_to_round(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rounds equal one torch.optim.Adam. A restored State has its moments too.

    With InfoNCE the slopes of Eq. 9 sum to zero over the centroids, so Adam would divide rounding by rounding.
    """
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    train_scg = FedCL._train_scg

    def watched(self: FedCL, state: Any, world: World, means: torch.Tensor, counts: torch.Tensor) -> Any:
        seen.append((means, counts > 0))
        return train_scg(self, state, world, means, counts)

    monkeypatch.setattr(FedCL, "_train_scg", watched)
    w = world("fedcl", hyper={"scg_loss": "infonce", "scg_optimizer": "adam", "scg_lr": 0.1, "scg_steps": steps})
    method = FedCL(w.config.hyper)
    states = rounds(w, method, n=3)
    network = SCG(w.classes, w.features).double()
    network.load_state_dict(client(states[0].scg, 0))
    adam = torch.optim.Adam(network.parameters(), 0.1)
    for means, owned in [pair for pair in seen for _ in range(steps)]:
        adam.zero_grad()
        method.scg_loss(means, network(), owned).backward()
        adam.step()
    for name, t in network.state_dict().items():
        torch.testing.assert_close(client(states[-1].scg, 0)[name], t, rtol=0, atol=1e-10)
    assert float(client(states[-1].moments, 0)["step"]) == 3 * steps
    w.session.tally.begin(3)
    again = method.round(state_from_checkpoint(states[0], state_to_checkpoint(states[2])), w)
    assert torch.equal(flat(again), flat(states[3]))


def test_the_centroids_norm_is_logged() -> None:
    """The norm covers the known centroids after the round, and is not logged where they have no effect."""
    for centroids in ("scg", "mean"):
        w = world("fedcl", hyper={"centroids": centroids})
        after = rounds(w)[-1].centroids
        assert centroids == "scg" or after.known.all()
        want = after.values[after.known].square().sum(1).sqrt().mean()
        assert float(w.session.tally.log["centroids/norm"].mean()) == pytest.approx(float(want), rel=1e-12)
    w = world("fedcl", hyper={"centroids": "none"})
    rounds(w)
    assert "centroids/norm" not in w.session.tally.log


@pytest.mark.parametrize(
    ("task", "regulariser", "warns"),
    [(0.5, 5.1, True), (0.5, 4.9, False), (0.6, 5.9, False), (0.6, 6.1, True), (0.01, 219.0, True)],
)
def test_a_regulariser_that_dominates_is_warned_of(task: float, regulariser: float, warns: bool) -> None:
    """By more than a factor of 10 and more than 5 nat."""
    w = world("fedcl")
    log = {"task": torch.tensor([task, task]), "loss": torch.tensor([task + regulariser] * 2)}
    FedCL(w.config.hyper)._warn(log, w)
    text = w.session.tally.warnings.get("regulariser", "")
    told = f"lambda times the distance of Eq. 10 is {regulariser:.3g} nat, the cross-entropy {task:.3g} nat; take a"
    assert told in text if warns else not text


LAM = "a smaller hyper.lam than 0.0156"
GROWTH = f"{LAM}, or hyper.scg-loss infonce, or a smaller hyper.scg-lr"


@pytest.mark.parametrize(
    ("options", "remedies"),
    [
        ({}, GROWTH),
        ({"train": {"optimizer": "sgd"}}, f"{GROWTH}, or hyper.scg-optimizer adam"),
        ({"train": {"optimizer": "sgd"}, "hyper": {"scg_optimizer": "adam"}}, GROWTH),
        ({"hyper": {"scg_optimizer": "sgd"}}, f"{GROWTH}, or hyper.scg-optimizer adam"),
        ({"hyper": {"scg_loss": "infonce"}}, LAM),
        ({"hyper": {"centroids": "mean"}}, LAM),
    ],
)
def test_a_warning_names_the_settings_that_are_not_taken_yet(options: dict[str, Any], remedies: str) -> None:
    w = world("fedcl", **options)
    FedCL(w.config.hyper)._warn({"task": torch.tensor([0.5]), "loss": torch.tensor([90.5])}, w)
    assert w.session.tally.warnings["regulariser"].endswith(f" 90 nat, the cross-entropy 0.5 nat; take {remedies}")


@pytest.mark.parametrize("form", ["letter", "infonce"])
def test_scg_loss_against_loops(form: str) -> None:
    generator = np.random.default_rng(0)
    local, centroids = generator.normal(size=(3, 4, 6)), generator.normal(size=(4, 6))
    owned = generator.random((3, 4)) < 0.6
    tau, want = 0.3, 0.0
    for k in range(3):
        for c in np.flatnonzero(owned[k]):
            if form == "letter":
                others = [np.exp(local[k, c] @ centroids[n]) for n in range(4) if n != c]
                want += np.log(sum(others)) - local[k, c] @ centroids[c]
            else:
                cosine = [local[k, c] @ F / np.linalg.norm(local[k, c]) / np.linalg.norm(F) / tau for F in centroids]
                want += np.log(np.exp(cosine).sum()) - cosine[c]
    got = FedCL(hyper(scg_loss=form, tau=tau)).scg_loss(*map(torch.as_tensor, (local, centroids, owned)))
    np.testing.assert_allclose(got, want / 3, rtol=1e-12)


def test_letter_loss_is_unbounded_and_infonce_is_not() -> None:
    """Scaling fitting centroids lowers the letter's loss without end, while InfoNCE ignores the scale."""
    local, owned = torch.eye(3, dtype=torch.float64)[None], torch.ones(1, 3, dtype=torch.bool)
    letter, infonce = FedCL(hyper()), FedCL(hyper(scg_loss="infonce"))
    values = [float(letter.scg_loss(local, scale * local[0], owned)) for scale in (1.0, 10.0, 1000.0)]
    np.testing.assert_allclose(np.diff(values), [-27, -2970], rtol=1e-9)
    torch.testing.assert_close(infonce.scg_loss(local, local[0], owned), infonce.scg_loss(local, 1e3 * local[0], owned))
    assert float(infonce.scg_loss(local, local[0], owned)) > 0


def test_letter_loss_has_no_gradient_for_what_all_centroids_share() -> None:
    """So the SCG's last bias stays, in float64, where Adam's epsilon is larger than rounding."""
    before, after = (state.scg.named() for state in rounds(world("fedcl", hyper={"scg_optimizer": "adam"})))
    moved = {name: float((after[name] - t).abs().max()) for name, t in before.items()}
    assert moved["layers.2.bias"] < 1e-8 and moved["layers.2.weight"] > 1e-4


def test_mean_reduction_is_sum_over_d() -> None:
    a, b = play("fedcl", hyper={"lam": 1 / 4}), play("fedcl", hyper={"lam": 1.0, "reduction": "mean"})
    assert gap(a.model, b.model) < 1e-12


def test_downlink_noise_reaches_encoders_and_not_decoders() -> None:
    """In the first step only the encoder's gradient crosses the air."""
    noisy, clean = (
        play("fedcl", n=1, train={"batch_size": 50}, channel={"downlink": d}).model for d in ("noisy", "ideal")
    )
    assert torch.equal(client(noisy, 0)["head.0.weight"], client(clean, 0)["head.0.weight"])
    assert not torch.equal(client(noisy, 0)["encoder.0.weight"], client(clean, 0)["encoder.0.weight"])


def test_mixed_encoders_share_the_decoder() -> None:
    model = play("fedcl", encoder="test-conv,test-conv-wide").model
    assert len(model.cohorts) == 2
    assert torch.equal(client(model, 0)["head.0.weight"], client(model, 1)["head.0.weight"])
    assert client(model, 0)["encoder.0.weight"].shape != client(model, 1)["encoder.0.weight"].shape


def test_traffic() -> None:
    """Up: d numbers and a label per visited sample. Down: d numbers. No parameters. A pass costs one more uplink."""
    visited, d = 7 + 5 + 3, 4
    for source, passes in (("training", 1), ("pass", 2)):
        w = world("fedcl", hyper={"source": source})
        rounds(w)
        up, down = w.air.totals["up"], w.air.totals["down"]
        assert (up.floats, down.floats) == (passes * visited * d, visited * d)
        assert up.bits == pytest.approx(passes * visited * np.log2(3))
        assert down.uses == visited * d / 2


def test_averaged_encoders_cross_the_air() -> None:
    """Both ways, with parameters and buffers, once per round and client, exact or noisy like other averaged parts."""
    for parameters in ("ideal", "analog"):
        both = [
            world("fedcl", hyper={"average_encoder": on}, air={"parameters": parameters} if on else {})
            for on in (False, True)
        ]
        models = [rounds(w)[0].model for w in both]
        encoder = sum(t[0].numel() for name, t in models[0].named().items() if name.startswith("encoder."))
        for way in ("up", "down"):
            without, sent = (w.air.totals[way] for w in both)
            assert sent.floats - without.floats == 3 * encoder > 0
            assert sent.bits - without.bits == pytest.approx(3 * 32 * encoder if parameters == "ideal" else 0)
