"""Propose the instants of a lost timeline, and write them while the table's lock is held.

The completed files are written oldest first: until the last one is there, files of later writes are of unknown writes,
so that readers and writers refuse the table. All that is written follows from what is left of the table: another repair
writes the same, and one that was interrupted is finished by the next.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from streaming_lsm import config
from streaming_lsm.errors import CommitConflict, ConfigError, CorruptFileError, Fenced
from streaming_lsm.format.actions.clustering_plan import clustered_groups
from streaming_lsm.format.actions.compaction_plan import CompactionPlan
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER
from streaming_lsm.lock.lock import LockWait, TableLock
from streaming_lsm.lock.markers import is_file_of, marker_of
from streaming_lsm.lock.providers.choice import choose_provider
from streaming_lsm.metadata.table import MetadataTable
from streaming_lsm.services.context import Engine, ServiceContext
from streaming_lsm.services.repair.found_files import FileReader, FoundFile
from streaming_lsm.services.repair.late_writes import LateWriteFinder, LateWrites, is_compacted
from streaming_lsm.services.repair.left_actions import (
    finished_services,
    restore_doubts,
    superseded_compactions,
)
from streaming_lsm.services.repair.plan import Evidence, RebuiltInstant, RepairPlan
from streaming_lsm.services.repair.planner import plan_repair, proven_writes
from streaming_lsm.services.repair.remains import Remains, look
from streaming_lsm.timeline.action_kind import CLUSTERING, COMPACTIONS, LOG_COMPACTION
from streaming_lsm.timeline.archive import HISTORY_FOLDER
from streaming_lsm.timeline.clock import instant_ms
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.properties_file import fence_properties
from streaming_lsm.timeline.schema_on_read import latest_schemas
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.recovery import find_living
from streaming_lsm.txn.savepoint import lost_savepoints

_LOG = logging.getLogger(__name__)


def propose_repair(context: ServiceContext, engine: Engine) -> RepairPlan:
    """Plan what a repair writes; nothing is changed.

    Raises:
        ConfigError: the timeline has completed writes.
        UnsupportedTable: the table is read-only in this release, or its timeline has layout 1.
    """
    return _planned(context, look(context), engine)


def repair(context: ServiceContext, engine: Engine) -> RepairPlan:
    """Write the completed instants of a lost timeline, and drop the metadata table.

    Files are read before the lock is acquired, and listed again while it is held.

    Returns:
        What was written.

    Raises:
        ConfigError, UnsupportedTable: see `propose_repair`; nothing was changed.
        CorruptFileError: a file cannot be placed; nothing was changed.
        CommitConflict: others hold the lock, write the table by what is left of its timeline, or have changed it;
            nothing was changed.
        Fenced: another process took the lock; run the repair again.
    """
    remains = look(context)
    plan = _planned(context, remains, engine)
    for path, why in plan.unplaced.items():
        raise CorruptFileError(
            f"{path} in {context.storage.uri} cannot be placed: {why}: restore the file, or move it away; nothing was "
            "changed"
        )
    with _locked(context) as lock:
        now = look(context)
        _refuse_living(context, lock, now.timeline)
        if now.facts != remains.facts:
            raise CommitConflict(f"{context.storage.uri} was changed since its files were listed: run the repair again")
        # Dropped first: once all instants are there the repair counts as done.
        reason = "the timeline is rebuilt, with other completion times"
        MetadataTable(context.storage, context.options, lock, context.timelines).drop(reason)
        context.storage.make_folder(HISTORY_FOLDER)
        _abandon(context, lock, plan)
        _end_left(context, lock, plan)
        for found in plan.instants:
            _write(context, lock, found)
    context.timelines.known = None
    _LOG.warning("rebuilt the timeline of %s: %s", context.storage.uri, plan)
    return plan


def _planned(context: ServiceContext, remains: Remains, engine: Engine) -> RepairPlan:
    unplaced = dict.fromkeys(remains.stray, "its folder has no .hoodie_partition_metadata")
    found: list[FoundFile] = []
    torn: dict[str, str] = {}
    reader = FileReader(context.storage, context.rule)
    for file, read in zip(remains.files, engine.map(reader, remains.files), strict=True):
        if isinstance(read, str):
            torn[file.entry.path] = read
            read = file.unread()
        elif not _is_time(read.instant, context.config.timeline_zone):
            unplaced[read.path] = f"{read.instant} is no time"
            continue
        found.append(read)
    proven = proven_writes(found)
    if not context.config.is_copy_on_write:
        # Hudi rolls a failed attempt at a compaction back, and completes the next one at the same requested time.
        proven |= {file.instant for file in found if is_compacted(file) or file.compacted} & remains.rolled_back
    uncommitted = {time: why for time, why in remains.uncommitted.items() if time not in proven}
    unplaced |= {file.path: torn[file.path] for file in found if file.path in torn and file.instant not in uncommitted}
    placed = [file for file in found if file.path not in unplaced]
    kept = [file for file in placed if file.instant not in uncommitted]
    plans = _compaction_plans(context, remains)
    deletes = [file for file in remains.archived_files if file.is_delete_log]
    archived_deletes = [read for read in engine.map(reader, deletes) if isinstance(read, FoundFile)]
    evidence = Evidence(
        files=tuple(placed),
        uncommitted=uncommitted,
        abandoned=remains.abandoned & uncommitted.keys(),
        pending=remains.pending,
        taken=remains.taken,
        schema=context.config.create_schema,
        column_ids=latest_schemas(context.storage),
        late=_late_writes(context, plans, kept, archived_deletes),
        merged=_merged(remains, kept, context.config.timeline_zone),
        superseded=superseded_compactions(remains.pending.values(), plans, placed),
        decided={time: found for time, found in remains.decided.items() if found.completed is not None},
        archived=tuple(file.unread() for file in remains.archived_files),
        last_archived=remains.archived.last,
        clustered=_clustered(context, remains),
    )
    plan = plan_repair(evidence, context.config, unplaced)
    _refuse_done(remains.timeline, plan)
    timeline, zone = remains.timeline, context.config.timeline_zone
    taken = {*remains.taken, *(time for found in plan.instants for time in found.times)}
    finished = finished_services(timeline, (*remains.files, *remains.archived_files), taken, zone)
    doubts = (*plan.doubts, *restore_doubts(timeline, finished))
    return replace(plan, finished=finished, dropped=lost_savepoints(timeline), doubts=doubts)


def _refuse_done(timeline: Timeline, plan: RepairPlan) -> None:
    """Refuse a timeline that was rebuilt; the requested file of an instant is written last."""
    written = timeline.names.parsed
    if plan.instants and all({f.completed.file_name, f.pending.file_name} <= written.keys() for f in plan.instants):
        raise ConfigError(
            f"the timeline of {timeline.storage.uri} is not lost: an earlier repair has rebuilt its "
            f"{len(plan.instants)} completed writes"
        )


def _merged(remains: Remains, files: list[FoundFile], zone: str) -> frozenset[str]:
    """Return the writes of which base files have rows, and whose own files were cleaned."""
    there = {file.name.instant for file in remains.files}
    merged = {time for file in files for time in file.commits} - there
    return frozenset(time for time in merged if _is_time(time, zone) and time not in remains.archived)


def _compaction_plans(context: ServiceContext, remains: Remains) -> dict[str, CompactionPlan]:
    """Read the plans of compactions that are left, by requested time."""
    plans: dict[str, CompactionPlan] = {}
    for requested, pending in remains.pending.items():
        path = pending.at(State.REQUESTED).path
        if pending.action in COMPACTIONS and context.storage.exists(path):
            is_log = pending.action == LOG_COMPACTION
            plans[requested] = CompactionPlan.decode(context.storage.read(path), path, log=is_log)
    return plans


def _clustered(context: ServiceContext, remains: Remains) -> dict[str, frozenset[tuple[str, str]]]:
    """Read the file groups of the plans of clusterings that are left, by requested time."""
    found: dict[str, frozenset[tuple[str, str]]] = {}
    for requested, pending in remains.pending.items():
        path = pending.at(State.REQUESTED).path
        if pending.action == CLUSTERING and context.storage.exists(path):
            found[requested] = clustered_groups(context.storage.read(path), path)
    return found


def _late_writes(
    context: ServiceContext,
    plans: Mapping[str, CompactionPlan],
    files: Sequence[FoundFile],
    archived_deletes: Sequence[FoundFile],
) -> LateWrites:
    if context.config.is_copy_on_write:
        return LateWrites()
    return LateWriteFinder(context.storage, context.rule, plans, archived_deletes).find(files)


def _is_time(instant: str, zone: str) -> bool:
    try:
        return instant_ms(instant, zone) > 0
    except (ValueError, OverflowError):
        return False


@contextmanager
def _locked(context: ServiceContext) -> Iterator[TableLock]:
    """Hold the table's lock; the table is not recovered, as that needs its timeline."""
    storage, options, runtime = context.storage, context.options, context.runtime
    lease_ms = options[config.HEARTBEAT_MS] * options[config.HEARTBEAT_MISSES]
    provider = choose_provider(storage, options, runtime)
    writer = options[config.WRITER_ID] or "lsm repair"
    lock = TableLock(storage, writer, lease_ms, runtime, LockWait.of(options), provider)
    lock.acquire()
    try:
        if lock.formers:
            fence_properties(storage, lock.owner.token, runtime.clock)
        yield lock
    finally:
        lock.release()
        runtime.process_locks.end(lock.owner)


def _refuse_living(context: ServiceContext, lock: TableLock, timeline: Timeline) -> None:
    storage, options = context.storage, context.options
    lease_ms = options[config.HEARTBEAT_MS] * options[config.HEARTBEAT_MISSES]
    beats = storage.list(HEARTBEAT_FOLDER)
    living = find_living(storage, timeline, beats, context.runtime, lease_ms, lock.owner, lock.formers)
    for pending in living:
        raise CommitConflict(f"{pending.path} in {storage.uri} is being written: stop its writer, and run it again")


def _abandon(context: ServiceContext, lock: TableLock, plan: RepairPlan) -> None:
    """Make the writes that were not completed pending again, by their files' markers and their instants."""
    for write in plan.abandoned:
        lock.touch()
        for path in plan.left_out:
            if is_file_of(path, write.requested):
                _create(context, lock, write, marker_of(write.requested, path))
        for pending in (write, write.at(State.INFLIGHT)):
            _create(context, lock, pending, pending.path)


def _end_left(context: ServiceContext, lock: TableLock, plan: RepairPlan) -> None:
    """Complete the services, and delete the savepoints, that were completed before the timeline was lost."""
    for found in plan.finished:
        lock.touch()
        _create(context, lock, found.completed, found.completed.path, found.content)
    for savepoint in plan.dropped:
        lock.verify()
        context.storage.delete(savepoint.path)


def _write(context: ServiceContext, lock: TableLock, found: RebuiltInstant) -> None:
    """Create the files of one instant, the completed one first, so that it is never pending."""
    storage, completed, data = context.storage, found.completed, found.metadata.encode()
    plan = b"" if found.plan is None else found.plan.encode()
    lock.touch()
    if not _create(context, lock, completed, completed.path, data) and storage.read(completed.path) != data:
        raise CorruptFileError(
            f"{completed.path} in {storage.uri} is not what an earlier repair wrote of the same files: restore the "
            "files that were there then, or delete what it wrote, and run the repair again"
        )
    for pending, content in ((found.pending.at(State.INFLIGHT), b""), (found.pending, plan)):
        _create(context, lock, pending, pending.path, content)


def _create(context: ServiceContext, lock: TableLock, instant: Instant, path: str, data: bytes = b"") -> bool:
    """Create a file of an action, and return whether it was not there; one that comes too late is deleted again.

    Raises:
        Fenced: another process took the lock. If it has gone on to archive or undo the action, the file is deleted.
    """
    lock.verify()
    storage = context.storage
    try:
        storage.put_if_absent(path, data)
    except FileExistsError:
        return False
    try:
        lock.verify()
    except Fenced:
        now = Timeline.load(storage)
        undone = now.finished_rollbacks(since=instant.requested)
        if now.history.has(instant) or instant.requested in undone:
            storage.delete(path)
        raise
    return True
