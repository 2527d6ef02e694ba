"""What a scan makes of the rows of its slices."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
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
