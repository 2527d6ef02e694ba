"""Find the ranges of expressions of a column in data files, for expression indexes of the metadata table.

See docs/format/07-index-and-metadata.md, "Expression index".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import pc
from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.file_group.data_file import open_parquet
from streaming_lsm.format.metadata.column_stats import empty_row, range_row
from streaming_lsm.format.metadata.expression_index import LOWER, text_bounds, time_bounds
from streaming_lsm.format.table.file_names import InlineLogName, LogFileName, LogKind, parse_file_name
from streaming_lsm.index.stored_ranges import inline_batches, stored_ranges
from streaming_lsm.storage.base import Storage

_TIMES: Mapping[int, tuple[str, bool]] = {
    12: ("D", False),
    15: ("ms", True),
    16: ("us", True),
    17: ("ns", True),
    18: ("ms", False),
    19: ("us", False),
    20: ("ns", False),
}
"""Unit, and whether it is a moment, of the ordinals of dates and timestamps."""


def stored_expression(storage: Storage, path: str, function: str, column: str) -> list[dict[str, Any]]:
    """Find the range of an expression in a data file.

    Args:
        storage: the table.
        path: of a base file or a log.
        function: one of `FUNCTIONS`.
        column: the column.

    Returns:
        A value of the type `RANGES`, or nothing if the file has no such column.

    Raises:
        CorruptFileError, StorageError: the file cannot be read.
        UnsupportedTable: the function is not one of the column's type.
    """
    if function == LOWER:
        return list(_of_texts(storage, path, column))
    return [_of_times(row, function, path) for row in stored_ranges(storage, path, [column])]


def attained_range(row: dict[str, Any], function: str, path: str) -> dict[str, Any]:
    """Return the values of a function of time for the bounds of a column, which rows have; raises `UnsupportedTable`.

    Args:
        row: range of the column in a file, a value of the type `RANGES`.
        function: one of `TIME_FUNCTIONS`.
        path: of the file.

    Returns:
        A value of the type `RANGES`; without bounds where the values depend on a time zone.
    """
    found = _of_times(row, function, path)
    unit, zoned = _TIMES.get(row["valueType"]["typeOrdinal"], ("", True))
    if zoned or row["minValue"] is None:
        return found | {"minValue": None, "maxValue": None}
    values = sorted(time_bounds(function, end, end, zoned=False)[0] for end in _ends(row, unit))
    bounds: Any = tuple(pa.scalar(value, pa.int32()) for value in values)
    return range_row(row["fileName"], row["columnName"], bounds, row["valueCount"], row["nullCount"])


def _ends(row: dict[str, Any], unit: str) -> Any:
    ends = [int(next(iter(row[bound].values()))["value"]) for bound in ("minValue", "maxValue")]
    return np.array(ends, f"datetime64[{unit}]")


def _of_times(row: dict[str, Any], function: str, path: str) -> dict[str, Any]:
    """Return the range of a function of time, by the range of the column."""
    ordinal, name = row["valueType"]["typeOrdinal"], row["fileName"]
    if row["minValue"] is None:
        found = empty_row(name, row["columnName"])
        return found | {"valueCount": row["valueCount"], "nullCount": row["nullCount"]}
    if ordinal not in _TIMES or (ordinal == 12 and function == "hour"):
        raise UnsupportedTable(f"{path}: {function} of column {row['columnName']!r}, which is no time with it")
    unit, zoned = _TIMES[ordinal]
    low, high = _ends(row, unit)
    bounds: Any = tuple(pa.scalar(end, pa.int32()) for end in time_bounds(function, low, high, zoned=zoned))
    return range_row(name, row["columnName"], bounds, row["valueCount"], row["nullCount"])


def _of_texts(storage: Storage, path: str, column: str) -> Iterator[dict[str, Any]]:
    name = parse_file_name(path.rpartition("/")[2])
    if name is None or (isinstance(name, LogFileName) and name.kind is not LogKind.DATA):
        if isinstance(name, LogFileName) and name.kind is LogKind.DELETES:
            yield empty_row(str(name), column)
        return
    values, nulls, ends, has_column = 0, 0, list[Any](), False
    for texts in _texts(storage, path, column, is_inline=isinstance(name, InlineLogName)):
        if not pa.types.is_string(texts.type):
            raise UnsupportedTable(f"{path}: lower of column {column!r} of type {texts.type}")
        has_column, values, nulls = True, values + len(texts), nulls + texts.null_count
        ends += [end for end in text_bounds(texts) if end.is_valid]
    if not has_column:
        yield from [empty_row(str(name), column)] if isinstance(name, InlineLogName) else []
        return
    told = pc.min_max(pa.array([end.as_py() for end in ends], pa.string()))
    yield range_row(str(name), column, (told["min"], told["max"]), values, nulls)


def _texts(storage: Storage, path: str, column: str, *, is_inline: bool) -> Iterator[Any]:
    if is_inline:
        for batch in inline_batches(storage.read(path, None), path, [column]):
            if column in batch.schema.names:
                yield batch.column(column)
        return
    with ExitStack() as files:
        parquet = open_parquet(storage, path, files).parquet
        if column in parquet.schema_arrow.names:
            yield pa.array([], parquet.schema_arrow.field(column).type)
            try:
                for batch in parquet.iter_batches(columns=[column]):
                    yield batch.column(0)
            except (pa.ArrowInvalid, OSError) as error:
                raise CorruptFileError(f"{path}: damaged: {error}") from error
