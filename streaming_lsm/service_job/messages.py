"""Tell an operator in one line what a compaction, clustering or clean did."""

from __future__ import annotations

from collections.abc import Sequence

from streaming_lsm.format.actions.commit import CommitMetadata, WriteStat
from streaming_lsm.services.cleaning.worker import Cleaned
from streaming_lsm.services.clustering.planner import ClusteringSelection
from streaming_lsm.services.clustering.worker import Clustered, ClusteringScheduled
from streaming_lsm.services.compaction.worker import Compacted, Scheduled
from streaming_lsm.services.plan_worker import Failed, PutBack
from streaming_lsm.timeline.action_kind import CLUSTERING, COMPACTION
from streaming_lsm.timeline.instant import Instant

Event = Scheduled | Compacted | ClusteringScheduled | Clustered | Failed | PutBack | Cleaned


def counted(number: int, noun: str) -> str:
    """Format a number and its noun, such as ``1 row`` or ``2 rows``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def message(event: Event) -> str:
    """Describe an event."""
    if isinstance(event, Scheduled):
        if not event.plans:
            return f"nothing to compact, though a compaction is due: {event.selection.reasons}"
        names = ", ".join(plan.file_name for plan in event.plans)
        return f"scheduled {names}: {event.selection}"
    if isinstance(event, Compacted):
        return compacted(event.completed, event.stats)
    if isinstance(event, ClusteringScheduled):
        return clustering_scheduled(event.planned, event.selection)
    if isinstance(event, Clustered):
        return clustered(event.completed, event.commit)
    if isinstance(event, Cleaned):
        return f"{event.completed.file_name}: {counted(event.files, 'file')} deleted"
    if isinstance(event, PutBack):
        return f"{event.planned.file_name} was put back: the next {_kind(event.planned.action)} of the table runs it"
    what = (
        f"{event.planned.file_name} failed, it stays planned" if event.planned else f"no {event.action} was scheduled"
    )
    return f"{what}: {reason(event.error)}"


def compacted(completed: Instant, stats: Sequence[WriteStat]) -> str:
    """Describe a completed compaction."""
    logs = sum(stat.log_files_compacted for stat in stats)
    groups = len({(stat.partition_path, stat.file_id) for stat in stats})
    rows, size = sum(stat.num_writes for stat in stats), sum(stat.total_bytes for stat in stats)
    return (
        f"{completed.file_name}: {counted(groups, 'file group')} compacted, {counted(logs, 'log file')} merged, "
        f"{counted(rows, 'row')} in {counted(size, 'byte')}"
    )


def clustering_scheduled(planned: Instant | None, selection: ClusteringSelection) -> str:
    """Describe a clustering that was scheduled, or why there was nothing to cluster."""
    if planned is None:
        return f"nothing to cluster: {selection.reasons}"
    return f"scheduled {planned.file_name}: {selection}"


def clustered(completed: Instant, commit: CommitMetadata) -> str:
    """Describe a completed clustering."""
    rows, size = sum(stat.num_writes for stat in commit.stats), sum(stat.total_bytes for stat in commit.stats)
    return (
        f"{completed.file_name}: {counted(len(commit.replaced_groups), 'file group')} replaced by "
        f"{counted(len(commit.file_groups), 'new one')}, "
        f"{counted(rows, 'row')} in {counted(size, 'byte')}"
    )


def _kind(action: str) -> str:
    return action if action == CLUSTERING else COMPACTION


def reason(error: Exception) -> str:
    """Return the text of an error without Java's stack trace."""
    return (str(error) or type(error).__name__).partition("\n\tat ")[0].strip()
