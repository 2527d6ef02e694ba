"""What Spark alone does with a topic of JSON documents."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.bench.reference.sink import append_parquet


def append_documents(
    messages: DataFrame, columns: str, folder: str, row: str | None = None, dictionary: Iterable[str] | None = None
) -> None:
    """Parse the values of messages with ``from_json`` and append the rows as plain zstd Parquet.

    Args:
        messages: rows of Spark's Kafka source.
        columns: columns of the documents, as DDL.
        folder: of the files.
        row: the field that holds the row, of documents that are envelopes; the documents are rows when not given.
        dictionary: see `append_parquet`.
    """
    kind = columns if row is None else f"{row} STRUCT<{columns}>"
    parsed = messages.select(F.from_json(F.col("value").cast("string"), kind).alias("document"))
    append_parquet(parsed.select("document.*" if row is None else f"document.{row}.*"), folder, dictionary)
