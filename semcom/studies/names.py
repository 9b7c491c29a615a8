"""What methods, fields and numbers are called in figures and in tables for papers, and how their values are written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from semcom.config import ConfigError
from semcom.runs.folder.arrays import LEAK, is_leak
from semcom.studies.grid import TEST, TEST_SNR
from semcom.studies.overrides import format_plain_value, name_file
from semcom.tasks.metric import ACCURACY, Metric

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
DERIVED = {
    "std": "deviation of the {} over clients",
    "pooled": "{} over all test images",
    "worst10": "{} of the worst 10 % of clients",
    "best": "{} in the best round",
    "last": "{} in the last round",
    "validation": "{} of validation images",
}
"""What is derived from a task's metric -> its name."""


def _list_derived(metric: Metric) -> Iterator[Metric]:
    for derived, label in DERIVED.items():
        higher = metric.higher and derived != "std"
        yield replace(metric, name=metric.key(derived), label=label.format(metric.label), higher=higher)


_share, _plain = partial(Metric, share=True, digits=1), Metric
NUMBERS = {
    metric.name: metric
    for metric in (
        ACCURACY,
        *_list_derived(ACCURACY),
        _share("accuracy_std", "deviation over clients", higher=False),
        _share("validation", "validation accuracy"),
        _share("among_own", "accuracy among own classes"),
        _plain("auc", "AUC"),
        _plain("auc_micro", "AUC over all classes together"),
        _share("lead", "lead", "points"),
        _share("gain", "gain", "points"),
        _plain("jain", "Jain's index"),
        _plain("snr_db", "uplink SNR", "dB", digits=1),
        _plain("downlink_snr_db", "downlink SNR", "dB", digits=1),
        _plain("airtime_s", "airtime of the uplink", "s", higher=False),
        _plain("leak.psnr", "PSNR of rebuilt images", "dB", higher=False, digits=2),
        _plain("leak.ssim", "SSIM of rebuilt images", higher=False),
        _share("leak.accuracy", "accuracy on rebuilt images", higher=False),
        _plain("leak.auc", "AUC of membership", higher=False),
        _share("leak.label", "error of the shares of classes"),
        _share("arrived", "part of the uploads that arrived"),
        _plain("best_round", "best round", higher=False),
        _share("new_clients.global.accuracy", "accuracy of new clients"),
        _share("new_clients.head.accuracy", "accuracy of new clients with heads of their own"),
        _plain("predictor_distance", "distance of the heads", higher=False),
        _plain("clusters.silhouette", "silhouette of the features"),
        _share("clusters.knn_purity", "purity of the features"),
        _share("clusters.power_common", "power of what all classes have in common", higher=False),
        _share("clusters.power_between", "power of what tells classes apart", higher=False),
    )
}
"""Numbers of views and of runs that no task declares, and those of the accuracy, by name."""


def _name_leak(number: str) -> Metric | None:
    """Name a number of an attack in a setting that has a name, such as leak.eavesdropper-0dB.psnr; None for others."""
    kind, _, rest = number.partition(".")
    setting, _, name = rest.rpartition(".")
    usual = NUMBERS.get(f"{kind}.{name}") if kind == LEAK and setting else None
    who = re.sub(r"^(eavesdropper|client)-(.+?)dB", r"\1 at \2 dB", setting)
    return None if usual is None else replace(usual, name=number, label=f"{usual.label}, {who}")


@dataclass(frozen=True)
class Labels:
    """The names that some runs give to their own methods and metrics, beside those that ship.

    Attributes:
        methods: method, or variant of it -> its label.
        metrics: those of the runs' tasks.
    """

    methods: Mapping[str, str] = field(default_factory=dict)
    metrics: tuple[Metric, ...] = ()

    def metric(self, number: str) -> Metric:
        """Find the metric that a number is, or is derived from; of an unknown number its name is all that is known.

        Raises:
            ConfigError: the tasks of the runs mean different numbers by it.
        """
        own = [metric for metric in self.metrics if metric != ACCURACY]
        derived = (each for metric in own for each in _list_derived(metric))
        found = [each for each in own if each.name == number] or [each for each in derived if each.name == number]
        if len({*found}) > 1:
            raise ConfigError(f"metric: tasks of these runs mean different numbers by {number!r}; give one --at")
        return found[0] if found else NUMBERS.get(number) or _name_leak(number) or Metric(number, number, higher=False)

    def value(self, field: str, value: Any) -> str:
        """Name a value of a field with its unit, such as "9 dB", "FedCL" or "FedCL with mean centroids"."""
        if field in NAMED:
            if found := ARMS.get(value) or EXCHANGES.get(value):
                return found
            method, *rest = str(value).split(" ", maxsplit=1)
            label = self.methods.get(str(value)) or self.methods.get(method) or METHODS.get(method, method)
            return " ".join((label, *rest))
        shown = name_file(format_plain_value(value))
        return "none" if shown in ("None", "none") else shown + FIELDS.get(field, ("", ""))[1]

    def place(self, field: str, value: Any) -> str:
        """Name a value with its field, such as "SNR 9 dB"; a method is its name alone."""
        name = "" if field in NAMED else FIELDS.get(field, (field, ""))[0]
        return f"{name} {self.value(field, value)}".lstrip()

    def point(self, point: Mapping[str, Any]) -> str:
        """Name a point of a study, such as "SNR 6 dB, ways 2".

        Options that its partition or its channel does not have, None, are left out, unless all are None.
        """
        there = {name: value for name, value in point.items() if format_plain_value(value) != "None"} or point
        return ", ".join(self.place(name, value) for name, value in there.items())


SHIPPED = Labels()
"""The names of methods and numbers that ship."""


def name_field(field: str) -> str:
    """Name a field with its unit, such as "SNR (dB)" or "channel uses"."""
    name, unit = FIELDS.get(field, (field, ""))
    if is_leak(field):
        metric = SHIPPED.metric(field)
        name, unit = metric.label, metric.shown_unit
    return name + (f" ({unit.strip()})" if unit else "")


def is_in_joule(kind: Any, symbol_energy: Any) -> bool:
    """Tell whether energies of runs with this `network.kind` and `air.symbol_energy` are in joule.

    Otherwise nothing says what a symbol takes, and they are numbers of symbols.
    """
    return kind not in (None, "list") or symbol_energy not in (None, 1.0)


def field_label(field: str) -> str:
    """Name a field with a capital letter, as the label of an axis."""
    return capitalise(name_field(field))


def metric_label(metric: Metric) -> str:
    """Name a metric with its unit, such as "Accuracy (%)"."""
    return capitalise(metric.label) + (f" ({metric.shown_unit})" if metric.shown_unit else "")


def capitalise(name: str) -> str:
    """Capitalise a name, unless it is a dotted field."""
    return name if "." in name.split(" ")[0] else name[:1].upper() + name[1:]
