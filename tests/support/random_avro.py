"""Draw writer's schemas for the columns of a table, messages of them, and the JSON messages that stand for these.

*Written*: an Avro type that fits a column, with a way to draw its values, and to write them as JSON. *Twins*: a message
in Avro, and one in JSON with the same effect and the same reason.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Context, Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.decode.column_types import Field, is_nested, is_timestamp, time_unit
from streaming_lsm.decode.envelope import ENVELOPE_COLUMNS, Envelope
from tests.support.avro_messages import MemorySchemas, decoded, encoded, framed, nullable, record
from tests.support.event_columns import Message
from tests.support.strict_avro import Ambiguous, Datum, Malformed

Row = dict[str, Any]

BROKEN = b"{"
"""JSON that stands for a message that is no Avro."""
_TEXTS = (
    "", "x", "7", "-3", "1.5", "true", "FALSE", "2024-02-29", "2024-02-30", "2026-01-02T03:04:05Z", "19000", "1e3",
    "2026-01-02 03:04:05.123456789+01:00", "2026-03-29T02:30:00", "2050-10-25 02:30:00", "aGk=", "NaN", "ž🎁é", "7\n",
    "+5", "a" * 70, "9223372036854775808", "\u2028", "\0", "__debezium_unavailable_value", "{", '"x"',
)  # fmt: skip
_UNAVAILABLE = b"__debezium_unavailable_value"
_USUAL = 0.985
"""Share of values that fit."""
_EPOCH = datetime(1970, 1, 1)
_EXACT = Context(prec=200)
_EXTRAS: tuple[Any, ...] = (
    "int", "string", "double", ["null", "long", "string", {"type": "array", "items": "bytes"}], "boolean", "null",
    {"type": "map", "values": {"type": "array", "items": "float"}}, {"type": "fixed", "name": "odd", "size": 3},
)  # fmt: skip


@dataclass(frozen=True)
class Written:
    """Describes a type.

    Attributes:
        avro: its Avro JSON.
        draw: draws a value, as fastavro encodes it without logical types.
        stands: writes a value as what JSON holds for it.
    """

    avro: Any
    draw: Callable[[Random], Any]
    stands: Callable[[Any], Any] = lambda value: value

    def optional(self, random: Random) -> Written:
        """Return the type, or the union of it and null."""
        order = random.choice(("first", "last", "never"))
        if order == "never" or self.avro == "null":
            return self
        avro = ["null", self.avro] if order == "first" else [self.avro, "null"]
        return Written(
            avro,
            lambda chance: None if chance.random() < 0.08 else self.draw(chance),
            lambda value: None if value is None else self.stands(value),
        )


def _logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.name" if "." in name else "logicalType": name, **more}


def whole(random: Random, bits: int) -> int:
    """Draw a number of up to so many bits."""
    size = random.randrange(bits + 1)
    return random.randrange(-(1 << size), 1 << size)


def _usually(random: Random) -> bool:
    return random.random() < _USUAL


def _number(kind: str, avro: Any = None, *, usual: int = 63, most: int = 63) -> Written:
    """Whole numbers, of `most` bits at most."""
    bits = min(31 if kind == "int" else 63, most)
    return Written(avro or kind, lambda random: whole(random, min(bits, usual) if _usually(random) else bits))


def _real(kind: str) -> Written:
    def draw(random: Random) -> float:
        odd = (0.0, -0.0, 1.5, 1000.0, 12.25, -0.5, 3.0, 1e7, 0.1, 1e-5, float("nan"), float("-inf"), 1e300)
        value = random.choice(odd[:7]) if _usually(random) else random.choice((*odd, random.uniform(-1000, 1000)))
        with np.errstate(over="ignore"):
            return float(np.float32(value)) if kind == "float" else value

    def stands(value: float) -> Any:
        return value if np.isfinite(value) else "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"

    return Written(kind, draw, stands)


def _decimal(scale: int, digits: int, *, size: int | None = None, fits: int = 38) -> Written:
    """Decimals; usual ones have at most `fits` digits behind the point."""

    def draw(random: Random) -> bytes:
        if _usually(random):
            unscaled = whole(random, 8) * 10 ** max(0, scale - fits)
        else:
            unscaled = whole(random, min(random.choice((8, 30, 60, int(digits * 3.32))), 8 * (size or 16) - 2))
        length: int = size or unscaled.bit_length() // 8 + random.choice((1, 1, 2, 9))
        return int(unscaled).to_bytes(length, "big", signed=True)

    def stands(value: bytes) -> str:
        return f"{Decimal(int.from_bytes(value, 'big', signed=True)).scaleb(-scale, _EXACT):f}"

    logical = {"logicalType": "decimal", "precision": digits, "scale": scale}
    if size is not None:
        return Written({"type": "fixed", "name": f"fixed{size}", "size": size, **logical}, draw, stands)
    return Written({"type": "bytes", **logical}, draw, stands)


def _scaled() -> Written:
    fields = record(("scale", "int"), ("value", "bytes"), name="VariableScaleDecimal", namespace="io.debezium.data")

    def draw(random: Random) -> Row:
        unscaled, scale = whole(random, 12), random.choice((0, 2, 2, 1))
        if not _usually(random):
            unscaled, scale = whole(random, random.choice((8, 30, 60, 120))), random.choice((0, 2, 5, 38, -1))
        return {"scale": scale, "value": unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)}

    def stands(value: Row) -> str:
        unscaled = Decimal(int.from_bytes(value["value"], "big", signed=True))
        return f"{unscaled.scaleb(-value['scale'], _EXACT):f}"

    return Written(fields, draw, stands)


def _moment(per_second: int, avro: Any, zone: str) -> Written:
    """Values around and out of the years 1 to 9999; in JSON ISO text, and the number where that has no text."""

    def draw(random: Random) -> int:
        if not _usually(random) and per_second < 10**9:
            return random.choice((2**60, -(2**61), 2**63 - 1))
        seconds = random.choice((whole(random, 31), whole(random, 33), random.randrange(-(10**9), 3 * 10**9)))
        return seconds * per_second + random.randrange(per_second)

    def stands(value: int) -> Any:
        seconds, part = divmod(value, per_second)
        try:
            text = (_EPOCH + timedelta(seconds=seconds)).isoformat()
        except OverflowError:
            return value
        return f"{text}.{part * 10**9 // per_second:09}{zone}"

    return Written(avro, draw, stands)


_MOMENTS = (
    _moment(10**3, _logical("long", "timestamp-millis"), "Z"),
    _moment(10**6, _logical("long", "timestamp-micros"), "Z"),
    _moment(10**9, _logical("long", "timestamp-nanos"), "Z"),
    _moment(10**3, _logical("long", "io.debezium.time.Timestamp"), "Z"),
    _moment(10**6, _logical("long", "io.debezium.time.MicroTimestamp"), "Z"),
    _moment(10**9, _logical("long", "io.debezium.time.NanoTimestamp"), "Z"),
    _moment(
        10**3, {**_logical("long", "org.apache.kafka.connect.data.Timestamp"), "logicalType": "timestamp-millis"}, "Z"
    ),
    _moment(10**3, _logical("long", "local-timestamp-millis"), ""),
    _moment(10**6, _logical("long", "local-timestamp-micros"), ""),
)
_TEXT = Written("string", lambda random: random.choice(_TEXTS[:-6] if _usually(random) else _TEXTS))
_ENUM = Written(
    {"type": "enum", "name": "Suit", "symbols": ["a", "true", "FALSE"]}, lambda r: r.choice(("a", "true", "FALSE"))
)
_TRUTH = Written({"type": "enum", "name": "Truth", "symbols": ["true", "false"]}, lambda r: r.choice(("true", "false")))
_BOOLEAN = Written("boolean", lambda random: random.random() < 0.5)
_DAYS = tuple(
    Written(_logical("int", name), lambda random: whole(random, 15 if _usually(random) else 23))
    for name in ("date", "io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
)
_TIMES = (
    _number("int", _logical("int", "time-millis")),
    _number("long", _logical("long", "io.debezium.time.MicroTime")),
)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _blob(random: Random) -> bytes:
    return random.randbytes(random.randrange(9)) if _usually(random) else _UNAVAILABLE


_BYTES = Written("bytes", _blob, _base64)
_FIXED = Written({"type": "fixed", "name": "fixed4", "size": 4}, lambda random: random.randbytes(4), _base64)


def _plain_moments() -> list[Written]:
    """Moments that are read as the numbers that are sent."""
    return [Written(one.avro, one.draw) for one in _MOMENTS]


def written(random: Random, column: Field) -> Written:
    """Draw a type that fits a column."""
    kind: Any = column.type
    if is_nested(kind):
        return _nested(random, kind).optional(random)
    return random.choice(_scalars(kind, comment=time_unit(column) is not None)).optional(random)


def _text(*usual: str) -> Written:
    return Written("string", lambda random: random.choice(usual if _usually(random) else _TEXTS))


_ISO = (
    "2026-01-02T03:04:05Z",
    "2026-01-02 03:04:05.123456",
    "1969-12-31",
    "2026-03-29T02:30:00",
    "2050-07-01 02:30:00",
)


def _scalars(kind: Any, *, comment: bool) -> Sequence[Written]:
    if pa.types.is_integer(kind):
        bits = kind.bit_width - 1
        found = [_number("int", usual=bits), _number("long", usual=bits), _text("7", "-3"), _decimal(0, 12)]
        days = [*_DAYS, *_TIMES[:1]] if bits > 16 else []
        return [*found, *found, *days, *(_plain_moments() if bits > 32 else ())]
    if pa.types.is_float32(kind):
        return [_real("float"), _real("float"), _number("int", most=24), _text("7", "1.5", "1e3")]
    if pa.types.is_floating(kind):
        return [_real("double"), _real("double"), _real("float"), _number("long", most=53), _text("7", "1.5", "1e3")]
    if pa.types.is_decimal128(kind):
        ways: list[dict[str, Any]] = [{"scale": 2, "digits": 10}, {"scale": 0, "digits": 4}, {"scale": 5, "digits": 20}]
        ways += [{"scale": 10, "digits": 38}, {"scale": 2, "digits": 12, "size": 7}]
        if kind.precision == kind.scale:
            return [_decimal(5, 12), _decimal(8, 20, fits=5), _text("0.5", "-0.25")]
        decimals = [_decimal(**way, fits=kind.scale) for way in ways]
        reals = [_real("double"), _real("float"), _text("1.5"), _scaled()] if kind.scale else [_text("7")]
        return [*decimals, *reals, _number("int", usual=10), _number("long", usual=10)]
    if pa.types.is_boolean(kind):
        return [_BOOLEAN, _BOOLEAN, _text("true", "false"), _TRUTH]
    if pa.types.is_date(kind):
        return [*_DAYS, _number("int", usual=15, most=22), _text("2024-02-29", "1969-12-31")]
    if pa.types.is_timestamp(kind):
        plain = [_number("long", usual=50, most=53)] if comment and is_timestamp(kind) else []
        return [*_MOMENTS, *plain, _text(*_ISO)]
    if pa.types.is_binary(kind):
        return [_BYTES, _BYTES, _FIXED, _text("aGk=", "")]
    texts = [_TEXT, _ENUM, _decimal(2, 10), _decimal(12, 20), _scaled(), _BOOLEAN, _number("int"), _number("long")]
    one_by_one = [_real("double"), _array(_number("int")), _map(_decimal(3, 9))]
    return [*texts * 4, *_plain_moments()[:2], *one_by_one]


def _nested(random: Random, kind: Any) -> Written:
    if pa.types.is_list(kind):
        return _array(_inside(random, kind.value_type).optional(random))
    if pa.types.is_map(kind):
        return _map(_inside(random, kind.item_type).optional(random))
    fields = {one.name: _inside(random, one.type).optional(random) for one in kind.fields if random.random() < 0.85}
    for extra in random.sample(_EXTRAS[:3], random.randrange(3)):
        fields[f"extra{_EXTRAS.index(extra)}"] = Written(extra, lambda r, avro=extra: _any(r, avro))  # type: ignore[misc]
    return _record(random, fields)


def _inside(random: Random, kind: Any) -> Written:
    """Draw a type that fits inside a column, where less is converted."""
    if is_nested(kind):
        return _nested(random, kind)
    if pa.types.is_integer(kind):
        bits = kind.bit_width - 1
        return random.choice((_number("int", usual=bits), _number("long", usual=bits)))
    if pa.types.is_float32(kind):
        return random.choice((_real("float"), _number("int", most=24)))
    if pa.types.is_floating(kind):
        return random.choice((_real("double"), _real("float"), _number("long", most=53)))
    if pa.types.is_boolean(kind):
        return _BOOLEAN
    if pa.types.is_date(kind):
        return Written(_DAYS[0].avro, lambda random: whole(random, 15), _iso_day)
    if pa.types.is_binary(kind):
        return random.choice((_BYTES, _FIXED))
    return random.choice((_TEXT, _ENUM, _decimal(2, 10), _number("long"), _BOOLEAN))


def _iso_day(days: int) -> str:
    try:
        return (_EPOCH + timedelta(days)).date().isoformat()
    except OverflowError:
        return f"{days} days"


def _array(item: Written) -> Written:
    return Written(
        {"type": "array", "items": item.avro},
        lambda random: [item.draw(random) for _ in range(random.choice((0, 1, 2, 3, 20)))],
        lambda values: [item.stands(value) for value in values],
    )


def _map(item: Written) -> Written:
    return Written(
        {"type": "map", "values": item.avro},
        lambda random: {f"k{n}ž": item.draw(random) for n in range(random.randrange(3))},
        lambda values: {name: item.stands(value) for name, value in values.items()},
    )


def _record(random: Random, fields: dict[str, Written]) -> Written:
    names = random.sample(list(fields), len(fields))
    return Written(
        record(*((name, fields[name].avro) for name in names), name=f"Record{random.randrange(10**9)}"),
        lambda chance: {name: fields[name].draw(chance) for name in names},
        lambda values: {name: fields[name].stands(values[name]) for name in names},
    )


def _any(random: Random, avro: Any) -> Any:
    """Draw a value of a type that no column has."""
    if isinstance(avro, list):
        return _any(random, random.choice(avro))
    if isinstance(avro, str):
        return {
            "int": 5, "string": "zz", "double": 0.5, "long": -(2**40), "boolean": True, "null": None, "bytes": b"\0",
            "float": 2.0,
        }[avro]  # fmt: skip
    if avro["type"] == "fixed":
        return b"odd"
    inside = [_any(random, avro.get("items", avro.get("values"))) for _ in range(random.randrange(4))]
    return inside if avro["type"] == "array" else {f"k{n}": value for n, value in enumerate(inside)}


def renamed(avro: Any, used: dict[str, int]) -> Any:
    """Give each named type a name of its own, or its name for the first one."""
    if isinstance(avro, list):
        return [renamed(one, used) for one in avro]
    if not isinstance(avro, dict):
        return avro
    found = {key: renamed(value, used) if key in ("type", "items", "values") else value for key, value in avro.items()}
    if "name" in found and isinstance(found["type"], str) and found["type"] in ("record", "enum", "fixed"):
        number = used[found["name"]] = used.get(found["name"], 0) + 1
        if found["name"] != "VariableScaleDecimal":
            found["name"] += "" if number == 1 else f"_{number}"
        elif number > 1:
            return "io.debezium.data.VariableScaleDecimal"
        if "fields" in found:
            found["fields"] = [{**one, "type": renamed(one["type"], used)} for one in found["fields"]]
    return found


def raw(avro: Any) -> Any:
    """Return a schema without logical types, so that fastavro takes numbers and bytes as they are."""
    if isinstance(avro, list):
        return [raw(one) for one in avro]
    if not isinstance(avro, dict):
        return avro
    return {
        key: [{**one, "type": raw(one["type"])} for one in value] if key == "fields" else raw(value)
        for key, value in avro.items()
        if key != "logicalType"
    }


def encode(avro: Any, value: Any) -> bytes:
    """Encode a value with fastavro, and check that fastavro and the strict decoder read it back."""
    datum = encoded(raw(avro), value)
    strict = Datum(datum, raw(avro))
    found = strict.value(raw(avro), strict=True)
    strict.end()
    assert repr(found) == repr(decoded(raw(avro), datum))
    return datum


@dataclass(frozen=True)
class Twin:
    """Holds a message in Avro, and the one in JSON that stands for it.

    Attributes:
        avro, json: key and value of each.
        changed: whether bytes of the former were changed: the reason is another one then.
        unsure: whether the changed bytes may be bad or not.
    """

    avro: Message
    json: Message
    changed: bool = False
    unsure: bool = False


class _Schema:
    """A writer's schema of the rows of a table."""

    def __init__(self, random: Random, columns: Sequence[Field], kept: Sequence[str]) -> None:
        self.fields = {one.name: written(random, one) for one in columns if one.name in kept or random.random() < 0.93}
        extras = {f"extra{n}": _EXTRAS[n] for n in random.sample(range(len(_EXTRAS)), random.randrange(4))}
        every = {name: one.avro for name, one in self.fields.items()} | extras
        self.names = random.sample(list(every), len(every))
        self.avro = record(*((name, every[name]) for name in self.names), name="Value", namespace="shop.orders")

    def draw(self, random: Random) -> Row:
        """Draw a row."""
        types = {one["name"]: one["type"] for one in self.avro["fields"]}
        return {
            name: self.fields[name].draw(random) if name in self.fields else _any(random, types[name])
            for name in self.names
        }

    def stands(self, row: Row) -> Row:
        """Write a row as JSON holds it."""
        return {name: one.stands(row[name]) for name, one in self.fields.items()}


_FLAGS = (
    ("__deleted", Written("string", lambda random: random.choice(("true", "false", "false", "TRUE", "maybe")))),
    ("_hoodie_is_deleted", Written("boolean", lambda random: random.random() < 0.3)),
)
_SOURCE = {
    "name": Written("string", lambda random: "db"),
    "ts_ms": Written("long", lambda random: whole(random, 40)),
    "txId": Written("string", lambda random: str(whole(random, 20))),
    "lsn": Written("long", lambda random: whole(random, 30)),
    "xmin": Written("long", lambda random: whole(random, 30)),
    "file": Written("string", lambda random: "bin.1"),
    "pos": Written("int", lambda random: whole(random, 31)),
    "row": Written("int", lambda random: whole(random, 5)),
}


class TwinMessages:
    """Draws the messages of a topic whose schemas change now and then."""

    def __init__(self, random: Random, envelope: Envelope, schemas: MemorySchemas) -> None:
        """Draw the schemas of the topic.

        Args:
            random: where all is drawn from.
            envelope: the table, in either format.
            schemas: gets the schemas.
        """
        self._random, self._envelope, self._schemas = random, envelope, schemas
        self._debezium = envelope.format.is_debezium
        columns = [one for one in envelope.columns if not self._debezium or one.name not in ENVELOPE_COLUMNS]
        kept = {*envelope.record_key, *envelope.partition}
        needed = {*kept, *envelope.ordering, *(one.name for one in columns if not one.nullable)}
        self._rows = [_Schema(random, columns, list(needed)) for _ in range(3)]
        self._changes = [self._change_schema(one) for one in self._rows] if self._debezium else []
        self._ids = [self._added(one.avro) for one in (self._changes or self._rows)]
        self._keyed = _Schema(random, [one for one in columns if one.name in kept], list(kept))
        self._key_id = self._added(self._keyed.avro)
        self._single = written(random, envelope.columns.field(envelope.record_key[0]))
        self._single_id = self._added(self._single.avro)

    def _added(self, avro: Any) -> int:
        return self._schemas.add(renamed(avro, {}))

    def _change_schema(self, row: _Schema) -> _Schema:
        """Make the schema of an envelope of rows."""
        random = self._random
        source = {name: one.optional(random) for name, one in _SOURCE.items() if random.random() < 0.8}
        source["version"] = Written("string", lambda random: "3.0")
        found = _Schema(random, [], [])
        operation = Written("string", lambda random: random.choice(("c", "r", "u", "u", "d", "d")))
        odd = Written(["null", "string"], lambda random: random.choice((None, "t", "m", "D", "c", "d")))
        whole_row = Written(nullable(row.avro), row.draw, lambda one: None if one is None else row.stands(one))
        found.fields = {
            "before": whole_row,
            "after": Written(nullable("shop.orders.Value"), whole_row.draw, whole_row.stands),
            "source": _record(random, source),
            "op": odd if random.random() < 0.1 else operation,
            "ts_ms": Written("long", lambda random: whole(random, 40)).optional(random),
        }
        found.names = list(found.fields)
        found.avro = record(*((name, one.avro) for name, one in found.fields.items()), name="Envelope")
        return found

    def draw(self, count: int) -> list[Twin]:
        """Draw consecutive messages of a topic partition; tombstones follow deletes now and then."""
        random, found, place = self._random, list[Twin](), 0
        while len(found) < count:
            if random.random() < 0.05:
                place = random.randrange(len(self._ids))
            row, twin, delete = self._message(place)
            found.append(twin)
            if random.random() < (0.4 if delete else 0.06):
                avro, standing = self._key(row if random.random() < 0.8 else None)
                found.append(Twin((avro, None), (standing, None)))
        return found[:count]

    def _message(self, place: int) -> tuple[Row, Twin, bool]:
        random, rows = self._random, self._rows[place]
        row = rows.draw(random)
        value, delete = row, False
        if self._debezium:
            change = self._changes[place].fields
            operation = change["op"].draw(random)
            delete = operation == "d"
            other = rows.draw(random) if random.random() < 0.5 else None
            here = row if random.random() < 0.95 else None
            value = {"source": change["source"].draw(random), "op": operation, "ts_ms": change["ts_ms"].draw(random)}
            value |= {"before": here, "after": None} if delete else {"before": other, "after": here}
        schema = (self._changes or self._rows)[place]
        avro = json.loads(self._schemas.texts[self._ids[place]])
        datum = encode(avro, value)
        keys = self._key(row)
        if random.random() < 0.05:
            return row, self._changed(schema, avro, self._ids[place], datum, keys), False
        message = framed(self._ids[place], datum)
        return row, Twin((keys[0], message), (keys[1], self._document(schema, value))), delete

    def _document(self, schema: _Schema, value: Row) -> bytes:
        found = {name: one.stands(value[name]) for name, one in schema.fields.items()}
        if self._debezium:
            # The side that does not count is left out: JSON complains of it, too.
            found["before" if found["op"] != "d" else "after"] = None
        return json.dumps(found, ensure_ascii=False).encode()

    def _changed(self, schema: _Schema, avro: Any, schema_id: int, datum: bytes, keys: tuple[Any, Any]) -> Twin:
        """Change bytes of a datum, or break its frame."""
        random = self._random
        if random.random() < 0.15:
            broken = random.choice((b"", b"\0", struct.pack(">bI", 0, schema_id)[:4], b"\1" + datum, b'{"id":1}'))
            return Twin((keys[0], broken), (keys[1], BROKEN), changed=True)
        changed = bytearray(datum)
        for _ in range(random.choice((1, 1, 2))):
            at = random.randrange(len(changed) + 1)
            kind = random.randrange(4)
            if kind == 0:
                del changed[at:]
            elif kind == 1:
                changed[at:at] = random.randbytes(random.choice((1, 1, 8)))
            elif changed:
                changed[min(at, len(changed) - 1)] = random.choice(
                    (0, 1, 2, 3, 0x7F, 0x80, 0xFF, random.randrange(256))
                )
        message = (keys[0], framed(schema_id, bytes(changed)))
        document, unsure = BROKEN, False
        try:
            self._decoded(avro, bytes(changed), strict=False)
            unsure = True
            document = self._document(schema, self._decoded(avro, bytes(changed), strict=True))
            unsure = False
        except Ambiguous:
            unsure = True
        except Malformed:
            pass
        return Twin(message, (keys[1], document), changed=True, unsure=unsure)

    @staticmethod
    def _decoded(avro: Any, datum: bytes, *, strict: bool) -> Row:
        reader = Datum(datum, avro, changed=True)
        found: Row = reader.value(avro, strict=strict)
        reader.end()
        return found

    def _key(self, row: Row | None) -> tuple[bytes | None, bytes | None]:
        """Draw a key in Avro, and the one that stands for it; of no row any key."""
        random = self._random
        if row is None and random.random() < 0.3:
            return random.choice(((None, None), (b"7", b"7"), (b"x", b"x"), (b'{"id":5}', b'{"id":5}')))
        if random.random() < 0.2 and len(self._envelope.record_key) == 1:
            value = self._single.draw(random)
            standing = self._single.stands(value)
            if isinstance(standing, str | int):
                datum = encode(json.loads(self._schemas.texts[self._single_id]), value)
                return framed(self._single_id, datum), str(standing).encode()
        value = self._keyed.draw(random)
        if row is not None:
            value |= {name: row[name] for name in self._keyed.fields if self._same(name)}
        datum = encode(json.loads(self._schemas.texts[self._key_id]), value)
        return framed(self._key_id, datum), json.dumps(self._keyed.stands(value), ensure_ascii=False).encode()

    def _same(self, name: str) -> bool:
        """Tell whether rows and keys write a column in one type."""
        return all(one.fields[name].avro == self._keyed.fields[name].avro for one in self._rows)
