"""Processes that are stopped, and requests that arrive late, between a look at an object and its deletion."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from streaming_lsm.errors import Fenced
from streaming_lsm.lock.heartbeat import Claim, heartbeat_path
from streaming_lsm.lock.lock import LOCK_FILE, LockWait, TableLock
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.objects.tombstone import Tombstone
from streaming_lsm.storage.uris import open_storage
from tests.support.raw_objects import raw_object
from tests.support.s3_server import S3Server

LEASE_MS = 300
WAIT = LockWait(wait_ms=20_000, pause_ms=20, longest_ms=100)
INSTANT = "20261121080801217"
# Stops itself like a process whose machine stands still, and goes on when it is told.
CHILD = f"""
import os, signal, sys
from streaming_lsm.errors import Fenced
from streaming_lsm.lock.heartbeat import Claim
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.uris import open_storage

storage = open_storage(sys.argv[1])
lock = TableLock(storage, "stopped", {LEASE_MS}, Runtime())
lock.acquire()
claim = Claim(storage, "{INSTANT}", lock.owner)
os.kill(os.getpid(), signal.SIGSTOP)
claim.delete(runs_again=True)
claim.delete()
lock.release()
try:
    claim.renew()
    print("renewed")
except Fenced:
    print("fenced")
"""


@pytest.fixture
def s3(s3_uri: str, server: S3Server) -> Storage:
    storage = open_storage(s3_uri)
    storage.replace("first", b"")
    return storage


def table_lock(storage: Storage) -> TableLock:
    return TableLock(storage, "taker", LEASE_MS, Runtime(), WAIT)


def test_a_process_that_was_stopped_with_lock_and_claim_deletes_neither_of_its_successor(s3: Storage) -> None:
    root = Path(__file__).parents[4]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen([sys.executable, "-c", CHILD, s3.uri], stdout=subprocess.PIPE, env=environment) as child:
        try:
            os.waitpid(child.pid, os.WUNTRACED)
            before = s3.read(heartbeat_path(INSTANT))
            lock = table_lock(s3)
            lock.acquire()
            assert s3.delete_if_unchanged(heartbeat_path(INSTANT), before, reused=True)
            claim = Claim(s3, INSTANT, lock.owner)
            os.kill(child.pid, signal.SIGCONT)
            assert child.communicate(timeout=60)[0] == b"fenced\n"
        finally:
            child.kill()
    lock.verify()
    claim.verify()
    lock.release()
    assert not s3.exists(LOCK_FILE)


def test_a_release_that_arrives_after_a_take_over_does_not_release(s3: Storage, server: S3Server) -> None:
    stopped = TableLock(open_storage(s3.uri), "stopped", LEASE_MS, Runtime())
    stopped.acquire()
    content = s3.read(LOCK_FILE)
    server.rule("hold", "PUT", "/lock")
    releasing = threading.Thread(target=stopped.release)
    releasing.start()
    server.wait_held()
    assert s3.replace_if_unchanged(LOCK_FILE, b"taker", content)
    server.release()
    releasing.join()
    assert s3.read(LOCK_FILE) == b"taker"


def test_a_deletion_that_arrives_late_finds_what_it_is_to_delete(s3: Storage, server: S3Server) -> None:
    s3.put_if_absent("plan", b"old")
    bucket = s3.uri.removeprefix("s3://").partition("/")[0]
    server.rule("hold", "POST", f"/{bucket}?delete")
    deleting = threading.Thread(target=lambda: open_storage(s3.uri).delete_if_unchanged("plan", b"old"))
    deleting.start()
    server.wait_held()
    assert (s3.exists("plan"), s3.names("")) == (False, ["first"])
    with pytest.raises(FileExistsError):
        s3.put_if_absent("plan", b"new")
    assert not s3.delete_if_unchanged("plan", b"old"), "only the process that made the tombstone deletes it"
    server.release()
    deleting.join()
    s3.put_if_absent("plan", b"new")
    assert s3.read("plan") == b"new"


def test_a_tombstone_of_a_dead_process_stays_absent_and_is_never_written_over(s3: Storage, server: S3Server) -> None:
    s3.put_if_absent("plan", b"old")
    bucket = s3.uri.removeprefix("s3://").partition("/")[0]
    server.rule("drop", "POST", f"/{bucket}?delete")
    assert s3.delete_if_unchanged("plan", b"old")
    left = raw_object(s3.uri, "plan")
    assert Tombstone.decode(left) is Tombstone.DELETED
    for storage in (s3, open_storage(s3.uri)):
        assert (storage.exists("plan"), storage.names("")) == (False, ["first"])
        with pytest.raises(FileExistsError):
            storage.put_if_absent("plan", b"new")
    assert raw_object(s3.uri, "plan") == left


def test_a_vacated_path_can_be_used_though_its_process_died(s3: Storage, server: S3Server) -> None:
    other = open_storage(s3.uri)
    other.put_if_absent("lock", b"dead")
    server.requests()
    assert other.delete_if_unchanged("lock", b"dead", reused=True)
    assert not [request for request in server.requests() if request.startswith(("DELETE", "POST"))]
    s3.put_if_absent("lock", b"living")
    assert not other.delete_if_unchanged("lock", b"dead", reused=True)
    assert s3.read("lock") == b"living"


def test_a_create_over_a_vacated_path_that_arrives_late_changes_nothing(s3: Storage, server: S3Server) -> None:
    s3.put_if_absent("lock", b"first")
    assert s3.delete_if_unchanged("lock", b"first", reused=True)
    failed: list[Exception] = []

    def late() -> None:
        try:
            s3.put_if_absent("lock", b"late")
        except FileExistsError as error:
            failed.append(error)

    server.rule("hold", "PUT", "/lock")
    creating = threading.Thread(target=late)
    creating.start()
    server.wait_held()
    other = open_storage(s3.uri)
    other.put_if_absent("lock", b"other")
    server.release()
    creating.join()
    assert other.read("lock") == b"other"
    assert len(failed) == 1


def test_a_renewal_that_arrives_after_a_take_over_keeps_the_takers_content(s3: Storage, server: S3Server) -> None:
    s3.put_if_absent("lock", b"stopped")
    server.rule("hold", "PUT", "/lock")
    renewing = threading.Thread(target=s3.touch, args=("lock",))
    renewing.start()
    server.wait_held()
    assert open_storage(s3.uri).replace_if_unchanged("lock", b"taker", b"stopped")
    server.release()
    renewing.join()
    assert s3.read("lock") == b"taker"


def test_a_claim_that_was_deleted_is_not_renewed(s3: Storage) -> None:
    lock = table_lock(open_storage(s3.uri))
    lock.acquire()
    claim = Claim(s3, INSTANT, lock.owner)
    claim.renew()
    assert open_storage(s3.uri).delete_if_unchanged(heartbeat_path(INSTANT), lock.owner.encode())
    s3.touch("first")
    with pytest.raises(Fenced):
        claim.renew()
    with pytest.raises(FileNotFoundError):
        s3.touch(heartbeat_path(INSTANT))
    assert not s3.exists(heartbeat_path(INSTANT))
