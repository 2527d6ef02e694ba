"""Hold what is left of a table without its timeline, and what a repair makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.format.actions.compaction_plan import CompactionPlan
from streaming_lsm.services.repair.found_files import FoundFile
from streaming_lsm.services.repair.late_writes import LateWrites
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.txn.decision_record import Decision

REPAIRED_KEY = "lsm.repaired"
"""Entry of the extra metadata of a rebuilt commit."""

LIMITS = (
    "completion times are made: a millisecond after the requested time, or after the compaction that lacks the write; "
    "start incremental and change queries anew",
    "batch ids of writers are not in data files: a query that goes on from its checkpoint writes its last batch again",
    "a failed write that has left files and no markers cannot be told from a committed one",
    "cleans, savepoints, rollbacks, and deleted or overwritten partitions are not in data files: what they removed and "
    "was not deleted yet comes back; states before the oldest file slices are not whole",
    "dropped columns are not in data files: their names can be added again, and a column that was dropped or renamed "
    "last is back",
)
"""What no data file says, of any table."""


@dataclass(frozen=True)
class Evidence:
    """What is left of a table without its timeline.

    Attributes:
        files: the data files of writes that are not archived.
        decided: the decision records of writes that were decided to be completed, by requested time: their writers,
            if they were stopped, create the same completed files.
        archived: the data files of archived writes, by their names alone.
        last_archived: requested time of the last archived write, ``""`` if there is none.
        uncommitted: why a write's files are left out, by its requested time.
        abandoned: those of them that are to be rolled back by the next write.
        pending: requested and inflight writes and compactions that are left on the timeline, by requested time.
        taken: times of actions that are left on the timeline or in the history.
        schema: Avro JSON of the table when it was created, if it is known.
        column_ids: internal schemas of writes by requested time, where columns have ids.
        late: writes that were completed after a compaction was planned.
        merged: writes that have no files any more, of which base files have rows.
        clustered: file groups of the plans of clusterings that are left, by requested time.
        superseded: requested times of compactions that are left without files, since later base files took their place.
    """

    files: tuple[FoundFile, ...]
    uncommitted: Mapping[str, str] = field(default_factory=dict)
    abandoned: frozenset[str] = frozenset()
    pending: Mapping[str, Instant] = field(default_factory=dict)
    taken: frozenset[str] = frozenset()
    schema: str | None = None
    column_ids: Mapping[str, str] = field(default_factory=dict)
    late: LateWrites = field(default_factory=LateWrites)
    merged: frozenset[str] = frozenset()
    superseded: frozenset[str] = frozenset()
    archived: tuple[FoundFile, ...] = ()
    last_archived: str = ""
    decided: Mapping[str, Decision] = field(default_factory=dict)
    clustered: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)


@dataclass(frozen=True)
class FinishedService:
    """A restore or clean whose completed file was lost.

    Attributes:
        completed: the completed instant; its completion time is made.
        content: of the completed file.
    """

    completed: Instant
    content: bytes


@dataclass(frozen=True)
class RebuiltInstant:
    """A completed write that is made of its files.

    Attributes:
        pending: the action as it was while it was pending.
        completed: the completed instant; its completion time is made.
        metadata: content of the completed file.
        plan: content of the requested file; None if it is empty.
        rows: rows of its files but deletes.
        deletes: their deletes.
    """

    pending: Instant
    completed: Instant
    metadata: CommitMetadata
    plan: CompactionPlan | None
    rows: int
    deletes: int

    @property
    def times(self) -> tuple[str, str]:
        """Requested and completion time."""
        return self.completed.requested, self.completed.completed or ""

    @property
    def paths(self) -> list[str]:
        """Paths of its files."""
        return sorted(self.metadata.paths)


@dataclass(frozen=True)
class RepairPlan:
    """What a repair writes.

    Attributes:
        instants: the completed instants, by requested time.
        finished: restores and cleans that are completed, as they have deleted all that their plans name.
        dropped: inflight savepoints that are deleted, as they were completed.
        abandoned: writes that become pending, with markers of their files, so that the next write rolls them back.
        left_out: files of writes that were not committed, with the reason.
        unplaced: files that cannot be placed, with the reason; with one of them nothing is written.
        doubts: what is guessed in this table.
        limits: what is not known of any table.
    """

    instants: tuple[RebuiltInstant, ...] = ()
    finished: tuple[FinishedService, ...] = ()
    dropped: tuple[Instant, ...] = ()
    abandoned: tuple[Instant, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    unplaced: Mapping[str, str] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    limits: tuple[str, ...] = LIMITS

    def __str__(self) -> str:
        files, count = sum(len(found.paths) for found in self.instants), len(self.instants)
        return f"{count:,} completed instant{'s' * (count != 1)} with {files:,} file{'s' * (files != 1)}"
