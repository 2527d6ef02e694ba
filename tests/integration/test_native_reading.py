"""Spark's own Parquet reader reads slices without logs, the merge reads the others; the rows are those of a scan."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming_lsm import ConfigError, LsmTable, SchemaError, read
from streaming_lsm.errors import CorruptFileError
from tests.support.spark_frames import arrow_of

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("day", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("qty", pa.int32()),
        pa.field("price", pa.float64()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.clean.automatic": "false",
}
DAYS = ["2026-01-01", "a b%2F*", "{x}[?]", None, ""]


def rows_of(numbers: range, ts: int) -> pa.Table:
    return pa.table(
        [
            [f"k{number}" for number in numbers],
            [DAYS[number % len(DAYS)] for number in numbers],
            [ts] * len(numbers),
            [number if number % 7 else None for number in numbers],
            [float("nan") if number % 11 == 0 else number / 2 for number in numbers],
            [[str(number), None] for number in numbers],
        ],
        schema=SCHEMA,
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> LsmTable:
    """Have base files only in some partitions, base and logs in others, one without a base file."""
    made = LsmTable.create(tmp_path_factory.mktemp("native") / "ta*ble [x]", SCHEMA, OPTIONS)
    made.upsert(rows_of(range(200), 1))
    made.compact()
    changed = rows_of(range(40), 2)
    made.upsert(changed.filter(pc.is_in(changed["day"], pa.array(DAYS[1:2]))))
    made.delete(rows_of(range(2, 30, 5), 3).select(["id", "day", "ts"]))
    made.upsert(rows_of(range(200, 210), 1).set_column(1, SCHEMA.field("day"), pa.array(["new"] * 10)))
    return made


def sorted_rows(found: pa.Table) -> list[str]:
    """The rows as texts, since NaN equals no NaN."""
    return sorted(map(repr, zip(*(column.to_pylist() for column in found.columns), strict=True)))


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


FILTERS = [
    None,
    pc.field("qty") > 20,
    ~(pc.field("qty") > 20) | pc.field("id").isin(["k7", "k14"]),
    pc.field("day") == "2026-01-01",
    pc.field("day").is_null(),
    pc.field("day").isin(["", None]),
    ~pc.field("qty").isin([1, 2, 3]),
    pc.field("price") > 3.0,
    pc.starts_with(pc.field("id"), "k1") & pc.field("qty").is_valid(),
    pc.equal(pc.utf8_length(pc.field("id")), 2),
    pc.field("qty") + 1 == 9,
]


@pytest.mark.parametrize("columns", [None, ["qty", "id"]])
def test_rows_equal_those_of_a_scan(spark: SparkSession, table: LsmTable, columns: list[str] | None) -> None:
    expected = [
        pa.table([*rows.columns, pa.array([str(filter)] * len(rows), pa.string())], [*rows.schema.names, "of"])
        for filter in FILTERS
        for rows in [table.scan(columns, filter).to_arrow()]
    ]
    schemas = []
    for options in ({}, {"lsm.read.native": "false"}):
        found = reduce(
            DataFrame.unionAll,
            (
                read(spark, table.path, options, columns=columns, filter=filter).withColumn("of", F.lit(str(filter)))
                for filter in FILTERS
            ),
        )
        assert sorted_rows(arrow_of(found)) == sorted_rows(pa.concat_tables(expected))
        schemas.append(found.schema)
    assert schemas[0] == schemas[1]


def test_spark_reads_the_columns_and_row_groups_that_it_needs_of_slices_without_logs(
    spark: SparkSession, table: LsmTable
) -> None:
    found = read(spark, table.path).where("qty > 20 AND ts = 1").select("id", "qty")
    assert sorted_rows(arrow_of(found)) == sorted_rows(
        table.scan(["id", "qty"], (pc.field("qty") > 20) & (pc.field("ts") == 1)).to_arrow()
    )
    plan = plan_of(found)
    assert "FileScan parquet [id" in plan
    assert "GreaterThan(qty,20)" in plan
    assert "MapInArrow" in plan
    assert "price" not in plan.partition("FileScan")[2].partition("MapInArrow")[0]


def test_an_open_table_is_read_as_its_options_say(spark: SparkSession, table: LsmTable) -> None:
    opened = LsmTable(table.path, {"hoodie.datasource.query.type": "read_optimized"})
    found = opened.to_spark(spark, ["id"], pc.field("qty") > 20)
    assert sorted_rows(arrow_of(found)) == sorted_rows(opened.scan(["id"], pc.field("qty") > 20).to_arrow())


def test_a_filter_of_the_call_reaches_sparks_reader(spark: SparkSession, table: LsmTable) -> None:
    plan = plan_of(read(spark, table.path, columns=["id"], filter=pc.field("qty") > 20))
    assert re.search(r"PushedFilters: .*GreaterThan\(qty,20\)", plan)


def test_a_partition_that_is_filtered_is_the_only_one_read(spark: SparkSession, table: LsmTable) -> None:
    found = read(spark, table.path, filter=pc.field("day") == "2026-01-01")
    files = found.inputFiles()
    assert files
    assert all("day=2026-01-01" in file for file in files)


@pytest.fixture
def compacted(tmp_path: Path) -> LsmTable:
    made = LsmTable.create(tmp_path / "t", SCHEMA, OPTIONS)
    made.upsert(rows_of(range(50), 1))
    made.compact()
    return made


def test_a_base_file_of_narrower_types_is_widened(spark: SparkSession, compacted: LsmTable) -> None:
    wider = rows_of(range(50, 60), 1)
    place = SCHEMA.get_field_index("qty")
    wider = wider.set_column(place, "qty", wider["qty"].cast(pa.int64()))
    wider = wider.append_column("note", pa.array(["new"] * 10))
    table = LsmTable(compacted.path, OPTIONS)
    table.upsert(wider)
    for options in ({}, {"hoodie.datasource.query.type": "read_optimized"}):
        found = read(spark, table.path, options)
        assert dict(found.dtypes)["qty"] == "bigint"
        assert sorted_rows(arrow_of(found)) == sorted_rows(LsmTable(table.path, options).scan().to_arrow())
    # Without the widened column Spark reads the files itself, which lack the new one.
    found = read(spark, table.path, {"hoodie.datasource.query.type": "read_optimized"}, columns=["id", "note"])
    assert "FileScan parquet" in plan_of(found)
    assert "MapInArrow" not in plan_of(found)
    assert {row.note for row in found.collect()} == {None}


def test_a_damaged_and_a_missing_base_file_are_errors_that_name_it(spark: SparkSession, compacted: LsmTable) -> None:
    base = next(found.base for found in compacted.file_slices() if found.base)
    file = Path(compacted.path.removeprefix("file://")) / base.path
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    with pytest.raises(CorruptFileError, match=re.escape(file.name)):
        read(spark, compacted.path)
    file.unlink()
    with pytest.raises(CorruptFileError, match=re.escape(file.name)):
        read(spark, compacted.path)


def test_names_that_differ_by_case_and_a_colon_in_a_pattern_are_left_to_the_merge(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = pa.schema([*SCHEMA, pa.field("QTY", pa.int64())])
    made = LsmTable.create(tmp_path / "t", schema, OPTIONS)
    made.upsert(rows_of(range(5), 1).append_column("QTY", pa.array(range(5))))
    made.compact()
    assert "MapInArrow" in plan_of(read(spark, made.path, columns=["QTY"]))
    assert read(spark, made.path).count() == 5
    colon = LsmTable.create(tmp_path / "x[y]", SCHEMA, OPTIONS)
    colon.upsert(rows_of(range(5), 1).set_column(1, SCHEMA.field("day"), pa.array(["a:b"] * 5)))
    colon.compact()
    assert sorted_rows(arrow_of(read(spark, colon.path))) == sorted_rows(colon.scan().to_arrow())


def test_a_table_without_rows_is_read(spark: SparkSession, tmp_path: Path) -> None:
    empty = LsmTable.create(tmp_path / "t", SCHEMA, OPTIONS)
    assert read(spark, empty.path).collect() == []
    assert read(spark, empty.path).columns == SCHEMA.names


def test_incremental_queries_and_changes_are_read_by_hudis_options(spark: SparkSession, table: LsmTable) -> None:
    first, *_ = table.timeline.completed_writes
    begin = first.completed
    assert begin is not None
    options = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": begin,
    }
    found = read(spark, table.path, options)
    assert sorted_rows(arrow_of(found)) == sorted_rows(table.incremental(begin).to_arrow())
    changes = read(spark, table.path, options | {"hoodie.datasource.query.incremental.format": "cdc"})
    expected = table.changes(begin).to_arrow()
    assert len(expected) > 15
    assert sorted_rows(arrow_of(changes)) == sorted_rows(expected)
    end = table.timeline.completed_writes[1].completed
    nothing = read(spark, table.path, options | {"hoodie.datasource.read.end.instanttime": str(end)})
    assert arrow_of(nothing).num_rows == table.incremental(begin, end).to_arrow().num_rows


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hoodie.datasource.query.type": "incremental"}, "needs hoodie.datasource.read.begin.instanttime"),
        ({"hoodie.datasource.read.begin.instanttime": "000"}, "is for incremental queries"),
        ({"hoodie.datasource.query.incremental.format": "cdc"}, "is for incremental queries"),
        (
            {
                "hoodie.datasource.query.type": "incremental",
                "hoodie.datasource.read.begin.instanttime": "000",
                "as.of.instant": "20260101",
            },
            "as.of.instant is for snapshots",
        ),
        (
            {
                "hoodie.datasource.query.type": "incremental",
                "hoodie.datasource.read.begin.instanttime": "000",
                "hoodie.datasource.query.incremental.format": "cdc",
                "lsm.read.columns": "id",
            },
            "a CDC query takes no columns",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    spark: SparkSession, table: LsmTable, options: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        read(spark, table.path, options)


def test_columns_that_are_absent_are_refused(spark: SparkSession, table: LsmTable) -> None:
    with pytest.raises(SchemaError, match="'qyt' is not in the table, which has qty"):
        read(spark, table.path, {"lsm.read.columns": "qyt"})
