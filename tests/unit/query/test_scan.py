"""What a scan makes of the rows of its slices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.query.plain_slices import plain_slices
from tests.support.small_tables import create, rows


@pytest.fixture
def table(tmp_path: Path) -> LsmTable:
    found = create(tmp_path)
    found.bulk_insert(rows(("a", "DE", 1, 1), ("b", "DE", 1, 2), ("x", "FR", 1, 3)))
    found.upsert(rows(("a", "DE", 2, 10), ("c", "DE", 2, 30)))
    found.delete(rows(("b", "DE", 2, 0)).select(["id", "country", "ts"]))
    return found


def test_without_columns_the_number_of_rows_stays(table: LsmTable) -> None:
    found = table.scan([]).to_arrow()
    assert (found.num_rows, found.num_columns) == (3, 0)
    assert sum(batch.num_rows for batch in table.scan([]).to_batches()) == 3
    assert len(table.scan([]).to_pandas()) == 3


@pytest.mark.parametrize(("least", "count"), [(0, 3), (10, 2), (30, 1), (31, 0)])
def test_without_columns_a_filter_counts_what_it_keeps(table: LsmTable, least: int, count: int) -> None:
    assert table.scan([], pc.field("qty") >= least).to_arrow().num_rows == count


def test_a_slice_whose_file_has_a_needed_name_in_another_case_is_not_for_sparks_reader(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("qty", pa.int64())])
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
    table = LsmTable.create(tmp_path / "t", schema, options)
    table.bulk_insert(pa.table([["a"], [1]], schema=schema))
    scan = table.scan()
    assert len(plain_slices(scan)) == 1
    other = pa.schema([field.with_name("QTY") if field.name == "qty" else field for field in scan.reader.schema])
    assert not plain_slices(replace(scan, reader=replace(scan.reader, schema=other, columns=("id", "QTY"))))
