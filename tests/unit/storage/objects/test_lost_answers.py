"""Answers that do not arrive: what was done is found out by reading, and counts as one's own only if it is."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.uris import open_storage
from tests.support.s3_server import S3Server


@pytest.fixture
def s3(s3_uri: str, server: S3Server) -> Storage:
    """A storage whose store has been checked, so that the next requests are those of the test."""
    storage = open_storage(s3_uri)
    storage.replace("first", b"")
    server.requests()
    return storage


@pytest.mark.parametrize("data", [b"content", b""])
@pytest.mark.parametrize("do", ["lose", "drop", "fail"])
def test_a_create_whose_answer_is_lost_is_ones_own(s3: Storage, server: S3Server, do: str, data: bytes) -> None:
    server.rule(do, "PUT", "/f")
    s3.put_if_absent("f", data)
    assert s3.read("f") == data


@pytest.mark.parametrize("do", ["lose", "drop"])
def test_a_create_with_the_content_of_another_is_not_ones_own_when_its_answer_is_lost(
    s3: Storage, server: S3Server, do: str
) -> None:
    open_storage(s3.uri).put_if_absent("f", b"same")
    server.rule(do, "PUT", "/f")
    with pytest.raises(FileExistsError):
        s3.put_if_absent("f", b"same")


@pytest.mark.parametrize("do", ["lose", "drop", "fail"])
def test_a_swap_whose_answer_is_lost_is_ones_own(s3: Storage, server: S3Server, do: str) -> None:
    s3.put_if_absent("f", b"old")
    server.rule(do, "PUT", "/f")
    assert s3.replace_if_unchanged("f", b"new", b"old")
    assert s3.read("f") == b"new"


def test_a_swap_that_another_one_preceded_is_refused_when_its_answer_is_lost(s3: Storage, server: S3Server) -> None:
    s3.put_if_absent("f", b"old")
    open_storage(s3.uri).replace_if_unchanged("f", b"new", b"old")
    server.rule("lose", "PUT", "/f")
    assert not s3.replace_if_unchanged("f", b"new", b"old")


@pytest.mark.parametrize("reused", [False, True])
@pytest.mark.parametrize("do", ["lose", "drop", "fail"])
def test_a_deletion_whose_answer_is_lost_took_effect_once(s3: Storage, server: S3Server, do: str, reused: bool) -> None:
    s3.put_if_absent("f", b"old")
    server.rule(do, "PUT", "/f")
    assert s3.delete_if_unchanged("f", b"old", reused=reused)
    assert not s3.exists("f")
    assert not s3.delete_if_unchanged("f", b"old", reused=reused)


@pytest.mark.parametrize("do", ["lose", "drop", "fail"])
def test_a_renewal_whose_answer_is_lost_keeps_the_content(s3: Storage, server: S3Server, do: str) -> None:
    s3.put_if_absent("f", b"content")
    server.rule(do, "PUT", "/f")
    s3.touch("f")
    assert s3.read("f") == b"content"


@pytest.mark.parametrize("do", ["lose", "drop", "fail"])
def test_reads_and_listings_are_repeated(s3: Storage, server: S3Server, do: str) -> None:
    s3.put_if_absent("folder/f", b"content")
    server.rule(do, "GET", "/f", times=2)
    assert s3.read("folder/f") == b"content"
    server.rule(do, "HEAD", "/f", times=2)
    assert s3.exists("folder/f")
    bucket, _, prefix = s3.uri.removeprefix("s3://").partition("/")
    server.rule(do, "GET", f"/{bucket}?delimiter=%2F&list-type=2&prefix={prefix}%2Ffolder%2F", times=2)
    assert s3.names("folder") == ["f"]
    server.clear_rules()


@pytest.mark.parametrize("size", [100, 3 << 20])
def test_an_answer_that_breaks_off_is_asked_for_again(s3: Storage, server: S3Server, size: int) -> None:
    content = random.Random(size).randbytes(size)
    s3.replace("f", content)
    server.requests()
    server.rule("half", "GET", "/f", times=1)
    assert s3.read("f") == content
    assert len(server.requests()) == 2
    server.rule("half", "GET", "/f", times=1)
    with s3.open_input("f") as file:
        server.rule("half", "GET", "/f", times=1)
        assert file.read() == content
    server.clear_rules()


def test_a_store_that_fails_all_the_time_is_an_error_that_names_the_object(s3: Storage, server: S3Server) -> None:
    server.rule("fail", "GET", "/f", times=100)
    with pytest.raises(OSError, match=r"SlowDown.*/f"):
        s3.read("f")
    server.clear_rules()


def test_a_small_change_is_one_request_if_nobody_interferes(s3: Storage, server: S3Server) -> None:
    steps: list[tuple[Callable[[], object], list[str]]] = [
        (lambda: s3.put_if_absent("lock", b"mine"), ["PUT"]),
        (lambda: s3.touch("lock"), ["PUT"]),
        (lambda: s3.replace_if_unchanged("lock", b"sealed", b"mine"), ["PUT"]),
        (lambda: s3.delete_if_unchanged("lock", b"sealed", reused=True), ["PUT"]),
        (lambda: s3.put_if_absent("lock", b"mine"), ["PUT"]),
        (lambda: s3.delete_if_unchanged("lock", b"mine"), ["PUT", "POST"]),
        (lambda: s3.read("first"), ["GET"]),
        (lambda: s3.delete("first"), ["POST"]),
    ]
    for step, expected in steps:
        step()
        assert [request.partition(" ")[0] for request in server.requests()] == expected
