"""Detect completed writes whose completed instant file was lost, by other files that record their completion.

Without its completed file a write looks like a failed one, and would be rolled back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.actions.clean import CleanMetadata
from streaming_lsm.format.actions.file_state import RecordedFiles
from streaming_lsm.format.actions.rollback import RollbackPlan
from streaming_lsm.lock.markers import is_file_of, marker_folder
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import REWRITES
from streaming_lsm.timeline.archive import HISTORY_FOLDER
from streaming_lsm.timeline.instant import FLAT, WRITE_ACTIONS, Instant, State
from streaming_lsm.timeline.partition_folders import partition_listings
from streaming_lsm.timeline.timeline import Timeline

_NOW = "~"
"""Later than every time."""
_READ_ARCHIVED = 4
"""Archived writes of a range that are examined: writes that overlap are completed in another order than requested."""


def check_instants(timeline: Timeline, unknown: Mapping[str, str]) -> None:
    """Check that no write which should be visible lost its completed instant file.

    The pending instants and cleans of the whole table are examined, also for a timeline restricted to a point in time.
    Writes requested after that time are not visible in any case, so that states before them can be read.

    Args:
        unknown: a data file of each instant that is on the timeline in no state.

    Raises:
        CorruptFileError: see `check_pending`, `check_last_clean` and `check_unknown_files`.
    """
    until = _NOW if timeline.until is None else timeline.until
    check_pending(timeline.storage, timeline.whole, until)
    check_last_clean(timeline.whole, until)
    check_unknown_files(timeline.whole, {time: path for time, path in unknown.items() if time <= until})


def check_pending(storage: Storage, timeline: Timeline, until: str = _NOW) -> None:
    """Refuse a pending write that has data files and no markers, as markers are deleted only after completion.

    Folders are listed only if the marker folder of a pending write is missing.

    Args:
        until: writes requested after this time are not checked.

    Raises:
        CorruptFileError: there is such a write.
    """
    pending_writes = () if timeline.layout == FLAT else timeline.pending
    void = timeline.void_writes
    suspects = [pending for pending in pending_writes if pending.requested <= until and _may_have_files(pending)]
    suspects = [pending for pending in suspects if pending not in void]
    suspects = [pending for pending in suspects if not storage.exists(marker_folder(pending.requested))]
    if not suspects:
        return
    # Another program may be rolling back a completed write, for which it has planned a rollback.
    undone = planned_rollbacks(storage, timeline)
    suspects = [pending for pending in suspects if pending.requested not in undone]
    entries = [entry for found in partition_listings(storage).values() for entry in found]
    for pending in suspects:
        left = next((entry.path for entry in entries if is_file_of(entry.path, pending.requested)), None)
        # Looked at again: its first task may have made markers and files since. Loaded again, as the write may have
        # been completed or rolled back since; both precede the deletion of markers.
        if left is None or storage.exists(marker_folder(pending.requested)):
            continue
        now = Timeline.load(storage)
        if pending.requested in planned_rollbacks(storage, now):
            continue
        if pending in now.pending and not now.history.has(pending):
            raise CorruptFileError(
                f"{left} in {storage.uri} is a file of {pending.path}, whose completed instant file is missing (its "
                f"markers were deleted after completion): restore it{_or_repair(now)}{_or_drop(now, pending)}"
            )


def _or_drop(timeline: Timeline, pending: Instant) -> str:
    """Return how to drop a write, which later commits must not name as the one before them."""
    try:
        check_later_writes(timeline, pending.requested)
    except CorruptFileError:
        return ""
    return "; to drop the write, delete its data files and its pending instant files"


def planned_rollbacks(storage: Storage, timeline: Timeline) -> set[str]:
    """Return the requested times of the actions that pending rollbacks and restores undo."""
    planned = set()
    for rollback in timeline.pending:
        if rollback.action == "rollback":
            path = rollback.at(State.REQUESTED).path
            with suppress(FileNotFoundError):  # ended since; or without a plan, which `recover` refuses
                planned.add(RollbackPlan.decode(storage.read(path), path).instant)
        elif rollback.action == "restore":
            plan = timeline.restore_plan(rollback)
            planned.update(requested for requested, _ in (plan.undone if plan else ()))
    return planned


def _may_have_files(pending: Instant) -> bool:
    return pending.action in WRITE_ACTIONS or (pending.action in REWRITES and pending.state is State.INFLIGHT)


def check_unknown_files(timeline: Timeline, files: Mapping[str, str]) -> None:
    """Refuse data files of a write that has no instant file at all and was not rolled back.

    The timeline is loaded again if there are such files, as their writes may have begun after it was loaded. A late
    task may have left a file of a write that was rolled back, or undone by a restore.

    Args:
        files: a file of each such write, by its requested time.

    Raises:
        CorruptFileError: the instant files of such a write are gone.
    """
    if not files:
        return
    now = Timeline.load(timeline.storage, timeline.layout, timeline)
    suspects = [requested for requested in sorted(files) if not now.has(requested)]
    if not suspects:
        return
    planned = planned_rollbacks(now.storage, now)
    restored = max((found.requested for found in now.instants if found.action == "restore"), default="")
    for requested in suspects:
        if requested <= restored or requested in planned or now.is_undone(requested):
            continue
        if not now.is_archived(requested):
            raise CorruptFileError(
                f"{files[requested]} in {now.storage.uri} is a file of the write at {requested}, which is not on the "
                f"timeline and was not rolled back: its instant files were lost; restore them{_or_repair(now)}. To "
                "give the write up, delete its data files"
            )


def _or_repair(timeline: Timeline) -> str:
    """Return the advice to rebuild the timeline, if it has no completed write any more."""
    if timeline.layout == FLAT or timeline.completed_writes:
        return ""
    return f", or see what `lsm repair {timeline.storage.uri}` rebuilds, as no completed write is left on the timeline"


def check_named_writes(timeline: Timeline, writes: Iterable[Instant], since: str = _NOW) -> None:
    """Refuse a timeline that lacks a write which a later commit names as its predecessor.

    Args:
        timeline: the whole timeline.
        writes: its completed writes whose commits are read.
        since: archived writes that were completed after this time are needed, too; by default none.

    Raises:
        CorruptFileError: the completed instant file of such a write is gone, or the history of an archived one.
    """
    known = {write.file_name for write in timeline.completed_writes}
    for write in writes:
        recorded = RecordedFiles.of(timeline.read_commit(write).extra, write.path)
        if recorded is not None and recorded.after and recorded.after not in known:
            before = Instant.parse(recorded.after)
            if before is not None and _is_history_lost(timeline, before, since):
                raise CorruptFileError(
                    f"{before.file_name}, which {write.path} in {timeline.storage.uri} names as the write before it, "
                    f"is not on the timeline and not in {HISTORY_FOLDER}: restore that folder, or read changes since "
                    f"{before.completed} only"
                )
            if before is not None and _is_lost(timeline, before.requested, before.path):
                raise CorruptFileError(
                    f"{before.path} in {timeline.storage.uri} is gone, which {write.path} names as the write before "
                    "it: restore it"
                )


def check_later_writes(timeline: Timeline, requested: str) -> None:
    """Check, as `check_named_writes`, all writes that may name one with a requested time: those completed after it."""
    check_named_writes(timeline, [write for write in timeline.completed_writes if (write.completed or "") > requested])


def first_archived(timeline: Timeline, commits: Iterable[str]) -> list[Instant]:
    """Return the first archived writes of a range, for `check_named_writes`; their commits are in the history.

    Writers that have lost the history begin a new one, whose first write names one that is nowhere. The others follow
    it without a gap.

    Args:
        timeline: the whole timeline.
        commits: requested times of the range's writes, by completion time.
    """
    if timeline.layout == FLAT:
        return []
    active = {write.requested for write in timeline.completed_writes}
    archived = (write for time in commits if time not in active and (write := timeline.history.write(time)) is not None)
    return [*islice(archived, _READ_ARCHIVED)]


def _is_history_lost(timeline: Timeline, before: Instant, since: str) -> bool:
    """Return whether an archived write that was completed after a time is needed, and the history does not have it."""
    is_older = timeline.layout != FLAT and before.requested < timeline.first
    return is_older and (before.completed or "") > since and not timeline.is_archived(before.requested)


def check_last_clean(timeline: Timeline, until: str = _NOW) -> None:
    """Refuse a timeline that lacks the newest write recorded by the last clean.

    The clean is read only if no action follows it on the timeline.

    Args:
        timeline: the whole timeline.
        until: a write requested after this time is not checked.

    Raises:
        CorruptFileError: the instant files of that write are gone.
    """
    cleans = timeline.completed_cleans
    if not cleans or timeline.last_time > (cleans[-1].completed or ""):
        return
    with suppress(FileNotFoundError):  # archived since the timeline was read
        seen = CleanMetadata.decode(timeline.storage.read(cleans[-1].path), cleans[-1].path).last_completed
        if seen <= until and not timeline.has(seen) and _is_lost(timeline, seen, ""):
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
    # A holder of the lock that was stopped has an old timeline.
    now = Timeline.load(storage, data.layout)
    known = {instant.requested for instant in now.instants}
    for requested in (time for time in unknown if time not in known and _is_lost(now, time, "")):
        left = next((entry.path for entry in entries if is_file_of(entry.path, requested)), None)
        if left is not None:
            raise CorruptFileError(
                f"{left} in {storage.uri} is a file of the write at {requested}, which is in the metadata table and "
                f"not on the timeline: restore its instant files{_or_repair(data)}; to drop the write, delete its data "
                "files"
            )


def _is_lost(timeline: Timeline, requested: str, path: str) -> bool:
    """Return whether a write is neither archived nor rolled back, and its completed file is missing."""
    if requested < timeline.first or timeline.is_archived(requested) or timeline.is_undone(requested):
        return False
    return not (path and timeline.storage.exists(path))
