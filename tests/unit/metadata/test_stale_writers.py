"""A driver is stopped in a change of the metadata table, others take over, and then it goes on.

It is stopped before each of its calls that deletes or creates a file there. The metadata table that the others made
stays whole: it agrees with the folders.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CommitConflict, Fenced
from streaming_lsm.format.metadata.record_index import shards_of
from streaming_lsm.metadata.file_slices import METADATA_TABLE
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from tests.support.faulty_storage import Killed
from tests.support.interleaving import Driver, Work
from tests.support.metadata_tables import ENABLED, assert_settled, has_metadata_table
from tests.support.service_tables import Model, grown, reopened
from tests.support.small_tables import OPTIONS as SMALL
from tests.support.small_tables import SCHEMA, Row, rows, shown

OLD: dict[str, object] = {"hoodie.write.table.version": 9, "hoodie.table.storage.layout": "default"}
VERSIONS = pytest.mark.parametrize("version", [{}, OLD], ids=["native", "inline"])
# It has no place for a token; readers need it only if there is no base file.
PLACEHOLDER = f"files/.files-0000-0_{'0' * 17}.log.1_0-0-0"
OTHER: Row = ("other", "nl", 9000, 2)

Call = tuple[str, str]
Copies = Callable[[], Path]


def compact(table: LsmTable) -> object:
    return table.compact()


def only_enter(table: LsmTable) -> object:
    with table.transaction():
        return None


def upsert_other(table: LsmTable) -> object:
    return table.upsert(rows(OTHER))


def calls_of(root: Path, work: Work, **options: object) -> list[Call]:
    driver = Driver(root, work, **options)
    assert driver.error is None
    return driver.calls


def numbers(calls: list[Call], method: str, ending: str = "") -> list[int]:
    """Numbers of the calls that change a file of the metadata table."""
    found = [
        number
        for number, (name, path) in enumerate(calls)
        if name.startswith(method) and path.startswith(METADATA_TABLE) and path.endswith(ending)
    ]
    assert found
    return found


def copies(root: Path) -> Copies:
    return lambda: Path(shutil.copytree(root, root.parent / f"copy-{len(list(root.parent.iterdir()))}"))


def with_dead_compaction(folder: Path, version: dict[str, object]) -> tuple[Copies, Model]:
    """A driver dies when the metadata table has the compaction, before the compaction is decided."""
    table, model = grown(folder / "table", **ENABLED, **version)
    table.services.schedule()
    copy = copies(folder / "table")
    decided = [name == "put_if_absent" and _is_decision(path) for name, path in calls_of(copy(), compact)].index(True)
    assert isinstance(Driver(folder / "table", compact, dies_at=decided).error, Killed)
    return copy, model


def _is_decision(path: str) -> bool:
    return path.startswith(DECISION_FOLDER) and not path.endswith(".run")


def assert_whole(root: Path, model: Model) -> None:
    assert_settled(root)
    for options in ({}, ENABLED):
        assert shown(reopened(LsmTable(root), **options)) == sorted(model.values())


@VERSIONS
def test_a_stale_undo_deletes_nothing_of_the_next_run(tmp_path: Path, version: dict[str, object]) -> None:
    copy, model = with_dead_compaction(tmp_path, version)
    for number in numbers(calls_of(copy(), only_enter), "delete"):
        root = copy()
        stale = Driver(root, only_enter, number)
        run = Driver(root, compact)
        assert run.error is None
        stale.go_on()
        # After its last deletion it has nothing more to do.
        assert isinstance(stale.error, Fenced | None), stale.error
        assert_whole(root, model)


def test_a_stale_undo_hides_no_log_of_a_run_that_dies(tmp_path: Path) -> None:
    copy, model = with_dead_compaction(tmp_path, {})
    completes = numbers(calls_of(copy(), compact), "put_if_absent", ".deltacommit")[-1]
    for number in numbers(calls_of(copy(), only_enter), "delete"):
        root = copy()
        stale = Driver(root, only_enter, number)
        assert isinstance(Driver(root, compact, dies_at=completes).error, Killed)
        stale.go_on()
        assert Driver(root, compact).error is None
        assert_whole(root, model)


@VERSIONS
def test_a_stale_run_adds_nothing_to_the_next_one(tmp_path: Path, version: dict[str, object]) -> None:
    copy, model = with_dead_compaction(tmp_path, version)
    for number in numbers(calls_of(copy(), compact), "put_if_absent"):
        root = copy()
        stale = Driver(root, compact, number)
        assert Driver(root, compact).error is None
        stale.go_on()
        assert isinstance(stale.error, Fenced), stale.calls[number]
        assert_whole(root, model)


def test_a_run_between_whose_calls_a_stale_one_creates_its_log_is_to_be_retried(tmp_path: Path) -> None:
    copy, model = with_dead_compaction(tmp_path, {})
    root = copy()
    stale = Driver(root, compact, numbers(calls_of(copy(), compact), "put_if_absent", ".log.hfile")[0])
    assert stale.is_stopped
    counted = copies(root)()
    run = Driver(root, compact, numbers(calls_of(counted, compact), "put_if_absent", ".log.hfile")[0])
    assert run.is_stopped
    stale.go_on()
    assert isinstance(stale.error, Fenced)
    run.go_on()
    assert isinstance(run.error, CommitConflict)
    assert Driver(root, compact).error is None
    assert_whole(root, model)


def test_a_creation_between_whose_calls_a_stale_one_creates_a_file_is_to_be_retried(tmp_path: Path) -> None:
    _, model = grown(tmp_path / "table", 1)
    copy = copies(tmp_path / "table")
    calls = calls_of(copy(), only_enter, **ENABLED)
    for number in numbers(calls, "put_if_absent"):
        if calls[number][1].endswith(("hoodie.properties", ".deltacommit")):
            continue  # the first is taken over from another creation, the names of the second differ
        root = copy()
        stale = Driver(root, only_enter, number, **ENABLED)
        assert stale.is_stopped
        # The other one deletes what it finds, and is stopped at the same file.
        run = Driver(root, only_enter, calls_of(copies(root)(), only_enter, **ENABLED).index(calls[number]), **ENABLED)
        assert run.is_stopped
        stale.go_on()
        assert isinstance(stale.error, Fenced), calls[number]
        run.go_on()
        assert isinstance(run.error, CommitConflict), calls[number]
        assert Driver(root, only_enter, **ENABLED).error is None
        assert_whole(root, model)


@VERSIONS
def test_a_stale_drop_deletes_nothing_of_a_new_metadata_table(tmp_path: Path, version: dict[str, object]) -> None:
    _, model = grown(tmp_path / "table", 1, **ENABLED, **version)
    copy, off = copies(tmp_path / "table"), {"hoodie.metadata.enable": False}
    emptied = copy()
    calls = calls_of(emptied, only_enter, **off)
    assert not (emptied / METADATA_TABLE).exists()
    assert not has_metadata_table(emptied)
    for number in numbers(calls, "delete"):
        root = copy()
        stale = Driver(root, only_enter, number, **off)
        assert Driver(root, upsert_other, **ENABLED).error is None
        made = _files(root)
        stale.go_on()
        assert isinstance(stale.error, Fenced), stale.calls[number]
        left = _files(root)
        gone = {path for path, data in made.items() if data and path not in left}
        assert gone <= {PLACEHOLDER}, stale.calls[number]
        assert_whole(root, {**model, OTHER[0]: OTHER})


def test_a_stale_clean_deletes_no_file_of_a_new_metadata_table(tmp_path: Path) -> None:
    options: dict[str, object] = {**ENABLED, "hoodie.metadata.compact.max.delta.commits": 2}
    _, model = grown(tmp_path / "table", 2, **options)
    assert Driver(tmp_path / "table", upsert_other, **options).error is None
    copy = copies(tmp_path / "table")
    for number in numbers(calls_of(copy(), only_enter, **options), "delete", "hfile"):
        root = copy()
        stale = Driver(root, only_enter, number, **options)
        for wanted in (False, True):
            assert Driver(root, only_enter, **{"hoodie.metadata.enable": wanted}).error is None
        stale.go_on()
        assert isinstance(stale.error, Fenced), stale.calls[number]
        assert_whole(root, {**model, OTHER[0]: OTHER})


@VERSIONS
def test_no_two_metadata_tables_have_equal_files(tmp_path: Path, version: dict[str, object]) -> None:
    grown(tmp_path / "table", 1, **version)
    roots = [tmp_path / "table", copies(tmp_path / "table")()]
    for root in roots:
        # The clock of drivers stands still.
        assert Driver(root, only_enter, **ENABLED).error is None
    ours, theirs = map(_files, roots)
    equal = {path for path, data in ours.items() if data and theirs.get(path) == data}
    assert equal == ({PLACEHOLDER} if version else set())
    assert len({name for name in ours if name in theirs}) > 5


def _files(root: Path) -> dict[str, bytes]:
    folder = root / METADATA_TABLE
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_drop_deletes_whatever_is_there(tmp_path: Path) -> None:
    grown(tmp_path / "table", 1, **ENABLED)
    root = tmp_path / "table"
    folder, outside = root / METADATA_TABLE, tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"x")
    (folder / "column_stats/deep").mkdir(parents=True)
    (folder / "column_stats/deep/x.hfile").write_bytes(b"x")
    (folder / "a file").write_bytes(b"x")
    (folder / "files" / f".{'a' * 32}.lsm-tmp").write_bytes(b"half")
    (folder / "files" / "folder.hfile").mkdir()
    (folder / "files" / "out").symlink_to(outside)
    (folder / "files" / "nowhere").symlink_to(tmp_path / "missing")
    unreadable = folder / "files" / "locked.hfile"
    unreadable.write_bytes(b"x")
    unreadable.chmod(0)
    assert Driver(root, only_enter, **{"hoodie.metadata.enable": False}).error is None
    assert not folder.exists()
    assert (outside / "kept").exists()
    assert load_properties(LocalStorage(root)).get("hoodie.table.metadata.partitions") is None


KEYS = [f"k{number:02d}" for number in range(40)]
SHARDS = "hoodie.metadata.global.record.level.index.{}.filegroup.count"


def indexed(shards: int) -> dict[str, object]:
    counts = {SHARDS.format(end): shards for end in ("min", "max")}
    return {**ENABLED, **counts, "hoodie.bucket.index.num.buckets": None, "hoodie.index.type": "RECORD_INDEX"}


@pytest.mark.parametrize("shards", [1, 3])
def test_a_file_of_a_stale_creation_is_none_of_the_partition_that_another_writer_makes(shards: int) -> None:
    """The other one makes it with as many shards as the stale one, or with fewer, from fewer keys."""

    def begun() -> str:
        uri = f"memory://{uuid.uuid4().hex}/table"
        plain = {**indexed(1), "hoodie.index.type": "GLOBAL_SIMPLE"}
        options = {key: value for key, value in {**SMALL, **plain}.items() if value is not None}
        table = LsmTable.create(uri, SCHEMA, options)
        table.upsert(rows(*((key, "nl", 1, 1) for key in KEYS)))
        return uri

    puts = [
        number
        for number, (name, path) in enumerate(Driver(begun(), only_enter, **indexed(3)).calls)
        if name == "put_if_absent" and "/record_index/record-index" in path
    ]
    assert len(puts) == 6
    for number in puts:
        uri = begun()
        stale = Driver(uri, only_enter, number, **indexed(3))
        assert stale.is_stopped
        gone = [key for key, shard in zip(KEYS, shards_of(pa.array(KEYS), 3).tolist(), strict=True) if shard == 1]
        deletes = rows(*((key, "nl", 2, 1) for key in gone)).select(["id", "country"])
        plain = {**indexed(1), "hoodie.index.type": "GLOBAL_SIMPLE"}
        assert Driver(uri, lambda table: table.delete(deletes), **plain).error is None  # noqa: B023
        assert Driver(uri, only_enter, **indexed(shards)).error is None
        stale.go_on()
        assert isinstance(stale.error, (Fenced, CommitConflict))
        assert LsmTable(uri).check_indexes().findings == ()
        kept = {key for key in KEYS if key not in gone}
        every = ", ".join(f"'{key}'" for key in KEYS)
        assert {row[0] for row in shown(LsmTable(uri, ENABLED), filter=f"id IN ({every})")} == kept
        again = {key: value for key, value in indexed(shards).items() if value is not None}
        LsmTable(uri, again).upsert(rows(*((key, "nl", 3, 1) for key in KEYS)))
        assert [row[0] for row in shown(LsmTable(uri))] == KEYS
