"""Generate change events of an orders table, and model the rows of the table after them, for the demo and the tests.

*Poison*: a message that must end up in the dead letters. *Late*: an update with an ordering value below that of the
stored row. The seed determines all messages.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from streaming_lsm.decode.envelope import EventFormat
from streaming_lsm.errors import ConfigError
from streaming_lsm.kafka.demo.order import STATUSES, JsonOrders, Message, Order, OrderEncoding

_COUNTRIES = ("DE", "FR", "IT", "PL", "SE")
_NOTES = (None, "gift", "zähle nach", "à livrer le matin", "注意", "🎁 wrap", 'says "hi"', "")
_START = datetime(2026, 1, 1, tzinfo=UTC)


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
        late: by key, the late update that follows the delete of a row. Where a compaction comes between the two, it
            drops the delete, and the update is a row again.
    """

    def __init__(
        self, seed: int = 7, kind: EventFormat = EventFormat.JSON, encoding: OrderEncoding | None = None
    ) -> None:
        """Start without orders.

        Args:
            seed: determines all events.
            kind: format of the messages.
            encoding: encodes them; JSON when not given.

        Raises:
            ConfigError: an Avro format without an encoding, which needs a schema registry.
        """
        if kind.is_avro and encoding is None:
            raise ConfigError(f"events in the format {kind} need a schema registry: give its URL")
        self.model = OrdersModel()
        self.late: dict[str, Order] = {}
        self._random = random.Random(seed)
        self._debezium = kind.is_debezium
        self._encoding = encoding or JsonOrders()
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
            before, status=pick.choice(STATUSES), qty=pick.randrange(1, 20), note=pick.choice(_NOTES), updated_at=at
        )
        if not late:
            self._live[place] = after
        return self._upserted(after, before)

    def _upserted(self, order: Order, before: Order | None) -> Message:
        self.model.upsert(order)
        if not self._debezium:
            return Message(self._encoding.key(order), self._encoding.row(order))
        return Message(self._encoding.key(order), self._change("u" if before else "c", before, order))

    def _change(self, op: str, before: Order | None, after: Order | None) -> bytes:
        return self._encoding.change(op, before, after, self._now)

    def _delete(self, order: Order) -> list[Message]:
        key = self._encoding.key(order)
        if self._debezium:
            # The tombstone after the delete must not clear its ordering value: a late update still loses to the delete.
            late = replace(order, updated_at=order.updated_at - timedelta(seconds=1))
            self.model.delete(order.order_id, order.updated_at)
            self.model.upsert(late)
            self.late[order.order_id] = late
            deleted, again = self._change("d", order, None), self._change("u", order, late)
            return [Message(key, value) for value in (deleted, None, again)]
        if self._random.random() < 0.4:
            self.model.tombstone(order.order_id)
            return [Message(key, None)]
        self.model.delete(order.order_id, self._now)
        deleted = self._encoding.row(replace(order, updated_at=self._now), deleted=True)
        # The late update has an ordering value below that of the delete and must lose to it.
        self.model.upsert(order)
        self.late[order.order_id] = order
        return [Message(key, deleted), Message(key, self._encoding.row(order))]

    def _poison(self) -> Message:
        good = Order(
            order_id="poison", customer="c", country="DE", status="new", qty=1, amount=Decimal(1), note=None,
            updated_at=self._now,
        )  # fmt: skip
        messages = list(self._encoding.poison(good, changes=self._debezium))
        self._spoilt += 1
        return messages[self._spoilt % len(messages)]
