"""Compute both sides of a theorem over a run, from the measurements of its rounds.

Each bound is computed twice. "own" takes each client's constants of the round itself: the tightest bound that the
theorem's proof can give. "run" takes the largest constants of all rounds and clients, as the theorem is written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from semcom_papers.experiments.measures.theorems import (
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
"""Quantities that a theorem takes as constant over rounds and clients."""
SMOOTHNESS = ("path", "bend", "aside")
"""Ways to measure smoothness, each a lower bound."""
Found = dict[str, np.ndarray]


def report_bounds(theorem: FedCLBound | FedCoSRBound, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Report the `bounds` of a run's summary: lists by round, means over clients unless noted.

    Args:
        theorem: theorem of the run's method.
        lines: of metrics.jsonl, with the result of `measure_round` as `observed`.
    """
    seen = [line for line in lines if line.get("observed")]
    found = collect_bound_arrays(theorem, [line["observed"] for line in seen])
    constants = {name: float(np.max(found[name])) for name in CONSTANTS if name in found}
    sides = {"own": found, "run": {**found, **{name: np.array(value) for name, value in constants.items()}}}
    measured = {**{part: found[part] for part in PARTS}, "total": sum(found[part] for part in PARTS)}
    bounds = {name: _bound(theorem, side) for name, side in sides.items()}
    return {
        "rounds": [line["round"] for line in seen],
        "measured": {**_means(found), **_means({"total": measured["total"]})},
        "bound": {name: _means(each) for name, each in bounds.items()},
        "violated": {name: _means(_mark_violations(measured, each)) for name, each in bounds.items()},
        "excess": _worst({part: measured[part] - bounds["own"][part] for part in measured}),
        "conditions": _list_conditions(theorem, found, bounds["own"]),
        "constants": {name: make_json_safe(value) for name, value in constants.items()},
    }


def collect_bound_arrays(theorem: FedCLBound | FedCoSRBound, observed: Sequence[Mapping[str, Any]]) -> Found:
    """Collect the measured numbers by name, `[T, K]` (`[T, 1]` for the base station's).

    Smoothness is the largest one measured; "squares" gets the terms of the theorem's sum.
    """
    rounds = len(observed)
    found = {name: np.array([each[name] for each in observed], dtype=float).reshape(rounds, -1) for name in observed[0]}
    found["smoothness"] = np.max([found[f"smoothness_{way}"] for way in SMOOTHNESS], axis=0)
    found["squares"] = found["squares"] + theorem.closing * found["last_square"]
    return found


def _bound(theorem: FedCLBound | FedCoSRBound, found: Mapping[str, Values]) -> dict[str, Values]:
    """Compute the bounds on the parts of a round and on the whole round, `[T, K]`."""
    parts = theorem.parts(found["rate"], found["steps"], found)
    shape = np.shape(found["rate"])
    return {name: np.broadcast_to(v, shape) for name, v in {**parts, "total": sum(parts.values())}.items()}


def _mark_violations(measured: Mapping[str, Values], bound: Mapping[str, Values]) -> dict[str, Values]:
    """Mark by part where the measured change is above its bound, 1 or 0 `[T, K]`."""
    return {part: np.asarray(measured[part] > bound[part] + SLACK, dtype=float) for part in measured}


def _list_conditions(
    theorem: FedCLBound | FedCoSRBound, found: Mapping[str, np.ndarray], bound: Mapping[str, Values]
) -> dict[str, Any]:
    """Compute the factor by which each condition is missed (at most 1: it is met), for the worst client by round.

    `rate`: eta over 2 / L1, below which a step's bound falls. `guarantee`: see `compute_guarantee`.
    """
    rise = found["steps"] * found["smoothness"] * found["rate"] ** 2 * found["variance"] / 2
    rise = rise + bound["mixing"] + bound["targets"]
    fall = compute_guarantee(found["rate"], found["smoothness"], found["squares"], rise)
    shared = {"rate": found["rate"] * found["smoothness"] / 2, "guarantee": fall}
    if isinstance(theorem, FedCLBound):
        return _worst({**shared, **_list_fedcl_conditions(theorem, found)})
    return {**_worst({**shared, **_list_fedcosr_conditions(found)}), **_means(_list_fedcosr_results(theorem, found))}


def _list_fedcl_conditions(theorem: FedCLBound, found: Mapping[str, np.ndarray]) -> dict[str, Values]:
    """Compute FedCL's conditions.

    `lambda`: over S / (L2 E' G), above which no rate of clients and SCG lets the bound fall; S is the sum of squared
    gradients, and the ratio of the SCG's rate to the clients' is constant. `growth`: the SCG's gradient over that of
    the first round. `repaired`: the centroids' measured change over the bound of Eq. 10, see `FedCLBound.repaired`;
    `lemma`: over the theorem's bound.
    """
    return {
        "lambda": _ratio(theorem.targets(found), found["rate"] * found["squares"]),
        "growth": found["scg_gradient"] / found["scg_gradient"][0],
        "lemma": _ratio(found["targets"], theorem.targets(found)),
        "repaired": _ratio(found["targets"], theorem.repaired(found["shift"], found["spread"])),
    }


def _list_fedcosr_conditions(found: Mapping[str, np.ndarray]) -> dict[str, Values]:
    """Compute FedCoSR's conditions.

    `gradient`: the gradient's norm after training over L1 / 2, which it must not exceed if L1 epsilon / 2 is to bound
    its product with a step of length epsilon. `information`: log C - L_Reg over H(y), an upper limit.
    """
    least = bound_information(found["candidates"], found["contrast"])
    return {
        "gradient": 2 * np.sqrt(found["last_square"]) / found["smoothness"],
        "information": _ratio(least, found["entropy"]),
    }


def _list_fedcosr_results(theorem: FedCoSRBound, found: Mapping[str, np.ndarray]) -> dict[str, Values]:
    """Compute FedCoSR's Theorem 1, in nat, and the share of clients for which Corollary 1 has a learning rate."""
    return {
        "least_information": bound_information(found["candidates"], found["contrast"]),
        "has_rate": np.asarray(theorem.has_rate(found["steps"], found), dtype=float),
    }


def _ratio(one: Values, other: Values) -> Values:
    """Divide `one` by `other`; over zero the ratio is infinite for `one` above it, else zero."""
    safe = np.where(np.asarray(other) == 0, 1.0, other)
    return np.where(np.asarray(other) == 0, np.where(np.asarray(one) > SLACK, np.inf, 0.0), one / safe)


def _means(values: Mapping[str, Values]) -> dict[str, list[float | None]]:
    return {name: [make_json_safe(row.mean()) for row in np.asarray(v)] for name, v in values.items()}


def _worst(values: Mapping[str, Values]) -> dict[str, list[float | None]]:
    return {name: [make_json_safe(row.max()) for row in np.asarray(v)] for name, v in values.items()}


def make_json_safe(value: float) -> float | None:
    """Convert a number for JSON: None if it is not finite."""
    return float(value) if math.isfinite(value) else None
