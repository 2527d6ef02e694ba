"""Scans with random filters of random tables: the rows that the filter keeps of the whole table, whatever is pruned."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.query.scan import Scan
from streaming_lsm.schema import PARTITION_PATH, RECORD_KEY
from tests.support.crash_points import random_cases, sample

DAY = datetime.date(2026, 1, 1)
TEXTS = ["", "a", "ab", "b", "b:c", "ü", "\U0001f600", "é,b:x", "z" * 40, "__HIVE_DEFAULT_PARTITION__"]
VALUES: Mapping[str, Callable[[random.Random], object]] = {
    "id": lambda draw: f"k{draw.randrange(60):03d}",
    "number": lambda draw: draw.randrange(-20, 40),
    "part": lambda draw: draw.choice([None, "", "DE", "FR", "N L", "x=y", "a%2Fb", TEXTS[-1]]),
    "slashed": lambda draw: draw.choice([None, "a/b", "DE", "c/d/e"]),
    "day": lambda draw: draw.choice([None, *(DAY + datetime.timedelta(days) for days in range(4))]),
    "at": lambda draw: draw.randrange(1_767_225_600, 1_767_225_600 + 5 * 86_400, 3600),
    "ts": lambda draw: draw.randrange(8),
    "text": lambda draw: draw.choice([None, *TEXTS]),
    "real": lambda draw: draw.choice([None, 0.0, -0.0, 1.5, float("nan"), float("inf"), -3.0]),
    "flag": lambda draw: draw.choice([None, True, False]),
    "price": lambda draw: draw.choice([None, Decimal("1.50"), Decimal("-2.00"), Decimal("99.99")]),
    "when": lambda draw: datetime.datetime(2026, 1, draw.randrange(1, 9), tzinfo=datetime.UTC),
    "inner": lambda draw: draw.choice([None, {"x": draw.randrange(5), "y": None}, {"x": None, "y": "q"}]),
}
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("number", pa.int32()),
        ("part", pa.string()),
        ("slashed", pa.string()),
        ("day", pa.date32()),
        ("at", pa.int64()),
        ("ts", pa.int64()),
        ("text", pa.string()),
        ("real", pa.float64()),
        ("flag", pa.bool_()),
        ("price", pa.decimal128(9, 2)),
        ("when", pa.timestamp("us", "UTC")),
        ("inner", pa.struct([("x", pa.int64()), ("y", pa.string())])),
    ]
)
TIMESTAMP = {
    "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
}


@dataclass(frozen=True)
class Kind:
    """How the rows of a table are distributed: its key columns and partition columns, and options."""

    keys: str
    partitions: str = ""
    options: Mapping[str, object] | None = None


KINDS = {
    "no partitions": Kind("id"),
    "numbers as keys": Kind("number"),
    "texts": Kind("id", "part"),
    "days in folders of Hive": Kind("id", "day", {"hoodie.datasource.write.hive_style_partitioning": True}),
    "escaped texts": Kind("id", "part", {"hoodie.datasource.write.partitionpath.urlencode": True}),
    "two levels": Kind("id,number", "part,day"),
    "texts with slashes in two levels": Kind("id", "slashed,part"),
    "composite keys, hashed in part": Kind("number,id", "", {"hoodie.bucket.index.hash.field": "number"}),
    "one column of a composite key": Kind("id", "part", {"hoodie.table.keygenerator.type": "COMPLEX"}),
    "times": Kind("id", "at", {"hoodie.table.keygenerator.type": "TIMESTAMP", **TIMESTAMP}),
    "times and texts": Kind(
        "id", "part:SIMPLE,at:TIMESTAMP", {"hoodie.table.keygenerator.type": "CUSTOM", **TIMESTAMP}
    ),
    "default layout": Kind("id", "part", {"hoodie.table.storage.layout": "default"}),
    "version 9": Kind("id", "part", {"hoodie.write.table.version": 9}),
    "copy on write of version 9": Kind(
        "id", "part", {"hoodie.table.type": "COPY_ON_WRITE", "hoodie.write.table.version": 9}
    ),
    "copy on write": Kind("id", "part", {"hoodie.table.type": "COPY_ON_WRITE"}),
    "partial updates": Kind("id", "", {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}),
    "unavailable values": Kind(
        "id",
        "",
        {
            "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
            "hoodie.write.partial.update.unavailable.value": "ab",
        },
    ),
}


def create(folder: Path, kind: Kind) -> LsmTable:
    options: dict[str, object] = {
        "hoodie.table.name": "pruned",
        "hoodie.datasource.write.recordkey.field": kind.keys,
        "hoodie.table.ordering.fields": "ts",
        "hoodie.bucket.index.num.buckets": 3,
        "lsm.parquet.row.group.rows": 4,
        "lsm.log.key.index.accumulated": True,
        "hoodie.clean.automatic": False,
        "lsm.read.threads": 1,
        **(kind.options or {}),
    }
    if kind.partitions:
        options["hoodie.datasource.write.partitionpath.field"] = kind.partitions
    return LsmTable.create(folder / "table", SCHEMA, options)


def batch(draw: random.Random, count: int) -> pa.Table:
    columns = [pa.array([VALUES[name](draw) for _ in range(count)], SCHEMA.field(name).type) for name in SCHEMA.names]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def take_a_step(table: LsmTable, draw: random.Random) -> None:
    what = draw.choice(["upsert", "upsert", "upsert", "delete", "compact", "log"])
    if what == "upsert":
        table.upsert(batch(draw, draw.randrange(1, 40)))
    elif what == "delete":
        table.delete(batch(draw, draw.randrange(1, 10)))
    elif not table.config.is_copy_on_write:
        merges_logs = "hoodie.table.partial.update.mode" not in table.config.properties
        table.services.compact(LocalEngine(1), log=merges_logs and what == "log")


def condition(draw: random.Random, depth: int) -> pc.Expression:
    if depth and draw.random() < 0.6:
        left, right = condition(draw, depth - 1), condition(draw, depth - 1)
        return draw.choice([left & right, left & right, left | right, ~left])
    name = draw.choice([*SCHEMA.names, "id", "number", "part", "at", RECORD_KEY, PARTITION_PATH])
    if name == "inner":
        return draw.choice([pc.field("inner", "x") >= draw.randrange(6), pc.field("inner", "y").is_null()])
    field = pc.field(name)
    if name in (RECORD_KEY, PARTITION_PATH):
        return draw.choice(
            [field >= draw.choice(TEXTS), pc.starts_with(field, draw.choice(["k00", "id:k", "2026/01/0", "D"]))]
        )
    kind = SCHEMA.field(name).type
    drawn: list[Any] = [value for _ in range(9) if (value := VALUES[name](draw)) is not None] or [VALUES["ts"](draw)]
    value = pa.scalar(drawn[0], kind)
    choices = [
        field == value,
        field == value,
        field != value,
        field < value,
        field >= value,
        field.isin(pa.array(drawn[: draw.randrange(1, 4)], kind)),
        field.is_null(),
        field.is_valid(),
    ]
    if pa.types.is_string(kind):
        text = str(drawn[0])
        choices += [pc.starts_with(field, text[:2]), pc.match_like(field, text[:1].replace("%", "") + "%")]
    if name == "flag":
        choices.append(field)
    return draw.choice(choices)


def shown(rows: pa.Table) -> list[str]:
    """The rows as texts, since NaN differs from itself."""
    return sorted(map(repr, rows.to_pylist()))


def check(planned: Callable[[pc.Expression | None], Scan], draw: random.Random) -> int:
    """Compare filtered scans with the filtered rows of a whole one; return how many things were skipped."""
    whole, skipped = planned(None).to_arrow(), 0
    one_key = (pc.field("id") == "k001") & (pc.field("number") == 1)
    apart = random.Random(whole.num_rows)  # the draws of a seed stay as they are
    few = [pc.field(name).isin(pa.array([VALUES[name](apart)], SCHEMA.field(name).type)) for name in ("id", "number")]
    for wanted in (one_key, *few, *(condition(draw, 2) for _ in range(random_cases(3, 1)))):
        scan = planned(wanted)
        assert shown(scan.to_arrow()) == shown(whole.filter(wanted)), str(wanted)
        told = scan.explain()
        skipped += told.skipped.by_partition + told.skipped.by_bucket + told.counts.by_key + told.counts.by_values
        skipped += told.counts.by_bloom
    return skipped


@pytest.mark.parametrize("kind", sample(list(KINDS), 0, 2))
@pytest.mark.parametrize("seed", range(random_cases(20, 1)))
def test_a_pruned_scan_has_the_rows_of_the_filter(kind: str, seed: int, tmp_path: Path) -> None:
    draw = random.Random(f"{kind} {seed}")
    table = create(tmp_path, KINDS[kind])
    skipped = 0
    for _ in range(random_cases(4, 2)):
        take_a_step(table, draw)
        skipped += check(lambda wanted: table.scan(filter=wanted, meta=True), draw)
    while not table.file_slices():
        take_a_step(table, draw)
        skipped += check(lambda wanted: table.scan(filter=wanted, meta=True), draw)
    writes = table.timeline.completed_writes
    assert all(write.completed for write in writes)
    at = draw.choice(writes)
    check(lambda wanted: table.scan(filter=wanted, as_of=at.requested, meta=True), draw)
    check(lambda wanted: table.scan(filter=wanted, query_type="read_optimized", meta=True), draw)
    check(lambda wanted: table.incremental(str(at.completed), filter=wanted, meta=True), draw)
    assert skipped
