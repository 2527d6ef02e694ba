"""A lost timeline is rebuilt from data files: what is promised is there again, and the table goes on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import CommitConflict, ConfigError, CorruptFileError, Fenced, LsmError, StorageError
from streaming_lsm.format.actions.rollback import RollbackMetadata
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from tests.support.crash_points import sample
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.interleaving import Driver
from tests.support.service_tables import Model, assert_sound, compactions, grow, grown, reopened
from tests.support.small_tables import OPTIONS, create, data_files, rows, shown

COW: dict[str, object] = {"hoodie.table.type": "COPY_ON_WRITE"}
FLAT_TABLE: dict[str, object] = {"hoodie.datasource.write.partitionpath.field": None}
VERSION_9: dict[str, object] = {"hoodie.write.table.version": 9}
DEFAULT: dict[str, object] = {"hoodie.table.storage.layout": "default"}
METADATA: dict[str, object] = {"hoodie.metadata.enable": True}
HYBRID: dict[str, object] = {
    "hoodie.compaction.plan.generator": (
        "org.apache.hudi.table.action.compact.plan.generators.HybridCompactionPlanGenerator"
    )
}


def lose(root: Path) -> None:
    shutil.rmtree(root / ".hoodie/timeline")


def lose_completed(root: Path) -> None:
    for path in (root / ".hoodie/timeline").glob("*_*"):
        path.unlink()


def written(root: Path, **options: object) -> tuple[LsmTable, Model]:
    """Updates and deletes."""
    return grown(root, batches=4, **options)


def compacted(root: Path, **options: object) -> tuple[LsmTable, Model]:
    """A compaction between updates and deletes."""
    table, model = grown(root, batches=3, **options)
    assert table.compact() is not None
    grow(table, model, 3)
    grow(table, model, 4)
    return table, model


def compacted_last(root: Path, **options: object) -> tuple[LsmTable, Model]:
    """Two compactions, the last one as the last action, and what it replaced is cleaned."""
    table, model = compacted(root, **{"hoodie.clean.commits.retained": 1, **options})
    table.compact()
    table.clean()
    return table, model


def log_compacted(root: Path, **options: object) -> tuple[LsmTable, Model]:
    """A log compaction between updates and deletes."""
    table, model = grown(root, batches=4, **options)
    assert table.services.compact(LocalEngine(1), log=True)[0] is not None
    grow(table, model, 4)
    return table, model


def bulk_inserted(root: Path, **options: object) -> tuple[LsmTable, Model]:
    """Base files of a write, and logs on top."""
    table = create(root, **{"lsm.read.threads": 1, "hoodie.clean.automatic": False, **options})
    first = [(f"k{n}", "nl", 0, n) for n in range(9)]
    table.bulk_insert(rows(*first))
    model: Model = {row[0]: row for row in first}
    for batch in range(1, 4):
        grow(table, model, batch)
    return table, model


TABLES: dict[str, tuple[Callable[..., tuple[LsmTable, Model]], dict[str, object]]] = {
    "written": (written, {}),
    "written-flat": (written, FLAT_TABLE),
    "written-metadata": (written, METADATA),
    "written-default-layout": (written, DEFAULT),
    "written-version-9": (written, VERSION_9),
    "copy-on-write": (written, COW),
    "copy-on-write-flat": (written, {**COW, **FLAT_TABLE}),
    "compacted": (compacted, {}),
    "compacted-flat": (compacted, FLAT_TABLE),
    "compacted-version-9": (compacted, VERSION_9),
    "compacted-last": (compacted_last, {}),
    "compacted-deletes-dropped": (compacted, {"lsm.compaction.tombstone.retention": 0}),
    "log-compacted": (log_compacted, {}),
    "hybrid": (compacted, HYBRID),
    "bulk-inserted": (bulk_inserted, {}),
    "bulk-inserted-cow": (bulk_inserted, COW),
}


def facts(table: LsmTable) -> list[tuple[object, ...]]:
    """What is the same before and after: action, operation, files, rows."""
    found = []
    for write in table.timeline.completed_writes:
        commit = table.timeline.read_commit(write)
        files = sorted(
            (stat.path, stat.num_writes, stat.num_deletes * (stat.log_version is not None)) for stat in commit.stats
        )
        operation = "UPSERT" if commit.operation_type in ("BULK_INSERT", "DELETE") else commit.operation_type
        found.append((write.requested, write.action, operation, files, commit.schema))
    return found


def assert_whole(table: LsmTable, model: Model) -> None:
    """The rows are the model's; for the layout that the oracle knows by its reader, too, and no rule is broken."""
    if table.config.is_lsm_tree:
        assert_sound(table, model)
    assert shown(table) == sorted(model.values())


@pytest.mark.parametrize(("case", "loss"), sample(list(product(TABLES, [lose, lose_completed])), 0, 5))
def test_the_rows_are_those_of_before_and_further_writes_work(
    tmp_path: Path, case: str, loss: Callable[[Path], None]
) -> None:
    make, options = TABLES[case]
    table, model = make(tmp_path, **options)
    before = facts(table)
    loss(tmp_path)
    files = data_files(tmp_path)

    opened = reopened(table, **options)
    plan = opened.plan_repair()
    assert (plan.left_out, plan.unplaced) == ({}, {})
    # Keys of inline logs are not read. A delete before a later row of its key leaves nothing in a compaction.
    assert len(plan.doubts) == (case in ("compacted-version-9", "compacted-last") and loss is lose)
    assert not (tmp_path / ".hoodie/timeline").exists() or loss is lose_completed
    done, count = opened.repair()
    assert [found.completed for found in done.instants] == [found.completed for found in plan.instants]
    assert count == len(model)
    assert data_files(tmp_path) == files
    again = reopened(table, **options)
    after = facts(again)
    if case == "compacted-last":  # the files of the first writes are cleaned
        kept = {entry[0] for entry in after}
        after, before = ([(*found[:3], found[4]) for found in each if found[0] in kept] for each in (after, before))
    assert after == before
    assert_whole(again, model)
    grow(again, model, 5)
    if "cow" not in case and "copy" not in case:
        again.compact()
    grow(again, model, 6)
    assert_whole(reopened(table, **options), model)
    with pytest.raises(ConfigError, match=r"is not lost: .* completed writes are on it, from .* to "):
        again.repair()


def test_a_write_that_was_completed_after_a_compaction_was_planned_stays_on_top_of_it(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    other, commit = reopened(table), table.commit

    def commit_late(*how: Any, **more: Any) -> Instant:
        assert other.compact() is not None
        return commit(*how, **more)

    table.commit = commit_late  # type: ignore[method-assign]
    late = table.upsert(rows(("late", "nl", 1, 1), ("k5", "nl", 9, 9)))
    assert late is not None
    model |= {"late": ("late", "nl", 1, 1), "k5": ("k5", "nl", 9, 9)}
    assert late.requested < compactions(table)[0].requested
    grow(reopened(table), model, 4)
    assert_sound(reopened(table), model)

    lose(tmp_path)
    plan, _ = reopened(table).repair()
    (doubt,) = plan.doubts
    assert doubt.startswith(f"{late.requested} is taken to be completed after")
    assert_sound(reopened(table), model)


@pytest.mark.parametrize("ordering", ["event time", "commit time"])
def test_a_late_write_all_of_whose_keys_the_compaction_has_is_found_or_named(tmp_path: Path, ordering: str) -> None:
    by_commit = {"hoodie.table.ordering.fields": None, "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}
    options: dict[str, object] = {
        "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
        "hoodie.clean.failed.writes.policy": "LAZY",
        **({} if ordering == "event time" else by_commit),
    }
    table, model = grown(tmp_path, batches=1, **options)
    other, commit = reopened(table, **options), table.commit

    def commit_late(*how: Any, **more: Any) -> Instant:
        other.upsert(rows(("k1", "nl", 3, 333)))
        assert other.compact() is not None
        return commit(*how, **more)

    table.commit = commit_late  # type: ignore[method-assign]
    late = table.upsert(rows(("k1", "nl", 5, 555)))
    assert late is not None
    model["k1"] = ("k1", "nl", 5, 555)
    assert_sound(reopened(table, **options), model)

    lose(tmp_path)
    plan, _ = reopened(table, **options).repair()
    (doubt,) = plan.doubts
    if ordering == "event time":
        assert doubt.startswith(f"{late.requested} is taken to be completed after")
        assert_sound(reopened(table, **options), model)
    else:
        assert doubt.startswith(f"{late.requested} is taken to be merged by")


def test_a_write_that_was_decided_before_the_repair_keeps_its_files_when_its_writer_resumes(tmp_path: Path) -> None:
    grown(tmp_path / "template", batches=1)

    def work(table: LsmTable) -> Instant | None:
        return table.upsert(rows(("mine", "nl", 1, 1)))

    counted = Driver(Path(shutil.copytree(tmp_path / "template", tmp_path / "counted")), work)
    (decided,) = (
        n for n, (call, path) in enumerate(counted.calls) if call == "put_if_absent" and DECISION_FOLDER in path
    )
    (done,) = (n for n, (call, path) in enumerate(counted.calls) if "delete" in call and DECISION_FOLDER in path)
    for number in range(decided, done + 1):
        root = Path(shutil.copytree(tmp_path / "template", tmp_path / str(number)))
        first = Driver(root, work, number)
        lose(root)

        def repaired(table: LsmTable) -> None:
            table.repair()
            table.upsert(rows(("other", "nl", 1, 1)))

        assert Driver(root, repaired).error is None, number
        first.go_on()
        found = {row[0] for row in shown(reopened(LsmTable(root)))}
        assert found >= {"k0", "other"}, counted.calls[number]
        assert "mine" in found or (number == decided and first.error is not None)


def test_files_of_writes_that_were_not_completed_are_left_out(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    last = table.upsert(rows(("gone", "nl", 1, 1)))
    assert last is not None
    (torn,) = (path for path in (tmp_path / "nl").glob("*.parquet") if last.requested in path.name)
    torn.write_bytes(b"torn")
    lose(tmp_path)
    with pytest.raises(CorruptFileError, match=rf"{torn.name} in .* cannot be placed: .*not a readable Parquet file"):
        reopened(table).repair()
    assert not (tmp_path / ".hoodie/timeline").exists()

    marker = tmp_path / ".hoodie/.temp" / last.requested / "nl" / f"{torn.name}.marker.CREATE"
    marker.parent.mkdir(parents=True)
    marker.touch()
    plan, _ = reopened(table).repair()
    assert plan.left_out == {
        f"nl/{torn.name}": f"{last.requested} has markers or a heartbeat, which are deleted after the completion"
    }
    assert shown(reopened(table)) == sorted(model.values())
    grow(reopened(table), model, 4)  # which deletes the file
    assert not torn.exists()
    assert_sound(reopened(table), model)


@pytest.mark.parametrize("loss", [lose, lose_completed])
def test_a_write_with_a_heartbeat_alone_is_rolled_back_by_the_next(
    tmp_path: Path, loss: Callable[[Path], None]
) -> None:
    table, model = grown(tmp_path)
    last = table.upsert(rows(("gone", "nl", 1, 1)))
    assert last is not None
    loss(tmp_path)
    (tmp_path / HEARTBEAT_FOLDER / last.requested).touch()
    os.utime(tmp_path / HEARTBEAT_FOLDER / last.requested, (1, 1))
    plan, _ = reopened(table).repair()
    assert [found.requested for found in plan.abandoned] == [last.requested]
    grow(reopened(table), model, 4)
    assert not any(last.requested in path for path in data_files(tmp_path))
    assert_sound(reopened(table), model)


def test_a_late_file_of_a_write_whose_rollback_is_archived_is_left_out(tmp_path: Path) -> None:
    options: dict[str, object] = {**OPTIONS, "lsm.read.threads": 1}
    table = create(tmp_path, **options)
    table.upsert(rows(("k0", "nl", 1, 1)))
    late: dict[Path, bytes] = {}

    def fail(*_: object, **__: object) -> None:
        found = [path for path in (tmp_path / "nl").glob("*.parquet") if path.name not in known]
        late.update({path: path.read_bytes() for path in found if not late})
        raise StorageError("the disk is full")

    known, commit = {path.name for path in (tmp_path / "nl").glob("*.parquet")}, table.commit
    table.commit = fail  # type: ignore[assignment, method-assign]
    for _ in range(12):
        with pytest.raises(StorageError):
            table.upsert(rows(("gone", "nl", 1, 1)))
    table.commit = commit  # type: ignore[method-assign]
    table.upsert(rows(("k4", "nl", 1, 1)))
    LsmTable(tmp_path, options).archive()
    (path, content), *_ = late.items()
    assert table.timeline.history.is_undone(path.name.split("_")[2])
    path.write_bytes(content)
    for instant in (tmp_path / ".hoodie/timeline").glob("2*"):
        instant.unlink()
    plan, count = LsmTable(tmp_path, options).repair()
    assert [name.rpartition("/")[2] for name in plan.left_out] == [path.name]
    assert count == 2


def test_a_compaction_one_attempt_of_which_hudi_has_rolled_back_is_rebuilt(tmp_path: Path) -> None:
    table, model = compacted(tmp_path)
    ((done, *_),) = (compactions(table),)
    lose_completed(tmp_path)
    rollback = RollbackMetadata(f"{int(done.requested) + 1}", 0, done.requested, "compaction", ())
    name = f"{rollback.start}_{rollback.start}.rollback"
    (tmp_path / ".hoodie/timeline" / name).write_bytes(rollback.encode())
    plan, _ = reopened(table).repair()
    assert done.requested in {found.completed.requested for found in plan.instants}
    assert shown(reopened(table)) == sorted(model.values())


def test_a_marked_write_whose_rows_a_compaction_has_was_committed(tmp_path: Path) -> None:
    table, model = compacted(tmp_path)
    first = table.timeline.completed_writes[0].requested
    (tmp_path / ".hoodie/.temp" / first).mkdir(parents=True)
    lose(tmp_path)
    plan, _ = reopened(table).repair()
    assert plan.left_out == {}
    grow(reopened(table), model, 5)  # which deletes the markers
    assert_sound(reopened(table), model)


def test_files_in_folders_without_partition_metadata_are_named(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    lose(tmp_path)
    (tmp_path / "nl/.hoodie_partition_metadata").unlink()
    plan = reopened(table).plan_repair()
    assert set(plan.unplaced) == data_files(tmp_path)
    assert set(plan.unplaced.values()) == {"its folder has no .hoodie_partition_metadata"}


@pytest.mark.parametrize("options", [{}, COW], ids=["merge-on-read", "copy-on-write"])
def test_an_overwritten_partition_does_not_come_back(tmp_path: Path, options: dict[str, object]) -> None:
    table, _ = grown(tmp_path, **options)
    table.insert_overwrite(rows(*((f"n{n}", "nl", 1, n) for n in range(8))))
    model: Model = {f"n{n}": (f"n{n}", "nl", 1, n) for n in range(8)}
    grow(table, model, 1)
    lose(tmp_path)
    plan, _ = reopened(table, **options).repair()
    assert [found.completed.action for found in plan.instants].count("replacecommit") == 1
    (doubt,) = plan.doubts
    assert "is taken to have replaced the file groups" in doubt
    assert_sound(reopened(table, **options), model)
    grow(reopened(table, **options), model, 2)
    assert_sound(reopened(table, **options), model)


@pytest.mark.parametrize("loss", ["2*", "2*_*"])
def test_an_overwrite_of_archived_writes_that_are_not_cleaned_is_found(tmp_path: Path, loss: str) -> None:
    options: dict[str, object] = {**OPTIONS, "hoodie.clean.automatic": False, "lsm.read.threads": 1}
    table = create(tmp_path, **options)
    for number in range(14):
        table.upsert(rows(*((f"k{n}", "nl", number, number) for n in range(8))))
    done = table.insert_overwrite(rows(*((f"k{n}", "nl", 99, 9) for n in range(8))))
    for number in range(12):
        table.upsert(rows(("k1", "nl", 100 + number, 10)))
    assert done is not None
    assert table.timeline.first == done.requested
    before = shown(table)
    for path in (tmp_path / ".hoodie/timeline").glob(loss):
        path.unlink()
    LsmTable(tmp_path, options).repair()
    assert shown(LsmTable(tmp_path, options)) == before
    assert LsmTable(tmp_path, options).upsert(rows(("k1", "nl", 200, 11))) is not None


@pytest.mark.parametrize("options", [{}, COW], ids=["merge-on-read", "copy-on-write"])
def test_a_group_whose_first_slices_were_cleaned_has_overwritten_nothing(
    tmp_path: Path, options: dict[str, object]
) -> None:
    options = {"hoodie.clean.commits.retained": 1, **options}
    table = create(tmp_path, **{**OPTIONS, "lsm.read.threads": 1, **options})
    table.upsert(rows(*((f"k{n}", "nl", 1, n) for n in range(8))))
    table.savepoint()  # which keeps the file groups that are overwritten
    table.insert_overwrite(rows(*((f"n{n}", "nl", 1, n) for n in range(8))))
    for number in range(6):
        table.upsert(rows(("n1", "nl", 10 + number, number)))  # of one of two buckets
        table.compact()
        table.clean()
    before = shown(reopened(table, **options))
    lose(tmp_path)
    plan, _ = reopened(table, **options).repair()
    assert all("replaced the file groups , " not in doubt for doubt in plan.doubts)
    assert shown(reopened(table, **options)) == before


def test_archived_writes_stay_in_the_history(tmp_path: Path) -> None:
    keep: dict[str, object] = {
        "hoodie.keep.min.commits": 2,
        "hoodie.keep.max.commits": 3,
        "hoodie.clean.commits.retained": 1,
    }
    table, model = grown(tmp_path, batches=5, **keep)
    archived = [*table.timeline.history.writes()]
    active = [write.requested for write in table.timeline.completed_writes]
    for path in (tmp_path / ".hoodie/timeline").glob("2*"):
        path.unlink()
    plan, _ = reopened(table, **keep).repair()
    assert archived
    assert [found.completed.requested for found in plan.instants] == active
    assert_sound(reopened(table, **keep), model)
    assert reopened(table).incremental("000").to_arrow().num_rows == len(model)


@pytest.mark.parametrize("keep", [{}, {"hoodie.keep.min.commits": 60, "hoodie.keep.max.commits": 61}])
def test_writes_that_archived_cleans_have_passed_are_rebuilt(tmp_path: Path, keep: dict[str, object]) -> None:
    options = {**COW, "hoodie.clean.automatic": True, "hoodie.clean.commits.retained": 1, **keep}
    table = create(tmp_path, **options)
    for number in range(40):
        table.upsert(rows((f"k{number % 7}", "nl", number, number), (f"m{number}", "de", number, number)))
    before, history = shown(table), table.timeline.history
    active = [write.requested for write in table.timeline.completed_writes]
    assert history.last > active[0]
    assert bool(history.writes()) != bool(keep)
    for path in (tmp_path / ".hoodie/timeline").glob("2*"):
        path.unlink()
    plan, _ = LsmTable(tmp_path, {**OPTIONS, **options}).repair()
    assert {found.completed.requested for found in plan.instants} >= {*active[-2:]}
    assert not plan.left_out
    assert shown(LsmTable(tmp_path, {**OPTIONS, **options})) == before


def saved_and_restored(root: Path) -> tuple[LsmTable, Model]:
    table, model = grown(root, batches=1)
    saved = table.savepoint()
    grow(table, {}, 1)
    table.restore(saved.requested)
    table.delete_savepoint(saved.requested)
    grow(table, model, 1)
    return table, model


def saved(root: Path) -> tuple[LsmTable, Model]:
    table, model = grown(root, batches=1)
    table.savepoint()
    grow(table, model, 1)
    return table, model


def compacted_and_cleaned(root: Path) -> tuple[LsmTable, Model]:
    options: dict[str, object] = {"hoodie.clean.automatic": True, "hoodie.clean.commits.retained": 1}
    table, model = grown(root, batches=0, **options)
    for batch in range(3):
        grow(table, model, batch)
        assert table.compact() is not None
    return table, model


def overwritten_and_cleaned(root: Path) -> tuple[LsmTable, Model]:
    table, model = grown(root, batches=1)
    last = ("only", "nl", 1, 1)
    table.insert_overwrite(rows(last))
    grow(table, model, 1)
    for number in range(3):
        table.upsert(rows(("only", "nl", 2, number)))
    retained = reopened(table, **{"hoodie.clean.commits.retained": 1})
    retained.compact()
    retained.upsert(rows(last))
    assert retained.clean() is not None
    return table, {row[0]: row for row in shown(table)}


def rolled_back(root: Path) -> tuple[LsmTable, Model]:
    table, model = grown(root, batches=2)
    table.compact()
    table.rollback()
    grow(table, {}, 3)
    table.rollback()
    table.rollback()
    grow(table, model, 2)
    return table, model


@pytest.mark.parametrize(
    "make", [saved_and_restored, saved, compacted_and_cleaned, overwritten_and_cleaned, rolled_back]
)
def test_what_was_done_without_data_files_is_not_pending_for_ever(
    tmp_path: Path, make: Callable[[Path], tuple[LsmTable, Model]]
) -> None:
    table, model = make(tmp_path)
    assert_sound(reopened(table), model)
    lose_completed(tmp_path)
    again = reopened(table)
    again.repair()
    assert shown(again) == sorted(model.values())
    again.upsert(rows(("last", "nl", 1, 1)))
    model["last"] = ("last", "nl", 1, 1)
    assert_sound(reopened(table), model)
    while again.compact() is not None:
        pass
    again.clean()
    assert not again.timeline.pending
    assert_sound(reopened(table), model)


def test_an_interrupted_repair_is_finished_by_the_next(tmp_path: Path) -> None:
    _, model = compacted(tmp_path / "whole")
    lose(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "counted")
    count = FaultyStorage(LocalStorage(tmp_path / "counted"))
    reopened(LsmTable(tmp_path / "counted"), count).repair()
    for call in sample(range(len(count.calls)), 5, 67):
        root = tmp_path / f"at-{call}"
        shutil.copytree(tmp_path / "whole", root)
        with suppress(Killed, LsmError, OSError):
            reopened(LsmTable(root), FaultyStorage(LocalStorage(root), {call: Fault.KILL_AFTER})).repair()
        if (root / ".hoodie/timeline").exists() and completed_names(root) < completed_names(tmp_path / "counted"):
            with pytest.raises(CorruptFileError):
                shown(LsmTable(root))
        again = reopened(LsmTable(root))
        with suppress(ConfigError):  # it was through
            again.repair()
        with again.transaction():  # takes over a lock that is left
            pass
        assert plan_names(root) == plan_names(tmp_path / "counted")
        assert_sound(again, model)


def plan_names(root: Path) -> set[str]:
    return {path.name for path in (root / ".hoodie/timeline").iterdir()}


def completed_names(root: Path) -> set[str]:
    return {name for name in plan_names(root) if "_" in name}


def test_a_table_that_changes_while_files_are_read_is_not_repaired(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    lose(tmp_path)
    opened = reopened(table)
    (first, *_) = (tmp_path / "nl").glob("*.parquet")

    class Removing(LocalEngine):
        def map(self, task: Any, items: Any) -> Any:
            yield from list(super().map(task, items))
            first.unlink(missing_ok=True)

    with pytest.raises(CommitConflict, match="was changed since its files were listed"):
        opened.repair(Removing(1))
    assert not (tmp_path / ".hoodie/timeline").exists()


def test_a_repair_that_is_stopped_while_others_repair_and_write_undoes_nothing(tmp_path: Path) -> None:
    """Before each of its calls others finish the repair, write, compact, and archive."""
    _, model = compacted(tmp_path / "whole")
    lose(tmp_path / "whole")
    row = ("other", "nl", 9000, 2)
    told = ConfigError | CommitConflict | Fenced | StorageError  # by the last one to run it again
    small = {"hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}

    def take_over(table: LsmTable) -> object:
        with suppress(ConfigError):  # the first one was through
            table.repair()
        table.upsert(rows(row))
        table.compact()
        return table.archive()

    calls = Driver(Path(shutil.copytree(tmp_path / "whole", tmp_path / "counted")), LsmTable.repair).calls
    for call in sample(range(len(calls)), 9, 67):
        root = Path(shutil.copytree(tmp_path / "whole", tmp_path / f"at-{call}"))
        first = Driver(root, LsmTable.repair, call)
        second = Driver(root, take_over, **small)
        first.go_on()
        assert second.error is None
        assert first.error is None or isinstance(first.error, told), call
        assert_sound(reopened(LsmTable(root)), {**model, row[0]: row})
        shutil.rmtree(root)
