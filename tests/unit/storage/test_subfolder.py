"""A folder of a storage, as a storage of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.storage.subfolder import Subfolder


def test_paths_are_relative_to_the_folder_in_every_method(tmp_path: Path) -> None:
    outer = LocalStorage(tmp_path)
    inner: Storage = Subfolder(outer, "a b/c")
    inner.put_if_absent("x/one", b"1")
    inner.replace("two", b"22")
    inner.make_folder("empty")
    with inner.create("three") as file:
        file.write(b"333")
    inner.touch("two")
    assert {entry.path: entry.size for entry in outer.walk("")} == {"a b/c/x/one": 1, "a b/c/two": 2, "a b/c/three": 3}
    assert [(entry.path, entry.is_dir) for entry in inner.list("")] == [
        ("empty", True),
        ("three", False),
        ("two", False),
        ("x", True),
    ]
    assert [entry.path for entry in inner.walk("")] == ["three", "two", "x/one"]
    assert (inner.names("x"), inner.read("x/one"), inner.exists("x/two")) == (["one"], b"1", False)
    with inner.open_input("three") as source:
        assert source.read() == b"333"
    assert inner.uri == f"{outer.uri}/a%20b/c"
    inner.delete("two")
    assert (inner.exists("two"), inner.sweep(""), inner.is_file_system) == (False, 0, True)
    inner.delete_all_if_unchanged("x", {"one": b"2"})
    inner.delete_empty_folder("x")
    assert inner.names("x") == ["one"]
    inner.delete_all_if_unchanged("x", {"one": b"1"})
    assert inner.names("x") == []
    inner.delete_folder("x")
    inner.delete_empty_folder("empty")
    inner.make_folder("empty")
    assert outer.names("a b/c") == ["empty", "three"]


def test_its_root_cannot_be_deleted_and_nothing_above_it_reached(tmp_path: Path) -> None:
    inner = Subfolder(LocalStorage(tmp_path), "a")
    for path in ("", "../b"):
        with pytest.raises(ValueError, match=r"root|path"):
            inner.delete_folder(path)
        with pytest.raises(ValueError, match=r"root|path"):
            inner.delete_empty_folder(path)
