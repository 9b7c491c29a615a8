"""The plain loop computes what the engine computes: only then are their seconds comparable."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from semcom.engine.air.links import build_link
from semcom.engine.store.population import Population
from semcom.engine.train.phase import Phase
from semcom.engine.world import World
from semcom.methods.registry import METHODS
from semcom.runs.request.resolve import resolve
from semcom_papers.experiments.bench import plain
from semcom_papers.experiments.bench.engine import CASES, SMALL
from semcom_papers.experiments.bench.workloads import Variant, Workload, make_synthetic_workload
from tests.worlds import client

SAME = 1e-7
"""A step of Adam is 1e-3; where a gradient is next to nothing, its rounding is enlarged on the way into the step."""


pytestmark = pytest.mark.usefixtures("own_generator")


def engine(workload: Workload) -> tuple[World, object, object]:
    """World, method and first state in float64."""
    config = resolve(replace(workload.config(Variant("loop")), precision="float64"))
    method = METHODS.get(config.method)(config.hyper)
    world = World(
        config, make_synthetic_workload(workload), torch.device("cpu"), build_link(config)[0], split=method.split
    )
    return world, method, method.setup(world)


def load(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Gives a plain module the engine's weights; its counters of batches are its own."""
    missing, unexpected = module.load_state_dict(dict(tensors), strict=False)
    assert not unexpected and all(name.endswith("num_batches_tracked") for name in missing)


def same_order(loop: plain.FedAvg | plain.FedCL, world: World) -> None:
    """Gives each plain client the images that the engine visits in this round, in its order."""
    size = world.config.train.batch_size
    for k, who in enumerate(loop.clients):
        order = world.session.draws.federation.train.flat[world.session.draws.plan(k, Phase()).order]
        images = world.session.draws.federation.gather(order, torch.float64).contiguous()
        who.loader = DataLoader(TensorDataset(images, world.session.draws.federation.labels[order]), batch_size=size)


def start(workload: Workload, world: World, model: Population, bare: bool = False) -> plain.FedAvg | plain.FedCL:
    """The plain loop in float64 with the engine's first weights."""
    variant = Variant("plain", plain=True, bare=bare)
    loop = plain.make_plain_loop(workload, world.session.draws.federation, variant)
    for k, who in enumerate(loop.clients):
        load(who.network.double(), client(model, k))
    return loop


def gap(module: nn.Module, tensors: Mapping[str, Tensor]) -> float:
    """Largest difference between a plain module and the engine's tensors of the same names."""
    state = module.state_dict()
    return max(float((state[name] - t).abs().max()) for name, t in tensors.items())


@pytest.mark.parametrize(("case", "rounds", "bare"), [("a", 2, False), ("a", 1, True), ("c", 1, False)])
def test_fedavg_trains_the_same_network(case: str, rounds: int, bare: bool) -> None:
    """With a smaller last batch in each round, normalisation statistics included."""
    workload = replace(SMALL[case], samples=3 if case == "c" else 5, batch=2 if case == "c" else 3)
    world, method, state = engine(workload)
    loop = start(workload, world, state.model, bare)
    load(loop.server.double(), client(state.model, 0))
    first = client(state.model, 0)
    for number in range(1, rounds + 1):
        world.session.tally.begin(number)
        state = method.round(state, world)
        same_order(loop, world)
        loop.round()
    assert gap(loop.server, client(state.model, 0)) < SAME
    assert gap(loop.server, first) > 1e-3


def test_fedcl_trains_the_same_networks() -> None:
    """Personal encoders, the common decoder, the generator and its centroids, over two rounds without noise."""
    workload = replace(SMALL["b"], snr_db=math.inf)
    world, method, state = engine(workload)
    loop = start(workload, world, state.model)
    load(loop.generator.double(), {name: t[0] for name, t in state.scg.cohorts[0].tensors.items()})
    loop.centroids = loop.generator().detach()
    first = loop.centroids
    for number in (1, 2):
        world.session.tally.begin(number)
        state = method.round(state, world)
        same_order(loop, world)
        loop.round()
    for k, who in enumerate(loop.clients):
        assert gap(who.network, client(state.model, k)) < SAME
    torch.testing.assert_close(loop.centroids, state.centroids.values, rtol=0, atol=SAME)
    assert float((loop.centroids - first).abs().max()) > 1e-4


def test_the_noise_of_the_link() -> None:
    """At 10 dB a tenth of the power, up and down; the gradient's noise is scaled to its own r.m.s."""
    network = plain.Network(CASES["b"])
    assert network.deviation == pytest.approx(math.sqrt(0.1))
    features = torch.zeros(2000, 64, requires_grad=True)
    received = plain.add_plain_noise(features, network.deviation)
    gradient = 3.0 * torch.ones_like(features)
    received.backward(gradient)
    n = features.numel()
    for noise, power in ((received.detach(), 0.1), (features.grad - gradient, 0.9)):
        assert abs(noise.mean()) < 5 * math.sqrt(power / n)
        assert abs(noise.square().mean() - power) < 5 * power * math.sqrt(2 / n)


def test_images_in_memory_are_each_visited_once() -> None:
    images, labels = torch.randn(5, 3, 4, 4), torch.arange(5)
    loader = plain.InMemory(images, labels, 2)
    seen = [(x, y) for x, y in loader]
    assert [len(y) for _, y in seen] == [2, 2, 1]
    assert sorted(torch.cat([y for _, y in seen]).tolist()) == [0, 1, 2, 3, 4]
    assert all(torch.equal(x, images[y]) and x.is_contiguous(memory_format=torch.channels_last) for x, y in seen)


def test_the_average_is_weighted_and_leaves_counters_alone() -> None:
    one, two = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    for module, value in ((one, 1.0), (two, 4.0)):
        nn.init.constant_(module.weight, value)
    one.num_batches_tracked += 3
    clients = [plain.Client(plain.Network(CASES["a"]), [], n, torch.device("cpu")) for n in (1, 2)]
    mean = plain.average_plain(clients, [one, two])
    np.testing.assert_allclose(mean["weight"].numpy(), 3.0)
    assert mean["num_batches_tracked"] == 3 and one.weight[0] == 1.0
