"""Let the columns whose ranges the metadata table records follow those of the table.

See docs/format/07-index-and-metadata.md, "Column stats". Ranges of a new column are recorded from the write on that
adds it: an older file without a range of it has nulls only, for Hudi, too. A column that was renamed has values in
older files, under another name, so that it is not followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.schema import META_COLUMNS, from_avro

MOST_COLUMNS = 32
"""Columns of the table whose ranges are recorded, unless they are named."""


def flat_columns(avro: str) -> dict[str, pa.DataType]:
    """Return the types of the columns of an Avro schema that are not nested, in their order."""
    return {name: kind for name, kind in _columns(avro).items() if not pa.types.is_nested(kind)}


@lru_cache(maxsize=16)
def _columns(avro: str) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in from_avro(avro, "table schema")}


def followed_columns(columns: Sequence[str], before: str | None, after: str | None, *, adds: bool) -> tuple[str, ...]:
    """Return the columns whose ranges are recorded from an action on.

    Args:
        columns: those whose ranges were recorded.
        before: Avro JSON of the table's columns before the action; None if it has none yet.
        after: Avro JSON of the columns after it.
        adds: whether a new column is followed: not where they are named by an option, or columns have ids.

    Returns:
        Without columns that the table has neither before nor after; with new ones that are not nested, up to
        `MOST_COLUMNS`, if all of the first ones of before were recorded.

    Raises:
        UnsupportedTable: a column is nested: its ranges are not found here, and Hudi takes it for nulls then.
    """
    if before is None or after is None:
        return tuple(columns)
    old, new = flat_columns(before), flat_columns(after)
    for column in columns:
        name = column.partition(".")[0]
        if column not in new and name in _columns(after).keys() - new.keys():
            raise UnsupportedTable(f"column {column!r} is nested, and ranges of nested columns are not kept")
    kept = [column for column in columns if column in META_COLUMNS or column in old or column in new]
    own = [column for column in kept if column not in META_COLUMNS]
    if adds and set(list(old)[:MOST_COLUMNS]) <= set(own):
        added = [column for column in new if column not in old and column not in own]
        kept += added[: max(0, MOST_COLUMNS - len(own))]
    return tuple(kept)
