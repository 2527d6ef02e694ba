"""Read the statistics of Parquet column chunks from the bytes of the footer: bounds of the values, and nulls."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from streaming_lsm.file_group.footer_fields import Fields, Value, Wanted, read_chunks, size_of, struct_of

_NULLS, _HIGH, _LOW = 3, 5, 6
# num_values, statistics
_COLUMN_META: Wanted = {5: {}, 12: {_NULLS: {}, _HIGH: {}, _LOW: {}}}


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
    return read_chunks(source, path, _COLUMN_META, _stored)


def _stored(facts: Fields) -> StoredBounds:
    found = struct_of(facts.get(12, {}))
    nulls = size_of(found[_NULLS]) if _NULLS in found else None
    return StoredBounds(size_of(facts[5]), nulls, _bytes(found.get(_LOW)), _bytes(found.get(_HIGH)))


def _bytes(value: Value | None) -> bytes | None:
    if value is not None and not isinstance(value, bytes):
        raise TypeError(f"{value!r:.40} is no bound")
    return value
