"""Workloads: their arithmetic by hand, their data, and the configuration that the engine gets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from semcom.bench.data import synthetic
from semcom.bench.flops import flops_per_sample
from semcom.bench.scale import WORKLOADS
from semcom.bench.variants import Variant
from semcom.bench.workloads import CASES, Workload


def test_the_arithmetic_of_the_small_network_by_hand() -> None:
    """Two operations per product and sum; forward, weights' gradient, and input's gradient but for the first layer."""
    first = 28 * 28 * 32 * (5 * 5 * 3)
    others = 10 * 10 * 64 * (5 * 5 * 32) + 1600 * 512 + 512 * 10
    assert flops_per_sample(CASES["a"].workload) == 2 * (2 * first + 3 * others) == 43_192_320


def test_the_arithmetic_of_the_dcgan_encoder_by_hand() -> None:
    first = 16 * 16 * 64 * (4 * 4 * 3)
    others = 8 * 8 * 128 * (16 * 64) + 4 * 4 * 256 * (16 * 128) + 4096 * 64 + 64 * 10
    assert flops_per_sample(CASES["b"].workload) == 2 * (2 * first + 3 * others) == 105_385_728


def test_the_arithmetic_of_resnet18_by_hand() -> None:
    """Stage s has 64 * 2^(s-1) channels on (32 / 2^(s-1))^2 positions: 4 convolutions 3x3, and a 1x1 projection."""
    first = 32 * 32 * 64 * 27
    others = 4 * 32 * 32 * 64 * 9 * 64 + 512 * 512 + 512 * 10
    for stage in (1, 2, 3):
        side, width = 32 // 2**stage, 64 * 2**stage
        others += side * side * width * (9 * width // 2 + 3 * 9 * width + width // 2)
    assert flops_per_sample(CASES["c"].workload) == 2 * (2 * first + 3 * others)


def test_counting_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    flops_per_sample(CASES["a"].small)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("pool", [None, 600])
def test_each_client_owns_equally_many_images_of_its_classes(pool: int | None) -> None:
    workload = Workload("", "fedcl", "dcgan", 64, clients=7, samples=30, batch=10, ways=3, pool=pool)
    data = synthetic(workload)
    assert data.images.dtype == torch.uint8 and data.images.shape == (pool or 7 * 30, 3, 32, 32)
    assert data.images.is_contiguous(memory_format=torch.channels_last)
    for k in range(7):
        counts = torch.bincount(data.labels[data.train[k]], minlength=10)
        assert sorted(counts.tolist()) == [0] * 7 + [10] * 3
        assert np.array_equal(counts.numpy() > 0, data.owned[k])
        assert len(set(data.train[k].tolist())) == 30, "an image twice"
    assert not data.test.sizes.any() and len(data.test) == 7


def test_tables_overlap_only_in_a_pool() -> None:
    workload = Workload("", "fedavg", "cnn", 512, clients=9, samples=50, batch=10)
    own, shared = synthetic(workload), synthetic(replace(workload, pool=100))
    assert len(own.train.flat.unique()) == 450
    assert len(shared.train.flat.unique()) <= 100 and int(shared.train.flat.max()) < 100


def test_very_many_clients_are_made_at_once() -> None:
    data = synthetic(WORKLOADS["fedcl"].grown(100_000))
    assert data.train.flat.shape == (5_000_000,) and data.owned.sum() == 300_000
    assert len(data.train[99_999].unique()) == 50
    use = torch.bincount(data.train.flat, minlength=60_000)
    assert int(use.min()) > 0 and int(use.max()) < 3 * 5_000_000 / 60_000


def test_the_same_seed_gives_the_same_data() -> None:
    one, again, other = (synthetic(CASES["b"].small, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.images, again.images) and torch.equal(one.labels, again.labels)
    assert not torch.equal(one.images, other.images)


def test_configurations() -> None:
    config = CASES["b"].workload.config(Variant("x", chunk="all", processes=2, precision="bf16"))
    assert (config.method, config.clients, config.chunk, config.processes) == ("fedcl", 20, 20, 2)
    assert (config.precision, config.device, config.channel.kind, config.channel.snr_db) == ("bf16", "cpu", "awgn", 10)
    assert config.train.batch_size == 50 and config.train.local_epochs == 1
    assert not CASES["a"].workload.config(Variant("x")).train.through_link
    assert CASES["b"].workload.grown(80).config(Variant("x", chunk="all")).chunk == 80


def test_rounds_visit_what_takes_part() -> None:
    assert CASES["a"].workload.visited == 6_000
    many = WORKLOADS["fedavg"].grown(100_000)
    assert many.visited == 20 * 50
    assert many.config(Variant("x")).train.participation == pytest.approx(20 / 100_000)
