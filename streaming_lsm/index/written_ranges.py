"""Find the ranges of columns in a file that was just written, by what its Parquet writer knows, so that it is not read.

See docs/format/07-index-and-metadata.md, "Column stats".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.actions.commit import WrittenRanges
from streaming_lsm.format.metadata.column_stats import range_row, stored_range_row


def written_ranges(metadata: pq.FileMetaData, file_name: str, columns: Sequence[str]) -> WrittenRanges | None:
    """Find the ranges of columns in a file that this process wrote, whose statistics can be trusted.

    Args:
        metadata: of the file, as its writer returns it.
        file_name: name of the file.
        columns: names of columns.

    Returns:
        None if a column has a value, and no bounds, or is of a type without ranges: then see `stored_ranges`.
    """
    schema = metadata.schema.to_arrow_schema()
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    wanted = set(columns)
    places = {column: place for place, column in _leaves(metadata) if column in wanted}
    rows = []
    for column in columns:
        place = places.get(column) if column in schema.names else None
        if place is None or pa.types.is_nested(schema.field(column).type):
            continue
        try:
            row = _row(groups, place, file_name, schema.field(column))
        except UnsupportedTable:  # not a reason to refuse the rows
            return None
        if row is None:
            return None
        rows.append(row)
    return WrittenRanges(tuple(columns), tuple(rows))


def _leaves(metadata: pq.FileMetaData) -> list[tuple[int, str]]:
    return [(place, metadata.schema.column(place).path) for place in range(metadata.num_columns)]


def _row(
    groups: Sequence[pq.RowGroupMetaData], place: int, file_name: str, field: pa.Field[Any]
) -> dict[str, Any] | None:
    bounds: list[Any] = []
    values = nulls = 0
    is_float, is_decimal = pa.types.is_floating(field.type), pa.types.is_decimal(field.type)
    for group in groups:
        chunk = group.column(place)
        known: Any = chunk.statistics
        if known is None or not known.has_null_count:
            return None
        values, nulls = values + group.num_rows, nulls + known.null_count
        if known.null_count == group.num_rows or is_float:
            continue
        if not known.has_min_max:
            return None
        bounds += [known.min, known.max] if is_decimal else [known.min_raw, known.max_raw]
    low: Any = min(bounds, default=None)
    high: Any = max(bounds, default=None)
    if is_decimal:
        ends = pa.scalar(low, field.type), pa.scalar(high, field.type)
        return range_row(file_name, field.name, ends, values, nulls)
    if bounds and pa.types.is_string(field.type):
        low, high = low.decode(), high.decode()
    return stored_range_row(file_name, field.name, field.type, (low, high), values, nulls)
