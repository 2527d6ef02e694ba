"""The storages in memory answer as the local one and as object stores do, whatever the calls."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.storage.uris import open_storage
from tests.support.memory_objects import MemoryObjects
from tests.support.memory_storage import MemoryStorage

_PATHS = ("a", "b", "f/a", "f/b", "f/g/a", "f/.a.crc")
_FOLDERS = ("f", "f/g", "h")
_DATA = (b"", b"1", b"22")


def created(storage: Storage, path: str, data: bytes) -> None:
    with storage.create(path) as file:
        file.write(data)


def drawn(chance: random.Random) -> Callable[[Storage], object]:
    """One call."""
    path, folder, data, expected = chance.choice(_PATHS), chance.choice(_FOLDERS), chance.choice(_DATA), b"1"
    calls: tuple[Callable[[Storage], object], ...] = (
        lambda storage: storage.read(path),
        lambda storage: (storage.exists(path), storage.exists(folder)),
        lambda storage: storage.names(folder),
        lambda storage: storage.folders(folder),
        lambda storage: [(entry.path, entry.size, entry.is_dir) for entry in storage.list(folder)],
        lambda storage: [(entry.path, entry.size) for entry in storage.walk("")],
        lambda storage: storage.put_if_absent(path, data),
        lambda storage: storage.replace_if_unchanged(path, data, expected),
        lambda storage: storage.delete_if_unchanged(path, expected),
        lambda storage: storage.delete_all_if_unchanged("f", {"a": data, "b": expected}),
        lambda storage: storage.delete(path),
        lambda storage: storage.delete_folder(folder),
        lambda storage: storage.delete_empty_folder(folder),
        lambda storage: storage.make_folder(folder),
        lambda storage: storage.open_input(path).read(),
        lambda storage: created(storage, path, data),
        lambda storage: storage.touch(path),
    )
    return chance.choice(calls)


def answer(storage: Storage, call: Callable[[Storage], object]) -> object:
    try:
        return call(storage)
    except OSError as error:
        return type(error)


@pytest.mark.parametrize("seed", range(40))
def test_both_storages_answer_alike(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    local, memory = LocalStorage(tmp_path), MemoryStorage()
    for number in range(60):
        call = drawn(chance)
        assert answer(memory, call) == answer(local, call), f"call {number}"


@pytest.mark.parametrize("seed", range(40))
def test_both_object_stores_answer_alike(seed: int, memory_uri: str) -> None:
    chance = random.Random(seed)
    objects, memory = open_storage(memory_uri), MemoryObjects()
    traces: dict[Storage, bytes] = {objects: b"?", memory: b"?"}

    def vacate(storage: Storage) -> object:
        trace = storage.vacate("a", b"1")
        traces[storage] = trace or traces[storage]
        return trace is None

    for number in range(60):
        calls = (vacate, lambda storage: storage.replace_if_unchanged("a", b"1", traces[storage]), None, None, None)
        call = chance.choice(calls) or drawn(chance)
        assert answer(memory, call) == answer(objects, call), f"call {number}"
