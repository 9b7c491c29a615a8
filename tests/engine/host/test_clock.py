"""Seconds by section, with a clock that the test moves."""

from __future__ import annotations

import pytest

from semcom.engine.host import clock as module
from semcom.engine.host.clock import Clock


class Hand:
    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    hand = Hand()
    monkeypatch.setattr(module, "time", hand)
    return hand


def test_sections_add_up_and_the_outer_one_contains_the_inner(hand: Hand) -> None:
    clock = Clock()
    for _ in range(2):
        with clock("train"):
            hand.now += 1
            with clock("fit"):
                hand.now += 4
        with clock("fit"):  # not the one inside train
            hand.now += 16
        hand.now += 1000  # in no section
    assert clock.seconds == {"train/fit": 8, "train": 10, "fit": 32}


def test_fine_sections_are_nothing_unless_they_are_asked_for(hand: Hand) -> None:
    coarse, fine = Clock(), Clock(fine=True)
    for clock in (coarse, fine):
        with clock("train"), clock.fine("forward"):
            hand.now += 1
    assert coarse.seconds == {"train": 1} and fine.seconds == {"train": 1, "train/forward": 1}
    assert coarse.fine("forward") is coarse.fine("backward")  # no memory is taken


def test_an_error_ends_its_sections(hand: Hand) -> None:
    clock = Clock()
    with pytest.raises(KeyboardInterrupt), clock("train"), clock("fit"):
        hand.now += 1
        raise KeyboardInterrupt
    with clock("log"):
        hand.now += 2
    assert clock.seconds == {"train": 1, "train/fit": 1, "log": 2}


def test_a_clock_goes_on_from_another(hand: Hand) -> None:
    clock = Clock()
    with clock("train"):
        hand.now += 1
    before = {"train": 2.0, "log": 4.0}
    clock.add(before)
    with clock("train"):
        hand.now += 8
    assert clock.seconds == {"train": 11, "log": 4} and before == {"train": 2, "log": 4}


def test_on_a_gpu_a_fine_clock_waits_for_the_work(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is two seconds behind whenever the host reads the clock."""

    def wait(device: object) -> None:
        hand.now += 2

    monkeypatch.setattr(module.torch.cuda, "synchronize", wait)
    for clock, seconds in ((Clock(True, "cuda"), 3), (Clock(False, "cuda"), 1), (Clock(True, "cpu"), 1)):
        with clock("train"):
            hand.now += 1
        assert clock.seconds == {"train": seconds}
