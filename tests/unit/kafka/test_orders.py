"""The demo's events and the model of what they mean."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from streaming_lsm.decode.envelope import EventFormat
from streaming_lsm.kafka.orders import Message, Order, OrderEvents, OrdersModel

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def order(at: datetime, status: str = "new") -> Order:
    return Order("o-1", "c-1", "DE", status, 1, Decimal("1.00"), None, at)


@pytest.mark.parametrize("kind", list(EventFormat))
def test_same_seed_sends_the_same_events_however_they_are_taken(kind: EventFormat) -> None:
    whole, parts = OrderEvents(3, kind), OrderEvents(3, kind)
    first = list(parts.take(1000))
    taken = [*first, *parts.take(2000 - len(first))]
    assert list(whole.take(2000)) == taken
    assert whole.model.rows() == parts.model.rows()
    assert list(OrderEvents(4, kind).take(2000)) != taken


def test_events_hold_every_case_that_the_demo_promises() -> None:
    flat, debezium = list(OrderEvents(7).take(5000)), list(OrderEvents(7, EventFormat.DEBEZIUM).take(5000))
    flagged = [message for message in flat if message.value and b"_hoodie_is_deleted" in message.value]
    tombstones = [message for message in flat if message.value is None and not message.poison]
    assert len(flagged) > 50
    assert len(tombstones) > 50
    assert len({message.poison for message in flat if message.poison}) == 7
    deletes = [place for place, message in enumerate(debezium) if message.value and b'"op":"d"' in message.value]
    assert len(deletes) > 100
    assert all(debezium[place + 1] == Message(debezium[place].key, None) for place in deletes)
    assert late_events(flat) > 100


def late_events(messages: list[Message]) -> int:
    newest: dict[str, str] = {}
    late = 0
    for message in messages:
        if message.poison or message.value is None:
            continue
        row = json.loads(message.value)
        late += row["updated_at"] < newest.get(row["order_id"], "")
        newest[row["order_id"]] = max(row["updated_at"], newest.get(row["order_id"], ""))
    return late


def test_model_keeps_the_newest_by_event_time_and_the_later_of_equals() -> None:
    model = OrdersModel()
    model.upsert(order(NOON))
    model.upsert(order(NOON - timedelta(seconds=1), "late"))
    assert model.rows()["o-1"].status == "new"
    model.upsert(order(NOON, "paid"))
    assert model.rows()["o-1"].status == "paid"


def test_model_remembers_the_time_of_a_delete_but_not_of_a_tombstone() -> None:
    model = OrdersModel()
    model.upsert(order(NOON))
    model.delete("o-1", NOON)
    model.upsert(order(NOON - timedelta(seconds=1)))
    assert model.rows() == {}
    model.tombstone("o-1")
    model.upsert(order(NOON - timedelta(seconds=1)))
    assert list(model.rows()) == ["o-1"]
