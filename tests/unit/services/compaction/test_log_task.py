"""Tasks of log compactions: what they write, and what goes wrong."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import Fenced, UnsupportedTable
from streaming_lsm.file_group.data_file import open_log
from streaming_lsm.file_group.slice_files import open_logs
from streaming_lsm.format.log.inline_blocks import BlockType, Header, read_blocks
from streaming_lsm.lock.heartbeat import heartbeat_path
from streaming_lsm.merge.log_fold import FoldedLogs
from streaming_lsm.query.slices.slice_merge import SliceMerge
from streaming_lsm.schema import with_meta
from streaming_lsm.services.compaction.log_task import LogCompactionTask
from streaming_lsm.write.files.sorted_parquet_file import SortedParquetFile
from tests.support.crash_points import random_cases
from tests.support.log_compaction import compact_logs, every, live_logs, log_task, windows
from tests.support.small_tables import create, data_files, rows, shown
from tests.unit.services.compaction.test_log_compaction_queries import ONE_GROUP, TABLES, assert_valid, change, written
from tests.unit.services.test_unsorted_files import turn_round


@contextmanager
def begun(table: LsmTable) -> Iterator[LogCompactionTask]:
    """The task of a log compaction that has begun, and is given up in the end."""
    with table.transaction() as tx:
        yield log_task(table, tx.begin())


@pytest.fixture
def table(tmp_path: Path) -> LsmTable:
    """Three logs of rows over a base file, and a delete of each kind between."""
    found = create(tmp_path, **{**ONE_GROUP, "lsm.read.threads": 1})
    found.upsert(rows(*((f"k{n}", "nl", 1, n) for n in range(8))))
    found.compact()
    found.upsert(rows(*((f"k{n}", "nl", 2, n) for n in range(4))))
    found.delete(pa.table({"id": ["k0", "k7"]}))
    found.delete(pa.table({"id": ["k1"], "ts": [3]}))
    found.upsert(rows(("k0", "nl", 0, 9), ("k9", "nl", 1, 9)))
    return found


ROWS_AFTER = [("k0", "nl", 0, 9), ("k2", "nl", 2, 2), ("k3", "nl", 2, 3)]
ROWS_AFTER += [(f"k{n}", "nl", 1, n) for n in (4, 5, 6)] + [("k9", "nl", 1, 9)]


def test_the_output_is_rows_and_deletes_and_before_them_the_deletes_that_a_row_follows(table: LsmTable) -> None:
    assert shown(table) == ROWS_AFTER
    (before,) = table.file_slices()
    done = compact_logs(table)
    (after,) = table.file_slices()
    unordered, data, deletes = [log for log in after.logs if log.name.instant == done.requested]
    root = Path(table.path.removeprefix("file://"))
    assert [str(log.name.version) + log.name.kind.name for log in (unordered, data, deletes)] == [
        "1DELETES",
        "2DATA",
        "2DELETES",
    ]
    assert pq.read_table(root / unordered.path).to_pylist() == [{"_hoodie_record_key": "k0", "ts": None}]
    found = pq.read_table(root / data.path)
    assert found.column("id").to_pylist() == ["k0", "k2", "k3", "k9"]
    times = [log.name.instant for log in before.logs]
    assert found.column("_hoodie_commit_time").to_pylist() == [times[3], times[0], times[0], times[3]]
    assert set(found.column("_hoodie_file_name").to_pylist()) == {after.file_id}
    assert pq.read_table(root / deletes.path).to_pylist() == [
        {"_hoodie_record_key": "k1", "ts": 3},
        {"_hoodie_record_key": "k7", "ts": None},
    ]
    for log in (unordered, data, deletes):
        header = json.loads(pq.read_metadata(root / log.path).metadata[b"hudi.log.format.metadata"])
        assert header["COMPACTED_BLOCK_TIMES"] == ",".join(times)
    assert shown(table) == ROWS_AFTER


def test_the_stats_count_what_was_read_once(table: LsmTable) -> None:
    (before,) = table.file_slices()
    stats = table.timeline.read_commit(compact_logs(table)).stats
    counts = [(stat.num_writes, stat.num_updates, stat.num_inserts, stat.num_deletes) for stat in stats]
    assert counts == [(0, 0, 0, 1), (4, 4, 0, 0), (0, 0, 0, 2)]
    assert (stats[0].log_files_compacted, stats[0].log_blocks, stats[0].log_records) == (4, 4, 9)
    assert stats[0].log_bytes_compacted == sum(log.size for log in before.logs)
    assert stats[0].updated_records_compacted == 6
    assert [stat.log_records for stat in stats[1:]] == [0, 0]


def test_a_large_output_rolls_into_further_versions_without_a_gap(table: LsmTable) -> None:
    for write in range(3):
        table.upsert(rows(*((f"m{n:03}", "nl", write, n) for n in range(200))))
    expected = shown(table)
    done = compact_logs(table, log_bytes=1, row_group_rows=16)
    (after,) = table.file_slices()
    names = [log.name for log in after.logs if log.name.instant == done.requested]
    assert sorted({name.version for name in names}) == list(range(1, max(name.version for name in names) + 1))
    keys = [
        (name.version, key)
        for name in names
        for key in pq.read_table(Path(table.path.removeprefix("file://")) / str(name)).column(0).to_pylist()
    ]
    assert len(keys) > 200
    assert shown(table) == expected
    assert_valid(table)


def test_logs_without_records_are_replaced_by_a_delete_log_without_records(table: LsmTable) -> None:
    (found,) = table.file_slices()
    root = Path(table.path.removeprefix("file://"))
    deletes = [log for log in found.logs if log.is_delete]
    for log in deletes:
        empty(root / log.path)
    before = shown(table)
    done = compact_logs(table, lambda instants: instants[1:3])
    (after,) = table.file_slices()
    (log,) = [log for log in after.logs if log.name.instant == done.requested]
    assert (log.is_delete, pq.read_metadata(root / log.path).num_rows) == (True, 0)
    assert len(live_logs(table, after)) == 3
    assert shown(table) == before
    compact_logs(table)
    assert shown(table) == before
    assert table.compact() is not None
    assert shown(table) == before


def empty(path: Path) -> None:
    """Take the rows out of a file."""
    with pq.ParquetFile(path) as file:
        metadata, rows_of = {k.decode(): v.decode() for k, v in file.metadata.metadata.items()}, file.read()
    with pq.ParquetWriter(path, rows_of.schema, store_schema=False) as writer:
        writer.write_table(rows_of.slice(0, 0))
        writer.add_key_value_metadata(metadata)


def test_a_log_of_another_program_that_does_not_ascend_gives_sorted_logs(table: LsmTable) -> None:
    root = Path(table.path.removeprefix("file://"))
    (found,) = table.file_slices()
    turn_round(root / found.logs[0].path)
    done = compact_logs(table)
    for log in table.file_slices()[0].logs:
        if log.name.instant == done.requested:
            keys = pq.read_table(root / log.path).column("_hoodie_record_key").to_pylist()
            assert keys == sorted(keys)
    assert shown(table) == ROWS_AFTER


def test_more_logs_than_may_be_open_give_the_same_logs(tmp_path: Path) -> None:
    table = written(tmp_path, {}, writes=12)
    (window,) = windows(table)
    found = []
    for max_open in (2, 3, 100):
        with ExitStack() as files:
            opened = open_logs(table.storage, window.logs, table.rule, files)
            merge = SliceMerge(table.rule, with_meta(table.schema), max_open=max_open)
            blocks = list(merge.folded_logs([replace(file, batch_rows=2) for file in opened]))
        found.append([pa.concat_tables(parts).to_pylist() for parts in zip(*map(tables_of, blocks), strict=True)])
    assert found[0] == found[1] == found[2]
    assert all(found[0])


def tables_of(block: FoldedLogs) -> tuple[pa.Table, ...]:
    return block.rows, block.deletes, block.unordered_deletes


def test_each_attempt_has_names_of_its_own(table: LsmTable) -> None:
    (window,) = windows(table)
    with begun(table) as task:
        first, second = task((3, window)), pickle.loads(pickle.dumps(task))((3, window))
    tokens = [{stat.file_name.split("_")[1] for stat in stats} for stats in (first, second)]
    assert [len(found) for found in tokens] == [1, 1]
    assert len(set.union(*tokens)) == 2
    assert all(token.startswith("3-0-") for found in tokens for token in found)


def test_a_task_whose_instant_takes_no_more_files_leaves_none(
    table: LsmTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, finish = data_files(tmp_path), SortedParquetFile.finish
    (window,) = windows(table)
    with begun(table) as task:

        def undone(self: SortedParquetFile, footer: Any) -> int:
            table.storage.delete(heartbeat_path(task.target.instant))
            return finish(self, footer)

        monkeypatch.setattr(SortedParquetFile, "finish", undone)
        with pytest.raises(Fenced):
            task((0, window))
        assert data_files(tmp_path) == before


def test_partial_updates_are_refused_by_name(table: LsmTable) -> None:
    (window,) = windows(table)
    task = log_task(table, "20990101000000000")
    partial = replace(task, target=replace(task.target, rule=replace(task.target.rule, partial="IGNORE_DEFAULTS")))
    with pytest.raises(UnsupportedTable, match=r"partial update mode IGNORE_DEFAULTS.*full compaction"):
        partial((0, window))
    root = Path(table.path.removeprefix("file://"))
    say_partial(root / window.logs[0].path)
    for sorted_files in (True, False):
        with pytest.raises(UnsupportedTable, match=r"\.log\.parquet: .*IS_PARTIAL=true"):
            replace(task, target=replace(task.target, sorted_files=sorted_files))((0, window))


def say_partial(path: Path) -> None:
    with pq.ParquetFile(path) as file:
        metadata, rows_of = {k.decode(): v.decode() for k, v in file.metadata.metadata.items()}, file.read()
    header = json.loads(metadata["hudi.log.format.metadata"])
    with pq.ParquetWriter(path, rows_of.schema, store_schema=False) as writer:
        writer.write_table(rows_of)
        header = {**metadata, "hudi.log.format.metadata": json.dumps({**header, "IS_PARTIAL": "true"})}
        writer.add_key_value_metadata(header)


def test_the_base_file_is_no_part_of_it(table: LsmTable) -> None:
    (found,) = table.file_slices()
    with pytest.raises(ValueError, match="logs only"):
        log_task(table, "20990101000000000")((0, found))


@pytest.mark.parametrize("kind", ["avro", "parquet"])
def test_inline_logs_say_in_each_block_what_they_replace(tmp_path: Path, kind: str) -> None:
    table = written(tmp_path, {**TABLES["version-9"], "hoodie.logfile.data.block.format": kind})
    times = [log.name.instant for log in table.file_slices()[0].logs]
    done = compact_logs(table)
    (log,) = [log for log in table.file_slices()[0].logs if log.name.instant == done.requested]
    blocks = read_blocks((tmp_path / log.path).read_bytes(), log.path)
    assert {block.type for block in blocks} <= {BlockType.DELETE, BlockType.AVRO_DATA, BlockType.PARQUET_DATA}
    assert {block.header[Header.COMPACTED_BLOCK_TIMES] for block in blocks} == {",".join(times)}
    checksums = [path.name for path in tmp_path.glob(".*.crc")]
    assert f".{log.path}.crc" in checksums


@pytest.mark.parametrize("after", [0, 3])
def test_inline_logs_of_before_an_upgrade_become_native_ones(tmp_path: Path, after: int) -> None:
    for seed in range(random_cases(20, 3)):
        table = written(tmp_path / str(seed), TABLES["version-9"], seed=seed, writes=5)
        table = table.change_version(10)
        chance = random.Random(seed)
        for write in range(5, 7 + after):
            change(table, chance, write)
        expected = table.scan().to_arrow().to_pylist()
        compact_logs(table, lambda instants: instants[: 4 + after])
        assert all(log.is_native for log in live_logs(table, *table.file_slices()))
        assert table.scan().to_arrow().to_pylist() == expected
        compact_logs(table)
        assert table.scan().to_arrow().to_pylist() == expected


def hudi_scan(blocks: list[tuple[str, tuple[str, ...]]]) -> list[str]:
    """The instants that Hudi's block reader merges (docs/format/04-inline-logs.md, "Scan algorithm")."""
    covers = dict(blocks)
    final: dict[str, str] = {}
    placed: list[str] = []
    for instant in reversed(list(covers)):
        if covers[instant]:
            final |= dict.fromkeys(covers[instant], final.get(instant, instant))
        elif final.get(instant, instant) not in placed:
            placed.append(final.get(instant, instant))
    return placed[::-1]


def test_hudis_block_reader_drops_what_a_chain_of_log_compactions_replaced(tmp_path: Path) -> None:
    table = written(tmp_path, {})
    for pick in (lambda instants: instants[1:4], lambda instants: instants[:3], every):
        compact_logs(table, pick)
        (found,) = table.file_slices()
        with ExitStack() as files:
            written_logs = [log for log in found.logs if not found.is_kept(log)]
            headers = [open_log(table.storage, log, table.rule, files)[1] for log in written_logs]
        blocks = [(header.instant, header.compacted) for header in headers]
        live = list(dict.fromkeys(log.name.instant for log in live_logs(table, found)))
        assert hudi_scan(blocks) == live
