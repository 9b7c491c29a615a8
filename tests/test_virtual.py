"""The virtual GPU refuses what CUDA refuses, notes what CUDA waits for, and computes what the host computes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap
from torch.optim.adam import adam

from tests.virtual import POSSIBLE, VirtualGPU, VirtualTensor

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="takes a torch with CUDA, and a machine without a GPU")


@pytest.fixture(autouse=True)
def gpu() -> Iterator[VirtualGPU]:
    with VirtualGPU() as device:
        yield device


def ones(*shape: int) -> Tensor:
    return torch.ones(*shape, device="cuda")


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(3, device="cuda"),
        lambda: torch.tensor([1.0], device="cuda:0"),
        lambda: torch.as_tensor(np.arange(3), device="cuda"),
        lambda: torch.ones(2).cuda(),
        lambda: torch.ones(2).new_zeros(2, device="cuda"),
        lambda: torch.randn(2, generator=torch.Generator("cuda").manual_seed(1), device="cuda"),
        lambda: ones(2) * torch.tensor(3.0),
        lambda: ones(2).add_(torch.tensor(3.0)),
        lambda: torch.arange(5, device="cuda")[torch.tensor([1, 2])],
        lambda: torch.where(ones(2) > 0, ones(2), 0.0),
        lambda: ones(4).view(2, 2)[1],
        lambda: deepcopy(ones(2)),
        lambda: deepcopy(nn.Linear(2, 2).to("cuda")).weight,
    ],
)
def test_tensors_are_on_the_device(make: Callable[[], Tensor]) -> None:
    made = make()
    assert isinstance(made, VirtualTensor) and made.device == torch.device("cuda", 0) and made.is_cuda


@pytest.mark.parametrize(
    "make",
    [
        lambda: ones(2).cpu(),
        lambda: torch.zeros(2).copy_(ones(2)),
        lambda: torch.zeros_like(ones(2), device="cpu"),
        lambda: pickle.loads(pickle.dumps(ones(2))),
        lambda: torch.ones(2) * 2,
    ],
)
def test_tensors_are_on_the_host(make: Callable[[], Tensor]) -> None:
    assert type(make()) is Tensor and make().device.type == "cpu"


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        (lambda: ones(2) + torch.ones(2), "same device"),
        (lambda: ones(2) + torch.ones(1), "same device"),
        (lambda: torch.tensor(3.0).add_(ones(1)[0]), "same device"),
        (lambda: torch.arange(5)[torch.tensor([1], device="cuda")], "same device"),
        (lambda: ones(5).index_select(0, torch.tensor([1])), "same device"),
        (lambda: ones(5).index_put_((torch.tensor([1]),), torch.ones(1)), "same device"),
        (lambda: torch.cat([ones(2), torch.ones(2)]), "same device"),
        (lambda: torch.randn(2, generator=torch.Generator(), device="cuda"), "generator"),
        (lambda: torch.randn(2, generator=torch.default_generator, device="cuda"), "generator"),
        (lambda: torch.randn(2, generator=torch.Generator("cuda")), "generator"),
        (lambda: ones(2, 2).long() @ ones(2, 2).long(), "addmm_cuda|mm_cuda"),
        (lambda: ones(2).to_mkldnn(), "'CUDA' backend"),
        (lambda: ones(2).numpy(), "cpu()"),
        (lambda: np.asarray(ones(2)), "cpu()"),
        (lambda: ones(2).pin_memory(), "pin"),
    ],
)
def test_what_cuda_refuses_is_refused(slip: Callable[[], Any], message: str) -> None:
    with pytest.raises((RuntimeError, TypeError), match=message):
        slip()


@pytest.mark.parametrize(
    ("work", "waits"),
    [
        (lambda: ones(1).item(), ["number read"]),
        (lambda: bool(ones(1) > 0), ["number read"]),
        (lambda: torch.equal(ones(1), ones(1)), ["number read"]),
        (lambda: ones(2).cpu(), ["blocking copy to"]),
        (lambda: ones(2).tolist(), ["blocking copy to"]),
        (lambda: torch.ones(2).to("cuda"), ["pageable copy from"]),
        (lambda: torch.ones(2).to("cuda", non_blocking=True), ["pageable copy from"]),
        (lambda: ones(2).copy_(torch.ones(2).pin_memory()), ["blocking copy from"]),
        (lambda: torch.tensor(1.0, device="cuda"), ["pageable copy from"]),
        (lambda: ones(2)[torch.tensor([0])], ["copy of the host's index"]),
        (lambda: ones(2)[ones(2) > 0], ["mask looked through"]),
        (lambda: ones(2).nonzero(), ["size or success"]),
        (lambda: torch.cuda.synchronize(), ["synchronize"]),
        (lambda: torch.cuda.current_stream().synchronize(), ["synchronize"]),
        (lambda: (ones(3) * 2)[1:].sum(), []),
        (lambda: ones(3).masked_fill(ones(3) > 0, 1.0), []),
        (lambda: ones(3).repeat_interleave(torch.ones(3, dtype=torch.int64).to("cuda"), output_size=3), ["pageable"]),
        (lambda: torch.ones(2).pin_memory().to("cuda", non_blocking=True), []),
        (lambda: torch.empty(2, pin_memory=True)[1:].to("cuda", non_blocking=True), []),
        (lambda: ones(2).to("cpu", non_blocking=True), []),
        (lambda: torch.zeros(2, pin_memory=True).copy_(ones(2), non_blocking=True), []),
        (lambda: torch.zeros(2).copy_(ones(2), non_blocking=True), ["pageable copy to"]),
    ],
)
def test_waits_are_noted_with_their_places(work: Callable[[], Any], waits: list[str], gpu: VirtualGPU) -> None:
    work()
    assert len(gpu.record.waits) == len(waits)
    for noted, wanted in zip(gpu.record.waits, waits, strict=True):
        assert noted.startswith(wanted) and "tests/test_virtual.py:" in noted


def test_memory_is_pinned_as_long_as_it_is_there() -> None:
    t = torch.empty(3, pin_memory=True)
    assert t.is_pinned() and t[1:].is_pinned() and torch.ones(3).pin_memory().is_pinned()
    assert not torch.ones(3).is_pinned() and not t.clone().is_pinned() and not ones(2).is_pinned()
    assert t.pin_memory() is t


def test_numbers_on_their_way_to_the_host_are_there_after_a_wait() -> None:
    real, whole = (t.to("cpu", non_blocking=True) for t in (ones(2), ones(2).long()))
    assert real.is_pinned() and real.isnan().all() and (whole > 1).all()
    torch.cuda.Event().synchronize()
    assert real.tolist() == whole.tolist() == [1, 1]


def test_numbers_on_their_way_to_the_device_must_not_change() -> None:
    pinned = torch.ones(2, pin_memory=True)
    there = pinned.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    pinned.fill_(2.0)
    assert there.tolist() == [1.0, 1.0]
    ones(2).copy_(pinned, non_blocking=True)
    pinned.numpy()[0] = 3.0
    with pytest.raises(RuntimeError, match="written to before"):
        torch.cuda.synchronize()


def test_launches_are_counted_and_views_and_memory_are_not(gpu: VirtualGPU) -> None:
    t = torch.empty(2, 3, device="cuda").t()[:1]
    assert gpu.record.launches.total() == 0
    (t + t).sum().exp_()
    torch.ones(3) + torch.ones(3)
    assert gpu.record.launches == {"add": 1, "sum": 1, "exp_": 1}


def test_draws_of_the_device_are_noted(gpu: VirtualGPU) -> None:
    torch.randn(2, generator=torch.Generator().manual_seed(0)).to("cuda")
    assert not gpu.record.draws
    torch.randperm(3, generator=torch.Generator("cuda"), device="cuda")
    F.dropout(ones(2))
    assert [what.split(" at ")[0] for what in gpu.record.draws] == ["randperm", "native_dropout"]


def test_a_record_apart_is_noted_outside_too(gpu: VirtualGPU) -> None:
    ones(1).item()
    with gpu.apart() as inside:
        ones(1).item()
    assert (inside.waits.total(), gpu.record.waits.total()) == (1, 2)
    assert inside.text().startswith("1 waits, 0 draws, 1 launches\n        1  number read by _local_scalar_dense at ")


def network(w: Tensor, x: Tensor, g: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return F.batch_norm(F.conv2d(x, w), mean, var, g, b, True)


def stacks(device: str) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(3, 5, 2, 8, 8, generator=generator), torch.randn(3, 4, 2, 3, 3, generator=generator)
    rest = torch.ones(3, 4), torch.zeros(3, 4), torch.zeros(3, 4), torch.ones(3, 4)
    return [t.to(device) for t in (w, x, *rest)]


@pytest.mark.parametrize("stacked", [False, True])
def test_a_network_is_that_of_the_host_bit_for_bit(stacked: bool, gpu: VirtualGPU) -> None:
    found = []
    for device in ("cpu", "cuda"):
        w, x, g, b, mean, var = (t if stacked else t[0] for t in stacks(device))
        leaves = [t.requires_grad_() for t in (w, g, b)]
        y = (vmap(network) if stacked else network)(leaves[0], x, *leaves[1:], mean, var)
        grads = torch.autograd.grad(y.square().sum(), leaves)
        found.append([t.detach().cpu() for t in (y, mean, var, *grads)])
        assert ("cudnn_batch_norm_backward" in gpu.record.launches) == (device == "cuda")
    assert all(map(torch.equal, *found))


def test_a_fused_optimiser_refuses_gradients_that_lie_in_another_order() -> None:
    leaf, zero, step = ones(3, 4), torch.zeros(3, 4, device="cuda"), torch.zeros((), device="cuda")
    settings: dict[str, Any] = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.0}
    settings |= {"fused": True, "amsgrad": False, "maximize": False}
    adam([leaf], [zero + 1], [zero.clone()], [zero.clone()], [], [step], **settings)
    assert 0.89 < leaf.mean().item() < 0.91
    with pytest.raises(RuntimeError, match="same dtype, device, and layout"):
        adam([leaf], [ones(4, 3).T], [zero.clone()], [zero.clone()], [], [step], **settings)
