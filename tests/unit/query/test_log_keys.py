"""Look-ups by the key entries of logs: what is opened, and that no key is missed whatever writers do."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.format.log.key_entries import CoveredLog, KeyEntry, accumulated_text, covered_bytes
from streaming_lsm.index.live_file_groups import LiveFileGroups
from streaming_lsm.query.prune.row_groups import RowGroupCounts
from streaming_lsm.write.files.earlier_logs import EarlierLogs
from streaming_lsm.write.known_entries import KnownEntries
from tests.oracle.validator import validate
from tests.support.log_compaction import compact_logs
from tests.support.small_tables import create, data_files, rows, shown

ONE_GROUP: dict[str, object] = {
    "hoodie.bucket.index.num.buckets": 1,
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "hoodie.clean.automatic": False,
    "lsm.read.threads": 1,
    "lsm.log.key.index.accumulated": True,
}


def made(root: Path, **options: object) -> LsmTable:
    return create(root, **{**ONE_GROUP, **options})


def write(table: LsmTable, *keys: str, ts: int = 1, opened: bool = False) -> None:
    """One log, whose range is wide, so that ranges alone rule out nothing; of another open table if not `opened`."""
    (table if opened else LsmTable(table.path, table.options)).upsert(
        rows(*((key, "DE", ts, ts) for key in ("a", *keys, "z")))
    )


def counts(table: LsmTable, *keys: str) -> RowGroupCounts:
    """What a look-up reads; its rows are those of a scan."""
    found = table.lookup(list(keys)).to_pylist()
    assert [tuple(row.values()) for row in found] == [row for row in shown(table) if row[0] in keys]
    by_filter = table.scan(filter=f"id IN ({', '.join(map(repr, keys))})")
    assert by_filter.to_arrow().sort_by("id").to_pylist() == found
    told = table.explain_lookup(list(keys)).counts
    assert by_filter.explain().counts.unopened == told.unopened
    return told


@contextmanager
def paused(act: Callable[[], object]) -> Iterator[None]:
    """Do something while a writer has read the entries of earlier logs, and has not committed."""
    read, done = EarlierLogs.covered_by, list[bool]()

    def covered_by(self: EarlierLogs, finished: Sequence[CoveredLog]) -> list[CoveredLog]:
        found = read(self, finished)
        if not done:
            done.append(True)
            act()
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(EarlierLogs, "covered_by", covered_by)
        yield
    assert done


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("layout", ["lsm_tree", "default"])
def test_a_lookup_finds_what_a_scan_finds_in_every_history(tmp_path: Path, layout: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    limit = (65536, 400, 90)[seed]
    table = made(tmp_path, **{"hoodie.table.storage.layout": layout, "lsm.log.key.index.max.bytes": limit})
    unopened = 0
    for ts in range(1, 11):
        ids = [f"k{number:03}" for number in np.unique(rng.integers(0, 200, 12))]
        table.upsert(rows(*((key, "DE", ts, ts) for key in ids)))
        if ts % 3 == 0:
            table.delete(rows(*((key, "DE", ts, 0) for key in ids[:4])).select(["id", "country", "ts"]))
        if rng.random() < 0.1:
            table.compact()
        elif rng.random() < 0.2:
            compact_logs(table, lambda instants: instants[:3])
        number = int(rng.integers(0, 200))
        unopened += counts(table, f"k{number:03}", f"k{(number * 7) % 200:03}").unopened
    assert unopened > (0, 0, -1)[seed]
    if layout == "lsm_tree":
        assert validate(str(tmp_path)) == []


def test_one_footer_tells_of_many_logs(tmp_path: Path) -> None:
    table = made(tmp_path)
    for number in range(6):
        write(table, f"k{number}")
    assert counts(table, "k9") == RowGroupCounts(files=1, files_skipped=1, row_groups=1, by_bloom=1, unopened=5)
    found = counts(table, "k3")
    assert (found.files, found.files_skipped, found.unopened) == (2, 1, 4)
    assert "files: 1 of 6 read; 1 skipped by keys and statistics, 4 skipped by the key entries of newer logs" in str(
        table.explain_lookup(["k3"])
    )
    assert counts(LsmTable(tmp_path, {"lsm.read.threads": 1}), "k3") == found


def test_a_bucket_table_has_no_accumulated_entries_unless_asked(tmp_path: Path) -> None:
    table = made(tmp_path, **{"lsm.log.key.index.accumulated": None})
    for number in range(8):
        write(table, f"k{number}")
    assert counts(table, "k9") == RowGroupCounts(files=8, files_skipped=8, row_groups=8, by_bloom=8)


def test_a_log_that_is_committed_late_is_searched(tmp_path: Path) -> None:
    table = made(tmp_path)
    other = LsmTable(tmp_path, table.options)
    write(table, "k0")
    with paused(lambda: [write(other, f"k{number}") for number in (2, 3, 4)]):
        write(table, "k1")
    write(table, "k5")
    for number in range(6):
        assert counts(table, f"k{number}").unopened
    late = [log.name.instant for log in table.file_slices()[0].logs]
    assert len(late) == 6
    assert validate(str(tmp_path)) == []


def test_an_entry_of_a_log_that_was_rolled_back_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path)
    for key in ("k0", "k1", "x0", "x1"):
        write(table, key)
    other = LsmTable(tmp_path, table.options)

    def dies(*_: object) -> None:
        every = sorted(path for path in data_files(tmp_path) if path.endswith(".log.parquet"))
        assert len(every) == 5
        monkeypatch.setattr(LiveFileGroups, "newest_logs", {("DE", 0): tuple(every)})
        write(other, "k3")
        raise RuntimeError("the writer dies")

    monkeypatch.setattr(table, "commit", dies)
    with pytest.raises(RuntimeError):
        write(table, "k2", opened=True)
    monkeypatch.undo()
    write(other, "k4")
    assert [row[0] for row in shown(other)] == ["a", "k0", "k1", "k3", "k4", "x0", "x1", "z"]
    newest = (tmp_path / other.file_slices()[0].logs[4].path).read_bytes()
    assert newest.count(b'"size":') == 5
    assert (counts(other, "k2").rows, counts(other, "k2").unopened) == (0, 4)
    assert (counts(other, "k1").rows, counts(other, "k1").unopened) == (3, 3)


def test_after_a_compaction_that_leaves_logs_behind_entries_are_those_of_the_new_slice(tmp_path: Path) -> None:
    table = made(tmp_path)
    other = LsmTable(tmp_path, table.options)
    for round in range(6):
        for number in range(3):
            write(table, f"k{round}{number}")
        with paused(other.compact):
            write(table, f"late{round}")
        (found,) = table.file_slices()
        assert [log.name.instant < found.base_instant for log in found.logs] == [True]
    for number in range(6):
        write(table, f"new{number}")
    absent = counts(table, "k9")
    assert (absent.files, absent.unopened) == (3, 5)
    assert counts(table, "late5", "late0", "k21").rows
    newest = table.storage.open_input(table.file_slices()[0].logs[-1].path).read()
    assert newest.count(b'"size":') <= 5


def test_logs_without_entries_are_indexed_by_the_next_write(tmp_path: Path) -> None:
    old = made(tmp_path, **{"lsm.log.key.index.enabled": False})
    for number in range(6):
        write(old, f"k{number}")
    assert counts(old, "k9").unopened == 0
    table = LsmTable(tmp_path, {**ONE_GROUP})
    write(table, "k6")
    assert counts(table, "k9").unopened == 6
    assert counts(table, "k4").unopened == 5


Change = Callable[[Sequence[CoveredLog]], str]
SPOILED: dict[str, Change] = {
    "no JSON": lambda logs: accumulated_text(logs)[:-1],
    "another checksum": lambda logs: "0" * 8 + accumulated_text(logs)[8:],
    "another size": lambda logs: accumulated_text([replace(log, size=log.size + 1) for log in logs]),
    "another file": lambda logs: accumulated_text([replace(log, name=f"0{log.name}") for log in logs]),
}


@pytest.mark.parametrize("how", SPOILED)
def test_what_contradicts_the_files_is_left_out(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming_lsm.write.files.native_log_writer.accumulated_text", SPOILED[how])
    table = made(tmp_path)
    for number in range(4):
        write(table, f"k{number}")
        assert counts(table, f"k{number // 2}").unopened == 0
    assert counts(table, "k9").files == 4


def test_a_log_that_cannot_be_read_ends_an_entry_and_fails_no_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path)
    for number in range(3):
        write(table, f"k{number}")
    read = table.storage.open_input

    def damaged(path: str) -> object:
        if path.endswith(".log.parquet"):
            raise OSError(5, "Input/output error", path)
        return read(path)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(table.storage), "open_input", lambda _, path: damaged(path))
        write(table, "k3")
    assert counts(table, "k0").unopened == 0


@contextmanager
def read_entries() -> Iterator[list[str]]:
    """The paths of the logs whose entries are read."""
    read, paths = EarlierLogs._block, list[str]()

    def noted(self: EarlierLogs, path: str) -> list[CoveredLog] | None:
        paths.append(path)
        return read(self, path)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(EarlierLogs, "_block", noted)
        yield paths


def test_a_commit_reads_as_many_entries_with_many_logs_as_with_few(tmp_path: Path) -> None:
    table, taken = made(tmp_path), list[int]()
    with read_entries() as blocks:
        for number in range(32):
            before = len(blocks)
            write(table, f"k{number}")
            taken.append(len(blocks) - before)
    assert sum(taken[:12]) <= 36
    assert sum(taken[20:]) <= 47
    assert max(taken) <= 9


def test_an_open_table_does_not_read_the_entries_of_its_own_logs(tmp_path: Path) -> None:
    table, read_again = made(tmp_path / "kept"), made(tmp_path / "read")
    with read_entries() as blocks:
        for number in range(9):
            write(table, f"k{number}", opened=True)
        assert not blocks
        write(table, "k9")
        assert blocks
        theirs = len(blocks)
        write(table, "k10", opened=True)
    assert len(blocks) == theirs + 1, "the log of another writer"
    for number in range(11):
        write(read_again, f"k{number}")
    assert counts(table, "k0") == counts(read_again, "k0")


def test_logs_of_several_partitions_have_one_name_and_their_own_keys(tmp_path: Path) -> None:
    table = made(tmp_path)
    for number in range(1, 7):
        both = [(key, where, number, number) for where in ("de", "nl") for key in ("a", f"{where}{number}", "z")]
        table.upsert(rows(*both))
    names = [{log.path.rpartition("/")[2] for log in one.logs} for one in table.file_slices()]
    assert names[0] == names[1]
    for opened in (table, LsmTable(tmp_path, table.options)):
        for key in (f"{where}{number}" for where in ("de", "nl") for number in range(1, 7)):
            assert opened.lookup([key]).num_rows == 1
            assert opened.scan(filter=f"id = '{key}'").to_arrow().num_rows == 1


def test_what_is_kept_of_written_logs_is_bounded_and_stays_behind_in_its_process() -> None:
    kept = KnownEntries(most_bytes=1000)
    logs = [CoveredLog(f"log-{number}", 10, KeyEntry(1, ("a", "b"), None)) for number in range(20)]
    for before, log in enumerate(logs):
        for _ in range(2):
            kept.put(log.name, logs[max(0, before - 1) : before + 1])
    assert kept.of("log-0") is None
    assert kept.of("log-19") == logs[18:]
    assert sum(kept.of(log.name) is not None for log in logs) == 1000 // (200 + 2 * covered_bytes(logs[-1]))
    assert pickle.loads(pickle.dumps(kept)).of("log-19") is None


def test_a_log_of_too_many_keys_has_a_range_and_is_covered_by_it(tmp_path: Path) -> None:
    table = made(tmp_path, **{"lsm.log.key.index.max.bytes": 1500})
    table.upsert(rows(*((f"k{number:04}", "DE", 1, 1) for number in range(0, 4000, 2))))
    for ts in range(5):
        table.upsert(rows(("x", "DE", ts, ts)))
    assert counts(table, "m").unopened == 5
    inside = counts(table, "k0001")
    assert (inside.unopened, inside.files_skipped) == (4, 2)


def test_large_logs_are_covered_by_as_many_as_there_is_room_for(tmp_path: Path) -> None:
    table = made(tmp_path, **{"lsm.log.key.index.max.bytes": 3000})
    for log in range(8):
        table.upsert(rows(*((f"k{number:04}", "DE", log, log) for number in range(log, 8000, 8))))
    # From the third one on, every other log covers the one before.
    assert counts(table, "k0500x").unopened == 3


def test_a_log_that_cannot_be_covered_does_not_make_blocks_grow_sooner(tmp_path: Path) -> None:
    table = made(tmp_path)
    for number in range(5):
        write(table, f"k{number}")
        if number == 1:
            compact_logs(table, lambda instants: instants)
    (found,) = table.file_slices()
    assert all(b'"size":' not in (tmp_path / log.path).read_bytes() for log in found.logs)


def test_a_log_of_a_thousand_rows_grows_by_less_than_5_kb(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).permutation(10**6)
    sizes = {}
    for enabled in (True, False):
        table = made(tmp_path / str(enabled), **{"lsm.log.key.index.enabled": enabled})
        for log in range(16):
            some = sorted(numbers[log * 1000 : (log + 1) * 1000].tolist())
            table.upsert(rows(*((f"order-{number:010}", "DE", 1, 1) for number in some)))
        sizes[enabled] = np.array([log.size for log in table.file_slices()[0].logs])
    grown = sizes[True] - sizes[False]
    assert 2000 < grown[0] < 3000
    assert 4000 < grown.mean() < 5000


def test_the_rows_of_partial_updates_are_looked_up(tmp_path: Path) -> None:
    table = made(tmp_path, **{"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"})
    schema = pa.schema([("id", pa.string()), ("country", pa.string()), ("ts", pa.int64()), ("qty", pa.int32())])
    for ts in range(6):
        table.upsert(rows(("a", "DE", ts, ts), (f"k{ts}", "DE", ts, ts), ("z", "DE", ts, ts)))
    table.upsert(pa.table({"id": ["k1"], "country": ["DE"], "ts": [9], "qty": [None]}, schema=schema))
    assert table.get("k1") == {"id": "k1", "country": "DE", "ts": 9, "qty": 1}
    assert counts(table, "k1").unopened
