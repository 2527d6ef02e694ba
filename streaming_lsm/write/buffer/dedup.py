"""Deduplicate the sorted events of one file group into rows, deletes and unordered deletes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import strings
from streaming_lsm.format.table.file_names import BucketId
from streaming_lsm.merge.fold import fold
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.write.buffer.sorting import Positions, SortedEvents, gather
from streaming_lsm.write.intake.control_columns import CONTROL_PREFIX
from streaming_lsm.write.intake.events import EventShape, deleted_flags
from streaming_lsm.write.plan import WritePlan


@dataclass(frozen=True)
class FileGroupChanges:
    """Holds the changes of one batch to one file group, or to a range of its keys. Each part ascends by record key.

    Attributes:
        group: partition path and bucket.
        keys: record keys of `rows`.
        rows: rows to store, with the table's columns.
        deletes: record key and ordering fields of the deletes that are newer than `rows`.
        unordered_deletes: the same for deletes without ordering that are older than a row or delete of the same key
            above.
    """

    group: BucketId
    keys: pa.StringArray
    rows: pa.Table
    deletes: pa.Table
    unordered_deletes: pa.Table

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in (self.rows, self.deletes, self.unordered_deletes))


@dataclass(frozen=True)
class _Deduplicated:
    rows: Positions
    unordered_deletes: Positions


class Deduplicator:
    """Selects the sorted events that are stored, and gathers their rows."""

    def __init__(self, plan: WritePlan, shape: EventShape, events: pa.Table, *, stay: bool) -> None:
        """Create a deduplicator of `events`, one chunk a column; with `stay` they outlive the rows gathered of them."""
        self._plan, self._shape, self._outlives = plan, shape, not stay
        self._deleted = deleted_flags(events)
        self._unordered_deletes, self._ranks = (
            plan.rule.unordered_deletes(events, self._deleted),
            plan.rule.ranks(events),
        )
        self._values = events.select([name for name in events.schema.names if not name.startswith(CONTROL_PREFIX)])

    @property
    def has_unordered_deletes(self) -> bool:
        """Whether some events are deletes without an ordering value."""
        return bool(self._unordered_deletes.any())

    def deduplicate(self, group: BucketId, found: SortedEvents) -> FileGroupChanges:
        """Deduplicate events of one file group. They include all events of each of their keys."""
        kept = self._keep(found)
        is_delete = self._deleted[kept.rows]
        rows = gather(self._values, kept.rows[~is_delete], outlives=self._outlives)
        return FileGroupChanges(
            group,
            strings(rows.column(RECORD_KEY)),
            self._shape.table_rows(rows),
            self._delete_rows(kept.rows[is_delete]),
            self._delete_rows(kept.unordered_deletes),
        )

    def _keep(self, found: SortedEvents) -> _Deduplicated:
        """Select the rows that remain after dedup by the merge rule, in key order.

        See docs/format/05-merge.md, "Dedup before write".
        """
        order, starts = found.order, found.starts
        folded = fold(starts, self._unordered_deletes[order], None if self._ranks is None else self._ranks[order])
        if self._plan.combine or len(starts) == len(order):
            return _Deduplicated(order[folded.winner], order[folded.unordered_delete[folded.unordered_delete >= 0]])
        # Data and delete files of one flush have no order between them: a key with both is reduced all the same.
        deleted = self._deleted[order]
        some, every = (ufunc.reduceat(deleted, starts) for ufunc in (np.logical_or, np.logical_and))
        mixed = some & ~every
        stays = np.repeat(~mixed, np.diff(np.append(starts, len(order))))
        stays[folded.winner[mixed]] = True
        return _Deduplicated(order[stays], order[folded.unordered_delete[mixed & (folded.unordered_delete >= 0)]])

    def _delete_rows(self, positions: Positions) -> pa.Table:
        columns = self._values.select([RECORD_KEY, *self._plan.rule.ordering_fields])
        return gather(columns, positions, outlives=self._outlives).cast(self._plan.delete_schema)
