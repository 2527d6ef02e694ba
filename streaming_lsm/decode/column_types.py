"""Define which column types are read from events, their names in messages, and the units of timestamps.

======================  ==========================================================================
column type             accepted
======================  ==========================================================================
STRING                  a string as it is; numbers and booleans as text; objects and arrays as
                        JSON text
TINYINT … BIGINT        a whole number in range, or a string that holds one
FLOAT, DOUBLE           a finite number, or a string that holds one
DECIMAL(p, s)           a number or a string that fits without rounding (Debezium:
                        ``decimal.handling.mode=string`` or ``double``; ``precise`` is refused)
BOOLEAN                 true, false, or these words as strings
DATE                    ``YYYY-MM-DD``, or days since 1970-01-01 (Debezium, Kafka Connect)
TIMESTAMP               ISO 8601 text (without a zone: the session's), or a whole number since
                        1970-01-01 UTC in a known unit, see `TimeUnit`
TIMESTAMP_NTZ           ISO 8601 text
BINARY                  base64 text
ARRAY, MAP, STRUCT      arrays and objects; of the types marked here only STRING, BOOLEAN, SMALLINT
                        to BIGINT, FLOAT, DOUBLE, BINARY and DATE inside
======================  ==========================================================================
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeAlias

import pyarrow as pa

from streaming_lsm.errors import ConfigError

Field: TypeAlias = "pa.Field[Any]"

_NAMES: dict[pa.DataType, str] = {
    pa.string(): "STRING",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
    pa.binary(): "BINARY",
}
_NOT_NESTED = (pa.int8(), pa.timestamp("us", "UTC"), pa.timestamp("us"))


class TimeUnit(StrEnum):
    """Names the unit of a timestamp that is a whole number.

    The unit is given by the column's comment in the schema (``updated_at TIMESTAMP COMMENT 'micros'``) or by the
    Debezium or Kafka Connect schema of the event. Without either a whole number is a bad value, as milliseconds and
    microseconds cannot be distinguished by their size.
    """

    MILLIS = "millis"
    MICROS = "micros"
    NANOS = "nanos"

    @property
    def per_second(self) -> int:
        """Number of units in a second."""
        return {TimeUnit.MILLIS: 10**3, TimeUnit.MICROS: 10**6, TimeUnit.NANOS: 10**9}[self]


SEMANTIC_UNITS = {
    "io.debezium.time.Timestamp": TimeUnit.MILLIS,
    "io.debezium.time.MicroTimestamp": TimeUnit.MICROS,
    "io.debezium.time.NanoTimestamp": TimeUnit.NANOS,
    "org.apache.kafka.connect.data.Timestamp": TimeUnit.MILLIS,
}
"""Schema names under which Debezium and Kafka Connect send timestamps as whole numbers."""

CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
"""Schema name of a decimal sent as base64 of its unscaled bytes."""


def is_nested(kind: pa.DataType) -> bool:
    """Test whether values of a type are arrays or objects."""
    return bool(pa.types.is_nested(kind))


def is_timestamp(kind: pa.DataType) -> bool:
    """Test whether a type is TIMESTAMP, a point in time."""
    return bool(kind == pa.timestamp("us", "UTC"))


def check_column(field: Field) -> None:
    """Check that a column can be read from events.

    Raises:
        ConfigError: its type is not read, or its comment names no unit.
    """
    if is_nested(field.type):
        _check_nested(field.name, field.type)
    elif field.type not in _NAMES and not pa.types.is_decimal128(field.type):
        raise ConfigError(f"lsm.kafka.schema: column {field.name!r} is {sql_name(field.type)}, which is not read")
    time_unit(field)


def _check_nested(path: str, kind: pa.DataType) -> None:
    if pa.types.is_list(kind):
        _check_nested(f"{path}.element", kind.value_type)
    elif pa.types.is_map(kind):
        _check_nested(f"{path}.key", kind.key_type)
        _check_nested(f"{path}.value", kind.item_type)
    elif pa.types.is_struct(kind):
        for field in kind.fields:
            _check_nested(f"{path}.{field.name}", field.type)
    elif kind not in _NAMES or kind in _NOT_NESTED:
        raise ConfigError(
            f"lsm.kafka.schema: {path} is {sql_name(kind)}, which inside another column would be "
            "rounded or guessed at: declare it STRING or BIGINT"
        )


def time_unit(field: Field) -> TimeUnit | None:
    """Return the unit that a column's comment names; None without a comment, or when the column is no TIMESTAMP.

    Raises:
        ConfigError: the comment of a TIMESTAMP column is none of the units.
    """
    comment = (field.metadata or {}).get(b"comment")
    if comment is None or not is_timestamp(field.type):
        return None
    text = comment.decode()
    try:
        return TimeUnit(text.strip().lower())
    except ValueError:
        raise ConfigError(
            f"lsm.kafka.schema: comment {text!r} of TIMESTAMP column {field.name!r} names no unit: "
            f"write one of {', '.join(TimeUnit)}, or no comment"
        ) from None


def sql_name(kind: pa.DataType) -> str:
    """Return the SQL name of a type, as in ``DECIMAL(10,2)`` or ``STRUCT<A:INT>``."""
    if pa.types.is_decimal128(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"ARRAY<{sql_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{sql_name(kind.key_type)},{sql_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{','.join(f'{field.name.upper()}:{sql_name(field.type)}' for field in kind.fields)}>"
    return _NAMES.get(kind, str(kind))
