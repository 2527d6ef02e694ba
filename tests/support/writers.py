"""Writers of small fake batches for tests of the timeline: real transactions, data files of a few bytes."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from streaming_lsm.config import Options
from streaming_lsm.format.actions.commit import WriteStat, log_file_stat
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import LogFileName, LogKind, WriteToken, bucket_file_id
from streaming_lsm.lock.heartbeat import check_still_inflight
from streaming_lsm.lock.lease import LeaseWatch
from streaming_lsm.lock.markers import create_marker
from streaming_lsm.lock.owner import Process
from streaming_lsm.lock.runtime import ProcessLocks, Runtime
from streaming_lsm.metadata.table import MetadataTable
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.properties_file import create_table_files
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.batch_ledger import BatchIdentity
from streaming_lsm.txn.outcome import Outcome
from streaming_lsm.txn.transaction import Transaction

CONFIG = TableConfig(name="orders", record_key_fields=("id",), num_buckets=4)
SCHEMA = '{"type":"record","name":"orders","fields":[{"name":"id","type":"string"}]}'
NOON_MS = 1_795_262_400_000
"""2026-11-21 12:00 UTC."""

NO_WAIT: Mapping[str, object] = {"hoodie.write.lock.wait_time_ms": 0, "lsm.write.single.writer.wait.ms": 0}
"""Options with which another writer is not waited for."""

_pids = itertools.count(1000)


def make_table(root: Path) -> LocalStorage:
    """An empty table."""
    storage = LocalStorage(root)
    create_table_files(storage, CONFIG.to_properties())
    return storage


def new_process(
    *, alive: Callable[[Process], bool] = lambda process: False, clock: Callable[[], int] = lambda: NOON_MS
) -> Runtime:
    """The world as a process sees that was just started on the one machine; by default all others are dead."""
    pid = next(_pids)
    tokens = itertools.count()
    return Runtime(
        clock=clock,
        elapsed=lambda: 0.0,
        sleep=lambda seconds: None,
        random=lambda: 0.5,
        new_token=lambda: f"{pid}x{next(tokens)}",
        process=lambda: Process("host", "machine", pid, 1),
        process_lives=alive,
        process_locks=ProcessLocks(),
        leases=LeaseWatch(),
    )


def transaction(
    storage: Storage,
    runtime: Runtime,
    batch_id: int | None = None,
    writer_id: str = "query",
    options: Mapping[str, object] | None = None,
) -> Transaction:
    """A transaction of a batch, or without identity when no batch is given."""
    identity = None if batch_id is None else BatchIdentity(writer_id, batch_id)
    chosen = Options({**NO_WAIT, **(options or {})})
    return Transaction(storage, CONFIG, chosen, identity, runtime=runtime, metadata=MetadataTable)


@dataclass(frozen=True)
class DataFile:
    """A data file to be written."""

    partition: str
    bucket: int
    attempt: int = 0

    def name(self, instant: str) -> LogFileName:
        """Its name at an instant."""
        file_id = bucket_file_id(self.bucket, uuid.UUID(int=self.bucket))
        return LogFileName(file_id, WriteToken(self.bucket, 0, self.attempt), instant, 1, LogKind.DATA, "parquet")


KEPT = (DataFile("nl", 0), DataFile("de", 1, attempt=1))
FAILED = (DataFile("de", 1, attempt=0),)


def write_file(storage: Storage, instant: str, file: DataFile) -> WriteStat:
    """What a task does."""
    name = file.name(instant)
    stat = log_file_stat(file.partition, name, total_bytes=4, num_inserts=1)
    create_marker(storage, instant, file.partition, str(name))
    with storage.create(stat.path) as output:
        output.write(b"data")
    check_still_inflight(storage, instant)
    return stat


def outcome(stats: Iterable[WriteStat] = (), operation: str = "UPSERT", schema: str = SCHEMA, **extra: str) -> Outcome:
    """The outcome of an action that wrote the files of `stats`."""
    return Outcome(tuple(stats), operation, schema, extra=extra)


def write_batch(storage: Storage, runtime: Runtime, batch_id: int) -> Instant | None:
    """One whole batch of two files, with one failed attempt; None when it is committed already."""
    with transaction(storage, runtime, batch_id) as running:
        if running.already_committed:
            return None
        instant = running.begin()
        for failed in FAILED:
            write_file(storage, instant, failed)
        stats = [write_file(storage, instant, file) for file in KEPT]
        running.reconcile(outcome(stats))
        return running.complete(outcome(stats, batch=str(batch_id)))


def files_below(root: Path) -> set[str]:
    """Every file on the disk, also those that a listing hides."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def assert_clean(root: Path, batches: Sequence[int]) -> None:
    """Each batch is committed once, and nothing but the commits' files, the rollbacks and the properties is left."""
    storage = LocalStorage(root)
    timeline = Timeline.load(storage)
    commits = [timeline.read_commit(write) for write in timeline.completed_writes]
    assert [int(commit.extra["batch"]) for commit in commits] == list(batches)
    assert timeline.pending == ()
    listed = {stat.path for commit in commits for stat in commit.stats}
    assert len(listed) == len(KEPT) * len(batches)
    on_timeline = {path for path in files_below(root) if path.startswith(".hoodie/timeline/")}
    assert files_below(root) - on_timeline == listed | {".hoodie/hoodie.properties"}
    recorded = {str(Path(path).name).split(".")[0].split("_")[0] for path in on_timeline}
    assert recorded == {instant.requested for instant in timeline.instants}
    assert list((root / ".hoodie/.temp").iterdir()) == []


def times_of(root: Path) -> list[str]:
    """All requested and completion times of a table."""
    instants = Timeline.load(LocalStorage(root)).instants
    return [time for instant in instants for time in (instant.requested, instant.completed) if time is not None]


class MovedClock:
    """A clock that a test moves; each look is a millisecond later."""

    def __init__(self) -> None:
        self.now_ms = NOON_MS

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms
