"""Which partitions have expired, by the times from which their days count."""

from __future__ import annotations

from streaming_lsm.config import Options
from streaming_lsm.services.ttl.planner import PartitionTtl, select_expired
from streaming_lsm.timeline.clock import instant_ms, instant_text

DAY_MS = 86_400_000
NOW_MS = 1_790_000_000_000


def ago(days: float) -> str:
    return instant_text(NOW_MS - int(days * DAY_MS), "UTC")


def selected(ttl: PartitionTtl, **since: str) -> list[str]:
    return list(select_expired(since, ttl, NOW_MS, "UTC").since)


def test_partitions_that_are_older_expire_the_oldest_first() -> None:
    since = {"a": ago(3), "b": ago(6), "c": ago(5.001), "d": ago(5), "e": ago(0), "f": ago(-1)}
    assert selected(PartitionTtl(days=5), **since) == ["b", "c"]


def test_no_partition_expires_without_days() -> None:
    for days in (-1, 0):
        assert selected(PartitionTtl(days=days), a=ago(9_000)) == []


def test_other_partitions_than_those_selected_stay() -> None:
    ttl = PartitionTtl.of(
        Options(
            {
                "hoodie.partition.ttl.strategy.days.retain": 1,
                "hoodie.partition.ttl.strategy.partition.selected": "a, c",
            }
        )
    )
    assert selected(ttl, a=ago(2), b=ago(2), c=ago(0), d=ago(7)) == ["a"]


def test_at_most_so_many_are_deleted_at_a_time() -> None:
    expired = select_expired({f"p{n}": ago(n) for n in range(9)}, PartitionTtl(days=2, most=3), NOW_MS, "UTC")
    assert (list(expired.since), expired.left, expired.next_ms) == (["p8", "p7", "p6"], 3, NOW_MS)
    assert "max.delete.partitions=3" in str(expired)


def test_the_next_time_is_that_of_the_first_partition_that_stays() -> None:
    ttl = PartitionTtl(days=5)
    expired = select_expired({"a": ago(9), "b": ago(4), "c": ago(1)}, ttl, NOW_MS, "UTC")
    assert expired.next_ms == NOW_MS + DAY_MS
    assert select_expired({}, ttl, NOW_MS, "UTC").next_ms == NOW_MS + 5 * DAY_MS


def test_what_is_no_time_never_expires() -> None:
    assert selected(PartitionTtl(days=1), a="000", b="20261399000000000", c=ago(2)) == ["c"]


def test_days_count_in_the_zone_of_the_table() -> None:
    ttl, local = PartitionTtl(days=1), instant_text(NOW_MS - DAY_MS - 1, "LOCAL")
    assert list(select_expired({"a": local}, ttl, NOW_MS, "LOCAL").since) == ["a"]
    assert instant_ms(local, "LOCAL") == NOW_MS - DAY_MS - 1
