"""Random histories of a table whose columns change, against a model in Python: snapshots, the past, and filters."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from tests.support.crash_points import EVERY_CALL, random_cases

KINDS: dict[str, dict[str, object]] = {
    "sorted logs": {},
    "default layout": {"hoodie.table.storage.layout": "default"},
    "version 9": {"hoodie.write.table.version": 9},
    "version 8": {"hoodie.write.table.version": 8},
    "copy on write": {"hoodie.table.type": "COPY_ON_WRITE"},
}
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "evolving",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 2,
    "lsm.parquet.row.group.rows": 4,
    "hoodie.clean.automatic": False,
    "hoodie.write.set.null.for.missing.columns": True,
    "lsm.read.threads": 1,
}
CHAINS = {
    "whole": (pa.int32(), pa.int64(), pa.string()),
    "real": (pa.float32(), pa.float64(), pa.string()),
    "number": (pa.int32(), pa.int64(), pa.float64()),
    "text": (pa.string(), pa.binary()),
}
"""The types of each column, from narrow to wide."""
DRAWN: dict[pa.DataType, Callable[[random.Random], Any]] = {
    pa.int32(): lambda draw: draw.randrange(-50, 50),
    pa.int64(): lambda draw: draw.choice([2**40, -(2**40), 7]),
    pa.float32(): lambda draw: draw.choice([0.1, -2.5, 7.0]),
    pa.float64(): lambda draw: draw.choice([0.1, 7.5, 1e300]),
    pa.string(): lambda draw: draw.choice(["", "7", "0.1", "ä"]),
    pa.binary(): lambda draw: draw.choice([b"7", b"\xff"]),
}
Value = Any
Row = dict[str, Value]


def widened(value: Value, kind: pa.DataType) -> Value:
    """A number or text as the wider type has it; texts of floats as Java prints them."""
    if value is None or isinstance(value, dict):
        return value
    if pa.types.is_float32(kind):
        return float(np.float32(value))
    if pa.types.is_float64(kind):
        return float(value)
    if pa.types.is_string(kind):
        return "1.0E300" if value == 1e300 else str(value)
    return value.encode() if pa.types.is_binary(kind) and isinstance(value, str) else value


@dataclass
class Model:
    """The table as it should be.

    Attributes:
        levels: how wide the columns of `CHAINS` are that the table has.
        written: how wide they were in the last batch.
        fields: number of fields of the column `inner`, which are added one by one.
        rows: live rows by key, and the ordering value of the last event of each key.
    """

    draw: random.Random
    levels: dict[str, int] = field(default_factory=lambda: {"whole": 0, "real": 0})
    written: dict[str, int] = field(default_factory=dict)
    fields: int = 0
    order: int = 0  # 0: int, 1: long
    rows: dict[str, Row] = field(default_factory=dict)

    def evolve(self) -> None:
        change = self.draw.randrange(4)
        name = self.draw.choice(list(CHAINS))
        if change < 2 and name in self.levels:
            self.levels[name] = min(self.levels[name] + 1, len(CHAINS[name]) - 1)
        elif change < 2:
            self.levels[name] = 0
        elif change == 2:
            self.fields = min(self.fields + 1, 3)
        else:
            self.order = 1

    @property
    def schema(self) -> pa.Schema:
        inner = [pa.field("inner", pa.struct([(f"f{place}", pa.int32()) for place in range(self.fields)]))]
        kinds = [pa.field(name, CHAINS[name][level]) for name, level in self.levels.items()]
        order = pa.field("ts", (pa.int32(), pa.int64())[self.order])
        return pa.schema([pa.field("id", pa.string()), order, *kinds, *(inner if self.fields else [])])

    def batch(self, ts: int) -> pa.Table:
        """Rows of columns in any order, of which one that is not new may be missing; they take effect in the model."""
        schema = list(self.schema)
        self.draw.shuffle(schema)
        if self.levels == self.written and self.draw.random() < 0.3:
            schema = [each for each in schema if each.name != "whole"]
        keys = sorted({f"k{self.draw.randrange(30):02d}" for _ in range(self.draw.randrange(1, 12))})
        rows = [{each.name: self._value(each, key, ts) for each in schema} for key in keys]
        self.written = dict(self.levels)
        self.rows |= {row["id"]: row for row in rows}
        return pa.Table.from_pylist(rows, schema=pa.schema(schema))

    def _value(self, column: pa.Field, key: str, ts: int) -> Value:
        if column.name in ("id", "ts"):
            return key if column.name == "id" else ts
        if self.draw.random() < 0.2:
            return None
        if column.name == "inner":
            return {child.name: self.draw.choice([None, 1, 2]) for child in column.type.fields}
        return DRAWN[column.type](self.draw)

    def shown(self) -> list[Row]:
        """The live rows as a query returns them."""
        found = []
        for row in self.rows.values():
            whole = {each.name: widened(row.get(each.name), each.type) for each in self.schema}
            if whole.get("inner") is not None:
                whole["inner"] = {f"f{place}": whole["inner"].get(f"f{place}") for place in range(self.fields)}
            found.append(whole)
        return sorted(found, key=lambda row: str(row["id"]))


def shown(table: LsmTable, **how: Any) -> list[Row]:
    return sorted(table.scan(**how).to_arrow().to_pylist(), key=lambda row: str(row["id"]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(random_cases(40, 1)))
def test_rows_of_every_moment_are_those_of_the_model(tmp_path: Path, kind: str, seed: int) -> None:
    draw = random.Random(f"{kind} {seed}")
    model = Model(draw)
    table = LsmTable.create(tmp_path, model.schema, {**OPTIONS, **KINDS[kind]})
    past: list[tuple[str, list[Row]]] = []
    for ts in range(1, 9):
        model.evolve()
        write = table.upsert(model.batch(ts))
        assert write is not None
        if draw.random() < 0.3:
            gone = draw.sample(sorted(model.rows), k=min(3, len(model.rows)))
            kinds = pa.schema([("id", pa.string()), ("ts", model.schema.field("ts").type)])
            write = table.delete(pa.table([gone, [ts] * len(gone)], schema=kinds))
            assert write is not None
            model.rows = {key: row for key, row in model.rows.items() if key not in gone}
        past.append((write.requested, model.shown()))
        if draw.random() < 0.3 and "copy" not in kind:
            table.compact()
        table = LsmTable(tmp_path, table.options)
        assert set(table.schema.names) == set(model.schema.names)
        assert shown(table) == model.shown()
        check_filters(table, draw)
    for moment, expected in past:
        assert shown(table, as_of=moment) == expected


def check_filters(table: LsmTable, draw: random.Random) -> None:
    """A filter keeps the rows that it keeps of the whole table."""
    everything = table.scan().to_arrow()
    for name in ("whole", "real", "number", "ts", "id"):
        if name not in everything.column_names or not everything.num_rows:
            continue
        value = everything.column(name)[draw.randrange(everything.num_rows)]
        if not value.is_valid:
            continue
        conditions = [pc.field(name) == value, pc.field(name) > value, pc.field(name) <= value]
        for wanted in conditions if EVERY_CALL else [conditions[everything.num_rows % 3]]:
            found, expected = table.scan(filter=wanted).to_arrow(), everything.filter(wanted)
            assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist())), (name, value)
