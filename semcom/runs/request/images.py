"""The images of a run, and who owns them: the clients that train, and those that join at the end."""

from __future__ import annotations

from dataclasses import dataclass, replace

from semcom.config import ConfigError, DataConfig, Resolved
from semcom.data.dataset import SIDE, Dataset
from semcom.data.federation import Federation, Ragged, federate
from semcom.data.load import read_dataset, resize_dataset
from semcom.data.partitions import partition_dataset
from semcom.data.registry import AUGMENTATIONS
from semcom.runs.request.limits import check_image_limits


@dataclass(frozen=True)
class Images:
    """The images of a run, on the host.

    Attributes:
        members: of the clients that train.
        newcomers: of clients that join at the end (None: no client does).
    """

    members: Federation
    newcomers: Federation | None

    def beside(self, members: Federation) -> Federation | None:
        """Return the newcomers' images on the device of `members`; common images are there once."""
        if self.newcomers is None:
            return None
        common = self.newcomers.images is self.members.images
        found = replace(self.newcomers, images=members.images, labels=members.labels) if common else self.newcomers
        return found.to(members.images.device)


def read_run_images(config: Resolved) -> Images:
    """Load and divide the images of a run over all clients; the last of these are new.

    Raises:
        ConfigError: the images cannot be read, or not be divided like that.
    """
    dataset, members = _load_checked_dataset(config.data), config.clients
    whole = federate(
        dataset, partition_dataset(dataset, config.partition, config.sharers, config.seed), config.data.size
    )
    if not config.new_clients:
        return Images(whole, None)
    if config.new_data is not None:
        return Images(whole, _divide_new_data(config, config.new_data, dataset))
    return Images(_cut_clients(whole, 0, members), _cut_clients(whole, members, config.sharers))


def _divide_new_data(config: Resolved, name: str, dataset: Dataset) -> Federation:
    """Load the new clients' own dataset, divided over them as the run's is over its clients, without scarce ones."""
    try:
        own = _load_checked_dataset(replace(config.data, name=name, options=None))
        split = partition_dataset(own, replace(config.partition, scarce=()), config.new_clients, config.seed)
    except ConfigError as error:
        raise ConfigError(f"new-data: {name!r} cannot be taken ({error})") from None
    channels = own.images.shape[1], dataset.images.shape[1]
    if len(set(channels)) > 1:
        raise ConfigError("new-data: {!r} has {} channels, the data of the run {}".format(name, *channels))
    if own.pictured != dataset.pictured or (not own.pictured and own.images.shape[1:] != dataset.images.shape[1:]):
        raise ConfigError(f"new-data: {name!r} holds other arrays than the data of the run")
    return federate(own, split, config.data.size)


def _load_checked_dataset(config: DataConfig) -> Dataset:
    """Load a dataset, in the size that is asked for once it is known to fit into memory."""
    dataset = read_dataset(config)
    if dataset.pictured:
        check_image_limits(config.size, *dataset.images.shape[:2])
    elif AUGMENTATIONS.get(config.augment).pictures:
        raise ConfigError(
            f"data.augment: {config.augment!r} takes images, and {config.name!r} holds none; leave it out"
        )
    elif config.size != SIDE:
        raise ConfigError(f"data.size: {config.size} has no effect, as {config.name!r} holds no images; leave it out")
    return resize_dataset(dataset, config.size)


def _cut_clients(whole: Federation, start: int, stop: int) -> Federation:
    def cut(table: Ragged) -> Ragged:
        offsets = table.offsets[start : stop + 1]
        return Ragged(table.flat[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0])

    return replace(
        whole,
        train=cut(whole.train),
        test=cut(whole.test),
        validation=cut(whole.validation),
        owned=whole.owned[start:stop],
    )
