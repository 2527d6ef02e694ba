"""What makes tables pleasant in Python: SQL filters, limits, counts, other libraries' frames, deletes by a filter."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import ConfigError, CorruptFileError, SchemaError
from streaming_lsm.query.cdc.change_reader import ChangeReader

SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), ("day", pa.string()), ("ts", pa.int64()), ("qty", pa.int64())]
)
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 2,
}


def rows_of(numbers: range, ts: int = 1) -> pa.Table:
    return pa.table(
        [
            [f"k{number:03d}" for number in numbers],
            [("mon", "tue", None)[number % 3] for number in numbers],
            [ts] * len(numbers),
            [number if number % 5 else None for number in numbers],
        ],
        schema=SCHEMA,
    )


@pytest.fixture
def table(tmp_path: Path) -> LsmTable:
    made = LsmTable.create(tmp_path / "t", SCHEMA, OPTIONS)
    made.upsert(rows_of(range(60)))
    made.compact()
    made.upsert(rows_of(range(0, 60, 2), 2))
    return made


def test_a_filter_may_be_sql(table: LsmTable) -> None:
    found = table.scan(["id"], "qty > 50 AND day = 'mon'").to_arrow()
    assert found.equals(table.scan(["id"], (pc.field("qty") > 50) & (pc.field("day") == "mon")).to_arrow())
    assert table.incremental("000", filter="day IS NULL").count() == 20
    assert table.scan(filter="day IN ('mon')").explain().skipped.by_partition > 0
    with pytest.raises(SchemaError, match="'qyt' is not in the table, which has qty"):
        table.scan(filter="qyt = 1")
    with pytest.raises(SchemaError, match="'QTY' is not in the table, which has qty"):
        table.scan(filter="QTY = 1")
    with pytest.raises(SchemaError, match="column 'qty' is of type int64, and has no field 'low'"):
        table.scan(filter="qty.low = 1")
    with pytest.raises(ConfigError, match="is not a value"):
        table.scan(filter="qty = day")


@pytest.mark.parametrize("query_type", ["snapshot", "read_optimized"])
@pytest.mark.parametrize("where", [None, "qty IS NULL", "qty > 100"])
def test_rows_are_counted(table: LsmTable, query_type: str, where: str | None) -> None:
    scan = table.scan(filter=where, query_type=query_type)
    assert scan.count() == scan.to_arrow().num_rows
    assert scan.limit(7).count() == min(7, scan.count())


def test_a_limited_scan_ends_early(table: LsmTable) -> None:
    whole = table.scan().to_arrow()
    for rows in (0, 1, 25, 60, 100):
        assert table.scan().limit(rows).to_arrow().equals(whole.slice(0, rows))
    assert table.scan().limit(5).limit(9).to_arrow().num_rows == 5
    assert table.scan().limit(np.int64(3)).count() == 3


@pytest.mark.parametrize("rows", [-1, "5", None, 2.5])
def test_a_limit_that_is_no_number_of_rows_is_refused(table: LsmTable, rows: object) -> None:
    for result in (table.scan(), table.changes("000")):
        with pytest.raises(ConfigError, match=re.escape(f"limit({rows!r})")):
            result.limit(rows)  # type: ignore[arg-type]


@pytest.mark.parametrize("columns", [["id", "qty", "id"], ["_hoodie_record_key", "_hoodie_record_key"]])
def test_a_column_that_is_given_twice_is_refused(table: LsmTable, columns: list[str]) -> None:
    for meta in (False, True):
        with pytest.raises(SchemaError, match=f"column '{columns[0]}' is given twice"):
            table.scan(columns, meta=meta)
    with pytest.raises(SchemaError, match="is given twice"):
        table.lookup(["k001"], columns)


def test_changes_have_what_scans_have(table: LsmTable) -> None:
    changes = table.changes("000")
    expected = changes.to_arrow()
    assert changes.count() == len(expected) == 90
    for rows in (0, 1, 25, 60, 100):
        limited = changes.limit(rows)
        assert limited.to_arrow().equals(expected.slice(0, rows))
        assert limited.count() == min(rows, 90)
    assert "most=5" in repr(changes.limit(9).limit(5))
    assert changes.to_polars().height == 90
    assert changes.to_polars()["op"].to_list() == expected["op"].to_pylist()
    assert polars.DataFrame(changes).equals(changes.to_polars())
    assert pa.table(changes).equals(expected)
    assert changes.to_duckdb().filter("op = 'u' AND after.qty > 50").count("*").fetchall() == [(4,)]
    assert changes.to_pandas()["op"].value_counts().to_dict() == {"i": 60, "u": 30}


def test_limited_changes_read_no_more_file_groups_than_they_need(
    table: LsmTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []
    whole = ChangeReader.read
    monkeypatch.setattr(ChangeReader, "read", lambda self, part: read.append(part) or whole(self, part))  # type: ignore[func-returns-value]
    changes = table.changes("000")
    assert changes.limit(0).count() == 0
    assert not read
    assert changes.limit(3).count() == 3
    assert len(read) == 1


@pytest.mark.parametrize("kind", ["scan", "changes"])
def test_errors_come_out_of_frames_as_they_are(table: LsmTable, kind: str) -> None:
    result = table.scan() if kind == "scan" else table.changes("000")
    (log, *_) = [path for found in table.file_slices() for path in found.paths if path.endswith(".parquet")]
    (Path(table.path.removeprefix("file://")) / log).write_bytes(b"PAR1 nothing of a footer PAR1")
    with pytest.raises(CorruptFileError):
        result.to_polars()


def test_frames_of_special_columns_are_as_from_a_stream(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("m", pa.map_(pa.string(), pa.int64())), ("p", pa.decimal128(9, 2))])
    made = LsmTable.create(
        tmp_path / "m",
        schema,
        {**OPTIONS, "hoodie.datasource.write.partitionpath.field": "", "hoodie.table.ordering.fields": ""},
    )
    made.upsert(pa.table([["a"], [[("x", 1)]], pa.array([1], pa.int8()).cast(pa.decimal128(9, 2))], schema=schema))
    assert made.scan().to_polars().equals(polars.DataFrame(made.scan()))
    assert made.scan([]).to_polars().width == 0


def test_other_libraries_read_scans(table: LsmTable) -> None:
    expected = table.scan().to_arrow()
    assert table.scan().to_polars().to_arrow().cast(SCHEMA).equals(expected)
    assert table.scan().to_duckdb().aggregate("sum(qty), count(*)").fetchall() == [
        (pc.sum(expected["qty"]).as_py(), 60)
    ]
    relation = table.scan(["id"]).to_duckdb()
    assert "k002" in repr(relation)
    assert relation.count("*").fetchall() == [(60,)], "it is read again after it was shown"
    with duckdb.connect() as connection:
        assert table.scan(["id"]).to_duckdb(connection).filter("id < 'k010'").count("*").fetchall() == [(10,)]


@pytest.mark.parametrize(
    "convert",
    [
        lambda rows: rows.to_pandas(types_mapper=pd.ArrowDtype),
        lambda rows: polars.from_arrow(rows),
        lambda rows: rows.to_batches()[0],
        lambda rows: pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches()),
        lambda rows: duckdb.from_arrow(rows),
    ],
    ids=["pandas", "polars", "batch", "reader", "duckdb"],
)
def test_frames_of_other_libraries_are_written(table: LsmTable, convert: object) -> None:
    table.upsert(convert(rows_of(range(50, 70), 3)))  # type: ignore[operator]
    found = table.scan(filter="ts = 3").to_arrow().sort_by("id")
    assert found.equals(rows_of(range(50, 70), 3))
    assert table.scan().count() == 70


def test_a_scan_of_another_table_is_written(table: LsmTable, tmp_path: Path) -> None:
    other = LsmTable.create(tmp_path / "other", SCHEMA, OPTIONS)
    other.upsert(table.scan(filter="day = 'tue'"))
    assert other.scan().count() == 20


def test_what_is_no_frame_is_refused(table: LsmTable) -> None:
    for rows in ("id", 5, None, ["a"]):
        with pytest.raises(SchemaError, match="rows are of type"):
            table.upsert(rows)  # type: ignore[arg-type]


def test_the_rows_of_a_filter_are_deleted(table: LsmTable) -> None:
    assert table.delete(where="qty < 30 AND day IS NULL") is not None
    assert table.scan(filter="qty < 30 AND day IS NULL").count() == 0
    assert table.scan().count() == 60 - 8
    assert table.delete(where=pc.field("qty") == 1000) is None
    table.upsert(rows_of(range(0, 60, 2), 1))
    assert table.scan().count() == 52, "deletes have the ordering values of the rows that they delete"
    with pytest.raises(ConfigError, match="one of them"):
        table.delete()
    with pytest.raises(ConfigError, match="one of them"):
        table.delete(rows_of(range(1)), where="qty = 1")


def test_texts_of_tables_and_scans_tell_what_they_are(table: LsmTable) -> None:
    assert repr(table).startswith("LsmTable('file:///")
    assert "table 't', version 10, lsm_tree, MERGE_ON_READ" in repr(table)
    scan = repr(table.scan(["id"], "qty > 5").limit(3))
    assert "file slices of file:///" in scan
    assert "columns id" in scan
    assert "qty" in scan
    assert "3" in scan
    assert "changes of 3 writes" in repr(table.changes("000"))


def test_frames_of_pandas_are_written_without_their_index_and_with_integers(table: LsmTable) -> None:
    frame = rows_of(range(9), 4).to_pandas()
    assert frame["qty"].dtype == "float64", "pandas has integers with nulls as reals"
    table.upsert(frame[frame["id"] > "k004"])
    assert table.schema.equals(SCHEMA)
    found = table.scan(filter="ts = 4").to_arrow().sort_by("id")
    assert found.equals(rows_of(range(5, 9), 4))
    table.delete(frame[frame["id"] > "k006"][["id", "day"]])
    assert table.scan(filter="ts = 4").count() == 2


def test_decimals_are_filtered_by_numbers(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("id", pa.string(), nullable=False), ("ts", pa.int64()), ("big", pa.decimal128(30, 10))]
    )
    options = {**OPTIONS, "hoodie.datasource.write.partitionpath.field": "", "lsm.parquet.row.group.rows": 4}
    made = LsmTable.create(tmp_path / "d", schema, options)
    numbers = pa.array(range(20), pa.int8())
    made.bulk_insert(
        pa.table([[f"k{n:02}" for n in range(20)], [1] * 20, numbers.cast(pa.decimal128(30, 10))], schema=schema)
    )
    assert made.scan(filter="big > 14").count() == 5
    assert made.scan(filter="big IN (3, 4.5, 7)").count() == 2
    assert made.scan(filter="big < 1e30").count() == 20
    assert made.scan(filter="big > 18.00000000001").count() == 1
    assert "row group" in str(made.scan(filter="big > 1e25").explain())
    assert made.scan(filter="big > 1e25").explain().as_dict() != made.scan(filter="big > 0").explain().as_dict()


NARROW = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("qty", pa.int32()),
        ("part", pa.float32()),
        ("place", pa.struct([("floor", pa.int16())])),
        ("sizes", pa.list_(pa.int32())),
    ]
)


def test_numbers_in_lists_have_the_width_of_the_column_if_they_fit(tmp_path: Path) -> None:
    table = LsmTable.create(
        tmp_path / "t",
        NARROW,
        OPTIONS | {"hoodie.datasource.write.partitionpath.field": "", "hoodie.table.ordering.fields": ""},
    )
    before = table.schema
    table.upsert(
        {"id": ["a", "b"], "qty": [1, None], "part": [0.5, None], "place": [{"floor": 2}, None], "sizes": [[3], []]}
    )
    table.upsert({"id": ["c"], "qty": [None], "part": [None], "place": [None], "sizes": [[]]})
    assert table.schema == before
    with pytest.raises(SchemaError, match="column 'place' has no field 'flor'; it has floor"):
        table.scan(filter="place.flor = 1")
    with pytest.raises(SchemaError, match="column 'qty' has a number that no integer of 64 bits holds"):
        table.upsert({"id": ["d"], "qty": [2**64], "part": [1.0], "place": [None], "sizes": [None]})
    with pytest.raises(SchemaError, match="column 'qty' has values of several types"):
        table.upsert({"id": ["d"], "qty": [1, "a"], "part": [1.0], "place": [None], "sizes": [None]})
    table.upsert({"id": ["d"], "qty": [2**40], "part": [1e300], "place": [None], "sizes": [None]})
    assert table.schema.field("qty").type == pa.int64()
    assert table.schema.field("part").type == pa.float64()
    assert table.scan(["qty"], "id = 'd'").to_arrow().column(0).to_pylist() == [2**40]


def test_a_frame_with_a_name_twice_and_columns_that_are_no_texts_are_named(table: LsmTable) -> None:
    frame = rows_of(range(2)).to_pandas()
    frame.columns = ["id", "qty", "qty", *frame.columns[3:]]
    with pytest.raises(SchemaError, match="the data frame has several columns 'qty'"):
        table.upsert(frame)
    with pytest.raises(SchemaError, match="column None is no text"):
        table.scan(columns=[None])  # type: ignore[list-item]
    with pytest.raises(SchemaError, match="columns=5: give a list"):
        table.scan(columns=5)  # type: ignore[arg-type]
