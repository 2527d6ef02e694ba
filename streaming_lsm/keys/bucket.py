"""Compute the bucket of each record key.

See docs/format/07-index-and-metadata.md, "Simple bucket index"; docs/format/10-rules.md, "Rule 13".

All functions work on the UTF-8 buffer that holds all keys of an array: field values are byte ranges of it, found by
one search over the whole buffer, and hashes are computed from sums over those ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, pc
from streaming_lsm.errors import ConfigError, RecordError, SchemaError

UInt32s = npt.NDArray[np.uint32]

# Units hashed at a time, so that the tables of powers and the terms fit the CPU cache.
_BLOCK_UNITS = 1 << 17
_INVERSE_OF_31 = pow(31, -1, 1 << 32)
_NULL = b"__null__"
_EMPTY = b"__empty__"


def java_string_hash(strings: pa.StringArray) -> npt.NDArray[np.int32]:
    """Compute Java's ``String.hashCode`` of every value, over UTF-16 units; the hash of a null is 0.

    Args:
        strings: string or large_string, slices included.

    Returns:
        int32, one per value.

    Raises:
        RecordError: a value is not valid UTF-8.
    """
    text = _Text.of(strings)
    return _hash_ranges(text, text.starts, text.ends).view(np.int32)


def bucket_ids(
    record_keys: pa.StringArray, record_key_fields: Sequence[str], hash_fields: Sequence[str], num_buckets: int
) -> npt.NDArray[np.int32]:
    """Compute the bucket of every record key from the key's text.

    Of a key of the form ``f1:v1,f2:v2``, with both ``,`` and ``:``, the values of the hash fields are hashed; any
    other key is hashed as a whole. ``__null__`` stands for null and ``__empty__`` for the empty text.

    Args:
        record_keys: values of ``_hoodie_record_key``, without nulls.
        record_key_fields: the table's key columns, in table order.
        hash_fields: the key columns that are hashed; empty means all.
        num_buckets: buckets per partition.

    Returns:
        int32 in ``[0, num_buckets)``, one per key.

    Raises:
        ConfigError: `hash_fields` has a column that is not a key column, or `num_buckets` is less than 1.
        RecordError: a key is null or not valid UTF-8.
    """
    kept = _kept_fields(record_key_fields, hash_fields)
    if num_buckets < 1:
        raise ConfigError(f"number of buckets is {num_buckets}; hoodie.bucket.index.num.buckets must be at least 1")
    if record_keys.null_count:
        row = pc.index(record_keys.is_null(), True).as_py()
        raise RecordError(f"row {row} has a null record key; set the key, or drop the row")
    text = _Text.of(record_keys)
    rows, ranges = _field_ranges(text, record_key_fields)
    lists = np.full(len(text.starts), 31, np.uint32)
    if len(rows) < len(lists):
        lists += _hash_ranges(text, text.starts, text.ends)
    if len(rows):
        lists[rows] = _list_hash(text, [ranges[position] for position in kept])
    return ((lists & np.uint32(0x7FFFFFFF)) % np.uint32(num_buckets)).astype(np.int32)


def _kept_fields(record_key_fields: Sequence[str], hash_fields: Sequence[str]) -> list[int]:
    strangers = [field for field in hash_fields if field not in record_key_fields]
    if strangers:
        raise ConfigError(
            f"hoodie.bucket.index.hash.field names {strangers[0]!r}, which is not one of the record key "
            f"columns {', '.join(record_key_fields)}; choose from those"
        )
    chosen = hash_fields or record_key_fields
    return [position for position, field in enumerate(record_key_fields) if field in chosen]


@dataclass(frozen=True)
class _Text:
    """Array of strings as one UTF-8 buffer and its UTF-16 units.

    Attributes:
        data: uint8, UTF-8 of all strings.
        starts, ends: int64, byte range of each string.
        units: the UTF-16 units of `data`; `data` itself if it is all ASCII.
        unit_at: number of units before each byte; ``None`` if it equals the byte's position (all ASCII).
    """

    data: npt.NDArray[np.uint8]
    starts: Int64s
    ends: Int64s
    units: npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
    unit_at: npt.NDArray[np.int64] | None

    @classmethod
    def of(cls, strings: pa.StringArray) -> _Text:
        bounds, data = _buffers(strings)
        if not data.size or int(data.max()) < 0x80:
            return cls(data, bounds[:-1], bounds[1:], data, None)
        try:
            encoded = data.tobytes().decode("utf-8").encode("utf-16-le")
        except UnicodeDecodeError as error:
            row = int(np.searchsorted(bounds, error.start, side="right")) - 1
            raise RecordError(f"row {row} of the strings is not valid UTF-8 ({error.reason}); re-encode it") from error
        # The lead byte of a four-byte sequence counts two units (a surrogate pair), a continuation byte
        # (below -64 as a signed byte) none, any other byte one.
        counts = (data.view(np.int8) >= -64).view(np.int8) + (data >= 0xF0).view(np.int8)
        unit_at = np.zeros(data.size + 1, np.int64)
        np.cumsum(counts, out=unit_at[1:])
        return cls(data, bounds[:-1], bounds[1:], np.frombuffer(encoded, "<u2"), unit_at)


def _buffers(strings: pa.StringArray) -> tuple[Int64s, npt.NDArray[np.uint8]]:
    kind: pa.DataType = strings.type
    if not any(is_string(kind) for is_string in (pa.types.is_string, pa.types.is_large_string)):
        raise SchemaError(f"record keys must be strings, not {kind}; cast them first")
    if strings.null_count:
        strings = pc.fill_null(strings, "")
    _, offsets, data = strings.buffers()
    if not len(strings) or offsets is None:
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    width = "<i8" if pa.types.is_large_string(kind) else "<i4"
    bounds = np.frombuffer(memoryview(offsets), width)[strings.offset : strings.offset + len(strings) + 1].astype(
        np.int64
    )
    raw = np.zeros(0, np.uint8) if data is None else np.frombuffer(memoryview(data), np.uint8)
    return bounds - bounds[0], raw[bounds[0] : bounds[-1]]


def _hash_ranges(text: _Text, starts: Int64s, ends: Int64s) -> UInt32s:
    """Hash each byte range; ranges are in ascending order and do not overlap."""
    if text.unit_at is not None:
        starts, ends = text.unit_at[starts], text.unit_at[ends]
    hashes = np.zeros(len(starts), np.uint32)
    if not len(starts):
        return hashes
    edges = np.flatnonzero(np.diff(starts // _BLOCK_UNITS)) + 1
    firsts = np.concatenate(([0], edges))
    lasts = np.concatenate((edges, [len(starts)]))
    longest = int((ends[lasts - 1] - starts[firsts]).max())
    # Computing the powers anew for each batch takes as long as the rest; only those of a huge key are not kept.
    tables = _powers if longest > 2 * _BLOCK_UNITS else _kept_powers
    size = max(longest, 2 * _BLOCK_UNITS)
    powers, inverses = tables(31, size), tables(_INVERSE_OF_31, size)
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        base, limit = starts[first], ends[last - 1]
        # With a_i = u_i * 31^-i, the hash of [s, e) is 31^(e-1) * (a_s + ... + a_(e-1)) modulo 2^32.
        terms = np.zeros(limit - base + 1, np.uint32)
        np.multiply(text.units[base:limit], inverses[: limit - base], out=terms[:-1])
        low, high = starts[first:last] - base, ends[first:last] - base
        hashes[first:last] = _range_sums(terms, low, high) * powers[np.maximum(high - 1, 0)]
    return hashes


def _range_sums(terms: UInt32s, low: Int64s, high: Int64s) -> UInt32s:
    """Sum `terms` modulo 2^32 over ``[low, high)``; `terms` ends in one zero, so that every bound is an index."""
    if np.array_equal(low[1:], high[:-1]):
        sums = np.add.reduceat(terms, low, dtype=np.uint32)
    else:
        sums = np.add.reduceat(terms, np.stack((low, high), axis=1).ravel(), dtype=np.uint32)[::2]
    # For an empty range reduceat returns the element at its start.
    sums[low == high] = 0
    return sums


def _powers(base: int, count: int) -> UInt32s:
    """Compute the powers of `base` modulo 2^32, from the 0th to the `count`-th."""
    factors = np.full(count + 1, base, np.uint32)
    factors[0] = 1
    powers: UInt32s = np.cumprod(factors, dtype=np.uint32)
    powers.flags.writeable = False
    return powers


_kept_powers = cache(_powers)


def _list_hash(text: _Text, ranges: Sequence[tuple[Int64s, Int64s]]) -> UInt32s:
    total = np.ones(len(ranges[0][0]), np.uint32)
    for starts, ends in ranges:
        values = _hash_ranges(text, starts, ends)
        # Null and the empty text both have hash 0 in List.hashCode.
        values[_equal(text.data, starts, ends, _NULL) | _equal(text.data, starts, ends, _EMPTY)] = 0
        total = total * np.uint32(31) + values
    return total


def _field_ranges(text: _Text, fields: Sequence[str]) -> tuple[Int64s, list[tuple[Int64s, Int64s]]]:
    """Find the rows whose key has the form ``f1:v1,f2:v2,...``, and per field the byte ranges of their values.

    A value ends at the first ``,<next field>:`` after its start (docs/format/10-rules.md, "Rule 13").
    """
    prefix = f"{fields[0]}:".encode()
    rows = np.flatnonzero(_starts_with(text.data, text.starts, text.ends, prefix))
    if not len(rows):
        return rows, []
    start, end = text.starts[rows] + len(prefix), text.ends[rows]
    if len(fields) == 1:
        _, found = _next_hit(_occurrences(text.data, b","), start, end, 1)
        return rows[found], [(start[found], end[found])]
    ranges: list[tuple[Int64s, Int64s]] = []
    for field in fields[1:]:
        mark = f",{field}:".encode()
        position, found = _next_hit(_occurrences(text.data, mark), start, end, len(mark))
        if not found.all():
            rows, start, end, position = rows[found], start[found], end[found], position[found]
            ranges = [(left[found], right[found]) for left, right in ranges]
        ranges.append((start, position))
        start = position + len(mark)
    return rows, [*ranges, (start, end)]


def _next_hit(hits: Int64s, starts: Int64s, ends: Int64s, length: int) -> tuple[Int64s, Flags]:
    """Find the first of the ascending `hits` in each range with room for `length` bytes, and whether there is one."""
    if not len(hits):
        return np.zeros(len(starts), np.int64), np.zeros(len(starts), np.bool_)
    index = np.searchsorted(hits, starts)
    position = hits[np.minimum(index, len(hits) - 1)]
    return position, (index < len(hits)) & (position + length <= ends)


def _occurrences(data: npt.NDArray[np.uint8], mark: bytes) -> Int64s:
    places: Int64s = np.flatnonzero(data[: max(0, data.size - len(mark) + 1)] == mark[0])
    for step, byte in enumerate(mark[1:], 1):
        places = places[data[places + step] == byte]
    return places


def _starts_with(data: npt.NDArray[np.uint8], starts: Int64s, ends: Int64s, prefix: bytes) -> Flags:
    rows = np.flatnonzero(ends - starts >= len(prefix))
    for step, byte in enumerate(prefix):
        rows = rows[data[starts[rows] + step] == byte]
    result = np.zeros(len(starts), np.bool_)
    result[rows] = True
    return result


def _equal(data: npt.NDArray[np.uint8], starts: Int64s, ends: Int64s, text: bytes) -> Flags:
    return cast("Flags", (ends - starts == len(text)) & _starts_with(data, starts, ends, text))
