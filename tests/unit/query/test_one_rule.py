"""One answer in version 10, whatever the layout and the compactions; Hudi's up to version 9.

Where Hudi's readers of default-layout tables answer otherwise: a delete without ordering between a larger and a smaller
row, and base files that repeat a key.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from tests.oracle.reader import read_snapshot
from tests.support.crash_points import sample

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("value", pa.string())])


KINDS = ["MERGE_ON_READ", "COPY_ON_WRITE"]


def create(path: Path, version: int, layout: str, kind: str = "MERGE_ON_READ", **others: object) -> LsmTable:
    options = {
        "hoodie.table.name": "orders",
        "hoodie.table.type": kind,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.bucket.index.num.buckets": 1,
        "hoodie.write.table.version": version,
        "lsm.read.threads": 1,
        **({"hoodie.table.storage.layout": layout} if version >= 10 else {}),
        **others,
    }
    return LsmTable.create(path, SCHEMA, {key: value for key, value in options.items() if value is not None})


def rows(ts: int, value: str) -> pa.Table:
    return twice((ts, value))


def twice(*values: tuple[int, str]) -> pa.Table:
    """Rows of one key."""
    return pa.table([["a"] * len(values), *map(list, zip(*values, strict=True))], schema=SCHEMA)


def shown(table: LsmTable) -> list[tuple[int, str]]:
    return [(row["ts"], row["value"]) for row in table.scan().to_arrow().to_pylist()]


WAYS = [(10, "lsm_tree"), (10, "default"), (9, "default"), (8, "default")]


@pytest.mark.parametrize(("version", "layout"), WAYS)
@pytest.mark.parametrize("compacted", [(), (1,), (2,), (3,), (1, 2, 3)], ids=str)
def test_what_follows_an_unordered_delete_wins_in_version_10_whatever_the_layout_and_the_compactions(
    tmp_path: Path, version: int, layout: str, compacted: tuple[int, ...]
) -> None:
    table = create(tmp_path, version, layout)
    steps = [
        lambda: table.bulk_insert(rows(10, "base")),
        lambda: table.delete(pa.table({"id": ["a"]})),
        lambda: table.upsert(rows(1, "new")),
    ]
    for number, step in enumerate(steps, 1):
        step()
        if number in compacted:
            table.compact()
    left_to_right = version >= 10 or 2 in compacted  # a compaction in between has carried the delete out
    assert shown(table) == [(1, "new") if left_to_right else (10, "base")]
    if version >= 10:
        assert [(row["ts"], row["value"]) for row in read_snapshot(tmp_path).to_pylist()] == [(1, "new")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("version", "layout"), WAYS)
def test_within_one_batch_it_is_the_same(tmp_path: Path, version: int, layout: str, kind: str) -> None:
    table = create(tmp_path, version, layout, kind)
    table.bulk_insert(rows(10, "base"))
    batch = pa.table(
        [["a", "a"], [None, 1], [None, "new"], [True, False]],
        schema=pa.schema([*SCHEMA, ("_lsm_delete", pa.bool_())]),
    )
    table.upsert(batch)
    assert shown(table) == [(1, "new") if version >= 10 else (10, "base")]


def test_an_upgrade_changes_no_row_and_what_follows_it_merges_by_the_rule_of_version_10(tmp_path: Path) -> None:
    table = create(tmp_path, 9, "default")
    table.bulk_insert(rows(10, "base"))
    table.delete(pa.table({"id": ["a"]}))
    table.upsert(rows(1, "new"))
    assert shown(table) == [(10, "base")]
    table.change_version(10)
    assert shown(LsmTable(tmp_path)) == [(10, "base")]
    LsmTable(tmp_path).delete(pa.table({"id": ["a"]}))
    LsmTable(tmp_path).upsert(rows(0, "newest"))
    assert shown(LsmTable(tmp_path)) == [(0, "newest")]
    LsmTable(tmp_path).compact()
    assert shown(LsmTable(tmp_path)) == [(0, "newest")]


def test_a_delete_at_the_end_of_the_inline_logs_counts_after_an_upgrade(tmp_path: Path) -> None:
    table = create(tmp_path, 9, "default")
    table.bulk_insert(rows(10, "base"))
    table.delete(pa.table({"id": ["a"]}))
    table.change_version(10)
    LsmTable(tmp_path).upsert(rows(1, "new"))
    assert shown(LsmTable(tmp_path)) == [(1, "new")]


LARGER, SMALLER = (10, "larger"), (5, "smaller")
NO_TIME = pa.table({"id": ["a"]})
CHANGES = {
    "nothing": lambda table: None,
    "a-delete": lambda table: table.delete(NO_TIME),
    "an-update": lambda table: table.upsert(rows(20, "new")),
    "an-update-that-loses": lambda table: table.upsert(rows(7, "late")),
    "a-delete-that-loses": lambda table: table.delete(NO_TIME.append_column("ts", pa.array([7]))),
}
FOLDED = {"a-delete": [], "an-update": [(20, "new")]}


WAYS = ["bulk_insert", "insert_overwrite", "insert_overwrite_table"]
REPEATS = list(product(["lsm_tree", "default"], KINDS, WAYS, [False, True], [False, True], CHANGES))


@pytest.mark.parametrize(("layout", "kind", "way", "falling", "compacted", "change"), sample(REPEATS, 0, 3))
def test_a_key_that_repeats_in_a_batch_of_base_files_is_one_row_in_version_10(
    tmp_path: Path, layout: str, kind: str, way: str, falling: bool, compacted: bool, change: str
) -> None:
    table = create(tmp_path, 10, layout, kind)
    getattr(table, way)(twice(*((LARGER, SMALLER) if falling else (SMALLER, LARGER))))
    CHANGES[change](table)
    if compacted:
        table.compact()
    assert shown(table) == FOLDED.get(change, [LARGER])


def test_without_ordering_the_last_row_of_a_key_that_repeats_stays(tmp_path: Path) -> None:
    for layout in ("lsm_tree", "default"):
        table = create(tmp_path / layout, 10, layout, **{"hoodie.table.ordering.fields": None})
        table.bulk_insert(twice(LARGER, SMALLER))
        assert shown(table) == [SMALLER]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("compacted", [False, True], ids=["not-compacted", "compacted"])
@pytest.mark.parametrize("values", [(LARGER, SMALLER), (SMALLER, LARGER)], ids=["falling", "rising"])
def test_a_key_that_an_upgraded_base_file_repeats_is_one_row_once_it_is_written_again(
    tmp_path: Path, values: tuple[tuple[int, str], ...], compacted: bool, change: str
) -> None:
    create(tmp_path, 9, "default").bulk_insert(twice(*values))
    LsmTable(tmp_path).change_version(10)
    table = LsmTable(tmp_path)
    assert shown(table) == [*values]
    CHANGES[change](table)
    if compacted:
        table.compact()
    assert shown(table) == ([*values] if change == "nothing" else FOLDED.get(change, [LARGER]))


def test_up_to_version_9_logs_act_on_the_first_row_of_a_key_also_after_an_upgrade(tmp_path: Path) -> None:
    table = create(tmp_path, 9, "default")
    table.bulk_insert(twice(LARGER, SMALLER))
    table.delete(NO_TIME)
    assert shown(table) == [SMALLER]
    table.change_version(10)
    assert shown(LsmTable(tmp_path)) == [SMALLER]
    LsmTable(tmp_path).delete(NO_TIME)
    assert shown(LsmTable(tmp_path)) == []
