"""Encode the messages of the orders table in Avro, framed as by Confluent's serializers."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import fastavro

from streaming_lsm.kafka.demo.order import STATUSES, Message, Order
from streaming_lsm.schema_registry.registry import SchemaRegistry


class AvroOrders:
    """Encodes orders as Avro, rows in two versions of their schema: that of the updates has further types and a field.

    Attributes:
        registry: has the schemas, under the names of the topic.
    """

    def __init__(self, registry: SchemaRegistry, topic: str) -> None:
        """Register the schemas.

        Raises:
            RegistryError: the registry does not answer, or refuses a schema.
        """
        self.registry, self._topic = registry, topic
        self._key = self._registered("key", _KEY)
        self._rows = [self._registered("value", _row(version)) for version in (1, 2)]
        self._changes = [self._registered("changes", _envelope(_row(version))) for version in (1, 2)]

    def _registered(self, part: str, avro: dict[str, Any]) -> _Schema:
        schema_id = self.registry.register(f"{self._topic}-{part}", json.dumps(avro))
        return _Schema(schema_id, fastavro.parse_schema(avro))

    def key(self, order: Order) -> bytes:
        """Encode the key."""
        return self._key.message({"order_id": order.order_id, "country": order.country})

    def row(self, order: Order, *, deleted: bool = False) -> bytes:
        """Encode a row, or its delete."""
        version = 0 if order.status == STATUSES[0] else 1
        return self._rows[version].message(_fields(order, version + 1) | {"_hoodie_is_deleted": deleted})

    def change(self, op: str, before: Order | None, after: Order | None, at: datetime) -> bytes:
        """Encode a Debezium envelope."""
        version = 0 if op == "c" else 1
        before_row, after_row = (None if one is None else _fields(one, version + 1) for one in (before, after))
        return self._change(version, op, before_row, after_row, at)

    def _change(self, version: int, op: str, before: Any, after: Any, at: datetime) -> bytes:
        source = {
            "version": "3.0",
            "connector": "postgresql",
            "name": "shop",
            "ts_ms": 0,
            "table": "orders",
            "lsn": None,
        }
        change = {"before": before, "after": after, "source": source, "op": op, "ts_ms": int(at.timestamp() * 1000)}
        return self._changes[version].message(change | {"transaction": None})

    def poison(self, good: Order, *, changes: bool) -> Iterator[Message]:
        """Yield one message of each kind of poison."""
        key, row = self.key(good), _fields(good, 2)
        value = self._change(1, "c", None, row, good.updated_at) if changes else self._rows[1].message(row)
        yield Message(key, value[:-3], "cut off")
        yield Message(key, b'{"order_id": "poison"}', "not Avro")
        if not changes:
            yield Message(b"poison", None, "tombstone without partition")
        for why, wrong in (
            ("null key", {"order_id": None}),
            ("null ordering value", {"updated_at": None}),
            ("wrong type", {"qty": 1 << 40}),
            ("rounded decimal", {"amount": Decimal("1.005")}),
        ):
            bad = row | wrong
            whole = self._change(1, "c", None, bad, good.updated_at) if changes else self._rows[1].message(bad)
            yield Message(key, whole, why)


@dataclass(frozen=True)
class _Schema:
    """Holds a registered schema."""

    id: int
    parsed: Any

    def message(self, value: Any) -> bytes:
        """Encode a value behind magic byte and id."""
        stream = io.BytesIO()
        stream.write(struct.pack(">bI", 0, self.id))
        fastavro.schemaless_writer(stream, self.parsed, value)
        return stream.getvalue()


def _fields(order: Order, version: int) -> dict[str, Any]:
    row = asdict(order)
    return row if version == 1 else row | {"channel": "shop"}


def _row(version: int) -> dict[str, Any]:
    """Return a version of the schema of rows."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2 if version == 1 else 3}
    status = "string" if version == 1 else {"type": "enum", "name": "Status", "symbols": list(STATUSES)}
    fields: dict[str, Any] = {
        "order_id": ["null", "string"],
        "customer": "string",
        "country": "string",
        "status": status,
        "qty": "int" if version == 1 else "long",
        "amount": ["null", decimal],
        "note": ["null", "string"],
        "updated_at": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
    }
    if version == 2:
        fields["channel"] = "string"
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    named.append({"name": "_hoodie_is_deleted", "type": "boolean", "default": False})
    return {"type": "record", "name": "Value", "namespace": "shop.orders", "fields": named}


_KEY = {
    "type": "record",
    "name": "Key",
    "namespace": "shop.orders",
    "fields": [{"name": "order_id", "type": "string"}, {"name": "country", "type": "string"}],
}
_SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [
        {"name": "version", "type": "string"},
        {"name": "connector", "type": "string"},
        {"name": "name", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "table", "type": "string"},
        {"name": "lsn", "type": ["null", "long"], "default": None},
    ],
}
_TRANSACTION = {
    "type": "record",
    "name": "block",
    "namespace": "event",
    "fields": [{"name": "id", "type": "string"}, {"name": "total_order", "type": "long"}],
}


def _envelope(row: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of Debezium's envelopes of rows."""
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.orders",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": _SOURCE},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
            {"name": "transaction", "type": ["null", _TRANSACTION], "default": None},
        ],
    }
