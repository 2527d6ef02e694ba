"""Failures of the system leave the package as errors of its own, which name the file; the table is none the worse.

Storage fails at every fifth call here, from another one on for each kind of table; with LSM_ALL_FAULTS=1 at every call.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CommitUnknown, CorruptFileError, LsmError, SchemaError, StorageError
from streaming_lsm.storage.failures import named_failures
from streaming_lsm.storage.local import LocalStorage
from tests.support.crash_points import sample
from tests.support.faulty_storage import Fault, FaultyStorage
from tests.support.small_tables import SCHEMA, create, rows, shown

FIRST = rows(("a", "DE", 1, 10), ("b", "FR", 1, 20))
SECOND = rows(("a", "DE", 2, 11), ("c", "NL", 2, 30))
THIRD = rows(("d", "DE", 3, 40))
BEFORE = [("a", "DE", 1, 10), ("b", "FR", 1, 20)]
AFTER = [("a", "DE", 2, 11), ("b", "FR", 1, 20), ("c", "NL", 2, 30)]

KINDS: dict[str, dict[str, object]] = {
    "native-logs": {},
    "inline-logs": {"hoodie.write.table.version": 9},
    "copy-on-write": {"hoodie.datasource.write.table.type": "COPY_ON_WRITE"},
    "services": {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 2},
}


def faulty(
    template: Path, root: Path, kind: str, faults: dict[int, Fault], error: int
) -> tuple[LsmTable, FaultyStorage]:
    """A copy of a table with the first batch, whose storage fails at calls of the next one."""
    shutil.copytree(template, root)
    options = {key: value for key, value in KINDS[kind].items() if "compact" in key}
    table = LsmTable(root, {**options, "lsm.read.threads": 1})
    storage = FaultyStorage(table.storage, faults, error)
    table.storage = storage
    return table, storage


WRITES = ("put_if_absent", "replace", "create", "close", "make_folder", "touch")


@pytest.mark.parametrize(
    ("kind", "error"),
    [*((kind, errno.ENOSPC) for kind in KINDS), ("native-logs", errno.EROFS)],
    ids=lambda value: value if isinstance(value, str) else errno.errorcode[value],
)
def test_a_write_that_fails_at_any_point_is_a_named_error_and_the_next_batch_succeeds(
    tmp_path: Path, kind: str, error: int
) -> None:
    template = tmp_path / "template"
    create(template, **KINDS[kind]).upsert(FIRST)
    counted, calls = faulty(template, tmp_path / "counted", kind, {}, error)
    counted.upsert(SECOND)
    numbers = [number for number, (call, _) in enumerate(calls.calls) if error == errno.EROFS or call in WRITES]
    failed: list[LsmError] = []
    named: list[bool] = []
    numbers = list(sample(numbers, list(KINDS).index(kind), 5))
    for number in numbers:
        root = tmp_path / str(number)
        table, storage = faulty(template, root, kind, {number: Fault.FAIL_BEFORE}, error)
        is_decided = False
        try:
            table.upsert(SECOND)
        except LsmError as refusal:
            is_decided = isinstance(refusal, CommitUnknown)  # and so completed by the next batch
            failed.append(refusal)
            named.append(not isinstance(refusal, StorageError) or storage.calls[number][1] in str(refusal))
        found = shown(LsmTable(root))
        assert found in (BEFORE, AFTER)
        LsmTable(root).upsert(THIRD)
        assert shown(LsmTable(root)) == sorted([*(AFTER if is_decided else found), ("d", "DE", 3, 40)])
    assert len(failed) > len(numbers) // 3
    assert all(named)


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes: the kernel refuses as if there were no room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kind", ["native-logs", "inline-logs", "copy-on-write"])
@pytest.mark.parametrize("size", [0, 100, 1500, 4096, 30_000])
def test_a_file_that_the_kernel_cuts_short_is_named_and_leaves_no_trace(tmp_path: Path, kind: str, size: int) -> None:
    create(tmp_path / "table", **KINDS[kind]).upsert(FIRST)
    count = 20_000
    keys = pa.array([f"{number * 7919 % count:05}" for number in range(count)])
    large = pa.table([keys, ["DE"] * count, range(count), range(count)], schema=SCHEMA)
    with files_up_to(size), pytest.raises(StorageError, match=r"(?s)free some.*"):
        LsmTable(tmp_path / "table").upsert(large)
    assert shown(LsmTable(tmp_path / "table")) == BEFORE
    LsmTable(tmp_path / "table").upsert(SECOND)
    assert shown(LsmTable(tmp_path / "table")) == AFTER


def test_a_table_where_there_is_no_room_is_not_created_and_the_file_is_named(tmp_path: Path) -> None:
    with files_up_to(100), pytest.raises(StorageError, match=r"hoodie\.properties: File too large: free some room"):
        create(tmp_path / "table")
    create(tmp_path / "table").upsert(FIRST)
    assert shown(LsmTable(tmp_path / "table")) == BEFORE


@pytest.mark.parametrize(("name", "advice"), [("x" * 300, "give a shorter path"), ("loop", "symbolic link")])
def test_a_path_that_the_system_cannot_follow_is_named(tmp_path: Path, name: str, advice: str) -> None:
    os.symlink(tmp_path / "loop", tmp_path / "loop")
    for use in (lambda: LsmTable(tmp_path / name), lambda: create(tmp_path / name)):
        with pytest.raises(StorageError, match=advice) as found:
            use()
        assert name in str(found.value)


@pytest.mark.parametrize("mark", ["_hoodie_is_deleted", "_lsm_delete", "_lsm_tombstone"])
def test_a_mark_of_deletes_that_is_a_number_is_refused_by_name(tmp_path: Path, mark: str) -> None:
    table = create(tmp_path / "table")
    table.upsert(FIRST)
    for numbers in (pa.array([1, 0]), pa.array(["true", "false"])):
        with pytest.raises(SchemaError, match=f"{mark}.*{numbers.type}"):
            table.upsert(SECOND.append_column(mark, numbers))
    assert shown(table) == BEFORE


@pytest.mark.parametrize(("mark", "kind"), [("_hoodie_is_deleted", pa.int64()), ("_hoodie_operation", pa.int64())])
def test_a_table_whose_rows_could_not_be_told_from_deletes_is_not_created(
    tmp_path: Path, mark: str, kind: pa.DataType
) -> None:
    with pytest.raises(SchemaError, match=f"{mark}.*int64"):
        create(tmp_path / "table", SCHEMA.append(pa.field(mark, kind)))
    assert not (tmp_path / "table").exists()


def deep() -> None:
    deep()


@pytest.mark.parametrize(
    ("failure", "becomes", "said"),
    [
        (lambda: deep(), CorruptFileError, "nested too deeply"),
        (lambda: pa.array(["a"]).cast(pa.int64()), SchemaError, "Failed to parse"),
        (lambda: pa.array([1, "a"]), SchemaError, "a type or a value"),
        (lambda: LocalStorage("/proc").read("1/no-such-file"), StorageError, "/proc/1/no-such-file"),
        (lambda: os.rename("/dev/shm/no-such", "/dev/shm/other"), StorageError, "no-such -> /dev/shm/other"),
        (lambda: bytearray(1 << 62), StorageError, "not enough memory"),
    ],
    ids=["recursion", "value", "type", "file", "two-files", "memory"],
)
def test_a_failure_that_leaves_the_package_has_a_name(failure: object, becomes: type[LsmError], said: str) -> None:
    assert callable(failure)
    with pytest.raises(becomes, match=said), named_failures():
        failure()
