"""Convert whole columns of written types to the types of the table's columns.

Each conversion takes values of a `natural_type` and returns the values, with flags of those that it vouches for, bool
(rows,): the others are left to `exact_values`. Nulls are vouched for.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import array_of, data_of, offsets_of
from streaming_lsm.arrow.columns import Flags, Int64s, flags, pc
from streaming_lsm.decode.avro.column_fit import unit_of
from streaming_lsm.decode.avro.record_reading import ReadColumn, Values
from streaming_lsm.decode.avro.written_types import Sense, WrittenType
from streaming_lsm.decode.column_types import TimeUnit, is_timestamp
from streaming_lsm.decode.values.typed_columns import in_zone, typed
from streaming_lsm.format.avro.decimals import decimals_of_bytes
from streaming_lsm.format.avro.varints import Stretch

Fitted = tuple[Any, Flags]

_DIGITS = 38
_EXACT = Context(prec=2 * _DIGITS)
_LOCAL, _INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")
_MOST_SCALES = 8
_EXPONENT = "E"
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_UUID_DASHES = (8, 13, 18, 23)
_UUID_SIZE = 36


def fit_columns(values: Values, read: Mapping[str, ReadColumn], count: int, zone: str) -> tuple[dict[str, Any], Flags]:
    """Convert the columns of `count` rows; flags the rows all of whose values are vouched for.

    Args:
        values: the columns, in their natural types.
        read: the fields that they were read from.
        count: number of rows.
        zone: zone of dates and times that name none.
    """
    columns, every = {}, np.ones(count, np.bool_)
    for name, one in read.items():
        unit = unit_of(one.column, one.written)
        columns[name], good = fitted(values[name], one.written, one.column.type, unit, zone)
        every &= good
    return columns, every


def selected(values: Values, places: Int64s, kept: Flags) -> tuple[Values, Int64s]:
    """Select rows, and their places."""
    if kept.all():
        return values, places
    mask = pa.array(kept)
    return {name: value.filter(mask) for name, value in values.items()}, places[kept]


def fitted(values: Any, written: WrittenType, kind: Any, unit: TimeUnit | None, zone: str) -> Fitted:
    """Convert a column.

    Args:
        values: the column in its natural type.
        written: its written type, which fits.
        kind: the type of the table's column.
        unit: unit of whole numbers in a TIMESTAMP.
        zone: zone of dates and times that name none.
    """
    sense = written.sense
    if sense is Sense.NULL:
        return pa.nulls(len(values), kind), np.ones(len(values), np.bool_)
    if pa.types.is_nested(kind):
        return _nested(values, written, kind, zone)
    if sense is Sense.DECIMAL:
        return _of_decimal(values, kind)
    if sense is Sense.SCALED:
        return _of_scaled(values, kind)
    if sense is Sense.REAL:
        return _of_real(values, kind)
    if sense is Sense.UUID and pa.types.is_string(kind):
        return _text_of_uuid(values), np.ones(len(values), np.bool_)
    if pa.types.is_nested(values.type):
        return pa.nulls(len(values), kind), flags(pc.is_null(values))
    if values.type == pa.int32():
        values = values.cast(pa.int64())
    if values.type == pa.int64():
        return _of_whole(values, sense, kind, unit, zone)
    return typed(values, kind, unit, zone)


def _of_whole(values: Any, sense: Sense, kind: Any, unit: TimeUnit | None, zone: str) -> Fitted:
    if pa.types.is_timestamp(kind):
        return _of_moment(values, sense, kind, unit, zone)
    if pa.types.is_floating(kind):
        most = 1 << (24 if kind == pa.float32() else 53)
        exact = flags(pc.fill_null(pc.and_(pc.less_equal(values, most), pc.greater_equal(values, -most)), True))
        return pc.cast(_without(values, exact), kind), exact
    if pa.types.is_decimal128(kind):
        return _of_decimal(pc.cast(values, pa.decimal128(_DIGITS, 0)), kind)
    return typed(values, kind, unit, zone)


def _of_moment(values: Any, sense: Sense, kind: Any, unit: TimeUnit | None, zone: str) -> Fitted:
    moments, good = typed(values, _INSTANT, unit, zone)
    if sense is not Sense.LOCAL or not is_timestamp(kind):
        return (moments if is_timestamp(kind) else moments.cast(_LOCAL)), good
    zoned, found = in_zone(moments.cast(_LOCAL), zone)
    return zoned, good & found


def _of_real(values: Any, kind: Any) -> Fitted:
    finite = flags(pc.fill_null(pc.is_finite(values), True))
    if values.type == kind:
        return values, finite
    wide = values.cast(pa.float64())
    if pa.types.is_floating(kind):
        return wide, finite
    if pa.types.is_decimal128(kind):
        texts, good = typed(_without(wide, finite).cast(pa.string()), kind, None, "UTC")
        return texts, good & finite
    return pa.nulls(len(values), kind), flags(pc.is_null(values))


def _of_decimal(values: Any, kind: Any) -> Fitted:
    if pa.types.is_decimal128(kind):
        return _rescaled(values, kind)
    texts = values.cast(pa.string())
    plain = ~flags(pc.fill_null(pc.match_substring(texts, _EXPONENT), False))
    fitting, good = typed(_without(texts, plain), kind, None, "UTC")
    return fitting, good & plain


def _rescaled(values: Any, kind: Any) -> Fitted:
    """Convert decimals of 38 digits to those of a column, where no digit is lost."""
    whole, scale = kind.precision - kind.scale, values.type.scale
    good = np.ones(len(values), np.bool_)
    if whole < _DIGITS - scale:
        most = pa.scalar(Decimal(1).scaleb(whole, _EXACT), values.type)
        good = flags(pc.fill_null(pc.less(pc.abs(values), most), True))
        values = _without(values, good)
    if kind.scale >= scale:
        return pc.cast(values, kind), good
    fitting = pc.cast(values, kind, safe=False)
    same = flags(pc.fill_null(pc.equal(pc.cast(fitting, pa.decimal128(_DIGITS, scale)), values), True))
    return _without(fitting, same), good & same


def _of_scaled(values: Any, kind: Any) -> Fitted:
    """Convert decimals with scales of their own, by scale."""
    known = flags(pc.is_valid(values))
    scales, unscaled = np.asarray(values.field("scale").fill_null(0)), values.field("value").fill_null(b"\0")
    bounds, data = offsets_of(unscaled), data_of(unscaled, 2)
    stretch = Stretch.copy_of(data)
    parts: list[Any] = [pa.nulls(1, kind)]
    places, good = np.zeros(len(values), np.int64), ~known
    for scale in np.unique(scales[known])[:_MOST_SCALES].tolist():
        if not 0 <= scale <= _DIGITS:
            continue
        rows = np.flatnonzero(known & (scales == scale))
        words, wrong = decimals_of_bytes(stretch, bounds[rows], bounds[rows + 1], _DIGITS)
        words[wrong] = 0
        numbers = array_of(pa.decimal128(_DIGITS, scale), len(rows), [None, words])
        fitting, found = _of_decimal(numbers, kind)
        places[rows] = 1 + sum(map(len, parts[1:])) + np.arange(len(rows))
        good[rows] = found & ~wrong
        parts.append(fitting)
    return pa.concat_arrays(parts).take(pa.array(places)), good


def _text_of_uuid(values: Any) -> Any:
    """Print the 16 bytes of each value as 8-4-4-4-12 hexadecimal digits."""
    count = len(values)
    raw = data_of(values.fill_null(bytes(16)), 2)[offsets_of(values.fill_null(bytes(16)))[0] :][: 16 * count]
    digits = np.stack([_HEX[raw >> 4], _HEX[raw & 15]], axis=1).reshape(count, 32)
    texts = np.insert(digits, [8, 12, 16, 20], ord("-"), axis=1)
    offsets = np.arange(count + 1, dtype=np.int32) * _UUID_SIZE
    printed = array_of(pa.string(), count, [None, offsets, np.ascontiguousarray(texts).reshape(-1)])
    return printed if not values.null_count else pc.if_else(pc.is_valid(values), printed, None)


# --- inside other columns -----------------------------------------------------------------------------------------


def _nested(values: Any, written: WrittenType, kind: Any, zone: str) -> Fitted:
    if pa.types.is_struct(kind):
        return _struct(values, written, kind, zone)
    inside, item = ("element", kind.value_field) if pa.types.is_list(kind) else ("value", kind.item_field)
    offsets = offsets_of(values)
    begin, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    child = (values.values if pa.types.is_list(kind) else values.items).slice(begin, length)
    converted, good = fitted(child, written.fields[inside], item.type, None, zone)
    offsets = offsets - offsets[0]
    if pa.types.is_map(kind):
        converted = _entries(values.keys.slice(begin, length), converted, kind)
    buffers = [_validity(values), offsets.astype(np.int32)]
    return array_of(kind, len(values), buffers, [converted]), _none_bad(good, offsets)


def _entries(keys: Any, items: Any, kind: Any) -> Any:
    entry = pa.struct([kind.key_field, kind.item_field])
    return array_of(entry, len(keys), [None], [keys, items])


def _struct(values: Any, written: WrittenType, kind: Any, zone: str) -> Fitted:
    good = np.ones(len(values), np.bool_)
    children = []
    for field in kind.fields:
        if field.name not in written.fields:
            children.append(pa.nulls(len(values), field.type))
            continue
        child, found = fitted(values.field(field.name), written.fields[field.name], field.type, None, zone)
        children.append(child)
        good &= found
    good |= flags(pc.is_null(values))
    return array_of(kind, len(values), [_validity(values)], children), good


def _none_bad(good: Flags, offsets: Int64s) -> Flags:
    """Flag lists all of whose items are good."""
    if good.all():
        return np.ones(len(offsets) - 1, np.bool_)
    bad = np.concatenate([[0], np.cumsum(~good)])
    found: Flags = bad[offsets[1:]] == bad[offsets[:-1]]
    return found


def _validity(values: Any) -> Any:
    """Return the bitmap of the values that are not null, from the first bit on; None if none is null."""
    if not values.null_count:
        return None
    return pc.is_valid(values).buffers()[1]


def _without(values: Any, good: Flags) -> Any:
    return values if good.all() else pc.if_else(pa.array(good), values, pa.scalar(None, values.type))
