"""Objects that other programs leave in a table's folder, or see there."""

from __future__ import annotations

from streaming_lsm.storage.objects.probe import PROBE_NAME
from streaming_lsm.storage.objects.tombstone import TOMBSTONE_BYTES, Tombstone
from streaming_lsm.storage.uris import open_storage
from tests.support.raw_objects import raw_keys, raw_object
from tests.support.s3_server import S3Server


def test_a_folder_marker_of_hadoop_is_a_folder(server: S3Server, s3_uri: str) -> None:
    storage = open_storage(s3_uri)
    root = s3_uri.removeprefix("s3://")
    for folder in ("a/", "a/empty/"):
        server.raw("PUT", f"{root}/{folder}", b"")
    storage.put_if_absent("a/f", b"x")
    assert [(entry.path, entry.is_dir) for entry in storage.list("a")] == [("a/empty", True), ("a/f", False)]
    assert storage.names("a/empty") == []
    assert storage.names("") == ["a"]


def test_a_file_of_the_size_of_a_tombstone_is_a_file(s3_uri: str) -> None:
    storage = open_storage(s3_uri)
    content = Tombstone.VACANT.encode().replace(b"lsm.absent", b"lsm.Absent")
    assert len(content) == TOMBSTONE_BYTES
    storage.put_if_absent("f", content)
    assert storage.exists("f")
    assert (storage.names(""), storage.read("f")) == (["f"], content)


def test_what_stays_of_a_deletion_is_what_the_caller_asked_for(s3_uri: str) -> None:
    storage = open_storage(s3_uri)
    for path in ("lock", "plan", "empty"):
        storage.put_if_absent(path, b"" if path == "empty" else b"x")
        storage.delete_if_unchanged(path, b"" if path == "empty" else b"x", reused=path == "lock")
    assert raw_keys(s3_uri) == [PROBE_NAME, "lock"]
    assert Tombstone.decode(raw_object(s3_uri, "lock")) is Tombstone.VACANT


def test_a_folder_of_tombstones_is_absent(s3_uri: str) -> None:
    storage = open_storage(s3_uri)
    for name in ("f", "g"):
        storage.put_if_absent(f"a/{name}", b"x")
        storage.delete_if_unchanged(f"a/{name}", b"x", reused=True)
    assert not storage.exists("a")
    storage.delete_folder("a")
    assert raw_keys(s3_uri) == [PROBE_NAME]


def test_a_tombstone_is_read_once_for_all_listings(server: S3Server, s3_uri: str) -> None:
    storage, other = open_storage(s3_uri), open_storage(s3_uri)
    storage.put_if_absent("a/lock", b"x")
    storage.put_if_absent("a/f", b"x")
    storage.delete_if_unchanged("a/lock", b"x", reused=True)
    assert other.names("a") == ["f"]
    server.requests()
    assert other.names("a") == ["f"]
    assert len(server.requests()) == 1
    storage.put_if_absent("a/lock", b"again")
    assert other.names("a") == ["f", "lock"]
    storage.delete_if_unchanged("a/lock", b"again", reused=True)
    assert other.names("a") == ["f"]


def test_tombstones_differ_from_each_other() -> None:
    assert len({Tombstone.VACANT.encode() for _ in range(10)}) == 10
    assert {Tombstone.decode(kind.encode()) for kind in Tombstone} == set(Tombstone)
    assert Tombstone.decode(b"") is None
