"""Define an order, and encode the messages of the orders table: rows, Debezium envelopes, keys and poison.

*Poison*: a message that must end up in the dead letters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Protocol

SCHEMA = (
    "order_id STRING, customer STRING, country STRING, status STRING, qty INT, amount DECIMAL(10,2), "
    "note STRING, updated_at TIMESTAMP COMMENT 'micros'"
)
"""Columns of the table, as ``lsm.kafka.schema``."""

STATUSES = ("new", "paid", "packed", "shipped", "delivered")


@dataclass(frozen=True, slots=True)
class Order:
    """Holds one version of a row."""

    order_id: str
    customer: str
    country: str
    status: str
    qty: int
    amount: Decimal
    note: str | None
    updated_at: datetime

    def as_json(self) -> dict[str, object]:
        """Return the row as sent: the time as ISO text, the amount as text, so that it is not rounded."""
        return {
            "order_id": self.order_id, "customer": self.customer, "country": self.country, "status": self.status,
            "qty": self.qty, "amount": str(self.amount), "note": self.note, "updated_at": self.updated_at.isoformat(),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Message:
    """Holds key and value of a Kafka message.

    Attributes:
        key, value: bytes; a null value is a tombstone.
        poison: why the message must end up in the dead letters; None for a good event.
    """

    key: bytes | None
    value: bytes | None
    poison: str | None = None


class OrderEncoding(Protocol):
    """Encodes orders as keys and values of messages."""

    def key(self, order: Order) -> bytes:
        """Encode the key: the record key, and the partition column, by which a tombstone is placed."""
        ...

    def row(self, order: Order, *, deleted: bool = False) -> bytes:
        """Encode a row, or its delete."""
        ...

    def change(self, op: str, before: Order | None, after: Order | None, at: datetime) -> bytes:
        """Encode a Debezium envelope; `at` is the time at which Debezium sent it."""
        ...

    def poison(self, good: Order, *, changes: bool) -> Iterator[Message]:
        """Yield one message of each kind of poison, made of a good order; `changes` asks for envelopes."""
        ...


class JsonOrders:
    """Encodes orders as JSON."""

    def key(self, order: Order) -> bytes:
        """Encode the key."""
        return _dump({"order_id": order.order_id, "country": order.country})

    def row(self, order: Order, *, deleted: bool = False) -> bytes:
        """Encode a row, or its delete."""
        return _dump(order.as_json() | ({"_hoodie_is_deleted": True} if deleted else {}))

    def change(self, op: str, before: Order | None, after: Order | None, at: datetime) -> bytes:
        """Encode a Debezium envelope."""
        return _dump(
            {
                "op": op,
                "before": before.as_json() if before else None,
                "after": after.as_json() if after else None,
                "source": {"connector": "postgresql", "name": "shop", "table": "orders"},
                "ts_ms": int(at.timestamp() * 1000),
            }
        )

    def poison(self, good: Order, *, changes: bool) -> Iterator[Message]:
        """Yield one message of each kind of poison."""
        key = self.key(good)
        yield Message(key, b'{"order_id": "poison", "qty": ', "cut off")
        yield Message(key, b"\xff\xfe not text", "not UTF-8")
        if not changes:
            # At the begin of a batch a Debezium tombstone without partition counts as a repetition of a delete.
            yield Message(b"poison", None, "tombstone without partition")
        row: dict[str, object] = {"order_id": good.order_id, "country": good.country}
        row["updated_at"] = good.updated_at.isoformat()
        for why, wrong in (
            ("null key", {"order_id": None}),
            ("null ordering value", {"updated_at": None}),
            ("wrong type", {"qty": "many"}),
            ("rounded decimal", {"amount": "1.005"}),
        ):
            bad = row | wrong
            yield Message(key, _dump({"op": "c", "before": None, "after": bad} if changes else bad), why)


def _dump(document: dict[str, object]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
