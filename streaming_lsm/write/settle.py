"""Sorted events of one file group → what the batch does to it: rows, deletes, wipes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streaming_lsm.columns import strings
from streaming_lsm.merge.fold import fold
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.write.control import CONTROL_PREFIX
from streaming_lsm.write.events import EventShape, deleted_flags
from streaming_lsm.write.parquet import SequenceNumbers, add_meta_columns
from streaming_lsm.write.plan import FileGroup, WritePlan
from streaming_lsm.write.sorting import Positions, SortedEvents, gather


@dataclass(frozen=True)
class GroupRows:
    """What one batch does to one file group, or to one range of its keys; every part ascends by record key.

    Attributes:
        group: partition path and bucket.
        keys: record keys of `rows`.
        rows: rows to store, with the table's columns.
        deletes: record key and ordering fields of the deletes that are newer than `rows`.
        wipes: the same for deletes without ordering that are older than a row or delete of the same key above.
    """

    group: FileGroup
    keys: pa.StringArray
    rows: pa.Table
    deletes: pa.Table
    wipes: pa.Table

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in (self.rows, self.deletes, self.wipes))


def block_with_meta(plan: WritePlan, block: GroupRows, sequence: SequenceNumbers) -> pa.Table:
    """The block's rows as a log has them; a base file puts its own name in (format 01, Record columns)."""
    return add_meta_columns(
        block.rows,
        block.keys,
        instant=plan.instant,
        sequence=sequence,
        partition=block.group[0],
        file_name=plan.file_id(block.group),
    )


@dataclass(frozen=True)
class _Kept:
    rows: Positions
    wipes: Positions


class Settler:
    """Decides for sorted events what is to be stored, and gathers that."""

    def __init__(self, plan: WritePlan, shape: EventShape, events: pa.Table, *, stay: bool) -> None:
        """Begin with `events`, which have one chunk a column; `stay`: they outlive what is gathered of them."""
        self._plan, self._shape, self._outlives = plan, shape, not stay
        self._deleted = deleted_flags(events)
        self._wipes, self._ranks = plan.rule.wipes(events, self._deleted), plan.rule.ranks(events)
        self._values = events.select([name for name in events.schema.names if not name.startswith(CONTROL_PREFIX)])

    def settle(self, group: FileGroup, found: SortedEvents) -> GroupRows:
        """What some events, all those of their keys and of one file group, come down to."""
        kept = self._keep(found)
        is_delete = self._deleted[kept.rows]
        rows = gather(self._values, kept.rows[~is_delete], outlives=self._outlives)
        return GroupRows(
            group,
            strings(rows.column(RECORD_KEY)),
            self._shape.table_rows(rows),
            self._delete_rows(kept.rows[is_delete]),
            self._delete_rows(kept.wipes),
        )

    def _keep(self, found: SortedEvents) -> _Kept:
        """Rows that stay, in key order, after dedup by the merge rule (format 05, Dedup before write)."""
        order, starts = found.order, found.starts
        folded = fold(starts, self._wipes[order], None if self._ranks is None else self._ranks[order])
        if self._plan.combine or len(starts) == len(order):
            return _Kept(order[folded.winner], order[folded.wipe[folded.wipe >= 0]])
        # Data and delete files of one flush have no order between them: a key with both is reduced all the same.
        deleted = self._deleted[order]
        some, every = (ufunc.reduceat(deleted, starts) for ufunc in (np.logical_or, np.logical_and))
        mixed = some & ~every
        stays = np.repeat(~mixed, np.diff(np.append(starts, len(order))))
        stays[folded.winner[mixed]] = True
        return _Kept(order[stays], order[folded.wipe[mixed & (folded.wipe >= 0)]])

    def _delete_rows(self, positions: Positions) -> pa.Table:
        columns = self._values.select([RECORD_KEY, *self._plan.rule.ordering_fields])
        return gather(columns, positions, outlives=self._outlives).cast(self._plan.delete_schema)
