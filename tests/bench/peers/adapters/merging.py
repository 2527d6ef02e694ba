"""What Iceberg and Delta have in common: a batch goes to a table by MERGE INTO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from tests.bench.peers.adapters.spark_session import merge_sql, newest, parsed
from tests.bench.peers.columns import Columns

_VIEW = "peers_batch"


class Target(Protocol):
    """What a MERGE needs of a table."""

    spark: SparkSession
    identifier: str
    columns: Columns


def merge_files(target: Target, files: Sequence[str]) -> None:
    """Merge the rows of Parquet files."""
    merge(target, target.spark.read.parquet(*files))


def merge_messages(target: Target, batch: DataFrame) -> None:
    """Merge messages of Kafka."""
    merge(target, parsed(batch, target.columns))


def merge(target: Target, rows: DataFrame) -> None:
    """Merge rows, of each key the newest."""
    session = rows.sparkSession
    newest(rows, target.columns).createOrReplaceTempView(_VIEW)
    session.sql(merge_sql(target.identifier, _VIEW, target.columns))
