"""The active timeline as it was at one moment (docs/format/02-timeline.md)."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property

from streaming_lsm.errors import ConfigError, CorruptFileError
from streaming_lsm.format.actions.clean import CleanMetadata
from streaming_lsm.format.actions.commit import CommitMetadata, decode_json
from streaming_lsm.format.actions.rollback import RollbackMetadata
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.archive import archived_completions
from streaming_lsm.timeline.clock import instant_digits, moment_text
from streaming_lsm.timeline.instant import FLAT, FLAT_FOLDER, TIMELINE_FOLDER, WRITING_ACTIONS, Instant, State
from streaming_lsm.timeline.names import BY_TIME, TimelineNames, replace_action


@dataclass(frozen=True)
class VisibleInstants:
    """Which instants count, for blocks in logs that several writes share: completed ones, and older ones not undone.

    Attributes:
        completed: completed writes on the timeline.
        known: all writes that are on the timeline or were undone by a rollback on it.
        first: the smallest requested time on the timeline.
        until: the last time that counts.
    """

    completed: frozenset[str]
    known: frozenset[str]
    first: str
    until: str

    def __contains__(self, instant: object) -> bool:
        if instant in self.completed:
            return True
        return isinstance(instant, str) and instant not in self.known and instant < self.first and instant <= self.until


@dataclass(frozen=True)
class Timeline:
    """All actions of the active timeline, each in its latest state; it never changes once loaded.

    Attributes:
        storage: where the table lies; contents of instants are read from it when asked for.
        instants: ordered by requested time.
        first: the smallest requested time of any action, ``""`` when there is none. Older actions are archived.
        until: set on a timeline as of a time: archived writes count up to it.
        until_by_request: whether `until` is compared with their requested times instead of completion times.
        layout: the timeline layout (docs/format/02-timeline.md); the times of layout 1 are requested and completion
            times in one.
        names: the names it was loaded from; none where it was made of another timeline.
    """

    storage: Storage
    instants: tuple[Instant, ...]
    first: str
    until: str | None = None
    until_by_request: bool = False
    layout: int = 2
    names: TimelineNames = field(default_factory=TimelineNames, repr=False, compare=False)

    @classmethod
    def load(cls, storage: Storage, layout: int = 2, previous: Timeline | None = None) -> Timeline:
        """Read the names of the timeline's folder.

        Args:
            storage: the table.
            layout: its timeline layout; that of layout 1 lies beside the table's other metadata.
            previous: a timeline that was loaded before: names that were there then are not parsed again.

        Raises:
            CorruptFileError: an action is completed twice.
            UnsupportedTable: a file of an unknown action.
        """
        names = storage.names(FLAT_FOLDER if layout == FLAT else TIMELINE_FOLDER)
        before = previous.names if previous and previous.layout == layout else TimelineNames()
        found = before.updated(names, layout)
        first = found.instants[0].requested if found.instants else ""
        return cls(storage, found.instants, first, layout=layout, names=found)

    @property
    def folder(self) -> str:
        """Where it lies."""
        return FLAT_FOLDER if self.layout == FLAT else TIMELINE_FOLDER

    @cached_property
    def completed_writes(self) -> tuple[Instant, ...]:
        """Completed commits, delta commits and replace commits, by requested time."""
        return tuple([i for i in self.instants if i.completed is not None and i.action in WRITING_ACTIONS])

    @cached_property
    def pending(self) -> tuple[Instant, ...]:
        """Requested and inflight actions of every kind, by requested time."""
        return tuple([instant for instant in self.instants if instant.state is not State.COMPLETED])

    @cached_property
    def last_time(self) -> str:
        """The largest requested or completion time, ``""`` on an empty timeline."""
        last = self.instants[-1].requested if self.instants else ""
        return max([last, *(found.completed for found in self.instants if found.completed is not None)])

    def completion_time(self, requested: str) -> str | None:
        """When the write at `requested` took effect; None when it did not.

        A write older than the active timeline is archived. One that the archive does not know either counts as
        completed at its requested time (docs/format/10-rules.md, "Rule 9", "Rule 10"), unless a rollback that is still
        on the timeline
        undid it: a task that outlived its driver may have left a file of it.
        """
        if requested in self._completions:
            return self._completions[requested]
        if requested >= self.first or requested in self._rolled_back:
            return None
        completed = self._archived.get(requested, requested)
        counted = requested if self.until_by_request else completed
        return completed if self.until is None or counted <= self.until else None

    def visible(self) -> VisibleInstants:
        """The writes that count, for somebody who has no timeline: an executor that reads blocks of several writes."""
        completed = frozenset(write.requested for write in self.completed_writes)
        known = frozenset(self._completions) | self._rolled_back
        until = "~" if self.until is None else self.until
        return VisibleInstants(completed, known, self.first, until)

    def read_commit(self, instant: Instant) -> CommitMetadata:
        """What a completed write recorded; read once, as it never changes.

        Raises:
            CorruptFileError: the file is gone or cannot be read.
        """
        if instant not in self._commits:
            self._commits[instant] = self._read(instant)
        return self._commits[instant]

    def _read(self, instant: Instant) -> CommitMetadata:
        try:
            data = self.storage.read(instant.path)
        except FileNotFoundError:
            raise CorruptFileError(
                f"{instant.path} was there when the timeline was read and is gone: load the timeline again"
            ) from None
        if self.layout == FLAT:
            return decode_json(data, instant.path)
        return CommitMetadata.decode(data, instant.path)

    def as_of(self, value: str | date, zone: str = "UTC") -> Timeline:
        """The timeline with only the writes that count at a point in time (docs/format/10-rules.md, "Rule 7").

        Args:
            value: the requested time of a completed write: that write and those requested before it count. Any
                other instant time or date: the writes that were completed by then count.
            zone: the table's zone, ``UTC`` or ``LOCAL``; matters for dates that carry a zone of their own.

        Raises:
            ConfigError: the value is no point in time, or a clean has deleted what was there then.
        """
        requested = instant_digits(value)
        exact = requested is not None and self._is_request(requested)
        limit = requested if requested is not None and exact else moment_text(value, zone)
        self.check_retained(value, limit, exact=exact)
        return self._until(limit, by_request=exact)

    def before(self, write: Instant) -> Timeline:
        """The timeline as it was just before a write took effect."""
        times = [
            found.completed or "" for found in self.completed_writes if (found.completed or "") < _completed(write)
        ]
        return self.completed_by(max(times, default=""))

    def up_to(self, write: Instant) -> Timeline:
        """The timeline as it was when a write had taken effect, and nothing after it."""
        return self.completed_by(_completed(write))

    def between(self, begin: str | date, end: str | date | None, zone: str = "UTC") -> tuple[Timeline, list[str]]:
        """The timeline as of `end`, and the requested times of the writes that took effect after `begin` until then.

        Args:
            begin, end: completion times, dates, or any digits; no `end` means now. In layout 1 requested times.
            zone: the table's zone.

        Raises:
            ConfigError: a value is no point in time, or a clean has deleted what was there at `end`.
        """
        since, until = _moment(begin, zone), "~" if end is None else _moment(end, zone)
        if end is not None:
            self.check_retained(end, until, exact=False)
        times = {write.requested: _completed(write) for write in self.completed_writes}
        # An archived write may have been completed after younger ones were requested.
        times = self._archived | times
        found = sorted((completed, requested) for requested, completed in times.items() if since < completed <= until)
        return self if end is None else self.completed_by(until), [requested for _, requested in found]

    def completed_by(self, time: str) -> Timeline:
        """The timeline with only the writes that had taken effect at an instant's time."""
        return self._until(time, by_request=False)

    def _until(self, limit: str, *, by_request: bool) -> Timeline:
        kept = [write for write in self.completed_writes if _time(write, by_request=by_request) <= limit]
        others = [instant for instant in self.instants if not instant.is_write and instant.is_completed]
        merged = sorted(kept + others, key=BY_TIME)
        return Timeline(self.storage, tuple(merged), self.first, limit, by_request, self.layout)

    def with_completed(self, completed: Instant) -> Timeline:
        """This timeline and one action that was completed since, without looking at the storage again."""
        merged = list(self.instants)
        replace_action(merged, completed.of_action, completed)
        first = min(self.first or completed.requested, completed.requested)
        return Timeline(self.storage, tuple(merged), first, layout=self.layout)

    @cached_property
    def earliest_retained(self) -> str:
        """Requested time of the earliest write whose state all cleans have spared, ``""`` when none was cleaned away.

        Another program's clean may name none, or an earlier one than the cleans before it. No clean names a write
        after itself, so that the oldest cleans need not be read.
        """
        earliest = ""
        for clean in reversed(self.completed_cleans):
            if clean.requested <= earliest:
                break
            earliest = max(earliest, CleanMetadata.decode(self.storage.read(clean.path), clean.path).earliest)
        return earliest

    @cached_property
    def completed_cleans(self) -> tuple[Instant, ...]:
        """Completed cleans, by requested time."""
        return tuple(instant for instant in self.instants if instant.action == "clean" and instant.is_completed)

    def check_retained(self, value: object, limit: str, *, exact: bool = False) -> None:
        """A cleaned slice reads as if its rows had never been, so what may miss one must not be read at all.

        Args:
            value: what was asked for, for the message.
            limit: the last time whose writes count.
            exact: whether it is the requested time of a write instead of a completion time.

        Raises:
            ConfigError: a clean has deleted what was there then.
        """
        earliest = self.earliest_retained
        if not earliest or (exact and self._is_savepoint(limit)):
            return
        if limit < (earliest if exact else self._readable_since(earliest)):
            raise ConfigError(
                f"as of {value}: files of that time were cleaned; the earliest state that can be read is {earliest} "
                "(hoodie.clean.commits.retained and hoodie.clean.fileversions.retained keep more, each by its policy)"
            )

    def _readable_since(self, earliest: str) -> str:
        """When the last of the base files had taken effect that the last clean let stand for older slices."""
        cleaned = max(clean.completed or "" for clean in self.completed_cleans)
        made = [write.completed or "" for write in self.completed_writes if write.requested <= earliest]
        return max((completed for completed in made if completed < cleaned), default=earliest)

    def _is_savepoint(self, time: str) -> bool:
        return any(i.action == "savepoint" and i.is_completed and i.requested == time for i in self.instants)

    def _is_request(self, time: str) -> bool:
        """Whether a completed write was requested at this very time."""
        return any(write.requested == time for write in self.completed_writes) or time in self._archived

    def is_archived(self, requested: str) -> bool:
        """Whether the archive has a completed write that was requested at this time."""
        return requested in self._archived

    @cached_property
    def _commits(self) -> dict[Instant, CommitMetadata]:
        """What was read so far: schema, ledger and file groups of one batch come from the same newest commit."""
        return {}

    @cached_property
    def _archived(self) -> dict[str, str]:
        """Completion times of archived writes; read only when a file is older than the active timeline."""
        return archived_completions(self.storage, self.layout)

    def table_schema(self) -> str | None:
        """Avro JSON of the table's schema without meta columns, from the newest completed write that has one."""
        for write in reversed(self.completed_writes):
            schema = self.read_commit(write).extra.get("schema")
            if schema:
                return _checked_json(schema, write.path)
        return None

    @cached_property
    def _completions(self) -> dict[str, str | None]:
        return {instant.requested: instant.completed for instant in self.instants if instant.is_write}

    @cached_property
    def _rolled_back(self) -> frozenset[str]:
        return frozenset(self.finished_rollbacks())

    def finished_rollbacks(self, since: str = "") -> dict[str, Instant]:
        """Requested times of the actions that completed rollbacks on this timeline undid, with the rollback.

        Args:
            since: only rollbacks that were requested after this time are read, as is every rollback of an action that
                was requested then or later.
        """
        undone = {}
        for rollback in self.instants:
            if rollback.action == "rollback" and rollback.is_completed and rollback.requested > since:
                # Archived since the timeline was read: then what it undid is long cleared away.
                with suppress(FileNotFoundError):
                    metadata = RollbackMetadata.decode(self.storage.read(rollback.path), rollback.path)
                    undone[metadata.instant] = rollback
        return undone


def _completed(write: Instant) -> str:
    return write.completed or ""


def _moment(value: str | date, zone: str) -> str:
    """A limit as a user gives it: also digits that are no time, such as 000 for the beginning."""
    return value if isinstance(value, str) and value.isascii() and value.isdigit() else moment_text(value, zone)


def _time(write: Instant, *, by_request: bool) -> str:
    return write.requested if by_request else write.completed or ""


def _checked_json(schema: str, source: str) -> str:
    try:
        json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{source}: the schema in its extra metadata is not JSON: {error}") from None
    return schema
