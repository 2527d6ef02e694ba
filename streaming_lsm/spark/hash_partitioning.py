"""Send rows to the shuffle partition whose number they hold.

Spark assigns rows to partitions by the hash of a column: ``pmod(murmur3(value, seed 42), partitions)``. A number is
therefore replaced by a value whose hash is that number's partition. `DataFrame.repartitionById`, which PySpark 4.1
introduced, does the same without a hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

Int32s = npt.NDArray[np.int32]

_SEED = 42


def spark_hashes(values: Int32s) -> Int32s:
    """Return Spark's ``hash`` of integers, int32 as `values`: MurmurHash3 (x86, 32 bits) of four bytes with seed 42."""
    with np.errstate(over="ignore"):
        mixed = _rotated(values.astype(np.int32).view(np.uint32) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        found = _rotated(mixed ^ np.uint32(_SEED), 13) * np.uint32(5) + np.uint32(0xE6546B64)
        found ^= np.uint32(4)
        found = (found ^ (found >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        found = (found ^ (found >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        hashes: Int32s = (found ^ (found >> np.uint32(16))).view(np.int32)
    return hashes


def _rotated(words: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


@cache
def values_of_partitions(partitions: int) -> tuple[int, ...]:
    """Return for each of `partitions` the smallest integer from 0 whose hash Spark assigns to it."""
    tried = 16 * partitions
    while True:
        assigned = spark_hashes(np.arange(tried, dtype=np.int32)).astype(np.int64) % partitions
        found, values = np.unique(assigned, return_index=True)
        if len(found) == partitions:
            return tuple(values.tolist())
        tried *= 2


def repartitioned_by_id(frame: DataFrame, partitions: int, number: Column | str) -> DataFrame:
    """Repartition a DataFrame so that partition k holds the rows whose `number` is k.

    Adaptive execution neither joins nor splits the partitions, as their count is given. Rows of one partition before
    stay in order, one after another, in each partition after.

    Args:
        frame: the rows.
        partitions: count of partitions.
        number: a column of integers from 0 to `partitions` - 1.
    """
    values = F.expr(f"array({', '.join(map(str, values_of_partitions(partitions)))})")
    return frame.repartition(partitions, values[F.col(number) if isinstance(number, str) else number])


def of_partition(batches: Iterable[pa.RecordBatch], column: str, partition: int) -> Iterator[pa.RecordBatch]:
    """Yield `batches` unchanged, and check that the numbers in `column` are that of the running task's partition.

    Raises:
        RuntimeError: a row is in another partition, so that two tasks might write one file group.
    """
    for batch in batches:
        numbers = np.asarray(batch.column(column))
        if (numbers != partition).any():
            found = numbers[numbers != partition][0]
            raise RuntimeError(
                f"Spark gave a row of partition {found} to partition {partition}: nothing is committed; leave out "
                "the settings and extensions of Spark that change shuffle partitions whose number is given"
            )
        yield batch
