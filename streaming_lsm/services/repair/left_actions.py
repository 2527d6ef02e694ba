"""Say what becomes of the pending actions that a lost timeline has left, and of which no data file tells.

An action keeps its requested and inflight files when it is completed. If only its completed file was lost, it looks as
if it was never completed: a compaction would be run again, a restore would hide all later writes, and a savepoint would
stop archiving, for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from streaming_lsm.format.actions.clean import CleanMetadata, CleanPlan
from streaming_lsm.format.actions.commit import file_path
from streaming_lsm.format.actions.compaction_plan import CompactionPlan
from streaming_lsm.format.actions.restore import RestoreMetadata, RestorePlan
from streaming_lsm.services.repair.found_files import FoundFile, ListedFile
from streaming_lsm.services.repair.late_writes import Group
from streaming_lsm.services.repair.plan import FinishedService
from streaming_lsm.timeline.action_kind import CLEAN, COMPACTIONS, RESTORE
from streaming_lsm.timeline.clock import next_time
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.decision_record import DECISION_FOLDER


def superseded_compactions(
    pending: Iterable[Instant], plans: Mapping[str, CompactionPlan], files: Sequence[FoundFile]
) -> frozenset[str]:
    """Return the requested times of the compactions whose results later base files have superseded, and cleans deleted.

    Args:
        pending: the actions that are left.
        plans: plans of compactions that are left, by requested time.
        files: the data files of the table.
    """
    made = {file.instant for file in files}
    newest: dict[Group, str] = {}
    for file in files:
        newest[file.group] = max(newest.get(file.group, ""), file.instant if file.is_base else "")
    found = (action.requested for action in pending if action.action in COMPACTIONS and action.requested not in made)
    return frozenset(time for time in found if _is_superseded(time, plans.get(time), newest))


def _is_superseded(requested: str, plan: CompactionPlan | None, newest: Mapping[Group, str]) -> bool:
    """Return whether a file group of a plan has a later base file, or none; a compaction without a plan cannot run."""
    if plan is None:
        return True
    return any(newest.get((each.partition_path, each.file_id), "~") > requested for each in plan.operations)


def finished_services(
    timeline: Timeline, files: Iterable[ListedFile], taken: Collection[str], zone: str
) -> tuple[FinishedService, ...]:
    """Return the restores and cleans that have deleted all that they delete.

    One that a decision record names is finished later.

    Args:
        timeline: what is left.
        files: all data files of the table.
        taken: times that the completion times must not have.
        zone: the timeline's zone, ``UTC`` or ``LOCAL``.
    """
    storage, used, listed = timeline.storage, {*taken}, [*files]
    instants = {*(file.name.instant for file in listed), *(action.requested for action in timeline.instants)}
    paths = {file.entry.path for file in listed}
    resumed = {name.partition(".")[0] for name in storage.names(DECISION_FOLDER)}
    found = []
    for pending in timeline.pending:
        if pending.action not in (RESTORE, CLEAN) or pending.requested in resumed:
            continue
        path = pending.at(State.REQUESTED).path
        plan = storage.read(path) if timeline.has_plan(pending) else None
        is_restore = pending.action == RESTORE
        content = _ended_restore(pending, plan, instants) if is_restore else _ended_clean(pending, plan, paths)
        if content is None:
            continue
        completed = pending.requested
        while completed in used:
            completed = next_time(0, completed, zone)
        used.add(completed)
        found.append(FinishedService(pending.completed_at(completed), content))
    return tuple(found)


def _ended_restore(pending: Instant, data: bytes | None, there: Collection[str]) -> bytes | None:
    """Return the content of the completed file; None if there are files or instants of what a restore undoes."""
    undone = () if data is None else RestorePlan.decode(data, pending.at(State.REQUESTED).path).undone
    if any(time in there for time, _ in undone):
        return None
    return RestoreMetadata(pending.requested, 0, undone).encode()


def _ended_clean(pending: Instant, data: bytes | None, there: Collection[str]) -> bytes | None:
    """Return the content of the completed file; None if there are files that a clean deletes, or no plan says which."""
    if data is None or pending.state is State.REQUESTED:
        return None
    plan = CleanPlan.decode(data, pending.at(State.REQUESTED).path)
    files = {partition: tuple(file.rpartition("/")[2] for file in names) for partition, names in plan.files.items()}
    if any(file_path(partition, name) in there for partition, names in files.items() for name in names):
        return None
    # What it has examined is left out, as it goes by completion times.
    return CleanMetadata(
        start=pending.requested,
        duration_ms=0,
        earliest=plan.earliest.requested if plan.earliest else "",
        last_completed=plan.last_completed,
        policy=plan.policy,
        files=files,
        savepoints=plan.savepoints,
    ).encode()


def restore_doubts(timeline: Timeline, finished: Collection[FinishedService]) -> list[str]:
    """Name the restores that stay pending."""
    done = {found.completed.requested for found in finished}
    return [
        f"{pending.path} is taken to be pending, as there are files of what it undoes: until it is finished, the table "
        "is read as of its savepoint"
        for pending in timeline.pending
        if pending.action == RESTORE and pending.requested not in done
    ]
