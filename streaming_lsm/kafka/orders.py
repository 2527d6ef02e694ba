"""Generate change events of an orders table, and model the rows of the table after them, for the demo and the tests.

*Poison*: a message that must end up in the dead letters. *Late*: an update with an ordering value below that of the
stored row. The seed determines all messages.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from streaming_lsm.decode.envelope import EventFormat

SCHEMA = (
    "order_id STRING, customer STRING, country STRING, status STRING, qty INT, amount DECIMAL(10,2), "
    "note STRING, updated_at TIMESTAMP COMMENT 'micros'"
)
"""Columns of the table, as ``lsm.kafka.schema``."""

_COUNTRIES = ("DE", "FR", "IT", "PL", "SE")
_STATUSES = ("new", "paid", "packed", "shipped", "delivered")
_NOTES = (None, "gift", "zähle nach", "à livrer le matin", "注意", "🎁 wrap", 'says "hi"', "")
_START = datetime(2026, 1, 1, tzinfo=UTC)


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


@dataclass
class OrdersModel:
    """Models the table by event-time ordering, key by key.

    The larger ``updated_at`` wins, and the later event on a tie. A delete is kept with its ``updated_at``; a tombstone
    has none and removes the key unconditionally.
    """

    _states: dict[str, tuple[datetime, Order | None]] = field(default_factory=dict)

    def upsert(self, order: Order) -> None:
        """Apply a version of a row."""
        self._apply(order.order_id, order.updated_at, order)

    def delete(self, order_id: str, at: datetime) -> None:
        """Apply a delete with an ordering value."""
        self._apply(order_id, at, None)

    def tombstone(self, order_id: str) -> None:
        """Apply a delete without an ordering value."""
        self._states.pop(order_id, None)

    def _apply(self, order_id: str, at: datetime, row: Order | None) -> None:
        known = self._states.get(order_id)
        if known is None or at >= known[0]:
            self._states[order_id] = (at, row)

    def rows(self) -> dict[str, Order]:
        """Return the rows by key."""
        return {key: row for key, (_, row) in self._states.items() if row is not None}


class OrderEvents:
    """Generates change events without end, and applies each message taken to `model`.

    About a quarter of the messages are new orders; the rest are updates, one in eight of them late. One in twelve is a
    delete, one in 150 poison.

    Attributes:
        model: the table after all messages taken so far.
    """

    def __init__(self, seed: int = 7, kind: EventFormat = EventFormat.JSON) -> None:
        """Start without orders."""
        self.model = OrdersModel()
        self._random = random.Random(seed)
        self._kind = kind
        self._live: list[Order] = []
        self._made = self._spoilt = 0
        self._now = _START

    def take(self, count: int) -> Iterator[Message]:
        """Generate the next messages, `count` or up to two more: the messages of one delete are not split."""
        sent = 0
        while sent < count:
            for message in self._next():
                sent += 1
                yield message

    def _next(self) -> list[Message]:
        self._now += timedelta(microseconds=self._random.randrange(1, 3_000_000))
        draw = self._random.random()
        if draw < 1 / 150:
            return [self._poison()]
        if draw < 0.25 or not self._live:
            return [self._create()]
        place = self._random.randrange(len(self._live))
        if draw < 0.25 + 0.75 / 12:
            return self._delete(self._live.pop(place))
        return [self._update(place, late=self._random.random() < 1 / 8)]

    def _create(self) -> Message:
        pick = self._random
        self._made += 1
        order = Order(
            order_id=f"o-{self._made:07d}",
            customer=f"c-{pick.randrange(1000):04d}",
            country=pick.choice(_COUNTRIES),
            status="new",
            qty=pick.randrange(1, 20),
            amount=Decimal(pick.randrange(100, 1_000_000)) / 100,
            note=pick.choice(_NOTES),
            updated_at=self._now,
        )
        self._live.append(order)
        return self._upserted(order, None)

    def _update(self, place: int, *, late: bool) -> Message:
        pick, before = self._random, self._live[place]
        at = before.updated_at - timedelta(seconds=pick.randrange(1, 3600)) if late else self._now
        after = replace(
            before, status=pick.choice(_STATUSES), qty=pick.randrange(1, 20), note=pick.choice(_NOTES), updated_at=at
        )
        if not late:
            self._live[place] = after
        return self._upserted(after, before)

    def _upserted(self, order: Order, before: Order | None) -> Message:
        self.model.upsert(order)
        if self._kind is EventFormat.JSON:
            return Message(self._key(order), _dump(order.as_json()))
        return Message(self._key(order), self._envelope("u" if before else "c", before, order))

    def _delete(self, order: Order) -> list[Message]:
        if self._kind is EventFormat.DEBEZIUM:
            # The tombstone after the delete must not clear its ordering value: a late update still loses to the delete.
            late = replace(order, updated_at=order.updated_at - timedelta(seconds=1))
            self.model.delete(order.order_id, order.updated_at)
            self.model.upsert(late)
            deleted, again = self._envelope("d", order, None), self._envelope("u", order, late)
            return [Message(self._key(order), value) for value in (deleted, None, again)]
        if self._random.random() < 0.4:
            self.model.tombstone(order.order_id)
            return [Message(self._key(order), None)]
        self.model.delete(order.order_id, self._now)
        row = replace(order, updated_at=self._now).as_json() | {"_hoodie_is_deleted": True}
        # The late update has an ordering value below that of the delete and must lose to it.
        self.model.upsert(order)
        return [Message(self._key(order), _dump(row)), Message(self._key(order), _dump(order.as_json()))]

    def _key(self, order: Order) -> bytes:
        # The partition column is part of the message key, so that a tombstone can be placed.
        return _dump({"order_id": order.order_id, "country": order.country})

    def _envelope(self, op: str, before: Order | None, after: Order | None) -> bytes:
        return _dump(
            {
                "op": op,
                "before": before.as_json() if before else None,
                "after": after.as_json() if after else None,
                "source": {"connector": "postgresql", "name": "shop", "table": "orders"},
                "ts_ms": int(self._now.timestamp() * 1000),
            }
        )

    def _poison(self) -> Message:
        key = _dump({"order_id": "poison", "country": "DE"})
        good: dict[str, object] = {"order_id": "poison", "country": "DE", "updated_at": self._now.isoformat()}
        rows: list[tuple[str, dict[str, object]]] = [
            ("null key", good | {"order_id": None}),
            ("null ordering value", good | {"updated_at": None}),
            ("wrong type", good | {"qty": "many"}),
            ("rounded decimal", good | {"amount": "1.005"}),
        ]
        messages = [
            Message(key, b'{"order_id": "poison", "qty": ', "cut off"),
            Message(key, b"\xff\xfe not text", "not UTF-8"),
            Message(b"poison", None, "tombstone without partition"),
        ]
        if self._kind is EventFormat.DEBEZIUM:
            # At the begin of a batch a Debezium tombstone without partition counts as a repetition of a delete.
            messages.pop()
        for why, row in rows:
            whole: dict[str, object] = (
                row if self._kind is EventFormat.JSON else {"op": "c", "before": None, "after": row}
            )
            messages.append(Message(key, _dump(whole), why))
        self._spoilt += 1
        return messages[self._spoilt % len(messages)]


def _dump(document: dict[str, object]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
