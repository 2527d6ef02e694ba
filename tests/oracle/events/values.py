"""Convert values of a JSON document to the types of a table's columns, as Spark column expressions.

*Raw type*: the type as which a column is read from JSON, string for most. *Raw value*: a value of that type, which
`typed` then converts without rounding, truncating or guessing. A raw value that is present and converts to null has
the wrong type.
"""

from __future__ import annotations

from datetime import date
from enum import StrEnum

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

_WHOLE_TYPES = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_WHOLE = r"^[+-]?[0-9]{1,19}$"
_NUMBER = r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_ISO_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_ISO_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}.*)?$"
# Years 1 to 9999, the range of Hudi's, Spark's and Python's timestamps alike.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_FIRST_DAY, _LAST_DAY = _FIRST_SECOND // 86_400, _LAST_SECOND // 86_400


class TimeUnit(StrEnum):
    """Names the unit of a timestamp that is a whole number, given by the column's comment or the event's schema."""

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


def raw_type(field: T.StructField) -> T.DataType:
    """Return the raw type of a column."""
    kind = field.dataType
    if isinstance(kind, T.DecimalType):
        # The largest scale that 38 digits allow, so that `typed` sees the digits that rounding would drop.
        return T.DecimalType(38, 38 - (kind.precision - kind.scale))
    return kind if isinstance(kind, T.ArrayType | T.MapType | T.StructType) else T.StringType()


def _time_unit(field: T.StructField) -> TimeUnit | None:
    comment = field.metadata.get("comment")
    return None if comment is None else TimeUnit(comment.strip().lower())


def raw_from_text(text: Column, field: T.StructField) -> Column:
    """Convert a plain text, such as a message key, to the raw value of a column."""
    if isinstance(field.dataType, T.DecimalType):
        return F.when(text.rlike(_NUMBER), text).try_cast(raw_type(field))
    return text


def typed(raw: Column, field: T.StructField, semantic: Column | None = None) -> Column:
    """Convert a raw value to the type of its column; null when it does not fit.

    Args:
        raw: the raw value.
        field: the column.
        semantic: schema name that the event states for the value (`SEMANTIC_UNITS`); None when events have no schema.
    """
    kind = field.dataType
    if isinstance(kind, _WHOLE_TYPES):
        return F.when(raw.rlike(_WHOLE), raw).try_cast(kind)
    if isinstance(kind, T.FloatType | T.DoubleType):
        number = F.when(raw.rlike(_NUMBER), raw).try_cast(kind)
        return F.when(F.abs(number) < F.lit(float("inf")).cast(kind), number)
    if isinstance(kind, T.BooleanType):
        return F.when(raw.isin("true", "false"), raw == "true")
    if isinstance(kind, T.DecimalType):
        return _decimal(raw, kind, semantic)
    if isinstance(kind, T.DateType):
        return _date(raw)
    if isinstance(kind, T.TimestampType):
        return _timestamp(raw, _time_unit(field), semantic)
    if isinstance(kind, T.TimestampNTZType):
        return F.when(raw.rlike(_ISO_TIME), raw).try_cast(kind)
    if isinstance(kind, T.BinaryType):
        return F.try_to_binary(raw, F.lit("base64"))
    return raw


def _decimal(raw: Column, kind: T.DecimalType, semantic: Column | None) -> Column:
    value = raw.try_cast(kind)
    exact = value == raw
    if semantic is not None:
        exact = exact & ~semantic.eqNullSafe(CONNECT_DECIMAL)
    return F.when(exact, value)


def _date(raw: Column) -> Column:
    days = F.when(raw.rlike(r"^-?[0-9]{1,7}$"), raw).try_cast("int")
    return F.coalesce(
        F.when(raw.rlike(_ISO_DATE), raw).try_cast("date"),
        F.when(days.between(_FIRST_DAY, _LAST_DAY), F.date_add(F.lit(date(1970, 1, 1)), days)),
    )


def _timestamp(raw: Column, unit: TimeUnit | None, semantic: Column | None) -> Column:
    written = F.when(raw.rlike(_ISO_TIME), raw).try_cast("timestamp")
    number = F.when(raw.rlike(_WHOLE), raw).try_cast("bigint")
    if unit is not None:
        return F.coalesce(written, _since_epoch(number, unit))
    if semantic is None:
        return written
    by_schema = [F.when(semantic == name, _since_epoch(number, unit)) for name, unit in SEMANTIC_UNITS.items()]
    return F.coalesce(written, *by_schema)


def _since_epoch(number: Column, unit: TimeUnit) -> Column:
    first, last = _FIRST_SECOND * unit.per_second, (_LAST_SECOND + 1) * unit.per_second - 1
    inside = F.when(number.between(max(first, -(2**63)), min(last, 2**63 - 1)), number)
    if unit is TimeUnit.MILLIS:
        return F.timestamp_millis(inside)
    if unit is TimeUnit.MICROS:
        return F.timestamp_micros(inside)
    # Floor, not truncation: a nanosecond before 1970 belongs to the microsecond before it.
    return F.timestamp_micros(F.call_function("div", inside - F.pmod(inside, F.lit(1000)), F.lit(1000)))
