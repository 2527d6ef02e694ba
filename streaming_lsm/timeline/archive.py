"""Read the archived timeline: actions that left the active timeline.

See docs/format/02-timeline.md, "Archived timeline". The *history* consists of the history files that the newest
manifest names. A history file never changes, so that what was read of it is kept while a table is open.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.actions.clean import CleanMetadata
from streaming_lsm.format.actions.restore import RestoreMetadata
from streaming_lsm.format.actions.rollback import RollbackMetadata
from streaming_lsm.format.history import (
    INSTANT_COLUMNS,
    ArchivedInstant,
    HistoryFile,
    Manifest,
    damage_named,
    manifest_name,
    manifest_number,
    read_instants,
)
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.flat_archive import flat_writes
from streaming_lsm.timeline.instant import (
    BASE_ACTIONS,
    FLAT,
    TIMELINE_FOLDER,
    WRITE_ACTIONS,
    Action,
    Instant,
    State,
)

HISTORY_FOLDER = f"{TIMELINE_FOLDER}/history"
VERSION_PATH = f"{HISTORY_FOLDER}/_version_"
_NUMBER = re.compile(rb"\s*[0-9]{1,18}\s*")
_MOST_VERSION = 1 << 10
_ATTEMPTS = 3

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ArchivedActions:
    """Hold the actions of one history file, without their contents.

    Attributes:
        actions: all actions.
        writes: completed writes by requested time.
        cleans: completed cleans, by requested time ascending.
    """

    actions: frozenset[Action]
    writes: Mapping[str, Instant]
    cleans: tuple[Instant, ...]


@dataclass(frozen=True)
class KnownHistory:
    """Keep what was read of history files, over all timelines of an open table.

    Attributes:
        files: the actions of each file.
        undone: requested times of what the rollbacks and restores of a file undid, of files that were asked for them.
    """

    files: dict[tuple[str, HistoryFile], ArchivedActions] = field(default_factory=dict)
    undone: dict[tuple[str, HistoryFile], frozenset[str]] = field(default_factory=dict)

    def keep(self, uri: str, files: Iterable[HistoryFile]) -> None:
        """Forget the files of a table that are not among those of its newest manifest, as they were merged."""
        named = {(uri, file) for file in files}
        for key in [*self.files, *self.undone]:
            if key[0] == uri and key not in named:
                self.files.pop(key, None)
                self.undone.pop(key, None)


@dataclass(frozen=True)
class _Newest:
    """Hold the newest manifest, its number, and the content of ``_version_``; None where there is none."""

    version_text: bytes | None
    number: int | None
    manifest: Manifest


class History:
    """Represent the archived timeline as of its newest manifest, which is read when it is first needed."""

    def __init__(self, storage: Storage, layout: int = 2, known: KnownHistory | None = None) -> None:
        """Prepare; nothing is read.

        Args:
            storage: the table.
            layout: the timeline layout; in layout 1 requested and completion time are the same.
            known: what was read of history files before.
        """
        self.known = known or KnownHistory()
        self._storage = storage
        self._layout = layout
        # No `cached_property`, which in Python 3.11 lets one thread read at a time.
        self._newest: _Newest | None = None
        self._flat_writes: Mapping[str, Instant] | None = None

    @property
    def number(self) -> int | None:
        """Number of the newest manifest: that in ``_version_``, or the largest if that has none; None: none."""
        return self._read_newest().number

    @property
    def version_text(self) -> bytes | None:
        """Content of ``_version_``; None if it is missing."""
        return self._read_newest().version_text

    @property
    def manifest(self) -> Manifest:
        """The newest manifest; empty if nothing was archived, and in layout 1, which has none.

        Raises:
            CorruptFileError: it is missing or cannot be read.
        """
        return self._read_newest().manifest

    def _read_newest(self) -> _Newest:
        if self._newest is None:
            self._newest = _Newest(None, None, Manifest()) if self._layout == FLAT else self._look()
            self.known.keep(self._storage.uri, self._newest.manifest.files)
        return self._newest

    def _look(self) -> _Newest:
        missing: int | None = None
        while True:
            text = self._version_text()
            number = self._number(text)
            if number is not None and number == missing:
                # Only manifests before the newest one are deleted: a larger one shows that the number was cut off.
                number = max(number, self._largest() or 0)
            if number is None:
                return _Newest(text, None, Manifest())
            path = f"{HISTORY_FOLDER}/{manifest_name(number)}"
            try:
                return _Newest(text, number, Manifest.decode(self._storage.read(path), path))
            except FileNotFoundError:
                # Others may have archived since, and deleted it, as it is an old one.
                if number == missing:
                    raise CorruptFileError(
                        f"{path} in {self._storage.uri} is gone, which names the archived instants: restore the file, "
                        f"or {VERSION_PATH}, which has its number, if that is damaged"
                    ) from None
            missing = number

    def _version_text(self) -> bytes | None:
        try:
            return self._storage.read(VERSION_PATH, _MOST_VERSION)
        except FileNotFoundError:
            return None

    def _number(self, text: bytes | None) -> int | None:
        if text is None or not _NUMBER.fullmatch(text):
            # A writer of Hudi deletes the file and creates it again, and may die before it has written it.
            return self._largest()
        return int(text)

    def _largest(self) -> int | None:
        found = [manifest_number(name) for name in self._storage.names(HISTORY_FOLDER)]
        return max((number for number in found if number is not None), default=None)

    @property
    def last(self) -> str:
        """Largest requested time of the history, ``""`` for an empty one."""
        return max((file.last for file in self.manifest.files), default="")

    def write(self, requested: str) -> Instant | None:
        """Return the archived write with a requested time; None if the history has none."""
        if self._layout == FLAT:
            return self._flat.get(requested)
        return self._read_whole(lambda found: found._write(requested))

    def _write(self, requested: str) -> Instant | None:
        files = [file for file in self.manifest.files if file.may_have(requested)]
        return next((write for file in files if (write := self._actions(file).writes.get(requested))), None)

    def is_in_range(self, requested: str) -> bool:
        """Return whether a write that is older than the active timeline would be here, if it had been completed.

        Archiving leaves no write behind that is older than one that it takes, but cleans and rollbacks may be here that
        are younger than the active writes.
        """
        files = self.manifest.files
        return bool(files) and files[0].first <= requested <= self.last

    def is_undone(self, requested: str) -> bool:
        """Return whether an archived rollback or restore undid the action at a requested time; reads all later ones."""
        return self._layout != FLAT and self._read_whole(lambda found: found._is_undone(requested))

    def _is_undone(self, requested: str) -> bool:
        return any(requested in self._undone(file) for file in self.manifest.files if file.last > requested)

    def _undone(self, file: HistoryFile) -> frozenset[str]:
        key = (self._storage.uri, file)
        if key not in self.known.undone:
            path, contents = f"{HISTORY_FOLDER}/{file.name}", self._contents_in(file, ("rollback", "restore"))
            undone = (time for (_, action), content in contents for time in _undone_by(action, content or b"", path))
            self.known.undone[key] = frozenset(undone)
        return self.known.undone[key]

    def writes(self) -> Mapping[str, Instant]:
        """Return all archived writes by requested time."""
        if self._layout == FLAT:
            return self._flat
        return self._read_whole(lambda found: found._writes())

    def _writes(self) -> Mapping[str, Instant]:
        return {time: write for file in self.manifest.files for time, write in self._actions(file).writes.items()}

    def writes_since(self, first: str) -> list[Instant]:
        """Return the archived writes that were requested at a time or later."""
        return self._read_whole(lambda found: found._writes_since(first))

    def _writes_since(self, first: str) -> list[Instant]:
        files = [file for file in self.manifest.files if file.last >= first]
        writes = (write for file in files for write in self._actions(file).writes.values())
        return [write for write in writes if write.requested >= first]

    def has(self, action: Instant) -> bool:
        """Return whether an action is archived, in whatever state it is given."""
        if self._layout == FLAT:
            return action.requested in self._flat and action.is_write
        return self._read_whole(lambda found: found._has(action))

    def _has(self, action: Instant) -> bool:
        files = [file for file in self.manifest.files if file.may_have(action.requested)]
        return any(action.of_action in self._actions(file).actions for file in files)

    def has_time(self, requested: str) -> bool:
        """Return whether any action with a requested time is archived."""
        if self._layout == FLAT:
            return requested in self._flat
        return self._read_whole(lambda found: found._has_time(requested))

    def _has_time(self, requested: str) -> bool:
        files = [file for file in self.manifest.files if file.may_have(requested)]
        return any(time == requested for file in files for time, _ in self._actions(file).actions)

    def newest_clean(self) -> Instant | None:
        """Return the newest archived clean; None if there is none, and in layout 1."""
        return self._read_whole(lambda found: found._newest_clean())

    def _newest_clean(self) -> Instant | None:
        newest: Instant | None = None
        for file in self._newest_first():
            if newest is not None and newest.requested >= file.last:
                break
            newest = max([*filter(None, [newest]), *self._actions(file).cleans[-1:]], key=_requested, default=None)
        return newest

    def _newest_first(self) -> list[HistoryFile]:
        """Return the history files by their last instants; cleans may be archived before the writes beside them."""
        return sorted(self.manifest.files, key=lambda file: file.last, reverse=True)

    def earliest_retained(self) -> str:
        """Return the requested time of the earliest write whose slices all archived cleans retained, ``""`` for none.

        See `Timeline.earliest_retained`.
        """
        return "" if self._layout == FLAT else self._read_whole(lambda found: found._earliest_retained())

    def _earliest_retained(self) -> str:
        earliest = ""
        for file in self._newest_first():
            cleans = self._actions(file).cleans if file.last > earliest else ()
            if cleans and cleans[-1].requested > earliest:
                # Nearly always the newest one says that the others need not be read.
                earliest = max(earliest, *self._earliest(file, cleans[-1].requested))
                earliest = max(earliest, *self._earliest(file, earliest))
        return earliest

    def _earliest(self, file: HistoryFile, since: str) -> list[str]:
        """Read what the cleans of a file record that were requested at a time or later."""
        path, contents = f"{HISTORY_FOLDER}/{file.name}", self._contents_in(file, ("clean",), since)
        return ["", *(CleanMetadata.decode(content or b"", path).earliest for _, content in contents)]

    def completion_of_clean(self, requested: str) -> str | None:
        """Return the completion time of an archived clean; None if the history has none of this requested time."""
        return self._read_whole(lambda found: found._completion_of_clean(requested))

    def _completion_of_clean(self, requested: str) -> str | None:
        files = [file for file in self.manifest.files if file.may_have(requested)]
        cleans = (clean for file in files for clean in self._actions(file).cleans)
        return next((clean.completed for clean in cleans if clean.requested == requested), None)

    def last_compaction(self) -> str:
        """Return the requested time of the newest archived ``commit``, ``""`` without one."""
        return self._read_whole(lambda found: found._last_compaction())

    def _last_compaction(self) -> str:
        last = ""
        for file in self._newest_first():
            if last >= file.last:
                break
            commits = [write.requested for write in self._actions(file).writes.values() if write.action == "commit"]
            last = max([last, *commits])
        return last

    def newest_base_write(self) -> Instant | None:
        """Return the ``commit`` or ``replacecommit`` of the newest history file with one that took effect last.

        Archiving leaves no write that took effect before one that it takes. None without any, and in layout 1.
        """
        return self._read_whole(lambda found: found._newest_base_write())

    def _newest_base_write(self) -> Instant | None:
        for file in self._newest_first():
            bases = [write for write in self._actions(file).writes.values() if write.action in BASE_ACTIONS]
            if bases:
                return max(bases, key=lambda write: write.completed or "")
        return None

    def contents(self, actions: Collection[str], since: str = "") -> Mapping[Action, bytes]:
        """Read the contents of the completed files of all archived actions of some kinds; nothing in layout 1.

        A history file is read once, whereas `content` reads one for each action.

        Args:
            actions: the kinds, as in `Instant.of_action`.
            since: only those that were requested at this time or later.
        """
        return {} if self._layout == FLAT else self._read_whole(lambda found: found._contents(actions, since))

    def _contents(self, actions: Collection[str], since: str) -> Mapping[Action, bytes]:
        files = [file for file in self.manifest.files if file.last >= since]
        contents = (found for file in files for found in self._contents_in(file, actions, since))
        return {action: content for action, content in contents if content is not None}

    def _contents_in(
        self, file: HistoryFile, actions: Collection[str], since: str = ""
    ) -> list[tuple[Action, bytes | None]]:
        """Read the contents of a file's actions of some kinds that were requested at a time or later."""
        wanted = pc.field("action").isin(list(actions)) & (pc.field("instantTime") >= since)
        rows = self._read(file, ["instantTime", "action", "metadata"], wanted)
        values = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        return [((requested, action), content) for requested, action, content in values]

    def check_files(self) -> None:
        """Read all history files to see whether they can be read, of each a row group at a time.

        Raises:
            CorruptFileError: one is missing or damaged.
        """

        def check(found: History) -> None:
            for file in found.manifest.files:
                for _ in found.instants([file]):
                    pass

        if self._layout != FLAT:
            self._read_whole(check)

    def instants(self, files: Iterable[HistoryFile]) -> Iterator[ArchivedInstant]:
        """Yield the actions of some history files with their contents, by requested time, each of them once.

        Of each file a row group is held at a time.

        Raises:
            CorruptFileError: a file is missing or cannot be read.
            FileNotFoundError: another process has merged and deleted it.
        """
        with ExitStack() as opened:
            read = [self._instants(file, opened) for file in files]
            last: Action | None = None
            for instant in heapq.merge(*read, key=lambda found: (found.requested, found.action)):
                if (instant.requested, instant.action) != last:
                    yield instant
                last = instant.requested, instant.action

    def _instants(self, file: HistoryFile, opened: ExitStack) -> Iterator[ArchivedInstant]:
        path = f"{HISTORY_FOLDER}/{file.name}"
        try:
            source = opened.enter_context(self._storage.open_input(path))
        except FileNotFoundError:
            if History(self._storage).number == self.number:
                raise self._gone(file) from None
            raise
        yield from read_instants(source, path)

    def content(self, instant: Instant) -> bytes:
        """Read the content of the completed file of an archived action.

        Raises:
            FileNotFoundError: the history does not have it; layout 1 keeps it in another form.
        """
        return self._read_whole(lambda found: found._content_of(instant))

    def _content_of(self, instant: Instant) -> bytes:
        for file in self.manifest.files:
            if file.may_have(instant.requested):
                actions = self._actions(file)
                if instant.of_action in actions.actions:
                    return self._content(file, instant)
        raise FileNotFoundError(f"{instant.file_name} is not archived")

    def _content(self, file: HistoryFile, instant: Instant) -> bytes:
        wanted = (pc.field("instantTime") == instant.requested) & (pc.field("action") == instant.action)
        found = self._read(file, ["metadata"], wanted).column(0).to_pylist()
        if not found or found[0] is None:
            path = f"{HISTORY_FOLDER}/{file.name}"
            raise CorruptFileError(f"{path}: {instant.file_name} has no content; restore the file")
        content: bytes = found[0]
        return content

    def _actions(self, file: HistoryFile) -> ArchivedActions:
        key = (self._storage.uri, file)
        found = self.known.files.get(key)
        if found is None:
            rows = self._read(file, list(INSTANT_COLUMNS))
            found = self.known.files[key] = _actions(rows, f"{HISTORY_FOLDER}/{file.name}")
        return found

    def _read(self, file: HistoryFile, columns: list[str], wanted: pc.Expression | None = None) -> pa.Table:
        path = f"{HISTORY_FOLDER}/{file.name}"
        with damage_named(path), self._storage.open_input(path) as source:
            return pq.read_table(source, columns=columns, filters=wanted, page_checksum_verification=True)

    def _read_whole(self, read: Callable[[History], T]) -> T:
        """Read by this manifest or, if files were merged since it was read, by a newer one."""
        found = self
        for _ in range(_ATTEMPTS):
            try:
                return read(found)
            except FileNotFoundError as error:
                newer = History(self._storage, self._layout, self.known)
                if newer.number == found.number:
                    missing = next((file for file in found.manifest.files if not self._exists(file)), None)
                    if missing is None:
                        raise
                    raise found._gone(missing) from error
                found = newer
        return read(found)

    def _gone(self, file: HistoryFile) -> CorruptFileError:
        return CorruptFileError(
            f"{HISTORY_FOLDER}/{file.name} in {self._storage.uri} is gone, which has archived instants by "
            f"{manifest_name(self.number or 0)}: restore the file"
        )

    def _exists(self, file: HistoryFile) -> bool:
        return self._storage.exists(f"{HISTORY_FOLDER}/{file.name}")

    @property
    def _flat(self) -> Mapping[str, Instant]:
        """Archived writes of layout 1."""
        if self._flat_writes is None:
            self._flat_writes = {
                time: Instant(time, action, State.COMPLETED, time, FLAT) for time, action in flat_writes(self._storage)
            }
        return self._flat_writes


def _undone_by(action: str, content: bytes, path: str) -> Iterator[str]:
    if action == "restore":
        yield from (requested for requested, _ in RestoreMetadata.decode(content, path).undone)
    else:
        yield RollbackMetadata.decode(content, path).instant


def _requested(instant: Instant) -> str:
    return instant.requested


def _actions(rows: pa.Table, path: str) -> ArchivedActions:
    found = []
    for requested, completed, action in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        if not (requested and completed and action):
            raise CorruptFileError(f"{path}: an archived instant without time or action; restore the file")
        found.append(Instant(requested, action, State.COMPLETED, completed))
    writes = {instant.requested: instant for instant in found if instant.action in WRITE_ACTIONS}
    cleans = tuple(instant for instant in found if instant.action == "clean")
    return ArchivedActions(frozenset(instant.of_action for instant in found), writes, cleans)
