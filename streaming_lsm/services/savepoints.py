"""List, make and delete savepoints: states of a table that cleaning and archiving keep, and a restore can return to.

See docs/format/02-timeline.md, "Savepoint".
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from streaming_lsm.errors import CommitConflict, ConfigError, CorruptFileError
from streaming_lsm.file_group.lost_files import checked_slices, newest_write
from streaming_lsm.format.actions.clean import CleanPlan
from streaming_lsm.format.actions.savepoint import SavepointMetadata
from streaming_lsm.services.context import ServiceContext, past_state, read_clean_plan
from streaming_lsm.services.survey import looked, savepoints
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.planned_actions import pending_cleans
from streaming_lsm.txn.savepoint import check_savepoints, lost_savepoints

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Savepoint:
    """A state of the table that is kept.

    Attributes:
        instant: the savepoint on the timeline; its requested time is that of the write as of which the table is kept.
        user: who made it.
        saved_ms: when it was made, milliseconds since the epoch.
        comment: why it was made.
        files: names of the files that it keeps, by partition path.
    """

    instant: Instant
    user: str
    saved_ms: int
    comment: str
    files: Mapping[str, tuple[str, ...]]


def list_savepoints(timeline: Timeline) -> tuple[Savepoint, ...]:
    """Read the savepoints of a timeline, the oldest first; a warning names one whose completed instant file was lost.

    Raises:
        CorruptFileError: the file of one is missing, or cannot be decoded.
    """
    try:
        check_savepoints(timeline)
    except CorruptFileError as error:
        _LOG.warning("%s", error)
    found = ((each, SavepointMetadata.decode(timeline.read_content(each), each.path)) for each in savepoints(timeline))
    return tuple(Savepoint(each, kept.user, kept.saved_ms, kept.comment, kept.files) for each, kept in found)


def make_savepoint(context: ServiceContext, requested: str | None, user: str, comment: str) -> Instant:
    """Keep the table as of a write. Its partitions are listed while the lock is held.

    Args:
        requested: requested time of a completed write on the timeline; None for the last one.
        user: who makes it.
        comment: why.

    Returns:
        The completed savepoint.

    Raises:
        ConfigError: there is no such write, it is a savepoint already, or files of that state were cleaned.
        CommitConflict: a clean that is pending deletes files of that state; or others held the lock for too long.
        CorruptFileError: a file of that state is missing; or it was a savepoint that lost its completed instant file.
    """
    context.load_timeline()  # refuses tables that are read-only
    with context.transaction() as tx:
        write = _write_at(tx.timeline, requested, context.storage.uri)
        _refuse_second(context, tx.timeline, write)

        def look() -> bytes:
            timeline = Timeline.load(context.storage, previous=tx.timeline)
            files = _files_as_of(context, timeline, write)
            _refuse_cleaned(context, timeline, files, write)
            return SavepointMetadata(user, tx.now_ms(), comment, files).encode()

        completed = tx.make_savepoint(write, look)
    _LOG.info("made %s in %s", completed.path, context.storage.uri)
    return completed


def preview_savepoint(context: ServiceContext, requested: str | None) -> tuple[Instant, Mapping[str, tuple[str, ...]]]:
    """Return the write as of which `make_savepoint` would keep the table, and the files; raises as it does."""

    def look(timeline: Timeline) -> tuple[Instant, Mapping[str, tuple[str, ...]]]:
        write = _write_at(timeline, requested, context.storage.uri)
        _refuse_second(context, timeline, write)
        files = _files_as_of(context, timeline, write)
        _refuse_cleaned(context, timeline, files, write)
        return write, files

    return looked(context, look)


def _refuse_second(context: ServiceContext, timeline: Timeline, write: Instant) -> None:
    if any(found.requested == write.requested for found in savepoints(timeline)):
        raise ConfigError(
            f"{write.path} in {context.storage.uri} is a savepoint already: delete that first to make it anew"
        )
    check_savepoints(timeline, write.requested)


def delete_savepoint(context: ServiceContext, requested: str) -> None:
    """Delete a savepoint: from then on its files are cleaned, and its write archived, as any other.

    Args:
        requested: requested time of its write; or of a savepoint whose completed instant file was lost.

    Raises:
        ConfigError: there is no such savepoint.
        CommitConflict: others held the lock for longer than the options say to wait.
    """
    context.load_timeline()
    with context.transaction() as tx:
        tx.delete_savepoint(savepoint_to_delete(tx.timeline, requested, context.storage.uri))


def savepoint_to_delete(timeline: Timeline, requested: str, uri: str) -> Instant:
    """Return the savepoint of a write, completed or lost; raises `ConfigError` if there is none."""
    lost = [found for found in lost_savepoints(timeline) if found.requested == requested]
    return lost[0] if lost else savepoint_at(timeline, requested, uri)


def savepoint_at(timeline: Timeline, requested: str, uri: str) -> Instant:
    """Return the savepoint of a write.

    Raises:
        ConfigError: there is none.
        CorruptFileError: its completed instant file was lost.
    """
    for found in savepoints(timeline):
        if found.requested == requested:
            return found
    check_savepoints(timeline, requested)
    known = ", ".join(found.requested for found in savepoints(timeline)) or "none"
    raise ConfigError(f"{uri} has no savepoint {requested!r}: its savepoints are {known}")


def _write_at(timeline: Timeline, requested: str | None, uri: str) -> Instant:
    if requested is None:
        newest = newest_write(timeline)
        if newest is None:
            raise ConfigError(f"{uri} has no completed write on its timeline, of which a savepoint could be made")
        return newest
    # First, as a process that archived may have died before it deleted the files on the timeline.
    if timeline.is_archived(requested):
        raise ConfigError(f"the write {requested} of {uri} is archived: make a savepoint of one on the timeline")
    for write in timeline.completed_writes:
        if write.requested == requested:
            return write
    raise ConfigError(
        f"{uri} has no completed write {requested}: give a requested time that `lsm timeline` shows as completed"
    )


def _files_as_of(context: ServiceContext, timeline: Timeline, write: Instant) -> Mapping[str, tuple[str, ...]]:
    """List the files of the latest slices when a write had been completed, to which a restore returns."""
    state = timeline.up_to(write)
    files: dict[str, dict[str, None]] = {}
    with past_state():
        state.check_retained(write.requested, write.requested, exact=True)
        slices = checked_slices(context.view(state))
    for found in slices:
        names = (path.rpartition("/")[2] for path in found.paths)
        files.setdefault(found.partition_path, {}).update(dict.fromkeys(names))
    return {partition: tuple(sorted(names)) for partition, names in sorted(files.items())}


def _refuse_cleaned(
    context: ServiceContext, timeline: Timeline, files: Mapping[str, tuple[str, ...]], write: Instant
) -> None:
    for clean in pending_cleans(timeline):
        plan = read_clean_plan(context.storage, clean)
        for partition, name in _named(plan):
            if name in files.get(partition, ()):
                raise CommitConflict(
                    f"{clean.path} in {context.storage.uri} is pending, and deletes {name!r} of the state as of "
                    f"{write.requested}: make a savepoint of a later write, or again when it is done"
                )


def _named(plan: CleanPlan) -> Iterator[tuple[str, str]]:
    return ((partition, file.rpartition("/")[2]) for partition, file in plan.spelt_files())
