"""Workloads: their arithmetic by hand, their data, and the configuration that the engine gets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from semcom_papers.experiments.bench.engine import CASES, SMALL, count_engine_flops
from semcom_papers.experiments.bench.scale import WORKLOADS
from semcom_papers.experiments.bench.workloads import Variant, Workload, list_workload_variants, make_synthetic_workload


def test_the_arithmetic_of_the_small_network_by_hand() -> None:
    """Two operations per product and sum; forward, weights' gradient, and input's gradient but for the first layer."""
    before = torch.random.get_rng_state()
    first = 28 * 28 * 32 * (5 * 5 * 3)
    others = 10 * 10 * 64 * (5 * 5 * 32) + 1600 * 512 + 512 * 10
    assert count_engine_flops(CASES["a"]) == 2 * (2 * first + 3 * others) == 43_192_320
    assert torch.equal(torch.random.get_rng_state(), before), "counting draws nothing"


def test_the_arithmetic_of_the_dcgan_encoder_by_hand() -> None:
    first = 16 * 16 * 64 * (4 * 4 * 3)
    others = 8 * 8 * 128 * (16 * 64) + 4 * 4 * 256 * (16 * 128) + 4096 * 64 + 64 * 10
    assert count_engine_flops(CASES["b"]) == 2 * (2 * first + 3 * others) == 105_385_728


def test_the_arithmetic_of_resnet18_by_hand() -> None:
    """Stage s has 64 * 2^(s-1) channels on (32 / 2^(s-1))^2 positions: 4 convolutions 3x3, and a 1x1 projection."""
    first = 32 * 32 * 64 * 27
    others = 4 * 32 * 32 * 64 * 9 * 64 + 512 * 512 + 512 * 10
    for stage in (1, 2, 3):
        side, width = 32 // 2**stage, 64 * 2**stage
        others += side * side * width * (9 * width // 2 + 3 * 9 * width + width // 2)
    assert count_engine_flops(CASES["c"]) == 2 * (2 * first + 3 * others)


@pytest.mark.parametrize("pool", [600, 6000])
def test_each_client_owns_equally_many_images_of_its_classes(pool: int) -> None:
    workload = Workload("", "fedcl", "dcgan", 64, clients=7, samples=30, batch=10, ways=3, pool=pool)
    data = make_synthetic_workload(workload)
    assert data.images.dtype == torch.uint8 and data.images.shape == (pool, 3, 32, 32)
    assert data.images.is_contiguous(memory_format=torch.channels_last)
    for k in range(7):
        counts = torch.bincount(data.labels[data.train[k]], minlength=10)
        assert sorted(counts.tolist()) == [0] * 7 + [10] * 3
        assert np.array_equal(counts.numpy() > 0, data.owned[k])
        assert len(set(data.train[k].tolist())) == 30, "an image twice"
    assert not data.test.sizes.any() and len(data.test) == 7


def test_very_many_clients_are_made_at_once() -> None:
    data = make_synthetic_workload(replace(WORKLOADS["fedcl"], clients=100_000))
    assert data.train.flat.shape == (5_000_000,) and data.owned.sum() == 300_000
    assert len(data.train[99_999].unique()) == 50
    use = torch.bincount(data.train.flat, minlength=60_000)
    assert int(use.min()) > 0 and int(use.max()) < 3 * 5_000_000 / 60_000


def test_the_same_seed_gives_the_same_data() -> None:
    one, again, other = (make_synthetic_workload(SMALL["b"], seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.images, again.images) and torch.equal(one.labels, again.labels)
    assert not torch.equal(one.images, other.images)


def test_configurations() -> None:
    config = CASES["b"].config(Variant("x", chunk="all", processes=2, precision="bf16"))
    assert (config.method, config.clients, config.chunk, config.processes) == ("fedcl", 20, 20, 2)
    assert (config.precision, config.device, config.channel.kind, config.channel.snr_db) == ("bf16", "cpu", "awgn", 10)
    assert config.train.batch_size == 50 and config.train.local_epochs == 1
    assert CASES["a"].config(Variant("x")).channel.kind == "none"
    assert replace(CASES["b"], clients=80).config(Variant("x", chunk="all")).chunk == 80


def test_rounds_visit_what_takes_part() -> None:
    assert CASES["a"].visited == 6_000
    many = replace(WORKLOADS["fedavg"], clients=100_000)
    assert many.visited == 20 * 50
    assert many.config(Variant("x")).train.participation == pytest.approx(20 / 100_000)


def test_variants_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain loop has a thread for each physical core; a reduced precision follows the engine's own choice."""
    monkeypatch.setattr("joblib.cpu_count", lambda only_physical_cores=False: 4 if only_physical_cores else 8)
    found = {v.name: v for v in list_workload_variants(cuda=True)}
    assert list(found)[:8] == ["plain", "bare", "loop", "chunk", "processes", "bf16", "bare-bf16", "loop-bf16"]
    assert found["bare-bf16"] == Variant("bare-bf16", plain=True, bare=True, precision="bf16", rounded_from="bare")
    assert found["plain"].threads == 4 and found["processes"] == Variant("processes", processes=8)
    assert found["bf16"] == Variant("bf16", processes=8, precision="bf16", rounded_from="processes")
    on_gpu = {name: v for name, v in found.items() if v.device == "cuda"}
    assert [name for name, v in on_gpu.items() if v.plain] == ["plain-cuda", "plain-cuda-tf32", "plain-cuda-bf16"]
    assert {v.precision for v in on_gpu.values() if v.rounded_from == "cuda"} == {"tf32", "bf16"}
    monkeypatch.setattr("joblib.cpu_count", lambda only_physical_cores=False: 1)
    names = [v.name for v in list_workload_variants(cuda=False)]
    assert names == ["plain", "bare", "loop", "chunk", "bf16", "bare-bf16"]
