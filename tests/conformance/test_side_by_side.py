"""Hudi and two processes of this package write to one table at the same time, each with Hudi's lock provider.

All write overlapping buckets under optimistic concurrency control. Afterwards both read the rows of the model: each
batch's own keys, and of the shared keys the row of the batch that is last in order.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.timeline.instant import WRITE_ACTIONS
from tests.conformance.judge import Hudi
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines
from tests.conformance.worker import Refused
from tests.support.many_writers import rows_of
from tests.support.small_tables import OPTIONS, Row, create, rows, shown

OURS = (0, 1)
HUDI = 2
COMMITS = 40
HUDI_COMMITS = 6
ATTEMPTS = 200
"""More than Hudi can need: it has no conflicts any more once the others have written their batches."""
PATIENCE_S = 240
PROVIDER = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
OPTIMISTIC: dict[str, object] = {
    **OPTIONS,
    "hoodie.write.table.version": 9,
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.num.retries.on.conflict.failures": 20,
    "hoodie.clean.automatic": False,
}
BY_HUDI = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "country",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.write.table.version": "9",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.compact.inline": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": PROVIDER,
    # Its client looks every 100 ms, and others may hold the lock at each look as long as they write.
    "hoodie.write.lock.client.num_retries": "1500",
    "hoodie.write.lock.client.wait_time_ms_between_retry": "100",
}
SHARED, OWN = "beside our lock", "in its own folder"
KINDS = pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])


@KINDS
def test_hudi_reads_what_two_processes_wrote_at_once(hudi: Hudi, record: Record, tmp_path: Path, kind: str) -> None:
    record(f"v9 {kind}, two writers", "ours → hudi", "snapshot")
    root = tmp_path / "orders"
    options = {**OPTIMISTIC, "hoodie.datasource.write.table.type": kind}
    create(root, **options)
    with _writers(root, options):
        pass
    _check(hudi, root, {number: COMMITS for number in OURS})


@KINDS
@pytest.mark.parametrize(
    ("locks", "metadata"),
    [(SHARED, "false"), (OWN, "false"), (OWN, "true")],
    ids=["shared", "own", "own-metadata_table"],
)
def test_hudi_writes_beside_two_processes(
    hudi: Hudi, record: Record, tmp_path: Path, kind: str, locks: str, metadata: str
) -> None:
    case = f"v9 {kind}, lock {locks}, metadata table: {metadata}"
    record(case, "ours and hudi at once", "snapshot")
    root = tmp_path / "orders"
    provider = {"hoodie.write.lock.provider": PROVIDER, "hoodie.metadata.enable": metadata}
    if locks == OWN:
        provider["hoodie.write.lock.filesystem.path"] = str(tmp_path / "locks")
    options = {**OPTIMISTIC, **provider, "hoodie.datasource.write.table.type": kind}
    create(root, **options)
    by_hudi = {**BY_HUDI, **provider, "hoodie.datasource.write.table.type": kind}
    conflicts = _write_by_hudi(hudi, root, 0, by_hudi)  # it has started when the others do
    with _writers(root, options):
        for batch in range(1, HUDI_COMMITS):
            conflicts += _write_by_hudi(hudi, root, batch, by_hudi)
    print(f"{case}: {conflicts} conflicts of Hudi's writes")
    _check(hudi, root, {**{number: COMMITS for number in OURS}, HUDI: HUDI_COMMITS}, undone=conflicts)


def _write_by_hudi(hudi: Hudi, root: Path, batch: int, options: dict[str, str]) -> int:
    """Write a batch until Hudi has no conflict, and return how many it had."""
    for attempt in range(ATTEMPTS):
        try:
            hudi.write(root, "upsert", rows(*rows_of(HUDI, batch)), options)
            return attempt
        except Refused as refused:
            if "HoodieWriteConflictException" not in str(refused):
                raise
    raise AssertionError(f"Hudi had a conflict {ATTEMPTS} times")


@contextmanager
def _writers(root: Path, options: dict[str, object]) -> Iterator[None]:
    """Two processes that write their batches meanwhile; prints what they report."""
    processes, logs = [], []
    for number in OURS:
        log = root.with_name(f"writer-{number}.log")
        logs.append(log)
        script = [sys.executable, "-m", "tests.support.many_writers", "write", str(root), str(number)]
        with log.open("w") as output:
            processes.append(
                subprocess.Popen([*script, "0", str(COMMITS), json.dumps(options)], stdout=output, stderr=output)
            )
    try:
        yield
        codes = [process.wait(PATIENCE_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    said = [log.read_text(encoding="utf-8") for log in logs]
    assert codes == [0, 0], said
    heard = [json.loads(line) for text in said for line in text.splitlines() if line.startswith("{")]
    told = Counter(str(report["told"]) for report in heard)
    lost = sum(text.count("was lost while it was held") + text.count("another program deleted it") for text in said)
    print(dict(told), "conflicts:", sum(report.get("conflicts", 0) for report in heard), "locks lost:", lost)
    assert told["committed"] == len(OURS) * COMMITS, said
    assert not any(report.get("strange") for report in heard), said


def _check(hudi: Hudi, root: Path, batches: dict[int, int], undone: int = 0) -> None:
    """Compare rows and timeline with the model.

    Args:
        batches: number of batches by writer.
        undone: writes of Hudi that had a conflict, which Hudi leaves pending.
    """
    written = [rows_of(number, batch) for number, count in batches.items() for batch in range(count)]
    table = LsmTable(root, OPTIONS)
    assert shown(table) == _model(written)
    assert hudi.read(root) == to_lines(table.scan(meta=True).to_arrow())
    active = [instant for instant in table.timeline.instants if instant.completed]
    completed = list(dict.fromkeys([*table.timeline.every_write, *active]))
    times = [time for instant in completed for time in (instant.requested, str(instant.completed))]
    assert len(set(times)) == len(times)
    assert all(instant.requested < str(instant.completed) for instant in completed)
    writes = [instant for instant in completed if instant.action in WRITE_ACTIONS]
    assert len(writes) == len(written)
    assert len(table.timeline.pending) <= undone


def _model(written: Sequence[Sequence[Row]]) -> list[Row]:
    last: dict[tuple[str, str], Row] = {}
    for batch in written:
        for row in batch:
            key = (row[0], row[1])
            last[key] = max(row, last.get(key, row), key=lambda each: each[2])
    return sorted(last.values())
