"""Bytes that a range filter reads of a table clustered by its column, against those of the whole table; and the speed.

Files are of at most `FILE_BYTES`, all other options are the defaults.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm import LsmTable
from streaming_lsm.storage.local import LocalStorage
from tests.bench.result import BYTES_READ, Result

ROWS, BATCHES = 3_000_000, 6
FILE_BYTES = 4 << 20
SHARE = 0.005
"""Share of the rows that a filter selects."""
TARGET = 0.05
SCHEMA = pa.schema(
    [("id", pa.string()), ("amount", pa.int64()), ("city", pa.int32()), ("note", pa.binary(96)), ("ts", pa.int64())]
)
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.index.type": "SIMPLE",
    "hoodie.parquet.max.file.size": FILE_BYTES,
    "hoodie.clustering.plan.strategy.target.file.max.bytes": FILE_BYTES,
}
SKIPPING = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.index.column.stats.enable": True,
    "hoodie.enable.data.skipping": True,
}


def run() -> list[Result]:
    """A table clustered by one column, read by its metadata table and without it, and one clustered by two columns."""
    found: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        line, speed = _clustered(Path(folder) / "line", "amount", "linear")
        ranges = [_range("amount", place) for place in range(5)]
        found.append(_result("range filter, by column_stats", line, ranges, speed))
        plain = LsmTable(line.path, {**line.options, "hoodie.metadata.enable": False})
        found.append(_result("range filter, by statistics of files", plain, ranges, speed))
        curve, speed = _clustered(Path(folder) / "curve", "amount,city", "z-order")
        squares = [f"{_range('amount', place, 0.07)} and {_range('city', place, 0.07)}" for place in range(5)]
        found.append(_result("ranges of two columns, z-order", curve, squares, speed))
    return found


def _clustered(root: Path, columns: str, layout: str) -> tuple[LsmTable, str]:
    sort = {
        "hoodie.clustering.plan.strategy.sort.columns": columns,
        "hoodie.layout.optimize.strategy": layout,
    }
    table = _written(root, {**SKIPPING, **sort})
    begun = time.perf_counter()
    table.cluster()
    return table, f"clustered at {ROWS / (time.perf_counter() - begun) / 1000:,.0f} k rows/s"


def _result(name: str, table: LsmTable, filters: list[str], speed: str) -> Result:
    whole = _bytes_read(table, None)
    read = tuple(_bytes_read(table, where) for where in filters)
    note = f"a scan of the {len(table.file_slices())} files; {speed}"
    return Result(name, read, (whole,), ROWS, BYTES_READ, TARGET, False, note)


def _written(root: Path, options: Mapping[str, object]) -> LsmTable:
    """A table whose columns say nothing of each other."""
    table = LsmTable.create(root, SCHEMA, {**OPTIONS, **options})
    rng = np.random.default_rng(1)
    keys = rng.permutation(ROWS)
    for part in np.array_split(keys, BATCHES):
        table.bulk_insert(
            pa.table(
                {
                    "id": pa.array([f"order-{key:09d}" for key in part.tolist()]),
                    "amount": rng.gamma(2.0, 10_000.0, len(part)).astype(np.int64),
                    "city": pa.array(rng.integers(0, 10_000, len(part)), pa.int32()),
                    "note": pa.FixedSizeBinaryArray.from_buffers(
                        pa.binary(96), len(part), [None, pa.py_buffer(rng.bytes(96 * len(part)))]
                    ),
                    "ts": np.zeros(len(part), np.int64),
                },
                schema=SCHEMA,
            )
        )
    return table


def _range(column: str, number: int, share: float = SHARE) -> str:
    """A range of values, from five places of the distribution, that has a share of the rows."""
    rng = np.random.default_rng(2)
    values = rng.gamma(2.0, 10_000.0, 200_000) if column == "amount" else rng.integers(0, 10_000, 200_000)
    begin = 0.1 + 0.17 * number
    low, high = np.quantile(values, [begin, begin + share]).astype(np.int64).tolist()
    return f"{column} >= {low} and {column} < {high}"


def _bytes_read(table: LsmTable, where: str | None) -> float:
    """Bytes of data files and of the metadata table that a scan reads."""
    opened = LsmTable(table.path, table.options)
    opened.storage = storage = CountingStorage(table.path.removeprefix("file://"))
    rows = opened.scan(filter=where).to_arrow().num_rows
    assert rows == ROWS if where is None else 0 < rows < 0.02 * ROWS
    return float(storage.bytes)


class CountingStorage(LocalStorage):
    """Counts the bytes that are read outside of the timeline."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.bytes = 0

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(_Counted(super().open_input(path), self), mode="r")

    def read(self, path: str, *args: Any) -> bytes:
        data = super().read(path, *args)
        self.bytes += 0 if "/timeline/" in path else len(data)
        return data


class _Counted:
    """A file whose reads are counted."""

    closed = False

    def __init__(self, file: pa.NativeFile, counts: CountingStorage) -> None:
        self._file, self._counts = file, counts

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(None if size < 0 else size)
        self._counts.bytes += len(data)
        return data

    def seek(self, place: int, whence: int = 0) -> int:
        return self._file.seek(place, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        self.closed = True

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
