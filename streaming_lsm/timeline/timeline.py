"""Load the active timeline, and restrict it to a point in time (docs/format/02-timeline.md, "File names").

An *active* instant has its files in the timeline's folder; older ones are *archived*. A write *takes effect* at its
completion time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from itertools import chain

from streaming_lsm.errors import ConfigError, CorruptFileError, ReadOvertaken
from streaming_lsm.format.actions.clean import CleanMetadata
from streaming_lsm.format.actions.commit import CommitMetadata, decode_json
from streaming_lsm.format.actions.restore import RestoreMetadata, RestorePlan
from streaming_lsm.format.actions.rollback import RollbackMetadata
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.archive import History
from streaming_lsm.timeline.clock import instant_digits, moment_text
from streaming_lsm.timeline.commit_schema import without_meta_columns
from streaming_lsm.timeline.instant import FLAT, FLAT_FOLDER, TIMELINE_FOLDER, WRITING_ACTIONS, Instant, State
from streaming_lsm.timeline.instant_facts import InstantFacts, ReplacedGroups, cached
from streaming_lsm.timeline.names import BY_TIME, TimelineNames, replace_action


@dataclass(frozen=True)
class VisibleInstants:
    """Contain the instants whose blocks are visible in log files that several writes share.

    Visible are completed writes of the timeline, and archived writes that no rollback undid.

    Attributes:
        completed: completed writes on the timeline.
        known: all writes that are on the timeline or were undone by a rollback on it.
        first: smallest requested time on the timeline.
        until: the last visible time.
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
    """Represent the active timeline, each action in its latest state; immutable once loaded.

    Attributes:
        storage: storage of the table; contents of instants are read from it lazily.
        instants: latest state of each action, ordered by requested time.
        first: smallest requested time of any action, ``""`` for an empty timeline. Older actions are archived.
        until: on a timeline as of a time, the last time up to which archived writes are visible; else None.
        until_by_request: whether `until` is compared with requested times instead of completion times.
        layout: timeline layout; in layout 1 the requested time is the completion time (docs/format/02-timeline.md,
            "Layout 1").
        names: parsed names from which the timeline was loaded; empty if it was derived from another timeline.
        facts: cache of what completed instants say about others.
        origin: the timeline that was restricted to this one; None if this one was not restricted.
    """

    storage: Storage
    instants: tuple[Instant, ...]
    first: str
    until: str | None = None
    until_by_request: bool = False
    layout: int = 2
    names: TimelineNames = field(default_factory=TimelineNames, repr=False, compare=False)
    facts: InstantFacts = field(default_factory=InstantFacts, repr=False, compare=False)
    origin: Timeline | None = field(default=None, repr=False, compare=False)

    @classmethod
    def load(cls, storage: Storage, layout: int = 2, previous: Timeline | None = None) -> Timeline:
        """Load the timeline from the file names of its folder.

        Args:
            storage: the table.
            layout: the timeline layout; layout 1 has its files directly in ``.hoodie``.
            previous: a timeline loaded before, whose names are not parsed, and whose facts are not read, again.

        Raises:
            CorruptFileError: an action is completed twice.
            UnsupportedTable: a file of an unknown action.
        """
        names = storage.names(FLAT_FOLDER if layout == FLAT else TIMELINE_FOLDER)
        known = previous if previous and previous.layout == layout else cls(storage, (), "")
        found = known.names.updated(names, layout)
        first = found.instants[0].requested if found.instants else ""
        facts = known.facts.of_timeline(found.instants)
        return cls(storage, found.instants, first, layout=layout, names=found, facts=facts)

    def load_inside(self, storage: Storage) -> Timeline:
        """Load the timeline of a table inside this one, of the same layout, with what was read of it before."""
        known = self.facts.inside
        known[storage.uri] = loaded = Timeline.load(storage, self.layout, known.get(storage.uri))
        return loaded

    @property
    def folder(self) -> str:
        """Folder of the timeline."""
        return FLAT_FOLDER if self.layout == FLAT else TIMELINE_FOLDER

    @property
    def whole(self) -> Timeline:
        """The timeline with all instants, pending ones included: this one, or the one that it was restricted from."""
        return self.origin or self

    def has(self, requested: str) -> bool:
        """Return whether an action with this requested time is on the timeline in any state, or is older than it."""
        return requested < self.first or requested in self._requested

    @cached_property
    def completed_writes(self) -> tuple[Instant, ...]:
        """Completed commits, delta commits and replace commits, by requested time."""
        return tuple([i for i in self.instants if i.completed is not None and i.action in WRITING_ACTIONS])

    @property
    def every_write(self) -> tuple[Instant, ...]:
        """The completed writes of the history and of this timeline, by requested time."""
        writes = {**self.history.writes(), **{write.requested: write for write in self.completed_writes}}
        return tuple(writes[requested] for requested in sorted(writes))

    def newest_first(self) -> Iterator[Instant]:
        """Yield the completed writes, the one that took effect last first: it may be requested before another one."""
        newest = max(self.completed_writes, key=_completed, default=None)
        if newest is not None:
            yield newest
            # Nearly always the first is all that is asked for.
            yield from sorted((w for w in self.completed_writes if w != newest), key=_completed, reverse=True)

    @cached_property
    def pending(self) -> tuple[Instant, ...]:
        """Requested and inflight actions of every kind, by requested time."""
        return tuple([instant for instant in self.instants if instant.state is not State.COMPLETED])

    @cached_property
    def void_writes(self) -> tuple[Instant, ...]:
        """Pending writes that have the requested time of another, completed write, such as a compaction.

        Their writer drew the time, was stopped and lost the lock before it created them: they have no files.
        """
        if not self.pending:
            return ()
        completed = {write.requested for write in self.completed_writes}
        return tuple([found for found in self.pending if found.is_write and found.requested in completed])

    @cached_property
    def last_time(self) -> str:
        """The largest requested or completion time, ``""`` on an empty timeline."""
        last = self.instants[-1].requested if self.instants else ""
        return max([last, *(found.completed for found in self.instants if found.completed is not None)])

    def completion_time(self, requested: str) -> str | None:
        """Return the completion time of the write at `requested`; None if it is pending, rolled back or not visible."""
        completed = self.whole._completed_at(requested)
        if completed is None or self.until is None:
            return completed
        return completed if (requested if self.until_by_request else completed) <= self.until else None

    def _completed_at(self, requested: str) -> str | None:
        """Return the completion time of a write that is completed here, or archived.

        A write that is not completed here may have been archived while the folder was listed. One that is older than
        this timeline and than the history counts as completed at its requested time (docs/format/10-rules.md, "Rule 9",
        "Rule 10"), unless a rollback undid it: a task that outlived its driver may have left a file of
        a rolled back write.
        """
        if requested not in self._completed_times:
            self._completed_times[requested] = self._found_completed_at(requested)
        return self._completed_times[requested]

    def _found_completed_at(self, requested: str) -> str | None:
        found = self._completions.get(requested)
        if found is not None or requested in self._rolled_back:
            return found
        archived = self.history.write(requested)
        if archived is not None:
            return archived.completed
        is_older = requested < self.first and requested not in self._completions
        if not is_older or self.history.is_in_range(requested):
            return None
        return None if self.history.is_undone(requested) else requested

    def visible(self) -> VisibleInstants:
        """Return the visible writes, for executors that read blocks of several writes without a timeline."""
        completed = frozenset(write.requested for write in self.completed_writes)
        known = frozenset(self._completions) | self._rolled_back
        until = "~" if self.until is None else self.until
        return VisibleInstants(completed, known, self.first, until)

    def read_commit(self, instant: Instant) -> CommitMetadata:
        """Read the commit metadata of a completed write; cached, as it is immutable.

        Raises:
            CorruptFileError: the file is missing or cannot be read.
        """
        if instant not in self._commits:
            self._commits[instant] = self._read(instant)
        return self._commits[instant]

    def _read(self, instant: Instant) -> CommitMetadata:
        data = self.read_content(instant)
        if self.layout == FLAT:
            return decode_json(data, instant.path)
        return self.facts.decoded(data, lambda: CommitMetadata.decode(data, instant.path))

    def has_plan(self, pending: Instant) -> bool:
        """Return whether the requested file of a pending action was there when the timeline was loaded."""
        plan = pending.at(State.REQUESTED)
        return plan in self.names.states.get(pending.of_action, (plan,))

    def read_content(self, action: Instant) -> bytes:
        """Read the content of a completed action's file, from the history if it is archived.

        Raises:
            CorruptFileError: neither has it, or it cannot be read.
        """
        try:
            return self.storage.read(action.path)
        except FileNotFoundError:
            try:
                return History(self.storage, self.layout, self.facts.history).content(action)
            except FileNotFoundError:
                raise CorruptFileError(
                    f"{action.path} was there when the timeline was read and is gone: load the timeline again"
                ) from None

    def as_of(self, value: str | date, zone: str = "UTC") -> Timeline:
        """Restrict the timeline to the writes visible at a point in time (docs/format/10-rules.md, "Rule 7").

        Args:
            value: the requested time of a completed write: that write and writes requested before it are visible. That
                of a savepoint, any other instant time or date: writes that were completed by then are visible, for a
                savepoint when its write was, so that its rows stay what they were.
            zone: the table's zone, ``UTC`` or ``LOCAL``, into which dates with a zone are converted.

        Raises:
            ConfigError: the value is no point in time.
            ReadOvertaken: a clean deleted files of that time.
        """
        requested = instant_digits(value)
        exact = requested is not None and self._is_request(requested)
        limit = requested if requested is not None and exact else moment_text(value, zone)
        self.check_retained(value, limit, exact=exact)
        saved = self.completion_time(limit) if exact and self._is_savepoint(limit) else None
        return self._until(limit, by_request=exact) if saved is None else self.completed_by(saved)

    def before(self, write: Instant) -> Timeline:
        """Restrict the timeline to the writes that took effect before a write."""
        time = _completed(write)
        # All times are distinct (docs/format/10-rules.md, "Rule 28").
        return self.completed_by(f"{int(time) - 1:0{len(time)}}" if int(time) else "")

    def up_to(self, write: Instant) -> Timeline:
        """Restrict the timeline to a write and the writes that took effect before it."""
        return self.completed_by(_completed(write))

    def between(self, begin: str | date, end: str | date | None, zone: str = "UTC") -> tuple[Timeline, list[str]]:
        """Return the timeline as of `end`, and the requested times of the writes that took effect in ``(begin, end]``.

        Args:
            begin, end: completion times, dates, or any digits; None as `end` means now. In layout 1 requested times.
            zone: the table's zone.

        Raises:
            ConfigError: a value is no point in time, or the end is before the beginning.
            ReadOvertaken: a clean deleted files of the time `end`.
        """
        since, until = limit_text(begin, zone), "~" if end is None else limit_text(end, zone)
        if since > until:
            last = max((_completed(write) for write in self.completed_writes), default="none")
            raise ConfigError(
                f"the range begins at {begin} ({since}), after its end {end} ({until}): give the earlier time first; "
                f"the last write of {self.storage.uri} was completed at {last}"
            )
        if end is not None:
            self.check_retained(end, until, exact=False)
        # An archived write may have been completed after younger ones were requested.
        times = {write.requested: _completed(write) for write in self.every_write}
        found = sorted((completed, requested) for requested, completed in times.items() if since < completed <= until)
        return self if end is None else self.completed_by(until), [requested for _, requested in found]

    def completed_by(self, time: str) -> Timeline:
        """Restrict the timeline to the writes that took effect until a time."""
        return self._until(time, by_request=False)

    def _until(self, limit: str, *, by_request: bool) -> Timeline:
        kept = [write for write in self.completed_writes if _time(write, by_request=by_request) <= limit]
        others = [instant for instant in self.instants if not instant.is_write and instant.is_completed]
        merged = sorted(kept + others, key=BY_TIME)
        return Timeline(
            storage=self.storage,
            instants=tuple(merged),
            first=self.first,
            until=limit,
            until_by_request=by_request,
            layout=self.layout,
            facts=self.facts,
            origin=self.whole,
        )

    def as_restored(self) -> Timeline:
        """Restrict the timeline to what a pending restore leaves; this timeline if none has begun.

        Cleans may have deleted files of the states between the savepoint and now, which appear one after the other.

        Raises:
            CorruptFileError: see `check_restores`.
        """
        if not self._inflight_restores:
            return self
        # Loaded again: the completed file may have been created while the folder was listed.
        now = Timeline.load(self.storage, self.layout, previous=self)
        now.check_restores()
        restore = next(iter(now._inflight_restores), None)
        plan = restore and now.restore_plan(restore)
        saved = plan and now.completion_time(plan.savepoint)
        return now.completed_by(saved) if saved else now

    def has_undone_all(self, plan: RestorePlan | None) -> bool:
        """Return whether nothing is on the timeline of what a restore undoes; so it is of one without a plan."""
        undone = {requested for requested, _ in plan.undone} if plan else set()
        return not any(found.requested in undone for found in self.instants)

    def restore_plan(self, restore: Instant) -> RestorePlan | None:
        """Read the plan of a pending restore; None if it is gone."""
        path = restore.at(State.REQUESTED).path
        try:
            return RestorePlan.decode(self.storage.read(path), path)
        except FileNotFoundError:  # archived since, or lost
            return None

    @property
    def _inflight_restores(self) -> list[Instant]:
        return [found for found in self.pending if found.action == "restore" and found.state is State.INFLIGHT]

    def check_restores(self) -> None:
        """Refuse a pending restore that has undone all it undoes, and after which a write was completed.

        Writes of other programs, and those that were begun before it, may be completed while a restore runs.

        Raises:
            CorruptFileError: the completed instant file of a restore is gone.
        """
        for pending in self._passed_restores():
            # Loaded again: files that were created while the folder was listed may be missing in the list.
            if pending in Timeline.load(self.storage, self.layout)._passed_restores():
                raise CorruptFileError(
                    f"{pending.path} in {self.storage.uri} has no completed instant file, though writes were completed "
                    "after it, which are not read without: if another program is about to complete it, try again; else "
                    "restore that file"
                )

    def _passed_restores(self) -> list[Instant]:
        """Return the inflight restores of which nothing is left to undo, requested before a completed write."""
        inflight = self._inflight_restores
        last = max((write.requested for write in self.completed_writes), default="") if inflight else ""
        passed = [found for found in inflight if found.requested < last]
        return [found for found in passed if self.has_undone_all(self.restore_plan(found))]

    def with_latest(self, latest: Instant, commits: Mapping[Instant, CommitMetadata] | None = None) -> Timeline:
        """Return this timeline with one action in another state, without listing the folder.

        Args:
            latest: the action in its latest state.
            commits: commits that are known, and need not be read.
        """
        merged = list(self.instants)
        replace_action(merged, latest.of_action, latest)
        first = min(self.first or latest.requested, latest.requested)
        found = Timeline(self.storage, tuple(merged), first, layout=self.layout, facts=self.facts)
        found._commits.update(commits or {})
        return found

    @property
    def newest_known(self) -> dict[Instant, CommitMetadata]:
        """The write that took effect last, if its commit was read; else nothing."""
        newest = next(self.newest_first(), None)
        return {newest: self._commits[newest]} if newest in self._commits else {}

    @cached_property
    def earliest_retained(self) -> str:
        """Requested time of the earliest write whose file slices all cleans retained, ``""`` if none were deleted.

        It is the maximum over all cleans, because another program's clean may record none, or an earlier write than
        the cleans before it. A clean never records a later write than itself, so that the oldest cleans are not read.
        """
        earliest = ""
        for clean in reversed(self.completed_cleans):
            if clean.requested <= earliest:
                break
            earliest = max(earliest, self.read_clean(clean).earliest)
        return earliest

    def read_clean(self, clean: Instant) -> CleanMetadata:
        """Read the metadata of a completed clean; raises as `read_content`."""
        if clean not in self._cleans:
            self._cleans[clean] = CleanMetadata.decode(self.read_content(clean), clean.path)
        return self._cleans[clean]

    @cached_property
    def _cleans(self) -> dict[Instant, CleanMetadata]:
        """Cache of `read_clean`."""
        return {}

    @cached_property
    def completed_cleans(self) -> tuple[Instant, ...]:
        """Completed cleans, by requested time."""
        return tuple(instant for instant in self.instants if instant.action == "clean" and instant.is_completed)

    def check_retained(self, value: object, limit: str, *, exact: bool = False) -> None:
        """Refuse a point in time whose file slices may have been deleted by a clean, as their rows would be missing.

        Args:
            value: the value that the user gave, for the message.
            limit: the last visible time.
            exact: whether `limit` is the requested time of a write instead of a completion time.

        Raises:
            ReadOvertaken: a clean deleted files of that time.
        """
        archived = self.history.newest_clean()
        cleans = [*([archived] if archived else []), *self.completed_cleans]
        earliest = max(self.earliest_retained, self.history.earliest_retained())
        if not earliest or (exact and (limit >= earliest or self._is_savepoint(limit))):
            return
        if limit < (self._requested_until(earliest) if exact else self._readable_since(earliest, cleans)):
            raise ReadOvertaken(
                f"as of {value}: files of that time were cleaned; the earliest state that can be read is "
                f"{self._requested_until(earliest)} (hoodie.clean.commits.retained, "
                "hoodie.clean.fileversions.retained and hoodie.clean.hours.retained keep more, each by its policy)"
            )

    def _readable_since(self, earliest: str, cleans: Iterable[Instant]) -> str:
        """Return the completion time from which on the slices retained by the last of some cleans are complete.

        It is the last one, before the last clean, of the writes that were requested until `earliest`.
        """
        cleaned = max(_completed(clean) for clean in cleans)
        made = [_completed(write) for write in self.every_write if write.requested <= earliest]
        return max((completed for completed in made if completed < cleaned), default=earliest)

    def _requested_until(self, earliest: str) -> str:
        """Return the requested time of the last write until `earliest`, which itself may be undone."""
        return max((w.requested for w in self.whole.every_write if w.requested <= earliest), default=earliest)

    def _is_savepoint(self, time: str) -> bool:
        return any(i.action == "savepoint" and i.is_completed and i.requested == time for i in self.instants)

    def _is_request(self, time: str) -> bool:
        """Return whether a completed write has this requested time."""
        return any(write.requested == time for write in self.completed_writes) or self.is_archived(time)

    def is_write(self, requested: str) -> bool:
        """Return whether a write has this requested time, completed, archived or undone."""
        return self._is_request(requested) or self.is_undone(requested)

    def is_archived(self, requested: str) -> bool:
        """Return whether the archive has a completed write with this requested time."""
        return self.history.write(requested) is not None

    @cached_property
    def _commits(self) -> dict[Instant, CommitMetadata]:
        """Cache of commit metadata: schema, ledger and file groups of a batch are read from the same newest commit."""
        return {} if self.origin is None else self.origin._commits

    @cached_property
    def history(self) -> History:
        """The archived timeline, which is read only where an action is not on this one."""
        return History(self.storage, self.layout, self.facts.history) if self.origin is None else self.origin.history

    @cached_property
    def _completed_times(self) -> dict[str, str | None]:
        """Cache of `_completed_at`: many files have one requested time."""
        return {}

    @property
    def newest_with_schema(self) -> Instant | None:
        """The newest completed write whose commit has the table's schema.

        Commits are cached; a cached property would hold its lock, up to Python 3.11 one for all tables, while it reads.
        """
        writes = chain(self.newest_first(), self._archived_newest_first())
        return next((write for write in writes if self.read_commit(write).schema), None)

    def table_schema(self) -> str | None:
        """Return the table's schema as Avro JSON without meta columns, from the newest completed write that has one.

        Raises:
            CorruptFileError: it is not the JSON of a record.
        """
        write = self.newest_with_schema
        schema = None if write is None else self.read_commit(write).schema
        return None if write is None or schema is None else without_meta_columns(schema, write.path)

    def _archived_newest_first(self) -> Iterator[Instant]:
        """Yield the archived writes of a timeline that ends at a time, the one that took effect last first."""
        if self.until is None:
            return
        limit, by_request = self.until, self.until_by_request
        visible = [write for write in self.history.writes().values() if _time(write, by_request=by_request) <= limit]
        yield from sorted(visible, key=_completed, reverse=True)

    @cached_property
    def _completions(self) -> dict[str, str | None]:
        # Completed ones last: a void write has the requested time of one of them.
        writes = (*self.pending, *self.completed_writes)
        return {instant.requested: instant.completed for instant in writes if instant.is_write}

    @cached_property
    def _requested(self) -> frozenset[str]:
        return frozenset(instant.requested for instant in self.instants)

    @cached_property
    def _rolled_back(self) -> frozenset[str]:
        return frozenset(self.finished_rollbacks())

    def is_undone(self, requested: str) -> bool:
        """Return whether a completed rollback or restore undid an action; those of the history are read last.

        An archived compaction was run again after the rollback of an earlier run, by another program.
        """
        if requested in self.finished_rollbacks(since=requested):
            return True
        return self.history.is_undone(requested) and not self.is_archived(requested)

    def finished_rollbacks(self, since: str = "") -> dict[str, Instant]:
        """Return the completed rollbacks and restores on this timeline, by the requested times of what each undid.

        Args:
            since: read only rollbacks requested after this time; every rollback of an action requested at `since` or
                later is among them.
        """
        undone: dict[str, Instant] = {}
        for rollback in self.instants:
            if rollback.action in ("rollback", "restore") and rollback.is_completed and rollback.requested > since:
                # A missing rollback was archived since the load: files of its target were deleted long before.
                with suppress(FileNotFoundError):
                    times = cached(self.facts.undone, rollback, self._read_undone)
                    undone.update({time: rollback for time in times})
        return undone

    def _read_undone(self, rollback: Instant) -> tuple[str, ...]:
        data = self.storage.read(rollback.path)
        if rollback.action == "restore":
            return tuple(requested for requested, _ in RestoreMetadata.decode(data, rollback.path).undone)
        return (RollbackMetadata.decode(data, rollback.path).instant,)

    @cached_property
    def replaced_groups(self) -> Mapping[str, Mapping[str, str]]:
        """The replaced file ids by partition, each with the requested time of the first write that replaced it.

        See docs/format/02-timeline.md, "Replacecommit".
        """
        found: dict[str, dict[str, str]] = {}
        for write in self.completed_writes:
            if write.action == "replacecommit":
                for partition, file_ids in cached(self.facts.replaced, write, self._read_replaced).items():
                    known = found.setdefault(partition, {})
                    for file_id in file_ids:
                        known.setdefault(file_id, write.requested)
        return found

    def _read_replaced(self, write: Instant) -> ReplacedGroups:
        # Its stats are not kept in memory.
        known = self._commits.get(write)
        return (known or self._read(write)).replaced or {}


def _completed(write: Instant) -> str:
    return write.completed or ""


def limit_text(value: str | date, zone: str) -> str:
    """Convert a user's limit into an instant time; digits that are no date are kept, such as 000 for the beginning."""
    return value if isinstance(value, str) and value.isascii() and value.isdigit() else moment_text(value, zone)


def _time(write: Instant, *, by_request: bool) -> str:
    return write.requested if by_request else _completed(write)
