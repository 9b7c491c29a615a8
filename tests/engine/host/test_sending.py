"""One copy to a device: values, types, shapes and nesting come out as they went in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from semcom.engine.host import sending
from semcom.engine.host.sending import send_to_device

VALUES: dict[str, Any] = {
    "order": torch.arange(7).view(7, 1),
    "mask": np.array([True, False, True]),
    "signals": {"up": torch.randn(3, 5, dtype=torch.complex64), "down": torch.randn(2, dtype=torch.complex128)},
    "snr_db": np.float64(3.0) * np.ones(1),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "nothing": torch.zeros(0, 4, dtype=torch.float64),
    "across": torch.arange(6.0).view(2, 3).T,
    "none": {},
}


def flat(values: Any) -> list[torch.Tensor]:
    if isinstance(values, dict):
        return [t for value in values.values() for t in flat(value)]
    return [torch.as_tensor(values)]


def test_on_the_host_nothing_is_copied() -> None:
    got = send_to_device(VALUES, torch.device("cpu"))
    assert got["order"] is VALUES["order"] and got["none"] == {}
    assert got["mask"].data_ptr() == VALUES["mask"].ctypes.data


def test_values_survive_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way to an accelerator, taken to the host."""
    there = sending._copy_to_device(flat(VALUES), torch.device("cpu"), None)
    for got, sent in zip(there, flat(VALUES), strict=True):
        assert got.dtype == sent.dtype and got.shape == sent.shape and torch.equal(got, sent)
    assert len({t.untyped_storage().data_ptr() for t in there}) == 1  # one copy


def test_all_of_it_goes_to_another_device() -> None:
    got = send_to_device(VALUES, torch.device("meta"))
    assert list(got) == list(VALUES) and all(t.is_meta for t in flat(got))
    assert [t.shape for t in flat(got)] == [t.shape for t in flat(VALUES)]
