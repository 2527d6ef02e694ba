"""A foreachBatch function that moves rows as the sink does and does nothing with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame


def move_only(batch: DataFrame) -> None:
    """Hand the rows to one task as Arrow batches, without a shuffle, and fetch one small row of it."""
    batch.coalesce(1).mapInArrow(_nothing, "written binary").collect()


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    yield pa.record_batch({"written": pa.array([b""], pa.binary())})
