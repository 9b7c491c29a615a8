"""What methods, fields and numbers are called in figures and in tables for papers, and how their values are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from semcom.studies.grid import TEST, TEST_SNR
from semcom.studies.overrides import format_plain_value
from semcom.tasks.metric import MS_SSIM, MSE, PSNR, SSIM, Metric

METHODS = {
    "local": "Local",
    "fedavg": "FedAvg",
    "fedavg_ft": "FedAvg + FT",
    "fedprox": "FedProx",
    "fedprox_ft": "FedProx + FT",
    "moon": "MOON",
    "pfedme": "pFedMe",
    "ditto": "Ditto",
    "perfedavg": "Per-FedAvg",
    "fedrep": "FedRep",
    "fedper": "FedPer",
    "lg_fedavg": "LG-FedAvg",
    "fedbabu": "FedBABU",
    "fedamp": "FedAMP",
    "fedala": "FedALA",
    "fedproto": "FedProto",
    "fedpac": "FedPAC",
    "fedgh": "FedGH",
    "fedcrc": "FedCRC",
    "fedcrl": "FedCRL",
    "fedcosr": "FedCoSR",
    "repper": "RepPer",
    "fedcl": "FedCL",
    "digital-chain": "Digital chain",
    "scaffold": "SCAFFOLD",
    "feddyn": "FedDyn",
    "fedbn": "FedBN",
    "fedrod": "FedRoD",
    "apfl": "APFL",
    "feddbe": "FedDBE",
}
"""Method -> its name in the papers; any other is shown by its own name, and so is what a variant adds to one."""
ARMS = {
    "fedcosr-without-la": "FedCoSR without LA",
    "fedcosr-without-sep": "FedCoSR without Sep",
    "fedcosr-without-crl": "FedCoSR without CRL",
    "fedcrc-per": "FedCRC-Per",
}
"""Arm of a paper that is a method without one of its parts, or one of its views -> its name there."""
EXCHANGES = {
    "fedavg-8bit": "FedAvg, 8 bits",
    "fedavg-top": "FedAvg, largest 5 %",
    "fedavg-at-once": "FedAvg, all at once",
    "fedper-8bit": "FedPer, 8 bits",
    "fedper-top": "FedPer, largest 5 %",
}
"""Arm that is a method with another exchange -> its name."""
NAMED = ("method", "variant", "scheme")
"""Fields whose values are shown without the field's name."""
FIELDS = {
    "variant": ("method", ""),
    "channel.snr_db": ("SNR", " dB"),
    TEST: ("test SNR", " dB"),
    TEST_SNR: ("test SNR", " dB"),
    "channel.downlink_snr_db": ("downlink SNR", " dB"),
    "channel.kind": ("channel", ""),
    "air.parameters": ("exchange", ""),
    "data.name": ("dataset", ""),
    "partition.kind": ("partition", ""),
    "partition.ways": ("ways", ""),
    "partition.shots": ("shots", ""),
    "partition.beta": ("Dirichlet beta", ""),
    "partition.classes": ("classes of a client", ""),
    "partition.min_size": ("least images of a client", ""),
    "partition.fraction": ("part of the images", ""),
    "model.features": ("features", ""),
    "model.bandwidth_ratio": ("bandwidth ratio k/n", ""),
    "finish.epochs": ("epochs after the rounds", ""),
    "hyper.tau": ("tau", ""),
    "hyper.lam": ("lambda", ""),
    "train.rounds": ("rounds", ""),
    "train.local_epochs": ("local epochs", ""),
    "train.local_steps": ("local steps", ""),
    "train.batch_size": ("batch size", ""),
    "train.optimizer": ("optimiser", ""),
    "train.lr": ("rate", ""),
    "finish.kind": ("head", ""),
    "model.encoder": ("encoder", ""),
    "rank": ("class rank", ""),
    "third": ("classes", ""),
    **dict.fromkeys(("setting", "whose", "model", "loss", "place", "rival", "level"), ("", "")),
    "uses": ("channel uses", ""),
    "airtime_s": ("airtime", " s"),
    "energy_j": ("energy", " J"),
    "energy_symbols": ("energy", " symbols"),
    "time_s": ("time", " s"),
    "samples": ("training samples", ""),
}
"""Field or cost -> its name and the unit after its values; any other is shown by its own name. Without a name here the
values of a field speak for themselves."""
METRICS = {
    "accuracy": "accuracy",
    "accuracy_std": "deviation over clients",
    "pooled": "accuracy over all test images",
    "worst10": "accuracy of the worst 10 % of clients",
    "best": "accuracy in the best round",
    "last": "accuracy in the last round",
    "validation": "validation accuracy",
    "among_own": "accuracy among own classes",
    "auc": "AUC",
    "auc_micro": "AUC over all classes together",
    "lead": "lead",
    "gain": "gain",
    "jain": "Jain's index",
    "best_round": "best round",
    "new_clients.global.accuracy": "accuracy of new clients",
    "new_clients.head.accuracy": "accuracy of new clients with heads of their own",
    "predictor_distance": "distance of the heads",
    "clusters.silhouette": "silhouette of the features",
    "clusters.knn_purity": "purity of the features",
    "clusters.power_common": "power of what all classes have in common",
    "clusters.power_between": "power of what tells classes apart",
}
"""Number of a view, or of a run -> its name; any other is shown by its own name."""
PLAIN = ("auc", "auc_micro", "jain", "best_round", "predictor_distance", "clusters.silhouette")
"""Those that are no share of 1, and are not shown in percent."""
DERIVED = {
    "": "{}",
    "std": "deviation of the {} over clients",
    "pooled": "{} over all test images",
    "worst10": "{} of the worst 10 % of clients",
    "best": "{} in the best round",
    "last": "{} in the last round",
    "validation": "{} of validation images",
}
"""What is derived from a task's metric -> its name."""
TASKS: dict[str, Metric] = {metric.name: metric for metric in (PSNR, SSIM, MS_SSIM, MSE)}
"""The metrics of tasks other than classification, by name: those that ship, and those that stored runs have told of."""
UNRANKED = ("accuracy_std", "best_round", "predictor_distance", "clusters.power_common", "clusters.power_between")
"""Those of which more is not better."""
DIFFERENCES = ("lead", "gain")
"""Those that are differences of shares, in percentage points."""


def learn_label(method: str, label: str) -> None:
    """Note what a method of a user's is called, as a stored run tells it; those that ship keep their names."""
    METHODS.setdefault(method, label)


def learn_metrics(metrics: Iterable[Metric]) -> None:
    """Note the metrics of a task that a stored run has told of, for their names and units."""
    TASKS.update({metric.name: metric for metric in metrics if metric.name not in METRICS})


def _find_metric(number: str) -> tuple[Metric, str] | None:
    """Return the task's metric that a number is or is derived from, and how; None for any other."""
    name = max((name for name in TASKS if number == name or number.startswith(f"{name}_")), key=len, default=None)
    derived = "" if name is None else number.removeprefix(name).removeprefix("_")
    return (TASKS[name], derived) if name is not None and derived in DERIVED else None


def is_share(metric: str) -> bool:
    """Return whether a number is a fraction of 1, which is shown in percent."""
    own = _find_metric(metric)
    return own[0].share if own else metric in METRICS and metric not in PLAIN


def is_ranked(metric: str) -> bool:
    """Return whether more of a number is better, as far as it is known here: then the best may be marked."""
    own = _find_metric(metric)
    return own[0].higher and own[1] != "std" if own else metric in METRICS and metric not in UNRANKED


def choose_decimals(share: bool, halves: ArrayLike) -> int:
    """Return with how many decimals numbers are shown: one of percentages and three of others, or one more where half
    an interval would have none.

    Args:
        share: whether the numbers are fractions of 1, shown in percent.
        halves: of their intervals; NaN where there is none.
    """
    return _choose_digits(1 if share else 3, 100 if share else 1, halves)


def choose_metric_decimals(metric: str, halves: ArrayLike) -> int:
    """Return `choose_decimals` of a number; a task's metric says itself how many it has at least."""
    own = _find_metric(metric)
    if own is None:
        return choose_decimals(is_share(metric), halves)
    return _choose_digits(own[0].digits, 100 if own[0].share else 1, halves)


def _choose_digits(digits: int, factor: float, halves: ArrayLike) -> int:
    return digits + bool(np.any(factor * np.asarray(halves) < 0.5 * 10**-digits))


def name_value(field: str, value: Any) -> str:
    """Return a value of a field with its unit, such as "9 dB", "FedCL" or "FedCL with mean centroids"."""
    if field in NAMED:
        if found := ARMS.get(value) or EXCHANGES.get(value):
            return found
        method, *rest = str(value).split(" ", maxsplit=1)
        return " ".join((METHODS.get(method, method), *rest))
    shown = format_plain_value(value)
    return "none" if shown == "None" else shown + FIELDS.get(field, ("", ""))[1]


def name_place(field: str, value: Any) -> str:
    """Return a value with the name of its field, such as "SNR 9 dB"; a method is its name alone."""
    return (
        name_value(field, value)
        if field in NAMED
        else f"{FIELDS.get(field, (field, ''))[0]} {name_value(field, value)}".lstrip()
    )


def name_point(point: Mapping[str, Any]) -> str:
    """Return a point of a study in words, such as "SNR 6 dB, ways 2".

    Options that its partition or its channel does not have, None, are left out, unless all are None.
    """
    there = {name: value for name, value in point.items() if format_plain_value(value) != "None"} or point
    return ", ".join(name_place(name, value) for name, value in there.items())


def name_field(field: str) -> str:
    """Return the name of a field with its unit, such as "SNR (dB)" or "channel uses"."""
    name, unit = FIELDS.get(field, (field, ""))
    return name + (f" ({unit.strip()})" if unit else "")


def is_in_joule(kind: Any, symbol_energy: Any) -> bool:
    """Tell whether energies of runs with this `network.kind` and `air.symbol_energy` are in joule.

    Otherwise nothing says what a symbol takes, and they are numbers of symbols.
    """
    return kind == "cell" or symbol_energy not in (None, 1.0)


def field_label(field: str) -> str:
    """Return the same with a capital, as it stands at an axis."""
    return titled(name_field(field))


def name_metric(metric: str) -> str:
    """Return the name of a number, such as "accuracy"."""
    own = _find_metric(metric)
    return DERIVED[own[1]].format(own[0].label) if own else METRICS.get(metric, metric)


def metric_label(metric: str) -> str:
    """Return the name of a number with its unit, such as "Accuracy (%)"."""
    return titled(name_metric(metric)) + (f" ({unit})" if (unit := metric_unit(metric)) else "")


def metric_unit(metric: str) -> str:
    """Return in what a number is shown: "%", "points" (percentage points), a task's unit, or nothing."""
    own = _find_metric(metric)
    if own:
        return own[0].shown_unit
    return "" if not is_share(metric) else "points" if metric in DIFFERENCES else "%"


def titled(name: str) -> str:
    """Return a name with a capital, unless it is a field's own with a dot in it."""
    return name if "." in name.split(" ")[0] else name[:1].upper() + name[1:]
