"""Which writes conflict with which, by the batches alone: a conflict that is missed or made up is a broken promise."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from streaming_lsm.config import EARLY_CONFLICTS, SMALL_FILE_BYTES, TABLE_VERSION
from streaming_lsm.errors import ClusteringConflict, EarlyConflict, WriteConflict
from streaming_lsm.keys.bucket import bucket_ids
from tests.support.simulation.work.batches import Batch
from tests.support.simulation.work.indexes import has_global_index
from tests.support.simulation.work.modes import Mode
from tests.support.simulation.work.workload import Workload

Bucket = tuple[str, int]
_REQUESTED = re.compile(r"(?<!\d)\d{17}(?!\d)")
_OVERTAKEN = "is gone"
"""Of an error about a file that is missing since another write replaced it, which it does not name."""


@lru_cache(1000)
def _bucket_of(key: str, buckets: int) -> int:
    return int(bucket_ids(pa.array([key]), ["id"], ["id"], buckets)[0])


@dataclass(frozen=True)
class ConflictRules:
    """What conflicts in one table.

    Attributes:
        mode: of its writers.
        buckets: their number in each partition; 0 if keys are looked up: then a whole partition is one.
        is_early: whether writers look for each other's markers.
        is_cow: whether it is copy-on-write.
        begins_groups: whether new keys may be in file groups of their own beside small ones, if keys are looked up.
        is_global: whether keys are looked up in all partitions: then the whole table is one.
    """

    mode: Mode
    buckets: int
    is_early: bool
    is_cow: bool
    begins_groups: bool = False
    is_global: bool = False

    @property
    def looks_up(self) -> bool:
        """Whether keys are looked up."""
        return not self.buckets

    def buckets_of(self, batch: Batch) -> frozenset[Bucket]:
        """The partitions and buckets that a batch changes."""
        keys = [(key, where) for key, where, *_ in batch.rows] + list(batch.deletes)
        return frozenset(self.bucket_of(*key) for key in keys)

    def bucket_of(self, key: str, where: str) -> Bucket:
        """The partition and bucket of a key."""
        return where, _bucket_of(key, self.buckets) if self.buckets else 0

    def excludes(
        self,
        batch: Batch,
        other: Batch,
        filled: frozenset[Bucket],
        *,
        updated: frozenset[str] = frozenset(),
        without: frozenset[str] = frozenset(),
    ) -> bool:
        """Whether a write may not be completed beside another one that was completed since it began.

        Args:
            filled: the buckets that had a file group when the write was planned.
            updated: partitions in which it changes rows that there were when it was planned.
            without: partitions in which what the other one wrote does not count.
        """
        if not other.partitions.isdisjoint(batch.replaces):
            return True
        own, its = self.buckets_of(batch), self.buckets_of(other)
        # New keys may be in a file group of their own, beside those that were replaced.
        places = updated if self.looks_up and self.begins_groups else frozenset(where for where, _ in own & filled)
        if not places.isdisjoint(other.replaces):
            return True
        # The rows of an overwrite are in new file groups, of which a bucket has one.
        blocks = self.mode is not Mode.NON_BLOCKING or bool(other.overwrite)
        return blocks and any(partition not in without for partition, _ in self._shared(own, its))

    def _shared(self, own: frozenset[Bucket], its: frozenset[Bucket]) -> frozenset[Bucket]:
        """What another write changes of what an own one does, or looks keys up in."""
        return its if self.is_global and own else own & its

    def complaint(
        self, batch: Batch, other: Batch | None, conflict: WriteConflict, *, is_replaced: bool = False
    ) -> str | None:
        """Why a conflict should not have been raised; None if it is right.

        Args:
            batch: the one that was refused.
            other: that of the instant which the error names, if it is a batch's.
            is_replaced: whether file groups were replaced since the write was planned.
        """
        if isinstance(conflict, EarlyConflict) and not self.is_early:
            return "early detection is off"
        if isinstance(conflict, ClusteringConflict):
            return None if is_replaced else "no file group was replaced since it was planned"
        if _OVERTAKEN in str(conflict):
            return None
        if other is not None and not other.partitions.isdisjoint(batch.replaces):
            return None
        has_bases = batch.is_bulk or batch.overwrite or (other is not None and other.overwrite)
        if self.mode is Mode.NON_BLOCKING and not has_bases:
            return "writes do not block each other"
        if other is not None and not self._shared(self.buckets_of(batch), self.buckets_of(other)):
            return f"{other} is in other buckets"
        return None

    def clustering_complaint(
        self, batch: Batch, conflict: WriteConflict, clustered: Collection[str], *, is_planned: bool, is_later: bool
    ) -> str | None:
        """Why a conflict with a clustering should not have been raised; None if it is right.

        Args:
            clustered: the partitions of its file groups.
            is_planned: whether it was pending when the write was planned, and its file groups had
                none of its keys.
            is_later: whether it was requested after the write, which is made alone.
        """
        if batch.partitions.isdisjoint(clustered):
            return f"its file groups are in {sorted(clustered)}"
        if not batch.partitions.isdisjoint(batch.replaces):
            return None
        if not isinstance(conflict, ClusteringConflict):
            # Its files in the new file groups would be the older ones.
            return None if is_later else "a clustering changes no row"
        return "new keys go to other file groups" if is_planned else None


def rules_of(workload: Workload) -> ConflictRules:
    """What conflicts in the table of a run."""
    buckets = workload.options.get("hoodie.bucket.index.num.buckets", 0)
    return ConflictRules(
        workload.mode,
        int(str(buckets)),
        bool(workload.options.get(EARLY_CONFLICTS.key)),
        workload.is_cow,
        workload.options.get(TABLE_VERSION.key) == 9 or SMALL_FILE_BYTES.key in workload.options,
        has_global_index(workload.options),
    )


def named_instant(conflict: WriteConflict) -> str:
    """The requested time of the other action, as the error says it."""
    found = _REQUESTED.search(str(conflict))
    return found.group() if found else ""
