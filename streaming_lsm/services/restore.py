"""Restore a table to a savepoint (docs/format/02-timeline.md, "Restore")."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from streaming_lsm.errors import ConfigError, CorruptFileError
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.lost_files import checked_slices
from streaming_lsm.format.actions.commit import file_path
from streaming_lsm.format.actions.savepoint import SavepointMetadata
from streaming_lsm.format.table.file_names import BaseFileName, parse_file_name
from streaming_lsm.services.context import ServiceContext, past_state
from streaming_lsm.services.rollback import fits_lsm_tree
from streaming_lsm.services.savepoints import savepoint_at
from streaming_lsm.services.survey import looked
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.batch_ledger import archived_ledger
from streaming_lsm.txn.locked_table import Beside
from streaming_lsm.txn.restore import objection, undone_by_restore

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class RestorePreview:
    """What a restore would undo.

    Attributes:
        savepoint: the savepoint.
        undone: the actions that would be undone, the last one first.
    """

    savepoint: Instant
    undone: tuple[Instant, ...]


def preview_restore(context: ServiceContext, requested: str) -> RestorePreview:
    """Check whether a table can be restored to a savepoint; raises as `restore`, and changes nothing."""
    return looked(context, lambda timeline: _checked(context, timeline, requested))


def restore(context: ServiceContext, requested: str) -> Instant:
    """Undo everything that was completed after the write of a savepoint, and what is pending but for begun cleans.

    Args:
        requested: requested time of the savepoint.

    Returns:
        The completed restore.

    Raises:
        ConfigError: there is no such savepoint, nothing to undo, a later savepoint, or an action that would be undone
            is archived; nothing was changed.
        CorruptFileError: a file of the savepoint is missing; nothing was changed.
        CommitConflict: another writer was at work for longer than the options say to wait, or took the lock.
        Fenced: another writer took the lock, and finishes the restore.
    """
    context.load_timeline()  # refuses tables that are read-only
    with context.new_transaction(Beside.NOTHING) as tx:
        found = _checked(context, tx.timeline, requested)
        context.timelines.known = None
        completed = tx.restore(found.savepoint.requested, found.undone)
    _LOG.info("restored %s to %s", context.storage.uri, requested)
    return completed


def _checked(context: ServiceContext, timeline: Timeline, requested: str) -> RestorePreview:
    uri, savepoint = context.storage.uri, savepoint_at(timeline, requested, context.storage.uri)
    undone = undone_by_restore(timeline, requested)
    if not undone:
        raise ConfigError(f"{uri} is as of its savepoint {requested}: nothing was completed or planned since")
    why = objection(timeline, undone)
    if why is not None:
        raise ConfigError(f"{uri} cannot be restored to {requested}: {why}")
    saved = timeline.completion_time(requested) or ""
    for write in timeline.history.writes().values():
        if (write.completed or "") > saved:
            raise ConfigError(f"{uri} cannot be restored to {requested}: {write.file_name} is archived")
    state = timeline.completed_by(saved)
    ledger = archived_ledger(state)
    if ledger is not None:
        raise ConfigError(
            f"{uri} cannot be restored to {requested}: {ledger.file_name}, which has the ledger of writers of that "
            "state, is archived, so that batches might be written twice"
        )
    with past_state():
        slices = checked_slices(context.view(state))
    _check_kept(context, savepoint, timeline, slices)
    for found in slices:
        if context.config.is_lsm_tree and not fits_lsm_tree(context, found):
            raise ConfigError(
                f"{uri} cannot be restored to {requested}: {found.paths[0]} is not of the storage layout lsm_tree, to "
                "which the table was changed since"
            )
    return RestorePreview(savepoint, undone)


def _check_kept(context: ServiceContext, savepoint: Instant, timeline: Timeline, slices: Iterable[FileSlice]) -> None:
    """Check that the files that a savepoint keeps are those to which the table would be restored.

    Raises:
        CorruptFileError: one is missing, or a base file is not of that state.
    """
    there = {path for found in slices for path in found.paths}
    kept = SavepointMetadata.decode(timeline.read_content(savepoint), savepoint.path).files
    for path in (file_path(partition, name) for partition, names in kept.items() for name in names):
        if path in there:
            continue
        is_there = context.storage.exists(path)
        if not is_there or isinstance(parse_file_name(path.rpartition("/")[2], rfc103_names=True), BaseFileName):
            why = "is not of the state as of that write" if is_there else "is gone"
            raise CorruptFileError(
                f"{path} in {context.storage.uri}, which {savepoint.path} keeps, {why}: restore the file, or restore "
                "the table to another savepoint; nothing was changed"
            )
