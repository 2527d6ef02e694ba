"""Decide which written types fit which column types, and how their values are read.

======================  ==========================================================================
column type             written types
======================  ==========================================================================
STRING                  all but bytes: numbers, booleans and decimals as text; arrays, maps and
                        records as JSON text
TINYINT … BIGINT        int, long, also dates and times as the number that is sent; decimal of
                        scale 0; string
FLOAT                   float, int, long; string
DOUBLE                  float, double, int, long; string
DECIMAL(p, s)           decimal, int, long, float, double; string
BOOLEAN                 boolean; string
DATE                    date, int and long as days since 1970; string
TIMESTAMP               timestamp, local timestamp in the session's zone; long if the column's
                        comment names its unit; string
TIMESTAMP_NTZ           timestamp in UTC, local timestamp; string
BINARY                  bytes, fixed; string of base64
ARRAY, MAP, STRUCT      array, map, record; inside them a text is no number, date or time, and only a
                        STRING takes a decimal
======================  ==========================================================================

A value that does not fit by itself, such as a long beyond INT, is bad; a type that never fits is an error.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streaming_lsm.decode.avro.written_types import MOST_SCALE, Sense, WrittenType
from streaming_lsm.decode.column_types import Field, TimeUnit, is_timestamp, sql_name, time_unit
from streaming_lsm.errors import SchemaError

_DIGITS = 38
_NUMBERS = frozenset({Sense.WHOLE, Sense.TIME, Sense.DATE, Sense.INSTANT, Sense.LOCAL})
_UNREAD = frozenset({Sense.OTHER})
NATURAL_TYPES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "enum": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
}
"""The type of a column for each kind of Avro's."""
_SCALED = {"scale": pa.int32(), "value": pa.binary()}


def unit_of(column: Field, written: WrittenType) -> TimeUnit | None:
    """Return the unit of whole numbers in a TIMESTAMP column: that of the written type, else that of its comment."""
    return written.unit or time_unit(column)


def check_fit(column: Field, written: WrittenType, where: str) -> None:
    """Check that values of a written type can be values of a column.

    Args:
        column: the column.
        written: the type.
        where: schema and field, for messages.

    Raises:
        SchemaError: they never can.
    """
    if _fits(written, column.type, unit_of(column, written), inside=False):
        return
    advice = "declare the column with a type that holds it"
    if is_timestamp(column.type) and written.sense is Sense.WHOLE:
        advice = "name the unit by COMMENT 'millis', 'micros' or 'nanos'"
    raise SchemaError(
        f"{where} is {written.text}, which never fits column {column.name!r} of type {sql_name(column.type)}: {advice} "
        "(lsm.kafka.schema), or leave it out"
    )


def _fits(written: WrittenType, kind: Any, unit: TimeUnit | None, *, inside: bool) -> bool:
    sense = written.sense
    if sense is Sense.NULL:
        return True
    if sense in _UNREAD or (sense is Sense.DECIMAL and not 0 <= written.scale <= MOST_SCALE):
        return False
    if pa.types.is_nested(kind):
        return _fits_nested(written, kind)
    if pa.types.is_string(kind):
        return sense is not Sense.BYTES and all(is_readable(one) for one in written.fields.values())
    if sense is Sense.TEXT:
        return not inside
    if pa.types.is_integer(kind):
        return sense in _NUMBERS or (sense is Sense.DECIMAL and not written.scale and not inside)
    if pa.types.is_floating(kind):
        return sense is Sense.WHOLE or (sense is Sense.REAL and not (kind == pa.float32() and written.kind == "double"))
    if pa.types.is_decimal128(kind):
        return sense in (Sense.DECIMAL, Sense.SCALED, Sense.WHOLE, Sense.REAL)
    if pa.types.is_boolean(kind):
        return sense is Sense.BOOLEAN
    if pa.types.is_date(kind):
        return sense is Sense.DATE or (sense is Sense.WHOLE and not inside)
    if pa.types.is_timestamp(kind):
        known = sense in (Sense.INSTANT, Sense.LOCAL)
        return known or (is_timestamp(kind) and sense is Sense.WHOLE and unit is not None)
    return sense in (Sense.BYTES, Sense.UUID)


def _fits_nested(written: WrittenType, kind: Any) -> bool:
    if pa.types.is_list(kind):
        return written.sense is Sense.ARRAY and _fits(written.fields["element"], kind.value_type, None, inside=True)
    if pa.types.is_map(kind):
        keyed = written.sense is Sense.MAP and pa.types.is_string(kind.key_type)
        return keyed and _fits(written.fields["value"], kind.item_type, None, inside=True)
    if written.sense not in (Sense.RECORD, Sense.SCALED):
        return False
    known = [(written.fields[field.name], field.type) for field in kind.fields if field.name in written.fields]
    return all(_fits(one, other, None, inside=True) for one, other in known)


def is_readable(written: WrittenType) -> bool:
    """Tell whether values of a type can be read, and be part of a JSON text."""
    if written.sense in _UNREAD or (written.sense is Sense.DECIMAL and not 0 <= written.scale <= MOST_SCALE):
        return False
    return all(is_readable(one) for one in written.fields.values())


def read_type(written: WrittenType, kind: Any) -> Any:
    """Return the Arrow type as which a field is read for a column: its `natural_type`.

    Of the record in a STRUCT column the fields that the column does not have are read, too, so that they are seen.
    """
    if not pa.types.is_struct(kind) or written.sense is not Sense.RECORD:
        return natural_type(written, kind)
    kinds: dict[str, Any] = {one.name: one.type for one in kind.fields}
    known = {name: one for name, one in written.fields.items() if name in kinds or is_readable(one)}
    return pa.struct([pa.field(name, natural_type(one, kinds.get(name, pa.string()))) for name, one in known.items()])


def natural_type(written: WrittenType, kind: Any) -> Any:
    """Return the Arrow type as which values of a written type are read for a column type that it fits.

    Logical types are left to the conversion: a timestamp is read as int64. Of a record for a STRUCT the fields that it
    has are read, in the order of the record.
    """
    if written.sense is Sense.DECIMAL:
        return pa.decimal128(_DIGITS, written.scale)
    if written.sense is Sense.SCALED and not pa.types.is_nested(kind):
        return pa.struct([pa.field(name, _SCALED[name]) for name in written.fields if name in _SCALED])
    if written.sense is Sense.ARRAY:
        element = natural_type(written.fields["element"], kind.value_type if pa.types.is_list(kind) else kind)
        return pa.list_(pa.field("element", element))
    if written.sense is Sense.MAP:
        value = natural_type(written.fields["value"], kind.item_type if pa.types.is_map(kind) else kind)
        return pa.map_(pa.string(), value)
    if written.sense in (Sense.RECORD, Sense.SCALED):
        kinds: dict[str, Any] = dict.fromkeys(written.fields, kind)
        if pa.types.is_struct(kind):
            kinds = {field.name: field.type for field in kind.fields}
        known = {name: one for name, one in written.fields.items() if name in kinds}
        return pa.struct([pa.field(name, natural_type(one, kinds[name])) for name, one in known.items()])
    return NATURAL_TYPES[written.kind]
