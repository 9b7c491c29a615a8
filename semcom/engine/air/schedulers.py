"""The schedulers by name, which choose the participants of a round if not all clients take part.

A scheduler is a function of a `Turn` only: a run that goes on after a stop, or on another number of processes, chooses
the same clients. A scheduler with a memory computes the earlier rounds again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from semcom.channels.registry import Registry

WINDOW = 20
"""Window in rounds of the exponential average of rates in proportional fairness."""
BEST_DB = 300.0
"""SNR in place of a noiseless one, whose rate would be infinite."""


@dataclass(frozen=True)
class Turn:
    """A round in which a scheduler chooses.

    Attributes:
        round: its number, from 1.
        clients: K.
        n: number of participants.
        mean_db: function to the uplink SNRs of all clients in dB before fading, in the first round, float `[K]`.
        snr_db: round -> the same in that round, with the fading that lasts for it.
        chance: round -> the clients in a random order, `[K]`.
        memory: a scheduler's earlier results, by round; it may be empty at any time.
    """

    round: int
    clients: int
    n: int
    mean_db: Callable[[], np.ndarray]
    snr_db: Callable[[int], np.ndarray]
    chance: Callable[[int], np.ndarray]
    memory: dict[int, np.ndarray] = field(default_factory=dict)

    def choose_best(self, values: np.ndarray, round_: int | None = None) -> np.ndarray:
        """Choose the n clients with the largest values `[K]`; ties are broken at random."""
        return np.lexsort((self.chance(self.round if round_ is None else round_), -values))[: self.n]


Scheduler = Callable[[Turn], np.ndarray]


def schedule_at_random(turn: Turn) -> np.ndarray:
    """Choose clients at random."""
    return turn.chance(turn.round)[: turn.n]


def schedule_in_turns(turn: Turn) -> np.ndarray:
    """Let clients take turns."""
    return ((turn.round - 1) * turn.n + np.arange(turn.n)) % turn.clients


def schedule_best_snr(turn: Turn) -> np.ndarray:
    """Those with the highest uplink SNR in the round."""
    return turn.choose_best(turn.snr_db(turn.round))


def schedule_fairly(turn: Turn) -> np.ndarray:
    """Those whose rate is highest over what they got on average (Viswanath, Tse and Laroia, 2002).

    Before the first round each got its share by its mean SNR: had all got the same, weak clients would wait for as long
    as the window.
    """
    known = max((r for r in turn.memory if r <= turn.round), default=1)
    got = turn.memory.get(known)
    if got is None:
        got = _find_rates(turn.mean_db()) * turn.n / turn.clients
    for round_ in range(known, turn.round):
        rates, served = _find_rates(turn.snr_db(round_)), np.zeros(turn.clients)
        served[turn.choose_best(rates / got, round_)] = 1
        got = got + (rates * served - got) / WINDOW
    if turn.round >= known:
        turn.memory.clear()
        turn.memory[turn.round] = got
    return turn.choose_best(_find_rates(turn.snr_db(turn.round)) / got)


def _find_rates(snr_db: np.ndarray) -> np.ndarray:
    """Compute Shannon's rates; they are above 0."""
    return np.log2(1 + 10 ** (np.clip(snr_db, -BEST_DB / 3, BEST_DB) / 10))


SCHEDULERS: Registry[Scheduler] = Registry(
    "scheduler",
    {
        "random": "semcom.engine.air.schedulers:schedule_at_random",
        "round-robin": "semcom.engine.air.schedulers:schedule_in_turns",
        "best-snr": "semcom.engine.air.schedulers:schedule_best_snr",
        "proportional-fair": "semcom.engine.air.schedulers:schedule_fairly",
    },
)
"""Name -> function of a `Turn` to the ids of the clients that take part, `[n]`."""
