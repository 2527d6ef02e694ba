"""Writes that replace file groups: `insert_overwrite`, `insert_overwrite_table` and `delete_partitions`."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import ConfigError, CorruptFileError, LsmError, WriteConflict
from streaming_lsm.format.actions.clustering_plan import clustered_groups
from streaming_lsm.format.avro.container import decode_record
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import State
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.crash_points import sample
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.small_tables import SCHEMA, Row, create, data_files, rows, shown

OLD: list[Row] = [("a", "nl", 1, 1), ("b", "nl", 1, 2), ("c", "de", 1, 3), ("d", "de", 1, 4)]
NEW: list[Row] = [("a", "nl", 0, 9), ("e", "nl", 0, 8)]
DE = OLD[2:]
COPY_ON_WRITE = {"hoodie.datasource.write.table.type": "COPY_ON_WRITE"}
NON_BLOCKING = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
SEVERAL = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
TABLES = ({}, COPY_ON_WRITE, NON_BLOCKING, {"hoodie.metadata.enable": True}, {"hoodie.write.table.version": 9})


def filled(root: Path, **options: object) -> LsmTable:
    table = create(root, **options)
    table.upsert(rows(*OLD))
    return table


@pytest.mark.parametrize("options", TABLES)
def test_an_overwrite_replaces_the_partitions_of_its_rows(tmp_path: Path, options: dict[str, object]) -> None:
    table = filled(tmp_path, **options)
    before = table.timeline.completed_writes[-1]
    done = table.insert_overwrite(rows(*NEW))
    assert done is not None
    # A row with a smaller ordering value takes the place of the old one.
    assert shown(table) == sorted([*NEW, *DE])
    assert done.action == "replacecommit"
    commit = table.timeline.read_commit(done)
    assert commit.operation_type == "INSERT_OVERWRITE"
    assert list(commit.replaced or {}) == ["nl"]
    assert shown(table, as_of=before.requested) == sorted(OLD)
    # Later writes find the new file groups.
    table.upsert(rows(("a", "nl", 5, 7)))
    assert shown(LsmTable(tmp_path)) == sorted([("a", "nl", 5, 7), NEW[1], *DE])


@pytest.mark.parametrize("options", TABLES)
def test_an_overwrite_by_deletes_alone_leaves_their_partitions_empty(
    tmp_path: Path, options: dict[str, object]
) -> None:
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    table = create(tmp_path, schema, **options)
    table.upsert(rows(*OLD).append_column(schema.field("_hoodie_is_deleted"), pa.array([False] * len(OLD))))
    deletes = rows(NEW[0]).append_column(schema.field("_hoodie_is_deleted"), pa.array([True]))
    assert table.insert_overwrite(deletes) is not None
    assert shown(table) == sorted(DE)


@pytest.mark.parametrize("options", TABLES)
def test_a_table_is_overwritten_as_a_whole(tmp_path: Path, options: dict[str, object]) -> None:
    table = filled(tmp_path, **options)
    done = table.insert_overwrite_table(rows(*NEW))
    assert done is not None
    assert shown(table) == shown(LsmTable(tmp_path)) == sorted(NEW)
    commit = table.timeline.read_commit(done)
    assert (commit.operation_type, list(commit.replaced or {})) == ("INSERT_OVERWRITE_TABLE", ["de", "nl"])


@pytest.mark.parametrize("options", TABLES)
def test_partitions_are_deleted_and_written_again(tmp_path: Path, options: dict[str, object]) -> None:
    table = filled(tmp_path, **options)
    done = table.delete_partitions(["nl"])
    assert done is not None
    assert shown(table) == shown(LsmTable(tmp_path)) == sorted(DE)
    commit = table.timeline.read_commit(done)
    assert (commit.operation_type, commit.stats, list(commit.replaced or {})) == ("DELETE_PARTITION", (), ["nl"])
    table.upsert(rows(*NEW))
    assert shown(table) == shown(LsmTable(tmp_path)) == sorted([*NEW, *DE])


def test_a_partition_without_rows_is_refused_by_name(tmp_path: Path) -> None:
    table = filled(tmp_path)
    with pytest.raises(ConfigError, match=r"partition 'fr' of .* has no file groups"):
        table.delete_partitions(["nl", "fr"])
    assert shown(table) == sorted(OLD)
    assert not table.timeline.pending


def test_an_overwrite_by_nothing_deletes_the_whole_table_only(tmp_path: Path) -> None:
    table = filled(tmp_path)
    table.insert_overwrite(rows())
    assert shown(table) == sorted(OLD)
    table.insert_overwrite_table(rows())
    assert shown(table) == []


def test_a_replay_overwrites_nothing(tmp_path: Path) -> None:
    table = filled(tmp_path, **{"lsm.writer.id": "w"})
    assert table.insert_overwrite(rows(*NEW), batch_id=1) is not None
    table.upsert(rows(("z", "nl", 1, 1)))
    assert table.insert_overwrite(rows(*NEW), batch_id=1) is None
    assert table.delete_partitions(["nl"], batch_id=2) is not None
    assert table.delete_partitions(["nl"], batch_id=2) is None
    assert shown(table) == sorted(DE)


def test_the_requested_file_has_no_clustering_plan(tmp_path: Path) -> None:
    table = filled(tmp_path)
    done = table.insert_overwrite(rows(*NEW))
    assert done is not None
    path = done.at(State.REQUESTED).path
    data = table.storage.read(path)
    assert decode_record("HoodieRequestedReplaceMetadata", data, path)["clusteringPlan"] is None
    assert clustered_groups(data, path) == frozenset()


def test_a_clean_deletes_replaced_files_and_compactions_go_on(tmp_path: Path) -> None:
    table = filled(tmp_path, **{"hoodie.clean.commits.retained": 1, "hoodie.clean.automatic": False})
    old = data_files(tmp_path)
    table.insert_overwrite_table(rows(*NEW))
    table.upsert(rows(("a", "nl", 5, 7)))
    table.upsert(rows(("a", "nl", 6, 6)))
    assert table.clean() is not None
    assert not old & data_files(tmp_path)
    assert table.compact() is not None
    assert shown(table) == [("a", "nl", 6, 6), NEW[1]]
    assert len(read_snapshot(tmp_path)) == 2


def test_a_compaction_of_a_replaced_group_changes_nothing(tmp_path: Path) -> None:
    table = filled(tmp_path)
    planned, _ = table.services.schedule()
    assert planned is not None
    table.insert_overwrite_table(rows(*NEW))
    table.compact()
    assert shown(table) == shown(LsmTable(tmp_path)) == sorted(NEW)
    table.upsert(rows(("a", "nl", 5, 7)))
    assert shown(LsmTable(tmp_path)) == [("a", "nl", 5, 7), NEW[1]]


class Meanwhile(LsmTable):
    """A table of which another writer writes while the next write of this one is under way, once."""

    other: tuple[LsmTable, Row] | None = None

    def commit(self, *args: object, **how: object) -> object:  # type: ignore[override]
        if self.other is not None:
            (table, row), self.other = self.other, None
            table.upsert(rows(row))
        return super().commit(*args, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [SEVERAL, NON_BLOCKING])
@pytest.mark.parametrize("row", [("a", "nl", 2, 2), ("new", "nl", 2, 2), ("new", "fr", 2, 2)])
def test_what_others_write_into_a_replaced_partition_meanwhile_is_replaced_too(
    tmp_path: Path, options: dict[str, object], row: Row
) -> None:
    filled(tmp_path, **options)
    refused = Meanwhile(tmp_path, {**options, "hoodie.write.num.retries.on.conflict.failures": 0})
    refused.other = (LsmTable(tmp_path, options), row)
    with pytest.raises(WriteConflict, match=f"partition '{row[1]}', of which this write replaces"):
        refused.insert_overwrite_table(rows(*NEW))
    again = Meanwhile(tmp_path, options)
    again.other = (LsmTable(tmp_path, options), row)
    again.insert_overwrite_table(rows(*NEW))
    assert shown(again) == shown(LsmTable(tmp_path)) == sorted(NEW)
    again.other = (LsmTable(tmp_path, options), ("f", "fr", 1, 1))
    again.delete_partitions(["nl"])
    assert shown(LsmTable(tmp_path)) == [("f", "fr", 1, 1)]


@pytest.mark.parametrize("options", [SEVERAL, NON_BLOCKING])
def test_what_others_write_into_an_empty_partition_meanwhile_is_replaced_too(
    tmp_path: Path, options: dict[str, object]
) -> None:
    chosen = {**options, "hoodie.bucket.index.num.buckets": 4}
    create(tmp_path, **chosen)
    table = Meanwhile(tmp_path, chosen)
    # Of another bucket: no file group is changed by both.
    table.other = (LsmTable(tmp_path, chosen), ("b", "nl", 1, 5))
    done = table.insert_overwrite(rows(("a", "nl", 1, 1)))
    assert done is not None
    assert shown(table) == shown(LsmTable(tmp_path)) == [("a", "nl", 1, 1)]
    assert len((table.timeline.read_commit(done).replaced or {})["nl"]) == 1
    table.insert_overwrite(rows(("f", "fr", 1, 1)))
    assert shown(LsmTable(tmp_path)) == [("a", "nl", 1, 1), ("f", "fr", 1, 1)]
    assert validate(tmp_path) == []


def test_a_write_of_a_partition_that_was_deleted_meanwhile_is_written_again(tmp_path: Path) -> None:
    filled(tmp_path, **SEVERAL)

    class Deletes(LsmTable):
        done = False

        def commit(self, *args: object, **how: object) -> object:  # type: ignore[override]
            if not self.done:
                self.done = True
                LsmTable(tmp_path, SEVERAL).delete_partitions(["nl"])
            return super().commit(*args, **how)  # type: ignore[arg-type]

    Deletes(tmp_path, SEVERAL).upsert(rows(("a", "nl", 2, 2)))
    assert shown(LsmTable(tmp_path)) == sorted([("a", "nl", 2, 2), *DE])


@pytest.mark.parametrize("what", ["insert_overwrite", "delete_partitions"])
def test_killed_at_any_storage_call_it_is_done_or_not(tmp_path: Path, what: str) -> None:
    options = {"lsm.writer.id": "w"}

    def run(table: LsmTable) -> None:
        if what == "insert_overwrite":
            table.insert_overwrite(rows(*NEW), batch_id=1)
        else:
            table.delete_partitions(["nl"], batch_id=1)

    expected = sorted([*NEW, *DE]) if what == "insert_overwrite" else sorted(DE)
    filled(tmp_path / "template", **options)
    root = Path(shutil.copytree(tmp_path / "template", tmp_path / "counted"))
    calls = FaultyStorage(LocalStorage(root))
    run(opened(root, calls))
    for fault in (Fault.KILL_BEFORE, Fault.KILL_AFTER, Fault.FAIL_BEFORE, Fault.FAIL_AFTER):
        for call in sample(range(len(calls.calls)), list(Fault).index(fault) * 4, 17):
            root = Path(shutil.copytree(tmp_path / "template", tmp_path / f"{fault.name}{call}"))
            with suppress(Killed, OSError, LsmError):
                run(opened(root, FaultyStorage(LocalStorage(root), {call: fault})))
            assert shown(LsmTable(root)) in (sorted(OLD), expected), calls.calls[call]
            run(opened(root, LocalStorage(root)))
            assert shown(LsmTable(root)) == expected, calls.calls[call]
            assert not validate(root)


def opened(root: Path, storage: Storage) -> LsmTable:
    table = LsmTable(root, {"lsm.writer.id": "w"})
    table.storage = storage
    return table


@pytest.mark.parametrize("options", [{}, COPY_ON_WRITE])
def test_a_deletion_whose_completed_file_is_lost_is_not_rolled_back_once_a_commit_names_it(
    tmp_path: Path, options: dict[str, object]
) -> None:
    table = filled(tmp_path, **options)
    done = table.delete_partitions(["nl"])
    table.upsert(rows(("f", "de", 1, 6)))
    assert done is not None
    expected, content = shown(table), table.storage.read(done.path)
    (tmp_path / done.path).unlink()
    for request in (lambda: shown(LsmTable(tmp_path)), lambda: LsmTable(tmp_path).upsert(rows(("g", "de", 1, 7)))):
        with pytest.raises(CorruptFileError, match=f"{done.file_name} in .* is gone, which .* names as the write befo"):
            request()
    (tmp_path / done.path).write_bytes(content)
    assert shown(LsmTable(tmp_path)) == expected
