"""Uploads of data files: visible as a whole or not at all."""

from __future__ import annotations

import pytest

from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.objects.upload import PART_BYTES
from streaming_lsm.storage.uris import open_storage
from tests.support.s3_server import S3Server


def test_a_file_is_invisible_until_its_writer_ends(objects: Storage) -> None:
    for name, size in (("small", 10), ("large", 3 * PART_BYTES)):
        with objects.create(f"p/{name}") as file:
            for _ in range(10):
                file.write(bytes(size // 10))
                assert objects.names("p") == [other for other in ("small",) if name == "large"]
    assert {entry.name: entry.size for entry in objects.list("p")} == {
        "small": 10,
        "large": 3 * PART_BYTES // 10 * 10,
    }


@pytest.mark.parametrize("size", [10, PART_BYTES + 1, 3 * PART_BYTES])
def test_an_upload_whose_writer_fails_is_aborted(server: S3Server, s3_uri: str, size: int) -> None:
    storage = open_storage(s3_uri)

    def fail() -> None:
        with storage.create("f") as file:
            file.write(bytes(size))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not storage.exists("f")
    left = server.raw("GET", f"{s3_uri.removeprefix('s3://').partition('/')[0]}?uploads")
    assert b"ListMultipartUploadsResult" in left
    assert s3_uri.rpartition("/")[2].encode() not in left
    storage.put_if_absent("f", b"free")


def test_a_part_that_is_refused_for_a_while_is_sent_again(server: S3Server, s3_uri: str) -> None:
    storage = open_storage(s3_uri)
    content = bytes(range(256)) * (PART_BYTES // 64)
    with storage.create("f") as file:
        file.write(content[:-1])
        server.rule("fail", "PUT", "", times=2)
        file.write(content[-1:])
    server.clear_rules()
    assert storage.read("f") == content


def test_an_upload_that_cannot_be_completed_fails_and_shows_nothing(server: S3Server, s3_uri: str) -> None:
    storage = open_storage(s3_uri)
    storage.replace("first", b"")

    def upload() -> None:
        with storage.create("f") as file:
            file.write(bytes(PART_BYTES + 1))
            server.rule("fail", "PUT", "", times=1, status=403, code="AccessDenied")

    with pytest.raises(PermissionError, match="AccessDenied"):
        upload()
    server.clear_rules()
    assert storage.names("") == ["first"]
    left = server.raw("GET", f"{s3_uri.removeprefix('s3://').partition('/')[0]}?uploads")
    assert s3_uri.rpartition("/")[2].encode() not in left


@pytest.mark.parametrize("size", [0, 10, PART_BYTES + 1])
def test_an_existing_file_is_never_replaced(objects: Storage, size: int) -> None:
    objects.put_if_absent("f", b"first")
    with pytest.raises(FileExistsError), objects.create("f") as file:
        file.write(bytes(size))
    assert objects.read("f") == b"first"
