"""Spark's side of the systems: sessions with the same cores and heap, and batches of messages as rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.bench.peers.adapters.base import Place, Table
from tests.bench.peers.columns import DELETED, DOCUMENT_COLUMNS, LSN, Columns
from tests.bench.peers.sizes import CORES, HEAP
from tests.bench.workload import KEY

JAVA_OPTIONS = "-XX:+UseSerialGC"
"""As `local_session` has them: on two cores the threads of a concurrent collector compete with the tasks."""

# One task a core, as the sink under test has: more of them cost each peer time at these sizes.
SETTINGS = {
    "spark.master": f"local[{CORES}]",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.driver.memory": HEAP,
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    # The level of this package, and of Paimon; the others have 3 when nobody says otherwise.
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
    "spark.log.level": "ERROR",
}
"""Of the sessions of all systems."""


def start_session(place: Place, settings: Mapping[str, str]) -> SparkSession:
    """The session of a peer; `settings` go over `SETTINGS`."""
    chosen = {
        **SETTINGS,
        "spark.driver.extraClassPath": ":".join(place.jars),
        "spark.local.dir": str(place.folder / "spark"),
        "spark.sql.warehouse.dir": str(place.folder / "warehouse"),
        **settings,
    }
    builder = SparkSession.builder.appName("peers")
    for key, value in chosen.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def spark_versions(spark: SparkSession) -> dict[str, str]:
    """Versions of Spark and Java."""
    java = cast(Any, spark.sparkContext._jvm).java.lang.System.getProperty("java.version")
    return {"spark": spark.version, "java": str(java)}


class SparkSystem:
    """A system that Spark's session writes and reads.

    Attributes:
        place: where the run works.
        spark: the session.
        versions: those of Spark, Java and `others`.
    """

    def __init__(
        self,
        place: Place,
        spark: SparkSession,
        table: Callable[[SparkSystem, str, Columns], Table],
        others: Mapping[str, str] | None = None,
    ) -> None:
        """Take the started session, and what makes a table of a name and columns."""
        self.place, self._table = place, table
        self.spark: SparkSession | None = spark
        self.versions = {**spark_versions(spark), **(others or {})}

    @property
    def session(self) -> SparkSession:
        """The session, which a system with Spark always has."""
        assert self.spark is not None
        return self.spark

    def table(self, name: str, columns: Columns) -> Table:
        """Make an empty table."""
        return self._table(self, name, columns)

    def close(self) -> None:
        """Stop the session."""
        self.session.stop()


def parsed(messages: DataFrame, columns: Columns) -> DataFrame:
    """The rows of a batch of messages, by ``from_json``; those of Debezium changes with `DELETED`."""
    value = F.col("value").cast("string")
    if not columns.changes:
        return messages.select(F.from_json(value, columns.ddl).alias("row")).select("row.*")
    row = f"STRUCT<{DOCUMENT_COLUMNS.ddl}>"
    kind = f"before {row}, after {row}, source STRUCT<lsn BIGINT>, op STRING"
    change = messages.select(F.from_json(value, kind).alias("change"))
    deleted = F.col("change.op") == "d"
    rows = F.when(deleted, F.col("change.before")).otherwise(F.col("change.after"))
    return change.select(rows.alias("row"), F.col("change.source.lsn").alias(LSN), deleted.alias(DELETED)).select(
        "row.*", LSN, DELETED
    )


def newest(rows: DataFrame, columns: Columns) -> DataFrame:
    """Of each key the row with the highest ordering value: a MERGE takes one row of a key only."""
    ordered = F.struct(columns.ordering, *(name for name in rows.columns if name != columns.ordering))
    return rows.groupBy(KEY).agg(F.max(ordered).alias("row")).select(*(f"row.{name}" for name in rows.columns))


def merge_sql(target: str, source: str, columns: Columns) -> str:
    """The MERGE of a batch; rows older than the table's are left out."""
    newer = f"s.{columns.ordering} >= t.{columns.ordering}"
    clauses = [f"MERGE INTO {target} t USING {source} s ON t.{KEY} = s.{KEY}"]
    if columns.changes:
        clauses.append(f"WHEN MATCHED AND s.{DELETED} AND {newer} THEN DELETE")
    sets = ", ".join(f"t.{name} = s.{name}" for name in columns.names)
    clauses.append(f"WHEN MATCHED AND {newer} THEN UPDATE SET {sets}")
    values = ", ".join(f"s.{name}" for name in columns.names)
    present = f" AND NOT s.{DELETED}" if columns.changes else ""
    clauses.append(f"WHEN NOT MATCHED{present} THEN INSERT ({', '.join(columns.names)}) VALUES ({values})")
    return "\n".join(clauses)


def collect(frame: DataFrame) -> pa.Table:
    """All rows as Arrow; Spark 3.5 has no public call for it."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    batches = cast(Any, frame)._collect_as_arrow()
    return pa.Table.from_batches(batches)


def selected(rows: DataFrame, columns: Sequence[str], key: str | None) -> DataFrame:
    """Some columns of all rows, or of the row of a key."""
    found = rows if key is None else rows.filter(F.col(KEY) == key)
    return found.select(*columns)
