"""Choose the task that writes a row: all rows of one file group go to one task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.arrow.columns import Flags, Int64s, flags
from streaming_lsm.index.base import BucketIds, Index
from streaming_lsm.keys.bucket import java_string_hash
from streaming_lsm.keys.generator import KeyGenerator
from streaming_lsm.write.intake import control_columns


@dataclass(frozen=True)
class Router:
    """Assigns rows to tasks by file group.

    Attributes:
        keys: record key and partition path of a row.
        index: finds the file group of a row.
        tasks: how many tasks share the batch.
    """

    keys: KeyGenerator
    index: Index
    tasks: int

    def route(self, batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
        """Choose the task of each row, int32 (rows,). Events that could not be read have no key and go to task 0.

        Raises:
            RecordError: a key is null or empty, or a partition value unusable.
        """
        bad = batch.schema.get_field_index(control_columns.BAD)
        readable = np.ones(batch.num_rows, np.bool_) if bad < 0 else flags(pc.is_null(batch.column(bad)))
        return self._route_rows(batch, readable)

    def _route_rows(self, batch: pa.RecordBatch, chosen: Flags) -> npt.NDArray[np.int32]:
        """Choose the tasks of the `chosen` rows; 0 for the others."""
        if chosen.all():
            return self._route_keyed(batch)
        tasks = np.zeros(batch.num_rows, np.int32)
        tasks[chosen] = self._route_keyed(batch.filter(pa.array(chosen)))
        return tasks

    def _route_keyed(self, batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
        located = self.index.locate(self.keys.record_keys(batch), self.keys.partition_paths(batch))
        return tasks_of(self.index.groups.ids, self.tasks)[located]


def positions_by_task(numbers: npt.NDArray[np.int32], tasks: int) -> Iterator[Int64s]:
    """Yield for each of `tasks` the positions of its rows, ascending; `numbers` are the tasks of all rows.

    One stable sort serves all tasks. Of 16-bit numbers numpy sorts the digits, in time that is linear in the rows.
    """
    narrow = numbers.astype(np.uint16) if tasks <= 1 << 16 else numbers
    order = np.argsort(narrow, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=tasks))
    for first, last in pairwise([0, *ends.tolist()]):
        yield order[first:last]


def tasks_of(groups: BucketIds, tasks: int) -> npt.NDArray[np.int32]:
    """Choose which of `tasks` writes each of `groups`, int32 (groups,). Partition path and bucket alone decide."""
    spread = java_string_hash(pa.array(groups.partitions, pa.string())).astype(np.int64)
    task: npt.NDArray[np.int32] = ((spread[groups.partition] + groups.bucket) % tasks).astype(np.int32)
    return task
