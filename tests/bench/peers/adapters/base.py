"""What a run asks of a system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from tests.bench.peers.columns import Columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Place:
    """Where a run works.

    Attributes:
        folder: for tables, and files of Spark.
        jars: for the class path of Spark.
        mode: which of the system's ways of writing.
    """

    folder: Path
    jars: tuple[str, ...]
    mode: str


class NoReader(Exception):
    """The system has no reader of this kind."""


class Table(Protocol):
    """One table of a system."""

    folder: Path
    """Folder that holds all files of the table."""

    def upsert(self, files: Sequence[str], number: int) -> None:
        """Write the rows of Parquet files as one batch; the newest row of each key stays."""

    def take_messages(self, batch: DataFrame, number: int) -> None:
        """Write messages of Kafka as one batch, as a function of foreachBatch."""

    def compact(self) -> None:
        """Merge all logs, or whatever the system has for them, into the base."""

    def spark_rows(self, columns: Sequence[str] | None = None, key: str | None = None) -> DataFrame:
        """The snapshot, or some columns or the row of a key, by the system's Spark reader; `NoReader` without one."""

    def spark_rows_of_last(self, batches: int) -> DataFrame:
        """The rows that the last batches wrote, by the system's incremental query; `NoReader` without one."""

    def arrow_rows(self) -> pa.Table:
        """The snapshot as the system's reader without Spark gives it; `NoReader` without one."""


class OpenSystem(Protocol):
    """A system whose session, if it has one, is started."""

    spark: SparkSession | None
    versions: dict[str, str]

    def table(self, name: str, columns: Columns) -> Table:
        """Make an empty table."""

    def close(self) -> None:
        """Stop the session."""
