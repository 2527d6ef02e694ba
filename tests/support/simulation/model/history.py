"""The model: the rows after each commit, and which attempts at which batches there were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from streaming_lsm.errors import WriteConflict
from streaming_lsm.format.actions.clustering_plan import clustered_groups
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.format.actions.restore import RestorePlan
from streaming_lsm.format.actions.rollback import RollbackPlan
from streaming_lsm.timeline.action_kind import CLUSTERING, RESTORE, ROLLBACK
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, WRITE_ACTIONS, Instant, State
from tests.support.simulation.model.conflicts import Bucket, ConflictRules, named_instant
from tests.support.simulation.work.batches import REPLACED, Batch
from tests.support.small_tables import Row


class Violation(Exception):
    """A promise of the package is broken.

    Attributes:
        kind: which, in a word or two.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.args[1]}"


Rows = dict[str, Row]
FileGroups = frozenset[tuple[str, str]]
"""Partition paths and file ids."""


@dataclass
class Attempt:
    """One call that writes a batch.

    Attributes:
        batch: the batch.
        track: who made it.
        instant: the requested time, once it is drawn.
        refused: name of the error that says that nothing of it is committed, now or later.
        seen: requested times of the writes that were completed when it was planned, the last time.
        undone: how many writes had been undone by then.
        planned: requested times of the clusterings that were pending then.
    """

    batch: Batch
    track: str
    instant: str = ""
    refused: str = ""
    seen: frozenset[str] = frozenset()
    undone: int = 0
    planned: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Published:
    """A completed write, in the order in which they were completed; compactions change no rows.

    Attributes:
        changes: what it changed, of its batch; None for compactions, clusterings and replacements.
        groups: the file groups that it wrote to.
        clustered: those that it replaced, as a clustering.
    """

    requested: str
    completed: str
    attempt: Attempt | None
    rows: Rows
    changes: Batch | None = None
    is_replacement: bool = False
    groups: FileGroups = frozenset()
    clustered: FileGroups = frozenset()

    @property
    def replaced(self) -> tuple[str, ...]:
        """The partitions that it replaced."""
        if self.is_replacement:
            return (REPLACED,)
        return self.changes.replaces if self.changes else ()

    def applied_to(self, before: Rows) -> Rows:
        """The rows after it."""
        if self.is_replacement:
            return without_partitions(before, self.replaced)
        return before if self.changes is None else applied(before, self.changes)


@dataclass
class History:
    """What was committed.

    Attributes:
        rules: which writes exclude each other.
        moments: the completed writes and compactions after each change of them, in the order of their completion.
        began: attempts by the requested time of their instants.
        deleted: how many data files were deleted.
        declined: batches that were to delete a partition which had no file group.
        saved: requested times of the savepoints that stand, and of whose making a process was told.
        unsaving: how many processes are deleting which savepoint.
        undone: the completed writes that were rolled back or restored away.
        plans: requested times of what each rollback and restore is to undo, by its own.
        revived: how often a process that was stopped created the completed file of an undone or archived write again.
        clusterings: the file groups of each clustering that was planned, by its requested time.
        pending: requested times of those that are pending.
    """

    rules: ConflictRules
    moments: list[tuple[Published, ...]] = field(default_factory=lambda: [()])
    began: dict[str, Attempt] = field(default_factory=dict)
    deleted: int = 0
    declined: list[Batch] = field(default_factory=list)
    saved: list[str] = field(default_factory=list)
    unsaving: Counter[str] = field(default_factory=Counter)
    undone: list[Published] = field(default_factory=list)
    plans: dict[str, tuple[str, ...]] = field(default_factory=dict)
    revived: int = 0
    clusterings: dict[str, FileGroups] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)

    @property
    def published(self) -> tuple[Published, ...]:
        """The completed writes and compactions."""
        return self.moments[-1]

    @property
    def moment(self) -> int:
        """The number of this moment."""
        return len(self.moments) - 1

    @property
    def rows(self) -> Rows:
        """The rows now."""
        return rows_after(self.published)

    def states(self, since: int) -> Iterator[Rows]:
        """The rows at each moment since one."""
        return map(rows_after, self.moments[since:])

    def saved_states(self, requested: str, since: int) -> Iterator[Rows]:
        """The rows when the write of a savepoint was completed, at each moment since one: of all the same."""
        for moment in self.moments[since:]:
            times = _requested(moment)
            yield rows_after(moment[: times.index(requested) + 1] if requested in times else ())

    @property
    def committed(self) -> list[Batch]:
        """The batches of the completed writes."""
        return [one.attempt.batch for one in self.published if one.attempt is not None]

    @property
    def undone_batches(self) -> list[Batch]:
        """The batches of the writes that were undone."""
        return [one.attempt.batch for one in self.undone if one.attempt is not None]

    def on_put(self, path: str, attempt: Attempt | None, data: bytes | None = None) -> None:
        """A file was created: an action begins, or is completed."""
        found = _instant_at(path)
        if found is None:
            return
        if found.completed is not None:
            self._on_completed(found, found.completed, data)
        elif found.action == CLUSTERING and found.state is State.REQUESTED:
            self.clusterings[found.requested] = clustered_groups(data or b"", found.path)
            self.pending.add(found.requested)
        elif found.action in (ROLLBACK, RESTORE):
            self._on_undoing(found, data or b"")
        elif found.state is State.REQUESTED:
            # The time of an action that was rolled back may be used again.
            self.began.pop(found.requested, None)
            if attempt is not None and found.action in WRITE_ACTIONS:
                attempt.instant = found.requested
                self.began[found.requested] = attempt

    def on_delete(self, path: str) -> None:
        """A file was deleted: a write is rolled back by its completed file, a plan cancelled by its requested one."""
        found = _instant_at(path)
        if found is None:
            return
        if found.action in (ROLLBACK, RESTORE) and found.state is State.REQUESTED:
            self.plans.pop(found.requested, None)
        if found.action == CLUSTERING and found.state is State.REQUESTED:
            self.pending.discard(found.requested)
        last = self.published[-1] if self.published else None
        is_planned = any(found.requested in plan for plan in self.plans.values())
        if (
            found.completed is None
            or not found.is_write
            or not is_planned
            or found.requested not in _requested(self.published)
        ):
            return
        if last is None or (last.requested, last.completed) != (found.requested, found.completed):
            raise Violation("undone out of order", f"{path} is deleted, the last write is {last}")
        self._undo(len(self.published) - 1)

    def _on_undoing(self, found: Instant, data: bytes) -> None:
        if found.state is State.REQUESTED and found.action == ROLLBACK:
            plan = RollbackPlan.decode(data, found.path)
            if plan.completed is not None:
                self.plans[found.requested] = (plan.instant,)
        elif found.state is State.REQUESTED:
            restored = RestorePlan.decode(data, found.path)
            self.plans[found.requested] = (restored.savepoint, *(requested for requested, _ in restored.undone))
        elif found.action == RESTORE and found.requested in self.plans:
            # From here on each query reads as of the savepoint.
            savepoint, *undone = self.plans[found.requested]
            times = _requested(self.published)
            count = times.index(savepoint) + 1 if savepoint in times else 0
            if not set(times[count:]) <= set(undone) or set(times[:count]) & set(undone):
                raise Violation("wrong restore", f"{found.path} to {savepoint} undoes {undone} of {times}")
            self._undo(count)

    def _undo(self, count: int) -> None:
        """All but the first writes are undone."""
        self.undone += self.published[count:]
        self.deleted += 1
        self.moments.append(self.published[:count])

    def _on_completed(self, found: Instant, completed: str, data: bytes | None) -> None:
        if not found.is_write:
            return
        known = (*self.undone, *self.published)
        if any((one.requested, one.completed) == (found.requested, completed) for one in known):
            self.revived += 1
            return
        last = self.published[-1].completed if self.published else ""
        if completed <= last:
            raise Violation("history not linear", f"{found.path} is completed after one of {last}")
        attempt = self.began.get(found.requested)
        if attempt is not None and attempt.batch in self.committed:
            raise Violation("batch twice", f"{attempt.batch} is committed again by {found.path}")
        if attempt is not None and attempt.refused:
            raise Violation("refused and committed", f"{attempt.batch} by {found.path}: was told {attempt.refused}")
        clustered: FileGroups = frozenset()
        if attempt is None and found.requested in self.pending:
            clustered = self.clusterings[found.requested]
            self.pending.discard(found.requested)
            self._check_clustered(found, clustered)
        is_replacement = attempt is None and not clustered and found.action == "replacecommit"
        groups = _groups_of(found, data)
        changes = None if attempt is None else self._changes(attempt, groups)
        if attempt is not None and changes is not None:
            self._check_excluded(attempt, changes, found)
            self._check_beside_clusterings(attempt, groups, found)
            for one in self.undone[attempt.undone :]:
                if one.requested in attempt.seen:
                    raise Violation("made on top of what is undone", f"{attempt.batch} by {found.path}: {one}")
        made = Published(found.requested, completed, attempt, {}, changes, is_replacement, groups, clustered)
        self.moments.append((*self.published, replace(made, rows=made.applied_to(self.rows))))

    def _changes(self, attempt: Attempt, groups: FileGroups) -> Batch:
        """The batch, without deletes that leave no file.

        In a copy-on-write table these are those of buckets that had no file when the write was planned; without buckets
        those of keys that had no row, in partitions to which it wrote nothing.
        """
        batch = attempt.batch
        if not (self.rules.is_cow or self.rules.looks_up) or not batch.deletes:
            return batch
        if self.rules.looks_up:
            known, written = self._known_keys(attempt), {partition for partition, _ in groups}
            return replace(batch, deletes=tuple(key for key in batch.deletes if key in known or key[1] in written))
        filled = self._filled(one for one in self.published if one.requested in attempt.seen)
        return replace(batch, deletes=tuple(key for key in batch.deletes if self.rules.bucket_of(*key) in filled))

    def _known_keys(self, attempt: Attempt) -> frozenset[tuple[str, str]]:
        """The keys that had a row, with their partitions, when a write was planned."""
        rows: Rows = {}
        for one in self.published:
            rows = one.applied_to(rows) if one.requested in attempt.seen else rows
        return frozenset((key, row[1]) for key, row in rows.items())

    def _filled(self, writes: Iterable[Published]) -> frozenset[Bucket]:
        """The buckets that have a file group after some writes."""
        if self.rules.looks_up:
            return frozenset(self.rules.bucket_of("", where) for where, _ in _live_groups(writes))
        filled: frozenset[Bucket] = frozenset()
        for one in writes:
            filled = frozenset(bucket for bucket in filled if bucket[0] not in one.replaced)
            if one.changes is not None:
                filled |= self.rules.buckets_of(one.changes)
        return filled

    def _check_excluded(self, attempt: Attempt, changes: Batch, found: Instant) -> None:
        """Check that no write that excludes one was completed since that began."""
        filled = self._filled(one for one in self.published if one.requested in attempt.seen)
        keys = {*((key, where) for key, where, *_ in changes.rows), *changes.deletes}
        updated = frozenset(where for _, where in keys & self._known_keys(attempt))
        for number, other in enumerate(self.published):
            if other.changes is None or other.requested in attempt.seen or self._is_without_effect(other):
                continue
            # What was replaced since is in no way.
            replaced = frozenset(where for later in self.published[number + 1 :] for where in later.replaced)
            if self.rules.excludes(changes, other.changes, filled, updated=updated, without=replaced):
                raise Violation(
                    "conflict missed",
                    f"{attempt.batch} by {found.path} and {other.changes}, completed at {other.completed}",
                )

    def _check_beside_clusterings(self, attempt: Attempt, groups: FileGroups, found: Instant) -> None:
        """Check that no file group of a write is of a clustering that is pending, or was completed since it began."""
        done = (one for one in self.published if one.requested not in attempt.seen)
        replaced = {one.requested: one.clustered for one in done}
        for requested, clustered in {**replaced, **{one: self.clusterings[one] for one in self.pending}}.items():
            if groups & clustered:
                raise Violation("conflict missed", f"{attempt.batch} by {found.path} and the clustering {requested}")

    def _check_clustered(self, found: Instant, clustered: FileGroups) -> None:
        """Check that what a clustering replaces was not written to since it was planned."""
        for one in self.published:
            if one.completed > found.requested and one.groups & clustered:
                raise Violation("conflict missed", f"the clustering {found.path} and {one.requested}_{one.completed}")

    def _is_without_effect(self, one: Published) -> bool:
        """Whether a write is an overwrite without rows, which found no file group to replace."""
        if one.attempt is None or one.changes is None or not one.replaced or self.rules.buckets_of(one.changes):
            return False
        filled = self._filled(other for other in self.published if other.requested in one.attempt.seen)
        return not any(bucket[0] in one.replaced for bucket in filled)

    def on_conflict(self, attempt: Attempt, conflict: WriteConflict) -> None:
        """A write was refused because of another one."""
        named = named_instant(conflict)
        if named in self.clusterings and named not in self.began:
            self._check_conflict_with_clustering(attempt, conflict, named)
            return
        other = self.began.get(named)
        is_replaced = any(one.replaced and one.requested not in attempt.seen for one in self.published)
        batch = other.batch if other else None
        complaint = self.rules.complaint(attempt.batch, batch, conflict, is_replaced=is_replaced)
        if complaint is not None:
            raise Violation(
                "made-up conflict", f"{attempt.batch}: {complaint}, but {type(conflict).__name__}: {conflict}"
            )

    def _check_conflict_with_clustering(self, attempt: Attempt, conflict: WriteConflict, named: str) -> None:
        clustered = {partition for partition, _ in self.clusterings[named]}
        batch = attempt.batch
        # A key that was deleted may be in a file group, too: its delete is, and rows and deletes of the key go there.
        written = {
            key
            for one in self.published
            if one.changes is not None and one.requested in attempt.seen
            for key in (*((row[0], row[1]) for row in one.changes.rows), *one.changes.deletes)
        }
        is_new = written.isdisjoint((row[0], row[1]) for row in batch.rows) and all(
            partition not in clustered for _, partition in batch.deletes
        )
        complaint = self.rules.clustering_complaint(
            batch,
            conflict,
            clustered,
            is_planned=named in attempt.planned and is_new and attempt.undone == len(self.undone),
            is_later=named > attempt.instant,
        )
        if named in attempt.seen and named < attempt.instant:
            complaint = "it was completed before"
        if complaint is not None:
            raise Violation("made-up conflict", f"{batch}: {complaint}, but {type(conflict).__name__}: {conflict}")

    def refuse(self, attempt: Attempt, error: str) -> None:
        """Its writer was told that nothing of an attempt is committed."""
        attempt.refused = error
        if any(one.attempt is attempt for one in self.published):
            raise Violation(
                "refused and committed", f"{attempt.batch} at {attempt.instant}, of {attempt.track}: {error}"
            )

    def decline(self, attempt: Attempt, error: str, since: int) -> None:
        """A deletion of a partition was refused, as that has no file group.

        Args:
            since: the moment at which it began.
        """
        self.refuse(attempt, error)
        filled = (self._filled(moment) for moment in self.moments[since:])
        if all(any(bucket[0] == attempt.batch.deleted for bucket in one) for one in filled):
            raise Violation("refused without reason", f"{attempt.batch}: {error}")
        self.declined.append(attempt.batch)

    def acknowledge(self, batch: Batch, how: str, since: int, *, is_skipped: bool) -> None:
        """A writer was told that its batch is committed.

        Args:
            since: the moment at which it began.
            is_skipped: whether the batch, or a later one of the writer, was committed before.
        """
        for moment in self.moments[since:]:
            known = [one.attempt.batch for one in moment if one.attempt is not None]
            if batch in known or (is_skipped and is_replay(batch, known)):
                return
        raise Violation("acknowledged and not committed", f"{batch}: {how}")


def is_replay(batch: Batch, committed: Iterable[Batch]) -> bool:
    """Whether a batch, or a later one of its writer, is committed."""
    return any(one.writer_id == batch.writer_id and one.number >= batch.number for one in committed)


def _instant_at(path: str) -> Instant | None:
    if not path.startswith(TIMELINE_FOLDER + "/"):
        return None
    return Instant.parse(path.removeprefix(TIMELINE_FOLDER + "/"))


def _groups_of(found: Instant, data: bytes | None) -> FileGroups:
    """The file groups that a completed action wrote to."""
    if not data:
        return frozenset()
    return frozenset((stat.partition_path, stat.file_id) for stat in CommitMetadata.decode(data, found.path).stats)


def _live_groups(writes: Iterable[Published]) -> FileGroups:
    """The file groups after some writes."""
    live: FileGroups = frozenset()
    for one in writes:
        live = frozenset(group for group in live if group[0] not in one.replaced) - one.clustered
        if one.changes is not None or one.clustered:
            live |= one.groups
    return live


def _requested(writes: Sequence[Published]) -> list[str]:
    return [one.requested for one in writes]


def rows_after(writes: Sequence[Published]) -> Rows:
    """The rows after some writes."""
    return writes[-1].rows if writes else {}


def without_partitions(before: Rows, partitions: Iterable[str]) -> Rows:
    """The rows of other partitions."""
    return {key: row for key, row in before.items() if row[1] not in partitions}


def applied(before: Rows, batch: Batch) -> Rows:
    """The rows after a batch: the greater ordering value wins, and of equal ones the later; an overwrite always."""
    rows = without_partitions(before, batch.replaces)
    for key, _ in batch.deletes:
        rows.pop(key, None)
    for row in batch.rows:
        known = rows.get(row[0])
        if known is None or row[2] >= known[2]:
            rows[row[0]] = row
    return rows
