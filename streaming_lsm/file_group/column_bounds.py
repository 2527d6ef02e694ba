"""Read the statistics of Parquet column chunks from the bytes of the footer: bounds of the values, and nulls."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from streaming_lsm.file_group.footer_fields import (
    Fields,
    Value,
    Wanted,
    malformed,
    read_footer,
    size_of,
    struct_of,
    structs_of,
)

_NULLS, _HIGH, _LOW = 3, 5, 6
# num_values, statistics
_COLUMN_META: Wanted = {5: {}, 12: {_NULLS: {}, _HIGH: {}, _LOW: {}}}
_FOOTER: Wanted = {4: {1: {3: _COLUMN_META}}}  # row_groups, columns, meta_data


@dataclass(frozen=True, slots=True)
class StoredBounds:
    """Statistics of a column chunk, as its footer states them.

    Attributes:
        values: number of values, nulls included.
        nulls: number of nulls; None if the writer did not count them.
        low: bytes of a value that none is smaller than, as Parquet encodes it plainly; None without one.
        high: bytes of a value that none is larger than.
    """

    values: int
    nulls: int | None
    low: bytes | None
    high: bytes | None


def read_bounds(source: pa.NativeFile, path: str) -> list[list[StoredBounds]]:
    """Decode the statistics of each row group, for each leaf column; deprecated bounds count as none.

    Args:
        source: the open Parquet file.
        path: its name, for messages.

    Raises:
        CorruptFileError: the footer is malformed.
    """
    footer = read_footer(source, path, _FOOTER)
    try:
        return [[_stored(chunk) for chunk in structs_of(group, 1)] for group in structs_of(footer, 4)]
    except (KeyError, TypeError) as error:
        raise malformed(path, "the footer", error) from None


def _stored(chunk: Fields) -> StoredBounds:
    facts = struct_of(chunk[3])
    found = struct_of(facts.get(12, {}))
    nulls = size_of(found[_NULLS]) if _NULLS in found else None
    return StoredBounds(size_of(facts[5]), nulls, _bytes(found.get(_LOW)), _bytes(found.get(_HIGH)))


def _bytes(value: Value | None) -> bytes | None:
    if value is not None and not isinstance(value, bytes):
        raise TypeError(f"{value!r:.40} is no bound")
    return value
