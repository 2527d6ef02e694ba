"""The option names a provider that can be used for the table, or there is a named error before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_lsm import LockProvider, LsmTable
from streaming_lsm.config import LOCK_PROVIDER, Options
from streaming_lsm.errors import ConfigError, LockTimeout
from streaming_lsm.lock.lock import LOCK_FILE, TableLock
from streaming_lsm.lock.providers.choice import ChosenProvider, choose_provider
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.uris import open_storage
from tests.support.lock_providers import Remembering
from tests.support.small_tables import OPTIONS, SCHEMA, create, rows
from tests.support.writers import files_below

PACKAGE = "org.apache.hudi.client.transaction.lock."
PROVIDER = LOCK_PROVIDER.key
PATH, EXPIRE = "hoodie.write.lock.filesystem.path", "hoodie.write.lock.filesystem.expire"
VALIDITY, RENEW = "hoodie.write.lock.storage.validity.timeout.secs", "hoodie.write.lock.storage.renew.interval.secs"
OWN = "tests.support.lock_providers:"


def chosen(root: Path | str, **options: object) -> ChosenProvider | None:
    return choose_provider(open_storage(root), Options(options), Runtime())


@pytest.mark.parametrize("prefix", ["", PACKAGE])
def test_the_names_of_hudis_classes_are_taken_with_and_without_their_package(tmp_path: Path, prefix: str) -> None:
    assert chosen(tmp_path, **{PROVIDER: f"{prefix}InProcessLockProvider"}) is None
    files = chosen(tmp_path, **{PROVIDER: f"{prefix}FileSystemBasedLockProvider"})
    assert files is not None
    assert (files.shared is not None, files.new) == (True, None)
    lease = chosen(tmp_path, **{PROVIDER: f"{prefix}StorageBasedLockProvider"})
    assert lease is not None
    assert (lease.shared, lease.new is not None, lease.renew_ms) == (None, True, 30_000)


@pytest.mark.parametrize(
    ("options", "renew_ms"),
    [
        ({}, 60_000),
        ({PROVIDER: "FileSystemBasedLockProvider"}, 60_000),
        ({PROVIDER: "FileSystemBasedLockProvider", EXPIRE: 1}, 20_000),
        ({PROVIDER: "FileSystemBasedLockProvider", EXPIRE: 1, PATH: "/tmp/locks"}, 20_000),
        ({PROVIDER: "FileSystemBasedLockProvider", EXPIRE: 10}, 60_000),
        ({PROVIDER: "StorageBasedLockProvider"}, 30_000),
    ],
)
def test_what_a_transaction_holds_is_renewed_before_it_expires(
    tmp_path: Path, options: dict[str, object], renew_ms: int
) -> None:
    assert create(tmp_path, **options).transaction()._table.renew_ms == renew_ms


def test_no_provider_is_chosen_by_default(tmp_path: Path) -> None:
    assert chosen(tmp_path) is None


@pytest.mark.parametrize("own_path", ["{root}/.hoodie", "file://{root}/.hoodie/", "", " "])
def test_the_folder_of_the_lease_gets_no_second_lock_file(tmp_path: Path, own_path: str) -> None:
    found = chosen(tmp_path, **{PROVIDER: "FileSystemBasedLockProvider", PATH: own_path.format(root=tmp_path)})
    assert found is not None
    assert found.new is None
    other = chosen(tmp_path, **{PROVIDER: "FileSystemBasedLockProvider", PATH: str(tmp_path / "locks"), EXPIRE: 3})
    assert other is not None
    assert (other.new is not None, other.shared) == (True, None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({PROVIDER: f"{PACKAGE}ZookeeperBasedLockProvider"}, "locks of ZooKeeper are not built: set FileSystem"),
        ({PROVIDER: "ZookeeperBasedImplicitBasePathLockProvider"}, "locks of ZooKeeper are not built"),
        (
            {PROVIDER: "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider"},
            "locks of the Hive metastore are not built: set FileSystem",
        ),
        ({PROVIDER: "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider"}, "locks of DynamoDB are not"),
        ({PROVIDER: "com.example.FileSystemBasedLockProvider"}, "expected one of InProcessLockProvider, FileSystem"),
        ({PROVIDER: "FileSystemLockProvider"}, "an implementation of your own as module:Class"),
        ({PROVIDER: ""}, "expected one of"),
        ({PROVIDER: "my.module:Class:Other"}, "expected one of"),
        ({PROVIDER: f"{OWN}Absent"}, "has no class or function 'Absent'"),
        ({PROVIDER: f"{OWN}NO_CLASS"}, "has no class or function 'NO_CLASS'"),
        ({PROVIDER: "tests.no_such_module:Lock"}, r"module 'tests.no_such_module' cannot be imported \(ModuleNotFound"),
        ({PROVIDER: f"{OWN}takes_nothing"}, "it is called with storage, options and owner"),
        ({PROVIDER: "FileSystemBasedLockProvider", EXPIRE: -1}, f"{EXPIRE}=-1: expected at least 0"),
        ({PROVIDER: "FileSystemBasedLockProvider", EXPIRE: "soon"}, EXPIRE),
        ({PROVIDER: "FileSystemBasedLockProvider", PATH: "hdfs://cluster/locks"}, "no storage for scheme 'hdfs'"),
        ({PROVIDER: "FileSystemBasedLockProvider", PATH: "memory://locks/x"}, "is in an object store, where Hudi's"),
        ({PATH: "/locks"}, f"{PATH} is an option of FileSystemBasedLockProvider, but {PROVIDER} is not set"),
        ({PROVIDER: "StorageBasedLockProvider", EXPIRE: 1}, f"{PROVIDER} is StorageBasedLockProvider: set that, too"),
        ({PROVIDER: "StorageBasedLockProvider", VALIDITY: 5}, f"{VALIDITY}=5: expected at least 10"),
        ({PROVIDER: "StorageBasedLockProvider", RENEW: 0}, f"{RENEW}=0: expected at least 1"),
        ({PROVIDER: "StorageBasedLockProvider", VALIDITY: 100}, f"{VALIDITY}=100 is less than ten times {RENEW}=30"),
    ],
)
def test_a_wrong_name_or_value_is_an_error_before_anything_is_written(
    tmp_path: Path, options: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        LsmTable.create(tmp_path / "new", SCHEMA, {**OPTIONS, **options})
    assert not (tmp_path / "new").exists()
    create(tmp_path / "table")
    before = files_below(tmp_path)
    with pytest.raises(ConfigError, match=said):
        LsmTable(tmp_path / "table", options).upsert(rows(("a", "nl", 1, 1)))
    assert files_below(tmp_path) == before


def test_an_incomplete_implementation_is_an_error_that_names_what_is_missing(tmp_path: Path) -> None:
    create(tmp_path)
    before = files_below(tmp_path)
    with pytest.raises(ConfigError, match=r"Incomplete: it has no is_held, renew, release, holder; see streaming_lsm"):
        LsmTable(tmp_path, {PROVIDER: f"{OWN}Incomplete"}).upsert(rows(("a", "nl", 1, 1)))
    assert files_below(tmp_path) == before


def test_an_implementation_may_have_the_methods_of_another_object(tmp_path: Path) -> None:
    Remembering.forget()
    create(tmp_path, **{PROVIDER: f"{OWN}Wrapped"}).upsert(rows(("a", "nl", 1, 1)))
    assert "release" in Remembering.calls


def test_hudis_file_lock_is_refused_for_a_table_in_an_object_store(memory_uri: str) -> None:
    with pytest.raises(ConfigError, match=r"is in an object store, .* set StorageBasedLockProvider for all writers"):
        LsmTable.create(memory_uri, SCHEMA, {**OPTIONS, PROVIDER: "FileSystemBasedLockProvider"})
    assert list(open_storage(memory_uri).walk("")) == []


def test_an_implementation_of_the_users_own_is_held_around_each_critical_section(tmp_path: Path) -> None:
    Remembering.forget()
    table = create(tmp_path, **{PROVIDER: f"{OWN}Remembering"})
    assert isinstance(Remembering(table.storage, table.options, table.transaction()._lock.owner), LockProvider)
    table.upsert(rows(("a", "nl", 1, 1)))
    order = [call for call in Remembering.calls if call != "is_held"]
    assert order == ["try_acquire", "release"] * (len(order) // 2)
    assert len(order) >= 4
    first, last = Remembering.calls.index("release"), len(Remembering.calls) - 1
    assert "is_held" in Remembering.calls[first:last]  # before the decision
    assert Remembering.holders == {}


def test_a_late_release_of_an_attempt_that_failed_does_not_release_the_lock_of_the_next(tmp_path: Path) -> None:
    Remembering.forget()
    storage = create(tmp_path).storage
    held = TableLock(storage, "query", 1000, Runtime(), provider=chosen(tmp_path, **{PROVIDER: f"{OWN}Remembering"}))
    Remembering.holders[storage.uri] = "another"
    with pytest.raises(LockTimeout):
        held.acquire()
    failed = held._content
    Remembering.forget()
    held.acquire()
    assert not storage.delete_if_unchanged(LOCK_FILE, failed, reused=True)
    held.verify()
    held.release()
