"""Every query answers after log compactions as before, and full compactions and cleans follow them."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.crash_points import random_cases, sample
from tests.support.log_compaction import compact_logs, live_logs
from tests.support.small_tables import create

ONE_GROUP: dict[str, object] = {
    "hoodie.bucket.index.num.buckets": 1,
    "hoodie.datasource.write.partitionpath.field": None,
    "hoodie.clean.automatic": False,
}
TABLES: dict[str, dict[str, object]] = {
    "lsm-tree": {},
    "commit-time": {"hoodie.table.ordering.fields": None},
    "default-layout": {"hoodie.table.storage.layout": "default"},
    "version-9": {"hoodie.write.table.version": 9, "hoodie.table.storage.layout": "default"},
    "version-9-parquet": {
        "hoodie.write.table.version": 9,
        "hoodie.table.storage.layout": "default",
        "hoodie.logfile.data.block.format": "parquet",
    },
}
each_table = pytest.mark.parametrize("options", TABLES.values(), ids=TABLES)
FIELDS = [("id", pa.string()), ("ts", pa.int64()), ("v", pa.int64()), ("_hoodie_is_deleted", pa.bool_())]
SCHEMA = pa.schema(FIELDS)
KEYS = [f"k{number}" for number in range(12)]


def written(root: Path, options: dict[str, object], *, seed: int = 1, writes: int = 8) -> LsmTable:
    """A base file, then writes with rising and falling ordering values, flagged rows and all kinds of deletes."""
    table = create(root, SCHEMA, **{**ONE_GROUP, **options})
    chance = random.Random(seed)
    change(table, chance, 0)
    table.compact()
    for write in range(1, writes):
        change(table, chance, write)
    return table


def change(table: LsmTable, chance: random.Random, write: int) -> None:
    keys = chance.sample(KEYS, 7)
    ts = [chance.randrange(5) for _ in keys]
    if write and chance.random() < 0.4:
        ordered = bool(table.rule.ordering_fields) and chance.random() < 0.5
        table.delete(pa.table({"id": keys, "ts": ts} if ordered else {"id": keys}))
        return
    gone = [chance.random() < 0.2 for _ in keys]
    columns = [keys, ts, [100 * write + place for place in range(len(keys))], gone]
    table.upsert(pa.table([pa.array(column) for column in columns], schema=SCHEMA))


def answers(table: LsmTable, times: list[str]) -> dict[str, list[Any]]:
    """What all kinds of queries return."""
    found = {"snapshot": table.scan(meta=True).to_arrow().drop_columns("_hoodie_file_name").to_pylist()}
    found["changes"] = table.changes(times[0]).to_arrow().to_pylist()
    for begin, end in sample(list(pairwise(times)), 1, 2):
        found[f"as of {begin}"] = table.scan(as_of=begin).to_arrow().to_pylist()
        found[f"from {begin}"] = table.incremental(begin).to_arrow().to_pylist()
        found[f"from {begin} to {end}"] = table.incremental(begin, end).to_arrow().to_pylist()
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


def times_of(table: LsmTable) -> list[str]:
    return [write.completed or "" for write in table.timeline.completed_writes]


def assert_as(table: LsmTable, expected: dict[str, list[Any]], times: list[str]) -> None:
    found = answers(LsmTable(table.path), times)
    for name, answer in expected.items():
        assert found[name] == answer, name
    root = table.path.removeprefix("file://")
    if table.config.version >= 10:
        snapshot = read_snapshot(root, with_meta=True).drop_columns("_hoodie_file_name").to_pylist()
        assert sorted(snapshot, key=repr) == expected["snapshot"]
    assert_valid(table)


def assert_valid(table: LsmTable) -> None:
    if table.config.is_lsm_tree:
        # The helper has no plan on the timeline, which the validator misses.
        found = [str(violation) for violation in validate(table.path.removeprefix("file://"))]
        assert [text for text in found if not text.startswith("commit.operation")] == []


@pytest.mark.parametrize("kind", sample(list(TABLES), 0, 2))
@pytest.mark.parametrize("seed", range(1, 1 + random_cases(8, 1)))
def test_every_query_answers_as_before(tmp_path: Path, kind: str, seed: int) -> None:
    table = written(tmp_path, TABLES[kind], seed=seed)
    times = times_of(table)
    expected = answers(table, times)
    (found,) = table.file_slices()
    compact_logs(table, lambda instants: instants[1:5])
    assert len({log.name.instant for log in live_logs(table, *table.file_slices())}) == 7 - 4 + 1
    assert_as(table, expected, times)
    compact_logs(table, lambda instants: instants[:3])
    assert len({log.name.instant for log in live_logs(table, *table.file_slices())}) == 2
    assert_as(table, expected, times)
    compact_logs(table)
    (after,) = table.file_slices()
    assert set(found.logs) < set(after.logs)
    assert len({log.name.instant for log in live_logs(table, after)}) == 1
    assert_as(table, expected, times)


@each_table
def test_a_full_compaction_and_a_clean_follow_it(tmp_path: Path, options: dict[str, object]) -> None:
    table = written(tmp_path, options)
    compact_logs(table, lambda instants: instants[2:])
    change(table, random.Random(7), 10)
    compact_logs(table)
    expected = sorted(table.scan().to_arrow().to_pylist(), key=repr)
    assert table.compact() is not None
    assert sorted(table.scan().to_arrow().to_pylist(), key=repr) == expected
    LsmTable(tmp_path, {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS"}).clean()
    assert sorted(table.scan().to_arrow().to_pylist(), key=repr) == expected
    assert_valid(table)
    if table.config.is_lsm_tree:
        assert read_snapshot(tmp_path).to_pylist() == expected
