"""Check whether a metadata table can be kept, and find its actions that are to be undone; nothing is changed here.

A metadata table can be kept if its timeline, the data table's timeline and the names in its folder are consistent.
"""

from __future__ import annotations

from collections.abc import Callable

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.actions.clustering_plan import CLUSTER
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.format.metadata.files_partition import PARTITION
from streaming_lsm.metadata.commit import DELTA_COMMIT, FileChanges
from streaming_lsm.metadata.file_slices import METADATA_TABLE, MetadataFileSlice, counted_instants, is_first
from streaming_lsm.metadata.listing import FILES
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import CLEAN, COMPACTION, INDEXING
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.clock import next_time
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH, load_properties
from streaming_lsm.timeline.timeline import Timeline

_SETTINGS = {
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.base.file.format": "HFILE",
    "hoodie.timeline.layout.version": "2",
    "hoodie.populate.meta.fields": "false",
}
_UNDONE = frozenset({DELTA_COMMIT, COMPACTION, CLEAN})
_KNOWN = frozenset({"commit", CLEAN, "rollback"})


def check_state(
    metadata: Storage, version: str, data: Timeline, timelines: TimelineCache
) -> tuple[Timeline, list[Instant]]:
    """Check whether a metadata table can be kept.

    Args:
        metadata: storage of the metadata table.
        version: table version of the data table.
        data: timeline of the data table, before its pending actions are undone.
        timelines: cache that loads the metadata table's timeline.

    Returns:
        The metadata table's timeline, and its actions that are to be undone, as no completed action of the data table
        belongs to them.

    Raises:
        CorruptFileError: the metadata table is damaged, or has fallen behind.
        UnsupportedTable: this release cannot maintain the metadata table.
        TableNotFound: the metadata table is missing.
    """
    check_properties(metadata, version)
    timeline = timelines.load(metadata)
    try:
        next_time(0, timeline.last_time, "UTC")
    except (ValueError, OverflowError):
        raise CorruptFileError(
            f"{METADATA_TABLE}: newest time {timeline.last_time:.40} on its timeline is not a date and time"
        ) from None
    newest = MetadataFileSlice.newest(timeline, metadata.names(PARTITION), FILES)
    doomed = _without_action(timeline, data, newest.base.instant if newest.base else "")
    check_up_to_date(timeline, data)
    return timeline, doomed


def check_properties(metadata: Storage, version: str) -> None:
    """Check that the properties of a metadata table can be read, and are those of one that is kept.

    Args:
        metadata: storage of the metadata table.
        version: table version of the data table.

    Raises:
        CorruptFileError: the file is damaged.
        UnsupportedTable: a property has another value.
        TableNotFound: the file is missing.
    """
    found = load_properties(metadata)
    for key, value in {**_SETTINGS, "hoodie.table.version": version}.items():
        if _plain(found.get(key, "")) != _plain(value):
            raise UnsupportedTable(
                f"{METADATA_TABLE}/{PROPERTIES_PATH}: {key}={found.get(key)!r:.80} instead of {value}"
            )


def _plain(value: str) -> str:
    """Return a value as Java takes it: blanks around it, its case, and zeros before a number do not count."""
    return value.strip().lower().lstrip("0")


def _without_action(timeline: Timeline, data: Timeline, base: str) -> list[Instant]:
    """Return the actions of a metadata table to be undone; `base` is the instant of its newest base file.

    Raises:
        UnsupportedTable: there is an action that this release cannot undo.
    """
    counts = counted_instants(data)
    doomed = []
    for instant in timeline.instants:
        if instant.is_completed and (instant.action in _KNOWN or counts(instant.requested)):
            continue
        # A partition is registered when its first delta commit is completed.
        known = instant.action in _UNDONE and not (is_first(instant.requested) and instant.is_completed)
        if not known or (instant.is_completed and not _is_over(data, instant.requested)):
            raise UnsupportedTable(f"{METADATA_TABLE}/{instant.path}: an action that this release cannot undo")
        if instant.is_completed and (instant.completed or "") < base:
            raise UnsupportedTable(f"{METADATA_TABLE}/{instant.path} was compacted, and its action is being undone")
        doomed.append(instant)
    return doomed


def _is_over(data: Timeline, requested: str) -> bool:
    """Return whether an action of the data table is pending, or was rolled back."""
    return any(i.requested == requested for i in data.pending) or data.is_undone(requested)


def check_up_to_date(timeline: Timeline, data: Timeline) -> None:
    """Check that every completed action has a delta commit; programs without support of metadata tables write none.

    Args:
        timeline: timeline of the metadata table, loaded after `data`.
        data: timeline of the data table, of layout 2, which has completion times.

    Raises:
        CorruptFileError: the metadata table has fallen behind.
    """
    own = [write for write in timeline.completed_writes if write.action == DELTA_COMMIT]
    if not own:
        raise CorruptFileError(f"{METADATA_TABLE}: nothing is completed on its timeline")
    told = {write.requested for write in own}
    for action in data.instants:
        untold = action.is_completed and action.requested not in told and _is_after(action, own[0])
        if untold and _changes_files(data, action) and not _is_archived(timeline, action):
            raise CorruptFileError(f"{METADATA_TABLE} has fallen behind: it has no delta commit of {action.path}")


def check_replacements(timeline: Timeline, data: Timeline, partition: str) -> None:
    """Check that every action that replaced file groups has a delta commit, without which their keys seem to be there.

    Args:
        timeline: timeline of the metadata table, loaded after `data`.
        data: timeline of the data table.
        partition: a partition that must know of them, unless it was created later.

    Raises:
        CorruptFileError: one has none, which a program without support of metadata tables made.
    """
    replacing = [action for action in data.completed_writes if action.action == "replacecommit"]
    if not replacing:
        return
    own = [write for write in timeline.completed_writes if write.action == DELTA_COMMIT]
    told = {write.requested for write in own}
    indexings = {found.requested for found in data.instants if found.action == INDEXING}
    firsts = (write for write in own if is_first(write.requested) or write.requested in indexings)
    creations = (write for write in firsts if _creates(timeline, write, partition))
    created = max((write.completed or "" for write in creations), default="")
    for action in replacing:
        untold = action.requested not in told and (action.completed or "") > created and _is_after(action, own[0])
        if untold and any(data.read_commit(action).replaced or {}) and not _is_archived(timeline, action):
            raise CorruptFileError(f"{METADATA_TABLE} has fallen behind: it has no delta commit of {action.path}")


def check_rows_known(
    load: Callable[[], Timeline], data: Timeline | None, running: Instant, commit: CommitMetadata, partition: str
) -> Timeline:
    """Check that a partition that tells of rows can be kept when a write is completed; return the table's timeline.

    Args:
        load: loads the timeline of the metadata table.
        data: timeline of the data table; None if it was not loaded.
        running, commit: the write; see `check_order`.
        partition: the partition.

    Raises:
        CorruptFileError: see `check_replacements`.
        UnsupportedTable: the timeline was not loaded; or see `check_order`.
    """
    if data is None:
        raise UnsupportedTable("the timeline of the table is not known")
    if any(write.action == "replacecommit" for write in data.completed_writes):
        check_replacements(load(), data, partition)
    check_order(data, running, commit)
    return data


def check_order(data: Timeline, running: Instant, commit: CommitMetadata) -> None:
    """Check that no write that was requested later was completed in the same file groups, or has replaced others.

    Writes that do not block each other may be; and keys of file groups that were replaced may be written by this one,
    to others. Records of the metadata table are merged by requested time: what the later one has deleted would hide
    what this one adds.

    Args:
        data: timeline of the data table.
        running: the action that is about to be completed.
        commit: its metadata.

    Raises:
        UnsupportedTable: one was.
    """
    own = commit.file_groups
    for write in data.completed_writes:
        if write.action not in (DELTA_COMMIT, "replacecommit") or write.requested <= running.requested:
            continue
        its = data.read_commit(write)
        if not its.keeps_rows and not own.isdisjoint(its.file_groups):
            raise UnsupportedTable(
                f"{write.path} was requested after {running.requested}, and completed in the same file groups before it"
            )
        # A clustering keeps the keys, and no other write adds them meanwhile.
        if its.replaced_groups and its.operation_type != CLUSTER:
            raise UnsupportedTable(
                f"{write.path} was requested after {running.requested}, and has replaced file groups before it was "
                "completed"
            )


def _creates(timeline: Timeline, write: Instant, partition: str) -> bool:
    return any(stat.partition_path == partition for stat in timeline.read_commit(write).stats)


def check_newest_known(timeline: Timeline, data: Timeline) -> None:
    """Check that the action of the newest delta commit is on the data table's timeline, or was rolled back.

    Otherwise that action may have lost its instant files, and its files are not listed. The data table's timeline is
    loaded again before, as the action may have begun after it was loaded.

    Args:
        timeline: timeline of the metadata table, loaded after `data`.
        data: timeline of the data table.

    Raises:
        CorruptFileError: it is not.
    """
    own = [write for write in timeline.completed_writes if write.action == DELTA_COMMIT]
    newest = max(own, key=lambda write: write.completed or "", default=None)
    if newest is None or is_first(newest.requested) or data.has(newest.requested):
        return
    now = Timeline.load(data.storage, data.layout, data)
    if not now.has(newest.requested) and not now.is_undone(newest.requested):
        raise CorruptFileError(
            f"{METADATA_TABLE}/{newest.path} is of an action that is neither on the table's timeline nor rolled back"
        )


def _is_after(action: Instant, oldest: Instant) -> bool:
    """Return whether an action of the data table must have a delta commit that is not archived.

    The first delta commit of all creates the metadata table, and contains all actions completed before.
    """
    if is_first(oldest.requested):
        return (action.completed or "") > (oldest.completed or "")
    return action.requested > oldest.requested


def _is_archived(timeline: Timeline, action: Instant) -> bool:
    """Return whether a delta commit is archived: that of an action that took long is older than archived ones."""
    return timeline.history.has_time(action.requested)


def _changes_files(data: Timeline, action: Instant) -> bool:
    if not (action.is_write or action.action == CLEAN):
        return False
    try:
        changes = FileChanges.of(action, data.storage.read(action.path))
    except FileNotFoundError:  # archived since the timeline was read
        return False
    return bool(changes.added or changes.deleted)
