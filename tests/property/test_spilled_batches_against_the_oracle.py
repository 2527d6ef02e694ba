"""Batches many times the budget, in files of many rolls: every reader sees what one large memory would have written."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.format.table.file_names import LogFileName, parse_file_name
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("value", pa.string())])
ROWS = 30_000


@functools.cache
def batch(seed: int) -> pa.Table:
    """Rows, deletes and unordered deletes of 20,000 keys in three partitions."""
    random = np.random.default_rng(seed)
    numbers = random.integers(0, 20_000, ROWS)
    gone = random.random(ROWS) < 0.2
    drawn = random.bytes(20 * ROWS).hex()
    rows = {
        "id": [f"order-{number:08d}" for number in numbers],
        "part": [f"p{number % 3}" for number in numbers],
        "ts": pa.array(random.integers(0, 40, ROWS), mask=gone & (random.random(ROWS) < 0.5)),
        "value": [drawn[place : place + 40] for place in range(0, 40 * ROWS, 40)],
        "_lsm_delete": gone,
    }
    return pa.table(rows, schema=pa.schema([*SCHEMA, ("_lsm_delete", pa.bool_())]))


def create(path: Path, **options: Any) -> LsmTable:
    chosen = {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.bucket.index.num.buckets": 1,
        "lsm.read.threads": 1,
        **{key.replace("_", "."): value for key, value in options.items()},
    }
    return LsmTable.create(path, SCHEMA, chosen)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        table.select(SCHEMA.names).sort_by([("part", "ascending"), ("id", "ascending")]).to_pylist()
    )
    return rows


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_a_spilled_and_rolled_over_write_reads_like_one_from_memory(tmp_path: Path, operation: str) -> None:
    tight = {
        "lsm_write_buffer_bytes": 1 << 20,
        "hoodie_logfile_max_size": 1,
        "lsm_parquet_row_group_rows": 200,
    }
    small, large = create(tmp_path / "small", **tight), create(tmp_path / "large")
    for number, way in enumerate([operation, "upsert"]):
        for table in (small, large):
            getattr(table, way)(batch(number))
    assert validate(tmp_path / "small") == []
    expected = rows_of(large.scan().to_arrow())
    assert rows_of(small.scan().to_arrow()) == expected
    assert rows_of(read_snapshot(tmp_path / "small")) == expected
    assert len(expected) > 10_000
    ranges = log_ranges(tmp_path / "small")
    assert max(len(rolls) for rolls in ranges.values()) > 3
    for rolls in ranges.values():
        versions = sorted(rolls)
        for one, other in itertools.pairwise(versions):
            assert rolls[one][1] < rolls[other][0]


def log_ranges(root: Path) -> dict[tuple[str, str, str], dict[int, tuple[str, str]]]:
    """First and last key of each version of each file group's data logs, by partition, file id and instant."""
    found: dict[tuple[str, str, str], dict[int, tuple[str, str]]] = {}
    for path in root.glob("p*/*.log.parquet"):
        name = parse_file_name(path.name)
        assert isinstance(name, LogFileName)
        keys = pq.read_table(path, columns=["_hoodie_record_key"])["_hoodie_record_key"]
        place = (path.parent.name, name.file_id, name.instant)
        found.setdefault(place, {})[name.version] = (keys[0].as_py(), keys[-1].as_py())
    return found
