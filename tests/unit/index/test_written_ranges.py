"""Ranges that the writer of a file tells: those that are found in the file."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm.index.stored_ranges import stored_ranges
from streaming_lsm.index.written_ranges import written_ranges
from streaming_lsm.storage.local import LocalStorage

NAME = "00000000-0000-0000-0000-000000000000-0_0-0-0_20260101000000000.parquet"
DAY, MOMENT = datetime.date(1969, 3, 1), datetime.datetime(2031, 5, 6, 7, 8, 9, 123456)
VALUES: dict[pa.DataType, list[Any]] = {
    pa.string(): ["ä", None, "zz", "a"],
    pa.bool_(): [True, True, None, False],
    pa.int32(): [-5, 7, None, 2],
    pa.int64(): [-(2**62), 0, 1, None],
    pa.float32(): [1.5, float("nan"), None, 0.0],
    pa.float64(): [None, None, None, -2.5],
    pa.date32(): [DAY, None, datetime.date(2031, 1, 1), DAY],
    pa.timestamp("us", "UTC"): [MOMENT.replace(tzinfo=datetime.UTC), None, None, None],
    pa.timestamp("ms"): [None, MOMENT.replace(microsecond=123000), None, MOMENT.replace(microsecond=124000)],
    pa.timestamp("ns"): [MOMENT, None, None, MOMENT + datetime.timedelta(1)],
    pa.time64("us"): [datetime.time(1, 2, 3, 4), None, None, datetime.time(0)],
    pa.time32("ms"): [datetime.time(1, 2, 3), None, None, datetime.time(23)],
    pa.binary(): [b"\xff", b"\x00", None, b""],
    pa.binary(2): [b"\xff\xff", b"\x00\x01", None, None],
    pa.decimal128(20, 3): [Decimal("-128.000"), None, Decimal("0.127"), Decimal("9.000")],
    pa.decimal128(5, 0): [None, None, None, None],
}


def test_a_writer_tells_the_ranges_that_are_in_its_file(tmp_path: Path) -> None:
    rows = pa.table({f"c{place}": pa.array(values, kind) for place, (kind, values) in enumerate(VALUES.items())})
    told: list[pq.FileMetaData] = []
    with pq.ParquetWriter(tmp_path / NAME, rows.schema, metadata_collector=told, store_schema=False) as writer:
        writer.write_table(rows, row_group_size=2)
    found = written_ranges(told[0], NAME, rows.column_names)
    assert found is not None
    assert list(found.rows) == stored_ranges(LocalStorage(tmp_path), NAME, rows.column_names)
    assert [row["columnName"] for row in found.rows] == rows.column_names
