"""Stores that cannot be used: an error that names what to do, before anything is written."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from streaming_lsm.errors import ConfigError, LsmError, StorageError
from streaming_lsm.storage.objects.connection import connect
from streaming_lsm.storage.objects.failures import failure
from streaming_lsm.storage.uris import open_storage
from tests.support.s3_server import CARELESS, S3Server


@pytest.mark.parametrize(
    ("status", "code", "named"),
    [
        (404, "NoSuchBucket", "no such bucket: create it"),
        (403, "AccessDenied", "do not permit this"),
        (400, "ExpiredToken", "expired: renew them"),
        (403, "InvalidAccessKeyId", "correct AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", "correct AWS_SECRET_ACCESS_KEY"),
        (403, "RequestTimeTooSkewed", "clock of this machine"),
        (400, "AuthorizationHeaderMalformed", "another region: correct AWS_REGION"),
        (301, "PermanentRedirect", "another region: correct AWS_REGION"),
    ],
)
def test_a_store_that_refuses_is_named_with_the_remedy_before_anything_is_written(
    server: S3Server, s3_uri: str, status: int, code: str, named: str
) -> None:
    storage = open_storage(s3_uri)
    server.requests()
    server.rule("fail", "PUT", "/.lsm-probe", status=status, code=code)
    with pytest.raises((StorageError, PermissionError), match=named) as refused:
        storage.put_if_absent("f", b"x")
    assert storage.uri in str(refused.value)
    assert [request.rpartition("/")[2] for request in server.requests()] == [".lsm-probe"]
    storage.put_if_absent("f", b"x")
    assert storage.names("") == ["f"], "the next call checks again; the probe is not listed"


def test_a_missing_bucket_is_not_a_missing_file(server: S3Server) -> None:
    storage = open_storage("s3://no-such-bucket/table")
    for call in (storage.read, storage.list, storage.open_input, lambda path: list(storage.walk(path))):
        with pytest.raises(StorageError, match=r"s3://no-such-bucket.*create it"):
            call("f")


def test_a_store_without_conditional_puts_is_refused_before_the_first_change(server: S3Server) -> None:
    storage = open_storage(f"s3://{CARELESS}/table")
    for change in (
        lambda: storage.put_if_absent("f", b"x"),
        lambda: storage.replace("f", b"x"),
        lambda: storage.delete("f"),
        lambda: storage.touch("f"),
        lambda: storage.create("f").__enter__(),
        lambda: storage.replace_if_unchanged("f", b"x", b"y"),
        lambda: storage.delete_folder("f"),
    ):
        with pytest.raises(ConfigError, match=rf"s3://{CARELESS}/table.*If-None-Match"):
            change()
    assert list(storage.walk("")) == []


def test_the_check_is_made_once_per_process_and_root(server: S3Server, s3_uri: str) -> None:
    server.requests()
    for path in ("a", "b"):
        open_storage(s3_uri).put_if_absent(path, b"x")
    open_storage(s3_uri).read("a")
    assert sum(".lsm-probe" in request for request in server.requests()) <= 3


def test_an_endpoint_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch, server: S3Server) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(OSError, match=r"cannot be reached.*AWS_ENDPOINT_URL.*127.0.0.1:1"):
        open_storage("s3://unreachable/table").read("f")


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        ("s3:/bucket", r"s3://bucket/path"),
        ("s3://", r"s3://bucket/path"),
        ("s3:///path", r"s3://bucket/path"),
        ("s3://bucket/a//b", "empty parts"),
        ("s3://bucket/a/../b", "empty parts"),
        ("s3://bucket/a?versionId=1", "%3F"),
        ("abfss://container:secret@account.dfs.core.windows.net/x", "credentials"),
        ("az://container/x", "AZURE_STORAGE_ACCOUNT_NAME"),
    ],
)
def test_a_uri_that_names_no_store_is_refused(monkeypatch: pytest.MonkeyPatch, uri: str, named: str) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(ConfigError, match=named):
        open_storage(uri)


@pytest.mark.parametrize(
    ("uri", "same"),
    [
        ("s3a://bucket/a/b/", "s3://bucket/a/b"),
        ("S3://bucket", "s3://bucket"),
        ("gs://bucket/a%20b", "gs://bucket/a%20b"),
        ("abfss://c@account.dfs.core.windows.net/a", "abfss://c@account.dfs.core.windows.net/a"),
        ("memory://x/a b", "memory://x/a%20b"),
    ],
)
def test_a_uri_has_one_form(server: S3Server, uri: str, same: str) -> None:
    assert open_storage(uri).uri == open_storage(same).uri == same


def test_a_missing_client_is_named_with_the_command_that_installs_it() -> None:
    program = (
        "import sys\n"
        "sys.modules['obstore'] = None\n"
        "from streaming_lsm.storage.uris import open_storage\n"
        "open_storage('/lake/orders')\n"
        "open_storage('s3://bucket/table')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    said = ended.stderr.splitlines()[-1]
    assert "MissingPackage: a table at s3:// needs the package obstore" in said, ended.stderr
    assert "[object-store]" in said


def test_a_forked_child_is_refused_and_its_parent_goes_on(server: S3Server, s3_uri: str) -> None:
    program = (
        "import os, sys\n"
        "from streaming_lsm.errors import StorageError\n"
        "from streaming_lsm.storage.uris import open_storage\n"
        "storage = open_storage(sys.argv[1])\n"
        "storage.put_if_absent('f', b'x')\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    for call in (lambda: storage.read('f'), lambda: open_storage('s3://other/table')):\n"
        "        try:\n"
        "            call()\n"
        "        except StorageError as error:\n"
        "            print(error, flush=True)\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "print(storage.read('f'))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    command = [sys.executable, "-c", program, s3_uri]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    *refused, last = ended.stdout.splitlines()
    assert (ended.returncode, last) == (0, "b'x'"), ended.stderr
    assert len([line for line in refused if "'spawn' or 'forkserver'" in line]) == 2


def test_credentials_in_a_uri_are_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="environment") as refused:
        open_storage("s3://AKIAKEY:sEcReT@bucket/table")
    assert "AKIAKEY" not in str(refused.value)
    assert "sEcReT" not in str(refused.value)


def test_credentials_are_neither_printed_nor_pickled_nor_logged(
    server: S3Server, s3_uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    storage = open_storage(s3_uri)
    said = [repr(storage), repr(connect("s3", "lake")), repr(pickle.dumps(storage)), storage.uri]
    server.rule("fail", "PUT", "/.lsm-probe", status=403, code="InvalidAccessKeyId")
    with pytest.raises(LsmError) as refused:
        storage.put_if_absent("f", b"x")
    said += traceback.format_exception(refused.value)
    for secret in (os.environ["AWS_SECRET_ACCESS_KEY"], os.environ["AWS_ACCESS_KEY_ID"]):
        assert secret not in "\n".join(said) + caplog.text


def test_signatures_and_users_in_the_clients_messages_are_left_out() -> None:
    text = "Error performing GET https://user:pw@host/c/f?sig=SECRET&se=1 in 1ms - Server returned 500\nmore SECRET"
    said = str(failure("az://c/f", OSError(text)))
    assert "SECRET" not in said
    assert "pw" not in said
    assert "https://host/c/f" in said
