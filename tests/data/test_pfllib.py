"""Divisions that PFLlib has written: read back image by image, and never run."""

from __future__ import annotations

import io
import json
import os
import pickle
import pickletools
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semcom.config import PartitionConfig
from semcom.data.archive import read_pickled
from semcom.data.dataset import Dataset
from semcom.data.partitions import partition_dataset
from semcom.data.pfllib import read_pfllib
from semcom.data.pickled import read_pickled_dictionary
from semcom.data.split import Split
from tests.refusals import refuses


def noise(n: int = 60, channels: int = 3, side: int = 5) -> Dataset:
    """Images of random bytes, of three classes."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (n, channels, side, side), dtype=np.uint8)
    return Dataset("noise", images, np.arange(n) % 3, n - 20, ("a", "b", "c"))


def scaled(images: np.ndarray) -> np.ndarray:
    """Images as torchvision's ToTensor and Normalize(0.5, 0.5) make them."""
    return ((images / np.float32(255) - np.float32(0.5)) / np.float32(0.5)).astype(np.float32)


def written(root: Path, dataset: Dataset, split: Split, **change: Any) -> str:
    """A folder as PFLlib writes it, with `part/client` of `change` in the place of an array or of the file's bytes."""
    for part, lists in (("train", split.train), ("test", split.test)):
        (root / part).mkdir(parents=True)
        for client, indices in enumerate(lists):
            held: Any = {"x": scaled(dataset.images[indices]), "y": dataset.labels[indices]}
            held = change.get(f"{part}_{client}", held)
            path = root / part / f"{client}.npz"
            path.write_bytes(held) if isinstance(held, bytes) else np.savez_compressed(path, data=held)
    (root / "config.json").write_text(json.dumps({"num_clients": len(split.train), "num_classes": 3}))
    return str(root)


def divided(dataset: Dataset, clients: int = 3) -> Split:
    return partition_dataset(dataset, PartitionConfig(kind="iid"), clients, 0)


@pytest.mark.parametrize("channels", [1, 3])
def test_every_image_is_found_again(tmp_path: Path, channels: int) -> None:
    """All 256 bytes come back from float32, and each client has the very images that it was given."""
    dataset = noise(channels=channels)
    assert set(range(256)) <= set(dataset.images.ravel().tolist())
    split = divided(dataset)
    found = read_pfllib(written(tmp_path, dataset, split), dataset)
    for wanted, lists in ((split.train, found.train), (split.test, found.test)):
        assert [indices.tolist() for indices in lists] == [indices.tolist() for indices in wanted]
    assert [len(indices) for indices in found.validation] == [0, 0, 0]


def test_equal_images_are_given_out_once_each(tmp_path: Path) -> None:
    """Of three equal images of a class and a fourth of another, in any order: each has a place of its own."""
    images = np.zeros((6, 1, 2, 2), np.uint8)
    images[4:] = 9
    labels = np.array([0, 1, 0, 0, 1, 0])
    dataset = Dataset("equal", images, labels, 5, ("a", "b"))
    split = Split((np.array([3, 1]), np.array([2, 4])), (np.array([0]), np.array([5])))
    found = read_pfllib(written(tmp_path / "good", dataset, split), dataset)
    lists = [*found.train, *found.test]
    assert sorted(np.concatenate(lists).tolist()) == [0, 1, 2, 3, 4, 5]
    assert [sorted(labels[indices].tolist()) for indices in lists] == [[0, 1], [0, 1], [0], [0]]
    again = Split((np.array([3, 1, 1]), np.array([2, 4])), split.test)
    with refuses("from_pfllib", "image 2", "train/0.npz", "equal"):
        read_pfllib(written(tmp_path / "bad", dataset, again), dataset)


def test_arrays_are_read_in_every_order_and_type(tmp_path: Path) -> None:
    """Fortran's order, the other order of bytes, and the protocol that older NumPys write."""
    values = np.arange(24.0).reshape(2, 3, 4)
    held = {"f": np.asfortranarray(values), "b": values.astype(">f8"), "i": np.array([1, -2], np.int32)}
    np.savez(tmp_path / "some.npz", data=held)
    read = [read_pickled(tmp_path / "some.npz", "it", "data")]
    box = np.empty((), object)
    box[()] = held
    read += [read_pickled_dictionary(pickle.dumps(box, protocol)) for protocol in (3, 4)]
    older = pickle.dumps(box, 3).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    for found in (*read, read_pickled_dictionary(older)):
        assert np.array_equal(found["f"], values) and np.array_equal(found["b"], values)
        assert found["i"].tolist() == [1, -2] and not found["f"].flags.writeable


# Pickles that are no arrays: none of them runs ------------------------------------------------------------------------

RAN: list[str] = []


def touch(word: str = "called") -> str:
    RAN.append(word)
    return word


class Calls:
    """An object with a pickle that calls a function."""

    def __init__(self, function: Any, *given: Any) -> None:
        self.reduced = (function, given)

    def __reduce__(self) -> Any:
        return self.reduced


def boxed(held: Any) -> bytes:
    """Pickle an array of one object, as np.savez does."""
    box = np.empty((), object)
    box[()] = held
    return pickle.dumps(box, 4)


GOOD = np.arange(3)
RECONSTRUCT: Any = np.zeros(0).__reduce__()[0]
HERE = __name__.encode()
NDARRAY = b"cnumpy\nndarray\n"
TYPE = b"cnumpy\ndtype\n"
HOSTILE: dict[str, bytes] = {
    "a call": boxed(Calls(touch)),
    "a call beside good arrays": boxed({"x": GOOD, "y": GOOD, "z": Calls(touch)}),
    "a call as a name": boxed({"x": GOOD, Calls(touch): GOOD}),
    "a call within a call": boxed(Calls(np.array, Calls(touch))),
    "a call in the state of an array": pickle.dumps(Calls(RECONSTRUCT, Calls(touch), (0,), b"b"), 4),
    "a system command": boxed(Calls(os.system, "touch ran")),
    "eval": boxed(Calls(eval, f"__import__({__name__!r}).touch()")),
    "a dotted name": b"\x80\x04\x8c\x05numpy\x8c\x0ddtype.__new__\x93)R.",
    "a class built by its own state": b"\x80\x04" + TYPE + b"(K\x03\x8c\x01<t" + b"b.",
    "attributes of a stand-in": b"\x80\x04" + TYPE + b"N}\x8c\x08__init__K\x01s\x86b.",
    "the old instruction for an instance": b"(S'ran'\ni" + HERE + b"\ntouch\n.",
    "the instruction for an object": b"(c" + HERE + b"\ntouch\no.",
    "a new object": b"\x80\x04" + NDARRAY + b")\x81.",
    "a registered number": b"\x82\x01.",
    "a name from outside": b"Pran\n.",
    "a word that is called": b"\x80\x04" + NDARRAY + b")R.",
    "memory without end": b"\x80\x04N" + b"r\xff\xff\xff\x7f.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pickle_is_not_run(name: str, here: Path) -> None:
    RAN.clear()
    with pytest.raises(ValueError, match="^its pickle is not one of arrays: ") as stop:
        read_pickled_dictionary(HOSTILE[name])
    assert RAN == [] and os.listdir() == [] and "\n" not in str(stop.value)


def test_those_pickles_do_run_elsewhere(here: Path) -> None:
    """Otherwise the test above would prove little."""
    for name in ("a call", "a call beside good arrays", "a call within a call", "eval"):
        RAN.clear()
        pickle.loads(HOSTILE[name])
        assert RAN == ["called"], name
    pickle.loads(HOSTILE["a system command"])
    assert os.listdir() == ["ran"]


def array(shape: str, kind: str = "f4", data: str = "bytes(16)", order: str = "<") -> bytes:
    """Pickle an array with arbitrary parts."""
    held = {"x": np.zeros(4, np.float32)}
    good, bad = boxed(held), boxed(held)
    for old, new in ((b"K\x04\x85", shape), (b"\x8c\x02f4", kind), (b"C\x10" + bytes(16), data), (b"\x8c\x01<", order)):
        assert old in good
        bad = bad.replace(old, eval(new)) if new not in ("f4", "bytes(16)", "<") else bad
    return bad[:2] + bad[11:]  # without the frame, whose length does not fit


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (array("b'K\\x05\\x85'"), "an array of shape (5,) has 16 bytes"),
        (array("b'J\\xff\\xff\\xff\\x7f\\x85'"), "an array of shape (2147483647,) has 16 bytes"),
        (array("b'J\\xfc\\xff\\xff\\xff\\x85'"), "an array without a shape"),
        (array("b'N'"), ""),
        (array("b'K\\x04\\x85'", kind="b'\\x8c\\x02O8'"), "no array of numbers"),
        (array("b'K\\x04\\x85'", kind="b'\\x8c\\x03V99'"), "no array of numbers"),
        (array("b'K\\x04\\x85'", data="b']'"), "an array without a shape, or without bytes"),
        (array("b'K\\x04\\x85'", order="b'\\x8c\\x01!'"), "no array of numbers"),
        (boxed([GOOD]), "it is no dictionary of arrays"),
        (boxed({"x": [1]}), "it is no dictionary of arrays"),
        (boxed({"x": [1.0]}), "it has the instruction BINFLOAT, which is not read"),
        (pickle.dumps(3, 4), "it is no array"),
        (boxed({"x": np.array(["a"])}), "no array of numbers"),
        (b"", ""),
        (b"\x80\x04", ""),
        (boxed({"x": GOOD})[:-3], ""),
    ],
)
def test_what_is_no_dictionary_of_numbers_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match="^its pickle is not one of arrays: ") as stop:
        read_pickled_dictionary(data)
    assert message in str(stop.value)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_a_damaged_pickle_is_refused_or_gives_arrays(data: st.DataObject) -> None:
    """Changing some bytes of a good pickle raises no other error and yields only arrays of numbers."""
    good = bytearray(boxed({"x": scaled(np.array([[0, 255], [3, 4]])), "y": np.array([0, 1])}))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_pickled_dictionary(bytes(good))
    except ValueError:
        return
    assert all(isinstance(value, np.ndarray) and value.dtype.kind in "fiu" for value in found.values())


def test_the_instructions_of_numpy_are_all_known() -> None:
    """And no more of them call or look up anything than REDUCE, BUILD and the two for names."""
    from semcom.data.pickled import INSTRUCTIONS

    known = {code.name for code in pickletools.opcodes}
    assert known >= INSTRUCTIONS
    dangerous = {"INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "PERSID", "BINPERSID", "EXT1", "EXT2", "EXT4", "LONG_BINPUT"}
    assert known >= dangerous and not dangerous & INSTRUCTIONS


# Folders that are not as they should be -------------------------------------------------------------------------------


def packed(content: bytes) -> bytes:
    """An .npz with one member, `data`, made by hand."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data.npy", content)
    return file.getvalue()


DATASET = noise()
FIRST = DATASET.images[:2]
LABELS = DATASET.labels[:2]


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (b"hello", "train/1.npz is no .npz archive of a dictionary of arrays (File is not a zip file)"),
        (packed(b"hello"), "train/1.npz is no .npz archive of a dictionary of arrays ("),
        ({"x": scaled(FIRST)}, "train/1.npz has no x and y, but x"),
        ({"x": scaled(FIRST), "y": LABELS[:1]}, "has x (2, 3, 5, 5) and y int64 (1,), not images"),
        ({"x": scaled(FIRST), "y": LABELS / 1.0}, "y float64 (2,), not images"),
        ({"x": scaled(FIRST)[:0], "y": LABELS[:0]}, "has x (0, 3, 5, 5)"),
        ({"x": scaled(FIRST)[:, 0], "y": LABELS}, "has x (2, 5, 5)"),
        ({"x": scaled(FIRST) * 1.1, "y": LABELS}, "has images that are no bytes scaled to [-1, 1]"),
        ({"x": scaled(FIRST) + np.float32(np.nan), "y": LABELS}, "has images that are no bytes scaled to [-1, 1]"),
        ({"x": scaled(FIRST) + 2, "y": LABELS}, "has images that are no bytes scaled to [-1, 1]"),
        ({"x": scaled(FIRST)[:, :, :4], "y": LABELS}, "has images of 3x4x5, 'noise' of 3x5x5"),
        ({"x": scaled(FIRST), "y": LABELS + 1}, "image 0 of"),
        ({"x": Calls(touch), "y": LABELS}, f"it names {__name__}.touch, which is not read"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path: Path, held: Any, message: str) -> None:
    RAN.clear()
    folder = written(tmp_path, DATASET, divided(DATASET), train_1=held)
    with refuses("from_pfllib", "train/1.npz", message):
        read_pfllib(folder, DATASET)
    assert RAN == []


def test_an_incomplete_folder_is_one_line(tmp_path: Path) -> None:
    def refused(folder: Path | str, *words: object) -> None:
        with refuses("from_pfllib", *words):
            read_pfllib(str(folder), DATASET)

    folder = written(tmp_path / "set", DATASET, divided(DATASET))
    for place in ("none", "set/train/0.npz", "set/test"):
        refused(tmp_path / place, tmp_path / place, "train/0.npz, train/1.npz, ..., test/0.npz, ")
    (tmp_path / "set" / "test" / "2.npz").unlink()
    refused(folder, "3 clients", "no test/2.npz")
    (tmp_path / "set" / "train" / "2.npz").unlink()
    refused(folder, folder, "files of 2 clients, and 3")
    (tmp_path / "set" / "config.json").write_text("[1")
    refused(folder, "config.json cannot be read")
    (tmp_path / "set" / "config.json").unlink()
    assert len(read_pfllib(folder, DATASET).train) == 2
