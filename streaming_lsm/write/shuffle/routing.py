"""Which task writes a row: every row of one file group goes to the same task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.arrow.columns import Flags, Int64s, flags, strings
from streaming_lsm.keys.bucket import bucket_ids, java_string_hash
from streaming_lsm.keys.dictionaries import codes_of
from streaming_lsm.keys.generator import KeyGenerator
from streaming_lsm.write.intake import control_columns


@dataclass(frozen=True)
class Router:
    """Assigns rows to tasks by partition path and bucket.

    Attributes:
        keys: record key and partition path of a row.
        record_key_fields, hash_fields, num_buckets: the bucket index (docs/format/07-index-and-metadata.md).
        tasks: how many tasks share the batch.
    """

    keys: KeyGenerator
    record_key_fields: tuple[str, ...]
    hash_fields: tuple[str, ...]
    num_buckets: int
    tasks: int

    def route(self, batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
        """Task numbers, int32 (rows,). Events that could not be read have no key and go to task 0.

        Raises:
            RecordError: a key is null or empty, or a partition value unusable.
        """
        bad = batch.schema.get_field_index(control_columns.BAD)
        readable = np.ones(batch.num_rows, np.bool_) if bad < 0 else flags(pc.is_null(batch.column(bad)))
        return self._route_rows(batch, readable)

    def _route_rows(self, batch: pa.RecordBatch, chosen: Flags) -> npt.NDArray[np.int32]:
        """Task numbers of the `chosen` rows; 0 for the others."""
        if chosen.all():
            return self._route_keyed(batch)
        tasks = np.zeros(batch.num_rows, np.int32)
        tasks[chosen] = self._route_keyed(batch.filter(pa.array(chosen)))
        return tasks

    def _route_keyed(self, batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
        keys = self.keys.record_keys(batch)
        buckets = bucket_ids(keys, self.record_key_fields, self.hash_fields, self.num_buckets)
        partitions = self.keys.partition_paths(batch)
        return tasks_of(strings(partitions.dictionary), codes_of(partitions), buckets, self.tasks)


def positions_by_task(numbers: npt.NDArray[np.int32], tasks: int) -> Iterator[Int64s]:
    """For each of `tasks` the positions of its rows, ascending; `numbers` are the tasks of all rows.

    One stable sort serves all tasks. Of 16-bit numbers numpy sorts the digits, in time that is linear in the rows.
    """
    narrow = numbers.astype(np.uint16) if tasks <= 1 << 16 else numbers
    order = np.argsort(narrow, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=tasks))
    for first, last in pairwise([0, *ends.tolist()]):
        yield order[first:last]


def tasks_of(
    paths: pa.StringArray, number: npt.NDArray[np.integer[Any]], bucket: npt.NDArray[np.integer[Any]], tasks: int
) -> npt.NDArray[np.int32]:
    """Which of `tasks` writes the file groups that `number`, of the partition path in `paths`, and `bucket` name."""
    spread = java_string_hash(paths).astype(np.int64)
    task: npt.NDArray[np.int32] = ((spread[number] + bucket) % tasks).astype(np.int32)
    return task
