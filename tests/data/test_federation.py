"""The federation: exact pixel values, borders, index lists."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from semcom.data.dataset import Dataset
from semcom.data.federation import Federation, federate
from semcom.data.split import Split


def lists(*parts: list[int]) -> tuple[np.ndarray, ...]:
    return tuple(np.array(part, dtype=np.int64) for part in parts)


SPLIT = Split(train=lists([0, 2], [1], [3]), test=lists([5], [4, 5], [4]), validation=lists([], [], []))


def make(side: int, channels: int = 3) -> tuple[Federation, Dataset]:
    """Six images with every byte value, of three classes."""
    pixels = np.arange(6 * channels * side * side).reshape(6, channels, side, side) % 256
    labels = np.array([0, 1, 2, 0, 1, 2], dtype=np.int64)
    dataset = Dataset("toy", pixels.astype(np.uint8), labels, 4, ("a", "b", "c"))
    return federate(dataset, SPLIT), dataset


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bytes_become_numbers_from_minus_one_to_one(dtype: torch.dtype) -> None:
    federation, dataset = make(32)
    images = federation.gather(torch.arange(6), dtype)
    assert images.dtype == dtype and images.shape == (6, 3, 32, 32)
    expected = torch.from_numpy(dataset.images).to(dtype) / 127.5 - 1
    assert torch.equal(images, expected)
    assert images.min() == -1 and images.max() == 1
    assert images[0, 0, 1, 19] == torch.tensor(51 / 127.5, dtype=dtype) - 1  # byte 51 is -0.6
    assert torch.equal(federation.images, torch.from_numpy(dataset.images))  # gathering leaves the bytes alone


def test_small_images_get_a_border_of_minus_one() -> None:
    federation, dataset = make(28, channels=1)
    assert federation.images.shape == (6, 1, 32, 32) and federation.images.dtype == torch.uint8
    images = federation.gather(torch.arange(6))
    assert torch.equal(images[..., 2:30, 2:30], torch.from_numpy(dataset.images) / 127.5 - 1)
    border = torch.ones(32, 32, dtype=torch.bool)
    border[2:30, 2:30] = False
    assert (images[..., border] == -1).all()


def test_an_odd_border_is_longer_at_the_end() -> None:
    federation, dataset = make(29, channels=1)
    assert torch.equal(federation.images[..., 1:30, 1:30], torch.from_numpy(dataset.images))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 3), max_size=4), st.integers(0, 100))
def test_any_shape_of_index(shape: list[int], seed: int) -> None:
    federation, _ = make(32, channels=1)
    index = torch.randint(6, shape, generator=torch.Generator().manual_seed(seed))
    images = federation.gather(index)
    assert images.shape == (*shape, 1, 32, 32)
    each = [federation.gather(torch.tensor(int(i))) for i in index.flatten()]
    assert all(torch.equal(a, b) for a, b in zip(images.reshape(-1, 1, 32, 32), each, strict=True))


def test_index_lists_of_unequal_clients() -> None:
    federation, _ = make(32)
    assert federation.train.sizes.tolist() == [2, 1, 1] and len(federation.train) == 3
    assert [client.tolist() for client in federation.train] == [[0, 2], [1], [3]]
    assert [client.tolist() for client in federation.test] == [[5], [4, 5], [4]]
    assert federation.validation.sizes.tolist() == [0, 0, 0] and federation.validation[1].tolist() == []
    assert federation.train.flat.dtype == torch.int64 and federation.train.offsets.dtype == np.int64
    assert federation.train[1].data_ptr() == federation.train.flat[2:].data_ptr()  # a view
    with pytest.raises(IndexError, match="client 3 of 3"):
        federation.train[3]
    with pytest.raises(IndexError, match="client -1 of 3"):
        federation.train[-1]


def test_owned_classes_are_those_of_the_training_samples() -> None:
    federation, _ = make(32)
    assert federation.owned.tolist() == [[True, False, True], [False, True, False], [True, False, False]]
    assert federation.labels.tolist() == [0, 1, 2, 0, 1, 2] and federation.classes == ("a", "b", "c")
