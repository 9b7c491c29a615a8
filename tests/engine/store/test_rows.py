"""Rows at rest: layouts, versions, what is freed, files that are damaged or full, and what a change costs."""

from __future__ import annotations

import errno
import os
import tracemalloc
import weakref
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from semcom.config import RunError
from semcom.engine.host.ranks import ALONE
from semcom.engine.store.rows import ALIGNMENT, MISFIT, Disk, Layout, Memory, Rows, read_at, write_at
from tests.engine.ops import Ops

CPU = torch.device("cpu")
KINDS = ("memory", "disk")
ROW = {"w": torch.zeros(2, 3), "n": torch.zeros((), dtype=torch.int64), "on": torch.zeros(3, dtype=torch.bool)}
LAYOUT = Layout.of(ROW)
CLIENTS = 6


def value(numbers: Sequence[int]) -> dict[str, Tensor]:
    """Stacks `[n, ...]` of rows that tell their number."""
    n = torch.tensor(numbers, dtype=torch.int64)
    return {
        "w": n[:, None, None] + torch.arange(6.0).view(2, 3) / 8,
        "n": n,
        "on": (n[:, None] >> torch.arange(3)) % 2 == 0,
    }


def initial(client: int) -> Tensor:
    """The record of a client that never trained: number -client - 1."""
    return LAYOUT.pack(value([-client - 1]), 1)[0]


def make(kind: str, path: Path | None = None) -> Rows:
    return Rows(LAYOUT, Memory(CPU) if kind == "memory" else Disk(LAYOUT.size, path), initial)


def ids(*clients: int) -> np.ndarray:
    return np.array(clients, dtype=np.int64)


def holds(rows: Rows, numbers: dict[int, int], asked: Sequence[int] = range(CLIENTS)) -> bool:
    """Whether the rows of the clients `asked` are those of these numbers, and initial where there is none."""
    got, want = rows.gather(asked, CPU), value([numbers.get(k, -k - 1) for k in asked])
    return got.keys() == want.keys() and all(
        got[n].dtype == t.dtype and got[n].shape == t.shape and torch.equal(got[n], t) for n, t in want.items()
    )


# -- layouts ---------------------------------------------------------------------------------------------------------

TYPES = [torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16, torch.uint8, torch.complex64]
SHAPES = [(), (1,), (3,), (2, 3), (65,), (5, 1, 2)]
TENSORS = st.lists(st.tuples(st.sampled_from(SHAPES), st.sampled_from(TYPES), st.booleans()), max_size=6)


def noise(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Any bits (NaN too); for bool 0 and 1."""
    bits = torch.randint(0, 256, (int(np.prod(shape)) * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    return (bits < 128).view(shape) if dtype == torch.bool else bits.view(dtype).view(shape)


def bits(t: Tensor) -> Tensor:
    return torch.empty(t.shape, dtype=t.dtype).copy_(t).flatten().view(torch.uint8)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(TENSORS, st.integers(0, 4), st.integers(0, 99))
def test_what_is_packed_is_unpacked_bit_by_bit(
    tensors: list[tuple[tuple[int, ...], torch.dtype, bool]], n: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    layout = Layout.of({str(i): torch.empty(shape, dtype=dtype) for i, (shape, dtype, _) in enumerate(tensors)})
    stacks = {
        str(i): noise((1 if one else n, *shape), dtype, generator) for i, (shape, dtype, one) in enumerate(tensors)
    }
    records = layout.pack(stacks, n)
    assert records.shape == (n, layout.size) and records.dtype == torch.uint8 and layout.size % ALIGNMENT == 0
    unpacked = layout.unpack(records)
    assert list(unpacked) == list(stacks)
    for name, t in stacks.items():
        got, want = unpacked[name], t.expand(n, *t.shape[1:])
        assert got.shape == want.shape and got.dtype == want.dtype and torch.equal(bits(got), bits(want))
        assert not got.numel() or got.untyped_storage().data_ptr() == records.data_ptr()


def test_tensors_in_a_record_are_aligned_and_do_not_overlap() -> None:
    assert {name: at for name, (at, _, _) in LAYOUT.places.items()} == {"w": 0, "n": 64, "on": 128}
    assert LAYOUT.size == 192 and Layout.of({}).size == 0
    assert Layout.of({"a": torch.zeros(17), "b": torch.zeros(())}).places["b"][0] == 128  # 68 bytes take two lines
    record = LAYOUT.pack(value([7]), 1)
    used = sum(t.numel() * t.element_size() for t in ROW.values())
    assert torch.count_nonzero(record) <= used
    assert torch.equal(LAYOUT.pack(value([7]), 1), record)  # gaps are zeros: equal rows are equal bytes


def test_another_layout_has_other_values() -> None:
    for other in ({**ROW, "w": torch.zeros(3, 2)}, {**ROW, "n": torch.zeros(())}, {"w": ROW["w"]}, {}):
        assert Layout.of(other).values() != LAYOUT.values()
    assert Layout.of(dict(ROW)).values() == LAYOUT.values()


# -- versions --------------------------------------------------------------------------------------------------------

SUBSET = st.lists(st.integers(0, CLIENTS - 1), unique=True, min_size=1)
STEP = st.tuples(st.sampled_from(["replace", "drop", "gather"]), st.integers(0, 99), SUBSET)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(steps=st.lists(STEP, max_size=14))
def test_versions_are_independent_values(kind: str, steps: list[tuple[str, int, list[int]]]) -> None:
    """Against plain dictionaries: every version keeps its numbers, and only what a version needs is kept."""
    rows = make(kind)
    versions: list[tuple[Rows, dict[int, int]]] = [(rows, {})]
    handles: list[weakref.ref[Any]] = []
    peak = 0
    for number, (what, which, clients) in enumerate(steps):
        rows, numbers = versions[which % len(versions)]
        if what == "replace":
            new = {k: 10 * number + i for i, k in enumerate(clients)}
            rows = rows.replace(ids(*clients), value(list(new.values())))
            handles += [weakref.ref(rows.changed[k]) for k in clients]
            versions.append((rows, {**numbers, **new}))
        elif what == "gather":
            for t in rows.gather(clients, CPU).values():
                t.fill_(0)  # a copy: the check below sees the rows as they were
        elif len(versions) > 1:
            del versions[which % len(versions)]
        del rows
        assert all(holds(r, numbers) for r, numbers in versions)
        alive = {id(h) for r, _ in versions for h in r.changed.values()}
        assert sum(h() is not None for h in handles) == len(alive)
        peak = max(peak, len(alive))
        shelf = versions[0][0].shelf
        if isinstance(shelf, Disk):
            assert shelf.slots == peak and len(shelf.free) == len(set(shelf.free)) == peak - len(alive)
            assert os.fstat(shelf.descriptor).st_size <= peak * LAYOUT.size


@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_rounds_take_the_room_of_three_versions(kind: str) -> None:
    """The stored state, the last one and the next: however long a run goes on, its file does not grow."""
    rows = stored = make(kind)
    for r in range(100):
        rows = rows.replace(ids(*range(CLIENTS)), value([10 * r + k for k in range(CLIENTS)]))
        if r % 7 == 0:
            stored = rows
    assert holds(stored, {k: 980 + k for k in range(CLIENTS)}) and holds(rows, {k: 990 + k for k in range(CLIENTS)})
    if isinstance(rows.shelf, Disk):
        assert rows.shelf.slots == 3 * CLIENTS and os.fstat(rows.shelf.descriptor).st_size == 3 * CLIENTS * LAYOUT.size


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_copied_in_and_out(kind: str) -> None:
    given = value([5, 6])
    rows = make(kind).replace(ids(1, 4), given)
    for t in given.values():
        t.fill_(0)
    got = rows.gather([4, 0, 1], CPU)
    for t in got.values():
        t.fill_(0)
    assert holds(rows, {1: 5, 4: 6}) and holds(rows, {1: 5, 4: 6}, [4, 0, 1])
    assert rows.gather([], CPU)["w"].shape == (0, 2, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_one_row_for_all(kind: str) -> None:
    """A stack of one row, the same for all, as a shared tensor is; what is not in the layout is left out."""
    one = {**value([3]), "other": torch.zeros(1)}
    assert holds(make(kind).replace(ids(0, 2, 5), one), {0: 3, 2: 3, 5: 3})


def test_rows_without_tensors() -> None:
    for kind in KINDS:
        empty = Rows(Layout.of({}), Memory(CPU) if kind == "memory" else Disk(0, None), lambda k: torch.empty(0).byte())
        assert empty.gather([0, 3], CPU) == {}
        assert empty.replace(ids(0), {"other": torch.zeros(1)}).gather([0], CPU) == {}


def test_a_change_costs_what_it_changes() -> None:
    """20 rows of 100,000 against 20 of 100: the same operations on as many bytes, and the table of handles."""
    spent, traced = {}, {}
    for clients in (100, 100_000):
        rows = make("memory")
        for start in range(0, clients, 10_000):  # all have trained
            some = np.arange(start, min(start + 10_000, clients))
            rows = rows.replace(some, value(some.tolist()))
        chosen = np.arange(0, clients, clients // 20)
        new = value(list(range(20)))
        tracemalloc.start()
        with Ops() as ops:
            newer = rows.replace(chosen, new)
            newer.gather(chosen, CPU)
        traced[clients] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        spent[clients] = ops.names, ops.bytes
    assert spent[100] == spent[100_000] and spent[100][1] < 20 * 20 * LAYOUT.size
    table = dict.fromkeys(range(100_000)).__sizeof__()
    assert traced[100_000] < 1.5 * table  # 100 bytes a client, whatever its model's size


# -- files -----------------------------------------------------------------------------------------------------------


NUMBERS = {1: 41, 3: 33, 4: 34, 5: 35}


def stored(path: Path, kind: str = "disk") -> tuple[Rows, Any]:
    """Rows of `NUMBERS`, of several versions, in slots that are not in order, and what a checkpoint says of them."""
    rows = make(kind, path)
    for new in ({5: 25, 4: 24, 3: 23, 1: 21}, {1: 31, 3: 33}, {4: 34, 5: 35}, {1: 41}):
        rows = rows.replace(ids(*new), value(list(new.values())))
    return rows, rows.values()


def reopened(values: Any, path: Path, kind: str = "disk") -> Rows:
    """What another process makes of `values`."""
    return make(kind, path if kind == "disk" else None).restored(values, np.arange(CLIENTS), path.parent, ALONE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("again", KINDS)
def test_another_process_has_the_same_rows(kind: str, again: str, tmp_path: Path) -> None:
    path = tmp_path / "rows-1.bin"
    _, values = stored(path, kind)
    size = path.stat().st_size if kind == "disk" else 0
    rows = reopened(values, path, again)
    assert holds(rows, NUMBERS)
    if kind == again == "disk":
        assert path.stat().st_size == size and rows.values()["slots"].tolist() == values["slots"].tolist()
        assert isinstance(rows.shelf, Disk) and not {*rows.shelf.free} & {*values["slots"][:, 0].tolist()}
    assert ("records" in rows.values()) == (again == "memory")
    assert holds(rows.replace(ids(0, 1), value([40, 41])), {**NUMBERS, 0: 40, 1: 41}) and holds(rows, NUMBERS)


@pytest.mark.parametrize("resumed", [False, True])
def test_a_checkpoint_outlives_what_is_written_after_it(resumed: bool, tmp_path: Path) -> None:
    """Killed at any time, the run finds what its last checkpoint refers to, as the state that was stored is held."""
    path = tmp_path / "rows-1.bin"
    held, values = stored(path)
    if resumed:
        held = reopened(values, path)
    newest = held
    for r in range(5, 30):
        newest = newest.replace(ids(*range(CLIENTS)), value([10 * r + k for k in range(CLIENTS)]))
        assert holds(reopened(values, path, "memory"), NUMBERS)
    del held  # a newer checkpoint has been written
    for r in range(30, 33):
        newest = newest.replace(ids(*range(CLIENTS)), value([10 * r + k for k in range(CLIENTS)]))
    with pytest.raises(RunError, match="a row is not what was written"):
        reopened(values, path, "memory")
    assert holds(newest, {k: 320 + k for k in range(CLIENTS)})


def test_two_versions_of_one_file_come_back_with_what_they_have_in_common(tmp_path: Path) -> None:
    """As two fields of a State do: neither the other's records nor a common one may be taken for free."""
    path = tmp_path / "rows-1.bin"
    one = make("disk", path).replace(ids(0, 1, 2), value([50, 51, 52]))
    other = one.replace(ids(1, 3), value([61, 63]))
    values = one.values(), other.values()
    del one, other
    template = make("disk", path)
    one, other = (template.restored(v, np.arange(CLIENTS), tmp_path, ALONE) for v in values)
    wanted = {0: 50, 1: 61, 2: 52, 3: 63}
    assert holds(one, {0: 50, 1: 51, 2: 52}) and holds(other, wanted)
    del one
    for r in range(3):
        newest = other.replace(ids(*range(CLIENTS)), value([100 * r + 80 + k for k in range(CLIENTS)]))
        assert holds(other, wanted) and holds(newest, {k: 100 * r + 80 + k for k in range(CLIENTS)})
    shelf = template.shelf
    assert isinstance(shelf, Disk) and len(shelf.free) == len(set(shelf.free))


def test_a_file_of_another_name_is_copied(tmp_path: Path) -> None:
    """Where cohorts lay in other files; the one read is left alone, and closed."""
    path, other = tmp_path / "rows-1.bin", tmp_path / "rows-2.bin"
    _, values = stored(path)
    before, open_files = path.read_bytes(), len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    rows = make("disk", other).restored(values, np.arange(CLIENTS), tmp_path, ALONE)
    assert holds(rows, NUMBERS) and path.read_bytes() == before and other.stat().st_size == 4 * LAYOUT.size
    del rows
    assert not open_files or len(os.listdir("/proc/self/fd")) == open_files


def test_a_file_has_one_name_or_another(tmp_path: Path) -> None:
    """By a link to its folder too it is the run's own: rows that lie in it are not copied onto each other."""
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    _, values = stored(tmp_path / "run" / "rows-1.bin")
    slots = values["slots"][:, 0].tolist()
    assert any(new in slots[place + 1 :] for place, new in enumerate(range(4)))  # copies would hit rows still to come
    template = make("disk", tmp_path / "run" / "rows-1.bin")
    assert holds(template.restored(values, np.arange(CLIENTS), tmp_path / "link", ALONE), NUMBERS)


@pytest.mark.parametrize("again", KINDS)
def test_a_damaged_row_is_refused(again: str, tmp_path: Path) -> None:
    path = tmp_path / "rows-1.bin"
    rows, values = stored(path)
    whole, used = path.read_bytes(), values["slots"][:, 0].tolist()
    assert isinstance(rows.shelf, Disk) and 0 < len(used) < rows.shelf.slots
    for slot in range(rows.shelf.slots):
        for place in (0, 100, LAYOUT.size - 1):
            at = slot * LAYOUT.size + place
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            if slot not in used:
                assert holds(reopened(values, path, again), NUMBERS)  # nobody refers to it
                continue
            with pytest.raises(RunError, match=rf"^{path}: a row is not what was written$"):
                reopened(values, path, again)


@pytest.mark.parametrize("again", KINDS)
def test_a_short_or_missing_file_is_refused(again: str, tmp_path: Path) -> None:
    path = tmp_path / "rows-1.bin"
    rows, values = stored(path)
    whole = path.read_bytes()
    for length in (0, 1, LAYOUT.size, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(RunError, match=rf"^{path}: a row is missing; the file was cut$"):
            reopened(values, path, again)
        with pytest.raises(RunError, match=rf"^{path}: a row is missing; the file was cut$"):
            rows.gather(range(CLIENTS), CPU)  # cut while the run is going on
    path.unlink()
    with pytest.raises(RunError, match=rf"^{path}: (it is missing, though rows lie in it|a row is missing.*)$"):
        reopened(values, path, again)
    assert not path.exists()


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_full_disk_leaves_all_versions_as_they_are(call: int, tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "rows-1.bin"
    rows, values = stored(path)
    calls = iter(range(1, 99))

    def full(file: FileIO, data: memoryview, at: int) -> int:
        """Half of a row still fits, nothing more."""
        if next(calls) < call:
            return write_at(file, data, at)
        if len(data) == LAYOUT.size and call == 2:
            return write_at(file, data[: LAYOUT.size // 2], at)
        raise OSError(errno.ENOSPC, "No space left on device")

    shelf = rows.shelf
    monkeypatch.setattr("semcom.engine.store.rows.write_at", full)
    with pytest.raises(OSError, match="No space left on device"):
        rows.replace(ids(0, 1, 2), value([70, 71, 72]))
    monkeypatch.undo()
    assert holds(rows, NUMBERS) and holds(reopened(values, path, "memory"), NUMBERS)
    assert len(shelf.free) == len(set(shelf.free)) == shelf.slots - len(NUMBERS)  # and no slot is lost
    assert holds(rows.replace(ids(0, 1, 2), value([70, 71, 72])), {**NUMBERS, 0: 70, 1: 71, 2: 72})


def test_a_write_in_pieces_is_continued(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("semcom.engine.store.rows.write_at", lambda file, data, at: write_at(file, data[:7], at))
    _, values = stored(tmp_path / "rows-1.bin")
    assert holds(reopened(values, tmp_path / "rows-1.bin"), NUMBERS)


def test_a_file_is_read_in_the_order_of_its_records(tmp_path: Path, monkeypatch: Any) -> None:
    rows, _ = stored(tmp_path / "rows-1.bin")
    places = list[int]()

    def noted(file: FileIO, into: memoryview, at: int) -> int:
        places.append(at)
        return read_at(file, into, at)

    monkeypatch.setattr("semcom.engine.store.rows.read_at", noted)
    slots = [rows.changed[k].index for k in (1, 3, 4, 5)]
    assert slots != sorted(slots) and holds(rows, NUMBERS, [1, 3, 4, 5])
    assert places == [slot * LAYOUT.size for slot in sorted(slots)]


def test_rows_of_another_run_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows-1.bin"
    _, values = stored(path)
    other = Layout.of({**ROW, "w": torch.zeros(3, 3)})
    for template, known in ((Rows(other, Memory(CPU), initial), np.arange(CLIENTS)), (make("memory"), np.arange(5))):
        with pytest.raises(RunError, match=MISFIT):
            template.restored(values, known, tmp_path, ALONE)
    for wrong in (None, {}, [], {"layout": None}):
        with pytest.raises(RunError, match=MISFIT):
            make("memory").restored(wrong, np.arange(CLIENTS), tmp_path, ALONE)


def test_a_temporary_file_is_in_no_folder_and_its_rows_are_in_the_checkpoint(tmp_path: Path) -> None:
    rows = make("disk").replace(ids(2, 0), value([72, 70]))
    values = rows.values()
    assert [t.shape for t in values["records"]] == [(LAYOUT.size,)] * 2
    del rows
    assert holds(reopened(values, tmp_path / "rows-1.bin"), {0: 70, 2: 72})
