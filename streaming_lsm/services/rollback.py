"""Roll back the last completed write of a table (docs/format/02-timeline.md, "Rollback")."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass

from streaming_lsm.errors import ConfigError
from streaming_lsm.file_group.data_file import open_base
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.lost_files import checked_slices, newest_write
from streaming_lsm.services.context import ServiceContext, past_state
from streaming_lsm.services.survey import looked
from streaming_lsm.timeline.instant import WRITE_ACTIONS, Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.batch_ledger import archived_ledger
from streaming_lsm.txn.completed_rollback import objection
from streaming_lsm.txn.locked_table import Beside

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class RollbackPreview:
    """What a rollback would undo.

    Attributes:
        write: the write.
        files: paths of its files, which are deleted.
    """

    write: Instant
    files: tuple[str, ...]


def preview_rollback(context: ServiceContext, requested: str | None) -> RollbackPreview:
    """Check whether a write can be rolled back; raises as `roll_back`, and changes nothing."""
    return looked(context, lambda timeline: _preview(context, timeline, requested))


def _preview(context: ServiceContext, timeline: Timeline, requested: str | None) -> RollbackPreview:
    write = _target(context, timeline, requested)
    why = objection(timeline, write, ended=WRITE_ACTIONS)  # they are waited for, or rolled back first
    if why is not None:
        raise ConfigError(f"{write.path} in {context.storage.uri} cannot be rolled back: {why}")
    _check_state_before(context, timeline, write)
    return RollbackPreview(write, tuple(sorted(timeline.read_commit(write).paths)))


def roll_back(context: ServiceContext, requested: str | None) -> Instant:
    """Roll back the last completed write: a batch, a compaction, or another action that made files visible.

    Args:
        requested: its requested time, to be sure that it is the last one; None for the last one, whichever it is.

    Returns:
        The completed rollback.

    Raises:
        ConfigError: there is no such write, others were completed or planned after it, a savepoint keeps it, it is
            archived, or files that it superseded were cleaned; nothing was changed.
        CommitConflict: another writer was at work for longer than the options say to wait, or took the lock.
        Fenced: another writer took the lock, and finishes the rollback.
    """
    context.load_timeline()  # refuses tables that are read-only
    # Writers that live are waited for: what they have begun may build on the write.
    with context.new_transaction(Beside.NOTHING) as tx:
        write = _target(context, tx.timeline, requested)
        if objection(tx.timeline, write) is None:
            _check_state_before(context, tx.timeline, write)
        context.timelines.known = None
        completed = tx.roll_back(write)
    _LOG.info("rolled back %s in %s", write.path, context.storage.uri)
    return completed


def _target(context: ServiceContext, timeline: Timeline, requested: str | None) -> Instant:
    uri = context.storage.uri
    if requested is None:
        newest = newest_write(timeline)
        if newest is None:
            raise ConfigError(f"{uri} has no completed write on its timeline that could be rolled back")
        return newest
    # First, as a process that archived may have died before it deleted the files on the timeline.
    if timeline.is_archived(requested):
        raise ConfigError(f"the write {requested} of {uri} is archived, and cannot be rolled back any more")
    for write in timeline.completed_writes:
        if write.requested == requested:
            return write
    undone = timeline.finished_rollbacks(since=requested).get(requested)
    if undone is not None:
        raise ConfigError(f"{requested} of {uri} was rolled back by {undone.file_name}: that cannot be undone")
    if timeline.is_undone(requested):
        raise ConfigError(f"{requested} of {uri} was rolled back: that cannot be undone")
    if any(found.requested == requested and found.action == "rollback" for found in timeline.instants):
        raise ConfigError(f"{requested} of {uri} is a rollback, which cannot be undone: write the rows again")
    raise ConfigError(
        f"{uri} has no completed write {requested}: give a requested time that `lsm timeline` shows as completed"
    )


def _check_state_before(context: ServiceContext, timeline: Timeline, write: Instant) -> None:
    """Check that the state before a write has its ledger and can be read: a clean may have deleted its files since."""
    before = timeline.before(write)
    ledger = archived_ledger(before)
    if ledger is not None:
        raise ConfigError(
            f"{write.path} in {context.storage.uri} cannot be rolled back: {ledger.file_name}, which has the ledger of "
            "writers of the state before, is archived, so that batches might be written twice"
        )
    try:
        with past_state():
            slices = checked_slices(context.view(before))
    except ConfigError as error:
        raise ConfigError(f"{write.path} in {context.storage.uri} cannot be rolled back: {error}") from None
    if write.action != "deltacommit" and context.config.is_lsm_tree:
        groups = timeline.read_commit(write).file_groups
        for found in slices:
            if (found.partition_path, found.file_id) in groups and not fits_lsm_tree(context, found):
                raise ConfigError(
                    f"{write.path} in {context.storage.uri} cannot be rolled back: the files before it are not of the "
                    "storage layout lsm_tree, to which the table was changed since"
                )


def fits_lsm_tree(context: ServiceContext, found: FileSlice) -> bool:
    """Return whether a slice has native logs only, and a base file whose rows ascend by record key."""
    if not found.is_native or found.base is None:
        return found.is_native
    with ExitStack() as files:
        return open_base(context.storage, found.base, files).ascends()
