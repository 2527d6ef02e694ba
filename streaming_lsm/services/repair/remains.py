"""Look at what is left of a table whose timeline is lost: data files, markers, pending instants, the history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streaming_lsm.errors import ConfigError, UnsupportedTable
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER
from streaming_lsm.lock.markers import TEMP_FOLDER
from streaming_lsm.services.context import ServiceContext
from streaming_lsm.services.repair.found_files import ListedFile, list_data_files
from streaming_lsm.services.repair.plan import REPAIRED_KEY
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import FLAT, Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.decision_record import DECISION_FOLDER, Decision
from streaming_lsm.txn.lost_completion import planned_rollbacks


@dataclass(frozen=True)
class ArchivedWrites:
    """The writes of the history. Archived cleans and rollbacks may be younger than writes that are not archived.

    Attributes:
        times: their requested times.
        first: the earliest of them, ``""`` if there is none.
        last: the latest of them, ``""`` if there is none.
    """

    times: frozenset[str]
    first: str
    last: str

    @classmethod
    def of(cls, timeline: Timeline) -> ArchivedWrites:
        """Read them."""
        times = frozenset(timeline.history.writes())
        return cls(times, min(times, default=""), max(times, default=""))

    def __contains__(self, requested: str) -> bool:
        """Return whether a write is one of them, or older than all, as then it was archived, too."""
        return requested in self.times or requested < self.first


@dataclass(frozen=True)
class Remains:
    """What is left, by names alone. A repair writes what it has planned only if it is the same when the lock is held.

    Attributes:
        timeline: what is left of the timeline.
        archived: the writes of the history.
        files: the data files of writes that are not archived.
        archived_files: those of writes that are.
        stray: data files in folders without partition metadata.
        uncommitted: why a write was not committed, by its requested time.
        abandoned: those of them that nothing tells to be undone but what the repair found.
        decided: the decision records that are left, by requested time.
    """

    timeline: Timeline
    archived: ArchivedWrites
    files: tuple[ListedFile, ...]
    archived_files: tuple[ListedFile, ...]
    stray: tuple[str, ...]
    uncommitted: Mapping[str, str]
    abandoned: frozenset[str]
    decided: Mapping[str, Decision]

    @property
    def rolled_back(self) -> frozenset[str]:
        """The requested times of the writes of `uncommitted` that were rolled back."""
        return frozenset(time for time, why in self.uncommitted.items() if why == _rolled_back(time))

    @property
    def facts(self) -> object:
        """Return what must not change, to be compared."""
        names = [instant.file_name for instant in self.timeline.instants]
        return (
            names,
            [(file.entry.path, file.entry.size) for file in self.files],
            self.stray,
            self.uncommitted,
            self.decided,
        )

    @property
    def pending(self) -> dict[str, Instant]:
        """The requested and inflight writes and compactions, by requested time; completed ones, too."""
        states = (instant for found in self.timeline.names.states.values() for instant in found)
        return {found.requested: found for found in states if found.is_write and not found.is_completed}

    @property
    def taken(self) -> frozenset[str]:
        """The times of all actions that a repair does not make."""
        made = frozenset(self.timeline.completed_writes)
        known = (
            *(found for found in self.timeline.instants if found not in made),
            *self.timeline.history.writes().values(),
        )
        return frozenset(time for found in known for time in (found.requested, found.completed or found.requested))


def look(context: ServiceContext) -> Remains:
    """List what is left of a table; nothing is changed.

    Raises:
        ConfigError: the timeline has completed writes, but for those of a repair that was interrupted.
        UnsupportedTable: the table is read-only in this release, or its timeline has layout 1.
    """
    storage = context.storage
    if context.config.timeline_layout == FLAT:
        raise UnsupportedTable(f"{storage.uri}: a timeline of layout 1 is not rebuilt: restore it from a copy")
    timeline = context.load_timeline()
    _refuse_completed(timeline)
    listed, stray = list_data_files(storage)
    archived = ArchivedWrites.of(timeline)
    files = tuple(file for file in listed if file.name.instant not in archived)
    older = tuple(file for file in listed if file.name.instant in archived)
    # A deletion of a partition has no files.
    replacing = {found.requested for found in timeline.pending if found.action == "replacecommit"}
    times = sorted({file.name.instant for file in files} | {time for time in replacing if time not in archived})
    decided = _decisions(storage)
    settled, abandoned = _settled(storage, timeline, times, archived), _abandoned(storage, times, decided)
    uncommitted = {**abandoned, **settled}
    undecided = frozenset(abandoned) - frozenset(settled)
    return Remains(timeline, archived, files, older, tuple(stray), uncommitted, undecided, decided)


def _refuse_completed(timeline: Timeline) -> None:
    writes = timeline.completed_writes
    if any(REPAIRED_KEY not in timeline.read_commit(write).extra for write in writes):
        raise ConfigError(
            f"the timeline of {timeline.storage.uri} is not lost: {len(writes)} completed writes are on it, from "
            f"{writes[0].file_name} to {writes[-1].file_name}; `lsm verify` names what is missing"
        )


def _settled(storage: Storage, timeline: Timeline, times: list[str], archived: ArchivedWrites) -> dict[str, str]:
    """Return the writes that were undone by what is left of the timeline, each with the reason."""
    undone = {*timeline.finished_rollbacks(), *planned_rollbacks(storage, timeline)}
    undone |= {time for time in times if timeline.history.is_undone(time)}
    found = {time: _rolled_back(time) for time in times if time in undone}
    missed = (time for time in times if time not in undone and time < archived.last)
    return {**found, **{time: f"{time} is not in the history, which has later writes" for time in missed}}


def _rolled_back(time: str) -> str:
    return f"{time} was rolled back"


def _abandoned(storage: Storage, times: list[str], decided: Mapping[str, Decision]) -> dict[str, str]:
    """Return the writes that were not completed by their decision records, markers or heartbeats."""
    beats = (entry.name for entry in storage.list(HEARTBEAT_FOLDER))
    marked = {*storage.folders(TEMP_FOLDER), *beats} - {
        time for time, decision in decided.items() if decision.completed
    }
    found: dict[str, str] = {}
    for time in times:
        if time in decided and decided[time].completed is None:
            found[time] = f"{time} was decided to be undone"
        elif time in marked:
            found[time] = f"{time} has markers or a heartbeat, which are deleted after the completion"
    return found


def _decisions(storage: Storage) -> dict[str, Decision]:
    """Return the decision records that complete actions or, of actions without runs, undo them, by requested time."""
    found: dict[str, Decision] = {}
    for name in sorted(storage.names(DECISION_FOLDER)):
        requested, _, run = name.partition(".")
        if requested.isdigit() and (not run or run.isdigit()):
            decision = Decision.read(storage, f"{DECISION_FOLDER}/{name}")
            if decision.completed is not None or not run:
                found[requested] = decision
    return found
