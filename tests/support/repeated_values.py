"""What a large value that many rows repeat costs a reader: ``python -m tests.support.repeated_values``.

Parquet stores such a value once, in a dictionary page. Each way of reading runs in a process of its own, and prints as
JSON its rows, its CPU seconds (of all threads), and the bytes by which the peak of the resident set rose above that of
the same read of a table of small values.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from time import process_time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm import LsmTable
from streaming_lsm.file_group.data_file import DataFile
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.storage.local import LocalStorage
from tests.support.peak_memory import peak

ROWS, LARGE, SMALL = 3000, 700_000, 10
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("text", pa.string())])
OPTIONS = {
    "hoodie.table.name": "repeated",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 1,
    "hoodie.compact.inline": False,
}


def repeated(text: pa.Array, count: int) -> pa.DictionaryArray:
    """`count` rows: two of the first value of `text` for each of the second."""
    indices = np.resize(np.array([0, 0, len(text) - 1], np.int32), count)
    return pa.DictionaryArray.from_arrays(pa.array(indices), text)


def keys(count: int) -> pa.Array:
    """Ascending record keys."""
    return pa.array([f"{number:09d}" for number in range(count)])


def _write_file(path: Path, width: int) -> DataFile:
    table = pa.table({RECORD_KEY: keys(ROWS), "text": repeated(pa.array(["x" * width]), ROWS)})
    pq.write_table(table, path, store_schema=False)
    return DataFile(LocalStorage(path.parent), path.name, "1", tuple(table.column_names), ROWS)


def _count(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def read_file(folder: Path, width: int) -> Callable[[], int]:
    """A data file alone."""
    file = _write_file(folder / "file.parquet", width)
    return lambda: _count(file.batches(pa.schema([(RECORD_KEY, pa.string()), ("text", pa.string())])))


def _table(folder: Path, width: int) -> LsmTable:
    """A table whose two logs hold the large value in a third of the rows."""
    table = LsmTable.create(folder / "table", SCHEMA, OPTIONS)
    for ts in range(2):
        columns = [keys(ROWS), pa.array(np.full(ROWS, ts)), pa.array(["x" * SMALL] * ROWS)]
        table.upsert(pa.table(columns, schema=SCHEMA))
    for path in sorted((folder / "table").glob("**/*.parquet")):
        _repeat_text(path, width)
    return LsmTable(folder / "table")


def _repeat_text(path: Path, width: int) -> None:
    """Replace the texts of a log by a value of `width` bytes, as another writer may have stored them."""
    file = pq.ParquetFile(path)
    rows, footer = file.read(), file.metadata.metadata
    text = repeated(pa.array(["y", "x" * width]), len(rows))
    place = rows.schema.get_field_index("text")
    rows = rows.set_column(place, pa.field("text", text.type), text)
    with pq.ParquetWriter(
        path, rows.schema, store_schema=False, sorting_columns=file.metadata.row_group(0).sorting_columns
    ) as writer:
        writer.add_key_value_metadata({key: value for key, value in footer.items() if key != b"ARROW:schema"})
        writer.write_table(rows)


def scan(folder: Path, width: int) -> Callable[[], int]:
    """A snapshot query that merges the logs."""
    table = _table(folder, width)
    return lambda: _count(table.scan().to_batches())


def compact(folder: Path, width: int) -> Callable[[], int]:
    """A compaction that merges the logs to a base file."""
    table = _table(folder, width)

    def run() -> int:
        assert table.compact()
        return ROWS

    return run


WAYS = {"file": read_file, "scan": scan, "compaction": compact}


def main(folder: str, way: str) -> None:
    """Read small values, then large ones, and print what these took."""
    for width in (SMALL, LARGE):
        place = Path(folder) / str(width)
        place.mkdir()
        read = WAYS[way](place, width)
        before, begun = peak(), process_time()
        rows = read()
    print(json.dumps({"rows": rows, "seconds": process_time() - begun, "rise": peak() - before}))


if __name__ == "__main__":
    main(*sys.argv[1:])
