"""A file of the metadata table that stands under the name of another is damage, and never a wrong answer.

Two swaps in each partition here; with LSM_ALL_FAULTS=1 all of them.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.metadata.group_files import open_base
from streaming_lsm.format.table.file_names import BaseFileName, parse_file_name
from streaming_lsm.metadata.file_slices import METADATA_TABLE
from tests.support.metadata_tables import INDEXED, LOCATED

SCHEMA = pa.schema(
    [("id", pa.string()), ("part", pa.string()), ("city", pa.string()), ("n", pa.int64()), ("ts", pa.int64())]
)
OPTIONS: dict[str, object] = {
    **INDEXED,
    **LOCATED,
    "hoodie.table.name": "cities",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.metadata.index.secondary.column": "city",
    "hoodie.metadata.compact.max.delta.commits": 3,
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.metadata.record.index.max.filegroup.count": 2,
    "lsm.read.threads": 1,
}
BATCHES, KEYS = 5, 24
MOST = None if os.environ.get("LSM_ALL_FAULTS") else 2
"""Swaps that are tried in each partition."""
WANTED = {
    "record_index": [pc.field("id") == f"k{key}" for key in range(0, KEYS, 3)],
    "secondary_index_city": [pc.field("city") == city for city in ("oslo", "rome")],
    "files": [pc.field("part") == "b", None],
    "column_stats": [pc.field("n") > 60],
    "partition_stats": [(pc.field("n") < 20) & (pc.field("part") == "a")],
    "bloom_filters": [pc.field("id") == "k4"],
}


@pytest.fixture(autouse=True)
def _quiet_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


class Played:
    """A table with all indexes, and all files that its metadata table has ever had."""

    def __init__(self, root: Path, version: int) -> None:
        options = OPTIONS | {"hoodie.write.table.version": version}
        draw = random.Random(5)
        LsmTable.create(root, SCHEMA, options)
        self.root, self.options, self.files = root, options, dict[Path, bytes]()
        for step in range(BATCHES):
            rows = [
                {
                    "id": f"k{key}",
                    "part": "abc"[key % 3],
                    "city": draw.choice(["oslo", "bern", "rome", None]),
                    "n": draw.randrange(100),
                    "ts": step,
                }
                for key in draw.sample(range(KEYS), 8)
            ]
            LsmTable(root, options).upsert(pa.Table.from_pylist(rows, SCHEMA))
            for path in (root / METADATA_TABLE).glob("*/*"):
                if parse_file_name(path.name):
                    self.files[path] = path.read_bytes()

    def swaps(self, partition: str) -> Iterator[tuple[Path, Path]]:
        """Files of a partition of the metadata table, each with others of it, that are there or were once."""
        files = sorted(path for path in self.files if path.parent.name == partition)
        for path, other in itertools.permutations(files, 2):
            if path.exists() and self.files[path] != self.files[other]:
                yield path, other

    def rows(self, wanted: Any) -> list[str]:
        table = LsmTable(self.root, {"hoodie.metadata.enable": True, "lsm.read.threads": 1})
        return sorted(map(str, table.scan(["id", "part", "city", "n"], filter=wanted).to_arrow().to_pylist()))


@pytest.mark.parametrize("version", [9, 10])
def test_queries_find_all_rows_whatever_files_are_swapped(tmp_path: Path, version: int) -> None:
    played = Played(tmp_path / "t", version)
    expected = {name: [played.rows(one) for one in filters] for name, filters in WANTED.items()}
    for partition, filters in WANTED.items():
        swaps = list(played.swaps(partition))
        # Names of data files are drawn, so that all their filters may be in one shard.
        assert swaps or partition == "bloom_filters", partition
        for path, other in random.Random(1).sample(swaps, min(len(swaps), MOST or len(swaps))):
            path.write_bytes(played.files[other])
            assert [played.rows(one) for one in filters] == expected[partition], (path.name, other.name)
            path.write_bytes(played.files[path])


@pytest.mark.parametrize("version", [9, 10])
def test_writes_insert_no_key_again_where_an_older_base_file_stands_under_the_newest_name(
    tmp_path: Path, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    played = Played(tmp_path / "t", version)
    bases = sorted(
        path
        for path in played.files
        if path.parent.name == "record_index" and "_0-0-0_" in path.name and ".log" not in path.name
    )
    older, newest = bases[0], [path for path in bases if path.exists() and path.name[:17] == bases[0].name[:17]][-1]
    newest.write_bytes(played.files[older])
    rows = [{"id": f"k{key}", "part": "abc"[key % 3], "city": "bern", "n": 1, "ts": 9} for key in range(KEYS)]
    LsmTable(played.root, played.options).upsert(pa.Table.from_pylist(rows, SCHEMA))
    found = LsmTable(played.root).scan(["id"]).to_arrow().column(0).to_pylist()
    assert sorted(found) == sorted(f"k{key}" for key in range(KEYS))
    assert "holds the records of another file" in caplog.text
    table = LsmTable(played.root)
    assert [(one.index, one.kind) for one in table.check_indexes().findings] == [("record_index", "damaged")]
    table.rebuild_indexes(["record_index"])
    assert table.check_indexes().findings == ()


def test_a_log_under_the_name_of_a_base_file_is_told_from_first_files_that_name_none(tmp_path: Path) -> None:
    played = Played(tmp_path / "t", 10)
    (first, *_) = (content for path, content in played.files.items() if ".log." in path.name and len(content) > 2000)
    name = parse_file_name("files-0000-0_0-0-0_20260101000000000.hfile")
    assert isinstance(name, BaseFileName)
    with pytest.raises(CorruptFileError, match="holds the records of another file"):
        open_base(pa.BufferReader(first), name, str(name))
