"""Partitions that expire: when, what others may do meanwhile, and inline after writes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.cli.commands import main
from streaming_lsm.errors import CommitConflict, Fenced, StorageError
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from tests.support.crash_points import sample
from tests.support.faulty_storage import FaultyStorage, Interrupted
from tests.support.interleaving import Driver
from tests.support.small_tables import Row, create, rows, shown
from tests.support.writers import NO_WAIT, NOON_MS, MovedClock, new_process

DAY_MS = 86_400_000
FIVE_DAYS = {"hoodie.partition.ttl.strategy.days.retain": 5}
INLINE = {**FIVE_DAYS, "hoodie.partition.ttl.inline": True}
BY_CREATION = {"hoodie.partition.ttl.management.strategy.type": "KEEP_BY_CREATION_TIME"}
COPY_ON_WRITE = {"hoodie.table.type": "COPY_ON_WRITE"}
OLD: Row = ("old", "nl", 1, 1)
NEW: Row = ("new", "de", 1, 2)


def on(storage: Storage, table: LsmTable, clock: MovedClock) -> LsmTable:
    """The table as another process has it, whose partitions expire by their creation, on this storage."""
    opened = LsmTable(table.path, {**NO_WAIT, **FIVE_DAYS, **BY_CREATION})
    opened.storage, opened.runtime = storage, new_process(clock=clock)
    return opened


def created(root: Path, **options: object) -> tuple[LsmTable, MovedClock]:
    table, clock = create(root, **NO_WAIT, **options), MovedClock()
    table.runtime = new_process(clock=clock)
    return table, clock


@pytest.mark.parametrize("kind", [{}, COPY_ON_WRITE, {"hoodie.metadata.enable": True}])
def test_a_partition_expires_some_days_after_its_last_write(tmp_path: Path, kind: dict[str, object]) -> None:
    table, clock = created(tmp_path, **FIVE_DAYS, **kind)
    table.upsert(rows(OLD, NEW))
    clock.now_ms += 4 * DAY_MS
    table.upsert(rows(NEW))
    assert table.expire_partitions() is None
    clock.now_ms += 2 * DAY_MS
    assert list(table.expired_partitions().since) == ["nl"]
    done = table.expire_partitions()
    assert done is not None
    commit = table.timeline.read_commit(done)
    assert (commit.operation_type, list(commit.replaced or {})) == ("DELETE_PARTITION", ["nl"])
    assert shown(table) == [NEW]
    assert table.expire_partitions() is None
    table.upsert(rows(OLD))
    assert table.expire_partitions() is None
    assert shown(table) == sorted([OLD, NEW])


def test_a_partition_expires_some_days_after_its_creation_whatever_is_written_to_it(tmp_path: Path) -> None:
    table, clock = created(tmp_path, **FIVE_DAYS, **BY_CREATION)
    table.upsert(rows(OLD))
    for _ in range(4):
        clock.now_ms += DAY_MS
        assert table.expire_partitions() is None
        table.upsert(rows(OLD, NEW))
        table.compact()
    clock.now_ms += DAY_MS
    assert table.expire_partitions() is not None
    assert shown(table) == [NEW]
    # The partition counts from its deletion, also when that is archived and cleaned.
    for number in range(30):
        table.upsert(rows(OLD, ("other", "be", 1, number)))
    assert not table.timeline.replaced_groups
    assert table.expire_partitions() is None
    clock.now_ms += 5 * DAY_MS + 1
    table.expire_partitions()
    assert shown(table) == []


def rolled_back(table: LsmTable) -> None:
    table.upsert(rows(OLD))
    assert table.rollback() is not None


def restored(table: LsmTable) -> None:
    saved = table.savepoint()
    assert saved is not None
    table.upsert(rows(OLD))
    table.restore(saved.requested)
    table.delete_savepoint(saved.requested)


def failed(table: LsmTable) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "commit", Mock(side_effect=StorageError("full")))
        with pytest.raises(StorageError, match="full"):
            table.upsert(rows(OLD))


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("undo", [rolled_back, restored, failed])
@pytest.mark.parametrize("kind", [{}, COPY_ON_WRITE], ids=["merge-on-read", "copy-on-write"])
def test_a_partition_counts_from_the_first_of_its_writes_that_was_not_undone(
    tmp_path: Path, kind: dict[str, object], undo: Callable[[LsmTable], None], archived: bool
) -> None:
    often = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    table, clock = created(tmp_path, **FIVE_DAYS, **BY_CREATION, **kind, **(often if archived else {}))
    table.upsert(rows(NEW))
    undo(table)
    assert (tmp_path / "nl/.hoodie_partition_metadata").exists()
    for number in range(6):
        clock.now_ms += DAY_MS // 2 + 100
        table.upsert(rows((NEW[0], "de", 1, number)))
    clock.now_ms += DAY_MS
    table.upsert(rows(OLD))
    clock.now_ms += 4 * DAY_MS
    assert list(table.expired_partitions().since) == ["de"]
    assert table.expire_partitions() is not None
    assert shown(table) == [OLD]
    clock.now_ms += DAY_MS
    assert list(table.expired_partitions().since) == ["nl"]


def test_a_partition_whose_first_write_was_undone_expires_though_its_files_are_compacted_and_cleaned(
    tmp_path: Path,
) -> None:
    table, clock = created(tmp_path, **FIVE_DAYS, **BY_CREATION, **{"hoodie.clean.commits.retained": 1})
    rolled_back(table)
    clock.now_ms += 3 * DAY_MS
    expired = []
    for day in range(12):
        if table.expire_partitions() is not None:
            expired.append(day)
        table.upsert(rows((OLD[0], "nl", 2, day)))
        table.compact()
        table.clean()
        clock.now_ms += DAY_MS
    assert expired
    assert expired[0] >= 5


def test_a_look_at_what_expires_changes_no_partition_metadata(tmp_path: Path) -> None:
    table, clock = created(tmp_path, **FIVE_DAYS, **BY_CREATION)
    rolled_back(table)
    metadata = tmp_path / "nl/.hoodie_partition_metadata"
    before = metadata.read_bytes()
    clock.now_ms += 6 * DAY_MS
    table.upsert(rows(OLD))
    assert not table.expired_partitions()
    assert metadata.read_bytes() == before
    assert table.expire_partitions() is None
    assert table.timeline.completed_writes[-1].requested.encode() in metadata.read_bytes()


def test_an_overwrite_between_two_looks_at_a_partition_is_not_taken_for_undone(tmp_path: Path) -> None:
    """Else the metadata would say again that the partition is old, and its new rows expire with the old ones."""
    table, clock = created(tmp_path, **FIVE_DAYS, **BY_CREATION)
    table.upsert(rows(OLD))
    clock.now_ms += 6 * DAY_MS
    table.upsert(rows((OLD[0], "be", 1, 1)))
    metadata, known = "nl/.hoodie_partition_metadata", table.storage.read("nl/.hoodie_partition_metadata")
    counting = FaultyStorage(LocalStorage(shutil.copytree(tmp_path, tmp_path.with_name("counted"))))
    assert on(counting, table, clock).expire_partitions() is not None
    second = [number for number, call in enumerate(counting.calls) if call == ("read", metadata)][1]
    other = on(table.storage, table, clock)
    expiring = on(Interrupted(table.storage, second, lambda: other.insert_overwrite(rows(OLD))), table, clock)
    assert expiring.expire_partitions() is None
    assert table.storage.read(metadata) != known  # but the time of the overwrite
    assert other.timeline.completed_writes[-1].requested.encode() in table.storage.read(metadata)
    assert shown(table) == sorted([OLD, (OLD[0], "be", 1, 1)])


def test_expired_partitions_are_deleted_after_a_write_with_one_listing_until_the_next_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, clock = created(tmp_path, **INLINE)
    table.upsert(rows(OLD))
    clock.now_ms += DAY_MS
    table.upsert(rows(NEW))
    looks: list[str] = []
    listed = LocalStorage.list

    def counted(storage: LocalStorage, path: str) -> object:
        looks.append(path)
        return listed(storage, path)

    monkeypatch.setattr(LocalStorage, "list", counted)
    for number in range(4):
        clock.now_ms += DAY_MS // 2
        table.upsert(rows(("n", "be", number, 3)))
    assert "nl" not in looks
    clock.now_ms += 2 * DAY_MS
    table.upsert(rows(("n", "be", 9, 3)))
    assert "nl" in looks
    assert table.last_numbers is not None
    assert table.last_numbers.rows_in == 1  # of the write, not of the deletion
    assert shown(table) == sorted([NEW, ("n", "be", 9, 3)])


def test_a_deletion_that_failed_is_tried_again_by_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, clock = created(tmp_path, **INLINE)
    table.upsert(rows(OLD))
    clock.now_ms += 6 * DAY_MS
    assert table.expired_partitions().since

    def failing(*_: object) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(LsmTable, "_delete_partitions", failing)
        table.upsert(rows(NEW))
    assert shown(table) == sorted([OLD, NEW])
    table.upsert(rows(NEW))
    assert shown(table) == [NEW]


def test_a_table_without_partitions_or_days_keeps_all(tmp_path: Path) -> None:
    for name, options in (
        ("flat", {**INLINE, "hoodie.datasource.write.partitionpath.field": None}),
        ("no days", {"hoodie.partition.ttl.inline": True}),
    ):
        table, clock = created(tmp_path / name, **options)
        table.upsert(rows(OLD))
        clock.now_ms += 10_000 * DAY_MS
        table.upsert(rows(NEW))
        assert table.expire_partitions() is None
        assert shown(table) == sorted([OLD, NEW])


@pytest.mark.timeout(3600)
def test_what_others_write_into_an_expired_partition_meanwhile_stays(tmp_path: Path) -> None:
    """Before each call of the one that deletes it another writes."""
    table, clock = created(tmp_path / "table")
    clock.now_ms -= 9 * DAY_MS  # the drivers' clock begins at noon
    table.upsert(rows(OLD, NEW))
    later: Row = ("later", "nl", 5, 5)

    def expire(opened: LsmTable) -> object:
        return opened.expire_partitions()

    calls = Driver(Path(shutil.copytree(tmp_path / "table", tmp_path / "counted")), expire, **FIVE_DAYS).calls
    assert len(calls) > 20
    for call in sample(range(len(calls)), 3, 19):
        root = Path(shutil.copytree(tmp_path / "table", tmp_path / f"at-{call}"))
        first = Driver(root, expire, call, **FIVE_DAYS)
        second = Driver(root, lambda opened: opened.upsert(rows(later)))
        first.go_on()
        assert second.error is None
        assert first.error is None or isinstance(first.error, Fenced | CommitConflict), call
        found = shown(LsmTable(root))
        assert later in found, call
        shutil.rmtree(root)


def test_the_command_says_what_expires_and_deletes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, clock = created(tmp_path)
    clock.now_ms = NOON_MS - 400 * DAY_MS
    table.upsert(rows(OLD))

    def run(*more: str) -> str:
        option = ["--option", "hoodie.partition.ttl.strategy.days.retain=30"]
        assert main(["expire-partitions", str(tmp_path), *option, *more]) == 0
        return capsys.readouterr().out

    assert run("--dry-run").splitlines()[-1] == "1 partitions to delete"
    assert json.loads(run("--dry-run", "--json"))["partitions"].keys() == {"nl"}
    assert shown(table) == [OLD]
    assert run().splitlines()[-1].endswith("1 partition deleted, a clean deletes the files")
    assert shown(table) == []
    assert run().splitlines()[-1] == "nothing to delete: no partition is older than 30 days"
    assert main(["show", str(tmp_path)]) == 0
    assert "no partition expires: hoodie.partition.ttl.strategy.days.retain=-1" in capsys.readouterr().out
