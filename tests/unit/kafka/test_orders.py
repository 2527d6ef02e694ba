"""The demo's events and the model of what they mean."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from streaming_lsm.decode.decoder import Decoder
from streaming_lsm.decode.envelope import Envelope, EventFormat
from streaming_lsm.errors import ConfigError
from streaming_lsm.kafka.demo.avro_orders import AvroOrders
from streaming_lsm.kafka.demo.order import SCHEMA, Message, Order
from streaming_lsm.kafka.demo.orders import OrderEvents, OrdersModel
from streaming_lsm.kafka.demo.registry_server import RegistryServer
from streaming_lsm.schema_registry.registry import SchemaRegistry
from tests.support.event_columns import event_columns, kafka_messages

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def order(at: datetime, status: str = "new") -> Order:
    return Order("o-1", "c-1", "DE", status, 1, Decimal("1.00"), None, at)


@pytest.fixture(scope="module")
def avro() -> Iterator[AvroOrders]:
    """An encoding whose schemas a registry has."""
    with RegistryServer() as server:
        yield AvroOrders(SchemaRegistry(server.url), "orders")


@pytest.mark.parametrize("kind", list(EventFormat))
def test_same_seed_sends_the_same_events_however_they_are_taken(kind: EventFormat, avro: AvroOrders) -> None:
    encoding = avro if kind.is_avro else None
    whole, parts = OrderEvents(3, kind, encoding), OrderEvents(3, kind, encoding)
    first = list(parts.take(1000))
    taken = [*first, *parts.take(2000 - len(first))]
    assert list(whole.take(2000)) == taken
    assert whole.model.rows() == parts.model.rows()
    assert list(OrderEvents(4, kind, encoding).take(2000)) != taken


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


@pytest.mark.parametrize("kind", list(EventFormat))
def test_events_of_every_format_are_decoded_to_the_model_and_to_the_poison(kind: EventFormat, avro: AvroOrders) -> None:
    events = OrderEvents(7, kind, avro if kind.is_avro else None)
    sent = list(events.take(3000))
    schemas = (avro.registry,) if kind.is_avro else ()
    envelope = Envelope(event_columns(SCHEMA), ("order_id",), ("country",), ("updated_at",), kind, schemas)
    rows = Decoder(envelope).decode(kafka_messages([(one.key, one.value) for one in sent])).to_pylist()
    bad = {row["_lsm_offset"] - 100 for row in rows if row["_lsm_bad"] is not None}
    assert bad == {place for place, message in enumerate(sent) if message.poison}
    model, deleted = OrdersModel(), None
    for row in rows:
        if row["_lsm_bad"] is not None:
            continue
        # A tombstone right after the delete of its key repeats it.
        repeats, deleted = row["order_id"] == deleted, row["order_id"] if row["_lsm_delete"] else None
        if row["_lsm_tombstone"]:
            if not repeats:
                model.tombstone(row["order_id"])
        elif row["_lsm_delete"]:
            model.delete(row["order_id"], row["updated_at"])
        else:
            model.upsert(Order(**{name: row[name] for name in Order.__dataclass_fields__}))
    assert model.rows() == events.model.rows()
    assert len({message.poison for message in sent if message.poison}) == (6 if kind.is_debezium else 7)


def test_avro_events_without_a_registry_are_refused() -> None:
    with pytest.raises(ConfigError, match="need a schema registry"):
        OrderEvents(7, EventFormat.AVRO)


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
