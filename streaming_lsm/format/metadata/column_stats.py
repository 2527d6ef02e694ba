"""Encode and decode the records of the partitions ``column_stats`` and ``partition_stats``, which bound columns.

See docs/format/07-index-and-metadata.md, "Column stats". A *range* is one record: the smallest and the largest value of
a column in a file, or in a partition, with the number of values and nulls. Its bounds are *wrapped*: a struct with a
column for each type, of which one is not null.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Context
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import array_of, bytes_of, nulls
from streaming_lsm.arrow.columns import Flags, Int64s, flags, int64s, pc
from streaming_lsm.arrow.text_order import may_differ
from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.avro.decimals import decimals_of_bytes
from streaming_lsm.format.avro.varints import Stretch
from streaming_lsm.format.hfile.cells import Cells
from streaming_lsm.format.metadata.hashes import column_hash, file_hash, partition_hash
from streaming_lsm.format.metadata.parts import check_valid, decode_part, encode_part, encode_rows
from streaming_lsm.format.metadata.schema import RecordType

PARTITION = "column_stats"
FILE_ID = "col-stats-{:04d}-0"
"""File id of the file group of a number."""
_FEW = 700
"""Ranges, given as Python values, up to which they are encoded one by one: as columns each call takes longer."""

_WRAPPERS: dict[str, pa.DataType] = {
    "BooleanWrapper": pa.bool_(),
    "IntWrapper": pa.int32(),
    "LongWrapper": pa.int64(),
    "FloatWrapper": pa.float32(),
    "DoubleWrapper": pa.float64(),
    "BytesWrapper": pa.binary(),
    "StringWrapper": pa.string(),
    "DateWrapper": pa.int32(),
    "DecimalWrapper": pa.decimal128(30, 15),
    "TimeMicrosWrapper": pa.int64(),
    "TimestampMicrosWrapper": pa.int64(),
    "LocalDateWrapper": pa.int32(),
}


def _wrapper(kind: pa.DataType) -> pa.DataType:
    return pa.struct([pa.field("value", kind, nullable=False)])


_PRIMITIVE: list[tuple[str, pa.DataType]] = [(name, _wrapper(kind)) for name, kind in _WRAPPERS.items()]
_ARRAY = pa.struct([("wrappedValues", pa.list_(pa.field("element", pa.struct(_PRIMITIVE))))])
WRAPPED = pa.struct([*_PRIMITIVE, ("ArrayWrapper", _ARRAY)])
"""A bound."""

RANGES = pa.struct(
    [
        ("fileName", pa.string()),
        ("columnName", pa.string()),
        ("minValue", WRAPPED),
        ("maxValue", WRAPPED),
        ("valueCount", pa.int64()),
        ("nullCount", pa.int64()),
        ("totalSize", pa.int64()),
        ("totalUncompressedSize", pa.int64()),
        pa.field("isDeleted", pa.bool_(), nullable=False),
        pa.field("isTightBound", pa.bool_(), nullable=False),
        (
            "valueType",
            pa.struct([pa.field("typeOrdinal", pa.int32(), nullable=False), ("additionalInfo", pa.string())]),
        ),
    ]
)
"""Ranges, with the names of the record's fields. ``fileName`` of a partition's range is its path."""

_PART = "ColumnStatsMetadata"
NO_TYPE = 1
"""Ordinal of a range without values."""
_DECIMAL = 10
_DIGITS = re.compile(r"([0-9]{1,2}),([0-9]{1,2})")
_MAX_DIGITS, _SHORT = 38, 32
_WIDEST = (float("-inf"), float("inf"))
_UTC, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
# Not bytes: Java compares those of logs as signed, and a Parquet file as unsigned.
_TYPES: dict[int, tuple[str, pa.DataType]] = {
    2: ("BooleanWrapper", pa.bool_()),
    3: ("IntWrapper", pa.int32()),
    4: ("LongWrapper", pa.int64()),
    5: ("FloatWrapper", pa.float32()),
    6: ("DoubleWrapper", pa.float64()),
    7: ("StringWrapper", pa.string()),
    12: ("IntWrapper", pa.date32()),
    15: ("LongWrapper", pa.timestamp("ms", "UTC")),
    16: ("LongWrapper", _UTC),
    18: ("LongWrapper", pa.timestamp("ms")),
    19: ("LongWrapper", _LOCAL),
}
"""Wrapper and type of the ordinals of index version 2; those that are missing bound nothing here."""
_ORDINALS: dict[pa.DataType, tuple[int, str]] = {
    **{kind: (ordinal, wrapper) for ordinal, (wrapper, kind) in _TYPES.items()},
    pa.binary(): (8, "BytesWrapper"),
    pa.time32("ms"): (13, "IntWrapper"),
    pa.time64("us"): (14, "LongWrapper"),
    pa.timestamp("ns", "UTC"): (17, "LongWrapper"),
    pa.timestamp("ns"): (20, "LongWrapper"),
}
"""Ordinal and wrapper of the types that are written."""
_FIXED = (9, "BytesWrapper")
_WRAPPER_OF = {
    **{ordinal: wrapper for ordinal, wrapper in _ORDINALS.values()},
    **dict([_FIXED]),
    11: "StringWrapper",
    15: "LongWrapper",
    18: "LongWrapper",
}
_EXACT = Context(prec=_MAX_DIGITS + 2)
_UNORDERED = ("BytesWrapper", "TimeMicrosWrapper", "DecimalWrapper")
_UNTYPED: dict[str, pa.DataType] = {
    **{name: kind for name, kind in _WRAPPERS.items() if name not in _UNORDERED},
    "DateWrapper": pa.date32(),
    "LocalDateWrapper": pa.date32(),
    "TimestampMicrosWrapper": _UTC,
}
"""Types of the wrappers in index version 1, which has no ordinals."""
_INTEGERS = (pa.int32(), pa.int64())


def range_key(column: str, partition: str, file_name: str | None = None) -> str:
    """Return the key of a column's range in a file, or in a partition."""
    of_file = "" if file_name is None else file_hash(file_name)
    return column_hash(column) + partition_hash(partition) + of_file


def range_row(
    file_name: str, column: str, bounds: tuple[pa.Scalar[Any], pa.Scalar[Any]], values: int, nulls: int
) -> dict[str, Any]:
    """Build the range of a column in a file, a value of the type `RANGES`.

    Args:
        file_name: the file.
        column: the column.
        bounds: smallest and largest value; null if the column has nulls only.
        values: number of values, nulls included.
        nulls: number of nulls.

    Raises:
        UnsupportedTable: the type has no ranges.
    """
    kind = bounds[0].type
    held = [_primitive(bound, kind) if bound.is_valid else None for bound in bounds]
    return stored_range_row(file_name, column, kind, (held[0], held[1]), values, nulls)


def stored_range_row(
    file_name: str, column: str, kind: pa.DataType, bounds: tuple[Any, Any], values: int, nulls: int
) -> dict[str, Any]:
    """Build the range of a column in a file whose bounds are given as Parquet stores values.

    Floats are bounded by the infinities, as statistics leave NaN out; with NaN as a bound Hudi finds no row [tried].

    Args:
        kind: type of the column.
        bounds: smallest and largest value as numbers, bytes or texts; of decimals as their wrapper holds them. Not
            looked at for floats, and for a column that has nulls only.
        file_name, column, values, nulls: see `range_row`.

    Raises:
        UnsupportedTable: the type has no ranges.
    """
    ordinal, wrapper, info = _type_of_bounds(kind)
    if not ordinal:
        raise UnsupportedTable(f"{file_name}: column {column!r} of type {kind} has no range")
    wrapped: list[Any] = [None, None]
    if nulls < values:
        wrapped = [{wrapper: {"value": value}} for value in (_WIDEST if pa.types.is_floating(kind) else bounds)]
    return empty_row(file_name, column) | {
        "minValue": wrapped[0],
        "maxValue": wrapped[1],
        "valueCount": values,
        "nullCount": nulls,
        "valueType": {"typeOrdinal": ordinal, "additionalInfo": info},
    }


def _type_of_bounds(kind: pa.DataType) -> tuple[int, str, str | None]:
    """Return the ordinal of a type, 0 if it has no ranges, its wrapper, and the additional information."""
    if pa.types.is_decimal128(kind):
        return _DECIMAL, "BytesWrapper", f"{kind.precision},{kind.scale}"
    return *(_FIXED if pa.types.is_fixed_size_binary(kind) else _ORDINALS.get(kind, (0, ""))), None


def empty_row(file_name: str, column: str, *, is_deleted: bool = False) -> dict[str, Any]:
    """Build the range of a column in a file without rows, or the tombstone of its range in a file that was deleted."""
    counts = dict.fromkeys(("valueCount", "nullCount", "totalSize", "totalUncompressedSize"), 0)
    return {
        "fileName": file_name,
        "columnName": column,
        "minValue": None,
        "maxValue": None,
        **counts,
        "isDeleted": is_deleted,
        "isTightBound": False,
        "valueType": {"typeOrdinal": NO_TYPE, "additionalInfo": None},
    }


def _primitive(bound: pa.Scalar[Any], kind: pa.DataType) -> Any:
    """Return a value as its wrapper holds it."""
    if pa.types.is_decimal128(kind):
        unscaled = int(bound.as_py().scaleb(kind.scale, _EXACT))
        return unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)
    if pa.types.is_temporal(kind):
        return bound.cast(pa.int32() if kind.bit_width == _SHORT else pa.int64()).as_py()
    return bound.as_py()


def decode_ranges(cells: Cells, schema_json: str, source: str) -> pa.StructArray:
    """Decode ranges of files or of partitions.

    Args:
        cells: cells of an HFile of either partition.
        schema_json: the ``schema`` of the HFile.
        source: name of the file, for messages.

    Returns:
        The ranges, of the type `RANGES`.

    Raises:
        CorruptFileError: a record is damaged, or of another type.
        UnsupportedTable: a record is of an unknown type.
    """
    types = (RecordType.COLUMN_STATS, RecordType.PARTITION_STATS)
    _, found = decode_part(cells, schema_json, _PART, RANGES, types, source)
    check_valid(found, cells, _PART, source)
    ranges: Any = found
    for name in ("fileName", "columnName", "isDeleted"):
        check_valid(ranges.field(name), cells, f"{_PART}.{name}", source)
    return ranges  # type: ignore[no-any-return]


def encode_ranges(ranges: pa.StructArray, file_name: str | None, *, of_partitions: bool = False) -> pa.BinaryArray:
    """Encode ranges, the values of HFile cells.

    Args:
        ranges: of the type `RANGES`.
        file_name: name of their base file; None in logs.
        of_partitions: whether they are of partitions.
    """
    number = RecordType.PARTITION_STATS if of_partitions else RecordType.COLUMN_STATS
    return encode_part(_PART, ranges, pa.repeat(pa.scalar(number, pa.int32()), len(ranges)), file_name)


def encode_range_rows(
    rows: Sequence[Mapping[str, Any]], file_name: str | None, *, of_partitions: bool = False
) -> pa.BinaryArray:
    """Encode ranges that are Python values of the type `RANGES`; see `encode_ranges`."""
    if len(rows) > _FEW:
        ranges: Any = pa.array(rows, RANGES)
        return encode_ranges(ranges, file_name, of_partitions=of_partitions)
    number = RecordType.PARTITION_STATS if of_partitions else RecordType.COLUMN_STATS
    return encode_rows(_PART, rows, [number] * len(rows), file_name)


def range_rows(ranges: pa.StructArray) -> list[dict[str, Any]]:
    """Convert ranges of the type `RANGES` to Python values as `range_row` builds them."""
    found: Any = ranges
    rows: list[dict[str, Any]] = found.to_pylist()
    for row in rows:
        for name in ("minValue", "maxValue"):
            row[name] = row[name] and {kind: value for kind, value in row[name].items() if value is not None}
    return rows


def ordered_bounds(ranges: pa.StructArray, name: str, ordinals: Int64s) -> Iterator[tuple[Int64s, pa.Array[Any]]]:
    """Yield the bounds of each type, as values that can be compared.

    Args:
        ranges: of the type `RANGES`, n.
        name: the field of the bounds.
        ordinals: type of each range, int64 (n,).

    Yields:
        Places of the ranges that have a bound of a type, int64 (m,), and the bounds (m,).
    """
    rows: Any = ranges
    wrapped, infos = rows.field(name), pc.struct_field(rows.field("valueType"), "additionalInfo")
    for ordinal in np.unique(ordinals).tolist():
        of_type = ordinals == ordinal
        if ordinal == _DECIMAL:
            for info in pc.unique(infos.filter(pa.array(of_type))).to_pylist():
                same = of_type & flags(pc.fill_null(pc.equal(infos, info), False))
                yield _valid(same, _decimals(pc.struct_field(wrapped, ["BytesWrapper", "value"]), info))
        elif ordinal in _WRAPPER_OF:
            yield _valid(of_type, pc.struct_field(wrapped, [_WRAPPER_OF[ordinal], "value"]))


def _valid(chosen: Flags, values: Any) -> tuple[Int64s, pa.Array[Any]]:
    valid = chosen & flags(pc.is_valid(values))
    return np.flatnonzero(valid), values.filter(pa.array(valid))


def bounds_of(ranges: pa.StructArray, kind: pa.DataType) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Return the bounds of ranges of one column, as values of its type.

    Args:
        ranges: of the type `RANGES`, n.
        kind: the column's type in the table.

    Returns:
        Smallest and largest values, of the type `kind` (n,); null where the range has none, or has one of a type whose
        order is another than that of `kind`, or a text that Java, which found it, may order otherwise.
    """
    ranges_: Any = ranges
    typed = ranges_.field("valueType")
    ordinals = np.where(flags(pc.is_valid(typed)), int64s(typed.field("typeOrdinal")), -1)
    infos = pc.struct_field(typed, "additionalInfo")
    low, high = (_unwrapped(ranges_.field(name), ordinals, infos, kind) for name in ("minValue", "maxValue"))
    if pa.types.is_floating(kind):
        # NaN as a bound tells nothing, and neither does the other one: a writer may have compared by NaN.
        unknown = pc.fill_null(pc.or_kleene(pc.is_nan(low), pc.is_nan(high)), False)
        low, high = (pc.if_else(unknown, pa.scalar(None, kind), bound) for bound in (low, high))
    if pa.types.is_string(kind):
        low, high = (pc.if_else(pa.array(may_differ(bound)), None, bound) for bound in (low, high))
    return low, high


def _unwrapped(wrapped: Any, ordinals: Any, infos: Any, kind: pa.DataType) -> pa.Array[Any]:
    found = nulls(len(wrapped), kind)
    for ordinal in np.unique(ordinals).tolist():
        of_type = ordinals == ordinal
        if ordinal == _DECIMAL:
            for info in pc.unique(infos.filter(pa.array(of_type))).to_pylist():
                same = of_type & flags(pc.equal(infos, info))
                values = _decimals(pc.struct_field(wrapped, ["BytesWrapper", "value"]), info)
                found = _where(same, values, found, kind)
        elif ordinal in _TYPES:
            name, of_value = _TYPES[ordinal]
            found = _where(of_type, _typed(wrapped, name, of_value), found, kind)
        elif ordinal < 0:
            for name, of_value in _UNTYPED.items():
                has = of_type & flags(pc.is_valid(pc.struct_field(wrapped, name)))
                if has.any():
                    found = _where(has, _typed(wrapped, name, of_value), found, kind)
    return found


def _typed(wrapped: Any, name: str, kind: pa.DataType) -> Any:
    values = pc.struct_field(wrapped, [name, "value"])
    return values if values.type == kind else values.view(kind)


def _where(chosen: Flags, values: Any, others: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Take values where `chosen` is True, if their order is that of the type `kind`."""
    widens = values.type in _INTEGERS and kind in (*_INTEGERS, pa.float64())
    same_kind = pa.types.is_timestamp(kind) and pa.types.is_timestamp(values.type) and values.type.tz == kind.tz
    is_wider_decimal = pa.types.is_decimal(kind) and (pa.types.is_decimal(values.type) or values.type in _INTEGERS)
    # A float is read as the double of the same decimal digits, which is not its value.
    if values.type != kind and not (widens or same_kind or is_wider_decimal):
        return others
    try:
        cast = values.cast(kind)
    except pa.ArrowInvalid:  # a value that the type does not hold
        return others
    found: pa.Array[Any] = pc.if_else(pa.array(chosen), cast, others)
    return found


def _decimals(values: Any, info: str | None) -> Any:
    """Decode the big-endian bytes of decimals; `info` is their precision and scale."""
    digits = _DIGITS.fullmatch(info or "")
    if digits is None or not 1 <= int(digits[1]) <= _MAX_DIGITS or not len(values):
        return nulls(len(values), pa.decimal128(1, 0))
    precision, scale = int(digits[1]), int(digits[2])
    offsets, data = bytes_of(values)
    ends = offsets.astype(np.int64)
    found, wrong = decimals_of_bytes(Stretch.copy_of(data), ends[:-1], ends[1:], precision)
    bad: Flags = wrong | ~flags(pc.is_valid(values))
    kind = pa.decimal128(precision, scale)
    return array_of(kind, len(values), [np.packbits(~bad, bitorder="little"), found])
