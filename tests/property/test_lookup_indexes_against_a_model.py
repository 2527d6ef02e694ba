"""Tables without buckets: random batches show the rows of a model, whatever index, version and file sizes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from tests.support.crash_points import random_cases

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("p", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.int64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
KINDS = [(version, kind) for version in (8, 9, 10) for kind in ("MERGE_ON_READ", "COPY_ON_WRITE")]
INDEXES = ["SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "GLOBAL_BLOOM", "RECORD_INDEX", "RECORD_LEVEL_INDEX"]
MOVES = {
    "GLOBAL_SIMPLE": "hoodie.simple.index.update.partition.path",
    "GLOBAL_BLOOM": "hoodie.bloom.index.update.partition.path",
    "RECORD_INDEX": "hoodie.record.index.update.partition.path",
}


@dataclass(frozen=True)
class Row:
    key: str
    partition: str
    ts: int
    value: int
    deleted: bool


@dataclass
class Model:
    """The rows of a table by what makes a row: key and partition, or the key alone.

    Attributes:
        by_key: whether the key alone does.
        moves: whether the partition is that of the event that wins.
        ordered: whether the larger `ts` wins.
    """

    by_key: bool
    moves: bool
    ordered: bool

    def __post_init__(self) -> None:
        self.rows: dict[object, tuple[Row, str]] = {}

    def identity(self, row: Row) -> object:
        return row.key if self.by_key else (row.key, row.partition)

    def lives(self, row: Row) -> bool:
        found = self.rows.get(self.identity(row))
        return found is not None and not found[0].deleted

    def write(self, batch: list[Row]) -> None:
        """Reduce the batch to the winner of each row, then write it to the partition that the row has, or its own."""
        before = dict(self.rows)
        for row in batch:
            found = self.rows.get(self.identity(row))
            if found is not None and self.ordered and found[0].ts > row.ts:
                continue
            known = before.get(self.identity(row))
            stays = known is not None and not known[0].deleted and not self.moves
            self.rows[self.identity(row)] = (row, known[1] if stays and known else row.partition)

    @property
    def shown(self) -> list[tuple[str, str, int, str]]:
        live = ((row, path) for row, path in self.rows.values() if not row.deleted)
        return sorted((row.key, row.partition, row.value, path) for row, path in live)


def draw_batch(draw: random.Random, number: int, model: Model) -> list[Row]:
    """Late events come in batches without deletes, and only for keys that live.

    A delete that a compaction merged, or of a key that the table does not have, is forgotten.
    """
    rows = []
    for place in range(draw.choice([1, 5, 200])):
        row = Row(f"k{draw.randrange(120)}", draw.choice("abc"), number * 1000 + place, draw.randrange(1000), False)
        if number % 2 and model.ordered and draw.random() < 0.25 and model.lives(row):
            row = Row(row.key, row.partition, draw.randrange(number * 1000 + 1), row.value, False)
        elif not number % 2 and draw.random() < 0.15:
            row = Row(row.key, row.partition, row.ts, row.value, True)
        rows.append(row)
    return rows


def as_table(rows: list[Row]) -> pa.Table:
    columns = [[getattr(row, name) for row in rows] for name in ("key", "partition", "ts", "value", "deleted")]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


def shown(table: LsmTable) -> list[tuple[str, str, int, str]]:
    found = table.scan(columns=["k", "p", "v", "_hoodie_partition_path"]).to_arrow().to_pylist()
    return sorted((row["k"], row["p"], row["v"], row["_hoodie_partition_path"]) for row in found)


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("seed", range(random_cases(24, 1)))
def test_batches_show_the_rows_of_the_model(index: str, seed: int, tmp_path: Path) -> None:
    draw = random.Random(f"{index} {seed}")
    # Two cases of each index have every kind of table among them.
    version, kind = KINDS[(seed * 3 + INDEXES.index(index)) % len(KINDS)]
    model = Model(index in MOVES, draw.random() < 0.7 if index in MOVES else True, draw.random() < 0.6)
    sizes: dict[str, object] = {
        "hoodie.parquet.max.file.size": draw.choice([120 << 20, 6000]),
        "hoodie.parquet.small.file.limit": draw.choice([0, 5000, 100 << 20]),
        **({MOVES[index]: model.moves} if index in MOVES else {}),
    }
    fixed: dict[str, object] = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "k",
        "hoodie.datasource.write.partitionpath.field": "p",
        "hoodie.index.type": index,
        "hoodie.write.table.version": version,
        "hoodie.datasource.write.table.type": kind,
        **({"hoodie.table.ordering.fields": "ts"} if model.ordered else {}),
    }
    table = LsmTable.create(tmp_path, SCHEMA, {**fixed, **sizes})
    for number in range(8):
        rows = draw_batch(draw, number, model)
        if draw.random() < 0.3:
            table = LsmTable(tmp_path, sizes)
        table.upsert(as_table(rows))
        model.write(rows)
        if draw.random() < 0.2:
            table.compact()
        assert shown(table) == model.shown, f"batch {number}"
    ids = [(one.partition_path, one.file_id) for one in table.file_slices()]
    assert len(set(ids)) == len(ids)
