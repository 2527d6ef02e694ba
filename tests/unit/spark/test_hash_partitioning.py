"""Integers that Spark's hash sends to each shuffle partition; Spark is asked in tests/integration."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm.spark.hash_partitioning import of_partition, spark_hashes, values_of_partitions


def test_integers_are_hashed_as_spark_hashes_them() -> None:
    values = np.array([0, 1, 2, 42, -1, 2**31 - 1, -(2**31)], np.int32)
    of_spark = [933211791, -559580957, 1765031574, 29417773, -1604776387, 133916647, 723455942]
    assert spark_hashes(values).tolist() == of_spark


@pytest.mark.parametrize("partitions", [1, 2, 3, 8, 200, 5000])
def test_each_partition_has_a_value_that_hashes_to_it(partitions: int) -> None:
    values = np.array(values_of_partitions(partitions), np.int32)
    assert (spark_hashes(values).astype(np.int64) % partitions).tolist() == list(range(partitions))


def test_batches_of_another_partition_are_refused() -> None:
    batches = [pa.record_batch({"task": pa.array(tasks, pa.int32())}) for tasks in ([], [3, 3], [3, 5, 3])]
    found = of_partition(batches, "task", 3)
    assert [next(found), next(found)] == batches[:2]
    with pytest.raises(RuntimeError, match="a row of partition 5 to partition 3: nothing is committed"):
        next(found)
