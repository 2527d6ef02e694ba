"""Compact, clean and archive the metadata table.

They run while the lock is held and no delta commit belongs to a pending action of the data table, so that every delta
commit is valid or erased. An interrupted compaction or clean is undone by the next transaction, and run again when it
is due.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from urllib.parse import unquote

import pyarrow as pa

from streaming_lsm.errors import CommitConflict
from streaming_lsm.format.actions.clean import CleanMetadata, CleanPlan
from streaming_lsm.format.actions.commit import WriteStat, base_file_stat
from streaming_lsm.format.actions.compaction_plan import CompactionOperation, CompactionPlan
from streaming_lsm.format.metadata.files_partition import PARTITION
from streaming_lsm.format.metadata.group_files import LogName, base_content, base_name
from streaming_lsm.format.table.file_names import BaseFileName, parse_file_name
from streaming_lsm.format.table.properties import listed
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.lock.markers import delete_files
from streaming_lsm.metadata.commit import DELTA_COMMIT, begin, complete, created_by_former, put_completed
from streaming_lsm.metadata.creation import INFLIGHT_KEY, PARTITIONS_KEY
from streaming_lsm.metadata.file_slices import (
    METADATA_TABLE,
    MetadataFileSlice,
    is_first,
    left_slices,
    slice_time,
    visible_files,
)
from streaming_lsm.metadata.logged_records import LoggedRecords
from streaming_lsm.metadata.partitions.base import DAMAGE, Encoded, GrowingPartition, KeptPartition
from streaming_lsm.metadata.removal import remove_file, remove_files
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.action_kind import CLEAN, COMPACTION
from streaming_lsm.timeline.archive import HISTORY_FOLDER
from streaming_lsm.timeline.archiving import HistoryWriter, NewFile, archived_paths, mergeable, read_archived
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline

_KEPT_SLICES = 2
_MIB = 1 << 20
_LARGE_BASE, _LOG_SHARE, _MOST_LOGS = _MIB // 8, 0.5, 20
"""A slice with a base file of so many bytes is compacted when the records of its logs have this share of them, or they
are so many: the rewrite of a large record index would take many times what the commits took."""
_MOST_COMMITS = 3 * _MOST_LOGS
"""Delta commits after which a log is merged anyhow: the table keeps its action on the active timeline until then."""
_LOG_OVERHEAD = 6 << 10
"""Bytes of a log without records: trailer and file info."""
_POLICY = "KEEP_LATEST_FILE_VERSIONS"
_LOG = logging.getLogger(__name__)


def compaction_is_due(timeline: Timeline, delta_commits: int) -> bool:
    """Return whether a metadata table has at least `delta_commits` delta commits since its last compaction."""
    writes = timeline.completed_writes
    last = max((write.requested for write in writes if write.action == "commit"), default="")
    since = [write for write in writes if write.action == DELTA_COMMIT and (write.completed or "") > last]
    return len(since) >= delta_commits


@dataclass(frozen=True)
class NeededActions:
    """State which actions of a table its metadata table needs: those whose delta commits it has not compacted.

    Readers of delta commits look for their actions on the active timeline of the table, so that these are not archived.

    Attributes:
        since: requested time of the oldest one; of the last compaction if there is none before it.
        late: requested times of the actions with delta commits that are not compacted.
    """

    since: str
    late: frozenset[str]

    @staticmethod
    def of(storage: Storage, data: Timeline) -> NeededActions | None:
        """Read the timeline of the metadata table.

        Args:
            storage: the table.
            data: its timeline.

        Returns:
            None without a metadata table; files of one that was dropped may remain.
        """
        properties = load_properties(storage)
        if not (properties.get(PARTITIONS_KEY) or properties.get(INFLIGHT_KEY)):
            return None
        metadata = Subfolder(storage, METADATA_TABLE)
        timeline = data.load_inside(metadata)
        if not timeline.instants:
            return None
        last = max((write.requested for write in timeline.completed_writes if write.action == "commit"), default="")
        logged = _logged_instants(metadata, timeline, listed(properties.get(PARTITIONS_KEY, "")))
        late = frozenset(
            action.requested
            for action in data.instants
            if (action.completed or "~") >= last or action.requested in logged
        )
        return NeededActions(min([last, *late]), late & {found.requested for found in timeline.instants})


def _logged_instants(metadata: Storage, timeline: Timeline, partitions: Sequence[str]) -> set[str]:
    """Return the instants of the logs that are newer than the base files of their file groups."""
    instants: set[str] = set()
    for partition in partitions:
        names = [name for text in metadata.names(partition) if (name := parse_file_name(text)) is not None]
        bases: dict[str, str] = {}
        for name in names:
            if isinstance(name, BaseFileName) and timeline.completion_time(name.instant) is not None:
                bases[name.file_id] = max(bases.get(name.file_id, ""), name.instant)
        for name in names:
            if not isinstance(name, BaseFileName) and slice_time(timeline, name) >= bases.get(name.file_id, ""):
                instants.add(name.instant)
    return instants


def compact(
    metadata: Storage,
    timeline: Timeline,
    partitions: Sequence[KeptPartition],
    counts: Callable[[str], bool],
    times: InstantSource,
    lock: TableLock,
    logged: LoggedRecords,
    *,
    archives: bool = False,
) -> dict[str, str]:
    """Merge the log files into a new base file, and clean old file slices.

    Args:
        metadata: storage of the metadata table.
        timeline: its timeline.
        partitions: its partitions.
        counts: whether the log records of an instant are valid, see `counted_instants`.
        times: instant times of the data table, whose lock is held.
        logged: the records of some of its logs.
        archives: whether to archive the actions of the slices that were cleaned.

    Returns:
        Why partitions could not be read, by name; these were left out. Nothing was done if `files` is one of them.

    Raises:
        CommitConflict: a former holder of the lock created a file of the compaction at this moment.
        CorruptFileError: the timeline of the metadata table cannot be read.
        Fenced: another writer took the lock.
    """
    requested = times.next()
    encode = partial(base_content, created_ms=times.now_ms(), token=lock.owner.token)
    merged: list[_Merged] = []
    left: list[MetadataFileSlice] = []
    faults: dict[str, str] = {}
    is_due = partial(_is_due, timeline=timeline, aged=_aged(timeline))
    for kept in partitions:
        try:
            found, others = _merged(metadata, timeline, kept, counts, requested, encode, is_due, logged)
            merged += found
            left += others
        except (*DAMAGE, FileNotFoundError) as error:
            faults[kept.name] = str(error)
    if PARTITION in faults or not merged:
        return faults
    partitions = [kept for kept in partitions if kept.name not in faults]
    lock.verify()
    running = Instant(requested, COMPACTION, State.REQUESTED)
    plan = CompactionPlan(tuple(_operation(one) for one in merged if one.slice.base or one.slice.logs))
    bases = {_stat(one): one.content for one in merged}
    try:
        begin(metadata, running, plan.encode())
        metadata.put_all_if_absent({stat.path: content for stat, content in bases.items()})
    except FileExistsError as error:
        # By a slow clock the time of an undone compaction was drawn again.
        lock.verify()
        raise created_by_former(requested, metadata) from error
    complete(metadata, running, tuple(bases), "COMPACT", times, lock, left_slices(left))
    logged.forget_others(left, timeline)
    _LOG.info("compacted the metadata table %s: %d logs", metadata.uri, sum(len(one.slice.logs) for one in merged))
    _clean(metadata, timeline, partitions, times, lock)
    if archives:
        _archive(metadata, timeline, left, lock)
    return faults


@dataclass(frozen=True)
class _Merged:
    """A file slice that is compacted: the sizes of its files, and name, content and records of its new base file."""

    slice: MetadataFileSlice
    sizes: Mapping[str, int]
    name: BaseFileName
    content: bytes
    count: int

    @staticmethod
    def of(
        found: MetadataFileSlice,
        sizes: Mapping[str, int],
        name: BaseFileName,
        records: Encoded,
        encode: Callable[[pa.BinaryArray, pa.BinaryArray], bytes],
    ) -> _Merged:
        """Encode the records of a new base file; of what is merged, only the content is held."""
        return _Merged(found, sizes, name, encode(*records), len(records[0]))


def _merged(
    metadata: Storage,
    timeline: Timeline,
    kept: KeptPartition,
    counts: Callable[[str], bool],
    requested: str,
    encode: Callable[[pa.BinaryArray, pa.BinaryArray], bytes],
    is_due: Callable[[MetadataFileSlice, Mapping[str, int]], bool],
    logged: LoggedRecords,
) -> tuple[list[_Merged], list[MetadataFileSlice]]:
    """Merge the slices of a partition that are due; return also those that are not."""
    entries = metadata.list(kept.name)
    sizes = {entry.name: entry.size for entry in entries}
    slices = MetadataFileSlice.newest_of_all(timeline, list(sizes), kept.name)
    of_groups = {one.group: one for one in slices}
    found, left = [], []
    for new in kept.grown(slices, metadata, counts, requested) if isinstance(kept, GrowingPartition) else ():
        one = of_groups.pop(new.group, MetadataFileSlice(new.group, None, ()))
        name = base_name(new.group.file_id, requested)
        found.append(_Merged.of(one, sizes, name, (new.keys, new.values), encode))
    for group, one in of_groups.items():
        name = base_name(group.file_id, requested)
        if is_due(one, sizes):
            known = logged.known_to(one, timeline)
            found.append(_Merged.of(one, sizes, name, kept.merged(known, metadata, counts, str(name)), encode))
        else:
            left.append(one)
    return found, left


def _aged(timeline: Timeline) -> str:
    """Return the completion time since which there are `_MOST_COMMITS` delta commits; empty if there are fewer."""
    times = sorted(write.completed or "" for write in timeline.completed_writes if write.action == DELTA_COMMIT)
    return times[-_MOST_COMMITS] if len(times) > _MOST_COMMITS else ""


def _logs_of_writes(found: MetadataFileSlice) -> list[LogName]:
    """Return the logs of a slice without that which its creation has made, which has no records."""
    return [log for log in found.logs if not is_first(log.instant)]


def _is_due(found: MetadataFileSlice, sizes: Mapping[str, int], timeline: Timeline, aged: str) -> bool:
    """Whether a slice is merged: it has `aged` logs of delta commits, or not too few against a large base file."""
    logged = _logs_of_writes(found)
    if not logged:
        return False
    if any(slice_time(timeline, log) < aged for log in logged):
        return True
    base, logs = sizes.get(str(found.base), 0), sum(sizes[str(log)] - _LOG_OVERHEAD for log in found.logs)
    return base < _LARGE_BASE or logs >= _LOG_SHARE * base or len(found.logs) >= _MOST_LOGS


def _stat(merged: _Merged) -> WriteStat:
    partition, size = merged.slice.group.partition, len(merged.content)
    return base_file_stat(partition, merged.name, total_bytes=size, num_writes=merged.count, previous=merged.slice.base)


def _operation(merged: _Merged) -> CompactionOperation:
    found, sizes = merged.slice, merged.sizes
    base, names = found.base, tuple(map(str, found.logs))
    instant = base.instant if base else min(log.instant for log in found.logs)
    of_logs, of_base = (sum(sizes[str(name)] for name in some) for some in (names, [base] if base else []))
    # Hudi requires all of them to run a plan.
    metrics = {
        "TOTAL_LOG_FILES": float(len(names)),
        "TOTAL_LOG_FILES_SIZE": float(of_logs),
        "TOTAL_IO_READ_MB": float((of_logs + of_base) // _MIB),
        "TOTAL_IO_WRITE_MB": float(of_base // _MIB),
        "TOTAL_IO_MB": float((of_logs + of_base) // _MIB + of_base // _MIB),
    }
    return CompactionOperation(
        partition_path=found.group.partition,
        file_id=found.group.file_id,
        base_instant=instant,
        logs=names,
        base_file=str(base) if base else None,
        metrics=metrics,
    )


def _clean(
    metadata: Storage,
    timeline: Timeline,
    partitions: Sequence[KeptPartition],
    times: InstantSource,
    lock: TableLock,
) -> None:
    """Delete all slices but the newest two: readers of the slice before the newest can finish."""
    timeline = Timeline.load(metadata, previous=timeline)
    old = {kept.name: found for kept in partitions if (found := _old_files(metadata, timeline, kept))}
    if not old:
        return
    names = {partition: tuple(map(str, found)) for partition, found in old.items()}
    running = Instant(times.next(), CLEAN, State.REQUESTED)
    last = timeline.completed_writes[-1].requested
    root = unquote(metadata.uri)
    planned = {partition: tuple(f"{root}/{partition}/{name}" for name in some) for partition, some in names.items()}
    begin(metadata, running, CleanPlan(None, last, _POLICY, planned).encode())
    paths = [(f"{partition}/{name}", is_first(name.instant)) for partition, found in old.items() for name in found]
    delete_files(metadata, lock, [path for path, of_first in paths if not of_first])
    for path, of_first in paths:
        # A later holder of the lock may have dropped the metadata table, and created one with a file of this name.
        if of_first:
            remove_file(metadata, path, lock.verify)
    done = CleanMetadata(
        start=running.requested,
        duration_ms=0,
        earliest="",
        last_completed=last,
        policy=_POLICY,
        files=names,
    )
    put_completed(metadata, running, done.encode(), times, lock)


def _old_files(metadata: Storage, timeline: Timeline, kept: KeptPartition) -> list[LogName | BaseFileName]:
    """List the files of a partition's slices that are older than the newest two of their file group."""
    of_groups: dict[str, list[str]] = defaultdict(list)
    for text in metadata.names(kept.name):
        name = parse_file_name(text)
        if name is not None:
            of_groups[name.file_id].append(text)
    old: list[LogName | BaseFileName] = []
    for group in kept.groups:
        bases, logs = visible_files(timeline, of_groups[group.file_id], group)
        instants = sorted({base.instant for base in bases})
        if len(instants) > _KEPT_SLICES:
            first_kept = instants[-_KEPT_SLICES]
            old += [log for log in logs if slice_time(timeline, log) < first_kept]
            old += [base for base in bases if base.instant < first_kept]
    return old


def _second_last(timeline: Timeline) -> str:
    """Return the instant of the last compaction but one; empty if there is none."""
    compactions = sorted(write.requested for write in timeline.completed_writes if write.action == "commit")
    return compactions[-2] if len(compactions) > 1 else ""


def _archive(metadata: Storage, timeline: Timeline, left: Sequence[MetadataFileSlice], lock: TableLock) -> None:
    """Move actions that are older than the last two compactions, and than all logs, into the metadata table's history.

    No reader needs them: what they recorded is in base files, and the last compaction names the files of the slices
    that it has `left`, which alone have logs.
    """
    timeline = Timeline.load(metadata, previous=timeline)
    first_kept = min([_second_last(timeline), *(log.instant for one in left for log in _logs_of_writes(one))])
    writer, history = HistoryWriter(metadata, lock.verify), timeline.history
    actions = list(takewhile(lambda action: (action.completed or "~") < first_kept, timeline.instants))
    # What made a partition, whose instant precedes all others, tells the files of a former one of that name from those
    # that are lost, as long as there is an older action.
    left_over = min((found.completed or "~" for found in timeline.instants[len(actions) :]), default="~")
    actions = list(
        takewhile(lambda action: not is_first(action.requested) or (action.completed or "~") < left_over, actions)
    )
    chosen = [action for action in actions if not history.has(action)]
    added = list(read_archived(metadata, timeline, chosen))
    try:
        history = writer.newest()
        if added:
            history = writer.add(history, NewFile.of(added))
        files = mergeable(history)
        if files:
            history = writer.add(history, NewFile.merged(history, files), merged=files)
            writer.delete_old_manifests(history)
    except CommitConflict as error:
        _LOG.debug("%s: %s", metadata.uri, error)
        return
    for paths in archived_paths(timeline, history, added):
        remove_files(metadata, paths, lock.verify)
    metadata.sweep(HISTORY_FOLDER)
