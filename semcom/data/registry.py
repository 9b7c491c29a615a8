"""The datasets, partitions and augmentations by name. An entry is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semcom.channels.registry import Registry
from semcom.data.split import Partition

if TYPE_CHECKING:
    from semcom.data.augment import Augmentation

DATASETS: Registry[Any] = Registry(
    "dataset",
    {
        "digits": "semcom.data.sources:digits",
        "cifar10": "semcom.data.sources:cifar10",
        "cifar100": "semcom.data.sources:cifar100",
        "mnist": "semcom.data.sources:mnist",
        "fashion-mnist": "semcom.data.sources:fashion_mnist",
        "emnist": "semcom.data.sources:emnist",
        "svhn": "semcom.data.sources:svhn",
        "cinic10": "semcom.data.sources:cinic10",
        "noisy": "semcom.data.noisy:Noisy",
        "huggingface": "semcom.data.huggingface:HuggingFace",
    },
    options="Options",
)
"""Name -> function of the data root that loads a dataset; an entry with `Options` makes it from an instance."""

PARTITIONS: Registry[type[Partition]] = Registry(
    "partition",
    {
        "shots": "semcom.data.partitions:Shots",
        "dirichlet": "semcom.data.partitions:Dirichlet",
        "dirichlet-client": "semcom.data.partitions:DirichletClient",
        "place": "semcom.data.partitions:Place",
        "pathological": "semcom.data.partitions:Pathological",
        "iid": "semcom.data.partitions:IID",
        "owner": "semcom.data.partitions:Owner",
        "file": "semcom.data.split_file:File",
    },
    base="semcom.data.split:Partition",
    options="Options",
)
"""Name -> subclass of `semcom.data.split.Partition`."""

AUGMENTATIONS: Registry[type[Augmentation]] = Registry(
    "augmentation",
    {"none": "semcom.data.augment:Unchanged", "crop-flip": "semcom.data.augment:CropFlip"},
    base="semcom.data.augment:Augmentation",
)
"""Name -> subclass of `semcom.data.augment.Augmentation`."""
