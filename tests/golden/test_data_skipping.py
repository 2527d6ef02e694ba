"""Column statistics of real Hudi tables: filtered scans skip file slices by them, and keep every row of the filter."""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.query.scan import Scan
from tests.support import hudi_tables
from tests.support.crash_points import random_cases
from tests.support.metadata_tables import assert_blooms, assert_partition_ranges, assert_ranges, assert_settled

NAMES = ["v8_mor_mdt", "v9_cow_hive_mdt", "v9_mor_mdt_full", "v9_mor_mdt_types"]
SKIPPING = {"hoodie.metadata.enable": True}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    for name in NAMES:
        hudi_tables.unpacked(name, folder)
    return folder


def filters(rows: pa.Table, draw: random.Random, count: int) -> Iterator[pc.Expression]:
    """Conditions on values of the table, or just beside them."""
    columns = [field for field in rows.schema if not pa.types.is_nested(field.type)]
    for _ in range(count):
        parts = []
        for _ in range(draw.choice([1, 1, 2])):
            column = draw.choice(columns)
            values = rows.column(column.name).drop_null()
            value: Any = values[draw.randrange(len(values))] if len(values) else pa.scalar(None, column.type)
            field = pc.field(column.name)
            parts.append(
                draw.choice(
                    [field == value, field == value, field > value, field < value, field.isin([value]), field.is_null()]
                )
            )
        yield parts[0] if len(parts) == 1 else draw.choice([parts[0] & parts[1], parts[0] | parts[1]])


def shown(scan: Scan) -> list[str]:
    return sorted(map(repr, scan.to_arrow().to_pylist()))


@pytest.mark.parametrize("query", ["snapshot", "read_optimized"])
@pytest.mark.parametrize("name", NAMES)
def test_slices_are_skipped_and_no_row_is_lost(unpacked: Path, name: str, query: str) -> None:
    root = unpacked / name
    plain, skipping = LsmTable(root), LsmTable(root, SKIPPING)
    whole = plain.scan(query_type=query).to_arrow()
    skipped = 0
    for wanted in filters(whole, random.Random(name), random_cases(150, 12)):
        scan = skipping.scan(filter=wanted, query_type=query)
        assert shown(scan) == shown(plain.scan(filter=wanted, query_type=query)), str(wanted)
        told = scan.explain().skipped
        skipped += told.by_ranges + told.by_partition_ranges
        assert plain.scan(filter=wanted, query_type=query).explain().skipped.by_ranges == 0
    assert skipped


@pytest.mark.parametrize("name", NAMES)
def test_a_filter_beyond_all_values_skips_all_slices(unpacked: Path, name: str) -> None:
    root = unpacked / name
    scan = LsmTable(root, SKIPPING).scan(filter=pc.field("_hoodie_commit_time") > "3")
    told = scan.explain()
    assert told.slices == 0
    skipped = told.skipped.by_ranges + told.skipped.by_partition_ranges
    assert skipped == len(LsmTable(root).file_slices()) > 1
    by = "partition_stats" if told.skipped.by_partition_ranges else "column_stats"
    assert f"{skipped} skipped by {by}" in str(told)
    assert (by == "partition_stats") is (root / ".hoodie/metadata/partition_stats").exists()
    assert LsmTable(root, {**SKIPPING, "hoodie.enable.data.skipping": False}).scan(
        filter=pc.field("_hoodie_commit_time") > "3"
    ).explain().slices == skipped  # fmt: skip


@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_missing_or_damaged_statistics_lose_no_row(unpacked: Path, tmp_path: Path, damage: str) -> None:
    source, root = unpacked / "v9_mor_mdt_full", tmp_path / "table"
    whole = LsmTable(source).scan().to_arrow()
    wanted = list(filters(whole, random.Random(damage), 4))
    expected = [shown(LsmTable(source).scan(filter=one)) for one in wanted]
    folders = [sorted((source / ".hoodie/metadata" / name).iterdir()) for name in ("column_stats", "partition_stats")]
    names = [str(path.relative_to(source)) for paths in folders for path in paths[len(damage) % 2 :: 2]]
    assert len(names) > 5
    for name in names:
        shutil.copytree(source, root)
        path = root / name
        content = bytearray(path.read_bytes())
        if damage == "gone":
            path.unlink()
        else:
            content[len(content) // 2] ^= 0x10
            path.write_bytes(content if damage == "flipped" else content[:-7])
        assert [shown(LsmTable(root, SKIPPING).scan(filter=one)) for one in wanted] == expected, name
        shutil.rmtree(root)


def test_statistics_that_are_gone_are_told(unpacked: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "table"
    shutil.copytree(unpacked / "v9_mor_mdt_full", root)
    shutil.rmtree(root / ".hoodie/metadata/column_stats")
    shutil.rmtree(root / ".hoodie/metadata/partition_stats")
    with caplog.at_level(logging.WARNING):
        told = LsmTable(root, SKIPPING).scan(filter=pc.field("_hoodie_commit_time") > "3").explain()
    assert told.slices == len(LsmTable(root).file_slices())
    assert "column_stats is not read, no file is skipped by it: column_stats has the file groups none" in caplog.text
    assert "no partition is skipped by it: partition_stats has the file groups none" in caplog.text


@pytest.mark.parametrize("name", ["v9_mor_mdt_full", "v9_mor_mdt_types"])
def test_our_writers_keep_the_statistics(unpacked: Path, tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    shutil.copytree(unpacked / name, root)
    options = {
        "hoodie.bucket.index.num.buckets": 2,
        "hoodie.metadata.compact.max.delta.commits": 3,
        "hoodie.clean.commits.retained": 1,
    }
    draw = random.Random(name)
    for step in range(5):
        table = LsmTable(root, options)
        rows = table.scan().to_arrow()
        table.upsert(rows.take(pa.array(draw.sample(range(len(rows)), 7))))
        if step == 2:
            table.delete(rows.take(pa.array(draw.sample(range(len(rows)), 3))))
        if not table.config.is_copy_on_write and step % 2:
            table.compact()
        table.clean()
        assert assert_ranges(root) > 20
        if name == "v9_mor_mdt_full":
            assert assert_partition_ranges(root) > 20
            assert_blooms(root)
        assert_settled(root)
        plain, skipping = LsmTable(root), LsmTable(root, SKIPPING)
        whole = plain.scan().to_arrow()
        for wanted in filters(whole, draw, 10):
            assert shown(skipping.scan(filter=wanted)) == shown(plain.scan(filter=wanted)), str(wanted)
    found = LsmTable(root, SKIPPING).scan(filter=pc.field("_hoodie_commit_time") > "3").explain()
    assert found.slices == 0
    assert len(list((root / ".hoodie/metadata/column_stats").iterdir())) < 30
