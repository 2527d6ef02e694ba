"""A table read as a stream: every write once, over restarts, limits, compactions, cleans and changes of the schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from streaming_lsm import LsmTable
from streaming_lsm.spark.versions import HAS_PYTHON_DATA_SOURCE, SPARK
from tests.support.spark_frames import arrow_of

pytestmark = pytest.mark.skipif(not HAS_PYTHON_DATA_SOURCE, reason="PySpark 4.0 introduced data sources in Python")

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), ("ts", pa.int64()), ("qty", pa.int32())])
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.clean.automatic": "false",
}
CDC = {
    "hoodie.datasource.query.type": "incremental",
    "hoodie.datasource.query.incremental.format": "cdc",
}
Rows = list[dict[str, object]]


class Reader:
    """Reads a table as a stream, what is new at each call, from one checkpoint."""

    def __init__(self, spark: SparkSession, table: LsmTable, checkpoint: Path, **options: str) -> None:
        self._spark, self._path, self._checkpoint, self._options = spark, table.path, checkpoint, options

    def __call__(self) -> list[Rows]:
        """The rows of each batch that is there."""
        batches: list[Rows] = []

        def keep(batch: DataFrame, _: int) -> None:
            batches.append(arrow_of(batch).to_pylist())

        stream = self._spark.readStream.format("streaming_lsm").options(**self._options).load(self._path)
        query = (
            stream.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [batch for batch in batches if batch]


@pytest.fixture
def table(tmp_path: Path) -> LsmTable:
    return LsmTable.create(tmp_path / "t", SCHEMA, OPTIONS)


def upsert(table: LsmTable, ts: int, **quantities: int) -> None:
    table.upsert(pa.table([list(quantities), [ts] * len(quantities), list(quantities.values())], schema=SCHEMA))


def quantities(batch: Rows) -> Mapping[object, object]:
    assert len({row["id"] for row in batch}) == len(batch)
    return {row["id"]: row["qty"] for row in batch}


def changes(batch: Rows) -> list[tuple[object, ...]]:
    def of(image: object) -> object:
        return None if image is None else (image["id"], image["qty"])  # type: ignore[index]

    return sorted(((row["op"], of(row["before"]), of(row["after"])) for row in batch), key=repr)


def test_rows_are_read_once_over_restarts_and_compactions(spark: SparkSession, table: LsmTable, tmp_path: Path) -> None:
    read = Reader(spark, table, tmp_path / "checkpoint")
    upsert(table, 1, a=1, b=1)
    upsert(table, 2, a=2, c=2)
    assert [quantities(batch) for batch in read()] == [{"a": 2, "b": 1, "c": 2}]
    assert read() == []
    upsert(table, 3, b=3)
    table.compact()
    assert [quantities(batch) for batch in read()] == [{"b": 3}]
    table.compact()
    assert read() == []


def test_a_stream_of_changes_has_each_of_them(spark: SparkSession, table: LsmTable, tmp_path: Path) -> None:
    read = Reader(spark, table, tmp_path / "checkpoint", **CDC)
    upsert(table, 1, a=1, b=1)
    upsert(table, 2, a=2)
    assert [changes(batch) for batch in read()] == [
        [("i", None, ("a", 1)), ("i", None, ("b", 1)), ("u", ("a", 1), ("a", 2))]
    ]
    table.compact()
    table.delete(pa.table({"id": ["b"], "ts": [3]}))
    assert [changes(batch) for batch in read()] == [[("d", ("b", 1), None)]]
    assert read() == []


@pytest.mark.parametrize("options", [{}, CDC], ids=["rows", "changes"])
def test_a_limit_reads_so_many_commits_a_batch(
    spark: SparkSession, table: LsmTable, tmp_path: Path, options: dict[str, str]
) -> None:
    for ts in range(1, 6):
        upsert(table, ts, a=ts)
    read = Reader(spark, table, tmp_path / "checkpoint", **options, **{"lsm.read.stream.max.commits": "2"})
    batches = read()
    # PySpark 4.2 introduced the trigger's batches for data sources in Python.
    expected = [[2], [2], [1]] if SPARK >= (4, 2) else [[2]]
    assert [[len(batch)] for batch in batches] == (expected if options else [[1]] * len(expected))


def test_a_stream_begins_where_the_options_say(spark: SparkSession, table: LsmTable, tmp_path: Path) -> None:
    upsert(table, 1, a=1)
    upsert(table, 2, a=2, b=2)
    first, _ = (write.completed for write in table.timeline.completed_writes)
    key = "hoodie.datasource.streaming.startOffset"
    latest = Reader(spark, table, tmp_path / "latest", **{key: "latest"})
    after = Reader(spark, table, tmp_path / "after", **{key: str(first)}, **CDC)
    snapshot = Reader(spark, table, tmp_path / "snapshot", **{key: "snapshot"}, **CDC)
    rows = Reader(spark, table, tmp_path / "rows", **{key: "snapshot"})
    assert latest() == []
    assert [changes(batch) for batch in after()] == [[("i", None, ("b", 2)), ("u", ("a", 1), ("a", 2))]]
    assert [changes(batch) for batch in snapshot()] == [[("i", None, ("a", 2)), ("i", None, ("b", 2))]]
    assert [quantities(batch) for batch in rows()] == [{"a": 2, "b": 2}]
    upsert(table, 3, a=3)
    assert [quantities(batch) for batch in latest()] == [{"a": 3}]
    assert [changes(batch) for batch in snapshot()] == [[("u", ("a", 2), ("a", 3))]]


def test_a_batch_that_was_planned_before_a_crash_is_read_again_as_it_was(
    spark: SparkSession, table: LsmTable, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    read = Reader(spark, table, checkpoint)
    upsert(table, 1, a=1, b=1)
    read()
    upsert(table, 2, a=2)
    assert [quantities(batch) for batch in read()] == [{"a": 2}]
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink()
    upsert(table, 3, a=3, b=3)
    assert [quantities(batch) for batch in read()] == [{"a": 2}, {"a": 3, "b": 3}]


def test_a_stream_that_a_clean_overtook_says_what_to_retain(
    spark: SparkSession, table: LsmTable, tmp_path: Path
) -> None:
    read = Reader(spark, table, tmp_path / "checkpoint", **CDC)
    upsert(table, 1, a=1)
    read()
    cleaned = LsmTable(table.path, OPTIONS | {"hoodie.clean.commits.retained": 1})
    for ts in range(2, 6):
        upsert(cleaned, ts, a=ts)
        cleaned.compact()
    assert cleaned.clean() is not None
    with pytest.raises(Exception, match=r"ReadOvertaken: .*hoodie\.clean\.commits\.retained"):
        read()


@pytest.mark.parametrize("options", [{}, CDC], ids=["rows", "changes"])
def test_a_write_that_was_read_and_undone_ends_the_stream(
    spark: SparkSession, table: LsmTable, tmp_path: Path, options: dict[str, str]
) -> None:
    read = Reader(spark, table, tmp_path / "checkpoint", **options)
    upsert(table, 1, a=1)
    table.savepoint()
    upsert(table, 2, a=2)
    read()
    table.restore(table.savepoints[-1].instant.requested)
    upsert(table, 3, b=3)
    with pytest.raises(Exception, match="a restore or a rollback undid it"):
        read()


def test_a_limit_skips_states_that_were_cleaned(spark: SparkSession, table: LsmTable, tmp_path: Path) -> None:
    cleaned = LsmTable(table.path, OPTIONS | {"hoodie.clean.commits.retained": 1})
    for ts in range(1, 6):
        upsert(cleaned, ts, a=ts)
        cleaned.compact()
    assert cleaned.clean() is not None
    batches = Reader(spark, table, tmp_path / "checkpoint", **{"lsm.read.stream.max.commits": "2"})()
    assert quantities(batches[-1]) == {"a": 5}


def test_offsets_never_go_back_in_the_order_of_calls_of_older_versions(table: LsmTable) -> None:
    """PySpark 4.0 and 4.1 ask for the latest offset before the initial one, and do not say where a batch begins."""
    from streaming_lsm.spark.queries.stream_reader import LsmStreamReader  # PySpark 3.5 cannot import it

    for ts in range(1, 5):
        upsert(table, ts, a=ts)
    limited = LsmTable(table.path, {"lsm.read.stream.max.commits": 1})
    reader = LsmStreamReader(limited, limited.stream())
    first, begin = reader.latestOffset(), reader.initialOffset()
    assert begin == {"completed": "000"}
    assert reader.latestOffset() == first == {"completed": limited.stream().latest()}
    upsert(table, 5, a=5)
    upsert(table, 6, a=6)
    second, third = reader.latestOffset(), reader.latestOffset()
    assert first["completed"] < second["completed"] < third["completed"] == limited.stream().latest()
    assert len(reader.partitions(second, third)) == 1


def test_columns_added_meanwhile_are_read_from_the_next_start_on(
    spark: SparkSession, table: LsmTable, tmp_path: Path
) -> None:
    for name, options in {"rows": {}, "changes": CDC}.items():
        read = Reader(spark, table, tmp_path / name, **options)
        upsert(table, 1, a=1)
        read()
        rows = pa.table([["n"], [2], [2]], schema=SCHEMA).append_column(name, pa.array(["new"]))
        LsmTable(table.path, OPTIONS | {"hoodie.write.set.null.for.missing.columns": "true"}).upsert(rows)
        ((row,),) = read()
        assert (row["after"] if options else row)[name] == "new"  # type: ignore[index]
        table = LsmTable(table.path, OPTIONS | {"hoodie.write.set.null.for.missing.columns": "true"})


@pytest.mark.parametrize("options", [{}, CDC], ids=["rows", "changes"])
def test_what_was_written_before_columns_were_added_or_renamed_has_those_of_the_start(
    spark: SparkSession, table: LsmTable, tmp_path: Path, options: dict[str, str]
) -> None:
    """With a limit a batch ends before the write that changed the columns."""
    upsert(table, 1, a=1)
    upsert(table, 2, b=2)
    table.rename_columns({"qty": "amount"})
    rows = pa.table([["c"], [3], [3]], schema=SCHEMA).rename_columns(["id", "ts", "amount"])
    table.upsert(rows.append_column("note", pa.array(["new"])))
    read = Reader(spark, table, tmp_path / "checkpoint", **options, **{"lsm.read.stream.max.commits": "1"})
    # Before PySpark 4.2 each call reads one batch.
    batches = list(chain.from_iterable(iter(read, [])))
    found = [row["after"] if options else row for batch in batches for row in batch]
    assert [(row["id"], row["amount"], row["note"]) for row in found] == [  # type: ignore[index]
        ("a", 1, None), ("b", 2, None), ("c", 3, "new"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"as.of.instant": "20260101"}, "as.of.instant is not for streams"),
        ({"hoodie.datasource.read.begin.instanttime": "000"}, "hoodie.datasource.streaming.startOffset says where"),
        ({"hoodie.datasource.query.type": "read_optimized"}, "cannot be streamed"),
        ({"hoodie.datasource.streaming.startOffset": "soon"}, "soon"),
        ({"hoodie.datasource.streaming.startOffset": "1732689600"}, "1732-68-96"),
    ],
)
def test_options_that_are_not_for_streams_are_refused(table: LsmTable, options: dict[str, str], says: str) -> None:
    from streaming_lsm.spark.queries.datasource import LsmDataSource  # PySpark 3.5 cannot import it

    upsert(table, 1, a=1)
    source = LsmDataSource({"path": table.path, **options})
    with pytest.raises(Exception, match=re.escape(says)):
        source.streamReader(source.schema()).initialOffset()


def test_a_query_tells_which_option_is_not_for_streams(spark: SparkSession, table: LsmTable, tmp_path: Path) -> None:
    upsert(table, 1, a=1)
    with pytest.raises(Exception, match="soon"):
        Reader(spark, table, tmp_path / "checkpoint", **{"hoodie.datasource.streaming.startOffset": "soon"})()


def test_a_checkpoint_of_another_source_is_refused(spark: SparkSession, table: LsmTable, tmp_path: Path) -> None:
    read = Reader(spark, table, tmp_path / "checkpoint")
    upsert(table, 1, a=1)
    read()
    upsert(table, 2, a=2)
    offsets = tmp_path / "checkpoint" / "offsets" / "0"
    version, metadata, _ = offsets.read_text().splitlines()
    offsets.write_text("\n".join([version, metadata, json.dumps({"orders": {"0": 7}})]))
    (offsets.parent / ".0.crc").unlink()
    with pytest.raises(Exception, match="is not of this source: start with a new checkpoint"):
        read()
