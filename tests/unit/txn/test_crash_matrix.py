"""A writer killed at storage calls; the next one must leave the table as if the first had never been.

Reliability trials 1, 2 and 4: each call of a whole transaction, before and after its effect, then kills inside the
recovery from that, five deep. One call in 17 here (every other one for two kinds of fault), from another one on for
each kind; with LSM_ALL_FAULTS=1 every call.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from streaming_lsm.errors import Fenced, LsmError
from streaming_lsm.format.actions.rollback import RollbackMetadata
from streaming_lsm.lock.heartbeat import check_still_inflight, heartbeat_path
from streaming_lsm.lock.markers import marker_path
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.timeline import Timeline
from tests.support.crash_points import sample
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.writers import (
    FAILED,
    KEPT,
    DataFile,
    assert_clean,
    make_table,
    new_process,
    times_of,
    transaction,
    write_batch,
    write_file,
)

KILLS = (Fault.KILL_BEFORE, Fault.KILL_AFTER)
FAILURES = (Fault.FAIL_BEFORE, Fault.FAIL_AFTER)
FAULTS = (*KILLS, *FAILURES)


def grown(root: Path, batches: int) -> Path:
    storage = make_table(root)
    for batch in range(batches):
        write_batch(storage, new_process(), batch)
    return root


def copied(template: Path, root: Path) -> LocalStorage:
    shutil.copytree(template, root)
    return LocalStorage(root)


def calls_of_one_batch(root: Path, batches_before: int) -> int:
    storage = LocalStorage(grown(root, batches_before))
    faulty = FaultyStorage(storage)
    write_batch(faulty, new_process(), batches_before)
    assert_clean(root, range(batches_before + 1))
    return len(faulty.calls)


def attempt(storage: LocalStorage, batch: int, call: int, fault: Fault) -> None:
    """A process that tries to write the batch and meets its fate at a call, if it comes so far."""
    with suppress(Killed, OSError, LsmError):
        write_batch(FaultyStorage(storage, {call: fault}), new_process(), batch)


def assert_replay_settles(root: Path, batch: int) -> None:
    storage = LocalStorage(root)
    write_batch(storage, new_process(), batch)
    assert_clean(root, range(batch + 1))
    with transaction(storage, new_process(), batch) as later:
        assert later.already_committed
    assert_clean(root, range(batch + 1))
    times = times_of(root)
    assert len(set(times)) == len(times)


@pytest.mark.parametrize("batches_before", [0, 2])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_batch_takes_effect_once_whatever_call_its_writer_dies_at(
    tmp_path: Path, fault: Fault, batches_before: int
) -> None:
    calls = calls_of_one_batch(tmp_path / "unharmed", batches_before)
    assert calls > 40
    template = grown(tmp_path / "template", batches_before)
    for call in sample(range(calls), FAULTS.index(fault) * 4, 17):
        root = tmp_path / str(call)
        storage = copied(template, root)
        attempt(storage, batches_before, call, fault)
        assert_replay_settles(root, batches_before)


@pytest.mark.parametrize("fault", KILLS)
def test_readers_see_the_killed_batch_whole_or_not_at_all(tmp_path: Path, fault: Fault) -> None:
    for call in sample(range(calls_of_one_batch(tmp_path / "unharmed", 0)), KILLS.index(fault), 2):
        root = tmp_path / str(call)
        storage = make_table(root)
        attempt(storage, 0, call, fault)
        timeline = Timeline.load(storage)
        for write in timeline.completed_writes:
            for stat in timeline.read_commit(write).stats:
                assert storage.read(stat.path) == b"data"


def dead_writer(root: Path) -> tuple[LocalStorage, str]:
    """A table whose writer died with all files written and nothing committed, and the instant it died at."""
    storage = make_table(root)
    write_batch(storage, new_process(), 0)
    return storage, die_writing(storage, 1, *FAILED, *KEPT)


def die_writing(storage: LocalStorage, batch: int, *files: DataFile) -> str:
    """Let a writer die when it has begun and written files; the instant it died at."""
    faulty = FaultyStorage(storage)
    instant = ""
    with suppress(Killed), transaction(faulty, new_process(), batch) as running:
        instant = running.begin()
        for file in files:
            write_file(faulty, instant, file)
        faulty.kill()
    return instant


def recover(storage: Storage) -> None:
    with transaction(storage, new_process(), 1):
        pass


def rolled_back(storage: LocalStorage) -> list[str]:
    rollbacks = [i for i in Timeline.load(storage).instants if i.action == "rollback"]
    return [RollbackMetadata.decode(storage.read(i.path), i.path).instant for i in rollbacks]


@pytest.mark.parametrize("fault", KILLS)
def test_a_rollback_killed_five_times_is_in_the_end_one_rollback(tmp_path: Path, fault: Fault) -> None:
    _, instant = dead_writer(tmp_path / "template")
    counted = FaultyStorage(copied(tmp_path / "template", tmp_path / "unharmed"))
    recover(counted)
    calls = len(counted.calls)
    assert calls > 30
    for call in sample(range(calls), KILLS.index(fault), 2):
        root = tmp_path / str(call)
        storage = copied(tmp_path / "template", root)
        for depth in (call, (call + 7) % calls, call // 2, (call + 13) % calls, call):
            with suppress(Killed):
                recover(FaultyStorage(storage, {depth: fault}))
        recover(storage)
        assert rolled_back(storage) == [instant]
        assert_clean(root, [0])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_batch_whose_replays_die_five_times_takes_effect_once(tmp_path: Path, fault: Fault) -> None:
    _, instant = dead_writer(tmp_path / "template")
    counted = FaultyStorage(copied(tmp_path / "template", tmp_path / "unharmed"))
    write_batch(counted, new_process(), 1)
    calls = len(counted.calls)
    for call in sample(range(calls), FAULTS.index(fault) * 4, 17):
        root = tmp_path / str(call)
        storage = copied(tmp_path / "template", root)
        for depth in (call, (call + 11) % calls, call // 3, (call + 29) % calls, call):
            attempt(storage, 1, depth, fault)
        assert_replay_settles(root, 1)
        undone = rolled_back(storage)
        assert instant in undone
        assert len(set(undone)) == len(undone)


def test_a_task_that_outlives_its_driver_can_add_no_file_after_the_rollback(tmp_path: Path) -> None:
    storage, instant = dead_writer(tmp_path)
    recover(storage)
    with pytest.raises(Fenced, match=instant):
        write_file(storage, instant, DataFile("nl", 3))
    assert_clean(tmp_path, [0])


def test_a_task_that_closes_its_file_during_the_rollback_is_told_to_discard_it(tmp_path: Path) -> None:
    storage, instant = dead_writer(tmp_path)
    calls = FaultyStorage(storage)
    recover(calls)
    closing = calls.calls.index(("delete_if_unchanged", heartbeat_path(instant)))
    with suppress(Killed):
        recover(FaultyStorage(storage, {closing: Fault.KILL_AFTER}))
    with pytest.raises(Fenced, match=instant):
        check_still_inflight(storage, instant)


def test_a_file_added_by_a_late_task_between_rollbacks_steps_is_removed(tmp_path: Path) -> None:
    # The task passed its last check before the rollback began, and its process died before it could look again.
    _, instant = dead_writer(tmp_path / "template")
    for call in sample(range(30), 1, 2):
        root = tmp_path / str(call)
        storage = copied(tmp_path / "template", root)
        with suppress(Killed):
            recover(FaultyStorage(storage, {call: Fault.KILL_AFTER}))
        late = DataFile("nl", 3)
        name = str(late.name(instant))
        storage.put_if_absent(marker_path(instant, late.partition, name), b"")
        storage.put_if_absent(f"{late.partition}/{name}", b"late")
        recover(storage)
        assert_clean(root, [0])


def test_late_files_of_a_first_write_that_was_rolled_back_never_count_as_archived(tmp_path: Path) -> None:
    storage = make_table(tmp_path)
    instant = die_writing(storage, 0)
    write_batch(storage, new_process(), 0)
    timeline = Timeline.load(storage)
    assert timeline.first > instant
    assert timeline.completion_time(instant) is None
