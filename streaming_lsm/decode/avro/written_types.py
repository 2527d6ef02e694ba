"""Define what the values of a writer's schema stand for, besides how they are encoded.

*Written type*: a type of a writer's schema. *Sense*: what its values stand for, by its Avro type, its logical type, and
the name that Kafka Connect or Debezium gives it (``connect.name``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from streaming_lsm.avro_names import REMEDY, resolved_type
from streaming_lsm.decode.column_types import CONNECT_DECIMAL, SEMANTIC_UNITS, TimeUnit
from streaming_lsm.errors import SchemaError
from streaming_lsm.schema_registry.sources import WriterSchema

MOST_SCALE = 38
"""Largest scale of a decimal that is read."""
_KEPT = 256
_UUID_BYTES = 16


class Sense(StrEnum):
    """Names what a value stands for."""

    NULL = "null"
    BOOLEAN = "boolean"
    WHOLE = "whole number"
    REAL = "real number"
    TEXT = "text"
    BYTES = "bytes"
    UUID = "uuid"  # in bytes
    DECIMAL = "decimal"
    SCALED = "decimal with its own scale"
    DATE = "date"  # days since 1970
    TIME = "time of day"
    INSTANT = "instant"  # since 1970 UTC
    LOCAL = "date and time without a zone"
    ARRAY = "array"
    MAP = "map"
    RECORD = "record"
    OTHER = "other"


_INTEGERS = {"int", "long"}
_PLAIN = {
    "null": Sense.NULL,
    "boolean": Sense.BOOLEAN,
    "int": Sense.WHOLE,
    "long": Sense.WHOLE,
    "float": Sense.REAL,
    "double": Sense.REAL,
    "string": Sense.TEXT,
    "enum": Sense.TEXT,
    "bytes": Sense.BYTES,
    "fixed": Sense.BYTES,
}
_INSTANTS = {
    "timestamp-millis": TimeUnit.MILLIS,
    "timestamp-micros": TimeUnit.MICROS,
    "timestamp-nanos": TimeUnit.NANOS,
    **SEMANTIC_UNITS,
}
_LOCALS = {
    "local-timestamp-millis": TimeUnit.MILLIS,
    "local-timestamp-micros": TimeUnit.MICROS,
    "local-timestamp-nanos": TimeUnit.NANOS,
}
_DATES = ("date", "io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_TIMES = (
    "time-millis", "time-micros", "org.apache.kafka.connect.data.Time", "io.debezium.time.Time",
    "io.debezium.time.MicroTime", "io.debezium.time.NanoTime",
)  # fmt: skip
_SCALED = "io.debezium.data.VariableScaleDecimal"


@dataclass(frozen=True, eq=False)
class WrittenType:
    """Describes a type, or the union of it and null.

    Attributes:
        avro: Avro JSON, without references to named types.
        kind: its Avro name; ``union`` for one of several types.
        sense: what its values stand for.
        text: the type as words, for messages.
        unit: unit of an instant, or of a date and time without a zone.
        scale: scale of a decimal.
        fields: fields of a record by name; of an array or map its items under the name ``element`` or ``value``.
    """

    avro: Any
    kind: str
    sense: Sense
    text: str
    unit: TimeUnit | None
    scale: int
    fields: Mapping[str, WrittenType]

    @property
    def is_record(self) -> bool:
        """Whether all values are records."""
        return self.sense is Sense.RECORD and not isinstance(self.avro, list)

    def in_field(self, name: str) -> WrittenType:
        """Return a record of one field of this type. Its values are encoded as those of the type."""
        avro = {"type": "record", "name": name, "fields": [{"name": name, "type": self.avro}]}
        return WrittenType(
            avro=avro, kind="record", sense=Sense.RECORD, text=self.text, unit=None, scale=0, fields={name: self}
        )


@lru_cache(maxsize=_KEPT)
def written_type(schema: WriterSchema) -> WrittenType:
    """Read a writer's schema.

    Raises:
        SchemaError: it is malformed.
    """
    avro = resolved_type(schema.text, schema.references, schema.source)
    try:
        return _type(avro)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SchemaError(f"{schema.source}: not an Avro schema ({error}): {schema.text[:80]!r}; {REMEDY}") from error


def _type(avro: Any) -> WrittenType:
    if not isinstance(avro, list):
        return _one(avro, avro)
    branches = [branch for branch in avro if branch != "null"]
    if len(branches) == 1:
        return _one(branches[0], avro)
    if not branches:
        return _one("null", avro)
    text = "a union of " + ", ".join(_type(branch).text for branch in branches)
    return WrittenType(avro=avro, kind="union", sense=Sense.OTHER, text=text, unit=None, scale=0, fields={})


def _one(avro: Any, whole: Any) -> WrittenType:
    """Read a type; `whole` is the union of it and null, or the type."""
    described: Mapping[str, Any] = {"type": avro} if isinstance(avro, str) else avro
    kind = str(described["type"])
    sense, unit, scale, name = _sense(kind, described)
    if kind == "record":
        fields = {str(field["name"]): _type(field["type"]) for field in described["fields"]}
        text = f"record {described['name']}"
        if sense is Sense.SCALED and (fields["scale"].avro, fields["value"].avro) != ("int", "bytes"):
            sense = Sense.RECORD
    elif kind in ("array", "map"):
        within, item = ("element", "items") if kind == "array" else ("value", "values")
        fields = {within: _type(described[item])}
        text = f"{kind} of {fields[within].text}"
    else:
        fields, text = {}, kind if name is None else f"{kind} ({name})"
    return WrittenType(avro=whole, kind=kind, sense=sense, text=text, unit=unit, scale=scale, fields=fields)


def _sense(kind: str, avro: Mapping[str, Any]) -> tuple[Sense, TimeUnit | None, int, str | None]:
    """Return sense, unit and scale of a type, and the name that tells them."""
    names = [str(avro[key]) for key in ("connect.name", "logicalType") if avro.get(key) is not None]
    for name in names:
        if kind in _INTEGERS:
            for sense, known in ((Sense.DATE, _DATES), (Sense.TIME, _TIMES)):
                if name in known:
                    return sense, None, 0, name
            for sense, units in ((Sense.INSTANT, _INSTANTS), (Sense.LOCAL, _LOCALS)):
                if name in units:
                    return sense, units[name], 0, name
        if kind in ("bytes", "fixed") and name in ("decimal", CONNECT_DECIMAL):
            return Sense.DECIMAL, None, _scale(avro), f"decimal of scale {_scale(avro)}"
        if kind == "fixed" and name == "uuid" and avro.get("size") == _UUID_BYTES:
            return Sense.UUID, None, 0, name
    if kind == "record" and _SCALED in (*names, f"{avro.get('namespace')}.{avro['name']}", avro["name"]):
        return Sense.SCALED, None, 0, None
    nested = {"array": Sense.ARRAY, "map": Sense.MAP, "record": Sense.RECORD}
    return nested.get(kind) or _PLAIN.get(kind, Sense.OTHER), None, 0, names[0] if names else None


def _scale(avro: Mapping[str, Any]) -> int:
    parameters = avro.get("connect.parameters")
    stated = parameters.get("scale", 0) if isinstance(parameters, dict) else 0
    return int(avro.get("scale", stated))
