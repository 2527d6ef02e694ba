"""Slices of more files than may be open at once: the rows are the same, and few files are open."""

from __future__ import annotations

import dataclasses
import errno
import os
import random
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CorruptFileError, LsmError, StorageError
from streaming_lsm.file_group.data_file import MAX_OPEN_FILES, DataFile
from streaming_lsm.file_group.slice_files import open_slice
from streaming_lsm.merge.sorted_runs import SortedRun
from streaming_lsm.query.slices import slice_merge, slice_reader
from streaming_lsm.query.slices.slice_merge import SliceMerge
from streaming_lsm.schema import with_meta
from streaming_lsm.storage.local import LocalStorage
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.crash_points import EVERY_CALL
from tests.support.false_statistics import set_key_range
from tests.support.small_tables import create, rows, shown

ONE_SLICE: dict[str, object] = {
    "hoodie.datasource.write.partitionpath.field": None,
    "hoodie.bucket.index.num.buckets": 1,
    "hoodie.clean.automatic": False,
}


def many_writes(root: Path, seed: int, ordering: pa.DataType, *, event_time: bool, base: bool) -> LsmTable:
    """Eleven small writes to one slice: rows, rows flagged as deletes, deletes with and without ordering value."""
    chance = random.Random(seed)
    fields = [("id", pa.string()), ("ts", ordering), ("v", pa.int64()), ("_hoodie_is_deleted", pa.bool_())]
    schema = pa.schema(fields)
    table = create(root, schema, **{**ONE_SLICE, "hoodie.table.ordering.fields": "ts" if event_time else None})
    for write in range(11):
        keys = chance.sample("abcdefgh", chance.randrange(1, 8))
        ts = pa.array([chance.randrange(-1, 3) for _ in keys], ordering)
        if write == 0 and base:
            values = [keys, ts, range(len(keys)), [False] * len(keys)]
            table.bulk_insert(pa.table([pa.array(value) for value in values], schema=schema))
        elif chance.random() < 0.4:
            with_ts = event_time and chance.random() < 0.5
            table.delete(pa.table({"id": keys, "ts": ts} if with_ts else {"id": keys}))
        else:
            gone = [chance.random() < 0.2 for _ in keys]
            values = [keys, ts, range(100 * write, 100 * write + len(keys)), gone]
            table.upsert(pa.table([pa.array(value) for value in values], schema=schema))
    return table


Merged = tuple[list[dict[str, Any]], tuple[int, ...], list[dict[str, Any]]]


def merged(table: LsmTable, max_open: int, batch_rows: int = 2) -> Merged:
    """Rows of the one slice, what changed of its base file, and the deletes that a compaction would keep."""
    (found,) = table.file_slices()
    merge = SliceMerge(table.rule, with_meta(table.schema), max_open=max_open, keeps_deletes=table.rule.event_time)
    with ExitStack() as files:
        opened = open_slice(table.storage, found, table.rule, files)
        blocks = list(merge.blocks([dataclasses.replace(file, batch_rows=batch_rows) for file in opened]))
    counts = tuple(sum(getattr(block, kind) for block in blocks) for kind in ("inserts", "updates", "deletes"))
    kept = [row for block in blocks if block.kept is not None for row in block.kept.to_pylist()]
    return [row for block in blocks for row in block.rows.to_pylist()], counts, kept


@pytest.mark.parametrize("event_time", [True, False], ids=["event-time", "commit-time"])
@pytest.mark.parametrize("base", [True, False], ids=["with-base", "logs-only"])
@pytest.mark.parametrize("ordering", [pa.int64(), pa.int32()], ids=str)
def test_the_rows_do_not_depend_on_how_many_files_may_be_open(
    tmp_path: Path, event_time: bool, base: bool, ordering: pa.DataType
) -> None:
    changed = kept = 0
    first = 2 * event_time + base
    for seed in range(9) if EVERY_CALL else (first, first + 4 + (ordering == pa.int32())):
        root = tmp_path / str(seed)
        table = many_writes(root, seed, ordering, event_time=event_time, base=base)
        expected = merged(table, 100)
        for max_open in (2, 3, 5, 8):
            assert merged(table, max_open) == expected, (seed, max_open)
        oracle = read_snapshot(root).select(["id", "ts", "v"]).to_pylist()
        assert [{name: row[name] for name in ("id", "ts", "v")} for row in expected[0]] == oracle
        changed += sum(expected[1])
        kept += len(expected[2])
    assert changed > 4
    assert kept or base or not event_time


class CountingStorage(LocalStorage):
    """Knows how many files were open at once, at the most."""

    most = 0

    def open_input(self, path: str) -> pa.NativeFile:
        file = super().open_input(path)
        names = [os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if _is_open(number)]
        self.most = max(self.most, sum(name.startswith(self._root) for name in names))
        return file


def _is_open(number: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{number}")


def test_only_the_files_of_one_pass_are_open_and_none_is_left_so(tmp_path: Path) -> None:
    table = create(tmp_path, **{**ONE_SLICE, "lsm.read.threads": 1})
    for ts in range(MAX_OPEN_FILES + 20):
        table.upsert(rows((f"k{ts % 7}", "DE", ts, ts)))
    before = set(os.listdir("/proc/self/fd"))
    table.storage = storage = CountingStorage(tmp_path)
    assert shown(table) == [(f"k{ts % 7}", "DE", ts, ts) for ts in sorted(range(113, 120), key=lambda ts: ts % 7)]
    assert 1 < storage.most <= MAX_OPEN_FILES
    batches = table.scan().to_batches()
    next(batches)
    del batches
    assert set(os.listdir("/proc/self/fd")) <= before


PROGRAM = """
import resource, sys
from streaming_lsm import LsmTable
table = LsmTable(sys.argv[1], {"lsm.read.threads": 1, "hoodie.clean.automatic": False})
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
if sys.argv[3] == "compact":
    table.compact()
for row in table.scan(["id", "qty"]).to_arrow().to_pylist():
    print(row["id"], row["qty"])
"""


def test_two_hundred_logs_are_read_and_compacted_with_few_open_files(tmp_path: Path) -> None:
    table = create(tmp_path, **{**ONE_SLICE, "lsm.read.threads": 1})
    table.bulk_insert(rows(*((f"k{number:02d}", "DE", 0, number) for number in range(40))))
    for ts in range(200):
        if ts % 7 == 3:
            table.delete(pa.table({"id": [f"k{ts % 40:02d}"]}))
        else:
            table.upsert(rows((f"k{ts % 40:02d}", "DE", ts, ts), (f"k{ts % 31:02d}", "DE", 300 - ts, ts)))
    assert len(table.file_slices()[0].logs) >= 200
    expected = [f"{row['id']} {row['qty']}" for row in read_snapshot(tmp_path).to_pylist()]
    assert len(expected) > 20
    for what in ("scan", "compact"):
        assert limited(tmp_path, MAX_OPEN_FILES + 40, what) == "".join(f"{line}\n" for line in expected)
    assert table.file_slices()[0].logs == ()
    assert [f"{row['id']} {row['qty']}" for row in read_snapshot(tmp_path).to_pylist()] == expected
    assert validate(tmp_path) == []


def limited(root: Path, files: int, what: str) -> str:
    """What the program prints with a limit on open files."""
    command = [sys.executable, "-c", PROGRAM, str(root), str(files), what]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.stdout if done.returncode == 0 else done.stderr


class RefusingStorage(LocalStorage):
    """The system refuses to open files."""

    reason = errno.EMFILE

    def open_input(self, path: str) -> pa.NativeFile:
        if path.endswith(".parquet"):
            raise OSError(self.reason, os.strerror(self.reason), path)
        return super().open_input(path)


@pytest.mark.parametrize(
    ("reason", "advice"), [(errno.EMFILE, "ulimit"), (errno.EIO, "disk"), (errno.EACCES, "permissions")]
)
def test_what_the_system_refuses_is_no_damage(tmp_path: Path, reason: int, advice: str) -> None:
    table = create(tmp_path)
    table.upsert(rows(("a", "DE", 1, 1)))
    table.storage = storage = RefusingStorage(tmp_path)
    storage.reason = reason
    with pytest.raises(StorageError, match=rf"DE/.*\.parquet: .*{os.strerror(reason)}.*{advice}"):
        table.scan().to_arrow()


def test_a_spill_folder_that_is_not_there_is_named_with_its_option(tmp_path: Path) -> None:
    table = many_writes(tmp_path, 1, pa.int64(), event_time=True, base=True)
    (found,) = table.file_slices()
    merge = SliceMerge(table.rule, with_meta(table.schema), spill_folder="/nowhere/at/all", max_open=3)
    with ExitStack() as files, pytest.raises(LsmError, match=r"lsm\.write\.spill\.folder.*/nowhere/at/all"):
        list(merge.blocks(open_slice(table.storage, found, table.rule, files)))


def test_memory_is_that_of_the_files_of_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size, text = 1000, "x" * 500
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("text", pa.string())])
    table = create(tmp_path, schema, **ONE_SLICE)
    for ts in range(24):
        keys = [f"{row * 24 + ts:06d}" for row in range(size)]
        table.upsert(pa.table([keys, [ts] * size, [f"{text}{key}" for key in keys]], schema=schema))
    (found,) = table.file_slices()
    taken: list[int] = []
    load = SortedRun.load

    def counted(run: SortedRun) -> bool:
        loaded = load(run)
        taken.append(pa.total_allocated_bytes())
        return loaded

    monkeypatch.setattr(SortedRun, "load", counted)
    peaks = []
    for max_open in (100, 4):
        before = pa.total_allocated_bytes()
        taken.clear()
        with ExitStack() as files:
            opened = open_slice(table.storage, found, table.rule, files)
            merge = SliceMerge(table.rule, with_meta(schema), max_open=max_open)
            blocks = merge.blocks([dataclasses.replace(file, batch_rows=500) for file in opened])
            assert sum(block.rows.num_rows for block in blocks) == 24 * size
        peaks.append(max(taken) - before)
    assert peaks[1] < peaks[0] / 2, peaks


def rolled_writes(root: Path, seed: int) -> LsmTable:
    """Writes whose files cover key ranges of their own here, and overlap there, in random order."""
    chance = random.Random(seed)
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
    table = create(root, schema, **ONE_SLICE)
    for write in range(14):
        first = chance.randrange(40)
        numbers = sorted(chance.sample(range(first, first + chance.choice([4, 30])), 4))
        keys = [f"k{number:02d}" for number in numbers]
        if write == 0:
            table.bulk_insert(pa.table([keys, [0] * 4, numbers], schema=schema))
        elif chance.random() < 0.3:
            table.delete(pa.table({"id": keys[:2], "ts": pa.array([chance.choice([None, 1, 2])] * 2, pa.int64())}))
        else:
            table.upsert(pa.table([keys, [chance.randrange(4)] * 4, [100 * write] * 4], schema=schema))
    return table


def test_files_that_share_no_key_are_chained_and_give_the_rows_of_the_merge(
    tmp_path: Path,
) -> None:
    chained = 0
    for seed in range(40 if EVERY_CALL else 5):
        table = rolled_writes(tmp_path / str(seed), seed)
        oracle = read_snapshot(tmp_path / str(seed)).select(["id", "ts", "v"]).to_pylist()
        for max_open in (2, 4, 100):
            found, _, _ = merged(table, max_open)
            assert [{name: row[name] for name in ("id", "ts", "v")} for row in found] == oracle, (seed, max_open)
        (one,) = table.file_slices()
        with ExitStack() as files:
            opened = open_slice(table.storage, one, table.rule, files)
            merge = SliceMerge(table.rule, with_meta(table.schema))
            parts = [slice_merge._Stored(file, with_meta(table.schema), merge) for file in opened]
            chains = slice_merge._chains(parts)
        assert sorted(place for chain in chains for place in chain) == list(range(len(parts)))
        chained += len(parts) - len(chains)
    assert chained > 8


def test_as_many_runs_are_open_as_key_ranges_overlap_however_many_files_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path, **{**ONE_SLICE, "lsm.read.threads": 1})
    count = MAX_OPEN_FILES + 20
    for ts in range(count):
        table.upsert(rows((f"k{(ts * 7) % count:03d}", "DE", ts, ts)))
    monkeypatch.setattr(SliceMerge, "_spill", None)  # one run at a time: nothing to spill
    table.storage = storage = CountingStorage(tmp_path)

    def counted_from_here(*args: Any, **options: Any) -> list[DataFile]:
        found = open_slice(*args, **options)
        assert storage.most <= MAX_OPEN_FILES
        storage.most = 0
        return found

    monkeypatch.setattr(slice_reader, "open_slice", counted_from_here)
    assert [row[0] for row in shown(table)] == [f"k{number:03d}" for number in range(count)]
    assert storage.most <= 3


def test_a_key_beyond_the_footer_s_key_range_is_an_error(tmp_path: Path) -> None:
    table = create(tmp_path, **ONE_SLICE)
    table.upsert(rows(("a", "DE", 1, 1), ("c", "DE", 1, 1)))
    table.upsert(rows(("d", "DE", 1, 1)))
    (found,) = table.file_slices()
    with ExitStack() as files:
        one, other = open_slice(table.storage, found, table.rule, files)
        assert (one.key_range, other.key_range) == (("a", "c"), ("d", "d"))
        wrong = [dataclasses.replace(one, key_range=("a", "a")), dataclasses.replace(other, key_range=("b", "d"))]
        with pytest.raises(CorruptFileError, match="footer"):
            list(SliceMerge(table.rule, with_meta(table.schema)).blocks(wrong))


@pytest.mark.parametrize(
    ("place", "low", "high"),
    [(0, None, "k04"), (1, "k15", None)],
    ids=["earlier-file-ends-later", "later-file-begins-earlier"],
)
def test_a_key_beyond_the_range_that_a_chained_file_states_is_an_error(
    tmp_path: Path, place: int, low: str | None, high: str | None
) -> None:
    table = create(tmp_path, **ONE_SLICE)
    for begin in (0, 8):
        table.upsert(rows(*((f"k{number:02d}", "AT", 0, number) for number in range(begin, begin + 10))))
    (one,) = table.file_slices()
    set_key_range(tmp_path / one.logs[place].path, 0, low, high)
    with pytest.raises(CorruptFileError, match=r"a record key is (larger|smaller) than its footer says"):
        table.scan().to_arrow()
