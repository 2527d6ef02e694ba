"""Reports pair a batch with its own commit, whatever was replayed or written by others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from streaming_lsm import LsmTable
from streaming_lsm.config import Options
from streaming_lsm.errors import ConfigError, LsmError, MissingPackage, RecordError, TopicRecreated
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.kafka.settings import JobSettings
from streaming_lsm.kafka.source_watch import SourceWatch
from streaming_lsm.kafka.stream import BatchReport, StreamWatcher, Totals
from streaming_lsm.kafka.table_commits import TableCommits
from streaming_lsm.kafka.topic_sinks import Part
from streaming_lsm.kafka.topic_tables import TopicTable
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline
from tests.support.small_tables import OPTIONS, create, rows

FUTURE, PAST = datetime(2100, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC)


@dataclass
class Progress:
    json: str


@dataclass
class EndedQuery:
    """What the watcher asks of a query that has ended."""

    id: str
    recentProgress: list[Progress]

    def awaitTermination(self, timeout: float) -> bool:
        return True


@dataclass
class FailedQuery(EndedQuery):
    """A query whose batches completed, and whose next one failed, before the watcher looked for the first time."""

    reason: str = "batch 1 failed"

    def awaitTermination(self, timeout: float) -> bool:
        raise StreamingQueryException(self.reason)


@dataclass
class RunningQuery(EndedQuery):
    """A query that runs until it is stopped; a trigger is active at some of the looks at it."""

    active: Iterator[bool] = field(default_factory=lambda: iter(()))
    looks: int = 0
    stopped: bool = False

    @property
    def status(self) -> dict[str, bool]:
        self.looks += 1
        return {"isTriggerActive": next(self.active)}

    def awaitTermination(self, timeout: float) -> bool:
        return self.stopped

    def stop(self) -> None:
        self.stopped = True


class AtOnce(SourceWatch):
    """A watch that finds a topic created again at the first look."""

    def trouble(self) -> ConfigError | None:
        raise TopicRecreated("topic 't' was deleted and created again")


def progress(batch_id: int, *, events: int = 10, begun: datetime = PAST) -> Progress:
    document: dict[str, Any] = {
        "batchId": batch_id,
        "numInputRows": events,
        "timestamp": begun.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "durationMs": {"triggerExecution": 2000, "addBatch": 1500},
        "sources": [{"latestOffset": '{"t":{"0":15}}', "endOffset": {"t": {"0": 10}}}],
    }
    return Progress(json.dumps(document))


def commit(path: Path, writer: str, batch_id: int, count: int) -> str:
    data = rows(*((f"{writer}{n}", "DE", 1, batch_id) for n in range(count)))
    instant = LsmTable(path, {**OPTIONS, "lsm.writer.id": writer}).upsert(data, batch_id=batch_id)
    assert instant is not None
    return instant.requested


def parts_of(
    path: Path, topics: tuple[str, ...] = ("t",), events: int | None = None, **options: object
) -> Callable[[int], list[Part]]:
    """Each batch has one part, of the table at `path`."""
    settings = JobSettings(Options({"lsm.table.path": str(path), **options}), {})
    return lambda _: [Part(TopicTable(str(path), topics, settings), events, 1.5)]


def reports(path: Path, query: str, *batches: Progress, **options: object) -> list[BatchReport]:
    watched = cast(StreamingQuery, EndedQuery(query, list(batches)))
    return list(StreamWatcher(watched, parts_of(path, **options)).reports())


def test_each_batch_has_the_numbers_of_its_own_commit(tmp_path: Path) -> None:
    create(tmp_path)
    first = commit(tmp_path, "q", 0, 3)
    commit(tmp_path, "other", 0, 50)
    last = commit(tmp_path, "q", 2, 5)
    commit(tmp_path, "other", 1, 50)
    # Batch 1 has no commit: the numbers of batch 2 must not slip to it.
    found = reports(tmp_path, "q", progress(0), progress(1), progress(2), progress(3, events=0))
    assert [(report.batch_id, report.rows, report.instant) for report in found] == [
        (0, 3, first),
        (1, 0, None),
        (2, 5, last),
    ]
    assert not any(report.replayed for report in found)
    assert str(found[0]).endswith(f"(5 events/s, 5 behind), {first}")
    assert str(found[1]).endswith("no commit")


def test_only_commits_since_the_batch_before_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(tmp_path)
    commits = TableCommits(Options({"lsm.table.path": str(tmp_path)}), "q")
    read, plain = list[str](), Timeline.read_commit

    def read_commit(timeline: Timeline, instant: Instant) -> CommitMetadata:
        read.append(instant.requested)
        return plain(timeline, instant)

    monkeypatch.setattr(Timeline, "read_commit", read_commit)
    for batch_id in range(5):
        instant = commit(tmp_path, "q", batch_id, 1)
        other = commit(tmp_path, "other", batch_id, 1)
        read.clear()
        found = commits.commit_of(batch_id)
        assert found is not None
        assert found.instant == instant
        assert sorted(read) == [instant, instant, other]
        assert len(commits._ledgers) <= 3


def test_totals_count_a_batch_of_several_tables_once(tmp_path: Path) -> None:
    totals = Totals()
    for path, batch_id in (("a", 0), ("b", 0), ("a", 1)):
        for report in reports(tmp_path / path, "q", progress(batch_id)):
            totals.add(report)
    assert str(totals) == "30 events in 2 batches (8 events/s)"
    assert str(Totals()) == "0 events in 0 batches"


def test_events_of_a_batch_that_was_read_twice_count_once(tmp_path: Path) -> None:
    twice = json.loads(progress(0, events=20).json)
    twice["sources"] = [{"startOffset": {"t": {"0": 5, "1": 2}}, "endOffset": {"t": {"0": 10, "1": 7}}}]
    with_gaps = json.loads(progress(1, events=7).json) | {"sources": twice["sources"]}
    found = reports(tmp_path / "absent", "q", Progress(json.dumps(twice)), Progress(json.dumps(with_gaps)))
    assert [report.events for report in found] == [10, 7]


def test_a_compaction_that_was_planned_before_the_batch_and_done_after_it_is_not_its_commit(tmp_path: Path) -> None:
    create(tmp_path)
    commit(tmp_path, "q", 0, 3)
    table = LsmTable(tmp_path, OPTIONS)
    planned, _ = table.services.schedule()
    instant = commit(tmp_path, "q", 1, 5)
    done = table.compact()
    assert planned is not None
    assert done is not None
    assert planned.requested == done.requested < instant
    (report,) = reports(tmp_path, "q", progress(1))
    assert (report.instant, report.rows) == (instant, 5)


def test_a_replayed_batch_is_told_from_one_that_was_written(tmp_path: Path) -> None:
    create(tmp_path)
    instant = commit(tmp_path, "q", 0, 3)
    (report,) = reports(tmp_path, "q", progress(0, begun=FUTURE))
    assert (report.instant, report.replayed) == (instant, True)
    assert str(report).endswith(f"{instant}, committed before")


def test_the_writer_id_of_the_options_names_the_query(tmp_path: Path) -> None:
    create(tmp_path)
    commit(tmp_path, "mine", 0, 3)
    (report,) = reports(tmp_path, "q", progress(0), **{"lsm.writer.id": "mine"})
    assert report.rows == 3


def test_dead_letters_of_the_batch_are_counted(tmp_path: Path) -> None:
    create(tmp_path / "table")
    commit(tmp_path / "table", "q", 1, 3)
    for part in range(2):
        folder = tmp_path / "dead/q/batch-1"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"reason": ["x", "y"]}), folder / f"part-{part:05d}.parquet")
    options = {"lsm.dead.letter.path": str(tmp_path / "dead"), "lsm.on.bad.event": "dead_letter"}
    before, own = reports(tmp_path / "table", "q", progress(0), progress(1), **options)
    assert (before.dead_letters, own.dead_letters) == (0, 4)
    assert ", 4 dead letters, " in str(own)
    assert "dead letters" not in str(before)


def test_each_part_of_a_batch_is_reported_with_the_numbers_of_its_own_table(tmp_path: Path) -> None:
    for name, rows_written in (("one", 3), ("two", 5)):
        create(tmp_path / name)
        commit(tmp_path / name, "q", 0, rows_written)
    one, two = parts_of(tmp_path / "one", ("t",), 4), parts_of(tmp_path / "two", ("u", "v"), 6)
    watched = cast(StreamingQuery, EndedQuery("q", [progress(0)]))
    found = list(StreamWatcher(watched, lambda batch: [*one(batch), *two(batch)]).reports())
    assert [(each.topics, each.events, each.rows, each.behind) for each in found] == [
        (("t",), 4, 3, 5),
        (("u", "v"), 6, 5, 0),
    ]
    assert str(found[1]).startswith("batch 0, u, v: 6 events -> 5 rows and 0 deletes in ")


def test_the_most_frequent_fields_without_a_column_are_named() -> None:
    fields = {name: 7000 - number for number, name in enumerate("abcdefg")}
    report = BatchReport(
        batch_id=0, events=9, rows=9, deletes=0, files=1, size=10, dead_letters=3, unknown_fields=fields, seconds=1.0,
        write_seconds=1.0, behind=None, instant="i", replayed=False,
    )  # fmt: skip
    said = ", 3 dead letters, no columns for a (7,000), b (6,999), c (6,998), d (6,997), e (6,996) and 2 more, 1.0 s"
    assert said in str(report)


def test_a_query_that_fails_at_once_has_its_completed_batches_reported_first(tmp_path: Path) -> None:
    create(tmp_path)
    commit(tmp_path, "q", 0, 3)
    watched = cast(StreamingQuery, FailedQuery("q", [progress(0)]))
    found = StreamWatcher(watched, parts_of(tmp_path)).reports()
    assert next(found).rows == 3
    with pytest.raises(StreamingQueryException, match="batch 1 failed"):
        next(found)


def test_an_error_of_a_batch_comes_without_the_stacks_of_python_and_spark(tmp_path: Path) -> None:
    create(tmp_path)
    said = (
        "[STREAM_FAILED] Query [id = q] terminated with exception: Traceback (most recent call last):\n"
        "  File \"x.py\", line 1, in write\nstreaming_lsm.errors.RecordError: event at topic 't', offset 1\n"
        " SQLSTATE: 39000 SQLSTATE: XXKST"
    )
    watched = cast(StreamingQuery, FailedQuery("q", [], said))
    with pytest.raises(RecordError) as failed:
        list(StreamWatcher(watched, parts_of(tmp_path)).reports())
    assert str(failed.value) == "event at topic 't', offset 1"


def test_a_topic_that_a_batch_finds_created_again_is_no_loss_of_events_though_the_remedy_names_that_option(
    tmp_path: Path,
) -> None:
    """Spark passes the error on as text."""
    reason = "topic 't' was deleted and created again since the query read it; to go on set failOnDataLoss=false"
    said = (
        "[STREAM_FAILED] Query [id = q] terminated with exception: An exception was raised by the Python Proxy. Return "
        'Message: Traceback (most recent call last):\n  File "x.py", line 1, in write\n    ids.before_batch()\n'
        f"{TopicRecreated.__module__}.{TopicRecreated.__qualname__}: {reason}\n\n SQLSTATE: XXKST"
    )
    watched = cast(StreamingQuery, FailedQuery("q", [], said))
    with pytest.raises(TopicRecreated) as failed:
        list(StreamWatcher(watched, parts_of(tmp_path)).reports())
    assert str(failed.value) == reason


def test_a_module_that_executors_lack_is_named(tmp_path: Path) -> None:
    create(tmp_path)
    said = (
        "pyspark...PythonException: Traceback\n\nModuleNotFoundError: No module named 'streaming_lsm'\n SQLSTATE: 39000"
    )
    watched = cast(StreamingQuery, FailedQuery("q", [], said))
    with pytest.raises(MissingPackage, match=r"executors have no Python module 'streaming_lsm': install"):
        list(StreamWatcher(watched, parts_of(tmp_path)).reports())


def test_a_table_that_is_not_there_yet_has_no_commits(tmp_path: Path) -> None:
    (report,) = reports(tmp_path / "absent", "q", progress(0))
    assert (report.rows, report.instant, report.behind) == (0, None, 5)


def test_a_batch_that_runs_when_a_topic_is_found_created_again_ends_before_the_query_is_stopped(tmp_path: Path) -> None:
    """It may hold events of the old topic, which cannot be read again."""
    idle = RunningQuery("q", [], iter([True, True, True, False]))
    watcher = StreamWatcher(cast(StreamingQuery, idle), parts_of(tmp_path), source=AtOnce(lambda: None))
    with pytest.raises(TopicRecreated, match="topic 't' was deleted"):
        list(watcher.reports())
    assert (idle.looks, idle.stopped) == (4, True)

    busy = RunningQuery("q", [], iter([True] * 9))
    watcher = StreamWatcher(cast(StreamingQuery, busy), parts_of(tmp_path), source=AtOnce(lambda: None))

    def end_a_batch(looks: int) -> None:
        if busy.looks == looks:
            busy.recentProgress.append(progress(0))

    busy.awaitTermination = lambda timeout: bool(end_a_batch(3)) or busy.stopped  # type: ignore[method-assign]
    found = watcher.reports()
    assert next(found).batch_id == 0
    with pytest.raises(TopicRecreated, match="topic 't' was deleted"):
        next(found)
    assert (busy.looks, busy.stopped) == (4, True)


class Finding(SourceWatch):
    """A watch that finds what it is told to, look by look, and then nothing."""

    def __init__(self, *found: LsmError | None) -> None:
        super().__init__(lambda: None)
        self.found = iter(found)

    def trouble(self) -> ConfigError | None:
        found = next(self.found, None)
        if found is None or isinstance(found, ConfigError):
            return found
        raise found


AGAIN = TopicRecreated("topic 't' was deleted and created again")


def watch_a_batch_without_end(path: Path, found: SourceWatch, timeout: float) -> tuple[float, list[str], bool]:
    """A query whose batch never completes, in a second a look: seconds until the error, and what was said till then."""
    stuck = RunningQuery("q", [], iter([True] * 999))
    said: list[str] = []
    watcher = StreamWatcher(
        cast(StreamingQuery, stuck),
        parts_of(path),
        source=found,
        waiting=lambda trouble: said.append(str(trouble)),
        clock=lambda: float(stuck.looks),
    )
    with pytest.raises(TopicRecreated) as failed:
        list(watcher.reports(timeout))
    assert str(failed.value) == str(AGAIN)
    return stuck.looks, said, stuck.stopped


def test_a_topic_that_is_found_created_again_is_told_at_once_and_the_running_batch_is_waited_for_so_long(
    tmp_path: Path,
) -> None:
    trouble = ConfigError("no broker answers")
    seconds, said, stopped = watch_a_batch_without_end(tmp_path, Finding(AGAIN, AGAIN, trouble), 900)
    assert said == [f"for a batch that may be running, 600 s at most, as {AGAIN}", str(trouble)]
    assert (seconds, stopped) == (602, True)


def test_a_topic_that_was_created_again_is_named_when_the_time_is_over_or_something_else_is_wrong(
    tmp_path: Path,
) -> None:
    assert watch_a_batch_without_end(tmp_path, Finding(AGAIN), 5)[::2] == (6, True)
    gone = LsmError("the checkpoint cannot be written")
    assert watch_a_batch_without_end(tmp_path, Finding(AGAIN, None, gone), 600)[::2] == (3, True)


def test_a_topic_that_was_created_again_is_found_at_the_end_of_a_query(tmp_path: Path) -> None:
    def check() -> None:
        raise TopicRecreated("topic 't' was deleted and created again")

    ended = cast(StreamingQuery, EndedQuery("q", [progress(0)]))
    found = StreamWatcher(ended, parts_of(tmp_path), source=SourceWatch(check)).reports()
    assert next(found).batch_id == 0
    with pytest.raises(TopicRecreated):
        next(found)
