"""Archive the timeline of a table; see `streaming_lsm.timeline.archiving` for the steps."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress

from streaming_lsm.errors import CommitConflict
from streaming_lsm.format.history import HistoryFile
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.metadata.services import NeededActions
from streaming_lsm.services.archiving.planner import ActiveCommits, ArchiveSelection, Bound, select
from streaming_lsm.services.context import ServiceContext
from streaming_lsm.services.survey import looked, savepoints
from streaming_lsm.timeline.action_kind import CLEAN
from streaming_lsm.timeline.archive import HISTORY_FOLDER, History
from streaming_lsm.timeline.archiving import HistoryWriter, NameTaken, NewFile, archived_paths, mergeable, read_archived
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.batch_ledger import with_ledger
from streaming_lsm.txn.transaction import Transaction

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 3
_UNDONE = 2
"""States whose ledger stays: the newest one, and that to which a rollback returns."""


class Archiver:
    """Archives the timeline of one table."""

    def __init__(self, context: ServiceContext) -> None:
        """Create an archiver without reading the table.

        Raises:
            ConfigError: the options of archiving contradict each other.
        """
        self._context = context
        self._by = context.options, context.config.timeline_zone
        ActiveCommits.of(context.options)
        self._held_up = 0

    def is_due(self, timeline: Timeline) -> bool:
        """Return whether there may be actions to archive, from the timeline alone.

        If files forbade it the last time, it is due again when some more actions could be archived.
        """
        found = len(select(timeline, *self._by).every)
        if found <= self._held_up:
            return False
        self._held_up = 0
        return found > 0

    def preview(self) -> ArchiveSelection:
        """Select the actions that would be archived now."""
        return looked(self._context, self._select)

    def archive(self) -> tuple[Instant, ...]:
        """Archive what is due, or a part of it if it is much, and delete the files of archived actions.

        Returns:
            The actions that were archived; () if there were none.

        Raises:
            CommitConflict: others archived at the same time during each attempt, or held the lock for longer than the
                options say to wait.
            CorruptFileError: a file of the timeline or of the history cannot be read; nothing was deleted.
        """
        fewer = 0
        for attempt in range(_ATTEMPTS):
            timeline, selection = looked(self._context, lambda found: (found, self._select(found)))
            # Besides what is due: files that a process left which died while it deleted those of archived actions.
            last = timeline.history.last
            left = [action for action in timeline.instants if action.is_completed and action.requested <= last]
            archived = frozenset(action for action in (*selection.every, *left) if timeline.history.has(action))
            parts = [[a for a in part if a not in archived] for part in (selection.actions, selection.passed)]
            parts = [part[: max(1, len(part) - fewer)] for part in parts]
            try:
                done = self._add(timeline, parts) if any(parts) else ()
            except (CommitConflict, FileNotFoundError) as error:
                _LOG.debug("%s: archiving is tried again: %s", self._context.storage.uri, error)
                continue
            except NameTaken:
                if attempt == _ATTEMPTS - 1:
                    raise
                fewer += 1  # the name is that of the first and the last action
                continue
            if done or archived:
                self._delete_archived()
                self._merge()
            self._held_up = 0 if done else len(select(timeline, *self._by).every) + 1
            return done
        raise CommitConflict(
            f"the timeline of {self._context.storage.uri} was archived by others during {_ATTEMPTS} attempts: try again"
        )

    def _add(self, timeline: Timeline, parts: list[list[Instant]]) -> tuple[Instant, ...]:
        """Archive the oldest actions, and passed ones in a file of their own.

        The name of one file for both would be that of a file with more writes, which a later attempt would make.
        """
        done: tuple[Instant, ...] = ()
        new: list[NewFile] = []
        for part in filter(None, parts):
            rows = list(read_archived(self._context.storage, timeline, part))
            done, new = (*done, *part[: len(rows)]), [*new, NewFile.of(rows)]
            if len(rows) < len(part):
                break
        with self._context.transaction() as tx:
            writer = self._writer(tx)
            history = writer.newest()
            if history.number != timeline.history.number or not self._may_go(tx.timeline, done):
                raise CommitConflict("the timeline was changed since it was read")
            writer.add(history, *new)
        _LOG.info("archived %d actions of %s, up to %s", len(done), self._context.storage.uri, done[-1].requested)
        return done

    def _may_go(self, timeline: Timeline, chosen: tuple[Instant, ...]) -> bool:
        """Return whether actions may be archived by the timeline as it is while the lock is held."""
        return frozenset(chosen) <= frozenset(self._select(timeline).every)

    def _delete_archived(self) -> None:
        """Delete the files of archived actions; without the lock, as nothing needs them and none comes back."""
        storage = self._context.storage
        # What a transaction remembers of the table has them still.
        self._context.timelines.known = None
        for paths in archived_paths(self._context.load_timeline(), History(storage)):
            storage.delete_files(paths)
        storage.sweep(HISTORY_FOLDER)

    def _merge(self) -> None:
        """Merge history files of one level, so that there are few."""
        storage = self._context.storage
        history = History(storage)
        files = mergeable(history)
        if not files:
            return
        # Fewer ones if a process that died has left a file of the same name.
        for count in range(len(files), 1, -1):
            with suppress(NameTaken):
                self._merge_files(history, files[:count])
                return

    def _merge_files(self, history: History, files: Sequence[HistoryFile]) -> None:
        try:
            new = NewFile.merged(history, files)
        except FileNotFoundError:  # another process has merged them
            return
        with self._context.transaction() as tx:
            writer = self._writer(tx)
            newest = writer.newest()
            if newest.number == history.number:
                writer.delete_old_manifests(writer.add(newest, new, merged=files))

    def _writer(self, tx: Transaction) -> HistoryWriter:
        return HistoryWriter(self._context.storage, tx.verify)

    def _select(self, timeline: Timeline) -> ArchiveSelection:
        selection = select(timeline, *self._by)
        if not selection.every:
            return selection
        bounds, kept = list(self._bounds_of_writes(timeline, selection.actions)), frozenset[str]()
        needed = NeededActions.of(self._context.storage, timeline)
        if needed is not None:
            bounds.append(Bound(needed.since, "the metadata table is not compacted since"))
            kept = needed.late
        return select(timeline, *self._by, bounds, kept)

    def _bounds_of_writes(self, timeline: Timeline, actions: tuple[Instant, ...]) -> Iterator[Bound]:
        """Yield the bounds that are known from files."""
        # A rollback returns to the state before the newest write, a restore to a savepoint: their ledgers stay, too.
        newest = list(timeline.newest_first())
        saved = {found.requested for found in savepoints(timeline)}
        for place, write in enumerate(newest):
            if place < _UNDONE or write.requested in saved:
                found = with_ledger(timeline, newest[place:])
                if found is not None:
                    yield Bound(found.requested, f"it has the ledger of writers as of {write.file_name}")
        # The plan of a pending clean may name files that are gone: without the replacecommit they would be missed.
        cleaning = any(pending.action == CLEAN for pending in timeline.pending)
        for write in actions:
            if write.action == "replacecommit" and (cleaning or self._has_replaced_files(timeline, write)):
                yield Bound(write.requested, "the file groups that it replaced are not cleaned yet")
                break

    def _has_replaced_files(self, timeline: Timeline, write: Instant) -> bool:
        for partition, file_ids in (timeline.read_commit(write).replaced or {}).items():
            gone = frozenset(file_ids)
            names = map(parse_file_name, self._context.storage.names(partition))
            if any(name is not None and name.file_id in gone for name in names):
                return True
        return False
