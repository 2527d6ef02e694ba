"""Tables that this package writes for Hudi to read: one history for each feature, told in events of a seeded stream."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm import LsmTable

Rows = pa.Table
Step = Callable[[LsmTable, np.random.Generator, int], None]
"""Does something to a table; the number of the step is a base for ordering values."""

ORDERS = pa.schema(
    [
        ("id", pa.string()),
        ("region", pa.string()),
        ("qty", pa.int32()),
        ("price", pa.float64()),
        ("note", pa.string()),
        ("ts", pa.int64()),
    ]
)
REGIONS = ("north", "south")
KEYS = 60


@dataclass(frozen=True)
class History:
    """A table and what happens to it.

    Attributes:
        name: of the case.
        schema: the table's columns.
        options: of the table, but for its version and type.
        steps: what is done, one after the other.
        hudi: options that Hudi's writer needs to go on with the table, beside those that the table states itself.
        types: table types that the history is for.
        versions: table versions that Hudi writes it in, too.
    """

    name: str
    schema: pa.Schema
    options: Mapping[str, object]
    steps: Sequence[Step]
    hudi: Mapping[str, str] = field(default_factory=dict)
    types: tuple[str, ...] = ("MERGE_ON_READ", "COPY_ON_WRITE")
    versions: tuple[int, ...] = (9, 8)

    def create(self, path: Path, version: int, table_type: str, more: Mapping[str, object] | None = None) -> LsmTable:
        """An empty table."""
        options = {
            "hoodie.table.name": path.name,
            "hoodie.write.table.version": version,
            "hoodie.datasource.write.table.type": table_type,
            "hoodie.bucket.index.num.buckets": 2,
            "hoodie.clean.automatic": False,
            **self.options,
            **(more or {}),
        }
        return LsmTable.create(path, self.schema, options)

    def play(self, table: LsmTable, steps: slice = slice(None)) -> None:
        """Do the steps."""
        for number, step in list(enumerate(self.steps))[steps]:
            step(table, np.random.default_rng(number), number)

    def hudi_options(self, table: LsmTable) -> dict[str, str]:
        """Options with which Hudi writes on."""
        return {
            "hoodie.table.name": table.config.name,
            "hoodie.datasource.write.table.type": table.config.table_type,
            "hoodie.datasource.write.recordkey.field": ",".join(table.config.record_key_fields),
            "hoodie.datasource.write.partitionpath.field": ",".join(
                str(part.name) for part in table.config.partition_fields
            ),
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": str(table.config.num_buckets),
            "hoodie.write.table.version": str(table.config.version),
            "hoodie.write.auto.upgrade": "false",
            "hoodie.compact.inline": "false",
            "hoodie.clean.automatic": "false",
            "hoodie.archive.automatic": "false",
            **self.hudi,
        }


def orders(rng: np.random.Generator, count: int, ts: int, keys: int = KEYS) -> Rows:
    """Rows of the plain table: some new, some late."""
    numbers = rng.permutation(keys)[:count]
    late = rng.random(count) < 0.2
    return pa.table(
        {
            "id": [f"ord-{number:04d}" for number in numbers],
            "region": [REGIONS[number % 2] for number in numbers],
            "qty": pa.array(rng.integers(0, 500, count), pa.int32()),
            "price": np.round(rng.random(count) * 1000, 2),
            "note": [None if number % 7 == 0 else f"n{ts}-{number}" for number in numbers],
            "ts": pa.array(np.where(late, ts - 15, ts), pa.int64()),
        },
        schema=ORDERS,
    )


def upsert(make: Callable[[np.random.Generator, int], Rows]) -> Step:
    return lambda table, rng, number: table.upsert(make(rng, number)) and None


def insert(make: Callable[[np.random.Generator, int], Rows]) -> Step:
    return lambda table, rng, number: table.insert(make(rng, number)) and None


def bulk_insert(make: Callable[[np.random.Generator, int], Rows]) -> Step:
    return lambda table, rng, number: table.bulk_insert(make(rng, number)) and None


def delete(make: Callable[[np.random.Generator, int], Rows]) -> Step:
    return lambda table, rng, number: table.delete(make(rng, number)) and None


def compact(table: LsmTable, _rng: np.random.Generator, _number: int) -> None:
    table.compact()


def _orders(count: int) -> Callable[[np.random.Generator, int], Rows]:
    return lambda rng, number: orders(rng, count, 100 + 10 * number)


def _keys(*columns: str) -> Callable[[np.random.Generator, int], Rows]:
    return lambda rng, number: orders(rng, 8, 100 + 10 * number).select(list(columns))


def _flagged(rng: np.random.Generator, number: int) -> Rows:
    rows = orders(rng, 20, 100 + 10 * number)
    return rows.append_column("_hoodie_is_deleted", pa.array(rng.random(20) < 0.4))


def _marked(rng: np.random.Generator, number: int) -> Rows:
    rows = orders(rng, 20, 100 + 10 * number)
    return rows.append_column("op", pa.array(np.where(rng.random(20) < 0.4, "D", "U")))


SIMPLE = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "region",
    "hoodie.table.ordering.fields": "ts",
}
UNPARTITIONED = {"hoodie.datasource.write.recordkey.field": "id"}
NONPARTITIONED = {
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
}
COMPLEX = {"hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator"}

TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.date32()),
        ("i", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("dec", pa.decimal128(20, 4)),
        ("dec9", pa.decimal128(9, 2)),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("bo", pa.bool_()),
        ("dt", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("tn", pa.timestamp("us")),
        ("arr", pa.list_(pa.int32())),
        ("arr_s", pa.list_(pa.string())),
        ("m", pa.map_(pa.string(), pa.float64())),
        ("st", pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", pa.list_(pa.int64()))])),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)


def all_types(rng: np.random.Generator, count: int, step: int) -> Rows:
    """Rows of every type, each column null in some of them."""
    moment = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC) + datetime.timedelta(seconds=step)

    def row(number: int) -> dict[str, Any]:
        values: dict[str, Any] = {
            "i": int(rng.integers(-(2**31), 2**31)),
            "f": float(np.float32(rng.normal())),
            "d": float(rng.normal() * 10.0 ** int(rng.integers(-300, 300))),
            "dec": decimal.Decimal(int(rng.integers(-(10**18), 10**18))).scaleb(-4),
            "dec9": decimal.Decimal(int(rng.integers(-(10**8), 10**8))).scaleb(-2),
            "s": ["", "plain", "Übergröße", "東京", '😀 quote" back\\slash'][int(rng.integers(5))],
            "b": bytes(rng.integers(0, 256, int(rng.integers(0, 9)), np.uint8)),
            "bo": bool(rng.integers(2)),
            "dt": datetime.date(1920, 1, 1) + datetime.timedelta(days=int(rng.integers(0, 60_000))),
            "t": datetime.datetime(1920, 1, 1, tzinfo=datetime.UTC)
            + datetime.timedelta(microseconds=int(rng.integers(0, 5 * 10**15))),
            "tn": datetime.datetime(1920, 1, 1) + datetime.timedelta(microseconds=int(rng.integers(0, 5 * 10**15))),
            "arr": [int(value) for value in rng.integers(-9, 9, int(rng.integers(0, 4)))],
            "arr_s": [None if rng.random() < 0.2 else f"e{n}" for n in range(int(rng.integers(0, 4)))],
            "m": [(f"k{n}", None if rng.random() < 0.3 else float(n)) for n in range(int(rng.integers(0, 3)))],
            "st": {"a": int(rng.integers(9)), "b": f"st{number}", "c": None if rng.random() < 0.5 else [1, 2]},
        }
        values = {name: None if rng.random() < 0.2 else value for name, value in values.items()}
        part = datetime.date(2024, 1, 1 + number % 2)
        return {"id": number, "part": part, **values, "ts": moment}

    numbers = rng.permutation(40)[:count] - 5
    return pa.Table.from_pylist([row(int(number)) for number in numbers], schema=TYPES)


COMPOSITE = pa.schema([("tenant", pa.string()), ("seq", pa.int32()), ("n", pa.int64()), ("ts", pa.int32())])


def composite(rng: np.random.Generator, count: int, ts: int) -> Rows:
    """Rows of a table with two key fields, not all of them ASCII."""
    tenants = ["東京", "Müller", "a:b,c", "Ωmega"]
    numbers = rng.permutation(60)[:count]
    return pa.table(
        {
            "tenant": [tenants[number % 4] for number in numbers],
            "seq": pa.array(numbers // 4 - 5, pa.int32()),
            "n": pa.array(rng.integers(0, 10**12, count)),
            "ts": pa.array(np.full(count, ts), pa.int32()),
        },
        schema=COMPOSITE,
    )


HISTORIES = [
    History(
        "event_time",
        ORDERS,
        SIMPLE,
        [
            upsert(_orders(40)),
            upsert(_orders(30)),
            delete(_keys("id", "region", "ts")),
            delete(_keys("id", "region")),
            upsert(_orders(20)),
        ],
    ),
    History(
        "commit_time",
        ORDERS,
        UNPARTITIONED,
        [upsert(_orders(40)), delete(_keys("id")), upsert(_orders(30)), delete(_keys("id"))],
        NONPARTITIONED,
    ),
    History(
        "base_files_and_compaction",
        ORDERS,
        SIMPLE,
        [
            bulk_insert(_orders(50)),
            upsert(_orders(30)),
            delete(_keys("id", "region")),
            compact,
            upsert(_orders(20)),
            delete(_keys("id", "region", "ts")),
        ],
    ),
    History(
        "parquet_blocks",
        ORDERS,
        {**SIMPLE, "hoodie.logfile.data.block.format": "parquet"},
        [upsert(_orders(40)), upsert(_orders(30)), delete(_keys("id", "region")), upsert(_orders(20))],
        types=("MERGE_ON_READ",),
    ),
    History(
        "flagged_deletes",
        ORDERS.append(pa.field("_hoodie_is_deleted", pa.bool_())),
        SIMPLE,
        [upsert(_flagged), upsert(_flagged), upsert(_flagged)],
    ),
    History(
        "all_types",
        TYPES,
        {
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "part",
            "hoodie.table.ordering.fields": "ts",
        },
        [
            upsert(lambda rng, n: all_types(rng, 30, n)),
            upsert(lambda rng, n: all_types(rng, 20, n)),
            compact,
            upsert(lambda rng, n: all_types(rng, 10, n)),
        ],
    ),
    History(
        "marked_deletes",
        ORDERS.append(pa.field("op", pa.string())),
        {**SIMPLE, "hoodie.payload.delete.field": "op", "hoodie.payload.delete.marker": "D"},
        [upsert(_marked), upsert(_marked), upsert(_marked)],
    ),
    History(
        "one_key_of_complex",
        ORDERS,
        {**SIMPLE, "hoodie.datasource.write.keygenerator.type": "COMPLEX"},
        [upsert(_orders(40)), upsert(_orders(30)), delete(_keys("id", "region", "ts"))],
        COMPLEX,
        versions=(9,),
    ),
    History(
        "composite_keys",
        COMPOSITE,
        {
            "hoodie.datasource.write.recordkey.field": "tenant,seq",
            "hoodie.table.ordering.fields": "ts",
        },
        [upsert(lambda rng, n: composite(rng, 40, n)), upsert(lambda rng, n: composite(rng, 30, n))],
        NONPARTITIONED,
    ),
    History(
        "hive_style",
        ORDERS,
        {
            **SIMPLE,
            "hoodie.datasource.write.hive_style_partitioning": True,
            "hoodie.datasource.write.partitionpath.urlencode": True,
        },
        [upsert(_orders(40)), upsert(_orders(30)), delete(_keys("id", "region", "ts"))],
        {
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.datasource.write.partitionpath.urlencode": "true",
        },
    ),
]
