"""A metadata table that this package and Hudi keep in turn: Hudi reads through it, checks it, and goes on with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.metadata.file_slices import METADATA_TABLE
from streaming_lsm.metadata.listing import listing_differences
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.properties_file import load_properties
from tests.conformance.histories import ORDERS, SIMPLE, History, orders
from tests.conformance.judge import Hudi
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines
from tests.support.faulty_storage import FaultyStorage, Killed
from tests.support.metadata_tables import INDEXED

OURS = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.compact.max.delta.commits": 2,
    "hoodie.clean.automatic": False,
    "hoodie.clean.commits.retained": 1,
}
HUDI = {"hoodie.metadata.enable": "true", "hoodie.metadata.compact.max.delta.commits": "2"}
FILES_ONLY = {
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.partition.stats.enable": "false",
}
ALL_INDEXES = {
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.partition.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
}
READ = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
RANGED = {**OURS, **INDEXED}
FILES, TIMELINE = f"{METADATA_TABLE}/files/", f"{METADATA_TABLE}/.hoodie/timeline/"
HISTORY = History("metadata_table", ORDERS, SIMPLE, [])
TURNS = "ours, hudi, ours"


def _rows(number: int) -> pa.Table:
    return orders(np.random.default_rng(number), 25, 100 + 7 * number)


def _ours(path: Path) -> LsmTable:
    return LsmTable(path, OURS)


def _agree(hudi: Hudi, path: Path) -> None:
    """Both read the same rows, and Hudi's reader of the metadata table finds there what lies in the folders."""
    table = LsmTable(path)
    assert listing_differences(table.storage, table.timeline) == []
    listed = hudi.call("validate_metadata_table_files", path, verbose=True)
    assert {row["file_name"] for row in listed} == {file.name for file in path.rglob("*") if _holds_rows(file)}
    assert [row for row in listed if row["fs_size"] != row["metadata_size"]] == []
    assert all(row["is_present_in_fs"] and row["is_present_in_metadata"] for row in listed)
    ours = to_lines(table.scan(meta=True).to_arrow())
    assert ours
    assert hudi.read(path, options=READ) == ours
    assert hudi.read(path, where="region = 'north' and qty > 100", options=READ) == [
        line for line in ours if '"region": "north"' in line and _qty(line) > 100
    ]
    # A column of floats among others: Hudi takes a column without a range, beside one with, for nulls.
    assert hudi.read(path, where="price > 0 and qty > 100", options=READ) == hudi.read(
        path, where="price > 0 and qty > 100", options={"hoodie.metadata.enable": "false"}
    )


def _holds_rows(file: Path) -> bool:
    return (
        ".hoodie" not in file.parts and (file.suffix == ".parquet" or ".log." in file.name) and ".crc" not in file.name
    )


def _qty(line: str) -> int:
    return int(line.partition('"qty": ')[2].partition(",")[0])


def _partitions(path: Path) -> str:
    return load_properties(LocalStorage(path)).get("hoodie.table.metadata.partitions", "")


def _own_actions(path: Path, action: str) -> list[str]:
    return sorted(file.name for file in (path / TIMELINE).glob(f"[0-9]*_[0-9]*.{action}"))


@pytest.mark.parametrize(
    ("kind", "version", "indexes"),
    [
        ("MERGE_ON_READ", 9, FILES_ONLY),
        ("MERGE_ON_READ", 9, {}),
        ("COPY_ON_WRITE", 9, {}),
        ("MERGE_ON_READ", 8, {}),
        ("COPY_ON_WRITE", 8, FILES_ONLY),
    ],
)
def test_a_metadata_table_kept_in_turn(
    hudi: Hudi, record: Record, tmp_path: Path, kind: str, version: int, indexes: dict[str, str]
) -> None:
    path = tmp_path / "turns"
    table = HISTORY.create(path, version, kind)
    options = {**HISTORY.hudi_options(table), **HUDI, **indexes}
    case = f"v{version} {kind} metadata table, {'files' if indexes else 'statistics, too'}"
    compacted: set[bool] = set()
    for turn in range(12):
        record(case, TURNS, f"turn {turn + 1}")
        if turn % 2:
            hudi.write(path, "upsert", _rows(turn), options)
            if turn % 6 == 5:
                hudi.write(path, "delete", _rows(turn).slice(0, 5), options)
            if turn == 7 and kind == "MERGE_ON_READ":
                assert hudi.compact(path, options)
            if turn == 9:
                assert hudi.clean(path, options=options)
            assert ("column_stats" in _partitions(path)) is not bool(indexes)
        else:
            ours, before = _ours(path), set(_partitions(path).split(","))
            ours.upsert(_rows(turn))
            if turn == 4:
                ours.delete(_rows(turn).select(["id", "region"]).slice(0, 5))
            if turn % 4 == 0 and kind == "MERGE_ON_READ":
                assert ours.compact()
            if turn == 8:
                assert ours.clean()
            # Statistics of index version V2, which tables of version 9 have, are kept.
            ranges = {"column_stats"} | ({"partition_stats"} & before)
            kept = {"files"} | (ranges if turn and version == 9 and not indexes else set())
            assert set(_partitions(path).split(",")) == kept
        _agree(hudi, path)
        compacted |= {_is_ours(path, name) for name in _own_actions(path, "commit")}
    assert compacted == {True, False}


def _is_ours(path: Path, name: str) -> bool:
    """Whether a compaction of the metadata table is ours, by the token of its base file."""
    commit = CommitMetadata.decode((path / TIMELINE / name).read_bytes(), name)
    return "_0-0-0_" in next(stat.file_name for stat in commit.stats if stat.partition_path == "files")


class Dying(FaultyStorage):
    """Dies as soon as it has created a file below a folder whose name has an ending."""

    def __init__(self, path: Path, folder: str, ending: str) -> None:
        super().__init__(LocalStorage(path))
        self._folder, self._ending = folder, ending

    def put_if_absent(self, path: str, data: bytes) -> None:
        super().put_if_absent(path, data)
        if path.startswith(self._folder) and path.endswith(self._ending):
            self.kill()


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_hudi_skips_by_the_ranges_that_we_make(hudi: Hudi, record: Record, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "ranged"
    HISTORY.create(path, 9, kind)
    table = LsmTable(path, RANGED)
    for number in range(4):
        record(f"v9 {kind} statistics of ours", "ours, hudi", f"write {number + 1}")
        # Apart, so that a range in one partition tells of it.
        rows = _rows(number)
        moved = pc.add(rows.column("qty"), pc.if_else(pc.equal(rows.column("region"), "south"), 10_000, 0))
        rows = rows.set_column(2, "qty", moved.cast(pa.int32()))
        # A column that older files lack.
        late = [("late > 10000 and qty > 0"), "late < 500 or qty > 10200"] if number > 1 else []
        table.upsert(rows.append_column("late", rows.column("qty")) if late else rows)
        assert {"column_stats", "partition_stats", "bloom_filters"} <= set(_partitions(path).split(","))
        _agree(hudi, path)
        for where in ("qty > 10000", "qty < 10000", "qty = 10250 or price < 20", "note is null and qty > 10000", *late):
            expected = hudi.read(path, where=where, options={"hoodie.metadata.enable": "false"})
            assert hudi.read(path, where=where, options=READ) == expected, where


DEATHS = {
    "its delta commit inflight": (FILES, ".log.1_0-0-0", 4),
    "its delta commit completed": (TIMELINE, ".deltacommit", 4),
    "its compaction inflight": (FILES, ".hfile", 1),
    "its compaction completed": (TIMELINE, ".commit", 1),
}


@pytest.mark.parametrize("version", [9, 8])
def test_hudi_goes_on_where_we_died(hudi: Hudi, record: Record, tmp_path: Path, version: int) -> None:
    path = tmp_path / "died"
    table = HISTORY.create(path, version, "MERGE_ON_READ")
    options = {**HISTORY.hudi_options(table), **HUDI, **FILES_ONLY}
    _ours(path).upsert(_rows(0))
    # Read first: a process of Hudi 1.2 whose first deed on any metadata table is a compaction cannot write to one.
    _agree(hudi, path)
    for number, (what, (folder, ending, compact_after)) in enumerate(DEATHS.items()):
        record(f"v{version} killed with {what}", "ours, hudi", "hudi upserts")
        dying = LsmTable(path, {**OURS, "hoodie.metadata.compact.max.delta.commits": compact_after})
        dying.storage = Dying(path, folder, ending)
        with pytest.raises(Killed):
            dying.upsert(_rows(20 + number))
        (path / ".hoodie/lock").unlink()
        hudi.write(path, "upsert", _rows(30 + number), options)
        _agree(hudi, path)
        _ours(path).upsert(_rows(40 + number))
        _agree(hudi, path)


@pytest.mark.parametrize("version", [9, 8])
def test_we_go_on_where_hudi_died(hudi: Hudi, record: Record, tmp_path: Path, version: int) -> None:
    path = tmp_path / "died"
    table = HISTORY.create(path, version, "MERGE_ON_READ")
    options = {**HISTORY.hudi_options(table), **HUDI, **FILES_ONLY}
    for number, folders in enumerate([[""], ["", f"{METADATA_TABLE}/"]]):
        record(f"v{version} Hudi died at {'its own' if number else 'the'} delta commit", TURNS, "we upsert")
        hudi.write(path, "upsert", _rows(50 + number), options)
        hudi.write(path, "upsert", _rows(60 + number), options)
        newest = max(file.name for file in (path / ".hoodie/timeline").glob("*_*.deltacommit")).partition("_")[0]
        for file in [file for file in path.rglob(f".*_{newest}.log.*") if _holds_rows(file)]:
            marker = path / ".hoodie/.temp" / newest / file.parent.name / f"{file.name}.marker.CREATE"
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()
        for folder in folders:
            (completed,) = (path / f"{folder}.hoodie/timeline").glob(f"{newest}_*.deltacommit")
            completed.unlink()
        _ours(path).upsert(_rows(70 + number))
        assert _partitions(path) == "files"
        assert not list((path / METADATA_TABLE / ".hoodie/timeline").glob(f"{newest}*"))
        _agree(hudi, path)
        hudi.write(path, "upsert", _rows(80 + number), options)
        _agree(hudi, path)


def test_we_go_on_after_a_restore(hudi: Hudi, record: Record, tmp_path: Path) -> None:
    path = tmp_path / "restored"
    table = HISTORY.create(path, 9, "MERGE_ON_READ")
    # Hudi restores nothing from before the last compaction of the metadata table.
    metadata = {"hoodie.metadata.enable": "true", **FILES_ONLY}
    options = {**HISTORY.hudi_options(table), **metadata}
    record("v9 metadata table after a restore", TURNS, "we upsert")
    saved = _ours(path).upsert(_rows(0))
    assert saved is not None
    hudi.savepoint(path, saved.requested, metadata)
    hudi.write(path, "upsert", _rows(1), options)
    hudi.restore(path, saved.requested, metadata)
    # The restore left delta commits of instants that the table does not have: dropped, and made anew.
    _ours(path).upsert(_rows(2))
    assert len(_own_actions(path, "deltacommit")) == 2
    _agree(hudi, path)
    hudi.write(path, "upsert", _rows(3), options)
    _agree(hudi, path)


def test_indexes_that_we_do_not_keep_are_dropped(hudi: Hudi, record: Record, tmp_path: Path) -> None:
    path = tmp_path / "indexes"
    table = HISTORY.create(path, 9, "MERGE_ON_READ")
    options = {**HISTORY.hudi_options(table), **HUDI, **ALL_INDEXES}
    record("v9 all indexes", TURNS, "we upsert")
    hudi.write(path, "upsert", _rows(0), options)
    hudi.write(path, "upsert", _rows(1), options)
    every = "bloom_filters,column_stats,files,partition_stats,record_index"
    assert _partitions(path) == every
    LsmTable(path, {"hoodie.bucket.index.num.buckets": 2}).upsert(_rows(2))
    kept = sorted({*every.split(",")} - {"record_index"})
    assert sorted(_partitions(path).split(",")) == kept
    assert sorted(file.name for file in (path / METADATA_TABLE).iterdir()) == sorted([".hoodie", *kept])
    _agree(hudi, path)

    record("v9 all indexes", TURNS, "hudi upserts")
    hudi.write(path, "upsert", _rows(3), options)
    assert _partitions(path) == every
    _agree(hudi, path)

    record("v9 all indexes", TURNS, "we upsert without a metadata table")
    LsmTable(path, {"hoodie.metadata.enable": False}).upsert(_rows(4))
    assert _partitions(path) == ""
    assert not (path / METADATA_TABLE).exists()
    assert hudi.read(path, options=READ) == to_lines(LsmTable(path).scan(meta=True).to_arrow())
    hudi.write(path, "upsert", _rows(5), options)
    assert _partitions(path) == every
    _agree(hudi, path)


def test_a_listing_of_several_blocks(hudi: Hudi, record: Record, tmp_path: Path) -> None:
    path = tmp_path / "wide"
    record("v9 listing of 400 partitions", "ours, hudi", "hudi lists")
    more = {**OURS, "hoodie.metadata.compact.max.delta.commits": 2, "hoodie.bucket.index.num.buckets": 1}
    table = HISTORY.create(path, 9, "MERGE_ON_READ", more)
    for number in range(2):
        rows = orders(np.random.default_rng(number), 400, 100 + number, keys=400)
        names = pa.array([f"a-region-with-a-rather-long-name-{place:05d}" for place in range(400)])
        table.upsert(rows.set_column(1, "region", names))
    assert _own_actions(path, "commit")
    listed = hudi.call("validate_metadata_table_files", path, verbose=True)
    assert len(listed) == 800
    assert all(row["is_present_in_metadata"] and row["fs_size"] == row["metadata_size"] for row in listed)
