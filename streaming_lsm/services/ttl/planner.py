"""Select the partitions that have expired (docs/format/06-services.md, "Partition TTL"); pure, without file access."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.timeline.clock import instant_ms

KEEP_BY_TIME, KEEP_BY_CREATION_TIME = config.TTL_STRATEGIES
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class PartitionTtl:
    """How long partitions live.

    Attributes:
        days: days after which a partition expires; less than 1: never.
        strategy: since when the days count: `KEEP_BY_TIME`, the last write or compaction of the partition, or
            `KEEP_BY_CREATION_TIME`, its first write.
        selected: paths of the partitions that expire; none for all.
        most: most partitions that one action deletes.
    """

    days: int = -1
    strategy: str = KEEP_BY_TIME
    selected: tuple[str, ...] = ()
    most: int = 1000

    @staticmethod
    def of(options: Options) -> PartitionTtl:
        """Read it from the options."""
        selected = options[config.TTL_SELECTED] or ""
        return PartitionTtl(
            options[config.TTL_DAYS],
            options[config.TTL_STRATEGY] or KEEP_BY_TIME,
            tuple(path.strip() for path in selected.split(",") if path.strip()),
            options[config.TTL_MOST],
        )

    def __str__(self) -> str:
        return f"{self.strategy}, {config.TTL_DAYS.key}={self.days}"

    def includes(self, partition: str) -> bool:
        """Return whether a partition may expire."""
        return self.days > 0 and (not self.selected or partition in self.selected)


@dataclass(frozen=True)
class ExpiredPartitions:
    """The partitions that have expired.

    Attributes:
        since: for each that is to be deleted, the instant from which its days count, the oldest first.
        left: number of further ones, which a later action deletes.
        next_ms: the earliest time at which another partition may expire, in milliseconds since the epoch.
        ttl: how long partitions live.
    """

    since: Mapping[str, str]
    left: int
    next_ms: int
    ttl: PartitionTtl

    def __bool__(self) -> bool:
        return bool(self.since)

    def __str__(self) -> str:
        if self.ttl.days < 1:
            return f"no partition expires: {config.TTL_DAYS.key}={self.ttl.days}"
        if not self.since:
            return f"nothing to delete: no partition is older than {self.ttl.days} days"
        more = f", {self.left} more than {config.TTL_MOST.key}={self.ttl.most}" if self.left else ""
        return f"{len(self.since)} partitions to delete{more}"


def select_expired(since: Mapping[str, str], ttl: PartitionTtl, now_ms: int, zone: str) -> ExpiredPartitions:
    """Select the expired partitions, the oldest first.

    Args:
        since: the instant from which the days of each partition count. One that is no time never expires.
        ttl: how long partitions live.
        now_ms: milliseconds since the epoch.
        zone: the table's zone, ``UTC`` or ``LOCAL``.
    """
    ends = {partition: end for partition, instant in since.items() if (end := _end_ms(instant, ttl, zone)) is not None}
    over = sorted((end, partition) for partition, end in ends.items() if end < now_ms and ttl.includes(partition))
    later = [end for partition, end in ends.items() if end >= now_ms and ttl.includes(partition)]
    chosen = {partition: since[partition] for _, partition in over[: ttl.most]}
    left = len(over) - len(chosen)
    # A partition that is made or written later expires later.
    following = now_ms if left else min([*later, now_ms + ttl.days * _DAY_MS])
    return ExpiredPartitions(chosen, left, following, ttl)


def _end_ms(instant: str, ttl: PartitionTtl, zone: str) -> int | None:
    try:
        return instant_ms(instant, zone) + ttl.days * _DAY_MS
    except (ValueError, OverflowError):
        return None
