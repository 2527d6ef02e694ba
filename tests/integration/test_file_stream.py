"""Streams from files: restart, replay, bad input, two queries; every snapshot also by the oracle."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming_lsm import Envelope, LsmSink, LsmTable
from streaming_lsm.errors import CommitConflict, ConfigError, RecordError, SchemaError
from streaming_lsm.spark.versions import HAS_PYTHON_DATA_SOURCE, frame_of
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.lake import OrdersLake
from tests.support.orders import OPTIONS, final_rows, make_orders, rows_of, to_arrow, write_source
from tests.support.spark_frames import arrow_of, read_by_spark
from tests.support.writers import NO_WAIT

ENVELOPE = Envelope(pa.schema([("id", pa.string())]), ("id",))


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> OrdersLake:
    return OrdersLake(spark, tmp_path)


def test_a_stream_goes_on_from_its_checkpoint(lake: OrdersLake) -> None:
    lake.produce(0, 1)
    lake.run(1)
    lake.check()
    lake.produce(2)
    lake.run(1)
    lake.check()
    assert lake.batches() == [0, 1, 2]


def test_a_batch_whose_checkpoint_entry_is_lost_is_not_written_again(lake: OrdersLake) -> None:
    lake.produce(0, 1)
    lake.run(1)
    before = LsmTable(lake.path).timeline.instants
    (Path(lake.checkpoint) / "commits" / "1").unlink()
    (Path(lake.checkpoint) / "commits" / ".1.crc").unlink(missing_ok=True)
    lake.run(1)
    assert LsmTable(lake.path).timeline.instants == before
    lake.check()


def test_a_lost_checkpoint_writes_again_and_the_rows_stay_right(lake: OrdersLake) -> None:
    lake.produce(0, 1)
    lake.run(1)
    shutil.rmtree(lake.checkpoint)
    lake.run(1)
    assert len(LsmTable(lake.path).timeline.completed_writes) == 4
    lake.check()


def test_two_queries_remember_their_batches_apart(lake: OrdersLake) -> None:
    lake.produce(0)
    lake.run(1, {"lsm.writer.id": "first"})
    lake.checkpoint += "-2"
    lake.run(1, {"lsm.writer.id": "second"})
    timeline = LsmTable(lake.path).timeline
    ledger = json.loads(timeline.read_commit(timeline.completed_writes[-1]).extra["lsm.writers"])
    assert {writer: batch for writer, (batch, _) in ledger.items()} == {"first": 0, "second": 0}
    lake.check()


def test_bad_input_stops_the_query_and_it_goes_on_once_it_is_mended(lake: OrdersLake) -> None:
    lake.produce(0)
    lake.run(1)
    bad = to_arrow(make_orders(5, 1))
    keys = bad.column("order_id").to_pylist()
    bad = bad.set_column(0, "order_id", [[*keys[:-1], None]])
    frame_of(lake.spark, bad).coalesce(1).write.mode("append").parquet(str(lake.source))
    with pytest.raises(StreamingQueryException, match="no record key: column 'order_id'"):
        lake.run(1)
    lake.check()
    for file in lake.source.glob("part-*.snappy.parquet"):
        mended = make_orders(5, 1)
        file.unlink()
        (lake.source / f".{file.name}.crc").unlink(missing_ok=True)
        write_source(lake.source, file.name.removesuffix(".parquet"), mended)
        lake.orders += mended
    lake.run(1)
    lake.check()
    assert lake.batches() == [0, 1]


def batch_of(lake: OrdersLake) -> DataFrame:
    write_source(lake.source, "batch", make_orders(20, 7))
    return lake.spark.read.parquet(str(lake.source / "batch.parquet"))


def test_a_batch_adds_and_widens_columns_or_has_them_ignored_and_counted(lake: OrdersLake) -> None:
    batch = batch_of(lake)
    adds = LsmSink(lake.path, {**OPTIONS, "lsm.writer.id": "w"})
    adds(batch, 0)
    wider = batch.withColumn("qty", F.col("qty").cast("long") + 2**40).withColumn("colour", F.lit("red"))
    adds(wider, 1)
    table = LsmTable(lake.path)
    found = table.scan(["qty", "colour"]).to_arrow()
    assert set(found["colour"].to_pylist()) == {"red"}
    assert min(found["qty"].to_pylist()) >= 2**40
    ignores = LsmSink(lake.path, {**OPTIONS, "lsm.writer.id": "w", "lsm.schema.evolution": "ignore"})
    ignores(wider.withColumn("size", F.when(F.lit(True), F.lit(1))), 2)
    numbers = ignores.numbers(2)
    assert numbers is not None
    assert numbers.unknown_fields == {"size": batch.count()}
    assert LsmTable(lake.path).schema.equals(table.schema)


def test_what_does_not_fit_the_table_is_refused_by_name(lake: OrdersLake) -> None:
    batch = batch_of(lake)
    sink = LsmSink(lake.path, {**OPTIONS, "lsm.writer.id": "w", "lsm.schema.evolution": "fail"})
    sink(batch, 0)
    with pytest.raises(SchemaError, match="'qty' is missing"):
        sink(batch.drop("qty"), 1)
    with pytest.raises(SchemaError, match="'qty' has type string, the table has int32"):
        sink(batch.withColumn("qty", F.col("qty").cast("string")), 1)
    with pytest.raises(SchemaError, match="'colour' is not in the table"):
        sink(batch.withColumn("colour", F.lit("red")), 1)
    with pytest.raises(RecordError, match="ordering field 'updated_at' is null"):
        sink(
            batch.withColumn("updated_at", F.lit(None).cast("timestamp")).withColumn(
                "_hoodie_is_deleted", F.lit(False)
            ),
            1,
        )
    with pytest.raises(RecordError, match=r"country.*\.\."):
        sink(batch.withColumn("country", F.lit("../elsewhere")), 1)
    with pytest.raises(ConfigError, match=r"num\.buckets=8 but the table .* 4"):
        LsmSink(lake.path, {**OPTIONS, "hoodie.bucket.index.num.buckets": 8, "lsm.writer.id": "w"})(batch, 1)
    with pytest.raises(ConfigError, match=r"'hoodie\.table\.nmae'; did you mean 'hoodie\.table\.name'"):
        LsmSink(lake.path, {"hoodie.table.nmae": "orders"})
    assert len(LsmTable(lake.path).timeline.completed_writes) == 1
    assert rows_of(LsmTable(lake.path).scan().to_arrow()) == final_rows(make_orders(20, 7))
    sink(batch, 1)
    assert validate(lake.path) == []


@pytest.mark.parametrize("tasks", [1, 2], ids=["one-stage", "two-stages"])
def test_an_error_of_a_task_arrives_as_itself_in_one_line(lake: OrdersLake, tasks: int) -> None:
    batch = batch_of(lake).coalesce(1).withColumn("order_id", F.lit(None).cast("string"))
    sink = LsmSink(lake.path, {**OPTIONS, "lsm.writer.id": "w", "lsm.write.shuffle.partitions": tasks})
    with pytest.raises(RecordError) as caught:
        sink(batch, 0)
    assert str(caught.value) == "row 0 has no record key: column 'order_id' is None; a key must not be null or empty"


def test_a_second_writer_is_refused_and_leaves_the_inflight_commit_alone(lake: OrdersLake) -> None:
    LsmSink(lake.path, {**OPTIONS, "lsm.writer.id": "first"})(batch_of(lake), 0)
    table = LsmTable(lake.path)
    with table.transaction() as first:
        instant = first.begin()
        with pytest.raises(CommitConflict, match="unnamed"):
            LsmSink(lake.path, {**OPTIONS, **NO_WAIT, "lsm.writer.id": "second"})(batch_of(lake), 0)
        assert [pending.requested for pending in table.timeline.pending] == [instant]
    LsmSink(lake.path, {**OPTIONS, "lsm.writer.id": "second"})(batch_of(lake), 0)
    assert validate(lake.path) == []


def test_without_ordering_fields_the_last_row_of_a_key_in_arrival_order_stays(lake: OrdersLake) -> None:
    options = {key: value for key, value in OPTIONS.items() if key != "hoodie.table.ordering.fields"}
    rows = [("k", "DE", number, offset) for number, offset in zip(range(200), reversed(range(200)), strict=True)]
    batch = lake.spark.createDataFrame(rows, "order_id STRING, country STRING, qty INT, offset LONG").repartition(5)
    sink = LsmSink(lake.path, {**options, "lsm.writer.id": "w", "lsm.write.arrival.fields": "offset"})
    sink(batch, 0)
    (row,) = LsmTable(lake.path).scan().to_arrow().to_pylist()
    assert row == {"order_id": "k", "country": "DE", "qty": 0}


def test_a_key_is_hashed_as_the_table_stores_it_whatever_type_the_batch_has(lake: OrdersLake) -> None:
    schema = pa.schema([("k", pa.float64()), ("v", pa.int64())])
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "k",
        "hoodie.bucket.index.num.buckets": 8,
    }
    LsmTable.create(lake.path, schema, options)
    narrow = lake.spark.range(200).selectExpr("cast(id * 0.1 as float) k", "id v")
    LsmSink(lake.path, {"lsm.writer.id": "w", "hoodie.datasource.write.operation": "bulk_insert"})(narrow, 0)
    assert LsmTable(lake.path).scan().to_arrow().num_rows == 200
    assert validate(lake.path) == []


def test_a_batch_replaces_its_partitions_or_the_table_once(lake: OrdersLake) -> None:
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "k",
        "hoodie.datasource.write.partitionpath.field": "p",
        "hoodie.bucket.index.num.buckets": 4,
        "lsm.writer.id": "w",
    }
    operation = "hoodie.datasource.write.operation"
    old = lake.spark.range(400).selectExpr("id k", "cast(id % 2 as string) p", "id v")
    new = lake.spark.range(30).selectExpr("id * 2 k", "'0' p", "-1L v")
    LsmSink(lake.path, options)(old, 0)
    for _ in range(2):  # the second time it is a replay
        LsmSink(lake.path, {**options, operation: "insert_overwrite"})(new, 1)
        assert LsmTable(lake.path).scan().to_arrow().num_rows == 230
    assert LsmTable(lake.path).timeline.completed_writes[-1].action == "replacecommit"
    LsmSink(lake.path, {**options, operation: "insert_overwrite_table"})(new, 2)
    assert LsmTable(lake.path).scan(["v"]).to_arrow()["v"].unique().to_pylist() == [-1]
    assert LsmTable(lake.path).scan().to_arrow().num_rows == 30
    assert validate(lake.path) == []
    assert len(LsmTable(lake.path).timeline.completed_writes) == 3


def test_messages_overwrite_nothing() -> None:
    with pytest.raises(ConfigError, match="would replace a partition by the changes of one batch"):
        LsmSink("t", {"hoodie.datasource.write.operation": "insert_overwrite"}, envelope=ENVELOPE)


def test_an_empty_table_reads_as_no_rows(lake: OrdersLake) -> None:
    LsmTable.create(
        lake.path,
        pa.schema([("k", pa.string())]),
        {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "k"},
    )
    assert read_by_spark(lake.spark, lake.path).count() == 0


@pytest.mark.skipif(not HAS_PYTHON_DATA_SOURCE, reason="PySpark 4.0 introduced data sources in Python")
@pytest.mark.parametrize(
    ("change", "words"), [(("as.of.instnat", "x"), "did you mean"), (("lsm.read.meta", "yes"), "true or false")]
)
def test_a_misspelt_read_option_is_refused(lake: OrdersLake, change: tuple[str, str], words: str) -> None:
    lake.produce(0, count=5)
    lake.run(1)
    with pytest.raises(AnalysisException, match=words):
        lake.spark.read.format("streaming_lsm").option(*change).load(lake.path)
    with pytest.raises(AnalysisException, match="to be read as int, and the table has no such column"):
        lake.spark.read.format("streaming_lsm").schema("k INT").load(lake.path).count()


def test_spark_reads_as_of_an_instant_and_with_meta_columns(lake: OrdersLake) -> None:
    lake.produce(0, 1)
    lake.run(1)
    first = LsmTable(lake.path).timeline.completed_writes[0]
    as_of_first = read_by_spark(lake.spark, lake.path, **{"as.of.instant": first.requested})
    assert rows_of(arrow_of(as_of_first)) == final_rows(lake.orders[:300])
    with_meta = read_by_spark(lake.spark, lake.path, **{"lsm.read.meta": "true"})
    assert with_meta.columns[:5] == list(read_snapshot(lake.path, with_meta=True).schema.names[:5])
    slices = len(LsmTable(lake.path).file_slices())
    assert read_by_spark(lake.spark, lake.path).rdd.getNumPartitions() == slices


def test_a_stream_writes_a_table_for_the_readers_of_today(spark: SparkSession, tmp_path: Path) -> None:
    lake = OrdersLake(spark, tmp_path, {"hoodie.write.table.version": 9})
    lake.produce(0, 1, 2, 3)
    lake.run(1)
    expected = final_rows(lake.orders)
    assert rows_of(LsmTable(lake.path).scan().to_arrow()) == expected
    assert rows_of(arrow_of(read_by_spark(spark, lake.path))) == expected
    assert lake.batches() == [0, 1, 2, 3]
    names = [file.name for file in Path(lake.path).rglob("*") if ".hoodie" not in file.parts]
    assert [name for name in names if ".log." in name]
    assert not [name for name in names if name.endswith((".log.parquet", ".deletes.parquet"))]


def test_a_stream_that_asks_for_a_later_version_upgrades_with_the_first_batch_that_is_taken(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = OrdersLake(spark, tmp_path, {"hoodie.write.table.version": 9})
    lake.produce(0)
    lake.run()
    lake.produce(1)
    asked = {"hoodie.write.table.version": 10, "hoodie.write.auto.upgrade": True}
    with pytest.raises(StreamingQueryException, match="'qty' is missing"):
        lake.run(options=asked, prepared=lambda events: events.drop("qty"))
    assert LsmTable(lake.path).config.version == 9
    lake.run(options=asked)
    table = LsmTable(lake.path)
    assert table.config.version == 10
    assert rows_of(table.scan().to_arrow()) == final_rows(lake.orders)
    assert lake.batches() == [0, 1]


def test_a_small_table_of_the_sink_has_few_small_files(lake: OrdersLake) -> None:
    options = {key: value for key, value in OPTIONS.items() if key != "hoodie.bucket.index.num.buckets"}
    rows = lake.spark.range(10_000).selectExpr(
        "format_string('o%06d', id) order_id",
        "concat('C', id % 5) country",
        "cast(id AS INT) qty",
        "timestamp_micros(id) updated_at",
    )
    compacted = {**options, "hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 1}
    LsmSink(lake.path, {**compacted, "lsm.writer.id": "w"})(rows, 0)
    files = [path for path in Path(lake.path).rglob("*") if path.is_file()]
    assert all(found.base and not found.logs for found in LsmTable(lake.path).file_slices())
    assert len(files) <= 100
    assert sum(path.stat().st_size for path in files) <= 5 << 20
    assert lake.spark.read.format("streaming_lsm").load(lake.path).count() == 10_000
