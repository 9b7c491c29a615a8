"""Rows at rest: models of clients that do not take part, as versions in memory or in a file.

A row is one client's own tensors in one record of bytes. A client that never trained has no record: its row *is* the
initial model. Replacing rows makes a new `Rows` that shares all other records with the old one, so a round costs what
its participants cost; a record that no version refers to any more is freed.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import FileIO
from pathlib import Path
from typing import Any, Protocol, TypeGuard, cast
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from semcom.config import RunError
from semcom.engine.host.ranks import Team
from semcom.engine.host.sending import clone_all, copy_all, send_to_device

ALIGNMENT = 64
"""The bytes between possible starts of tensors in a record: a cache line, and a multiple of every number's size."""


MISFIT = "it does not fit this run: another version of semcom wrote it, with other tensors"
"""The error message for a checkpoint that is whole and of this request, but of another State."""


@dataclass(frozen=True)
class Layout:
    """The places of a row's tensors in its record.

    Attributes:
        places: name -> (first byte, shape, type).
        size: R, bytes of a record.
    """

    places: Mapping[str, tuple[int, torch.Size, torch.dtype]]
    size: int

    @staticmethod
    def of(row: Mapping[str, Tensor]) -> Layout:
        """Lay out rows with tensors like these (without client axis)."""
        places, size = {}, 0
        for name, t in row.items():
            places[name] = (size, t.shape, t.dtype)
            size += -(-t.numel() * t.element_size() // ALIGNMENT) * ALIGNMENT
        return Layout(places, size)

    def values(self) -> dict[str, Any]:
        """Return the layout as plain containers."""
        return {name: [at, list(shape), str(dtype)] for name, (at, shape, dtype) in self.places.items()}

    def pack(self, tensors: Mapping[str, Tensor], n: int) -> Tensor:
        """Copy stacks `[n, ...]` (or `[1, ...]`, the same for all) into records, uint8 `[n, R]`."""
        device = next((t.device for t in tensors.values()), None)
        nothing = torch.zeros(n, ALIGNMENT, dtype=torch.uint8, device=device)  # gaps too: a checkpoint stores them
        pieces = []
        for name, (_, shape, dtype) in self.places.items():
            size = shape.numel() * dtype.itemsize
            flat = tensors[name].detach().expand(n, *shape).reshape(-1)
            if flat.stride(0) != 1:  # bytes can be seen side by side alone
                flat = flat.clone(memory_format=torch.contiguous_format)
            pieces += [flat.view(torch.uint8).view(n, size), nothing[:, : -size % ALIGNMENT]]
        return torch.cat(pieces, 1) if pieces else nothing[:, :0]

    def unpack(self, records: Tensor) -> dict[str, Tensor]:
        """View records `[n, R]` as stacks `[n, ...]`; those of a GPU are copied into stacks of their own."""
        if records.is_cuda and self.places:
            return self._split(records)
        return {
            name: records[:, at : at + shape.numel() * dtype.itemsize].view(dtype).unflatten(1, shape or (1,))
            if shape
            else records[:, at : at + dtype.itemsize].view(dtype).squeeze(1)
            for name, (at, shape, dtype) in self.places.items()
        }

    def _split(self, records: Tensor) -> dict[str, Tensor]:
        """Copy all stacks out of records at once, in torch's usual order of memory."""
        ends = [at for at, _, _ in self.places.values()][1:] + [self.size]
        sizes = [end - at for end, (at, _, _) in zip(ends, self.places.values(), strict=True)]
        pieces = [records.new_empty(len(records), size) for size in sizes]
        torch.split_with_sizes_copy(records, sizes, 1, out=pieces)
        return {
            name: piece[:, : shape.numel() * dtype.itemsize].view(dtype).unflatten(1, shape or (1,)).view(-1, *shape)
            for piece, (name, (_, shape, dtype)) in zip(pieces, self.places.items(), strict=True)
        }


class Shelf(Protocol):
    """A place for records; a handle keeps its record alive."""

    def keep(self, record: Tensor) -> Any:
        """Store a copy of a record `[R]` and return its handle."""
        ...

    def keep_all(self, records: Tensor) -> list[Any]:
        """Store copies of records `[n, R]`, and return their handles."""
        ...

    def read_all(self, handles: Sequence[Any], into: Sequence[Tensor]) -> None:
        """Copy records into `[R]` each."""
        ...

    def read(self, handle: Any, into: Tensor) -> None:
        """Copy a record into `[R]`."""
        ...


@dataclass(frozen=True)
class Memory:
    """A shelf of tensors on a device; a handle is the tensor."""

    device: torch.device

    def keep(self, record: Tensor) -> Tensor:
        """Copy records to storage of their own."""
        return record.to(self.device, copy=True)

    def keep_all(self, records: Tensor) -> list[Tensor]:
        """Copy records to storage of their own, so that each goes when its last handle does."""
        return clone_all(list(records.to(self.device)))

    def read(self, handle: Tensor, into: Tensor) -> None:
        """Copy a record into `[R]`, across devices where they differ."""
        into.copy_(handle)

    def read_all(self, handles: Sequence[Tensor], into: Sequence[Tensor]) -> None:
        """Copy records into `[R]` each, across devices in one copy."""
        across = into[0].is_cuda and self.device.type == "cpu"
        copy_all(into, list(send_to_device(torch.stack(list(handles)), into[0].device)) if across else handles)


class Slot:
    """The handle of a record in a file, whose place is free again once the handle is gone."""

    def __init__(self, shelf: Disk, index: int, checksum: int) -> None:
        self.shelf, self.index, self.checksum = shelf, index, checksum
        shelf.live[index] = self

    def __del__(self) -> None:
        self.shelf.free.append(self.index)


class Disk:
    """A shelf in a file, with each record in a slot of R bytes.

    Read and written at positions instead of mapped into memory: a full disk is then an error and not a signal that ends
    the process, and pages do not count as the process's memory.

    Args:
        size: R.
        path: the file, made when it is first needed; its content is kept until it is overwritten (None: an unnamed
            temporary file).
        folder: folder of a temporary file, if it exists (None: the system's).
    """

    def __init__(self, size: int, path: Path | None, folder: Path | None = None) -> None:
        self.size, self.path, self.folder = size, path, folder
        self.free: list[int] = []
        self.live: WeakValueDictionary[int, Slot] = WeakValueDictionary()
        self.slots = 0

    @cached_property
    def file(self) -> FileIO:
        """The file, open as long as the shelf lives; a temporary file vanishes with it."""
        if self.path is not None:
            return _open(self.path)
        folder = self.folder if self.folder is not None and self.folder.is_dir() else None
        return tempfile.TemporaryFile(buffering=0, dir=folder)

    @property
    def descriptor(self) -> int:
        """The descriptor of the open file."""
        return self.file.fileno()

    def keep(self, record: Tensor) -> Slot:
        """Write a record into a free slot, and return its handle."""
        data = record.cpu().contiguous().numpy().data
        index = self.free.pop() if self.free else self._extend()
        slot = Slot(self, index, zlib.crc32(data))
        written = write_at(self.file, data, index * self.size)
        while written < self.size:
            written += write_at(self.file, data[written:], index * self.size + written)
        return slot

    def keep_all(self, records: Tensor) -> list[Slot]:
        """Write records into free slots, and return their handles."""
        return [self.keep(record) for record in records.cpu()]

    def read_all(self, handles: Sequence[Slot], into: Sequence[Tensor]) -> None:
        """Read records into `[R]` each; raises RunError as `read` does."""
        pairs = zip(handles, into, strict=True)
        for handle, record in sorted(pairs, key=lambda pair: pair[0].index):  # a disk is fastest in order
            self.read(handle, record)

    def read(self, handle: Slot, into: Tensor) -> None:
        """Read a record into `[R]`.

        Raises:
            RunError: the file is too short.
        """
        direct = into.device.type == "cpu" and into.is_contiguous()
        buffer = into if direct else torch.empty(self.size, dtype=torch.uint8)
        if read_at(self.file, buffer.numpy().data, handle.index * self.size) != self.size:
            raise RunError(f"{self.path}: a row is missing; the file was cut")
        if buffer is not into:
            into.copy_(buffer)

    def sync(self) -> None:
        """Wait until everything written so far is on the disk."""
        if "file" in self.__dict__:  # else nothing was
            os.fsync(self.descriptor)

    def claim(self, indices: Sequence[int], checksums: Sequence[int]) -> list[Slot]:
        """Return handles of records that an earlier process wrote; unclaimed slots are free.

        Versions of the rows may have records in common: each has one handle, however often it is claimed.

        Raises:
            RunError: a record is missing or has changed.
        """
        if (max(indices, default=-1) + 1) * self.size > os.fstat(self.descriptor).st_size:
            raise RunError(f"{self.path}: a row is missing; the file was cut")
        slots = max([self.slots, *(index + 1 for index in indices)])
        unclaimed = {*self.free, *range(self.slots, slots)} - set(indices)
        self.slots, self.free = slots, sorted(unclaimed, reverse=True)
        handles = [self.live.get(i) or Slot(self, i, s) for i, s in zip(indices, checksums, strict=True)]
        # A checkpoint's digest covers the checksums of its rows, but not the rows, which lie in this file.
        buffer = torch.empty(self.size, dtype=torch.uint8)
        for handle, checksum in zip(handles, checksums, strict=True):
            self.read(handle, buffer)
            if zlib.crc32(buffer.numpy().data) != checksum:
                raise RunError(f"{self.path}: a row is not what was written")
        return handles

    def _extend(self) -> int:
        self.slots += 1
        return self.slots - 1


def write_at(file: FileIO, data: memoryview, place: int) -> int:
    """Write at a place of a file, and return how many bytes were written; not by `os.pwrite`, which Windows lacks."""
    file.seek(place)
    return file.write(data)


def read_at(file: FileIO, into: memoryview, place: int) -> int:
    """Read at a place of a file, and return how many bytes were read."""
    file.seek(place)
    return file.readinto(into)


def _open(path: Path) -> FileIO:
    """Open a file to read and write at positions. Its content stays; a missing file is created."""
    return open(path, "r+b", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_CREAT, 0o666))


@dataclass(frozen=True)
class Rows:
    """The own tensors of many clients, at rest.

    Attributes:
        layout: of each row.
        shelf: where the records lie.
        initial: client id -> record `[R]` of its initial model.
        changed: client id -> handle of its record, for those that have trained.
        alike: whether all have the same initial model.
    """

    layout: Layout
    shelf: Shelf
    initial: Callable[[int], Tensor] = field(repr=False)
    changed: Mapping[int, Any] = field(default_factory=dict, repr=False)
    alike: bool = False

    def gather(self, ids: Iterable[int], device: torch.device) -> dict[str, Tensor]:
        """Copy some rows to stacks, `[n, ...]` each."""
        clients = [int(k) for k in ids]
        records = torch.empty(len(clients), self.layout.size, dtype=torch.uint8, device=device)
        stored = [i for i, k in enumerate(clients) if k in self.changed]
        if stored:
            self.shelf.read_all([self.changed[clients[i]] for i in stored], [records[i] for i in stored])
        new = [i for i, k in enumerate(clients) if k not in self.changed]
        copy_all([records[i] for i in new], [self.initial(clients[i]) for i in new])
        return self.layout.unpack(records)

    def replace(self, ids: np.ndarray, tensors: Mapping[str, Tensor]) -> Rows:
        """Replace the rows of `ids` by `tensors`, `[n, ...]` (or `[1, ...]`, the same for all)."""
        records = self.layout.pack({name: tensors[name] for name in self.layout.places}, len(ids))
        new = zip(map(int, ids), self.shelf.keep_all(records), strict=True)
        return replace(self, changed={**self.changed, **dict(new)})

    def values(self) -> dict[str, Any]:
        """Return the rows for a checkpoint: the records, or their places in their file, which is then on the disk."""
        ids = torch.tensor(list(self.changed), dtype=torch.int64)
        values = {"layout": self.layout.values(), "ids": ids}
        if not isinstance(self.shelf, Disk) or self.shelf.path is None:
            return values | {"records": [self._record(handle) for handle in self.changed.values()]}
        self.shelf.sync()
        where = [(slot.index, slot.checksum) for slot in self.changed.values()]
        return values | {"file": self.shelf.path.name, "slots": torch.tensor(where, dtype=torch.int64).view(-1, 2)}

    def restored(self, values: Any, ids: np.ndarray, folder: Path | None, team: Team) -> Rows:
        """Restore the rows of the clients `ids` from `values` of an earlier process.

        `checkpoint.state_from_checkpoint` calls it.

        Raises:
            RunError: the values do not fit this run, or the file of the records is missing or damaged.
        """
        if not self.fits(values, ids):
            raise RunError(MISFIT)
        clients = values["ids"].tolist()
        if "records" in values:
            handles = [self.shelf.keep(record) for record in values["records"]]
        else:
            handles = self._from_file(values, folder, team)
        return replace(self, changed=dict(zip(clients, handles, strict=True)))

    def in_file(self) -> list[Slot]:
        """List the handles of records that lie in a file of the run's folder."""
        lasting = isinstance(self.shelf, Disk) and self.shelf.path is not None
        return list(self.changed.values()) if lasting else []

    def claim(self, values: Any, ids: np.ndarray) -> list[Slot]:
        """Claim the records in this shelf's file that `values` of an older checkpoint refer to.

        Raises:
            RunError: a record is missing or has changed.
        """
        if not isinstance(self.shelf, Disk) or not self.fits(values, ids) or "slots" not in values:
            raise RunError(MISFIT)
        return self.shelf.claim(*values["slots"].T.tolist()) if len(values["slots"]) else []

    def fits(self, values: Any, ids: np.ndarray) -> bool:
        """Check that `values` are one row for each of these clients, with this layout: a file may hold anything."""
        if not isinstance(values, dict) or values.get("layout") != self.layout.values():
            return False
        clients, slots, records = (values.get(name) for name in ("ids", "slots", "records"))
        n = len(clients) if isinstance(clients, Tensor) and clients.dim() == 1 else -1
        if not _is_tensor(clients, torch.int64, n) or len(set(clients.tolist()) & set(ids.tolist())) != n:
            return False
        if records is None:
            return (
                isinstance(values.get("file"), str)
                and _is_tensor(slots, torch.int64, n, 2)
                and bool((slots >= 0).all())
            )
        whole = isinstance(records, list) and all(_is_tensor(r, torch.uint8, self.layout.size) for r in records)
        return whole and len(records) == n

    def _record(self, handle: Any) -> Tensor:
        """Return a record on the host, without a copy if it lies there, as no record ever changes."""
        if isinstance(handle, Tensor) and handle.device.type == "cpu":
            return handle
        record = torch.empty(self.layout.size, dtype=torch.uint8)
        self.shelf.read(handle, record)
        return record

    def _from_file(self, values: dict[str, Any], folder: Path | None, team: Team) -> list[Any]:
        """Claim records in a file of rank 0; if it is this shelf's own file, they stay there."""
        held: list[Slot] = []
        mine = False
        if team.rank == 0 and len(values["slots"]):
            assert folder is not None
            path = folder / Path(values["file"]).name
            if not path.exists():
                raise RunError(f"{path}: it is missing, though rows lie in it")
            own = self.shelf.path if isinstance(self.shelf, Disk) else None
            mine = own is not None and own.exists() and own.samefile(path)
            source = cast(Disk, self.shelf) if mine else Disk(self.layout.size, path)
            held = source.claim(*values["slots"].T.tolist())
        if team.size == 1 and mine:
            return held
        handles: list[Any] = []
        buffer = torch.empty(self.layout.size, dtype=torch.uint8)
        # Only rank 0 reads the run's folder; every rank joins each broadcast, or the others would wait forever.
        for i in range(len(values["slots"])):
            if team.rank == 0:
                held[i].shelf.read(held[i], buffer)
            team.broadcast(buffer)
            handles.append(held[i] if mine else self.shelf.keep(buffer))
        return handles


def _is_tensor(value: Any, dtype: torch.dtype, *shape: int) -> TypeGuard[Tensor]:
    """Check that an object from a file is a tensor of this type and shape."""
    return isinstance(value, Tensor) and value.dtype == dtype and value.shape == shape
