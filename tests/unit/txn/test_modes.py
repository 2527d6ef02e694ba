"""Writes beside writes and services, in each concurrency mode: what conflicts, and that nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.config import (
    CONCURRENCY_MODE,
    HEARTBEAT_MS,
    NON_BLOCKING,
    OPTIMISTIC,
    SINGLE_WRITER,
    SINGLE_WRITER_WAIT_MS,
)
from streaming_lsm.errors import (
    ClusteringConflict,
    CommitConflict,
    ConfigError,
    EarlyConflict,
    WriteConflict,
    WriterTimeout,
)
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.format.actions.file_state import FileState, RecordedFiles
from streaming_lsm.format.avro.container import encode_record
from streaming_lsm.format.table.file_names import WriteToken
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.locked_table import Beside, LockedTable
from streaming_lsm.write.partition_writer import WriteResult, write_partition
from streaming_lsm.write.plan import WritePlan
from tests.support.replaced_groups import put_replacement
from tests.support.service_tables import OPTIONS_OF_SERVICES, Model, assert_sound, grow, reopened
from tests.support.small_tables import Row, create, rows, shown
from tests.support.writers import new_process

MODES = (SINGLE_WRITER, OPTIMISTIC, NON_BLOCKING)
ALONE: dict[str, object] = {"lsm.write.single.writer.wait.ms": 0, "hoodie.write.num.retries.on.conflict.failures": 0}
OWN: Row = ("k1", "nl", 9, 900)
EARLY = "hoodie.write.concurrency.early.conflict.detection.enable"


def table_in(root: Path, mode: str, **options: object) -> tuple[LsmTable, Model]:
    """A table with rows in two buckets of one partition, and its rows by key."""
    table = create(root, **{**OPTIONS_OF_SERVICES, CONCURRENCY_MODE.key: mode, **ALONE, **options})
    model: Model = {}
    for batch in range(3):
        grow(table, model, batch)
    return table, model


def other_writer(table: LsmTable, **options: object) -> LsmTable:
    """The table as another process has it."""
    return reopened(table, **{CONCURRENCY_MODE.key: table.options[CONCURRENCY_MODE], **ALONE, **options})


def reader_of(*found: Row, meanwhile: Callable[[], object]) -> pa.RecordBatchReader:
    """Rows to write; something happens after the write has begun, and before it is completed."""

    def batches() -> Iterator[pa.RecordBatch]:
        meanwhile()
        yield from rows(*found).to_batches()

    return pa.RecordBatchReader.from_batches(rows().schema, batches())


def upsert(table: LsmTable, *found: Row) -> Callable[[Model], None]:
    table.upsert(rows(*found))
    return lambda model: model.update({row[0]: row for row in found})


def same_bucket(table: LsmTable) -> Callable[[Model], None]:
    return upsert(table, ("k1", "nl", 8, 800), ("k2", "nl", 8, 801))


def other_partition(table: LsmTable) -> Callable[[Model], None]:
    return upsert(table, ("x1", "fr", 8, 800))


def deletes(table: LsmTable) -> Callable[[Model], None]:
    table.delete(pa.table({"id": ["k1"], "country": ["nl"]}))
    return lambda model: model.pop("k1", None) and None


def compaction(table: LsmTable) -> Callable[[Model], None]:
    assert table.compact() is not None
    return lambda model: None


def planned(table: LsmTable) -> Callable[[Model], None]:
    assert table.services.schedule()[0] is not None
    return lambda model: None


def cleaning(table: LsmTable) -> Callable[[Model], None]:
    other_writer(table, **{"hoodie.clean.commits.retained": 1}).clean()
    return lambda model: None


def abandoned(table: LsmTable) -> Callable[[Model], None]:
    """A write of the same bucket that fails, and is rolled back."""
    with pytest.raises(RuntimeError, match="fails"):
        table.upsert(reader_of(("k1", "nl", 8, 800), meanwhile=_fail))
    return lambda model: None


def _fail() -> None:
    raise RuntimeError("fails")


CONFLICTS = {
    (same_bucket, SINGLE_WRITER): WriterTimeout,
    (same_bucket, OPTIMISTIC): WriteConflict,
    (deletes, SINGLE_WRITER): WriterTimeout,
    (deletes, OPTIMISTIC): WriteConflict,
    (other_partition, SINGLE_WRITER): WriterTimeout,
    (abandoned, SINGLE_WRITER): WriterTimeout,
}
"""What goes wrong; in SINGLE_WRITER mode with the other write, which is refused, else with the own one."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "other", [same_bucket, other_partition, deletes, compaction, planned, cleaning, abandoned], ids=lambda f: f.__name__
)
def test_a_write_beside_another_action(
    tmp_path: Path, mode: str, other: Callable[[LsmTable], Callable[[Model], None]]
) -> None:
    table, model = table_in(tmp_path, mode)
    expected = CONFLICTS.get((other, mode))
    changes: list[Callable[[Model], None]] = []

    def meanwhile() -> None:
        if mode == SINGLE_WRITER and expected is not None:
            with pytest.raises(expected):
                other(other_writer(table))
        else:
            changes.append(other(other_writer(table)))

    def write() -> None:
        table.upsert(reader_of(OWN, ("new", "nl", 9, 901), meanwhile=meanwhile))

    if mode != SINGLE_WRITER and expected is not None:
        with pytest.raises(expected) as raised:
            write()
        assert type(raised.value) is expected
    else:
        write()
        changes.append(lambda found: found.update({"k1": OWN, "new": ("new", "nl", 9, 901)}))
    if mode == NON_BLOCKING and other is deletes:
        # A delete without ordering value deletes what was requested before it, whatever was completed first.
        changes.reverse()
    for change in changes:
        change(model)
    assert_sound(other_writer(table), model)
    # The table goes on: write, compact, clean.
    later = other_writer(table)
    grow(later, model, 20)
    later.compact()
    assert_sound(other_writer(table), model)


def test_a_write_that_others_waited_for_leaves_no_file_of_theirs(tmp_path: Path) -> None:
    table, _ = table_in(tmp_path, SINGLE_WRITER, **{HEARTBEAT_MS.key: 1000})
    other = other_writer(table, **{SINGLE_WRITER_WAIT_MS.key: 100})  # until the write's heartbeat shows that it lives
    asked: list[str] = []

    def meanwhile() -> None:
        with pytest.raises(WriterTimeout):
            other_partition(other)
        asked.extend(name for name in table.storage.names(HEARTBEAT_FOLDER) if name.endswith(".waiting"))

    table.upsert(reader_of(OWN, meanwhile=meanwhile))
    assert len(asked) == 1
    assert not table.storage.names(HEARTBEAT_FOLDER)


@pytest.mark.parametrize("mode", [OPTIMISTIC, NON_BLOCKING])
def test_two_writes_of_a_new_partition(tmp_path: Path, mode: str) -> None:
    table, model = table_in(tmp_path, mode)

    def meanwhile() -> None:
        upsert(other_writer(table), ("a", "fr", 1, 1), ("b", "fr", 1, 1), ("c", "fr", 1, 1))(model)

    own: tuple[Row, ...] = (("a", "fr", 2, 2), ("d", "fr", 2, 2), ("e", "fr", 2, 2))
    batch = reader_of(*own, meanwhile=meanwhile)
    if mode == OPTIMISTIC:
        with pytest.raises(WriteConflict, match=r"bucket [01] of partition 'fr'"):
            table.upsert(batch)
    else:
        table.upsert(batch)
        model.update({row[0]: row for row in own})
        assert all(found.file_id[8:] == "-0000-0000-0000-000000000000-0" for found in fr(table))
    assert_sound(other_writer(table), model)
    assert len(fr(table)) == 2
    other_writer(table).compact()
    assert_sound(other_writer(table), model)


def written_by(plan: WritePlan, found: pa.Table) -> WriteResult:
    """Write rows as one task does."""
    return WriteResult.joined([write_partition(plan, found.to_batches(), WriteToken(0, 0, 0))])


def replace_groups(table: LsmTable, partition: str) -> None:
    """Replace all file groups of a partition, as another program does."""
    ids = tuple(found.file_id for found in table.file_slices() if found.partition_path == partition)
    with table.transaction() as tx:
        begun, completed = tx.new_time(), tx.new_time()
    put_replacement(table.storage, begun, completed, {partition: ids})


def fr(table: LsmTable) -> list[FileSlice]:
    return [found for found in other_writer(table).file_slices() if found.partition_path == "fr"]


def test_two_base_files_of_one_bucket_conflict_where_logs_do_not(tmp_path: Path) -> None:
    table, model = table_in(tmp_path, NON_BLOCKING)

    def meanwhile() -> None:
        other_writer(table).bulk_insert(rows(("a", "fr", 1, 1), ("b", "fr", 1, 1), ("c", "fr", 1, 1)))

    with pytest.raises(WriteConflict):
        table.bulk_insert(reader_of(("d", "fr", 2, 2), ("e", "fr", 2, 2), ("f", "fr", 2, 2), meanwhile=meanwhile))
    model.update({key: (key, "fr", 1, 1) for key in "abc"})
    assert_sound(other_writer(table), model)


@pytest.mark.parametrize("compacted", [None, "planned", "run"])
def test_a_base_file_that_began_before_logs_of_its_bucket_is_a_conflict(tmp_path: Path, compacted: str | None) -> None:
    table, model = table_in(tmp_path, NON_BLOCKING)

    def meanwhile() -> None:
        upsert(other_writer(table), ("a", "fr", 1, 1), ("b", "fr", 1, 1), ("c", "fr", 1, 1))(model)
        if compacted == "planned":
            planned(other_writer(table))
        elif compacted == "run":
            compaction(other_writer(table))

    # A compaction that was requested later would supersede the base file, with its rows.
    own: tuple[Row, ...] = (("d", "fr", 2, 2), ("e", "fr", 2, 2), ("f", "fr", 2, 2))
    with pytest.raises(WriteConflict):
        table.bulk_insert(reader_of(*own, meanwhile=meanwhile))
    assert_sound(other_writer(table), model)
    other_writer(table).bulk_insert(rows(*own))
    model.update({row[0]: row for row in own})
    other_writer(table).compact()
    assert_sound(other_writer(table), model)


def test_logs_after_a_base_file_of_their_bucket_are_kept(tmp_path: Path) -> None:
    table, model = table_in(tmp_path, NON_BLOCKING)

    def bases() -> None:
        other_writer(table).bulk_insert(rows(("e", "be", 1, 1), ("f", "be", 1, 1)))

    table.upsert(reader_of(("e", "be", 2, 2), ("g", "be", 2, 2), meanwhile=bases))
    model.update({"e": ("e", "be", 2, 2), "f": ("f", "be", 1, 1), "g": ("g", "be", 2, 2)})
    assert_sound(other_writer(table), model)
    other_writer(table).compact()
    assert_sound(other_writer(table), model)


@pytest.mark.parametrize("is_compacted", [False, True], ids=["not-compacted", "compacted"])
@pytest.mark.parametrize("own", [1, 7, 9], ids=["smaller", "equal", "larger"])
def test_of_equal_ordering_values_the_write_that_was_requested_later_wins_unless_a_compaction_came_in_between(
    tmp_path: Path, own: int, is_compacted: bool
) -> None:
    table = create(tmp_path, **{CONCURRENCY_MODE.key: NON_BLOCKING})
    table.upsert(rows(("z", "nl", 1, 1)))

    def meanwhile() -> None:
        other = other_writer(table)
        other.upsert(rows(("k", "nl", 7, 222)))
        assert not is_compacted or other.compact() is not None

    table.upsert(reader_of(("k", "nl", own, 111), meanwhile=meanwhile))
    wins = own > 7 or (own == 7 and is_compacted)
    for _ in range(2):
        assert shown(table)[0] == (("k", "nl", own, 111) if wins else ("k", "nl", 7, 222))
        table.compact()


@pytest.mark.parametrize("mode", MODES)
def test_a_file_group_that_is_replaced_meanwhile_is_a_conflict(tmp_path: Path, mode: str) -> None:
    table, _ = table_in(tmp_path, mode)

    def meanwhile() -> None:
        replace_groups(other_writer(table, **{CONCURRENCY_MODE.key: OPTIMISTIC}), "nl")

    with pytest.raises(ClusteringConflict, match="has replaced bucket"):
        table.upsert(reader_of(OWN, meanwhile=meanwhile))
    assert shown(other_writer(table)) == []
    # New file groups have other ids than the replaced ones, however often they are replaced.
    for _ in range(3):
        other_writer(table).upsert(rows(OWN))
        assert shown(other_writer(table)) == [OWN]
        replace_groups(other_writer(table, **{CONCURRENCY_MODE.key: OPTIMISTIC}), "nl")


@pytest.mark.parametrize("mode", MODES)
def test_a_compaction_whose_file_groups_are_replaced_meanwhile_is_in_no_way(tmp_path: Path, mode: str) -> None:
    table, _ = table_in(tmp_path, mode)
    planned(other_writer(table))
    replace_groups(other_writer(table), "nl")
    model: Model = {}
    upsert(table, *((f"k{n}", "nl", 1, n) for n in range(8)))(model)

    def meanwhile() -> None:
        other = other_writer(table)
        compaction(other)
        done = next(write for write in other.timeline.completed_writes if write.action == "commit")
        recorded = RecordedFiles.of(other.timeline.read_commit(done).extra, done.path)
        assert recorded is not None
        assert recorded.state == FileState.of(path for found in other.file_slices() for path in found.paths)

    table.upsert(reader_of(OWN, meanwhile=meanwhile))
    model["k1"] = OWN
    assert_sound(other_writer(table), model)
    upsert(table, ("k2", "nl", 9, 902))(model)
    assert_sound(other_writer(table), model)


@pytest.mark.parametrize("mode", MODES)
def test_a_pending_clustering_of_a_file_group_is_a_conflict_and_of_another_one_is_none(
    tmp_path: Path, mode: str
) -> None:
    table, model = table_in(tmp_path, mode)
    group = next(found for found in table.file_slices() if found.partition_path == "nl")
    with table.transaction() as tx:
        path = f".hoodie/timeline/{tx.new_time()}.clustering.requested"
    found = {"fileId": group.file_id, "partitionPath": group.partition_path}
    plan = {"inputGroups": [{"slices": [found]}]}
    record = {"operationType": "CLUSTER", "clusteringPlan": plan}
    table.storage.put_if_absent(path, encode_record("HoodieRequestedReplaceMetadata", record))
    upsert(other_writer(table), ("x1", "fr", 8, 800))(model)
    with pytest.raises(ClusteringConflict, match=f"about to replace file group {group.file_id}"):
        other_writer(table).upsert(rows(*model.values()))
    assert_sound(other_writer(table), model)


def test_a_copy_on_write_table_has_no_non_blocking_writes(tmp_path: Path) -> None:
    table = create(tmp_path, **{"hoodie.table.type": "COPY_ON_WRITE", CONCURRENCY_MODE.key: NON_BLOCKING})
    with pytest.raises(ConfigError, match="needs a MERGE_ON_READ table"):
        table.upsert(rows(OWN))
    assert Timeline.load(table.storage).instants == ()


def test_copy_on_write_tables_detect_conflicts_by_bucket(tmp_path: Path) -> None:
    table, model = table_in(tmp_path, OPTIMISTIC, **{"hoodie.table.type": "COPY_ON_WRITE"})
    batch = reader_of(OWN, meanwhile=lambda: same_bucket(other_writer(table))(model))
    with pytest.raises(WriteConflict):
        table.upsert(batch)
    table.upsert(reader_of(OWN, meanwhile=lambda: other_partition(other_writer(table))(model)))
    model["k1"] = OWN
    assert_sound(other_writer(table), model)


def test_an_early_conflict_is_found_before_a_file_is_written(tmp_path: Path) -> None:
    table, model = table_in(tmp_path, OPTIMISTIC, **{EARLY: True})

    def later() -> None:
        with pytest.raises(EarlyConflict, match="began earlier and is changing bucket"):
            other_writer(table, **{EARLY: True}).upsert(rows(*((f"k{n}", "nl", 9, 9) for n in range(8))))
        # In other buckets both are free.
        other_writer(table, **{EARLY: True}).upsert(rows(("x1", "fr", 8, 800)))
        model["x1"] = ("x1", "fr", 8, 800)

    with table.transaction() as tx:
        own = table.plan(tx, "upsert").at(tx.begin("deltacommit"))
        written = written_by(own, rows(*model.values()))
        later()
        table.commit(tx, own, written)
    assert_sound(other_writer(table), model)
    other_writer(table, **{EARLY: True}).upsert(rows(OWN))
    model["k1"] = OWN
    assert_sound(other_writer(table), model)


def test_a_conflict_is_no_more_than_its_retries(tmp_path: Path) -> None:
    table, model = table_in(tmp_path, OPTIMISTIC)
    retrying = other_writer(table, **{"hoodie.write.num.retries.on.conflict.failures": 3})
    attempts: list[int] = []
    plan = retrying.plan

    def planned_beside_another(*given: object, **named: object) -> object:
        found = plan(*given, **named)  # type: ignore[arg-type]
        attempts.append(len(attempts))
        return found

    collect = retrying._collect

    def collect_beside_another(*given: object) -> object:
        if len(attempts) <= 2:
            same_bucket(other_writer(table))(model)
        return collect(*given)  # type: ignore[arg-type]

    retrying.plan = planned_beside_another  # type: ignore[assignment]
    retrying._collect = collect_beside_another  # type: ignore[assignment]
    assert retrying.upsert(rows(OWN)) is not None
    assert len(attempts) == 3
    model["k1"] = OWN
    assert_sound(other_writer(table), model)


def test_a_batch_that_had_conflicts_is_written_alone(tmp_path: Path) -> None:
    table, model = table_in(tmp_path, OPTIMISTIC)
    identity = None
    other = other_writer(table, **{"lsm.write.single.writer.wait.ms": 60_000})
    waits: list[float] = []

    def commit(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            table.commit(tx, plan, written_by(plan, rows(OWN)))

    other.runtime = replace(new_process(alive=lambda process: True), sleep=commit)
    with table.transaction(identity, alone=True) as tx:
        plan = table.plan(tx, "upsert")
        plan = plan.at(tx.begin(plan.action))
        # The other one waits until this one is completed.
        upsert(other, ("x1", "fr", 8, 800))(model)
    assert waits
    model["k1"] = OWN
    last = max(table.timeline.completed_writes, key=lambda write: write.completed or "")
    assert {stat.partition_path for stat in table.timeline.read_commit(last).stats} == {"fr"}
    assert_sound(other_writer(table), model)


def test_a_write_that_is_made_alone_waits_no_longer_than_the_options_say(tmp_path: Path) -> None:
    table, model = table_in(tmp_path, OPTIMISTIC)

    def alone() -> None:
        # As both wait for no time they are written beside each other.
        inner = other_writer(table)
        with inner.transaction(alone=True) as tx:
            plan = inner.plan(tx, "upsert")
            plan = plan.at(tx.begin(plan.action))
            upsert(other_writer(table), ("x1", "be", 8, 800))(model)
            inner.commit(tx, plan, written_by(plan, rows(("x2", "fr", 8, 801))))
        model["x2"] = ("x2", "fr", 8, 801)

    table.upsert(reader_of(OWN, meanwhile=alone))
    model["k1"] = OWN
    assert Timeline.load(table.storage).pending == ()
    assert_sound(other_writer(table), model)


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_a_write_that_is_made_alone_conflicts_with_what_was_requested_after_it(tmp_path: Path, kind: str) -> None:
    """One that does not wait for it is completed before it is planned, and has the newer files nevertheless."""
    table, model = table_in(tmp_path, OPTIMISTIC, **{"hoodie.table.type": kind})

    def write_alone() -> None:
        with table.transaction(alone=True) as tx:
            plan = table.plan(tx, "upsert")
            plan = plan.at(tx.begin(plan.action))
            table.commit(tx, plan, written_by(plan, rows(OWN)))

    acquire = LockedTable.acquire

    def overtaken(locked: LockedTable, beside: Beside, own: Instant | None = None) -> None:
        if own is not None:
            same_bucket(other_writer(table))(model)
        acquire(locked, beside, own)

    with mock.patch.object(LockedTable, "acquire", overtaken), pytest.raises(WriteConflict):
        write_alone()
    assert_sound(other_writer(table), model)
    write_alone()
    model["k1"] = OWN
    assert_sound(other_writer(table), model)


def test_lazily_a_dead_write_is_rolled_back_by_the_next_clean(tmp_path: Path) -> None:
    lazy: dict[str, object] = {"hoodie.clean.failed.writes.policy": "LAZY"}
    table, model = table_in(tmp_path, OPTIMISTIC, **lazy)
    transaction = table.transaction()
    transaction.__enter__()
    requested = transaction.begin()
    # As of a process that was killed: the heartbeat is there, and nobody renews it.
    transaction._heartbeat.stop()
    transaction._runtime.process_locks.end(transaction._lock.owner)
    grow(table, model, 3)
    assert requested in {pending.requested for pending in Timeline.load(table.storage).pending}
    assert_sound(other_writer(table, **lazy), model)
    other_writer(table, **lazy).clean()
    assert Timeline.load(table.storage).pending == ()
    assert_sound(other_writer(table, **lazy), model)


def test_a_dead_write_that_is_left_to_a_clean_is_in_nobodys_way(tmp_path: Path) -> None:
    options: dict[str, object] = {"hoodie.clean.failed.writes.policy": "LAZY", EARLY: True}
    table, model = table_in(tmp_path, OPTIMISTIC, **options)
    transaction = table.transaction()
    transaction.__enter__()
    plan = table.plan(transaction, "upsert")
    written_by(plan.at(transaction.begin()), rows(OWN))
    transaction._heartbeat.stop()
    transaction._runtime.process_locks.end(transaction._lock.owner)
    upsert(other_writer(table, **options), ("k1", "nl", 8, 800), ("k2", "nl", 8, 801))(model)
    assert_sound(other_writer(table, **options), model)


@pytest.mark.parametrize(("policy", "left"), [("LAZY", 0), ("EAGER", 0)])
def test_inline_cleaning_rolls_dead_writes_back(tmp_path: Path, policy: str, left: int) -> None:
    table, model = table_in(tmp_path, OPTIMISTIC, **{"hoodie.clean.failed.writes.policy": policy})
    requested = table.timeline.last_time[:-3] + "999"
    table.storage.put_if_absent(f".hoodie/timeline/{requested}.deltacommit.requested", b"")
    table.storage.put_if_absent(f".hoodie/timeline/{requested}.deltacommit.inflight", b"")
    options: dict[str, object] = {"hoodie.clean.failed.writes.policy": policy, "hoodie.clean.automatic": True}
    grow(other_writer(table, **options), model, 3)
    assert len(Timeline.load(table.storage).pending) == left
    assert_sound(other_writer(table), model)


def test_a_conflict_is_a_commit_conflict(tmp_path: Path) -> None:
    for kind in (WriteConflict, ClusteringConflict, EarlyConflict, WriterTimeout):
        assert issubclass(kind, CommitConflict)
