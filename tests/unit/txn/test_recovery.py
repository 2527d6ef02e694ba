"""What a writer finds on entering: the dead's work undone, the living's respected, hostile plans refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CommitConflict, CommitUnknown, CorruptFileError, Fenced, UnsupportedTable
from streaming_lsm.format.actions.commit import base_file_stat, log_file_stat
from streaming_lsm.format.actions.rollback import RollbackMetadata, RollbackPlan, RollbackRequest
from streaming_lsm.format.table.file_names import BaseFileName, LogKind
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER, Claim, heartbeat_path
from streaming_lsm.lock.markers import TEMP_FOLDER, create_marker, marker_folder, marker_path
from streaming_lsm.lock.owner import Owner
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, Instant, State
from streaming_lsm.timeline.properties_file import BACKUP_PATH, load_properties, update_properties
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.decision import publish
from streaming_lsm.txn.decision_record import DECISION_FOLDER, Decision, decision_path
from streaming_lsm.txn.rollback import planned_files
from tests.support.faulty_storage import Fault, FaultyStorage, Interrupted, Killed
from tests.support.histories import add_past
from tests.support.small_tables import create, rows
from tests.support.writers import (
    KEPT,
    NOON_MS,
    DataFile,
    assert_clean,
    files_below,
    make_table,
    new_process,
    outcome,
    transaction,
    write_batch,
    write_file,
)

DEAD = "20261121110000000"
ROLLBACK = Instant("20261121110000100", "rollback", State.REQUESTED)
FILE = DataFile("nl", 3)
PATH = f"{FILE.partition}/{FILE.name(DEAD)}"


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return make_table(tmp_path)


def put_dead_write(storage: LocalStorage, action: str = "deltacommit") -> Instant:
    inflight = Instant(DEAD, action, State.INFLIGHT)
    storage.put_if_absent(inflight.at(State.REQUESTED).path, b"")
    storage.put_if_absent(inflight.path, b"")
    storage.put_if_absent(marker_path(DEAD, FILE.partition, str(FILE.name(DEAD))), b"")
    storage.put_if_absent(PATH, b"data")
    return inflight


def put_plan(storage: LocalStorage, *files: str, target: str = DEAD, action: str = "deltacommit") -> None:
    plan = RollbackPlan(target, action, (RollbackRequest("nl", "id", target, files),))
    storage.put_if_absent(ROLLBACK.path, plan.encode())


def enter(storage: Storage) -> Timeline:
    with transaction(storage, new_process()) as entered:
        return entered.timeline


@pytest.mark.parametrize("action", ["deltacommit", "commit", "replacecommit"])
def test_a_dead_writers_write_is_rolled_back_as_hudi_records_it(storage: LocalStorage, action: str) -> None:
    put_dead_write(storage, action)
    timeline = enter(storage)
    (rollback,) = timeline.instants
    assert rollback.action == "rollback"
    assert rollback.is_completed
    assert storage.read(rollback.at(State.INFLIGHT).path) == b""
    requested = rollback.at(State.REQUESTED).path
    plan = RollbackPlan.decode(storage.read(requested), requested)
    assert (plan.instant, plan.action, planned_files(plan)) == (DEAD, action, (PATH,))
    assert plan.requests[0].files == (f"{storage.uri}/{PATH}",)
    outcome = RollbackMetadata.decode(storage.read(rollback.path), rollback.path)
    assert (outcome.start, outcome.instant, outcome.action) == (rollback.requested, DEAD, action)
    assert [(part.partition_path, part.deleted) for part in outcome.partitions] == [("nl", (PATH,))]
    assert not storage.exists(PATH)
    assert not storage.exists(marker_folder(DEAD))


def test_a_plan_names_files_as_hadoop_does_without_escapes(tmp_path: Path) -> None:
    storage = make_table(tmp_path / "sp ace%20")
    put_dead_write(storage)
    (rollback,) = enter(storage).instants
    requested = rollback.at(State.REQUESTED).path
    (request,) = RollbackPlan.decode(storage.read(requested), requested).requests
    assert request.files == (f"file://{tmp_path.resolve()}/sp ace%20/{PATH}",)


def test_both_names_of_an_inflight_commit_are_removed(storage: LocalStorage, tmp_path: Path) -> None:
    put_dead_write(storage, "commit")
    storage.put_if_absent(f".hoodie/timeline/{DEAD}.commit.inflight", b"")
    enter(storage)
    assert not any(DEAD in path for path in files_below(tmp_path))


def test_several_dead_writes_are_rolled_back_newest_first(storage: LocalStorage) -> None:
    times = [f"2026112111000{second}000" for second in range(3)]
    for time in times:
        storage.put_if_absent(Instant(time, "deltacommit", State.REQUESTED).path, b"")
    undone = [
        RollbackMetadata.decode(storage.read(rollback.path), rollback.path).instant
        for rollback in enter(storage).instants
    ]
    assert undone == times[::-1]


def test_compactions_and_clusterings_that_wait_are_left_alone(storage: LocalStorage) -> None:
    waiting = [
        Instant(f"2026112111000{n}000", action, State.REQUESTED)
        for n, action in enumerate(["compaction", "clustering"])
    ]
    for instant in waiting:
        storage.put_if_absent(instant.path, b"plan")
        storage.put_if_absent(marker_path(instant.requested, "nl", str(FILE.name(instant.requested))), b"")
    assert enter(storage).instants == tuple(waiting)
    assert all(storage.exists(marker_folder(instant.requested)) for instant in waiting)


def test_beside_a_plan_that_waits_no_rollback_is_read_and_the_timeline_only_once(storage: LocalStorage) -> None:
    put_dead_write(storage)
    enter(storage)
    waiting = Instant("20991121110000000", "compaction", State.REQUESTED)
    storage.put_if_absent(waiting.path, b"plan")
    counting = FaultyStorage(storage)
    with transaction(counting, new_process()) as entered:
        assert entered.timeline.pending == (waiting,)
    looked = [call for call in counting.calls if call[0] in ("list", "read") and TIMELINE_FOLDER in call[1]]
    assert looked == [("list", TIMELINE_FOLDER)]


def test_a_write_with_a_living_heartbeat_is_named_and_nothing_is_touched(storage: LocalStorage, tmp_path: Path) -> None:
    put_dead_write(storage)
    runtime = new_process(alive=lambda process: True)
    Claim(storage, DEAD, Owner(runtime.process(), "other query", "t", NOON_MS, 1000))
    before = files_below(tmp_path)
    with pytest.raises(
        CommitConflict, match=rf"{DEAD}.*'other query' \(process {runtime.process().pid} on host host\)"
    ):
        transaction(storage, new_process(alive=lambda process: True)).__enter__()
    assert files_below(tmp_path) == before


def test_a_heartbeat_without_owner_counts_while_it_is_fresh(storage: LocalStorage) -> None:
    put_dead_write(storage)
    storage.put_if_absent(heartbeat_path(DEAD), b"")
    watching, advance = watching_process()
    for seconds in (0, 120):
        advance(seconds)
        with pytest.raises(CommitConflict, match="does not name itself"):
            transaction(storage, watching).__enter__()
    advance(0.001)
    with transaction(storage, watching) as entered:
        assert entered.timeline.pending == ()
    assert not storage.exists(heartbeat_path(DEAD))


def test_a_heartbeat_from_another_machine_counts_until_its_lease_ends(storage: LocalStorage, tmp_path: Path) -> None:
    put_dead_write(storage)
    far = replace(new_process().process(), machine="far")
    Claim(storage, DEAD, Owner(far, "far query", "t", NOON_MS, 5000))
    watching, advance = watching_process()
    for seconds in (0, 5):
        advance(seconds)
        with pytest.raises(CommitConflict, match="'far query'"):
            transaction(storage, watching).__enter__()
    os.utime(tmp_path / heartbeat_path(DEAD), (1, 1))  # a renewal is another time, whatever it is
    advance(1)
    with pytest.raises(CommitConflict, match="'far query'"):
        transaction(storage, watching).__enter__()
    advance(5.001)
    with transaction(storage, watching) as entered:
        assert entered.timeline.pending == ()


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_an_hour_off_takes_no_living_writer_for_dead(storage: LocalStorage, hours: int) -> None:
    put_dead_write(storage)
    far = replace(new_process().process(), machine="far")
    Claim(storage, DEAD, Owner(far, "far query", "t", NOON_MS, 5000))
    beat_ms = storage.list(".hoodie/.heartbeat")[0].modified_ms
    with pytest.raises(CommitConflict, match="'far query'"):
        transaction(storage, new_process(clock=lambda: beat_ms + hours * 3_600_000)).__enter__()


def test_a_heartbeat_of_days_ago_needs_no_watching(storage: LocalStorage) -> None:
    put_dead_write(storage)
    far = replace(new_process().process(), machine="far")
    Claim(storage, DEAD, Owner(far, "far query", "t", NOON_MS, 5000))
    beat_ms = storage.list(".hoodie/.heartbeat")[0].modified_ms
    with transaction(storage, new_process(clock=lambda: beat_ms + 2 * 86_400_000)) as entered:
        assert entered.timeline.pending == ()


def watching_process() -> tuple[Runtime, Callable[[float], None]]:
    """A process that watches heartbeats, and what lets seconds pass for it; its clock does not tell anything."""
    passed = [0.0]

    def advance(seconds: float) -> None:
        passed[0] += seconds

    return replace(new_process(clock=lambda: 0), elapsed=lambda: passed[0]), advance


def test_a_rollback_that_was_only_planned_is_carried_out_not_repeated(storage: LocalStorage) -> None:
    put_dead_write(storage)
    put_plan(storage, f"/moved/from/here/{PATH}")
    timeline = enter(storage)
    assert [(instant.requested, instant.state) for instant in timeline.instants] == [
        (ROLLBACK.requested, State.COMPLETED)
    ]
    assert not storage.exists(PATH)


def test_a_resumed_rollback_deletes_and_records_what_the_plan_or_a_marker_names(storage: LocalStorage) -> None:
    put_dead_write(storage)
    unmarked = f"nl/{DataFile('nl', 1).name(DEAD)}"
    storage.put_if_absent(unmarked, b"data")
    put_plan(storage, unmarked)
    (rollback,) = enter(storage).instants
    outcome = RollbackMetadata.decode(storage.read(rollback.path), rollback.path)
    assert {path for part in outcome.partitions for path in part.deleted} == {PATH, unmarked}
    assert not storage.exists(PATH)
    assert not storage.exists(unmarked)


def test_a_resumed_rollback_shuts_tasks_out_before_it_deletes(storage: LocalStorage) -> None:
    put_dead_write(storage)
    put_plan(storage, PATH)
    Claim(storage, DEAD, Owner(new_process().process(), "dead", "t", NOON_MS, 1000))
    watched = FaultyStorage(storage)
    with transaction(watched, new_process()):
        pass
    assert watched.calls.index(("delete_if_unchanged", heartbeat_path(DEAD))) < watched.calls.index(
        ("delete_files", PATH)
    )


DONE = Instant(DEAD, "deltacommit", State.INFLIGHT).completed_at("20261121110000050")


def put_decision(storage: Storage) -> bytes:
    """The dead writer decided that its write is completed; returns the content of the completed file."""
    stat = log_file_stat("nl", FILE.name(DEAD), total_bytes=4, num_inserts=1)
    data = outcome([stat]).metadata({}, compacted=False).encode()
    storage.put_if_absent(decision_path(DEAD), Decision(decision_path(DEAD), DONE, data).encode())
    return data


def assert_rolled_back(storage: Storage) -> None:
    (rollback,) = Timeline.load(storage).instants
    assert (rollback.requested, rollback.state) == (ROLLBACK.requested, State.COMPLETED)
    assert not storage.exists(PATH)
    assert list(storage.names(DECISION_FOLDER)) == []


@pytest.mark.parametrize("deleted", [(), (PATH,), (PATH, *DONE.pending_paths()[:1])], ids=len)
def test_a_decided_write_is_not_completed_while_another_program_rolls_it_back(
    storage: LocalStorage, deleted: tuple[str, ...]
) -> None:
    put_dead_write(storage)
    put_decision(storage)
    put_plan(storage, PATH)
    for path in deleted:
        storage.delete(path)
    enter(storage)
    assert_rolled_back(storage)
    enter(storage)


def test_a_rollback_that_is_planned_after_the_timeline_was_loaded_is_found(tmp_path: Path) -> None:
    for name in ("watched", "table"):
        put_dead_write(make_table(tmp_path / name))
        put_decision(LocalStorage(tmp_path / name))
    watched = FaultyStorage(LocalStorage(tmp_path / "watched"))
    enter(watched)
    storage = LocalStorage(tmp_path / "table")
    call = watched.calls.index(("put_if_absent", decision_path(DEAD)))
    enter(Interrupted(storage, call, lambda: put_plan(storage, PATH)))
    assert_rolled_back(storage)


def test_a_writer_that_resumes_during_the_rollback_of_its_decided_write_is_acknowledged_only_if_its_file_stays(
    tmp_path: Path,
) -> None:
    acknowledged = []
    for call in range(1000):
        storage = make_table(tmp_path / str(call))
        write = put_dead_write(storage)
        data = put_decision(storage)
        put_plan(storage, PATH)

        def resume(storage: Storage = storage, write: Instant = write, data: bytes = data) -> None:
            with suppress(CommitUnknown, Fenced):
                publish(storage, decision_path(DEAD), write, DONE, data)
                acknowledged.append(storage.uri)

        stopped = Interrupted(storage, call, resume)
        with suppress(UnsupportedTable):
            enter(stopped)
        is_acknowledged = storage.uri in acknowledged
        assert (storage.exists(DONE.path), storage.exists(PATH)) == (is_acknowledged, is_acknowledged), stopped.calls
        if len(stopped.calls) <= call:
            break
    assert 0 < len(acknowledged) < call


BASE = f"nl/{BaseFileName(FILE.name(DEAD).file_id, '0-0-0', DEAD)}"
PLANNED = Instant(DEAD, "compaction", State.REQUESTED)


def put_decided_compaction(storage: LocalStorage) -> Instant:
    """A compaction whose writer died after it decided its run; returns the completed instant."""
    running, run = PLANNED.at(State.INFLIGHT), f"{decision_path(DEAD)}.0"
    done = running.completed_at("20261121110000050")
    file = BaseFileName(FILE.name(DEAD).file_id, "0-0-0", DEAD)
    stat = base_file_stat("nl", file, total_bytes=4, num_writes=1)
    data = outcome([stat], "COMPACT").metadata({}, compacted=True).encode()
    for path in (PLANNED.path, running.path, f"{run}.run"):
        storage.put_if_absent(path, b"")
    storage.put_if_absent(marker_path(DEAD, "nl", str(file)), b"")
    storage.put_if_absent(BASE, b"data")
    storage.put_if_absent(run, Decision(run, done, data).encode())
    return done


def run_again(storage: LocalStorage) -> Instant:
    with transaction(storage, new_process()) as running:
        running.start(PLANNED)
        running.reconcile(outcome())
        return running.complete(outcome(operation="COMPACT"))


@pytest.mark.parametrize(
    "deleted",
    [(BASE,), (PLANNED.at(State.INFLIGHT).path,), (BASE, PLANNED.at(State.INFLIGHT).path)],
    ids=["file", "inflight", "both"],
)
def test_a_decided_compaction_that_another_program_put_back_is_not_completed_and_can_be_run_again(
    storage: LocalStorage, deleted: tuple[str, ...]
) -> None:
    done = put_decided_compaction(storage)
    for path in deleted:
        storage.delete(path)
    (waiting,) = enter(storage).instants
    assert waiting.of_action == PLANNED.of_action
    assert f"{DEAD}.0.run" not in storage.names(DECISION_FOLDER)
    again = run_again(storage)
    assert again != done
    assert enter(storage).instants == (again,)
    assert not storage.exists(BASE)


def test_a_decided_compaction_whose_files_are_there_is_completed(storage: LocalStorage) -> None:
    done = put_decided_compaction(storage)
    assert enter(storage).instants == (done,)
    assert storage.exists(BASE)


def test_a_decided_compaction_is_not_completed_while_another_program_rolls_it_back(storage: LocalStorage) -> None:
    done = put_decided_compaction(storage)
    put_plan(storage, BASE, action="compaction")
    with pytest.raises(UnsupportedTable, match="finish it with Hudi"):
        enter(storage)
    assert not storage.exists(done.path)


def test_a_dead_write_is_rolled_back_after_the_rollback_that_another_program_has_begun(tmp_path: Path) -> None:
    """A later commit names what that one undoes; it was made beside this package's."""
    table = create(tmp_path)
    undone = table.upsert(rows(("x", "nl", 1, 1)))
    table.upsert(rows(("y", "de", 1, 1)))
    dead, rollback = (f"{int(table.timeline.last_time) + later:017d}" for later in (1, 2))
    for path in Instant(dead, "deltacommit", State.INFLIGHT).pending_paths():
        table.storage.put_if_absent(path, b"")
    files = (f"file://{path}" for path in tmp_path.glob(f"nl/*{undone.requested}*"))
    plan = RollbackPlan(undone.requested, "deltacommit", (RollbackRequest("nl", "f", "", tuple(files)),))
    planned = Instant(rollback, "rollback", State.REQUESTED)
    table.storage.put_if_absent(planned.path, plan.encode())
    table.storage.put_if_absent(planned.at(State.INFLIGHT).path, b"")
    table.storage.delete(undone.path)
    assert not enter(table.storage).pending


class OtherWriter(LocalStorage):
    """Another program begins a write while files of a rolled back one are deleted."""

    write = Instant("20991231235959999", "deltacommit", State.INFLIGHT)

    def delete_files(self, paths: Iterable[str]) -> None:
        deleted = tuple(paths)
        if PATH in deleted and not self.exists(self.write.path):
            for new in (*self.write.pending_paths(), heartbeat_path(self.write.requested)):
                self.put_if_absent(new, b"")
        super().delete_files(deleted)


def test_a_write_that_another_program_begins_meanwhile_is_not_rolled_back(tmp_path: Path) -> None:
    storage = make_table(tmp_path)
    put_dead_write(storage)
    put_plan(storage, f"file://{tmp_path}/{PATH}")
    other = OtherWriter(tmp_path)
    assert [found.requested for found in enter(other).pending] == [OtherWriter.write.requested]
    assert storage.exists(OtherWriter.write.path)
    assert storage.exists(heartbeat_path(OtherWriter.write.requested))


def test_a_dead_write_is_rolled_back_by_as_few_reads_after_400_instants_as_after_20(tmp_path: Path) -> None:
    counts = []
    for instants in (20, 400):
        table = create(tmp_path / str(instants), **{"hoodie.archive.automatic": False})
        table.upsert(rows(("x", "nl", 1, 1)))
        add_past(table, instants, ("deltacommit",))
        table.upsert(rows(("y", "de", 1, 1)))
        dead = Instant(f"{int(table.timeline.last_time) + 1:017d}", "deltacommit", State.INFLIGHT)
        for path in dead.pending_paths():
            table.storage.put_if_absent(path, b"")
        counting = FaultyStorage(table.storage)
        assert not enter(counting).pending
        counts.append(sum(name == "read" and path.startswith(TIMELINE_FOLDER) for name, path in counting.calls))
    assert counts[0] == counts[1] <= 2


def test_a_rollback_whose_plan_is_gone_is_named(storage: LocalStorage) -> None:
    storage.put_if_absent(ROLLBACK.at(State.INFLIGHT).path, b"")
    with pytest.raises(CorruptFileError, match=ROLLBACK.file_name):
        enter(storage)


@pytest.mark.parametrize(
    "file",
    ["hoodie.properties", str(FILE.name("20261121100000000")), "..", "/etc/passwd", ".hoodie_partition_metadata"],
)
def test_a_plan_that_names_what_its_write_did_not_write_deletes_nothing(
    storage: LocalStorage, tmp_path: Path, file: str
) -> None:
    put_dead_write(storage)
    put_plan(storage, f"file:///x/{PATH}", file)
    before = files_below(tmp_path)
    with pytest.raises(CorruptFileError, match=ROLLBACK.file_name):
        enter(storage)
    assert files_below(tmp_path) - {decision_path(DEAD)} == before


def test_a_plan_for_a_partition_outside_the_table_deletes_nothing(storage: LocalStorage, tmp_path: Path) -> None:
    name = str(FILE.name(DEAD))
    (tmp_path.parent / name).write_bytes(b"precious")
    plan = RollbackPlan(DEAD, "deltacommit", (RollbackRequest("..", "id", DEAD, (name,)),))
    storage.put_if_absent(ROLLBACK.path, plan.encode())
    with pytest.raises(CorruptFileError, match="did not write"):
        enter(storage)
    assert (tmp_path.parent / name).read_bytes() == b"precious"


def test_a_plan_to_undo_a_completed_write_is_not_carried_out(storage: LocalStorage) -> None:
    completed = write_batch(storage, new_process(), 0)
    assert completed is not None
    name = KEPT[0].name(completed.requested)
    plan = RollbackPlan(completed.requested, "deltacommit", (RollbackRequest("nl", "id", "", (str(name),)),))
    rollback = Instant("20261121130000000", "rollback", State.REQUESTED)
    storage.put_if_absent(rollback.path, plan.encode())
    with pytest.raises(UnsupportedTable, match=completed.requested):
        enter(storage)
    assert storage.exists(f"nl/{name}")


def test_a_plan_to_undo_a_compaction_is_refused(storage: LocalStorage) -> None:
    put_plan(storage, action="compaction")
    with pytest.raises(UnsupportedTable, match="compaction"):
        enter(storage)


def test_markers_of_a_completed_write_go_without_its_files(storage: LocalStorage, tmp_path: Path) -> None:
    completed = write_batch(storage, new_process(), 0)
    assert completed is not None
    stray = DataFile("nl", 0, attempt=9)
    for file in (*KEPT, stray):
        storage.put_if_absent(
            marker_path(completed.requested, file.partition, str(file.name(completed.requested))), b""
        )
    storage.put_if_absent(f"nl/{stray.name(completed.requested)}", b"late")
    enter(storage)
    assert_clean(tmp_path, [0])


def test_change_logs_of_a_completed_write_survive_markers_that_name_them(storage: LocalStorage) -> None:
    with transaction(storage, new_process()) as running:
        instant = running.begin()
        change_log = str(replace(FILE.name(instant), kind=LogKind.CDC))
        create_marker(storage, instant, FILE.partition, change_log)
        storage.put_if_absent(f"{FILE.partition}/{change_log}", b"changes")
        stat = replace(write_file(storage, instant, FILE), cdc_files=((f"{FILE.partition}/{change_log}", 7),))
        running.reconcile(outcome([stat]))
        running.complete(outcome([stat]))
    for name in (stat.file_name, change_log):  # as Hudi leaves them that dies after the commit
        storage.put_if_absent(marker_path(instant, FILE.partition, name), b"")
    enter(storage)
    assert not storage.exists(marker_folder(instant))
    assert [storage.read(path) for path in stat.paths] == [b"data", b"changes"]


def test_files_of_an_archived_write_survive_markers_that_name_them(
    storage: LocalStorage, caplog: pytest.LogCaptureFixture
) -> None:
    write_batch(storage, new_process(), 0)
    storage.put_if_absent(marker_path(DEAD, FILE.partition, str(FILE.name(DEAD))), b"")
    storage.put_if_absent(PATH, b"archived")
    enter(storage)
    assert storage.read(PATH) == b"archived"
    assert "archived" in caplog.text


def test_leftovers_of_puts_that_died_are_swept_from_the_folders_of_a_commit(
    storage: LocalStorage, tmp_path: Path
) -> None:
    for folder in (".hoodie", TIMELINE_FOLDER, HEARTBEAT_FOLDER, DECISION_FOLDER):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f".{'0' * 32}.lsm-tmp").write_bytes(b"torn")
    enter(storage)
    assert files_below(tmp_path) == {".hoodie/hoodie.properties"}


def test_other_folders_among_the_markers_are_left_alone(storage: LocalStorage) -> None:
    storage.put_if_absent(".hoodie/.temp/somebody/else", b"")
    enter(storage)
    assert storage.exists(".hoodie/.temp/somebody/else")


def test_the_markers_of_a_first_write_that_a_slow_clock_dated_before_all_others_are_deleted(
    storage: LocalStorage, caplog: pytest.LogCaptureFixture
) -> None:
    """Its writer died before the requested file; by its time it could have been archived."""
    write_batch(storage, new_process(), 0)
    storage.make_folder(f"{TEMP_FOLDER}/20261121000000000")
    enter(storage)
    assert storage.names(TEMP_FOLDER) == []
    # A file that such a write marked may be committed, if the history was lost.
    name = str(FILE.name("20261121000000000"))
    storage.put_if_absent(marker_path("20261121000000000", "nl", name), b"")
    storage.replace(f"nl/{name}", b"data")
    enter(storage)
    assert storage.exists(f"nl/{name}")
    assert "so it is kept" in caplog.text


def test_an_update_of_the_properties_at_which_the_storage_failed_leaves_nothing(tmp_path: Path) -> None:
    counted = FaultyStorage(make_table(tmp_path / "counted"))
    new = update_properties(counted, {"lsm.test": "true"})
    left = 0
    for call in range(len(counted.calls)):
        for fault in (Fault.FAIL_BEFORE, Fault.FAIL_AFTER):
            storage = make_table(tmp_path / f"{call}{fault.name}")
            old = load_properties(storage)
            with suppress(OSError):
                update_properties(FaultyStorage(storage, {call: fault}), {"lsm.test": "true"})
            left += storage.exists(BACKUP_PATH)
            with transaction(storage, new_process()):
                pass
            assert not storage.exists(BACKUP_PATH)
            assert load_properties(storage) in (old, new)
    assert left > 2


def test_a_completed_file_is_durable_before_the_markers_of_its_killed_writer_are_deleted(tmp_path: Path) -> None:
    """Else a power loss could take the first only: the write would look as if its completed file was lost."""
    table = create(tmp_path)
    table.upsert(rows(("a", "nl", 1, 1)))
    table = LsmTable(tmp_path)
    table.storage = counting = FaultyStorage(table.storage)
    done = table.upsert(rows(("b", "nl", 1, 1)))
    assert done is not None
    completed = counting.calls.index(("put_if_absent", done.path))
    dying = LsmTable(tmp_path)
    dying.storage = FaultyStorage(dying.storage, {completed: Fault.KILL_AFTER})
    with suppress(Killed):
        dying.upsert(rows(("c", "nl", 1, 1)))
    assert not LsmTable(tmp_path).timeline.pending
    after = LsmTable(tmp_path)
    after.storage = recorded = FaultyStorage(after.storage)
    after.upsert(rows(("d", "nl", 1, 1)))
    deleted = next(
        place for place, call in enumerate(recorded.calls) if call[0].startswith("delete") and TEMP_FOLDER in call[1]
    )
    assert ("sweep", TIMELINE_FOLDER) in recorded.calls[:deleted]
