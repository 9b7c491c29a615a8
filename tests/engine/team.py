"""What the processes of a team do in the tests of ranks: the same cases as rank 0, which is the test."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from semcom.channels import Link
from semcom.config import ConfigError
from semcom.engine.host import ranks
from semcom.engine.host.ranks import Team
from semcom.engine.store.population import Population
from semcom.engine.train.context import Context, Given
from semcom.engine.train.descent import Diverged
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.view import View, count_confusion
from semcom.engine.world import World
from semcom.methods.base import task_loss
from semcom.methods.registry import METHODS
from semcom.runs.folder.checkpoint import state_from_checkpoint, state_to_checkpoint
from semcom.runs.rounds.finish import finish_views
from tests import worlds

Found = dict[str, Any]
"""What a case gives: tensors, and plain values."""


def made(team: Team, method: str, **overrides: Any) -> World:
    """A world of five unequal clients, one at a time, seen by a rank: so no number depends on who trains whom."""
    world = worlds.world(method, **{"sizes": (7, 5, 3, 6, 4), "chunk": 1, **overrides})
    world.session.tally.team = team
    return world


def arm(team: Team, method: str, rounds: int = 2, **overrides: Any) -> Found:
    """Some rounds of a method with part of the clients over Rayleigh fading, and what they are tested to know."""
    parts = METHODS.get(method)(made(team, method).config.hyper).averages
    mixed = "test-conv" if "encoder." in parts else "test-conv,test-conv-wide"
    setting: dict[str, Any] = {
        "sizes": (3, 2, 1, 4, 2),
        "encoder": mixed,
        "channel": {"kind": "rayleigh", "snr_db": "0:18"},
        "train": {"participation": 0.6, "local_epochs": 2},
        **overrides,
    }
    world = made(team, method, **setting)
    arm_, logs, times = METHODS.get(method)(world.config.hyper), [], []
    state = arm_.setup(world)
    for r in range(1, rounds + 1):
        world.session.tally.begin(r)
        state = arm_.round(state, world) if len(world.sample()) else state
        logs.append(dict(world.session.tally.log))
        times.append(world.air.arrivals.summarize())
    world.session.tally.begin(rounds + 1)
    views = arm_.finish(state, world) or arm_.views(state, world)
    if world.config.finish.kind is not None:
        views |= finish_views(world, views)
    counts = count_confusion(world.session, views, None, world.session.draws.federation.test)
    counters = world.session.counters()
    return {
        **{f"state/{name}": t for name, t in everything(state).items()},
        **{f"log/{r}/{name}": t for r, log in enumerate(logs) for name, t in log.items()},
        **{f"confusion/{name}": t for name, t in counts.items()},
        **{f"rows/{name}/{row}": t for name, view in views.items() for row, t in view.per_client.items()},
        "meters": counters.pop("meters"),
        "counters": counters,
        "times": times,
    }


def everything(state: Any) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if isinstance(value, Population):
            mine = worlds.tensors(value)
        else:
            mine = everything(value) if dataclasses.is_dataclass(value) else {"": value}
        found |= {f"{field.name}/{name}": t for name, t in mine.items()}
    return found


IN_A_NETWORK: dict[str, Any] = {
    "rounds": 3,
    "train": {"participation": 0.8, "local_epochs": 2, "deadline_s": 0.2},
    "channel": {"kind": "rayleigh", "snr_db": "0:18", "antennas": 2, "users": 2},
    "network": {"flops": 1e6, "flops_spread": 1.0},
    "air": {"rate": "mcs", "outage": 0.6, "repeat": False},
}
"""Two users on a resource, late clients, and losses both ways."""


def diverged(team: Team) -> Found:
    world = made(team, "fedavg", train={"optimizer": "sgd", "lr": (1e300, 0.01, 0.01, 1e300, 0.01), "local_epochs": 3})
    try:
        world.fit(world.population(), loss)
    except Diverged as error:
        said = str(error)
    return {"said": said, "all": len(set(team.exchange(said))) == 1}


def loss(model: StackedModel, batch: Batch, context: Context) -> Tensor:
    return task_loss(model(batch)[1], batch)


def resumed(team: Team, store: str, again: str, folder: str) -> Found:
    """Two rounds, a checkpoint, a third one, and the third one again from it; rows in memory or in a file of rank 0."""
    out = {"out": folder, "train": {"participation": 0.6}}
    world = made(team, "local", encoder="test-conv,test-conv-wide", store=store, **out)
    method = METHODS.get("local")(world.config.hyper)
    state = method.setup(world)
    for r in (1, 2):
        world.session.tally.begin(r)
        state = method.round(state, world)
    values = team.exchange(state_to_checkpoint(state))[0]
    world.session.tally.begin(3)
    straight = everything(method.round(state, world))
    other = made(team, "local", encoder="test-conv,test-conv-wide", store=again, **out)
    taken_up = state_from_checkpoint(method.setup(other), values, None if team.rank else Path(folder), team)
    other.session.tally.begin(3)
    found = {"taken up": everything(taken_up), "resumed": everything(method.round(taken_up, other))}
    same = all(torch.equal(t, straight[name]) for name, t in found["resumed"].items())
    return {"as straight": same, **{f"{kind}/{name}": t for kind, ts in found.items() for name, t in ts.items()}}


def divided(team: Team) -> Found:
    world, mine = made(team, "fedavg"), {"train": [], "test": []}  # type: tuple[World, dict[str, list[int]]]
    draw = world.session.draws.realisation

    def noted(link: Link, ids: np.ndarray, *more: Any, **alike: Any) -> dict[str, Tensor]:
        mine[more[1]] += ids.tolist()
        return draw(link, ids, *more, **alike)

    world.session.draws.realisation = noted  # type: ignore[method-assign]
    trained = world.fit(world.population(), loss).models
    count_confusion(world.session, {"": View(trained)}, None, world.session.draws.federation.test)
    return {"clients": [{stream: sorted(ids) for stream, ids in each.items()} for each in team.exchange(mine)]}


def phases(team: Team) -> Found:
    """Training of one part, the other one shared or each client's own, with context, accumulators and logged values."""
    world = made(team, "local", encoder="test-conv,test-conv-wide", model={"init": "client"})
    anchor = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def objective(model: StackedModel, batch: Batch, context: Context) -> tuple[Tensor, dict[str, Tensor]]:
        context.carry["samples"].add_(batch.count)
        distance = (model(batch)[1].mean((1, 2)) - context.per_client["anchor"].sum((1, 2))).square()
        return distance + loss(model, batch, context), {"distance": distance}

    found: Found = {}
    for train, shared in (("encoder.", ("head.",)), ("encoder.", ()), ("head.", ("head.",)), ("head.", ())):
        carry = {"samples": torch.zeros(5, dtype=torch.float64)}
        pop = world.population(shared=shared)
        fitted = world.fit(pop, objective, train=(train,), given=Given(per_client={"anchor": anchor}, carry=carry))
        trained, log, carried = fitted.models, fitted.log, fitted.carried
        named = {**worlds.tensors(trained), **log, **carried}
        found |= {f"{train} {shared} {name}": t for name, t in named.items()}
    return found


def words(team: Team) -> Found:
    mine = torch.full((team.rank, 2), float(team.rank))  # rank 0 has no row
    total = torch.arange(3) + team.rank
    before = total.clone()
    found = team.sum(total)
    heard = torch.full((2,), 7 + team.rank)
    team.broadcast(heard)
    return {
        "exchange": team.exchange({"rank": team.rank}),
        "gather": torch.cat(team.gather(mine, range(team.size))),
        "sum": found,
        "sum leaves its input": torch.equal(total, before),
        "broadcast": heard,
        "tell": team.broadcast_object(b"from 0" if team.rank == 0 else b"from another"),
    }


def cases(size: int, folder: str) -> dict[str, Callable[[Team], Found]]:
    def on(method: str, **overrides: Any) -> Callable[[Team], Found]:
        return lambda team: arm(team, method, **overrides)

    if size == 2:
        return {
            **{name: on(name) for name in METHODS.names() if not name.startswith("test-")},
            "fedcl by passes": on("fedcl", hyper={"source": "pass"}),
            "local with classifiers": on("local", finish={"kind": "svm"}),
            "local with heads": on("local", finish={"kind": "mlp", "epochs": 3}),
            "fedproto by passes": on("fedproto", hyper={"source": "pass"}, air={"parameters": "analog"}),
            **{
                f"{name} at once": on(name, air={"parameters": "analog", "access": "superposed", "csi_error": 0.01})
                for name in ("fedavg", "fedper", "scaffold")
            },
            **{f"{name} in a network": on(name, **IN_A_NETWORK) for name in ("fedavg", "fedrep")},
            "diverged": diverged,
            "phases": phases,
            **{
                f"resumed {a} {b}": lambda team, a=a, b=b: resumed(team, a, b, f"{folder}/{a}-{b}-{team.size}")
                for a in ("host", "disk")
                for b in ("host", "disk")
            },
        }
    alone = {"train": {"participation": 0.2}}  # one client a round: two ranks have none
    some = ("fedavg", "fedcl", "fedproto", "ditto", "fedamp", "fedgh", "fedpac", "repper")
    return {
        **{f"{name} of one client": on(name, **alone) for name in some},
        "fedcl of two clients": on("fedcl", sizes=(5, 3), encoder="test-conv", hyper={"source": "pass"}),
        "diverged": diverged,
    }


def work(team: Team, payload: bytes) -> None:
    """All cases, and then perhaps a fault."""
    order = json.loads(payload)
    words(team)
    divided(team)
    for case in cases(team.size, order["folder"]).values():
        case(team)
    FAULTS[order["fault"]](team)


def killed(team: Team) -> None:
    """Rank 1 is killed from outside in the middle of a round."""
    world = made(team, "local")

    def objective(model: StackedModel, batch: Batch, context: Context) -> Tensor:
        if team.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return loss(model, batch, context)

    team.exchange(os.getpid())
    world.fit(world.population(), objective)


def raises(team: Team) -> None:
    """The last rank fails, and the others where they wait for it."""
    team.exchange(os.getpid())
    if team.rank == team.size - 1:
        raise ValueError("this is what went wrong\nand where")
    team.sum(torch.zeros(3))


def waits(team: Team) -> None:
    """Waits for rank 0, which never comes."""
    team.exchange(os.getpid())
    team.exchange(None)


FAULTS: dict[str, Callable[[Team], None]] = {"killed": killed, "raises": raises, "waits": waits}


def wait(team: Team, payload: bytes) -> None:
    waits(team)


def under_torchrun(folder: str) -> None:
    """What torchrun starts: a method on its ranks; what each found is left in a file."""
    try:
        with ranks.start_ranks(2, "nowhere:nothing", lambda: b""):
            pass
    except ConfigError as error:
        refused = str(error)
    with ranks.start_ranks(1, "nowhere:nothing", lambda: b"") as team:
        places = team.exchange((team.rank, team.local_rank))
        torch.save({**arm(team, "fedcl"), "refused": refused, "ranks": places}, Path(folder) / f"{team.rank}.pt")


def differences(one: Found, other: Found) -> Iterable[str]:
    """Names of what differs: tensors by a bit, powers measured on the air by more than the order of a sum."""
    if one.keys() != other.keys():
        yield f"names {sorted(one.keys() ^ other.keys())}"
    for name in one.keys() & other.keys():
        a, b = one[name], other[name]
        if name == "meters":
            equal = a.keys() == b.keys() and all(np.allclose(a[n], b[n], rtol=1e-12, atol=0) for n in a)
        elif isinstance(a, Tensor):
            equal = a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
        else:
            equal = a == b
        if not equal:
            yield name
