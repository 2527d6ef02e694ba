"""Say what becomes of the pending actions that a lost timeline has left, and of which no data file tells.

An action keeps its requested and inflight files when it is completed. If only its completed file was lost, it looks as
if it was never completed: a compaction would be run again, a restore would hide all later writes, and a savepoint would
stop archiving, for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from streaming_lsm.format.actions.compaction_plan import CompactionPlan
from streaming_lsm.format.actions.restore import RestoreMetadata, RestorePlan
from streaming_lsm.services.repair.found_files import FoundFile
from streaming_lsm.services.repair.late_writes import Group
from streaming_lsm.services.repair.plan import FinishedRestore
from streaming_lsm.timeline.action_kind import COMPACTIONS, RESTORE, SAVEPOINT
from streaming_lsm.timeline.clock import next_time
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.decision import list_decisions
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from streaming_lsm.txn.savepoint import unfinished_savepoints


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


def finished_restores(
    timeline: Timeline, files: Sequence[FoundFile], taken: Collection[str], zone: str
) -> tuple[FinishedRestore, ...]:
    """Return the restores that have deleted all that they undo; one that a decision record names is finished later.

    Args:
        timeline: what is left.
        files: the data files of the table.
        taken: times that the completion times must not have.
        zone: the timeline's zone, ``UTC`` or ``LOCAL``.
    """
    storage, used = timeline.storage, {*taken}
    there = {*(file.instant for file in files), *(action.requested for action in timeline.instants)}
    resumed = {name.partition(".")[0] for name in storage.names(DECISION_FOLDER)}
    found = []
    for pending in timeline.pending:
        if pending.action != RESTORE or pending.requested in resumed:
            continue
        path = pending.at(State.REQUESTED).path
        undone = RestorePlan.decode(storage.read(path), path).undone if timeline.has_plan(pending) else ()
        if there.intersection(time for time, _ in undone):
            continue
        completed = pending.requested
        while completed in used:
            completed = next_time(0, completed, zone)
        used.add(completed)
        metadata = RestoreMetadata(pending.requested, 0, undone)
        found.append(FinishedRestore(pending.completed_at(completed), metadata))
    return tuple(found)


def restore_doubts(timeline: Timeline, finished: Collection[FinishedRestore]) -> list[str]:
    """Name the restores that stay pending."""
    done = {found.completed.requested for found in finished}
    return [
        f"{pending.path} is taken to be pending, as there are files of what it undoes: until it is finished, the table "
        "is read as of its savepoint"
        for pending in timeline.pending
        if pending.action == RESTORE and pending.requested not in done
    ]


def lost_savepoints(timeline: Timeline) -> tuple[Instant, ...]:
    """Return the inflight savepoints that no run record names: they were completed, and do not come back."""
    records = unfinished_savepoints(list_decisions(timeline.storage))
    made = {record.rpartition("/")[2].partition(".")[0] for record in records}
    return tuple(left for left in timeline.pending if left.action == SAVEPOINT and left.requested not in made)
