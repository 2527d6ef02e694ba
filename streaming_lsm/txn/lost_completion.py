"""Detect completed writes whose completed instant file was lost, by other files that record their completion.

Without its completed file a write looks like a failed one, and would be rolled back.
"""

from __future__ import annotations

from contextlib import suppress

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.actions.clean import CleanMetadata
from streaming_lsm.format.actions.file_state import RecordedFiles
from streaming_lsm.format.actions.rollback import RollbackPlan
from streaming_lsm.lock.markers import is_file_of, marker_folder
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import FLAT, WRITE_ACTIONS, Instant, State
from streaming_lsm.timeline.partition_folders import partition_listings
from streaming_lsm.timeline.timeline import Timeline


def check_pending(storage: Storage, timeline: Timeline) -> None:
    """Refuse a pending write that has data files and no markers, as markers are deleted only after completion.

    Folders are listed only if the marker folder of a pending write is missing.

    Raises:
        CorruptFileError: there is such a write.
    """
    pending_writes = () if timeline.layout == FLAT else timeline.pending
    suspects = [pending for pending in pending_writes if _may_have_files(pending)]
    suspects = [pending for pending in suspects if not storage.exists(marker_folder(pending.requested))]
    if not suspects:
        return
    # Another program may be rolling back a completed write, for which it has planned a rollback.
    undone = _planned_rollbacks(storage, timeline)
    suspects = [pending for pending in suspects if pending.requested not in undone]
    entries = [entry for found in partition_listings(storage).values() for entry in found]
    for pending in suspects:
        left = next((entry.path for entry in entries if is_file_of(entry.path, pending.requested)), None)
        # Loaded again, as the write may have been completed or rolled back since; both precede the deletion of markers.
        if left is not None and pending in Timeline.load(storage).pending:
            raise CorruptFileError(
                f"{left} in {storage.uri} is a file of {pending.path}, whose completed instant file is missing (its "
                "markers were deleted after completion): restore it; to drop the write, delete its data files and its "
                "pending instant files"
            )


def _planned_rollbacks(storage: Storage, timeline: Timeline) -> set[str]:
    """Return the requested times of the writes that pending rollbacks undo."""
    planned = set()
    for rollback in timeline.pending:
        if rollback.action == "rollback":
            path = rollback.at(State.REQUESTED).path
            with suppress(FileNotFoundError):  # ended since; or without a plan, which `recover` refuses
                planned.add(RollbackPlan.decode(storage.read(path), path).instant)
    return planned


def _may_have_files(pending: Instant) -> bool:
    return pending.action in WRITE_ACTIONS or (pending.action == "compaction" and pending.state is State.INFLIGHT)


def check_named_writes(timeline: Timeline) -> None:
    """Refuse a timeline that lacks a write which a later commit names as its predecessor; reads all commits.

    Raises:
        CorruptFileError: the completed instant file of such a write is gone.
    """
    known = {write.file_name for write in timeline.completed_writes}
    for write in timeline.completed_writes:
        recorded = RecordedFiles.of(timeline.read_commit(write).extra, write.path)
        if recorded is not None and recorded.after and recorded.after not in known:
            before = Instant.parse(recorded.after)
            if before is not None and _is_lost(timeline, before.requested, before.path):
                raise CorruptFileError(
                    f"{before.path} in {timeline.storage.uri} is gone, which {write.path} names as the write before "
                    "it: restore it"
                )


def check_last_clean(timeline: Timeline) -> None:
    """Refuse a timeline that lacks the newest write recorded by the last clean.

    The clean is read only if no action follows it on the timeline.

    Raises:
        CorruptFileError: the instant files of that write are gone.
    """
    cleans = timeline.completed_cleans
    if not cleans or timeline.until is not None or timeline.last_time > (cleans[-1].completed or ""):
        return
    with suppress(FileNotFoundError):  # archived since the timeline was read
        seen = CleanMetadata.decode(timeline.storage.read(cleans[-1].path), cleans[-1].path).last_completed
        if all(instant.requested != seen for instant in timeline.instants) and _is_lost(timeline, seen, ""):
            raise CorruptFileError(
                f"the completed instant file of the write at {seen} in {timeline.storage.uri} is gone, which "
                f"{cleans[-1].path} names as the newest write: restore it"
            )


def check_metadata_commits(storage: Storage, data: Timeline, metadata: Timeline) -> None:
    """Refuse a timeline that lacks a write with data files and a completed delta commit in the metadata table.

    A write that was rolled back has no data files, and is not reported.

    Args:
        data: timeline of the table.
        metadata: timeline of its metadata table.

    Raises:
        CorruptFileError: the instant files of such a write are gone.
    """
    known = {instant.requested for instant in data.instants}
    told = [write.requested for write in metadata.completed_writes if write.action == "deltacommit"]
    unknown = [time for time in told if time not in known and _is_lost(data, time, "")]
    if not unknown:
        return
    entries = [entry for found in partition_listings(storage).values() for entry in found]
    for requested in unknown:
        left = next((entry.path for entry in entries if is_file_of(entry.path, requested)), None)
        if left is not None:
            raise CorruptFileError(
                f"{left} in {storage.uri} is a file of the write at {requested}, which is in the metadata table and "
                "not on the timeline: restore its instant files; to drop the write, delete its data files"
            )


def _is_lost(timeline: Timeline, requested: str, path: str) -> bool:
    """Return whether a write is neither archived nor rolled back, and its completed file is missing."""
    if requested < timeline.first or timeline.is_archived(requested):
        return False
    if requested in timeline.finished_rollbacks(since=requested):
        return False
    return not (path and timeline.storage.exists(path))
