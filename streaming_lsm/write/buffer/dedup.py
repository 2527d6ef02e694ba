"""Deduplicate the sorted events of one file group into rows, deletes and unordered deletes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, strings
from streaming_lsm.format.table.file_names import BucketId
from streaming_lsm.merge.fold import fold, last_marked
from streaming_lsm.merge.pair_fold import fold_live_pairs
from streaming_lsm.merge.partial import fold_columns, sent_values, take_columns
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.write.buffer.sorting import Positions, SortedEvents, gather
from streaming_lsm.write.intake.control_columns import CONTROL_PREFIX
from streaming_lsm.write.intake.event_shape import EventShape, deleted_flags
from streaming_lsm.write.plan import WritePlan


@dataclass(frozen=True)
class FileGroupChanges:
    """Holds the changes of one batch to one file group, or to a range of its keys. Each part ascends by record key.

    Attributes:
        group: partition path and bucket.
        keys: record keys of `rows`.
        rows: rows to store, with the table's columns.
        deletes: record key and ordering fields of the deletes that are newer than `rows`.
        earlier_deletes: the same for deletes that are older than a row or delete of the same key above, and act on what
            is older than the batch: those without an ordering value, and in a partial update mode from version 10 on
            any that a row follows, as it must not be filled from the rows before.
    """

    group: BucketId
    keys: pa.StringArray
    rows: pa.Table
    deletes: pa.Table
    earlier_deletes: pa.Table

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in (self.rows, self.deletes, self.earlier_deletes))


@dataclass(frozen=True)
class _Deduplicated:
    """Positions of the events that remain.

    Attributes:
        winners: rows and deletes, in key order.
        earlier_deletes: as in `FileGroupChanges`.
        columns: by column, the events whose values are stored in place of the winners'.
        merged: the rows that are stored in place of those winners that are rows; None to store these.
    """

    winners: Positions
    earlier_deletes: Positions
    columns: Mapping[str, Positions] = field(default_factory=dict)
    merged: pa.Table | None = None


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
        is_delete = self._deleted[kept.winners]
        rows = self._rows(kept, ~is_delete)
        return FileGroupChanges(
            group,
            strings(rows.column(RECORD_KEY)),
            self._shape.table_rows(rows),
            self._delete_rows(kept.winners[is_delete]),
            self._delete_rows(kept.earlier_deletes),
        )

    def _keep(self, found: SortedEvents) -> _Deduplicated:
        """Select the rows that remain after dedup by the merge rule, in key order.

        See docs/format/05-merge.md, "Dedup before write".
        """
        order, starts = found.order, found.starts
        if self._plan.rule.partial is not None and len(starts) != len(order):
            return self._fold_columns(found)
        if self._plan.rule.strategy and len(starts) != len(order):
            return self._fold_pairs(found)
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

    def _fold_columns(self, found: SortedEvents) -> _Deduplicated:
        """Fold each key by columns (docs/format/05-merge.md, "Partial updates")."""
        order, rule = found.order, self._plan.rule
        ranks = None if self._ranks is None else self._ranks[order]
        sent = sent_values(self._values, [(None, len(self._values))], rule).take(order)
        unordered_deletes = self._unordered_deletes[order]
        folded = fold_columns(found.starts, self._deleted[order], unordered_deletes, ranks, sent)
        earlier = fold(found.starts, unordered_deletes, ranks).unordered_delete
        if not rule.logs_first:
            barrier = np.where(folded.barrier == folded.ruling, -1, folded.barrier)
            earlier = np.where(earlier >= 0, earlier, barrier)
        return _Deduplicated(
            order[folded.ruling],
            order[earlier[earlier >= 0]],
            {name: order[places] for name, places in folded.places.items()},
        )

    def _fold_pairs(self, found: SortedEvents) -> _Deduplicated:
        """Merge the rows of each key that follow its last delete."""
        order, starts = found.order, found.starts
        winner, deleted = np.append(starts[1:], len(order)) - 1, self._deleted[order]
        merged, lives = fold_live_pairs(self._values, starts, order, deleted, self._plan.rule)
        last = last_marked(starts, deleted)
        earlier = last[lives & (last >= 0)] if not self._plan.rule.logs_first else last[:0]
        return _Deduplicated(order[winner], order[earlier], merged=merged)

    def _rows(self, kept: _Deduplicated, stored: Flags) -> pa.Table:
        """Gather the winners that are marked, each value from the event that has it."""
        if kept.merged is not None:
            return kept.merged
        if not kept.columns:
            return gather(self._values, kept.winners[stored], outlives=self._outlives)
        columns = {name: places[stored] for name, places in kept.columns.items()}
        return take_columns(self._values, columns, kept.winners[stored])

    def _delete_rows(self, positions: Positions) -> pa.Table:
        columns = self._values.select([RECORD_KEY, *self._plan.rule.ordering_fields])
        return gather(columns, positions, outlives=self._outlives).cast(self._plan.delete_schema)
