"""Say what table services are due, without running them: whether, why not, and who would run them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streaming_lsm import config
from streaming_lsm.services.archiving.runner import Archiver
from streaming_lsm.services.cleaning.planner import Retention
from streaming_lsm.services.cleaning.runner import Cleaner
from streaming_lsm.services.clustering.runner import preview_clustering
from streaming_lsm.services.clustering.trigger import NextClustering
from streaming_lsm.services.compaction.runner import preview_compaction
from streaming_lsm.services.compaction.trigger import NextCompaction, log_compaction_is_due
from streaming_lsm.services.context import ServiceContext
from streaming_lsm.services.survey import looked
from streaming_lsm.services.ttl.expiry import PartitionExpiry
from streaming_lsm.timeline.action_kind import COMPACTION, LOG_COMPACTION
from streaming_lsm.timeline.clock import Clock
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.planned_actions import pending_cleans, pending_clusterings, pending_compactions


@dataclass(frozen=True, slots=True)
class Due:
    """State whether a service is due.

    Attributes:
        service: its name.
        is_due: whether a writer or job with these options would run it now.
        is_inline: whether writers with these options run it after their batches.
        rule: what makes it due, with the options.
        found: what it would do now, or why nothing.
        pending: file names of its planned actions.
    """

    service: str
    is_due: bool
    is_inline: bool
    rule: str
    found: str
    pending: tuple[str, ...] = ()


def services_due(context: ServiceContext, clock: Clock) -> Iterator[Due]:
    """State for each service whether it is due; lists every partition, and changes nothing.

    Raises:
        UnsupportedTable: tables of this version are only read.
        CorruptFileError: a committed file is missing.
    """
    timeline, options = context.load_timeline(), context.options
    yield _compaction(context, timeline, clock)
    if options[config.LOG_COMPACT_INLINE]:
        yield _log_compaction(context, timeline)
    if options[config.CLUSTER_INLINE] or options[config.CLUSTER_SCHEDULE] or pending_clusterings(timeline):
        yield _clustering(context, timeline)
    cleaner = Cleaner(context, clock=clock, with_history=True)
    cleans = tuple(clean.file_name for clean in pending_cleans(timeline))
    yield Due(
        service="clean",
        is_due=cleaner.is_due(timeline, clock()),
        is_inline=options[config.CLEAN_AUTOMATIC],
        rule=str(Retention.of(options)),
        found=str(looked(context, cleaner.preview)),
        pending=cleans,
    )
    expiry = PartitionExpiry(context, clock)
    survey = expiry.look()
    expired = expiry.none() if survey is None else expiry.select(survey.slices, survey.timeline)
    yield Due(
        service="expire-partitions",
        is_due=bool(expired),
        is_inline=options[config.TTL_INLINE],
        rule=str(expiry.ttl),
        found=str(expired),
    )
    archiver = Archiver(context)
    least, most = config.KEEP_MIN_COMMITS, config.KEEP_MAX_COMMITS
    selected = archiver.preview()
    yield Due(
        service="archive",
        is_due=bool(selected.every),
        is_inline=options[config.ARCHIVE_AUTOMATIC],
        rule=f"{least.key}={selected.commits.least}, {most.key}={selected.commits.most}",
        found=str(selected),
    )


def _compaction(context: ServiceContext, timeline: Timeline, clock: Clock) -> Due:
    following = NextCompaction(context, clock)
    pending = _planned(timeline, COMPACTION)
    return Due(
        service="compact",
        is_due=bool(pending) or following.is_due(timeline),
        is_inline=context.options[config.COMPACT_INLINE],
        rule=str(following.trigger),
        found=str(preview_compaction(context)),
        pending=pending,
    )


def _log_compaction(context: ServiceContext, timeline: Timeline) -> Due:
    commits, pending = context.options[config.LOG_COMPACTION_BLOCKS], _planned(timeline, LOG_COMPACTION)
    return Due(
        service="compact --log",
        is_due=bool(pending) or log_compaction_is_due(timeline, commits),
        is_inline=True,
        rule=f"{config.LOG_COMPACTION_BLOCKS.key}={commits}",
        found=str(preview_compaction(context, log=True)),
        pending=pending,
    )


def _clustering(context: ServiceContext, timeline: Timeline) -> Due:
    following, pending = NextClustering(context), tuple(plan.file_name for plan in pending_clusterings(timeline))
    buckets = "a table with a bucket index cannot be clustered"
    return Due(
        service="cluster",
        is_due=bool(pending) or following.is_due(timeline),
        is_inline=context.options[config.CLUSTER_INLINE],
        rule=str(following),
        found=buckets if context.config.has_buckets else str(looked(context, lambda _: preview_clustering(context))),
        pending=pending,
    )


def _planned(timeline: Timeline, action: str) -> tuple[str, ...]:
    return tuple(plan.file_name for plan in pending_compactions(timeline) if plan.action == action)
