"""Decide from the timeline alone whether a clustering is due (docs/format/06-services.md, "Clustering")."""

from __future__ import annotations

from streaming_lsm import config
from streaming_lsm.format.actions.clustering_plan import CLUSTER
from streaming_lsm.services.context import ServiceContext
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.planned_actions import pending_clusterings


def clustering_is_due(timeline: Timeline, commits: int, since: str = "") -> bool:
    """Return whether so many writes were completed since the last clustering was planned.

    Archived writes do not count: archiving leaves some on the timeline.

    Args:
        since: a time up to which nothing is left to cluster.
    """
    planned = (pending.requested for pending in pending_clusterings(timeline))
    since = max([since, *planned])
    for count, write in enumerate(timeline.newest_first(), 1):
        if (write.completed or "") <= since:
            return False
        if write.action == "replacecommit" and timeline.read_commit(write).operation_type == CLUSTER:
            return False
        if count >= commits:
            return True
    return False


class NextClustering:
    """Tells when the next clustering of a table is due; remembers in memory up to when there was nothing to cluster.

    Attributes:
        commits: writes since the last clustering that make the next one due.
    """

    def __init__(self, context: ServiceContext) -> None:
        """Begin without any memory."""
        self.commits = context.options[config.CLUSTER_COMMITS]
        self._has_buckets = context.config.has_buckets
        self._fruitless = ""

    def __str__(self) -> str:
        return f"{config.CLUSTER_COMMITS.key}={self.commits}"

    def is_due(self, timeline: Timeline) -> bool:
        """Return whether a clustering is due; see `clustering_is_due`. That of a bucket table never is."""
        return not self._has_buckets and clustering_is_due(timeline, self.commits, self._fruitless)

    def found_nothing(self, timeline: Timeline) -> None:
        """Record that there was nothing to cluster, so that partitions are not listed again each time."""
        self._fruitless = timeline.last_time
