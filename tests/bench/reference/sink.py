"""What Spark alone does with a batch."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame


def append_parquet(batch: DataFrame, folder: str, dictionary: Iterable[str] | None = None) -> None:
    """Append the batch as plain zstd Parquet, one file per partition of the batch, in the order of its rows.

    Level 1 is what pyarrow uses; Spark's own default, 3, is no faster.

    Args:
        batch: the rows.
        folder: of the files.
        dictionary: columns whose values repeat often enough for a dictionary; all try one when not given.
    """
    writer = batch.write.mode("append").option("compression", "zstd")
    writer = writer.option("parquet.compression.codec.zstd.level", "1")
    if dictionary is not None:
        writer = writer.option("parquet.enable.dictionary", "false")
        for name in dictionary:
            writer = writer.option(f"parquet.enable.dictionary#{name}", "true")
    writer.parquet(folder)
