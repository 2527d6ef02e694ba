"""Rollback of the last completed write: what is left, what is refused, and what becomes of it when interrupted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.config import WRITER_ID
from streaming_lsm.errors import CommitConflict, CommitUnknown, ConfigError, CorruptFileError, Fenced, LsmError
from streaming_lsm.format.actions.rollback import RollbackPlan
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER
from streaming_lsm.metadata.files import metadata_files
from streaming_lsm.services.archiving import planner, runner
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import State
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from tests.oracle.validator import validate
from tests.support.crash_points import combined, sample
from tests.support.faulty_storage import Fault, FaultyStorage, Interrupted, Killed
from tests.support.interleaving import Driver, Work
from tests.support.service_tables import OPTIONS_OF_SERVICES, Model, assert_sound, compactions, grow, grown, reopened
from tests.support.small_tables import Row, data_files, rows, shown
from tests.support.writers import NO_WAIT

COW: dict[str, object] = {"hoodie.table.type": "COPY_ON_WRITE"}
METADATA: dict[str, object] = {"hoodie.metadata.enable": True, "hoodie.metadata.compact.max.delta.commits": 3}
EXTRA: Row = ("extra", "nl", 9000, 1)


def last(table: LsmTable) -> str:
    newest = max(table.timeline.completed_writes, key=lambda write: write.completed or "")
    return newest.requested


def extended(root: Path, **options: object) -> tuple[LsmTable, Model]:
    """A table of three batches and a compaction, and a last write that adds a row; the model is without that."""
    table, model = grown(root, batches=2, **options)
    if options.get("hoodie.table.type") != "COPY_ON_WRITE":
        table.compact()
    grow(table, model, 2)
    table.upsert(rows(EXTRA, ("k4", "nl", 9000, 77)))
    return table, model


def compacted(root: Path, **options: object) -> tuple[LsmTable, Model]:
    """A table whose last write is a compaction."""
    table, model = grown(root, batches=2, **options)
    table.compact()
    grow(table, model, 2)
    table.compact()
    return table, model


CASES: dict[str, tuple[Callable[..., tuple[LsmTable, Model]], dict[str, object]]] = {
    "upsert": (extended, {}),
    "copy-on-write": (extended, COW),
    "compaction": (compacted, {}),
    "metadata-table": (extended, METADATA),
    "compaction-with-metadata-table": (compacted, METADATA),
}


def assert_as_before(root: Path, model: Model, **options: object) -> None:
    """The table has the rows of the model, also by its metadata table, and goes on."""
    table = reopened(LsmTable(root), **options)
    sound(table, model)
    if "hoodie.metadata.enable" in options:
        assert shown(reopened(table, **options)) == sorted(model.values())
    after = dict(model)
    grow(table, after, 7)
    sound(table, after)
    if not table.config.is_copy_on_write:
        table.compact()
    table.clean()
    sound(table, after)
    for folder in (DECISION_FOLDER, HEARTBEAT_FOLDER):
        assert table.storage.names(folder) == []


def sound(table: LsmTable, model: Model) -> None:
    assert_sound(table, model)


@pytest.mark.parametrize("name", CASES)
def test_the_last_write_is_undone_and_the_table_is_as_before(tmp_path: Path, name: str) -> None:
    make, options = CASES[name]
    table, model = make(tmp_path, **options)
    before = [write for write in table.timeline.completed_writes if write.requested != last(table)]
    undone = last(table)
    done = table.rollback(undone)
    assert done.action == "rollback"
    assert list(table.timeline.completed_writes) == before
    assert not any(undone in path for path in data_files(tmp_path))
    assert [instant for instant in table.timeline.instants if instant.requested == undone] == []
    assert table.timeline.finished_rollbacks()[undone] == done
    assert_as_before(tmp_path, model, **options)


@pytest.mark.parametrize("created", ["by the rollback", "before it"])
def test_a_metadata_table_that_was_created_after_the_write_does_not_list_its_files(
    tmp_path: Path, created: str
) -> None:
    extended(tmp_path)
    table = reopened(LsmTable(tmp_path), **METADATA)
    if created == "before it":
        table.clean()
        assert metadata_files(table.storage, table.config.timeline_layout) is not None
    gone = [path for path in table.plan_rollback().files]
    assert gone
    table.rollback()
    table.upsert(rows(("k4", "nl", 9001, 5)))
    listing = metadata_files(table.storage, table.config.timeline_layout)
    assert listing is not None
    assert not {entry.path for entries in listing.entries().values() for entry in entries}.intersection(gone)
    assert validate(tmp_path) == []


def test_all_writes_can_be_rolled_back_one_after_the_other(tmp_path: Path) -> None:
    table, model = grown(tmp_path, batches=3)
    states = []
    while table.timeline.completed_writes:
        states.append(shown(table))
        table.rollback()
        assert validate(tmp_path) == []
    assert len(states) == 4
    assert shown(table) == []
    assert data_files(tmp_path) == set()
    model.clear()
    grow(table, model, 0)
    assert_sound(table, model)


def test_a_batch_that_was_rolled_back_is_written_again(tmp_path: Path) -> None:
    table, model = grown(tmp_path, batches=2)
    stream = reopened(table, **{WRITER_ID.key: "stream"})
    assert stream.upsert(rows(EXTRA), batch_id=0) is not None
    assert stream.upsert(rows(("more", "nl", 1, 1)), batch_id=1) is not None
    assert stream.upsert(rows(("more", "nl", 1, 1)), batch_id=1) is None
    table.rollback()
    assert stream.upsert(rows(EXTRA), batch_id=0) is None
    assert stream.upsert(rows(("more", "nl", 1, 2)), batch_id=1) is not None
    model.update({EXTRA[0]: EXTRA, "more": ("more", "nl", 1, 2)})
    assert_sound(stream, model)


def test_another_process_that_knows_the_write_goes_on(tmp_path: Path) -> None:
    table, model = grown(tmp_path, batches=2)
    other = reopened(table)
    other.upsert(rows(EXTRA))
    assert ("extra", "nl", 9000, 1) in shown(other)
    reopened(table).rollback()
    assert shown(other) == sorted(model.values())
    grow(other, model, 2)
    assert_sound(other, model)
    assert other.compact() is not None
    assert_sound(other, model)


def test_incremental_queries_do_not_show_the_write_any_more(tmp_path: Path) -> None:
    table, _ = grown(tmp_path, batches=2)
    begin = table.timeline.last_time
    table.upsert(rows(EXTRA))
    undone = last(table)
    table.rollback()
    assert table.incremental(begin).to_arrow().num_rows == 0
    assert table.changes(begin).to_arrow().num_rows == 0
    assert shown(table, as_of=undone) == shown(table)
    table.upsert(rows(("next", "nl", 1, 1)))
    assert table.incremental(begin, columns=["id"]).to_arrow().to_pylist() == [{"id": "next"}]


def refuse(table: LsmTable, instant: str | None, match: str) -> None:
    before, files = table.timeline.instants, table.storage.names(".hoodie/timeline")
    for undo in (table.plan_rollback, table.rollback):
        with pytest.raises(ConfigError, match=match):
            undo(instant)
    assert table.timeline.instants == before
    assert table.storage.names(".hoodie/timeline") == files
    assert table.storage.names(DECISION_FOLDER) == []


def test_what_cannot_be_rolled_back_is_refused_by_name(tmp_path: Path) -> None:
    table, model = grown(tmp_path / "table", batches=2)
    first, newest = table.timeline.completed_writes[0].requested, last(table)
    refuse(table, first, f"{newest}_.* was completed after it: roll that back first")
    refuse(table, "20200101000000000", "no completed write 20200101000000000: give a requested time")
    table.savepoint(newest)
    refuse(table, newest, f"{newest}_.*savepoint keeps its files: delete the savepoint first")
    table.delete_savepoint(newest)
    planned, _ = table.services.schedule()
    assert planned is not None
    refuse(table, newest, f"{planned.file_name} was planned after it: finish that first")
    table.compact()
    grow(table, model, 2)
    undone, done = last(table), table.rollback()
    refuse(table, undone, f"was rolled back by {done.file_name}: that cannot be undone")
    refuse(table, done.requested, "is a rollback, which cannot be undone: write the rows again")
    again = reopened(table, **KEEP_FEW)
    for batch in range(3, 8):
        again.upsert(rows((f"b{batch}", "nl", 1, 1)))
    assert again.archive()
    refuse(again, first, f"the write {first} of .* is archived")
    refuse(reopened(LsmTable.create(tmp_path / "empty", table.schema, table.options)), None, "no completed write on")


KEEP_FEW: dict[str, object] = {
    "hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3,
    "hoodie.archive.automatic": False,
}  # fmt: skip


def test_the_oldest_write_of_the_timeline_stays_as_the_ledger_before_it_is_archived(tmp_path: Path) -> None:
    table, _ = grown(tmp_path, batches=0, **{**KEEP_FEW, WRITER_ID.key: "q"})
    for batch in range(6):
        table.upsert(rows((f"b{batch}", "nl", 1, 1)), batch_id=batch)
    assert table.archive()
    table.rollback()
    oldest, before = last(table), table.timeline.completed_writes[-2:]
    assert len(before) == 1
    refuse(table, oldest, "cannot be rolled back: .*, the last write before it, is archived")
    table.upsert(rows(("b0", "nl", 1, 1)), batch_id=0)
    assert last(table) == oldest


def test_a_write_is_refused_before_which_an_archived_one_was_completed_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = grown(tmp_path, batches=2, **KEEP_FEW)
    planned, _ = table.services.schedule()
    assert planned is not None
    for batch in range(2, 6):
        grow(table, model, batch)
    table.compact()
    monkeypatch.setattr(planner, "_in_order", lambda timeline, bound: bound)  # as other programs archive
    monkeypatch.setattr(runner, "with_ledger", lambda timeline, writes: None)
    table.upsert(rows(EXTRA))
    model[EXTRA[0]] = EXTRA
    assert planned.requested in {action.requested for action in table.archive()}
    refuse(table, None, f"{planned.requested}_.*commit, the last write before it, is archived")
    sound(table, model)
    grow(table, model, 7)
    table.rollback()


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_a_write_whose_superseded_files_were_cleaned_is_refused(tmp_path: Path, kind: str) -> None:
    policy = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
    table, model = grown(tmp_path, batches=3, **{"hoodie.table.type": kind, **policy})
    if kind == "MERGE_ON_READ":
        table.compact()
    assert table.clean() is not None
    refuse(table, None, "cannot be rolled back: .* was cleaned")
    assert_sound(table, model)


def test_a_dry_run_names_the_files_and_changes_nothing(tmp_path: Path) -> None:
    table, _ = extended(tmp_path)
    before = data_files(tmp_path)
    found = table.plan_rollback()
    assert found.write.requested == last(table)
    assert set(found.files) == {path for path in before if found.write.requested in path}
    assert data_files(tmp_path) == before


def test_a_dry_run_takes_a_write_of_a_dead_writer_for_undone_as_the_rollback_does(tmp_path: Path) -> None:
    table, _ = extended(tmp_path)
    newest = last(table)
    dying = reopened(table)
    dying.storage = FaultyStorage(dying.storage)
    dying.upsert(rows(("dead", "nl", 1, 1)))
    started = dying.storage.calls.index(("put_if_absent", dying.timeline.completed_writes[-1].at(State.INFLIGHT).path))
    table.rollback()
    dying.storage = FaultyStorage(LocalStorage(tmp_path), {started + 1: Fault.KILL_BEFORE})
    with suppress(Killed):
        dying.upsert(rows(("dead", "nl", 1, 1)))
    table = reopened(table)
    assert [found.action for found in table.timeline.pending] == ["deltacommit"]
    assert table.plan_rollback().write.requested == newest
    table.rollback()
    assert last(table) != newest


# --- interrupted ------------------------------------------------------------------------------------------------


def copied(template: Path, to: Path) -> Path:
    return Path(shutil.copytree(template, to))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", CASES)
def test_a_rollback_that_dies_at_any_call_is_finished_or_changes_nothing(tmp_path: Path, name: str) -> None:
    make, options = CASES[name]
    table, model = make(tmp_path / "template", **options)
    with_write, undone = shown(table), last(table)
    counting = FaultyStorage(LocalStorage(copied(tmp_path / "template", tmp_path / "counted")))
    reopened(LsmTable(tmp_path / "counted"), counting, **options).rollback()
    for fault in Fault:
        for call in sample(range(len(counting.calls)), list(Fault).index(fault) * 45, 227):
            root = copied(tmp_path / "template", tmp_path / f"{fault.name}{call}")
            with suppress(Killed, OSError, LsmError):
                reopened(LsmTable(root), FaultyStorage(LocalStorage(root), {call: fault}), **options).rollback(undone)
            reader = reopened(LsmTable(root))
            assert shown(reader) in (with_write, sorted(model.values())), counting.calls[call]
            with reader.transaction():
                pass
            if any(write.requested == undone for write in reader.timeline.completed_writes):
                assert shown(reader) == with_write
                reopened(LsmTable(root), **options).rollback(undone)
            assert shown(reader) == sorted(model.values())
            assert_as_before(root, model, **options)
            shutil.rmtree(root)


def readable(root: Path, states: list[list[Row]]) -> Callable[[], None]:
    def read() -> None:
        with suppress(CommitConflict):
            assert shown(LsmTable(root)) in states

    return read


def test_a_reader_between_any_two_calls_sees_the_table_with_the_write_or_without(tmp_path: Path) -> None:
    table, model = extended(tmp_path / "template")
    states = [shown(table), sorted(model.values())]
    counting = FaultyStorage(LocalStorage(copied(tmp_path / "template", tmp_path / "counted")))
    reopened(LsmTable(tmp_path / "counted"), counting).rollback()
    for call in sample(range(len(counting.calls)), 3, 37):
        root = copied(tmp_path / "template", tmp_path / str(call))
        reopened(LsmTable(root), Interrupted(LocalStorage(root), call, readable(root, states))).rollback()


def test_a_reader_that_loses_files_to_a_rollback_reads_again_or_is_told_to(tmp_path: Path) -> None:
    table, model = extended(tmp_path / "template")
    states = [shown(table), sorted(model.values())]
    counting = FaultyStorage(table.storage)
    shown(reopened(table, counting))
    for call in range(1, len(counting.calls)):
        root = copied(tmp_path / "template", tmp_path / str(call))
        other = reopened(LsmTable(root))
        reader = reopened(LsmTable(root), Interrupted(LocalStorage(root), call, lambda other=other: other.rollback()))
        try:
            assert shown(reader) in states
        except CorruptFileError as error:  # when it was opened
            if "a rollback deleted it before it was read, read again" not in str(error):
                raise


def test_a_reader_that_loses_a_replacecommit_to_a_rollback_reads_again_or_is_told_to(tmp_path: Path) -> None:
    table, model = extended(tmp_path / "template")
    states = [sorted([*(row for row in model.values() if row[1] != "nl"), ("other", "nl", 1, 1)]), shown(table)]
    table.insert_overwrite(rows(("other", "nl", 1, 1)))
    assert shown(table) == states[0]
    counting = FaultyStorage(table.storage)
    shown(reopened(table, counting))
    for call in range(1, len(counting.calls)):
        root = copied(tmp_path / "template", tmp_path / str(call))
        other = reopened(LsmTable(root))
        reader = reopened(LsmTable(root), Interrupted(LocalStorage(root), call, lambda other=other: other.rollback()))
        try:
            assert shown(reader) in states
        except CorruptFileError as error:  # when a file was opened
            if "a rollback deleted it before it was read, read again" not in str(error):
                raise


def with_pending_clean(root: Path) -> tuple[LsmTable, Model]:
    """A table with a clean whose process died before it began to delete."""
    table, model = compacted(root)
    counting = FaultyStorage(LocalStorage(copied(root, root.with_name("cleaned"))))
    reopened(LsmTable(root.with_name("cleaned")), counting, **CLEANED).clean()
    inflight = next(number for number, (_, path) in enumerate(counting.calls) if path.endswith(".clean.inflight"))
    faulty = FaultyStorage(LocalStorage(root), {inflight: Fault.KILL_BEFORE})
    with suppress(Killed):
        reopened(table, faulty, **CLEANED).clean()
    return table, model


def with_pending_compaction(root: Path) -> tuple[LsmTable, Model]:
    """A table with a planned compaction, whose earlier writes are archived: its schema is that of the last write."""
    table, model = grown(root)
    planned, _ = table.services.schedule()
    grow(table, model, 3)
    grow(table, model, 4)
    reopened(table, **CLEANED).archive()
    assert planned is not None
    assert table.timeline.completed_writes[0].requested > planned.requested
    return table, model


CLEANED: dict[str, object] = {
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
}
PREVIEWS: tuple[Callable[[LsmTable], object], ...] = (
    lambda table: table.services.due(),
    lambda table: table.services.preview_clean(),
    lambda table: table.services.preview_archive(),
    lambda table: table.plan_savepoint(),
    lambda table: table.plan_rollback(),
)
SERVICES: dict[str, tuple[Callable[[Path], tuple[LsmTable, Model]], Callable[[LsmTable], object]]] = {
    # name: the table before the write that is rolled back, and the service
    "compaction": (grown, LsmTable.compact),
    "pending-compaction": (with_pending_compaction, LsmTable.compact),
    "clean": (compacted, LsmTable.clean),
    "pending-clean": (with_pending_clean, LsmTable.clean),
    "archiving": (lambda root: grown(root, batches=5), LsmTable.archive),
    "previews": (compacted, lambda table: [preview(table) for preview in PREVIEWS]),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "overwrites"), combined(0, list(SERVICES), [False, True]))
def test_a_service_beside_which_a_write_is_rolled_back_finds_no_damage(
    tmp_path: Path, name: str, *, overwrites: bool
) -> None:
    make, serve = SERVICES[name]
    table, model = make(tmp_path / "template")
    if overwrites:
        table.insert_overwrite(rows(*model.values(), EXTRA))
    else:
        table.upsert(rows(EXTRA))
    undone, counting = last(table), FaultyStorage(LocalStorage(copied(tmp_path / "template", tmp_path / "counted")))
    serve(reopened(LsmTable(tmp_path / "counted"), counting, **CLEANED))
    times = 0
    for call in sample(range(1, len(counting.calls)), list(SERVICES).index(name), 8):
        root = copied(tmp_path / "template", tmp_path / str(call))
        rolled_back: list[object] = []

        def roll_back(root: Path = root, rolled_back: list[object] = rolled_back) -> None:
            with suppress(CommitConflict, ConfigError):
                rolled_back.append(LsmTable(root, {**OPTIONS_OF_SERVICES, **NO_WAIT}).rollback(undone))

        stopped = reopened(LsmTable(root), Interrupted(LocalStorage(root), call, roll_back), **CLEANED)
        with suppress(CommitConflict):
            serve(stopped)
        assert_sound(LsmTable(root), model if rolled_back else {**model, "extra": EXTRA})
        times += len(rolled_back)
        shutil.rmtree(root)
    assert times


def test_a_pending_clean_beside_a_compaction_that_is_completed_and_rolled_back_finds_no_damage(tmp_path: Path) -> None:
    root = tmp_path / "table"
    table, model = with_pending_clean(root)
    grow(table, model, 5)
    counted = Driver(copied(root, tmp_path / "compacted"), LsmTable.compact)
    inflight = next(
        number
        for number, (call, path) in enumerate(counted.calls)
        if call == "put_if_absent" and path.endswith("compaction.inflight")
    )
    compacting = Driver(root, LsmTable.compact, inflight + 1)
    counted = Driver(copied(root, tmp_path / "beside"), LsmTable.clean, **CLEANED)
    reads_plan = next(
        number for number, (call, path) in enumerate(counted.calls) if call == "read" and "compaction.requested" in path
    )
    cleaning = Driver(root, LsmTable.clean, reads_plan, **CLEANED)
    compacting.go_on()
    assert compacting.error is None
    table.rollback(last(table))
    cleaning.go_on()
    assert cleaning.error is None
    assert_sound(LsmTable(root), model)


def write(table: LsmTable) -> object:
    return table.upsert(rows(("other", "nl", 9000, 2)))


MEANWHILE: dict[str, Work] = {
    "upsert": write,
    "compact": LsmTable.compact,
    "rollback": lambda table: table.rollback(),
    "savepoint": lambda table: table.savepoint(),
}


def told(driver: Driver) -> None:
    kinds = (Fenced, CommitConflict, CommitUnknown, ConfigError)
    assert driver.error is None or isinstance(driver.error, kinds), driver.error


def assert_told(root: Path, model: Model, first: Driver, undone: str) -> None:
    """What was acknowledged is in the table; the row of the write is there if and only if its rollback is not."""
    table = reopened(LsmTable(root))
    with table.transaction():
        pass
    timeline = table.timeline
    assert [pending for pending in timeline.pending if pending.action in ("rollback", "deltacommit")] == []
    is_undone = undone in timeline.finished_rollbacks()
    assert is_undone != any(write.requested == undone for write in timeline.completed_writes)
    if first.error is None:
        assert is_undone
    found = {row[0] for row in shown(table)}
    assert found - {"other"} == {*model} | (set() if is_undone else {"extra"})
    assert validate(root) == []
    table.upsert(rows(("later", "nl", 1, 1)))
    assert validate(root) == []


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("other", MEANWHILE)
def test_a_rollback_that_is_stopped_is_finished_by_the_next_or_refused(tmp_path: Path, other: str) -> None:
    table, model = extended(tmp_path / "template")
    undone = last(table)
    counted = Driver(copied(tmp_path / "template", tmp_path / "counted"), lambda table: table.rollback(undone))
    assert counted.error is None
    for number in sample(range(len(counted.calls)), 1, 37):
        root = copied(tmp_path / "template", tmp_path / str(number))
        first = Driver(root, lambda table: table.rollback(undone), number)
        second = Driver(root, MEANWHILE[other])
        first.go_on()
        told(first)
        told(second)
        if other == "upsert" and second.error is None:
            assert ("other", "nl", 9000, 2) in shown(LsmTable(root))
        if other == "savepoint" and second.error is None:
            assert len(LsmTable(root).savepoints) == 1
            LsmTable(root).delete_savepoint(LsmTable(root).savepoints[0].instant.requested)
        if other != "rollback":
            assert_told(root, model, first, undone)
        else:
            assert validate(root) == []
        shutil.rmtree(root)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("other", ["rollback", "compact"])
def test_a_write_that_is_stopped_while_it_is_rolled_back_stays_undone(tmp_path: Path, other: str) -> None:
    _, model = grown(tmp_path / "template")
    counted = Driver(copied(tmp_path / "template", tmp_path / "counted"), lambda table: table.upsert(rows(EXTRA)))
    assert counted.error is None
    for number in sample(range(len(counted.calls)), 2, 37):
        root = copied(tmp_path / "template", tmp_path / str(number))
        before = {instant.requested for instant in LsmTable(root).timeline.instants}
        first = Driver(root, lambda table: table.upsert(rows(EXTRA)), number)
        begun = [found for found in LsmTable(root).timeline.instants if found.requested not in before]
        second = Driver(root, MEANWHILE[other])
        first.go_on()
        told(first)
        assert second.error is None
        table = reopened(LsmTable(root))
        with table.transaction():
            pass
        assert table.timeline.pending == ()
        assert validate(root) == [], number
        undone = table.timeline.finished_rollbacks()
        for instant in begun:
            if instant.requested in undone:
                assert "extra" not in {row[0] for row in shown(table)}
        grow(table, dict(model), 8)
        assert validate(root) == []
        shutil.rmtree(root)


def test_a_completed_file_that_came_back_is_deleted_by_the_next_transaction(tmp_path: Path) -> None:
    table, model = extended(tmp_path)
    newest = max(table.timeline.completed_writes, key=lambda write: write.completed or "")
    data = table.storage.read(newest.path)
    table.rollback()
    table.storage.put_if_absent(newest.path, data)
    grow(table, model, 3)
    assert not table.storage.exists(newest.path)
    assert_sound(table, model)


def test_a_plan_whose_write_is_not_the_last_any_more_is_cancelled(tmp_path: Path) -> None:
    table, model = extended(tmp_path / "template")
    undone = last(table)
    counted = Driver(copied(tmp_path / "template", tmp_path / "counted"), lambda table: table.rollback(undone))
    planned = next(n for n, (_, path) in enumerate(counted.calls) if path.endswith(".rollback.requested"))
    root = tmp_path / "template"
    first = Driver(root, lambda table: table.rollback(undone), planned, dies_at=planned + 1)
    assert Driver(root, write).error is None
    first.go_on()
    assert isinstance(first.error, Killed)
    table = reopened(LsmTable(root))
    (left,) = table.timeline.pending
    plan = RollbackPlan.decode(table.storage.read(left.at(State.REQUESTED).path), left.path)
    written = {write.requested: write.completed for write in table.timeline.completed_writes}
    assert (plan.instant, plan.completed) == (undone, written[undone])
    assert RollbackPlan.decode(plan.encode(), "again") == plan
    model.update({row[0]: row for row in (EXTRA, ("k4", "nl", 9000, 77), ("other", "nl", 9000, 2))})
    grow(table, model, 7)
    assert table.timeline.pending == ()
    assert_sound(table, model)


def test_a_compaction_that_is_rolled_back_is_not_run_again_by_its_plan(tmp_path: Path) -> None:
    table, model = compacted(tmp_path)
    (_, undone) = compactions(table)
    table.rollback()
    assert not [pending for pending in table.timeline.pending if pending.requested == undone.requested]
    again = table.compact()
    assert again is not None
    assert again.requested > undone.requested
    assert_sound(table, model)
