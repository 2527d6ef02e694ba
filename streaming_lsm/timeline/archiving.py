"""Move actions from the active timeline into the history (docs/format/02-timeline.md, "Archived timeline").

The steps: create a history file; create the next manifest, which names it; replace ``_version_``, which makes that the
newest one; delete the files of the archived actions. Each step is conditional on what was read before it. A process
that is stopped between two steps, and resumes after another one archived, changes nothing but what the newest history
has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest

import pyarrow as pa

from streaming_lsm.errors import CommitConflict, CorruptFileError
from streaming_lsm.format.history import (
    TOP_LEVEL,
    ArchivedInstant,
    HistoryFile,
    Manifest,
    encode_instants,
    manifest_name,
    manifest_number,
    read_instants,
)
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.archive import HISTORY_FOLDER, VERSION_PATH, History
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.timeline import Timeline

MOST_BYTES = 32 << 20
"""Bytes of the contents that are archived at a time; history files that are larger are not merged."""
MOST_ACTIONS = 2000
_MERGED_FILES = 10
_KEPT_MANIFESTS = 3

Verify = Callable[[], None]
"""Raises `Fenced` if the caller does not hold the table's lock any more."""


class NameTaken(CorruptFileError):
    """A process that died has created a history file of the same name with other actions: archive others."""


@dataclass(frozen=True)
class NewFile:
    """Hold a history file that is to be created. It is encoded before the lock is acquired, as that may take seconds.

    Attributes:
        name: name of the file.
        data: its content.
    """

    name: str
    data: bytes

    @classmethod
    def of(cls, instants: Sequence[ArchivedInstant]) -> NewFile:
        """Encode completed actions that are to be archived, by requested time ascending."""
        name = HistoryFile.name_of(instants[0].requested, instants[-1].requested, 0)
        return cls(name, encode_instants(instants))

    @classmethod
    def merged(cls, history: History, files: Sequence[HistoryFile]) -> NewFile:
        """Merge history files of one level into one of the next level; raises as `History.instants`."""
        first, last = min(file.first for file in files), max(file.last for file in files)
        name = HistoryFile.name_of(first, last, files[0].level + 1)
        return cls(name, encode_instants(history.instants(files)))


@dataclass(frozen=True)
class HistoryWriter:
    """Adds actions to the history of one timeline, by a process that holds the table's lock.

    Attributes:
        storage: the table.
        verify: verifies the lock before each step.
    """

    storage: Storage
    verify: Verify

    def newest(self) -> History:
        """Return the newest history, after a step of a process that died: its manifest is made the newest one.

        Raises:
            CommitConflict: another process archives at the same time.
        """
        found = History(self.storage)
        following = (found.number or 0) + 1
        if not self.storage.exists(f"{HISTORY_FOLDER}/{manifest_name(following)}"):
            return found
        return self._advance(found, following)

    def add(self, history: History, *new: NewFile, merged: Iterable[HistoryFile] = ()) -> History:
        """Add files, in place of those that were merged into them, and return the history with them.

        Raises:
            CommitConflict: another process archives at the same time; nothing was changed.
            Fenced: another writer took the lock.
            NameTaken: see there; nothing was changed.
        """
        return self._publish(history, history.manifest.with_files([self._put(file) for file in new], merged))

    def delete_old_manifests(self, history: History) -> None:
        """Delete all manifests but the newest ones, and the history files that only those name.

        A history file that no manifest names is kept: a process may be about to publish it.
        """
        newest = history.number or 0
        old = [n for name in self.storage.names(HISTORY_FOLDER) if (n := manifest_number(name)) is not None]
        old = sorted(n for n in old if n <= newest - _KEPT_MANIFESTS)
        if not old:
            return
        kept = {file.name for n in range(old[-1] + 1, newest + 1) for file in self._manifest(n).files}
        named = {file.name for n in old for file in self._manifest(n).files}
        self.verify()
        # The files first: a manifest that is gone names none, so that they would stay.
        self.storage.delete_files(f"{HISTORY_FOLDER}/{name}" for name in sorted(named - kept))
        self.storage.delete_files(f"{HISTORY_FOLDER}/{manifest_name(n)}" for n in old)

    def _manifest(self, number: int) -> Manifest:
        path = f"{HISTORY_FOLDER}/{manifest_name(number)}"
        try:
            return Manifest.decode(self.storage.read(path), path)
        except FileNotFoundError:
            return Manifest()

    def _put(self, new: NewFile) -> HistoryFile:
        path, data = f"{HISTORY_FOLDER}/{new.name}", new.data
        self.verify()
        try:
            self.storage.put_if_absent(path, data)
        except FileExistsError:
            # A process that died, or is stopped, has created it, and no manifest names it.
            with self.storage.open_input(path) as source, pa.BufferReader(data) as expected:
                pairs = zip_longest(read_instants(source, path), read_instants(expected, path))
                if any(found != wanted for found, wanted in pairs):
                    raise NameTaken(
                        f"{path} in {self.storage.uri} has other actions than are to be archived, and no manifest "
                        "names it: delete it"
                    ) from None
            data = self.storage.read(path)
        return HistoryFile.of(new.name, len(data))

    def _publish(self, history: History, manifest: Manifest) -> History:
        number = (history.number or 0) + 1
        self.verify()
        try:
            self.storage.put_if_absent(f"{HISTORY_FOLDER}/{manifest_name(number)}", manifest.encode())
        except FileExistsError:
            raise self._conflict() from None
        return self._advance(history, number)

    def _advance(self, history: History, number: int) -> History:
        text, known = str(number).encode(), history.version_text
        self.verify()
        if known is None:
            try:
                self.storage.put_if_absent(VERSION_PATH, text)
            except FileExistsError:
                raise self._conflict() from None
        elif not self.storage.replace_if_unchanged(VERSION_PATH, text, known):
            raise self._conflict()
        return History(self.storage, known=history.known)

    def _conflict(self) -> CommitConflict:
        return CommitConflict(f"another process archives the timeline of {self.storage.uri}: nothing was changed")


def read_archived(storage: Storage, timeline: Timeline, actions: Iterable[Instant]) -> Iterator[ArchivedInstant]:
    """Read the files of completed actions, as many as are archived at a time.

    Raises:
        FileNotFoundError: a file was deleted since the timeline was loaded, as another process archived it.
    """
    count = size = 0
    for action in actions:
        found = _read(storage, timeline, action)
        if count and (size + found.size > MOST_BYTES or count >= MOST_ACTIONS):
            return
        yield found
        count, size = count + 1, size + found.size


def _read(storage: Storage, timeline: Timeline, action: Instant) -> ArchivedInstant:
    requested = [found for found in _states(timeline, action) if found.state is State.REQUESTED]
    # The requested file of a write is empty; a later service has its plan in it.
    plan = storage.read(requested[0].path) if requested else b""
    metadata = storage.read(action.path)
    return ArchivedInstant(action.requested, action.completed or "", action.action, metadata, plan or None)


def mergeable(history: History) -> tuple[HistoryFile, ...]:
    """Return the oldest files of the lowest level that has enough to be merged; () if there are none.

    No file of another level is between them, so that files do not overlap. A file that is too large to be merged with
    the next one is passed over.
    """
    for level in range(TOP_LEVEL):
        for (found, is_small), files in groupby(history.manifest.files, lambda f: (f.level, f.size < MOST_BYTES)):
            run = list(files) if found == level and is_small else []
            if len(run) >= _MERGED_FILES and (chosen := _fitting(run)):
                return chosen
    return ()


def _fitting(files: Sequence[HistoryFile]) -> tuple[HistoryFile, ...]:
    """Return the first files, more than one of them, that are not too large together."""
    chosen: list[HistoryFile] = []
    for file in files:
        if sum(found.size for found in chosen) + file.size > MOST_BYTES:
            if len(chosen) > 1:
                break
            chosen.clear()
        chosen.append(file)
        if len(chosen) == _MERGED_FILES:
            break
    return tuple(chosen) if len(chosen) > 1 else ()


def archived_paths(
    timeline: Timeline, history: History, added: Iterable[ArchivedInstant] = ()
) -> tuple[list[str], list[str]]:
    """List the files of actions that are archived and still on the active timeline.

    Args:
        timeline: the active timeline.
        history: what is archived.
        added: actions of it that need not be looked up.

    Returns:
        The files of their pending states, which are to be deleted first: an action without its completed file would
        look like one of a dead writer. Then those of their completed states, the oldest first.
    """
    last, known = history.last, {(action.requested, action.completed) for action in added}
    actions = [
        action
        for action in timeline.instants
        if action.requested <= last and ((action.requested, action.completed) in known or history.has(action))
    ]
    states = [found for action in actions for found in _states(timeline, action)]
    pending = [
        path for found in states if not found.is_completed for path in dict.fromkeys((found.path, *_other_name(found)))
    ]
    return pending, [found.path for found in states if found.is_completed]


def _other_name(pending: Instant) -> Iterator[str]:
    """Yield the other name of an inflight commit, see `Instant.pending_paths`."""
    if pending.state is State.INFLIGHT:
        yield from (path for path in pending.pending_paths() if not path.endswith(f".{State.REQUESTED}"))


def _states(timeline: Timeline, action: Instant) -> tuple[Instant, ...]:
    return timeline.names.states.get(action.of_action, (action,))
