"""Tasks that write what they read leave the rows that one task for each file group leaves."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from streaming_lsm import ConfigError, Envelope, LsmSink, LsmTable, read
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.small_tables import OPTIONS as TABLE
from tests.support.small_tables import SCHEMA, shown

OPTIONS: dict[str, object] = {**TABLE, "lsm.writer.id": "test", "lsm.write.shuffle.partitions": 2}
WARNING = (
    "tasks that read cannot write this batch (docs/writing.md, Which task writes a row): it is written again, and "
    "batches are exchanged from now on"
)
ROWS = "id string, country string, ts long, qty int, _lsm_delete boolean"
MESSAGES = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
NEVER = datetime(2026, 1, 1, tzinfo=UTC)
Row = tuple[str, str, int | None, int, bool]
Frames = Callable[..., DataFrame]


@pytest.fixture
def in_two_tasks(spark: SparkSession) -> Frames:
    """A frame of two partitions, one after the other."""

    def frame(first: list[tuple[object, ...]], second: list[tuple[object, ...]], columns: str = ROWS) -> DataFrame:
        # As an RDD: Spark would make one partition of two small frames.
        rows = spark.sparkContext.parallelize([first, second], 2).flatMap(list)
        found = spark.createDataFrame(rows, columns)
        assert found.rdd.getNumPartitions() == 2
        return found

    return frame


def logs_by_slice(path: Path) -> list[int]:
    """How many logs each slice has."""
    return sorted(len(found.paths) for found in LsmTable(path).file_slices())


def test_rows_are_the_same_either_way_and_each_task_has_a_log_of_its_own(in_two_tasks: Frames, tmp_path: Path) -> None:
    batches = [
        in_two_tasks(
            [(f"k{n}", "DE", 10 * batch + n % 7, n, False) for n in range(0, 400, 2)],
            [(f"k{n}", "DE", 10 * batch + n % 5, -n, n % 9 == 0) for n in range(0, 400, 3)],
        )
        for batch in range(3)
    ]
    found = {}
    for way in ("shuffle", "none"):
        sink = LsmSink(tmp_path / way, {**OPTIONS, "lsm.write.exchange": way})
        for number, batch in enumerate(batches):
            sink(batch, number)
        found[way] = shown(LsmTable(tmp_path / way))
        assert validate(str(tmp_path / way)) == []
        columns = SCHEMA.names
        assert sorted(map(tuple, read_snapshot(tmp_path / way).select(columns).to_pandas().to_numpy())) == found[way]
    assert found["none"] == found["shuffle"]
    assert logs_by_slice(tmp_path / "shuffle") == [6, 6], "rows and deletes of three batches"
    assert logs_by_slice(tmp_path / "none") == [9, 9], "the second task has the deletes"


def test_of_equal_ordering_values_the_row_of_the_later_task_stays_and_a_delete_beats_rows(
    in_two_tasks: Frames, tmp_path: Path
) -> None:
    sink = LsmSink(tmp_path, {**OPTIONS, "lsm.write.exchange": "none"})
    first = [("tie", "DE", 5, 1, False), ("deleted", "DE", 5, 1, True), ("older", "DE", 9, 1, False)]
    second = [("tie", "DE", 5, 2, False), ("deleted", "DE", 5, 2, False), ("older", "DE", 8, 2, False)]
    sink(in_two_tasks(first, second), 0)
    expected = [("older", "DE", 9, 1), ("tie", "DE", 5, 2)]
    assert shown(LsmTable(tmp_path)) == expected
    assert LsmTable(tmp_path).compact() is not None
    assert shown(LsmTable(tmp_path)) == expected


def test_by_default_the_later_of_a_delete_and_a_row_stays_however_the_batch_was_cut(
    in_two_tasks: Frames, tmp_path: Path
) -> None:
    unpartitioned = {name: value for name, value in OPTIONS.items() if "partitionpath" not in name}
    delete, row, other = ("a", "DE", 5, 1, True), ("a", "DE", 5, 2, False), ("b", "DE", 5, 3, False)
    for name, parts in {"one": ([delete, row, other], []), "two": ([delete], [row, other])}.items():
        sink = LsmSink(tmp_path / name, unpartitioned)
        for number in (0, 1):
            sink(in_two_tasks(*parts), number)
            assert shown(LsmTable(tmp_path / name)) == [("a", "DE", 5, 2), ("b", "DE", 5, 3)]


def test_a_sink_that_knows_its_batches_writes_them_without_an_exchange(in_two_tasks: Frames, tmp_path: Path) -> None:
    sink = LsmSink(tmp_path, OPTIONS)
    for number in range(3):
        part = [(f"k{n}", "DE", number, n, False) for n in range(50)]
        sink(in_two_tasks(part, part), number)
    files = [
        len(LsmTable(tmp_path).timeline.read_commit(write).stats) for write in LsmTable(tmp_path).timeline.every_write
    ]
    assert files == [2, 4, 4], "only the first batch has one log for each of two file groups"


def test_the_first_batch_of_a_table_without_partitions_is_written_as_read(in_two_tasks: Frames, tmp_path: Path) -> None:
    unpartitioned = {name: value for name, value in OPTIONS.items() if "partitionpath" not in name}
    sink = LsmSink(tmp_path, unpartitioned)
    part = [(f"k{n}", "DE", 1, n, False) for n in range(50)]
    sink(in_two_tasks(part, part), 0)
    (write,) = LsmTable(tmp_path).timeline.completed_writes
    files = LsmTable(tmp_path).timeline.read_commit(write).stats
    assert len(files) == 2 * len({file.file_id for file in files})


def test_deletes_without_an_ordering_value_are_exchanged_from_then_on(
    in_two_tasks: Frames, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    letters = tmp_path / "letters"
    options = {
        **OPTIONS,
        "lsm.write.exchange": "none",
        "lsm.on.bad.event": "dead_letter",
        "lsm.dead.letter.path": str(letters),
    }
    sink = LsmSink(tmp_path / "table", options)
    sink(in_two_tasks([("a", "DE", 9, 1, False)], [("b", "DE", 9, 1, False), ("c", "x/../..", 1, 1, False)]), 0)
    with caplog.at_level(logging.WARNING):
        for number in (1, 2):
            # The delete is older by arrival than the row of the other task; without an exchange it would delete it.
            bad = ("c", "x/../..", 1, 1, False)
            sink(in_two_tasks([("a", "DE", None, 0, True), bad], [("a", "DE", 3, number, False), bad]), number)
    assert shown(LsmTable(tmp_path / "table")) == [("a", "DE", 3, 2), ("b", "DE", 9, 1)]
    assert [record.message for record in caplog.records].count(WARNING) == 1
    assert validate(str(tmp_path / "table")) == [], "files of the tasks that wrote first are left over"
    bad_events: Counter[str] = Counter()
    for path in letters.rglob("*.parquet"):
        bad_events[path.parent.name] += pq.read_metadata(path).num_rows
    assert bad_events == {"batch-0": 1, "batch-1": 2, "batch-2": 2}, "of the tasks whose files are committed only"
    assert [numbers.dead_letters for numbers in map(sink.numbers, range(3)) if numbers] == [1, 2, 2]


def message(key: str, value: dict[str, object] | None, partition: int, offset: int) -> tuple[object, ...]:
    """A row of Spark's Kafka source."""
    text = None if value is None else json.dumps(value).encode()
    return (key.encode(), text, "orders", partition, offset, NEVER, 0)


@pytest.mark.parametrize("second", [1, 0], ids=["another-partition", "the-same-partition"])
def test_a_tombstone_and_rows_of_its_key_in_another_task_are_exchanged(
    in_two_tasks: Frames, tmp_path: Path, caplog: pytest.LogCaptureFixture, second: int
) -> None:
    options = {**OPTIONS, "hoodie.bucket.index.num.buckets": 1, "lsm.write.exchange": "none"}
    options.pop("hoodie.datasource.write.partitionpath.field")
    sink = LsmSink(tmp_path, options, envelope=Envelope(SCHEMA, ("id",), (), ("ts",)))
    row = {"id": "a", "country": "DE", "ts": 5}
    first = [message("a", {**row, "qty": 1, "note": "x"}, 0, 0), message("a", None, 0, 1)]
    last = {**row, "id": "b", "qty": 3, "note": "y", "coupon": 5}
    later = [message("a", {**row, "qty": 2}, second, 2), message("b", last, second, 3)]
    with caplog.at_level(logging.WARNING):
        sink(in_two_tasks(first, later, MESSAGES), 0)
    assert WARNING in caplog.messages
    numbers = sink.numbers(0)
    assert numbers is not None
    assert numbers.unknown_fields == {"note": 2, "coupon": 1}, "of the tasks whose files are committed only"
    assert [(row[0], row[3]) for row in shown(LsmTable(tmp_path))] == [("a", 2), ("b", 3)]
    assert len({path.name.split("_")[1].split("-")[0] for path in tmp_path.glob("*.parquet")}) == 1


def test_topic_partitions_of_rows_are_written_by_the_tasks_that_read_them(in_two_tasks: Frames, tmp_path: Path) -> None:
    options = {**OPTIONS, "hoodie.bucket.index.num.buckets": 1, "lsm.write.exchange": "none"}
    options.pop("hoodie.datasource.write.partitionpath.field")
    sink = LsmSink(tmp_path, options, envelope=Envelope(SCHEMA, ("id",), (), ("ts",)))
    parts = [
        [message(f"k{n}", {"id": f"k{n}", "country": "DE", "ts": 5, "qty": p}, p, n) for n in range(9)] for p in (0, 1)
    ]
    sink(in_two_tasks(*parts, MESSAGES), 0)
    assert {row[3] for row in shown(LsmTable(tmp_path))} == {1}
    assert {path.name.split("_")[1].split("-")[0] for path in tmp_path.glob("*.parquet")} == {"0", "1"}


def test_a_batch_of_too_many_file_groups_is_exchanged(in_two_tasks: Frames, tmp_path: Path) -> None:
    sink = LsmSink(tmp_path, OPTIONS)
    for number, countries in enumerate((1, 1, 40, 1, 1, 1, 1, 1)):
        parts = [[(f"k{n}", f"C{n % countries}", number, n, False) for n in range(200)] for _ in range(2)]
        sink(in_two_tasks(*parts), number)
    timeline = LsmTable(tmp_path).timeline
    files = [len(timeline.read_commit(write).stats) for write in timeline.every_write]
    assert files == [2, 4, 80, 2, 2, 2, 2, 4], "as long as one of the last four batches had so many"
    assert len(shown(LsmTable(tmp_path))) == 200 + 195
    assert validate(str(tmp_path)) == []


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_partitions_that_hold_whole_buckets_are_written_without_exchange(
    in_two_tasks: Frames, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    rows = [[(f"k{n}", f"C{n % 50}", 5, n, False) for n in range(start, 400, 2)] for start in (0, 1)]
    LsmSink(source, OPTIONS)(in_two_tasks(*rows), 0)
    sink = LsmSink(copy, {**OPTIONS, "hoodie.table.type": kind, "lsm.write.exchange": "whole_buckets"})
    for number in range(2):
        sink(read(spark, str(source), {"lsm.read.native": "false"}).select(*SCHEMA.names), number)
        assert shown(LsmTable(copy)) == shown(LsmTable(source))
        assert validate(str(copy)) == []
    commit = LsmTable(copy).timeline.read_commit(LsmTable(copy).timeline.completed_writes[0])
    assert len(commit.stats) == len({(stat.partition_path, stat.file_id) for stat in commit.stats}) == 100


def test_a_batch_of_split_buckets_fails_and_commits_nothing(in_two_tasks: Frames, tmp_path: Path) -> None:
    sink = LsmSink(tmp_path, {**OPTIONS, "lsm.write.exchange": "whole_buckets"})
    sink(in_two_tasks([("a", "DE", 5, 1, False)], [("a", "FR", 5, 1, False)]), 0)
    before = shown(LsmTable(tmp_path))
    with pytest.raises(ConfigError, match=r"whole_buckets, but several tasks have rows of bucket \d in partition 'DE'"):
        sink(in_two_tasks([("a", "DE", 6, 2, False)], [("a", "DE", 7, 3, False)]), 1)
    assert shown(LsmTable(tmp_path)) == before
    sink(in_two_tasks([("a", "DE", 6, 2, False)], [("a", "FR", 7, 3, False)]), 1)
    assert shown(LsmTable(tmp_path)) == [("a", "DE", 6, 2), ("a", "FR", 7, 3)]
    assert validate(str(tmp_path)) == []


def test_a_delete_that_leaves_no_file_counts_to_its_bucket(in_two_tasks: Frames, tmp_path: Path) -> None:
    options = {**OPTIONS, "hoodie.table.type": "COPY_ON_WRITE", "lsm.write.exchange": "whole_buckets"}
    sink = LsmSink(tmp_path, options)
    with pytest.raises(ConfigError, match="several tasks have rows of bucket"):
        sink(in_two_tasks([("a", "DE", 5, 1, False)], [("a", "DE", 9, 1, True)]), 0)
    assert shown(LsmTable(tmp_path)) == []


def test_a_topic_partition_in_two_tasks_holds_no_whole_buckets(in_two_tasks: Frames, tmp_path: Path) -> None:
    options = {**OPTIONS, "lsm.write.exchange": "whole_buckets"}
    sink = LsmSink(tmp_path, options, envelope=Envelope(SCHEMA, ("id",), (), ("ts",)))
    row = {"id": "a", "ts": 5, "qty": 1}
    parts = [[message("a", {**row, "country": country}, 0, n)] for n, country in enumerate(("DE", "FR"))]
    with pytest.raises(ConfigError, match="several tasks have events of topic partition orders/0"):
        sink(in_two_tasks(*parts, MESSAGES), 0)
