"""A loaded timeline: which writes count, since when, and as of when."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from streaming_lsm.errors import ConfigError, CorruptFileError, ReadOvertaken
from streaming_lsm.format.actions.clean import CleanMetadata
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.format.actions.rollback import RollbackMetadata
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, Instant, State
from streaming_lsm.timeline.timeline import Timeline
from tests.support.faulty_storage import FaultyStorage


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


def at(second: int, ms: int = 0) -> str:
    return f"202611211200{second:02d}{ms:03d}"


def put(storage: LocalStorage, name: str, data: bytes = b"") -> None:
    storage.put_if_absent(f"{TIMELINE_FOLDER}/{name}", data)


def put_write(storage: LocalStorage, requested: str, completed: str, **extra: str) -> None:
    put(storage, f"{requested}.deltacommit.requested")
    put(storage, f"{requested}.deltacommit.inflight")
    put(storage, f"{requested}_{completed}.deltacommit", CommitMetadata((), "UPSERT", extra).encode())


def requested(timeline: Timeline) -> list[str]:
    return [write.requested for write in timeline.completed_writes]


def test_each_action_appears_once_in_its_latest_state_by_requested_time(storage: LocalStorage) -> None:
    put_write(storage, at(2), at(5))
    put_write(storage, at(1), at(3))
    put(storage, f"{at(4)}.compaction.requested")
    put(storage, f"{at(4)}.compaction.inflight")
    put(storage, f".{at(1)}.deltacommit.requested.crc")
    timeline = Timeline.load(storage)
    assert timeline.instants == (
        Instant(at(1), "deltacommit", State.COMPLETED, at(3)),
        Instant(at(2), "deltacommit", State.COMPLETED, at(5)),
        Instant(at(4), "compaction", State.INFLIGHT),
    )
    assert requested(timeline) == [at(1), at(2)]
    assert [instant.action for instant in timeline.pending] == ["compaction"]
    assert timeline.last_time == at(5)


def test_a_compaction_is_one_action_before_and_after_its_completion(storage: LocalStorage) -> None:
    for name in (f"{at(1)}.compaction.requested", f"{at(1)}.compaction.inflight", f"{at(1)}_{at(2)}.commit"):
        put(storage, name)
    assert Timeline.load(storage).instants == (Instant(at(1), "commit", State.COMPLETED, at(2)),)


def test_a_savepoint_stands_beside_the_commit_of_its_time(storage: LocalStorage) -> None:
    put_write(storage, at(1), at(2))
    put(storage, f"{at(1)}_{at(3)}.savepoint")
    assert [instant.action for instant in Timeline.load(storage).instants] == ["deltacommit", "savepoint"]
    assert Timeline.load(storage).completion_time(at(1)) == at(2)


def test_an_empty_timeline_has_no_times_and_counts_nothing(storage: LocalStorage) -> None:
    timeline = Timeline.load(storage)
    assert (timeline.instants, timeline.last_time, timeline.first) == ((), "", "")
    assert timeline.completion_time(at(1)) is None
    assert timeline.table_schema() is None


def test_two_completions_of_one_action_are_corrupt(storage: LocalStorage) -> None:
    put(storage, f"{at(1)}_{at(2)}.deltacommit")
    put(storage, f"{at(1)}_{at(3)}.deltacommit")
    with pytest.raises(CorruptFileError, match=f"{at(1)}_{at(2)}.*{at(1)}_{at(3)}"):
        Timeline.load(storage)


def test_completion_times_tell_committed_pending_archived_and_vanished_writes_apart(storage: LocalStorage) -> None:
    put_write(storage, at(10), at(12))
    put(storage, f"{at(20)}.deltacommit.inflight")
    timeline = Timeline.load(storage)
    assert timeline.completion_time(at(10)) == at(12)
    assert timeline.completion_time(at(20)) is None
    assert timeline.completion_time(at(5)) == at(5)
    assert timeline.completion_time(at(15)) is None


def test_a_write_undone_by_a_rollback_on_the_timeline_is_not_taken_for_an_archived_one(storage: LocalStorage) -> None:
    undo = RollbackMetadata(at(10), 0, at(5), "deltacommit", ())
    put(storage, f"{at(10)}_{at(11)}.rollback", undo.encode())
    timeline = Timeline.load(storage)
    assert timeline.completion_time(at(5)) is None
    assert timeline.completion_time(at(4)) == at(4)


def test_as_of_a_requested_time_counts_the_writes_requested_until_then(storage: LocalStorage) -> None:
    put_write(storage, at(1), at(9))
    put_write(storage, at(2), at(3))
    put_write(storage, at(4), at(5))
    assert requested(Timeline.load(storage).as_of(at(2))) == [at(1), at(2)]


@pytest.mark.parametrize("digits", ["1", "000", "9" * 20])
def test_digits_beyond_the_seventeenth_do_not_count(storage: LocalStorage, digits: str) -> None:
    put_write(storage, at(1), at(9))
    put_write(storage, at(2), at(3))
    timeline = Timeline.load(storage)
    assert requested(timeline.as_of(at(2) + digits)) == [at(1), at(2)]
    assert requested(timeline.as_of(at(3) + digits)) == [at(2)]


def test_as_of_takes_pythons_own_dates(storage: LocalStorage) -> None:
    put_write(storage, at(2), at(3))
    timeline = Timeline.load(storage)
    assert requested(timeline.as_of(datetime(2026, 11, 21, 12, 0, 3))) == [at(2)]
    assert requested(timeline.as_of(datetime(2026, 11, 21, 12, 0, 3, tzinfo=UTC))) == [at(2)]
    assert requested(timeline.as_of(date(2026, 11, 21))) == []


def test_as_of_any_other_time_counts_the_writes_completed_until_then(storage: LocalStorage) -> None:
    put_write(storage, at(1), at(9))
    put_write(storage, at(2), at(3))
    put_write(storage, at(4), at(5))
    timeline = Timeline.load(storage)
    assert requested(timeline.as_of(at(5))) == [at(2), at(4)]
    assert requested(timeline.as_of("2026-11-21 12:00:03")) == [at(2)]
    assert requested(timeline.as_of("20261121120009")) == [at(1), at(2), at(4)]
    assert requested(timeline.as_of("2026-11-21T13:00:05+01:00")) == [at(2), at(4)]
    with pytest.raises(ConfigError, match="soon"):
        timeline.as_of("soon")


def test_as_of_hides_files_of_later_writes_and_of_archived_ones_requested_later(storage: LocalStorage) -> None:
    put_write(storage, at(10), at(11))
    put_write(storage, at(20), at(21))
    then = Timeline.load(storage).as_of(at(15))
    assert then.completion_time(at(10)) == at(11)
    assert then.completion_time(at(20)) is None
    before = Timeline.load(storage).as_of(at(5))
    assert before.completion_time(at(4)) == at(4)
    assert before.completion_time(at(6)) is None
    assert before.completion_time(at(10)) is None


def put_clean(storage: LocalStorage, requested: str, completed: str, earliest: str) -> None:
    record = CleanMetadata(requested, 1, earliest, "", "KEEP_LATEST_COMMITS")
    put(storage, f"{requested}_{completed}.clean", record.encode())


def test_a_clean_that_names_no_earliest_write_brings_back_nothing_of_the_cleans_before(storage: LocalStorage) -> None:
    for second in (1, 10, 20):
        put_write(storage, at(second), at(second, 1))
    put_clean(storage, at(11), at(12), earliest=at(1))
    put_clean(storage, at(21), at(22), earliest=at(20))
    put_clean(storage, at(23), at(24), earliest="")
    put_clean(storage, at(25), at(26), earliest=at(10))
    counting = FaultyStorage(storage)
    timeline = Timeline.load(counting)
    assert timeline.earliest_retained == at(20)
    with pytest.raises(ReadOvertaken, match="cleaned"):
        timeline.as_of(at(10))
    assert requested(timeline.as_of(at(20))) == [at(1), at(10), at(20)]
    read = [path.rpartition("/")[2] for _, path in counting.calls if path.endswith(".clean")]
    # Each once; the first clean is older than what is retained.
    assert sorted(read) == [f"{at(n)}_{at(n + 1)}.clean" for n in (21, 23, 25)]


def test_the_schema_is_that_of_the_newest_write_that_has_one(storage: LocalStorage) -> None:
    put_write(storage, at(1), at(2), schema='{"v":1}')
    put_write(storage, at(3), at(4), schema='{"v":2}')
    put_write(storage, at(5), at(6))
    timeline = Timeline.load(storage)
    assert timeline.table_schema() == '{"v":2}'
    assert timeline.as_of(at(1)).table_schema() == '{"v":1}'


def test_a_schema_that_is_no_json_is_corrupt(storage: LocalStorage) -> None:
    put_write(storage, at(1), at(2), schema="{")
    with pytest.raises(CorruptFileError, match=f"{at(1)}_{at(2)}"):
        Timeline.load(storage).table_schema()


def test_a_commit_that_vanished_or_is_damaged_is_named(storage: LocalStorage) -> None:
    put_write(storage, at(1), at(2))
    put(storage, f"{at(3)}_{at(4)}.deltacommit", b"Obj\x01 torn")
    timeline = Timeline.load(storage)
    vanished, damaged = timeline.completed_writes
    storage.delete(vanished.path)
    with pytest.raises(CorruptFileError, match=vanished.file_name):
        timeline.read_commit(vanished)
    with pytest.raises(CorruptFileError, match=damaged.file_name):
        timeline.read_commit(damaged)
