"""Plan the completed instants of a lost timeline from what its data files say; nothing is read or changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from streaming_lsm.format.actions.clustering_plan import CLUSTER
from streaming_lsm.format.actions.commit import COMPACTING, CommitMetadata, WriteStat, base_file_stat, log_file_stat
from streaming_lsm.format.actions.compaction_plan import FULL, LOG, CompactionOperation, CompactionPlan
from streaming_lsm.format.actions.file_state import FILES_KEY
from streaming_lsm.format.internal_schema import LATEST_SCHEMA_KEY
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import BaseFileName, InlineLogName, LogFileName
from streaming_lsm.services.repair.found_files import FoundFile
from streaming_lsm.services.repair.late_writes import Group, is_compacted
from streaming_lsm.services.repair.plan import REPAIRED_KEY, Evidence, RebuiltInstant, RepairPlan
from streaming_lsm.services.repair.replaced_groups import (
    ReplacedGroups,
    clustering_doubts,
    find_replaced,
    replacement_doubts,
)
from streaming_lsm.timeline.action_kind import CLUSTERING
from streaming_lsm.timeline.clock import next_time
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.txn.decision_record import Decision


def proven_writes(files: Iterable[FoundFile]) -> frozenset[str]:
    """Return the writes of which a compaction has rows or replaced logs: they were committed."""
    found = [*files]
    merged = (time for file in found for time in (*file.commits, *file.compacted) if time != file.instant)
    return frozenset(merged)


def plan_repair(evidence: Evidence, config: TableConfig, unplaced: Mapping[str, str]) -> RepairPlan:
    """Plan the instants of all files that are not left out.

    Args:
        evidence: what is left of the table.
        config: the table's config.
        unplaced: files that cannot be placed, with the reason.
    """
    left = {f.path: evidence.uncommitted[f.instant] for f in evidence.files if f.instant in evidence.uncommitted}
    kept, repeated = _of_one_attempt([file for file in evidence.files if file.path not in left])
    by_instant: dict[str, list[FoundFile]] = defaultdict(list)
    for file in kept:
        by_instant[file.instant].append(file)
    replaced = find_replaced([*evidence.archived, *kept], evidence, config)
    known = {*by_instant, *evidence.pending, *(file.instant for file in evidence.archived)}
    replacing = (time for time in replaced if time > evidence.last_archived)
    for without_files in (*evidence.merged, *evidence.superseded, *replacing):
        by_instant.setdefault(without_files, [])
    times = _completion_times(sorted(by_instant), evidence, config)
    groups: dict[Group, list[FoundFile]] = defaultdict(list)
    for file in kept:
        groups[file.group].append(file)
    planner = _Planner(evidence, config, groups, replaced, times)
    instants = tuple(planner.instant(requested, by_instant[requested]) for requested in sorted(by_instant))
    instants = _with_schemas(instants, by_instant, evidence)
    doubts = (
        *_doubts(evidence, left),
        *replacement_doubts(replaced, known, evidence.clustered),
        *clustering_doubts(kept, evidence, config),
    )
    write = "commit" if config.is_copy_on_write else "deltacommit"
    abandoned = tuple(
        evidence.pending.get(time, Instant(time, write, State.REQUESTED)).at(State.REQUESTED)
        for time in sorted(evidence.abandoned)
    )
    return RepairPlan(
        instants, abandoned=abandoned, left_out={**left, **repeated}, unplaced=dict(unplaced), doubts=doubts
    )


def _of_one_attempt(files: Sequence[FoundFile]) -> tuple[list[FoundFile], dict[str, str]]:
    """Choose the last attempt of each task at a file, and return the other attempts' files with the reason."""
    chosen: dict[object, FoundFile] = {}
    repeated: dict[str, str] = {}
    for file in sorted(files, key=lambda file: _attempt(file)[1]):
        key = _attempt(file)[0]
        if key in chosen:
            repeated[chosen[key].path] = f"{file.path} is of a later attempt at it"
        chosen[key] = file
    return sorted(chosen.values(), key=lambda file: file.path), repeated


def _attempt(file: FoundFile) -> tuple[object, tuple[tuple[int, ...], str]]:
    """Return what the attempts at one file have in common, and the order of an attempt among them."""
    name = file.name
    token = str(name.token)
    numbers = tuple(int(part) for part in token.split("-") if part.isdigit())
    if isinstance(name, BaseFileName):
        return (file.group, name.instant), (numbers, token)
    kind = name.kind if isinstance(name, LogFileName) else name.cdc
    task = None if name.token is None else name.token.task
    return (file.group, name.instant, name.version, task, kind), (numbers, token)


def _completion_times(requested: Sequence[str], evidence: Evidence, config: TableConfig) -> dict[str, str]:
    """Make completion times: the next free millisecond after the requested time, or after what lacks the write."""
    decided = {time: found.completed for time, found in evidence.decided.items()}
    times = {time: done.completed or "" for time in requested if (done := decided.get(time)) is not None}
    taken = {*evidence.taken, *requested, *times.values()}
    for time in (time for time in requested if time not in times):
        chosen = max(time, evidence.late.since.get(time, ""))
        while chosen in taken:
            chosen = next_time(0, chosen, config.timeline_zone)
        times[time] = chosen
        taken.add(chosen)
    return times


@dataclass(frozen=True)
class _Planner:
    """Makes instants of files, given the whole table."""

    evidence: Evidence
    config: TableConfig
    groups: Mapping[Group, Sequence[FoundFile]]
    replaced: ReplacedGroups
    times: Mapping[str, str]

    def instant(self, requested: str, files: Sequence[FoundFile]) -> RebuiltInstant:
        """Make the instant of all files with one requested time."""
        decision = self.evidence.decided.get(requested)
        if decision is not None:
            return self._decided(requested, files, decision)
        replaced = self.replaced.get(requested)
        action, operation = self._action(requested, files, is_replacing=replaced is not None)
        stats = tuple(self._stat(file) for file in files if not file.is_change_log)
        compacted = operation in COMPACTING
        pending = Instant(requested, action, State.REQUESTED)
        return RebuiltInstant(
            pending=pending,
            completed=pending.completed_at(self.times[requested]),
            metadata=CommitMetadata(stats, operation, {REPAIRED_KEY: "true"}, compacted, replaced),
            plan=self._plan(requested, files) if compacted else None,
            rows=sum(file.rows for file in files),
            deletes=sum(file.deletes for file in files),
        )

    def _decided(self, requested: str, files: Sequence[FoundFile], decision: Decision) -> RebuiltInstant:
        """Make the instant of a decision record, but for what its commit says of the lost instants before it."""
        assert decision.completed is not None
        commit = CommitMetadata.decode(decision.data, decision.path)
        extra = {key: value for key, value in commit.extra.items() if key != FILES_KEY}
        commit = replace(commit, extra={**extra, REPAIRED_KEY: "true"})
        services = {operation: action for action, operation in _SERVICES.items()}
        action = services.get(commit.operation_type or "", decision.completed.action)
        left = self.evidence.pending.get(requested)
        return RebuiltInstant(
            pending=Instant(requested, action, State.REQUESTED) if left is None else left.at(State.REQUESTED),
            completed=decision.completed,
            metadata=commit,
            plan=self._plan(requested, files) if commit.operation_type in services else None,
            rows=sum(file.rows for file in files),
            deletes=sum(file.deletes for file in files),
        )

    def _action(self, requested: str, files: Sequence[FoundFile], *, is_replacing: bool) -> tuple[str, str]:
        """Return the action while it is pending, and the operation."""
        left = self.evidence.pending.get(requested)
        if is_replacing or (left is not None and left.completes_as == "replacecommit"):
            operation = "INSERT_OVERWRITE" if files else "DELETE_PARTITION"
            if left is not None and left.action == CLUSTERING:
                operation = CLUSTER
            return ("replacecommit" if left is None else left.action), operation
        if left is not None and left.action in _SERVICES:
            return left.action, _SERVICES[left.action]
        written = "DELETE" if files and all(file.deletes and not file.rows for file in files) else "UPSERT"
        if left is not None:
            return left.action, written
        if self.config.is_copy_on_write:
            return "commit", "UPSERT"
        if any(is_compacted(file) for file in files) and not any(_is_written(file) for file in files):
            return "compaction", "COMPACT"
        if any(file.compacted for file in files):
            return "logcompaction", "LOG_COMPACT"
        return "deltacommit", written

    def _stat(self, file: FoundFile) -> WriteStat:
        name = file.name
        if isinstance(name, BaseFileName):
            previous = self._previous(file)
            merged = {"num_updates": file.rows} if previous else {"num_inserts": file.rows}
            stat = base_file_stat(
                file.partition_path, name, total_bytes=file.size, num_writes=file.rows, previous=previous, **merged
            )
        else:
            stat = log_file_stat(
                file.partition_path, name, total_bytes=file.size, num_updates=file.rows, num_deletes=file.deletes
            )
        mine = [found for found in self.groups[file.group] if found.instant == file.instant]
        changes = tuple((log.path, log.size) for log in mine if log.is_change_log)
        first = min(
            (found for found in mine if not found.is_change_log), key=lambda found: (not found.rows, found.path)
        )
        return replace(stat, cdc_files=changes) if changes and first == file else stat

    def _previous(self, file: FoundFile) -> BaseFileName | None:
        older = [
            f.name for f in self.groups[file.group] if isinstance(f.name, BaseFileName) and f.instant < file.instant
        ]
        return max(older, key=lambda name: name.instant, default=None)

    def _plan(self, requested: str, files: Sequence[FoundFile]) -> CompactionPlan:
        """Make the plan of a compaction, of the files that are left."""
        made = [file for file in files if file.is_base or file.compacted]
        firsts = {file.group: file for file in reversed(made)}
        operations = tuple(self._operation(requested, firsts[group]) for group in sorted(firsts))
        is_hybrid = len({operation.type for operation in operations}) > 1
        return CompactionPlan(operations, 3) if is_hybrid else CompactionPlan(operations)

    def _operation(self, requested: str, made: FoundFile) -> CompactionOperation:
        previous = self._previous(made)
        since = previous.instant if previous else ""
        merged = [
            file
            for file in self.groups[made.group]
            if not file.is_base and not file.is_change_log and since <= self.times[file.instant] < requested
            and (made.is_base or file.instant in made.compacted)
        ]  # fmt: skip
        logs = [file.name for file in merged if isinstance(file.name, LogFileName | InlineLogName)]
        ordered = tuple(str(name) for name in sorted(logs, key=lambda name: name.sort_key))
        begun = since or min((file.instant for file in merged), default=requested)
        kind = FULL if made.is_base else LOG
        return CompactionOperation(
            *made.group, begun, ordered, str(previous) if previous and made.is_base else None, type=kind
        )


_SERVICES = {"compaction": "COMPACT", "logcompaction": "LOG_COMPACT"}


def _is_written(file: FoundFile) -> bool:
    """Return whether a file is of a write, not of a compaction."""
    if file.is_base:
        return not is_compacted(file)
    return not (file.compacted or file.keeps_deletes)


def _with_schemas(
    instants: Sequence[RebuiltInstant], files: Mapping[str, Sequence[FoundFile]], evidence: Evidence
) -> tuple[RebuiltInstant, ...]:
    """Add the schema of each write, or that of the write before it, and the ids of its columns."""
    made, last = [], evidence.schema
    for found in instants:
        last = next((file.columns for file in files[found.completed.requested] if file.schema), last)
        ids = evidence.column_ids.get(found.completed.requested)
        added = {"schema": last, LATEST_SCHEMA_KEY: ids}
        extra = {**found.metadata.extra, **{key: value for key, value in added.items() if value}}
        made.append(replace(found, metadata=replace(found.metadata, extra=extra)))
    return tuple(made)


def _doubts(evidence: Evidence, left: Collection[str]) -> list[str]:
    found = [
        f"{time} is taken to be completed after {since} was planned: that has no row of it, and lacks one of its keys"
        for time, since in sorted(evidence.late.since.items())
    ]
    found += [
        f"{time} is taken to be merged by {since}, which has no row of it: if it was completed later, rows are missing"
        for time, since in sorted(evidence.late.doubtful.items())
    ]
    if left:
        found.append("the writes whose files are left out may have been committed by writers that died right after")
    return found
