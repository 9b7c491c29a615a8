"""The two sides of a theorem over a run, from what was measured in its rounds.

Each bound is worked out twice. "own" takes each client's constants of the round itself: the most that the theorem's
proof can give. "run" takes the largest of all rounds and clients, as the theorem is written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.measures.theorems import (
    PARTS,
    FedCLBound,
    FedCoSRBound,
    Values,
    bound_information,
    compute_guarantee,
)

SLACK = 1e-6
"""Nat by which a measured change may exceed its bound: the rounding of losses in single precision."""
CONSTANTS = ("smoothness", "variance", "epsilon", "scg_gradient", "scg_lipschitz")
"""What a theorem takes as the same in all rounds and for all clients."""
SMOOTHNESS = ("path", "bend", "aside")
"""Ways in which smoothness is measured, each of which it is at least."""
Found = dict[str, np.ndarray]


def report_bounds(theorem: FedCLBound | FedCoSRBound, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the `bounds` of a run's summary: lists by round, means over clients unless they say otherwise.

    Args:
        theorem: of the run's method.
        lines: of metrics.jsonl; what `measure_round` gave is in `observed`.
    """
    seen = [line for line in lines if line.get("observed")]
    found = collect_arrays(theorem, [line["observed"] for line in seen])
    constants = {name: float(np.max(found[name])) for name in CONSTANTS if name in found}
    sides = {"own": found, "run": {**found, **{name: np.array(value) for name, value in constants.items()}}}
    measured = {**{part: found[part] for part in PARTS}, "total": sum(found[part] for part in PARTS)}
    bounds = {name: _bound(theorem, side) for name, side in sides.items()}
    return {
        "rounds": [line["round"] for line in seen],
        "measured": {**_means(found), **_means({"total": measured["total"]})},
        "bound": {name: _means(each) for name, each in bounds.items()},
        "violated": {name: _means(_violated(measured, each)) for name, each in bounds.items()},
        "excess": _worst({part: measured[part] - bounds["own"][part] for part in measured}),
        "conditions": _list_conditions(theorem, found, bounds["own"]),
        "constants": {name: json_safe(value) for name, value in constants.items()},
    }


def collect_arrays(theorem: FedCLBound | FedCoSRBound, observed: Sequence[Mapping[str, Any]]) -> Found:
    """Return the measured numbers by name, `[T, K]` (`[T, 1]` for the base station's); smoothness is the largest found.

    "squares" then has the terms that the theorem's sum has.
    """
    found = {
        name: np.array([each[name] for each in observed], dtype=float).reshape(len(observed), -1)
        for name in observed[0]
    }
    found["smoothness"] = np.max([found[f"smoothness_{way}"] for way in SMOOTHNESS], axis=0)
    found["squares"] = found["squares"] + theorem.closing * found["last_square"]
    return found


def _bound(theorem: FedCLBound | FedCoSRBound, found: Mapping[str, Values]) -> dict[str, Values]:
    """Return the bounds on the parts of a round and on all of it, `[T, K]`."""
    parts = theorem.parts(found["rate"], found["steps"], found)
    shape = np.shape(found["rate"])
    return {name: np.broadcast_to(v, shape) for name, v in {**parts, "total": sum(parts.values())}.items()}


def _violated(measured: Mapping[str, Values], bound: Mapping[str, Values]) -> dict[str, Values]:
    """Return, by part, where the measured change is above its bound, 1 or 0 `[T, K]`."""
    return {part: np.asarray(measured[part] > bound[part] + SLACK, dtype=float) for part in measured}


def _list_conditions(
    theorem: FedCLBound | FedCoSRBound, found: Mapping[str, np.ndarray], bound: Mapping[str, Values]
) -> dict[str, Any]:
    """Return the factor by which a condition is missed (at most 1: it is met), of the worst client by round.

    `rate`: eta over 2 / L1, below which a step's bound falls. `guarantee`: see `compute_guarantee`.
    """
    rise = found["steps"] * found["smoothness"] * found["rate"] ** 2 * found["variance"] / 2
    rise = rise + bound["mixing"] + bound["targets"]
    fall = compute_guarantee(found["rate"], found["smoothness"], found["squares"], rise)
    shared = {"rate": found["rate"] * found["smoothness"] / 2, "guarantee": fall}
    if isinstance(theorem, FedCLBound):
        return {**_worst({**shared, **_list_fedcl_conditions(theorem, found)})}
    return {**_worst({**shared, **_list_fedcosr_conditions(found)}), **_means(_list_fedcosr_results(theorem, found))}


def _list_fedcl_conditions(theorem: FedCLBound, found: Mapping[str, np.ndarray]) -> dict[str, Values]:
    """Return FedCL's own conditions.

    `lambda`: over S / (L2 E' G), above which no rate of clients and SCG lets the bound fall; S is the sum of squared
    gradients, and the SCG's rate stays in its ratio to theirs. `growth`: the SCG's gradient over that of the first
    round. `repaired`: the centroids' measured change over what Eq. 10 allows, see `FedCLBound.repaired`; `lemma`: over
    what the theorem does.
    """
    return {
        "lambda": _ratio(theorem.targets(found), found["rate"] * found["squares"]),
        "growth": found["scg_gradient"] / found["scg_gradient"][0],
        "lemma": _ratio(found["targets"], theorem.targets(found)),
        "repaired": _ratio(found["targets"], theorem.repaired(found["shift"], found["spread"])),
    }


def _list_fedcosr_conditions(found: Mapping[str, np.ndarray]) -> dict[str, Values]:
    """Return FedCoSR's own conditions.

    `gradient`: the gradient's norm after training over L1 / 2, which it must not exceed if L1 epsilon / 2 is to bound
    its product with a way of length epsilon. `information`: log C - L_Reg over H(y), which nothing exceeds.
    """
    least = bound_information(found["candidates"], found["contrast"])
    return {
        "gradient": 2 * np.sqrt(found["last_square"]) / found["smoothness"],
        "information": _ratio(least, found["entropy"]),
    }


def _list_fedcosr_results(theorem: FedCoSRBound, found: Mapping[str, np.ndarray]) -> dict[str, Values]:
    """Return FedCoSR's Theorem 1, in nat, and the share of clients for whom Corollary 1 has a learning rate."""
    return {
        "least_information": bound_information(found["candidates"], found["contrast"]),
        "has_rate": np.asarray(theorem.has_rate(found["steps"], found), dtype=float),
    }


def _ratio(one: Values, other: Values) -> Values:
    """Return one / other; infinite where `other` is zero and `one` is above it, zero where neither is."""
    safe = np.where(np.asarray(other) == 0, 1.0, other)
    return np.where(np.asarray(other) == 0, np.where(np.asarray(one) > SLACK, np.inf, 0.0), one / safe)


def _means(values: Mapping[str, Values]) -> dict[str, list[float | None]]:
    """Return the mean over clients of each round."""
    return {name: [json_safe(row.mean()) for row in np.asarray(v)] for name, v in values.items()}


def _worst(values: Mapping[str, Values]) -> dict[str, list[float | None]]:
    """Return the largest of all clients in each round."""
    return {name: [json_safe(row.max()) for row in np.asarray(v)] for name, v in values.items()}


def json_safe(value: float) -> float | None:
    """Return a number as JSON has it: None for one that is not finite."""
    return float(value) if math.isfinite(value) else None
