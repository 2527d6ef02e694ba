"""LocalStorage: whole files, hidden leftovers, and nothing outside its root."""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from streaming_lsm.errors import ConfigError, UnsupportedTable
from streaming_lsm.storage import local
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.storage.uris import open_storage, with_own_scheme

LEFTOVER = ".0123456789abcdef0123456789abcdef.lsm-tmp"


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "table")


def test_a_put_that_fails_before_the_link_leaves_nothing(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.make_folder("a")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.write", fail)
    with pytest.raises(OSError, match="disk full"):
        storage.put_if_absent("a/f", b"bytes")
    assert os.listdir(tmp_path / "table/a") == []


@pytest.mark.parametrize(
    ("content", "synchronised"),
    [(b"bytes", [(False, False), (True, True)]), (b"", [(True, True)])],
    ids=["content", "no-content"],
)
def test_a_put_is_synchronised_before_and_after_it_gets_its_name(
    storage: LocalStorage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    synchronised: list[tuple[bool, bool]],
) -> None:
    storage.make_folder("a")
    seen: list[tuple[bool, bool]] = []
    final = tmp_path / "table/a/f"

    def record(descriptor: int) -> None:
        seen.append((os.path.isdir(f"/proc/self/fd/{descriptor}"), final.exists()))

    monkeypatch.setattr("os.fsync", record)
    storage.put_if_absent("a/f", content)
    assert seen == synchronised, "whether a folder, and whether the file has its name"


def test_names_of_many_files_are_made_durable_at_once_after_the_last(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("a", "b"):
        storage.make_folder(folder)
    seen: list[tuple[str, int]] = []

    def record(descriptor: int) -> None:
        folder = os.readlink(f"/proc/self/fd/{descriptor}")
        is_folder = os.path.isdir(folder)
        seen.append((folder[-1] if is_folder else "file", len(storage.names("a") + storage.names("b"))))

    monkeypatch.setattr("os.fsync", record)
    storage.put_all_if_absent({"a/f": b"1", "b/f": b"2", "a/g": b"3", "a/empty": b""})
    assert seen == [("file", 0), ("file", 1), ("file", 2), ("a", 4), ("b", 4)], "what, and how many have their names"


def test_create_makes_the_file_visible_under_its_name_and_keeps_it(storage: LocalStorage) -> None:
    with storage.create("p/f") as file:
        file.write(b"by")
        assert storage.exists("p/f")
        file.write(b"tes")
    assert storage.read("p/f") == b"bytes"


def test_touch_moves_the_time_of_modification_and_creates_nothing(storage: LocalStorage, tmp_path: Path) -> None:
    storage.put_if_absent("f", b"")
    os.utime(tmp_path / "table/f", (1, 1))
    storage.touch("f")
    assert storage.list("")[0].modified_ms > 1_000_000_000_000


def test_list_is_sorted_and_hides_temporaries(storage: LocalStorage, tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden"):
        storage.put_if_absent(f"folder/{name}", b"xyz")
    storage.make_folder("folder/sub")
    (tmp_path / "table/folder" / LEFTOVER).write_bytes(b"torn")
    entries = storage.list("folder")
    assert [(entry.path, entry.size, entry.is_dir) for entry in entries] == [
        ("folder/.hidden", 3, False),
        ("folder/a", 3, False),
        ("folder/b", 3, False),
        ("folder/sub", 0, True),
    ]
    assert storage.names("folder") == [".hidden", "a", "b", "sub"]
    assert storage.names("missing") == []
    assert storage.list("missing") == []


def test_an_empty_folder_is_deleted_and_one_with_content_is_kept(storage: LocalStorage) -> None:
    storage.make_folder("empty")
    storage.put_if_absent("full/f", b"x")
    for folder in ("empty", "full", "absent/below"):
        storage.delete_empty_folder(folder)
    assert [entry.path for entry in storage.list("")] == ["full"]
    assert storage.read("full/f") == b"x"
    with pytest.raises(ValueError, match="root"):
        storage.delete_empty_folder("")


def test_delete_all_if_unchanged_spares_other_content(storage: LocalStorage, tmp_path: Path) -> None:
    for name in ("same", "other", "apart"):
        storage.put_if_absent(f"a/{name}", name.encode())
    (tmp_path / "table/a/.same.crc").write_bytes(b"sum")
    storage.delete_all_if_unchanged("a", {"same": b"same", "other": b"before", "missing": b""})
    assert storage.names("a") == ["apart", "other"]
    storage.delete_all_if_unchanged("", {"missing": b""})
    storage.delete_all_if_unchanged("missing", {"same": b"same"})
    for name in ("", "..", "b/same"):
        with pytest.raises(ValueError, match=r"is not a (path|name)"):
            storage.delete_all_if_unchanged("a", {name: b""})


def test_delete_empty_folder_spares_what_has_content(storage: LocalStorage) -> None:
    storage.put_if_absent("a/b/f", b"")
    storage.make_folder("a/c")
    for path in ("a/c", "a/c", "a/b", "a", "missing/folder"):
        storage.delete_empty_folder(path)
    assert (storage.names("a"), storage.names("a/b")) == (["b"], ["f"])
    with pytest.raises(NotADirectoryError):
        storage.delete_empty_folder("a/b/f")


def test_sweep_removes_leftovers_of_the_dead_and_spares_the_living(storage: LocalStorage, tmp_path: Path) -> None:
    folder = tmp_path / "table/folder"
    storage.put_if_absent("folder/f", b"kept")
    (folder / LEFTOVER).write_bytes(b"torn")
    living = folder / LEFTOVER.replace("0", "f")
    with open(living, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert storage.sweep("folder") == 1
        assert sorted(os.listdir(folder)) == sorted([living.name, "f"])
    assert storage.sweep("missing") == 0


def test_nothing_is_written_or_deleted_through_a_link_out_of_the_root(storage: LocalStorage, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_bytes(b"precious")
    storage.make_folder("")
    (tmp_path / "table/p").symlink_to(outside)
    for attempt in (
        lambda: storage.put_if_absent("p/f", b""),
        lambda: storage.replace("p/victim", b""),
        lambda: storage.delete("p/victim"),
        lambda: storage.delete_folder("p"),
        lambda: storage.make_folder("p/sub"),
        lambda: storage.create("p/f").__enter__(),
        lambda: storage.read("p/victim"),
        lambda: list(storage.walk("")),
    ):
        with pytest.raises(UnsupportedTable, match="outside the table"):
            attempt()
    assert [path.name for path in outside.iterdir()] == ["victim"]
    assert (outside / "victim").read_bytes() == b"precious"


def test_a_neighbour_whose_name_begins_like_the_root_is_outside(storage: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "table2").mkdir()
    storage.make_folder("")
    (tmp_path / "table/p").symlink_to(tmp_path / "table2")
    with pytest.raises(UnsupportedTable, match="table2"):
        storage.put_if_absent("p/f", b"")


def test_walk_ends_on_a_link_to_its_own_parent(storage: LocalStorage, tmp_path: Path) -> None:
    storage.put_if_absent("a/f", b"")
    (tmp_path / "table/a/loop").symlink_to(tmp_path / "table/a")
    assert [entry.path for entry in storage.walk("")] == ["a/f"]


def test_a_link_to_the_root_is_the_same_storage(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "table")
    assert LocalStorage(tmp_path / "link").uri == LocalStorage(tmp_path / "table").uri


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_open_storage_takes_paths_and_file_uris(tmp_path: Path, prefix: str) -> None:
    assert open_storage(f"{prefix}{tmp_path}").uri == f"file://{os.path.realpath(tmp_path)}"


def test_open_storage_takes_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_storage("lake/orders").uri == f"file://{os.path.realpath(tmp_path)}/lake/orders"


ODD_NAMES = ["sp ace", "per%cent", "%20", "a#b?c", "dt=1", "gr\u00f6\u00dfe", " ", "a:b", "\udcff"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_storages_uri_leads_back_to_it(tmp_path: Path, name: str) -> None:
    storage = open_storage(tmp_path / name)
    storage.put_if_absent("f", b"bytes")
    assert (tmp_path / name / "f").read_bytes() == b"bytes"
    assert storage.uri == (tmp_path / name).resolve().as_uri()
    assert open_storage(storage.uri).read("f") == b"bytes"
    assert open_storage(storage.uri.removeprefix("file://").join(["file:", ""])).uri == storage.uri


def test_escapes_count_in_uris_only(tmp_path: Path) -> None:
    (tmp_path / "sp ace").mkdir()
    (tmp_path / "sp ace/f").write_bytes(b"decoded")
    (tmp_path / "sp%20ace").mkdir()
    (tmp_path / "sp%20ace/f").write_bytes(b"literal")
    assert open_storage(f"file://{tmp_path}/sp%20ace").read("f") == b"decoded"
    assert open_storage(f"file://{tmp_path}/sp ace").read("f") == b"decoded"
    assert open_storage(f"{tmp_path}/sp%20ace").read("f") == b"literal"


def test_a_file_in_the_way_of_a_folder_is_an_error_of_its_own(storage: LocalStorage) -> None:
    storage.put_if_absent("a", b"file")
    with pytest.raises(NotADirectoryError):
        storage.make_folder("a")
    with pytest.raises(NotADirectoryError):
        storage.put_if_absent("a/b", b"")
    with pytest.raises(NotADirectoryError), storage.create("a/b"):
        pass
    assert storage.read("a") == b"file"


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        ("hdfs:/t", "'hdfs'.* s3, gs, az"),
        ("file://host/t", "host"),
        ("file:lake/orders", "absolute"),
        ("FILE:orders", "absolute"),
        ("file:", "absolute"),
        ("file:///lake/%00", "NUL"),
        ("/lake/\0", "NUL"),
    ],
)
def test_open_storage_names_what_it_cannot_open(uri: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        open_storage(uri)


def test_a_checksum_that_hadoop_keeps_beside_a_file_goes_with_the_content_it_is_of(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    for name in ("replaced", "deleted", "kept"):
        storage.put_if_absent(f"folder/{name}", b"old")
        (tmp_path / f"folder/.{name}.crc").write_bytes(b"crc of old")
    storage.replace("folder/replaced", b"new")
    storage.delete("folder/deleted")
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == [".kept.crc", "kept", "replaced"]


def test_a_found_folder_is_written_to_disk_by_the_first_call_of_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    (tmp_path / "table" / "nl").mkdir(parents=True)
    monkeypatch.setattr(os, "fsync", fsync)
    storage = LocalStorage(tmp_path / "table")
    storage.put_if_absent("nl/one", b"")
    assert synced == [str(tmp_path), str(tmp_path / "table"), str(tmp_path / "table" / "nl")]
    synced.clear()
    pickle.loads(pickle.dumps(storage)).put_if_absent("nl/two", b"")
    assert synced == [str(tmp_path / "table" / "nl")], "known to the process by now"


def test_a_known_folder_that_was_deleted_is_created_again(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.put_if_absent("nl/one", b"1")
    storage.delete_folder("nl")
    storage.put_if_absent("nl/one", b"2")
    assert storage.read("nl/one") == b"2"


def test_the_folder_above_the_root_need_not_be_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "table").mkdir()
    opened = os.open

    def open_or_refuse(path: str, *how: Any, **options: Any) -> int:
        if path == str(tmp_path):
            raise PermissionError(errno.EACCES, "closed", path)
        return opened(path, *how, **options)

    monkeypatch.setattr(os, "open", open_or_refuse)
    LocalStorage(tmp_path / "table").put_if_absent("nl/one", b"1")
    assert (tmp_path / "table/nl/one").read_bytes() == b"1"


@pytest.mark.parametrize("data", [b"", b"bytes"])
def test_a_name_that_another_process_created_is_durable_when_it_is_reported(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    storage.make_folder("folder")
    (tmp_path / "table" / "folder" / "name").write_bytes(data)  # by a process that was killed before its fsync
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    with pytest.raises(FileExistsError):
        storage.put_if_absent("folder/name", data)
    assert synced[-1].endswith("/folder")


def _file_of(path: Path, modified_ms: int) -> None:
    path.write_bytes(b"")
    os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))


def test_a_file_of_another_program_is_deleted_only_if_it_was_modified_when_it_was_seen(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    _file_of(tmp_path / "lock", 5000)
    (tmp_path / ".lock.crc").write_bytes(b"crc")
    assert not storage.delete_if_unmodified("lock", 4999)
    assert storage.delete_if_unmodified("lock", 5000)
    assert not storage.delete_if_unmodified("lock", 5000)
    assert not storage.delete_if_unmodified("absent/lock", 5000)
    assert os.listdir(tmp_path) == []


DELETIONS: dict[str, Callable[[LocalStorage], object]] = {
    "delete": lambda storage: storage.delete("lock"),
    "if unchanged": lambda storage: storage.delete_if_unchanged("lock", b"", reused=True),
    "all if unchanged": lambda storage: storage.delete_all_if_unchanged("", {"lock": b""}),
    "if unmodified": lambda storage: storage.delete_if_unmodified("lock", 5000),
}


@pytest.mark.parametrize("deletion", DELETIONS)
def test_the_checksum_of_a_lock_that_hudi_creates_during_the_deletion_of_another_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deletion: str
) -> None:
    """Hudi sets the permissions of both files, and gives the lock up without deleting it if one is not there."""
    storage = LocalStorage(tmp_path)
    _file_of(tmp_path / "lock", 5000)
    (tmp_path / ".lock.crc").write_bytes(b"before")
    created = []
    calls = {name: getattr(os, name) for name in ("unlink", "rename")}

    def watched(name: str) -> Callable[..., None]:
        def call(*paths: str) -> None:
            calls[name](*paths)
            if not created and not (tmp_path / "lock").exists():
                created.append(name)
                (tmp_path / "lock").write_bytes(b"")
                (tmp_path / ".lock.crc").write_bytes(b"hudi")

        return call

    for name in calls:
        monkeypatch.setattr(os, name, watched(name))
    DELETIONS[deletion](storage)
    assert created
    assert (tmp_path / ".lock.crc").read_bytes() == b"hudi"
    assert (tmp_path / "lock").exists()


def test_a_replacement_waits_for_one_that_has_compared_and_not_replaced_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, other = LocalStorage(tmp_path), LocalStorage(tmp_path)
    storage.put_if_absent("file", b"first")
    replacing = Thread(target=lambda: other.replace("file", b"newest"))
    compare = local.has_content

    def paused(full: str, expected: bytes) -> bool:
        is_it = compare(full, expected)
        replacing.start()
        replacing.join(0.3)
        assert (tmp_path / "file").read_bytes() == b"first"
        return is_it

    monkeypatch.setattr(local, "has_content", paused)
    assert storage.replace_if_unchanged("file", b"second", b"first")
    replacing.join()
    assert storage.read("file") == b"newest"


def test_a_folder_or_link_is_not_deleted_as_a_file_of_another_program(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    (tmp_path / "lock").mkdir()
    assert not storage.delete_if_unmodified("lock", os.stat(tmp_path / "lock").st_mtime_ns // 1_000_000)
    (tmp_path / "link").symlink_to(tmp_path / "lock")
    assert not storage.delete_if_unmodified("link", os.lstat(tmp_path / "link").st_mtime_ns // 1_000_000)
    assert sorted(os.listdir(tmp_path)) == ["link", "lock"]


@pytest.mark.parametrize("third", [False, True])
def test_a_file_that_another_program_creates_during_the_deletion_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, third: bool
) -> None:
    storage = LocalStorage(tmp_path)
    lock = tmp_path / "lock"
    _file_of(lock, 5000)
    rename = os.rename

    def slow(source: str, target: str) -> None:
        _file_of(lock, 6000)
        rename(source, target)
        if third:
            _file_of(lock, 7000)

    monkeypatch.setattr(os, "rename", slow)
    assert not storage.delete_if_unmodified("lock", 5000)
    assert os.listdir(tmp_path) == ["lock"]
    assert lock.stat().st_mtime_ns == (7000 if third else 6000) * 1_000_000


def test_a_file_that_another_program_deletes_during_the_deletion_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    lock = tmp_path / "lock"
    _file_of(lock, 5000)
    rename = os.rename

    def slow(source: str, target: str) -> None:
        lock.unlink()
        rename(source, target)

    monkeypatch.setattr(os, "rename", slow)
    assert not storage.delete_if_unmodified("lock", 5000)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3a://lake/t", "s3://lake/t"),
        ("abfs://c@host/t", "abfss://c@host/t"),
        ("s3://lake/t", "s3://lake/t"),
        ("file:///lake/t", "file:///lake/t"),
        ("hdfs://node/t", "hdfs://node/t"),
        ("/lake/t", "/lake/t"),
    ],
)
def test_spellings_of_an_object_store_are_one_scheme(uri: str, expected: str) -> None:
    assert with_own_scheme(uri) == expected
