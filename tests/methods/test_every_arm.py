"""Checks that every arm of the registry must pass: hyperparameters, permutation, storage, chunks, cost."""

from __future__ import annotations

import dataclasses
import operator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from semcom.engine.store.population import Population, StoredCohort
from semcom.engine.store.rows import Disk
from semcom.engine.train.draws import Draws
from semcom.engine.train.view import count_confusion
from semcom.engine.world import World
from semcom.methods.registry import METHODS
from semcom.runs.folder.checkpoint import state_from_checkpoint, state_to_checkpoint
from tests.engine.ops import Ops
from tests.methods.arms import ARMS, ended, fields, flat, rounds, storages
from tests.worlds import client, ragged, random_federation, reorder, world

FEW = (3, 2, 1)
"""Samples of three unequal clients: two batches with a single sample in the last, a full batch, and a single sample."""

COMPOSED = {"apfl", "fedcosr", "fedcrl", "perfedavg"}
"""Arms with a headline composed of several fields of their State."""

HEADLESS = {"repper"}
"""Arms that train no head before the end."""

OTHER: dict[str, dict[str, Any]] = {
    "fedcosr": {
        "alpha": 0.5, "tau_cl": 0.5, "gamma": 0.2, "local_aggregation": False, "separate": False, "clip": True,
    },
    "fedavg_ft": {"tune": "all"},
    "fedprox": {"mu": 1.0},
    "scaffold": {"eta_g": 0.5},
    "feddyn": {"alpha": 1.0},
    "apfl": {"alpha": 0.2, "eta_alpha": 0.0},
    "feddbe": {"kappa": 1.0, "mu": 0.5, "bias": False},
    "fedrod": {"gamma": 0.5},
    "fedprox_ft": {"mu": 1.0, "tune": "all"},
    "ditto": {"lam": 2.0},
    "fedrep": {"head_epochs": 2},
    "lg_fedavg": {"pretraining": 2},
    "fedpac": {"lam": 2.0, "head_epochs": 2, "head_lr": 0.1, "collaboration": False},
    "repper": {"tau": 0.5, "form": "outside", "crop": 0.8},
    "fedgh": {"server_lr": 0.1},
    "fedcrc": {"tau": 0.5, "divergence": "reverse"},
    "fedamp": {
        "weights": "euclid", "sigma": 1.0, "alpha": 1.0, "alpha_decay": 0.5, "alpha_every": 1, "lam": 2.0,
        "start": "own",
    },
    "fedala": {"eta": 0.1, "s": 0.4, "p": 1, "cap": 3},
    "moon": {"mu": 1.0, "tau": 0.1},
    "perfedavg": {"variant": "hf", "alpha": 0.05, "beta": 0.01, "delta": 0.1},
    "pfedme": {"lam": 5.0, "inner_steps": 2, "lr_p": 0.02, "eta": 0.05, "beta": 0.5, "nu": 0.1},
    "fedproto": {"lam": 2.0, "aggregation": "counts", "source": "pass"},
    "fedcl": {
        "lam": 0.5, "reduction": "mean", "centroids": "mean", "scg_loss": "infonce", "tau": 0.5, "scg_steps": 3,
        "scg_optimizer": "sgd", "scg_lr": 0.1, "warmup": 1, "average_decoder": False, "average_encoder": True,
        "source": "pass",
    },
}  # fmt: skip
"""Per arm: each of its hyperparameters, and another value of it."""
OTHER["fedcrl"] = OTHER["fedcosr"]
ALSO = {
    ("fedamp", "alpha_decay"): {"alpha_every": 1},
    ("perfedavg", "delta"): {"variant": "hf"},
    ("fedcl", "tau"): {"scg_loss": "infonce"},
}
"""Other settings that a hyperparameter needs to matter."""

ORDERLESS: dict[str, dict[str, Any]] = {"fedgh": {"server_lr": 0.0}, "fedala": {"s": 1.0}}
"""Hyperparameters without which ids matter: FedGH's base station takes one step after another, FedALA draws samples."""

PREDICTABLE: dict[str, dict[str, Any]] = {"fedala": {"cap": 1}}
"""Hyperparameters without which the number of epochs depends on the data."""

QUICK: dict[str, dict[str, Any]] = {"fedala": {"cap": 3}}
"""Hyperparameters without which a round takes long."""


@pytest.mark.parametrize("arm", ARMS)
def test_the_table_of_hyperparameters_is_complete(arm: str) -> None:
    known = {f.name for f in dataclasses.fields(METHODS.get(arm).Hyper)}
    assert known == set(OTHER.get(arm, ()))


@pytest.mark.parametrize(("arm", "name"), [(arm, name) for arm, values in OTHER.items() for name in values])
def test_every_hyperparameter_changes_the_weights(arm: str, name: str) -> None:
    """Compares the evaluated weights after one or two rounds and after a last stage, if there is one."""
    also = ALSO.get((arm, name), {})
    for n in (1, 2):
        a = usual(arm, n, *also.items())
        b = evaluated(arm, n, hyper={**also, name: OTHER[arm][name]}, sizes=FEW)
        pairs = (pair for p, q in zip(a, b, strict=True) for pair in zip(p.tensors(), q.tensors(), strict=True))
        if any(not torch.equal(x, y) for x, y in pairs):
            return
    raise AssertionError("it changes nothing")


@cache
def usual(arm: str, n: int, *also: tuple[str, Any]) -> list[Population]:
    """The models that several cases are compared with."""
    return evaluated(arm, n, hyper=dict(also), sizes=FEW)


def evaluated(arm: str, n: int = 2, **overrides: Any) -> list[Population]:
    """The models that are evaluated after n rounds."""
    return [view.population for view in ended(world(arm, **overrides), n=n)[1].values()]


ALONE = {"local", "fedcl", "fedproto", "fedgh", "lg_fedavg"}
"""Arms that send no encoder."""


@pytest.mark.parametrize("arm", ARMS)
def test_what_is_frozen_is_neither_changed_nor_sent(arm: str) -> None:
    """Two rounds of three clients: 48 weights of a convolution, 12 numbers of BatchNorm, which FedBN keeps anyway."""
    air = {} if arm in {"local", "fedcl"} else {"air": {"parameters": "analog"}}
    w, whole = (
        world(arm, sizes=FEW, train={"lr_parts": parts}, **air) for parts in (("encoder.0=0", "encoder.1=0"), ())
    )
    start = client(world("local", sizes=FEW).population(), 0)
    found = [client(view.population, k) for view in ended(w)[1].values() for k in range(3)]
    for name in ("0.weight", "1.weight", "1.bias", "1.running_mean", "1.running_var"):
        assert all(torch.equal(of[f"encoder.{name}"], start[f"encoder.{name}"]) for of in found)
    assert not any(torch.equal(of["encoder.3.weight"], start["encoder.3.weight"]) for of in found)
    ended(whole)
    sent = 0 if arm in ALONE else 48 if arm == "fedbn" else 48 + 12 + (48 + 6) * (arm == "scaffold")
    assert whole.air.totals["up"].floats - w.air.totals["up"].floats == 3 * sent


@pytest.mark.parametrize("arm", ARMS)
def test_clients_permute(arm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relabelling the clients relabels the results. Full batches on an ideal link, so that no draw belongs to an id."""
    of_nobody = lambda self, ids, n, p, *key: torch.full((len(ids), max(n), p), 0.3, dtype=self.dtype)  # noqa: E731
    monkeypatch.setattr(Draws, "uniforms", of_nobody)
    data, order = random_federation((7, 5, 3)), [2, 0, 1]
    lists = {name: reorder(getattr(data, name), order) for name in ("train", "test")}
    swapped = dataclasses.replace(data, owned=data.owned[order], **lists)
    setting: dict[str, Any] = {"channel": {"kind": "ideal"}, "train": {"batch_size": 50}}
    setting["hyper"] = ORDERLESS.get(arm, {})
    a, b = (evaluated(arm, data=d, **setting) for d in (data, swapped))
    for mine, theirs in zip(a, b, strict=True):
        for name, t in mine.named().items():
            torch.testing.assert_close(t[order], theirs.named()[name], rtol=0, atol=1e-10)


@cache
def played(arm: str, chunk: int = 1) -> tuple[World, list[Any], list[Tensor]]:
    """Build a fading world, the states before and after two rounds, and an early copy of each state's numbers."""
    w = world(arm, chunk=chunk, channel={"kind": "rayleigh"}, sizes=FEW, hyper=QUICK.get(arm, {}))
    method = METHODS.get(arm)(w.config.hyper)
    states = [method.setup(w)]
    numbers = [flat(states[0]).clone()]
    for r in (1, 2):
        w.session.tally.begin(r)
        states.append(method.round(states[-1], w))
        numbers.append(flat(states[-1]).clone())
    return w, states, numbers


@pytest.mark.parametrize("arm", ARMS)
def test_no_two_fields_share_storage(arm: str) -> None:
    _, states, _ = played(arm)
    for state in states:
        held = [storages(ts) for ts in fields(state).values()]
        assert sum(map(len, held)) == len(set.union(*held))
    one, two = ({n: t for n, t in s.model.cohorts[0].tensors.items() if moves(arm, n)} for s in states[1:])
    assert not storages(list(one.values())) & storages(list(two.values()))


def moves(arm: str, name: str) -> bool:
    """Whether rounds of an arm give a tensor a new value: FedBABU's head is the same from first to last."""
    return arm != "fedbabu" or not name.startswith("head.")


@pytest.mark.parametrize("arm", ARMS)
def test_a_round_leaves_the_old_states_alone(arm: str) -> None:
    _, states, numbers = played(arm)
    assert all(torch.equal(flat(state), before) for state, before in zip(states, numbers, strict=True))


@pytest.mark.parametrize("arm", ARMS)
def test_chunks_agree(arm: str) -> None:
    """BatchNorm, unequal clients, last batches of one, noise both ways. 1e-8 for the SCG, because Adam divides rounding
    by gradients near zero."""
    one, two = (played(arm, chunk)[2][-1] for chunk in (1, 2))
    torch.testing.assert_close(one, two, rtol=0, atol=1e-8 if arm == "fedcl" else 1e-10)


@pytest.mark.parametrize("arm", ARMS)
def test_partial_participation_moves_only_participants(arm: str) -> None:
    """In all fields of clients, except FedCRC's personal models with the newest body and FedALA's first mixture."""
    w = world(arm, sizes=(7, 5, 3, 6), train={"participation": 0.5})
    before, after = rounds(w)
    absent = sorted(set(range(4)) - set(w.sample().tolist()))
    for field in (f.name for f in dataclasses.fields(before) if isinstance(getattr(before, f.name), Population)):
        (old,), (new,) = (getattr(state, field).cohorts for state in (before, after))
        for name in (n for n, t in new.tensors.items() if n not in new.shared and len(t) == 4):
            common = (arm, field) == ("fedcrc", "personal") and name.startswith("encoder.")
            assert torch.equal(new.tensors[name][absent], old.tensors[name][absent]) != common, (field, name)
            still = arm in HEADLESS or not name.endswith("weight") or field in ("initialised", "weights")
            assert still or not torch.equal(new.tensors[name], old.tensors[name]), (field, name)


@pytest.mark.parametrize("arm", ARMS)
def test_a_restored_state_goes_on_bit_for_bit(arm: str) -> None:
    w, (start, half, _), (*_, straight) = played(arm)
    again = world(arm, sizes=FEW, channel={"kind": "rayleigh"}, hyper=QUICK.get(arm, {}), chunk=1)
    again.session.tally.begin(2)
    resumed = state_from_checkpoint(start, state_to_checkpoint(half))
    assert torch.equal(straight, flat(METHODS.get(arm)(w.config.hyper).round(resumed, again)))


@pytest.mark.parametrize("arm", ARMS)
def test_views_come_after_the_server_step(arm: str) -> None:
    w, (*_, state), _ = played(arm)
    first = next(iter(METHODS.get(arm)(w.config.hyper).views(state, w).values()), None)
    held = [getattr(state, f.name) for f in dataclasses.fields(state)]
    assert arm in COMPOSED or first is None or any(first.population is value for value in held)


@pytest.mark.parametrize(
    ("arm", "hyper"), [("fedproto", {}), ("fedpac", {}), ("fedcl", {"centroids": "mean"}), ("fedcosr", {})]
)
def test_a_class_of_absent_owners_keeps_its_prototype(arm: str, hyper: dict[str, Any]) -> None:
    """Each client owns classes of its own. In a round of two clients, the third client's prototypes stay."""
    data = random_federation((6, 6, 6), classes=3)
    labels = data.labels.clone()
    for k in range(3):
        labels[data.train[k]] = k
    owned = torch.eye(3, dtype=torch.bool).numpy()
    w = world(
        arm, data=dataclasses.replace(data, labels=labels, owned=owned), hyper=hyper, train={"participation": 2 / 3}
    )
    method = METHODS.get(arm)(w.config.hyper)
    state, seen = method.setup(w), set()
    held = operator.attrgetter("centroids" if arm in ("fedcl", "fedcosr") else "prototypes")
    for r in range(1, 9):
        w.session.tally.begin(r)
        ids = set(w.sample().tolist())
        newest = method.round(state, w)
        seen |= ids
        before, after = held(state).values, held(newest).values
        assert held(newest).known.tolist() == [k in seen for k in range(3)]
        for k in set(range(3)) - ids:
            assert torch.equal(after[k], before[k]) or k not in seen
        for k in ids:
            assert not torch.equal(after[k], before[k])
        state = newest
    assert seen == {0, 1, 2}


# -- the engine beneath ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ARMS)
def test_where_rows_lie_does_not_matter(arm: str, tmp_path: Path) -> None:
    """Memory or a file: the same bits after two rounds with a part of the clients, and in the tests.

    On a device, memory of the host is one more place: `tests.test_cuda`.
    """
    found = []
    for store in ("device", "disk"):
        setting = {"hyper": QUICK.get(arm, {}), "train": {"participation": 0.5}}
        w = world(arm, sizes=(*FEW, 2), store=store, out=str(tmp_path), **setting)
        method = METHODS.get(arm)(w.config.hyper)
        states = rounds(w, method, n=2)
        counts = count_confusion(w.session, method.views(states[-1], w), None, w.session.draws.federation.test)
        found.append(torch.cat([*map(flat, states), *(t.double().flatten() for t in counts.values())]))
        shelves = [c.own.shelf for c in states[-1].model.cohorts if isinstance(c, StoredCohort)]
        assert shelves and all(isinstance(shelf, Disk) == (store == "disk") for shelf in shelves)
    assert torch.equal(found[0], found[1])


@pytest.mark.parametrize("arm", ARMS)
def test_a_round_costs_what_its_clients_cost(arm: str) -> None:
    """2 clients of 40 and of 1,000 take the same operations and memory, except for one or two numbers per client."""
    spent = []
    for clients in (40, 1000):
        images = random_federation((3,) * 20)
        one_of_each = torch.arange(len(images.labels)) % 3
        some = [images.train[k % 20] for k in range(clients)]
        table = dataclasses.replace(ragged([3] * clients), flat=torch.cat(some))
        owned = np.ones((clients, 3), dtype=bool)
        data = dataclasses.replace(images, labels=one_of_each, train=table, test=table, owned=owned)
        setting = {"hyper": PREDICTABLE.get(arm, {}), "train": {"participation": 2 / clients}}
        w = world(arm, data=data, precision="float32", **setting)
        method = METHODS.get(arm)(w.config.hyper)
        state = rounds(w, method, n=1)[-1]
        with Ops() as ops:
            w.session.tally.begin(2)
            method.round(state, w)
        spent.append((ops.names, ops.bytes))
    assert sorted(spent[0][0]) == sorted(spent[1][0])
    assert abs(spent[1][1] - spent[0][1]) < 2 * 8 * 1000  # one permutation takes 8 bytes a client
