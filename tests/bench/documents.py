"""Kafka messages that the benchmarks decode: orders as JSON rows, and as Debezium envelopes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from streaming_lsm import EventFormat
from tests.bench.workload import KEY, ORDERING, orders

SCHEMA = pa.schema(
    {
        KEY: pa.string(),
        "customer_id": pa.int64(),
        "country": pa.string(),
        "status": pa.string(),
        "item": pa.string(),
        "qty": pa.int32(),
        "price": pa.decimal128(10, 2),
        "discount": pa.float64(),
        "express": pa.bool_(),
        "created_at": pa.int64(),
        ORDERING: pa.int64(),
    }
)
"""Columns of the rows."""
_SOURCE = (
    b'"source":{"version":"2.7","connector":"postgresql","name":"shop","ts_ms":1767225600000,"snapshot":"false",'
    b'"db":"shop","schema":"public","table":"orders","txId":5550,"lsn":24023128,"xmin":null},"op":"u",'
    b'"ts_ms":1767225600123}'
)


def documents(count: int, keys: int, kind: EventFormat, poison: int | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of `count` messages; of `poison` documents one is bad, in one of four ways."""
    table = orders(count, keys, seed=1)
    for name in ("created_at", ORDERING):
        table = table.set_column(table.schema.get_field_index(name), name, table.column(name).cast(pa.int64()))
    for number, row in enumerate(table.to_pylist()):
        value = json.dumps(row, separators=(",", ":")).encode()
        if poison and number % poison == 0:
            bad = (
                value[:-9],
                value.replace(b'"qty":', b'"qty":"many","other":'),
                value.replace(b'"qty":', b'"qty":1.5,"other":'),
                value.replace(b'"item":', b'"item":nul,"other":'),
            )
            value = bad[number // poison % len(bad)]
        if kind is EventFormat.DEBEZIUM:
            value = b'{"before":null,"after":' + value + b"," + _SOURCE
        yield row[KEY].encode(), value
