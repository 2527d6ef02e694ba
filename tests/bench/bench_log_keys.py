"""Key entries of logs: files that look-ups read and open, bytes that logs grow by, and the cost of a commit.

Figures that are no times are compared with their limits.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_lsm import LsmTable
from streaming_lsm.format.log.key_entries import covered_logs
from tests.bench.result import Result
from tests.bench.workload import padded

LOG_ROWS, LOGS, ASKED = 1000, 20, 200
TOGETHER = (10, 30, 100)
SPACE = 10_000_000
SCENARIO_COMMITS, SCENARIO_ROWS = 500, 100
ACCUMULATED = {"lsm.log.key.index.accumulated": True}
WITHOUT = {"lsm.log.key.index.enabled": False}


def run() -> Iterable[Result]:
    """Measure a slice of 20 logs, commits to slices of 20 and 200, and a slice that compactions never empty."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        yield from _read(root)
        yield from _grown(root)
        yield from _commits(root)
        yield from _left_behind(root / "left")


def _figure(name: str, found: float, limit: float, unit: str, note: str) -> Result:
    return Result(name, (found,), (limit,), 1, unit, 1.0, False, note, timed=False)


def _made(path: Path, **options: object) -> LsmTable:
    chosen: Mapping[str, object] = {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.recordkey.field": "order_id",
        "hoodie.table.ordering.fields": "updated",
        "hoodie.bucket.index.num.buckets": 1,
        "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
        "hoodie.clean.automatic": False,
        **options,
    }
    return LsmTable.create(path, _orders(np.arange(1), 0).schema, chosen)


def _orders(numbers: np.ndarray, updated: int) -> pa.Table:
    return pa.table(
        {
            "order_id": _keys(numbers),
            "updated": np.full(len(numbers), updated),
            "qty": numbers * 7919 % 1000,
            "note": pc.binary_join_element_wise("note of ", padded(numbers % 5000), ""),
        }
    )


def _keys(numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise("order-", padded(numbers), "")


def _drawn(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Even numbers, so that odd ones are absent keys between them."""
    return np.unique(rng.integers(0, SPACE // 2, rows)) * 2


def _read(root: Path) -> Iterable[Result]:
    """Files whose rows a look-up of one key reads, in a slice of 20 logs, each key in one of them.

    Without the filters of row groups, so that the key entries decide alone.
    """
    for name, accumulated in (("own", {}), ("accumulated", ACCUMULATED)):
        options = {"lsm.parquet.key.bloom.filter.enabled": False, **accumulated}
        table, rng = _made(root / name, **options), np.random.default_rng(0)
        numbers = rng.permutation(SPACE // 2)[: LOGS * LOG_ROWS] * 2
        for log in range(LOGS):
            table.upsert(_orders(numbers[log * LOG_ROWS : (log + 1) * LOG_ROWS], log))
        asked = rng.choice(numbers, ASKED, replace=False)
        present, absent = _told(table, asked), _told(table, asked + 1)
        many = [_opened_together(table, asked + 1, keys) for keys in TOGETHER]
        together = ", ".join(f"{found:.1f} for {keys}" for keys, found in zip(TOGETHER, many, strict=True))
        note = (
            f"the limit; footers opened: {present[1]:.2f} per present key, {absent[1]:.2f} per absent one, of {LOGS}; "
            f"of absent keys that are looked up together: {together}"
        )
        yield _figure(f"{name} entries, files read per present key", present[0], 1.1, "files", note)
        yield _figure(f"{name} entries, files read per absent key", absent[0], 0.05, "files", note)


def _told(table: LsmTable, numbers: np.ndarray) -> tuple[float, float]:
    """Files whose rows are read, and files whose footers are, per key."""
    counts = [table.explain_lookup([key]).counts for key in _keys(numbers).to_pylist()]
    read = sum(one.files - one.files_skipped for one in counts)
    return read / len(numbers), sum(one.files for one in counts) / len(numbers)


def _opened_together(table: LsmTable, numbers: np.ndarray, keys: int) -> float:
    """Footers that a look-up of some of the keys at once opens, on average."""
    parts = [numbers[start : start + keys] for start in range(0, len(numbers) - keys + 1, keys)]
    return float(np.mean([table.explain_lookup(_keys(part).to_pylist()).counts.files for part in parts]))


def _grown(root: Path) -> Iterable[Result]:
    """Bytes by which a log of 1,000 rows grows."""
    sizes = {}
    for name, options in (("none", WITHOUT), ("own", {}), ("both", ACCUMULATED)):
        table, rng = _made(root / f"grown {name}", **options), np.random.default_rng(1)
        for log in range(32):
            table.upsert(_orders(_drawn(rng, LOG_ROWS), log))
        (found,) = table.file_slices()
        sizes[name] = [log.size for log in found.logs]
    own = median(np.subtract(sizes["own"], sizes["none"]).tolist())
    both = float(np.mean(np.subtract(sizes["both"], sizes["none"])))
    note = f"the limit; {max(sizes['none']):,} bytes without"
    yield _figure("own entry, bytes per log of 1,000 rows", own, 5_000, "bytes", note)
    yield _figure("own and accumulated entries, bytes per log", both, 5_000, "bytes", "the limit; average of 32 logs")


def _commits(root: Path) -> Iterable[Result]:
    """Processor time of commits with accumulated entries and without any, to slices of 20 and of 200 logs."""
    with_them, without = _made(root / "with", **ACCUMULATED), _made(root / "without", **WITHOUT)
    rng, taken = np.random.default_rng(2), {id(with_them): list[float](), id(without): list[float]()}
    for log in range(212):
        rows = _orders(_drawn(rng, LOG_ROWS), log)
        for table in (with_them, without) if log % 2 else (without, with_them):
            begun = time.process_time()
            table.upsert(rows)
            taken[id(table)].append(time.process_time() - begun)
    ours, others = taken[id(with_them)], taken[id(without)]
    for logs in (20, 200):
        window = slice(logs - 12, logs + 12)
        yield Result(
            f"commit to a slice of {logs} logs",
            tuple(ours[window]),
            tuple(others[window]),
            LOG_ROWS,
            "rows",
            1.5,
            False,
            "a commit without key entries",
        )
    # Of commits in turns, so that a machine that is slow for a while slows both down.
    added = [float(median(np.subtract(ours[window], others[window]))) for window in (slice(8, 32), slice(188, 212))]
    note = "what they add to a commit to a slice of 20 logs"
    name = "what entries add to a commit, 200 logs"
    yield Result(name, (added[1],), (added[0],), LOG_ROWS, "rows", 2.0, False, note)


def _left_behind(path: Path) -> Iterable[Result]:
    """RFC-06's discussion: writers that begin before each compaction and end after it leave logs behind."""
    table, rng = _made(path, **ACCUMULATED), np.random.default_rng(3)
    others = [LsmTable(table.path, table.options) for _ in range(2)]
    number, left, covered, opened = 0, list[int](), list[int](), list[float]()

    def write(by: LsmTable) -> None:
        nonlocal number
        number += 1
        by.upsert(_orders(_drawn(rng, SCENARIO_ROWS), number))

    while number < SCENARIO_COMMITS:
        for _ in range(8):
            write(table)
        _while_begun(
            table, lambda: _while_begun(others[0], others[1].compact, lambda: write(others[0])), lambda: write(table)
        )
        (found,) = table.file_slices()
        left.append(len(found.logs))
        for _ in range(2):
            write(table)
        if number % 100 < 12:
            opened.append(_told(table, _drawn(rng, 20) + 1)[1])
        covered.append(_covered(table))
    present = table.scan(["order_id"]).to_arrow()["order_id"].combine_chunks()
    asked = present.take(pa.array(rng.choice(len(present), 100, replace=False))).to_pylist()
    assert table.lookup(asked).num_rows == len(asked)
    absent = _told(table, _drawn(rng, ASKED) + 1)
    (found,) = table.file_slices()
    note = (
        f"the limit; {number} commits, {len(left)} compactions, each left {min(left)} to {max(left)} logs; "
        f"{len(found.logs)} logs now, footers opened per absent key {absent[1]:.2f}, "
        f"before {', '.join(f'{one:.1f}' for one in opened)}; "
        f"logs in one entry: at most {max(covered[:5])} at first, {max(covered[-5:])} at last"
    )
    yield _figure("logs left behind, files read per absent key", absent[0], 0.05, "files", note)


def _while_begun(table: LsmTable, act: Callable[[], object], write: Callable[[], None]) -> None:
    """Write, and do something between the begin of the write and its files."""
    kind, done = type(table.transaction()), list[bool]()
    begin = kind.begin

    def beginning(tx: object, *args: object, **kwargs: object) -> object:
        began = begin(tx, *args, **kwargs)  # type: ignore[arg-type]
        if not done:
            done.append(True)
            act()
        return began

    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(kind, "begin", beginning))
        write()


def _covered(table: LsmTable) -> int:
    """Most logs that an entry of the slice covers."""
    (found,) = table.file_slices()
    footers: Sequence[Mapping[bytes, bytes]] = [
        pq.read_metadata(table.storage.open_input(log.path)).metadata for log in found.logs
    ]
    return max((len(covered_logs(footer)) for footer in footers), default=0)
