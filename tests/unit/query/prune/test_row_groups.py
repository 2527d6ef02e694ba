"""Which files and row groups a scan opens, and that pruning never changes the rows of a merge."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.query.prune.explanation import Explanation
from tests.support.small_tables import SCHEMA, Row, create, rows, shown

QTY, ID, COUNTRY = pc.field("qty"), pc.field("id"), pc.field("country")
SMALL = {"lsm.parquet.row.group.rows": 2, "hoodie.bucket.index.num.buckets": 1}


def many(count: int, ts: int = 1, step: int = 1) -> pa.Table:
    return rows(*((f"k{number:03d}", "DE", ts, number + 100 * (ts - 1)) for number in range(0, count, step)))


def told(table: LsmTable, wanted: pc.Expression) -> Explanation:
    return table.scan(filter=wanted).explain()


@pytest.fixture
def base_only(tmp_path: Path) -> LsmTable:
    """Ten rows in five row groups."""
    table = create(tmp_path, **SMALL)
    table.bulk_insert(many(10))
    return table


def test_value_filters_prune_row_groups_of_a_slice_without_logs(base_only: LsmTable) -> None:
    assert told(base_only, QTY >= 6).counts.by_values == 3
    assert told(base_only, QTY > 100).counts.files_skipped == 1
    assert [row[3] for row in shown(base_only, filter=QTY >= 7)] == [7, 8, 9]


def test_key_filters_prune_row_groups_of_all_files(base_only: LsmTable) -> None:
    base_only.upsert(many(10, ts=2))
    found = told(base_only, ID == "k004").counts
    assert (found.files, found.row_groups, found.by_key, found.rows) == (2, 10, 8, 4)
    assert shown(base_only, filter=ID == "k004") == [("k004", "DE", 2, 104)]


def test_a_filter_on_a_value_does_not_bring_an_older_version_back(base_only: LsmTable) -> None:
    base_only.upsert(many(10, ts=2))
    assert shown(base_only, filter=QTY < 50) == []
    assert told(base_only, QTY < 50).counts.by_values == 0
    assert told(base_only, QTY > 500).counts.by_values == 10


def test_a_filter_on_a_value_does_not_bring_a_deleted_row_back(base_only: LsmTable) -> None:
    base_only.delete(many(10, ts=2, step=3).drop_columns(["qty"]))
    assert [row[3] for row in shown(base_only, filter=QTY >= 0)] == [1, 2, 4, 5, 7, 8]


def test_row_groups_that_no_log_overlaps_are_pruned_by_values(base_only: LsmTable) -> None:
    base_only.upsert(rows(("k000", "DE", 2, 500), ("k001", "DE", 2, 2)))
    found = told(base_only, QTY > 400).counts
    assert (found.row_groups, found.by_values) == (6, 4)
    assert shown(base_only, filter=QTY > 400) == [("k000", "DE", 2, 500)]
    assert told(base_only, QTY == 5).counts.by_values == 3  # the log holds 2 and 500


@pytest.mark.parametrize(
    ("wanted", "slices", "expected"),
    [
        (COUNTRY == "DE", 2, [("a", "DE", 1, 1), ("b", "DE", 1, 2)]),
        (COUNTRY.isin(["DE", "NL"]), 2, [("a", "DE", 1, 1), ("b", "DE", 1, 2)]),
        (COUNTRY > "DE", 2, [("a", "FR", 1, 3), ("b", "FR", 1, 4)]),
        ((COUNTRY == "FR") & (ID == "a"), 1, [("a", "FR", 1, 3)]),
        (ID == "a", 2, [("a", "DE", 1, 1), ("a", "FR", 1, 3)]),
        (ID.isin(["a", "b"]) & (COUNTRY == "NL"), 0, []),
    ],
    ids=str,
)
def test_partitions_and_buckets_are_pruned_before_a_file_is_opened(
    wanted: pc.Expression, slices: int, expected: list[Row], tmp_path: Path
) -> None:
    table = create(tmp_path)
    table.upsert(rows(("a", "DE", 1, 1), ("b", "DE", 1, 2), ("a", "FR", 1, 3), ("b", "FR", 1, 4)))
    assert len(table.file_slices()) == 4
    scan = table.scan(filter=wanted)
    assert len(scan.slices) == slices
    assert shown(table, filter=wanted) == expected


def test_a_number_of_buckets_that_an_option_gives_prunes_nothing(tmp_path: Path) -> None:
    table = create(tmp_path, **{"hoodie.bucket.index.num.buckets": 4})
    table.upsert(many(20))
    properties = tmp_path / ".hoodie" / "hoodie.properties"
    lines = properties.read_text().splitlines()
    kept = [line for line in lines if "num.buckets" not in line and not line.startswith("#lsm.checksum")]
    properties.write_text("\n".join(kept) + "\n")
    wrong = LsmTable(tmp_path, {"hoodie.bucket.index.num.buckets": 3})
    for number in range(20):
        assert len(shown(wrong, filter=f"k{number:03d}" == ID)) == 1


def test_the_explanation_is_read_by_people_and_programs(base_only: LsmTable) -> None:
    found = told(base_only, QTY >= 6)
    assert str(found).splitlines() == [
        "partitions: 1 of 1 read",
        "file slices: 1 of 1 read",
        "files: 1 of 1 read",
        "row groups: 2 of 5 read; 3 skipped by statistics",
        "rows to merge: 4",
    ]
    assert found.as_dict()["row_groups"] == {
        "files": 1, "files_skipped": 0, "row_groups": 5, "by_key": 0, "by_values": 3, "by_bloom": 0, "rows": 4,
        "whole_slices": 0, "inline_logs": 0, "unopened": 0,
    }  # fmt: skip
    assert str(base_only.scan().explain()).splitlines()[2:4] == ["files: 1 of 1 read", "row groups: 5 of 5 read"]


def test_files_of_one_part_of_their_rows_stay_in_merge_order(tmp_path: Path) -> None:
    table = create(tmp_path, SCHEMA, **SMALL)
    for ts in range(1, 6):
        table.upsert(many(12, ts=ts, step=ts))
    for number in range(12):
        wanted = f"k{number:03d}" == ID
        assert shown(table, filter=wanted) == [row for row in shown(table) if row[0] == f"k{number:03d}"]
