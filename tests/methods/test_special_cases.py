"""A method with its idea switched off is a simpler method: most rows of "Special cases" in docs/methods.md."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from tests.methods.arms import ended
from tests.worlds import used, world

Who = tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], dict[str, Any]]
"""A method, or `method.name` for a population of its State or a view, with its hyperparameters and training."""

HARD: dict[str, Any] = {"sizes": (3, 2, 1), "channel": {"kind": "rayleigh"}, "n": 3, "within": 0.0}
HARD["train"] = {"participation": 2 / 3, "local_epochs": 2, "weight_decay": 0.01}
"""Unequal clients with last batches of one, fading, partial rounds, and two epochs of Adam with a decay."""
IDEAL, ONE, OWN = {"channel": {"kind": "ideal"}}, {"sizes": (7,)}, {"model": {"init": "client"}}
ROUND_1: dict[str, Any] = {"n": 1, "train": {"participation": 1.0}}
SGD = {"optimizer": "sgd", "weight_decay": 0.0}
FEDAVG = {"inner_steps": 1, "lam": 20.0, "eta": 0.05, "lr_p": 0.01}
"""Where theta takes one step a batch and w follows all the way, pFedMe is FedAvg with plain SGD at 0.01."""
NO_CONTRAST = {"alpha": 0.0, "local_aggregation": False}
PLAIN_MEANS = {"lam": 0.7, "average_decoder": False, "centroids": "mean", "reduction": "mean"}

CASES: list[tuple[Who, Who, dict[str, Any]]] = [
    *[((name, {}), ("local", {}), ONE) for name in ("fedavg", "fedper", "lg_fedavg")],
    *[(("fedamp", {"lam": 0.0, "weights": kind}), ("local", {}), ONE) for kind in ("cosine", "euclid")],
    (("scaffold", {}), ("local", {}), {**ONE, "within": 1e-12}),
    (("scaffold", {}), ("fedavg", {}), ROUND_1),
    (("fedprox", {"mu": 0.0}), ("fedavg", {}), {}),
    (("moon", {"mu": 0.0}), ("fedavg", {}), {}),
    (("feddbe", {"kappa": 0.0, "bias": False}), ("fedavg", {}), {}),
    *[(("ditto", {"lam": lam}), ("fedavg", {}), {}) for lam in (0.0, 3.0)],
    (("ditto.personal", {"lam": 0.0}), ("local", {}), {}),
    (("ditto.personal", {"lam": 0.0}), ("local", {}), OWN),
    (("apfl", {}), ("fedavg", {}), {}),
    (("apfl.personal", {"alpha": 1.0, "eta_alpha": 0.0}), ("local", {}), {}),
    (("apfl.personal", {"alpha": 1.0, "eta_alpha": 0.0}), ("local", {}), OWN),
    (("fedala", {"p": 0}), ("fedavg", {}), {}),
    (("fedala", {}), ("fedavg", {}), ROUND_1),
    (("fedavg_ft", {}), ("fedavg", {}), {}),
    (("fedprox_ft", {}), ("fedprox", {}), {}),
    (("fedprox_ft.personal", {"mu": 0.0}), ("fedavg_ft.personal", {}), {}),
    *[
        (("perfedavg", {"alpha": 0.0, "beta": 0.02, "variant": kind}), ("fedavg", {}, {**SGD, "lr": 0.02}), {})
        for kind in ("fo", "hf")
    ],
    (("pfedme", FEDAVG), ("fedavg", {}, {**SGD, "lr": 0.01}), {"within": 1e-12}),
    *[(("fedamp", {"lam": 0.0, "weights": kind, "start": "own"}), ("local", {}), {}) for kind in ("cosine", "euclid")],
    (("fedrep", {"head_epochs": 0}), ("fedbabu", {}), {}),
    (("fedcrc", {"tau": 1.0}), ("fedbabu", {}), {}),
    *[
        (("fedpac", {"lam": 0.0, "collaboration": False, "head_epochs": n}), ("fedrep", {"head_epochs": n}), {})
        for n in (0, 1, 2)
    ],
    (("fedproto", {"lam": 0.0}), ("local", {}), {}),
    (("fedproto", {}), ("local", {}), ROUND_1),
    (("fedgh.trained", {}), ("local", {}), ROUND_1),
    (("fedgh.trained", {}), ("local", {}), {**ROUND_1, "encoder": "test-conv,test-conv-wide"}),
    (("fedcosr", NO_CONTRAST), ("fedper", {}), {}),
    (("fedcosr", {**NO_CONTRAST, "separate": False}), ("fedavg", {}), {}),
    *[
        ((f"{name}.{which}", {"alpha": 0.0, "gamma": 0.0}), ("local", {}), OWN)
        for name in ("fedcosr", "fedcrl")
        for which in ("trained", "personal")
    ],
    *[
        ((f"fedcosr.{which}", {"gamma": 1e9}), (f"fedcosr.{which}", {"local_aggregation": False}), {})
        for which in ("model", "trained")
    ],
    *[((f"fedcrl.{which}", {}), (f"fedcosr.{which}", {}), {}) for which in ("model", "trained")],
    (("fedcl", {"lam": 0.0}), ("lg_fedavg", {}), IDEAL),
    (("fedcl", {"lam": 0.0, "average_decoder": False}), ("local", {}), IDEAL),
    (("fedcl", {"lam": 0.0, "average_encoder": True}), ("fedavg", {}), IDEAL),
    (("fedcl", {"lam": 0.0, "average_encoder": True, "average_decoder": False}), ("fedper", {}), IDEAL),
    (("fedcl", PLAIN_MEANS), ("fedproto", {"lam": 0.7}), IDEAL),
    (("fedcl", {"centroids": "none"}), ("fedcl", {"lam": 0.0}), {}),
    (("fedcl", {"warmup": 2}), ("fedcl", {"lam": 0.0}), {"n": 2}),
]
"""A method, the method that it must equal, and the settings that differ from HARD."""


@pytest.mark.parametrize(("one", "other", "change"), CASES, ids=lambda v: v[0] if isinstance(v, tuple) else "")
def test_it_is_the_simpler_method(one: Who, other: Who, change: dict[str, Any]) -> None:
    setting = {**HARD, **change, "train": {**HARD["train"], **change.get("train", {})}}
    within = setting.pop("within")
    mine, theirs = (trained(who, **setting) for who in (one, other))
    for name, t in theirs.items():
        assert (mine[name] - t).abs().max() <= within, name


TRAINED: dict[str, dict[str, Tensor]] = {}
"""Reference states of several cases, by their settings."""


def trained(who: Who, n: int, train: dict[str, Any], **setting: Any) -> dict[str, Tensor]:
    """The tensors of a population by client and name."""
    whose, hyper, *more = who
    method, _, name = whose.partition(".")
    setting |= {"hyper": hyper, "train": used(method, {**train, **(more[0] if more else {})})}
    if (key := repr((whose, n, setting))) not in TRAINED:
        state, views = ended(world(method, **setting), n=n)
        pop = (getattr(state, name or "model", None) or views[name].population).spread()
        TRAINED[key] = {f"{i}/{n}": t for i, c in enumerate(pop.cohorts) for n, t in c.tensors.items()}
    return TRAINED[key]
