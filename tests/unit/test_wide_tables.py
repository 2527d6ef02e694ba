"""Tables of very many columns, or of deep ones: what can be created can be written, read and compacted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import SchemaError, TableNotFound
from streaming_lsm.schema import from_avro
from tests.support.crash_points import EVERY_CALL

OPTIONS: dict[str, object] = {
    "hoodie.table.name": "wide",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 1,
}
TYPES = (pa.int64(), pa.string(), pa.float64())
WIDTHS = [(1_000, 10), *([(4_000, 9), (10_000, 10)] if EVERY_CALL else [(1_500, 9)])]


def wide_rows(columns: int) -> pa.Table:
    """Ten rows with as many columns besides key and ordering field."""
    keys = pa.array([f"k{number}" for number in range(10)])
    values = [pa.array(np.arange(10) + column).cast(TYPES[column % 3]) for column in range(columns)]
    names = [f"c{column}" for column in range(columns)]
    return pa.table([keys, pa.array(np.arange(10)), *values], names=["id", "ts", *names])


@pytest.mark.parametrize(("columns", "version"), WIDTHS)
def test_a_wide_table_is_written_read_and_compacted(tmp_path: Path, columns: int, version: int) -> None:
    rows = wide_rows(columns)
    LsmTable.create(tmp_path / "t", rows.schema, {**OPTIONS, "hoodie.write.table.version": version})
    LsmTable(tmp_path / "t").upsert(rows)
    LsmTable(tmp_path / "t").upsert(rows.slice(0, 5))
    LsmTable(tmp_path / "t").delete(rows.slice(9))
    assert LsmTable(tmp_path / "t").compact() is not None
    assert LsmTable(tmp_path / "t").scan().to_arrow().sort_by("id").equals(rows.slice(0, 9))


def test_a_table_of_more_types_than_a_short_schema_may_have_is_created_and_read(tmp_path: Path) -> None:
    schema = wide_rows(4_000).schema
    LsmTable.create(tmp_path / "t", schema, {**OPTIONS, "hoodie.write.table.version": 9})
    assert LsmTable(tmp_path / "t").schema.names == schema.names
    assert LsmTable(tmp_path / "t").scan(["id", "c3999"]).to_arrow().num_rows == 0


def test_a_table_whose_schema_no_reader_would_take_is_refused_before_there_is_one(tmp_path: Path) -> None:
    names = [f"c{column}_{'x' * 1000}" for column in range(5_000)]
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), *((name, pa.int64()) for name in names)])
    with pytest.raises(SchemaError, match="fewer columns, or shorter names"):
        LsmTable.create(tmp_path / "t", schema, OPTIONS)
    with pytest.raises(TableNotFound):
        LsmTable(tmp_path / "t")


def nested(depth: int) -> pa.Schema:
    kind: pa.DataType = pa.int64()
    for _ in range(depth):
        kind = pa.struct([("a", kind)])
    return pa.schema([("id", pa.string()), ("ts", pa.int64()), ("x", kind)])


def test_types_that_no_reader_would_take_are_refused_before_there_is_a_table(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="nested more than 32 levels deep"):
        LsmTable.create(tmp_path / "deep", nested(40), OPTIONS)
    assert not (tmp_path / "deep").exists()


def test_the_deepest_types_that_can_be_created_can_be_written_and_read(tmp_path: Path) -> None:
    table = LsmTable.create(tmp_path / "deep", nested(14), OPTIONS)
    table.upsert(pa.table({"id": ["a"], "ts": [1], "x": pa.nulls(1, table.schema.field("x").type)}))
    assert table.scan().to_arrow().num_rows == 1


def test_names_that_stand_for_ever_larger_types_are_refused(tmp_path: Path) -> None:
    kinds: list[object] = [{"type": "record", "name": "t0", "fields": [{"name": "a", "type": "int"}]}]
    for level in range(1, 12):
        fields = [{"name": f"f{place}", "type": f"t{level - 1}"} for place in range(10)]
        kinds.append({"type": "record", "name": f"t{level}", "fields": fields})
    columns = [{"name": f"c{place}", "type": kind} for place, kind in enumerate(kinds)]
    with pytest.raises(SchemaError, match="references to named types expand to too many types"):
        from_avro(json.dumps({"type": "record", "name": "bomb", "fields": columns}), "schema")
