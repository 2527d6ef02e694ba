"""Order events for streams: deterministic, with updates, late rows and deletes, and what must be left of them."""

from __future__ import annotations

import datetime
import random
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

EPOCH = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SCHEMA = pa.schema(
    [
        ("order_id", pa.string()),
        ("country", pa.string()),
        ("qty", pa.int32()),
        ("updated_at", pa.timestamp("us", "UTC")),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
SPARK_SCHEMA = "order_id STRING, country STRING, qty INT, updated_at TIMESTAMP, _hoodie_is_deleted BOOLEAN"
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "order_id",
    "hoodie.datasource.write.partitionpath.field": "country",
    "hoodie.table.ordering.fields": "updated_at",
    "hoodie.bucket.index.num.buckets": 4,
}


@dataclass(frozen=True)
class Order:
    """One event; a deleted order keeps its values."""

    order_id: str
    country: str
    qty: int
    updated_at: datetime.datetime
    deleted: bool


def make_orders(count: int, seed: int, keys: int = 300) -> list[Order]:
    """`count` events over `keys` orders; about one in ten is late, one in ten a delete, no two tie."""
    chance = random.Random(seed)
    orders = []
    for number in range(count):
        key = chance.randrange(keys)
        late = chance.random() < 0.1
        moment = EPOCH + datetime.timedelta(seconds=number - (500 if late else 0), microseconds=seed * 10_000 + number)
        orders.append(Order(f"o{key:06d}", ["DE", "FR", "JP"][key % 3], number, moment, chance.random() < 0.1))
    return orders


def to_arrow(orders: list[Order]) -> pa.Table:
    """The events as a batch."""
    columns = [
        [order.order_id for order in orders],
        [order.country for order in orders],
        [order.qty for order in orders],
        [order.updated_at for order in orders],
        [order.deleted for order in orders],
    ]
    return pa.table(columns, schema=SCHEMA)


def write_source(folder: Path, name: str, orders: list[Order]) -> None:
    """Put the events where a file stream finds them, all at once."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{name}"
    pq.write_table(to_arrow(orders), hidden)
    hidden.rename(folder / f"{name}.parquet")


def final_rows(orders: list[Order]) -> dict[str, tuple[str, int, datetime.datetime]]:
    """What is left by event time, the later event on ties."""
    state: dict[str, Order] = {}
    for order in orders:
        if order.order_id not in state or state[order.order_id].updated_at <= order.updated_at:
            state[order.order_id] = order
    return {o.order_id: (o.country, o.qty, o.updated_at) for o in state.values() if not o.deleted}


def rows_of(table: pa.Table) -> dict[str, tuple[str, int, datetime.datetime]]:
    """The rows of a snapshot in the form of `final_rows`."""
    rows = table.select(["order_id", "country", "qty", "updated_at"]).to_pylist()
    found = {row["order_id"]: (row["country"], row["qty"], row["updated_at"]) for row in rows}
    assert len(found) == len(rows), "an order is shown twice"
    return found
