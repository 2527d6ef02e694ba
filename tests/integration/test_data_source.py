"""The data source: every query type by options, tables of Spark's catalog, and filters that Spark pushes down."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial, reduce
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming_lsm import LsmTable
from streaming_lsm.spark.versions import HAS_PYTHON_DATA_SOURCE, SPARK
from tests.support.lake import data_files
from tests.support.spark_frames import arrow_of

pytestmark = pytest.mark.skipif(not HAS_PYTHON_DATA_SOURCE, reason="PySpark 4.0 introduced data sources in Python")

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("ts", pa.int64()),
        pa.field("qty", pa.int32()),
        pa.field("price", pa.float64()),
        pa.field("open", pa.bool_()),
        pa.field("on", pa.date32()),
        pa.field("inner", pa.struct([("x", pa.int32())])),
    ]
)
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 4,
    "hoodie.clean.automatic": "false",
}


def rows_of(numbers: range, ts: int) -> pa.Table:
    rows = [
        {
            "id": f"k{number:03d}",
            "ts": ts,
            "qty": None if number % 7 == 0 else number % 20,
            "price": float("nan") if number % 5 == 0 else number / 4,
            "open": None if number % 11 == 0 else number % 2 == 0,
            "on": number if number % 3 else None,
            "inner": {"x": number},
        }
        for number in numbers
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> LsmTable:
    made = LsmTable.create(tmp_path_factory.mktemp("source") / "t", SCHEMA, OPTIONS)
    made.upsert(rows_of(range(100), 1))
    made.compact()
    made.upsert(rows_of(range(50, 120), 2))
    made.delete(pa.table({"id": ["k003", "k060"], "ts": [3, 3]}))
    return made


@pytest.fixture(params=["off", "on"])
def pushing(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[bool]:
    """The switch by which Spark pushes filters down, which changes nothing here; PySpark 4.0 does not have it."""
    key, is_on = "spark.sql.python.filterPushdown.enabled", request.param == "on"
    if is_on and SPARK < (4, 1):
        pytest.skip("PySpark 4.1 introduced pushed filters")
    spark.conf.set(key, str(is_on).lower())
    yield is_on
    spark.conf.unset(key)


def load(spark: SparkSession, table: LsmTable, **options: str) -> DataFrame:
    return spark.read.format("streaming_lsm").options(**options).load(table.path)


def sorted_rows(found: pa.Table) -> list[str]:
    """The rows as texts, since NaN equals no NaN."""
    return sorted(map(repr, zip(*(column.to_pylist() for column in found.columns), strict=True)))


CONDITIONS = [
    "id = 'k010'",
    "id > 'k110' AND qty < 5",
    "qty IN (1, 2, 3)",
    "qty NOT IN (1, 2, 3)",
    "qty NOT IN (1, NULL)",
    "qty IN (1, NULL)",
    "NOT qty = 4",
    "qty <=> 4",
    "NOT (qty <=> 4)",
    "qty <=> NULL",
    "qty IS NULL AND open",
    "qty IS NOT NULL AND NOT open",
    "open = true",
    "price > 20",
    "price = double('NaN')",
    "on >= DATE '1970-02-01'",
    "id LIKE 'k01%' AND id LIKE '%5' AND id LIKE '%1%'",
    "qty > 3000000000",
    "inner.x = 7",
    "qty = 1 OR price < 1",
]


def test_conditions_keep_the_rows_that_spark_keeps_of_the_whole_table(
    spark: SparkSession, table: LsmTable, pushing: bool
) -> None:
    whole = load(spark, table).localCheckpoint()
    found, expected = (
        reduce(
            DataFrame.unionAll, (of().where(condition).withColumn("of", F.lit(condition)) for condition in CONDITIONS)
        )
        for of in (partial(load, spark, table), lambda: whole)
    )
    assert sorted_rows(arrow_of(found)) == sorted_rows(arrow_of(expected))


def test_a_frame_is_used_again_with_other_conditions(spark: SparkSession, table: LsmTable, pushing: bool) -> None:
    frame = load(spark, table)
    assert [frame.count(), frame.where("qty = 1").count(), frame.count()] == [118, 5, 118]
    assert frame.where("qty = 1").unionAll(frame).count() == 123


def test_every_query_type_is_read_by_hudis_options(spark: SparkSession, table: LsmTable) -> None:
    first, *_, last = sorted(write.completed or "" for write in table.timeline.completed_writes)
    incremental = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": first,
    }
    expected = {
        "read_optimized": (
            {"hoodie.datasource.query.type": "read_optimized"},
            table.scan(query_type="read_optimized"),
        ),
        "as_of": ({"as.of.instant": first}, table.scan(as_of=first)),
        "incremental": (incremental, table.incremental(first)),
        "ended": (incremental | {"hoodie.datasource.read.end.instanttime": last}, table.incremental(first, last)),
        "cdc": (incremental | {"hoodie.datasource.query.incremental.format": "cdc"}, table.changes(first)),
    }
    for name, (options, query) in expected.items():
        rows = query.to_arrow()
        assert len(rows) > 50, name
        assert sorted_rows(arrow_of(load(spark, table, **options))) == sorted_rows(rows), name


def test_columns_are_chosen_by_an_option_or_the_schema(spark: SparkSession, table: LsmTable) -> None:
    expected = sorted_rows(table.scan(["qty", "id"]).to_arrow())
    chosen = load(spark, table, **{"lsm.read.columns": "qty,id"})
    assert chosen.columns == ["qty", "id"]
    assert sorted_rows(arrow_of(chosen)) == expected
    given = spark.read.format("streaming_lsm").schema("qty INT, id STRING").load(table.path)
    assert sorted_rows(arrow_of(given)) == expected
    with pytest.raises(Exception, match="'qty' is to be read as bigint, and the table has int"):
        spark.read.format("streaming_lsm").schema("qty LONG").load(table.path).collect()


@pytest.fixture
def database(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    spark.sql(f"CREATE DATABASE lake LOCATION '{tmp_path / 'warehouse'}'")
    yield "lake"
    spark.sql("DROP DATABASE lake CASCADE")


def test_a_table_of_the_catalog_is_created_read_and_dropped(
    spark: SparkSession, table: LsmTable, database: str, pushing: bool
) -> None:
    spark.sql(f"CREATE TABLE {database}.orders USING streaming_lsm LOCATION '{table.path}'")
    found = spark.sql(f"SELECT * FROM {database}.orders WHERE id < 'k050'")
    assert sorted_rows(arrow_of(found)) == sorted_rows(
        arrow_of(load(spark, table).localCheckpoint().where("id < 'k050'"))
    )
    (moment, *_) = sorted(write.completed or "" for write in table.timeline.completed_writes)
    spark.sql(
        f"CREATE TABLE {database}.then USING streaming_lsm OPTIONS (`as.of.instant` '{moment}') LOCATION '{table.path}'"
    )
    assert spark.table(f"{database}.then").count() == 100
    spark.sql(f"DROP TABLE {database}.orders")
    assert LsmTable(table.path).scan().to_arrow().num_rows == 118


def test_properties_of_a_table_of_the_catalog_that_are_meant_for_others_are_ignored(
    spark: SparkSession, table: LsmTable, database: str
) -> None:
    create = f"CREATE TABLE {database}.owned USING streaming_lsm TBLPROPERTIES ('%s' = '1') LOCATION '{table.path}'"
    spark.sql(create % "team")
    assert spark.table(f"{database}.owned").count() == 118
    with pytest.raises(Exception, match=r"did you mean 'as\.of\.instant'"):
        spark.sql((create % "as.of.instnat").replace("owned", "wrong"))


def test_a_table_of_the_catalog_keeps_its_columns_when_others_are_added(
    spark: SparkSession, tmp_path: Path, database: str
) -> None:
    made = LsmTable.create(tmp_path / "grows", SCHEMA, OPTIONS)
    made.upsert(rows_of(range(3), 1))
    spark.sql(f"CREATE TABLE {database}.grows USING streaming_lsm LOCATION '{made.path}'")
    more = rows_of(range(3, 5), 1).append_column("note", pa.array(["a", "b"]))
    made.upsert(more)
    assert spark.table(f"{database}.grows").columns == SCHEMA.names
    assert spark.table(f"{database}.grows").count() == 5


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"as.of.instnat": "1"}, "did you mean 'as.of.instant'"),
        ({"hoodie.datasource.query.type": "incremental"}, "needs hoodie.datasource.read.begin.instanttime"),
        ({"lsm.read.columns": "qyt"}, "column 'qyt' is not in the table, which has qty"),
    ],
)
def test_wrong_options_are_named(spark: SparkSession, table: LsmTable, options: dict[str, str], says: str) -> None:
    with pytest.raises(Exception, match=re.escape(says)) as refused:
        load(spark, table, **options).collect()
    assert "Traceback" not in str(refused.value)


def test_an_error_of_a_task_is_told_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    made = LsmTable.create(tmp_path / "t", SCHEMA, OPTIONS)
    made.upsert(rows_of(range(9), 1))
    found = load(spark, made)
    for file in data_files(str(tmp_path / "t")):
        (tmp_path / "t" / file).write_bytes(b"PAR1 and no more")
    with pytest.raises(Exception, match=r"CorruptFileError: .*not a readable Parquet file") as refused:
        found.collect()
    assert "Traceback" not in str(refused.value)
