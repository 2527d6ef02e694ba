"""Bytes that 500 upserts cost: ``python -m tests.bench.peers.amplification [--batches N] [--without-paimon]``.

Each table begins with a base of `KEYS` rows, and takes the same batches of upserts with keys from anywhere, with the
services that default options run beside the compactions. The data files that were written, by the commits of the whole
history, and for Paimon by what is on the disk, as nothing is expired there, are divided by the bytes of the batches as
one Parquet file each, written by pyarrow. Exit status: 0 when all targets are reached.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from streaming_lsm import LsmTable
from streaming_lsm.config import Options
from tests.bench.peers.environment import prepare
from tests.bench.peers.systems import SYSTEMS
from tests.bench.reference.scan import read_by_column, read_by_file
from tests.bench.result import in_turns
from tests.bench.tables import THREADS, fastest, make_table
from tests.bench.workload import orders
from tests.conformance.environment import ROOT
from tests.conformance.worker import Worker

BATCHES, KEYS, ROWS = 500, 400_000, 2_000
READS_EVERY = 20
# Of bases of 128 MB, which this option is by default, every 1,000th part: those here have about 3 MB.
SMALL_BASE = 131_072
HYBRID = {
    "hoodie.compact.inline": True,
    "hoodie.compaction.plan.generator": "HybridCompactionPlanGenerator",
    "lsm.compaction.small.base.bytes": SMALL_BASE,
}
FULL = {"hoodie.compact.inline": True}
_SECONDS = 3600.0


@dataclass
class Written:
    """What one table cost.

    Attributes:
        base: bytes of its files after the first batch.
        total: bytes of all files in the end.
        shares: of snapshots along the way, the rate of a raw read of their files that they reached.
        merged: the same of one Parquet file with the rows of the snapshot.
    """

    base: int = 0
    total: int = 0
    shares: list[float] = field(default_factory=list)
    merged: list[float] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=BATCHES)
    parser.add_argument("--without-paimon", action="store_true")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-amplification-") as scratch:
        folder = Path(scratch)
        inputs = list(_inputs(folder / "inputs", given.batches))
        ingested = sum(path.stat().st_size for path in inputs)
        found: dict[str, Written] = {}
        rates: dict[str, float] = {}
        for name in (*_OURS, *(() if given.without_paimon else ("paimon",))):
            found[name] = one = (
                _ours(folder / name, inputs, _OURS[name]) if name in _OURS else _paimon(folder, given.batches)
            )
            rates[name] = (one.total - one.base) / ingested
            print(f"{name}: {rates[name]:.1f} bytes written for each of the batches' ({ingested:,})", flush=True)
    hybrid = rates.pop("hybrid")
    reached = rates["full"] / hybrid >= 2
    print(f"full / hybrid: {rates['full'] / hybrid:.2f} (target 2)")
    if "paimon" in rates:
        reached &= hybrid < rates["paimon"]
        print(f"paimon / hybrid: {rates['paimon'] / hybrid:.2f} (target more than 1)")
    shares = found["hybrid"].shares
    reached &= min(shares) >= 0.5
    print(f"snapshots: {min(shares):.2f} to {max(shares):.2f} of the rate of a raw read of their files (target 0.5)")
    merged = found["hybrid"].merged
    print(f"snapshots: {min(merged):.2f} to {max(merged):.2f} of that of one Parquet file with their rows")
    return 0 if reached else 1


_OURS = {"hybrid": HYBRID, "full": FULL}


def _inputs(folder: Path, batches: int) -> Iterator[Path]:
    """Write the batches as Parquet files."""
    folder.mkdir()
    for number in range(1, batches + 1):
        path = folder / f"{number:04d}.parquet"
        pq.write_table(orders(ROWS, KEYS, seed=number), path, compression="zstd")
        yield path


def _ours(folder: Path, inputs: Sequence[Path], options: dict[str, object]) -> Written:
    base = make_table(str(folder), KEYS, logs=0, log_rows=0)
    table = LsmTable(folder, base.options.merged(Options(options)))
    found = Written(base=_bytes_written(table))
    begun = time.perf_counter()
    for number, path in enumerate(inputs, 1):
        table.upsert(pq.read_table(path))
        if options is HYBRID and number % READS_EVERY == 0:
            _read_shares(table, folder.parent / "raw.parquet", found)
    print(f"{folder.name}: {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    found.total = _bytes_written(table)
    return found


def _read_shares(table: LsmTable, raw: Path, found: Written) -> None:
    """Add the rate of a snapshot, in parts of those of raw reads by the same threads."""
    rows = table.scan().to_arrow()
    columns = rows.column_names
    pq.write_table(rows, raw, compression="zstd")
    folder = Path(table.path.removeprefix("file://"))
    logs = [log.path for one in table.file_slices() for log in one.logs if not log.is_delete]
    paths = [str(folder / path) for path in (*(one.base.path for one in table.file_slices() if one.base), *logs)]
    reference = fastest(lambda: read_by_column(paths, columns, THREADS), lambda: read_by_file(paths, columns, THREADS))
    for raw_read, shares in (
        (reference, found.shares),
        (lambda: read_by_column([str(raw)], columns, THREADS), found.merged),
    ):
        ours, theirs = in_turns(lambda: table.scan().to_arrow(), raw_read)
        shares.append(sorted(theirs)[2] / sorted(ours)[2])


def _paimon(folder: Path, batches: int) -> Written:
    """Paimon with its own compactions, as default options make them, in a process of its own."""
    (system,) = (system for system in SYSTEMS if system.name == "paimon-compacting")
    environment = prepare(system, ROOT / "build" / "bench" / "peers" / "environments", print)
    command = [str(environment.python), "-m", "tests.bench.peers.amplification_worker"]
    log = ROOT / "build" / "bench" / "peers" / "amplification.log"
    worker = Worker(command, folder=ROOT, environment=environment.variables(), log=log)
    jars = [str(jar) for jar in environment.jars]
    request = {"do": "write", "jars": jars, "folder": str(folder), "keys": KEYS, "batches": batches}
    try:
        answer: dict[str, int] = worker.ask(request, _SECONDS)
        return Written(**answer)
    finally:
        worker.stop()


def _bytes_written(table: LsmTable) -> int:
    """Bytes of all data files that the table's writes and compactions have committed, archived ones included."""
    timeline = table.timeline
    return sum(stat.total_bytes for write in timeline.every_write for stat in timeline.read_commit(write).stats)


if __name__ == "__main__":
    sys.exit(main())
