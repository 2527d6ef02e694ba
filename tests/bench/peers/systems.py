"""The systems that are compared: their versions, environments and workloads."""

from __future__ import annotations

from dataclasses import dataclass

ROWS, KAFKA, CHANGES, TRICKLE, READS, QUERIES = "S", "K", "B", "E", "R", "Q"

WORKLOADS = {
    ROWS: "batches of Parquet rows, 11 columns",
    KAFKA: "the same rows as JSON messages of a Kafka topic with 8 partitions",
    CHANGES: "Debezium changes in JSON from Kafka: zipf 0.99, 10 % deletes, 5 % late",
    TRICKLE: "1,000 rows a second",
    READS: "snapshot with 0, 5 and 20 logs, and compaction",
    QUERIES: "queries in Spark",
}
"""What each workload is, by its letter."""


@dataclass(frozen=True)
class System:
    """One system, with one way of writing.

    Attributes:
        name: of its results.
        title: as the page has it, with the version.
        adapter: module of `adapters` whose `open_system` makes it.
        mode: which of the module's ways of writing.
        packages: pinned requirements of its venv; empty for the project's own.
        jars: Maven coordinates of its jars.
        connector: version in the name of the jar list of Spark's Kafka source; empty without Spark.
        workloads: letters of the workloads that it can run.
        keeps: whether its table holds the newest row of each key; a plain append does not.
    """

    name: str
    title: str
    adapter: str
    mode: str = ""
    packages: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    connector: str = ""
    workloads: str = "SKBER"
    keeps: bool = True


_ARROW = ("pyarrow==26.0.1", "numpy==2.4.6", "pandas==2.3.3")
_SPARK_35 = ("pyspark==3.5.9", "setuptools==80.9.0", *_ARROW)
_SPARK_41 = ("pyspark==4.1.4", *_ARROW)
_PAIMON = ("org.apache.paimon:paimon-spark-3.5:0.9.0",)

SYSTEMS = (
    System("lsm", "streaming_lsm, LsmSink, Spark 4.2", "lsm", connector="4.2", workloads="SKBERQ"),
    System("lsm-table", "streaming_lsm, LsmTable, no JVM", "lsm_table", workloads="SER"),
    System("append", "Spark 4.2, plain zstd append", "append", connector="4.2", keeps=False),
    System(
        "hudi",
        "Hudi 1.2.0, Spark 3.5",
        "hudi",
        packages=(*_SPARK_35, "hudi==0.5.0"),
        jars=("org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",),
        connector="3.5",
        workloads="SKBERQ",
    ),
    System(
        "paimon", "Paimon 0.9.0, write-only, Spark 3.5", "paimon", "write-only", _SPARK_35, _PAIMON, "3.5", "SKBERQ"
    ),
    System("paimon-compacting", "Paimon 0.9.0, compacting, Spark 3.5", "paimon", "", _SPARK_35, _PAIMON, "3.5"),
    System(
        "iceberg",
        "Iceberg 1.11.0, MERGE, Spark 4.1",
        "iceberg",
        packages=(*_SPARK_41, "pyiceberg==0.12.0"),
        jars=("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",),
        connector="4.1",
    ),
    System(
        "delta",
        "Delta 4.1.0, MERGE, Spark 4.1",
        "delta",
        # With Spark 4.1.4 the first checkpoint of its log fails with a NoSuchMethodError.
        packages=("pyspark==4.1.0", *_ARROW, "deltalake==1.6.6"),
        jars=("io.delta:delta-spark_4.1_2.13:4.1.0\nio.delta:delta-storage:4.1.0",),
        connector="4.1",
    ),
    System("pypaimon", "pypaimon 2.1.0, no JVM", "pypaimon", packages=("pypaimon==2.1.0",), workloads="SER"),
    System(
        "pypaimon-native",
        "pypaimon 2.1.0 with pypaimon-rust 0.4.0, no JVM",
        "pypaimon",
        "native",
        packages=("pypaimon==2.1.0", "pypaimon-rust==0.4.0"),
        workloads="SER",
    ),
    System(
        "hudi-rs",
        "hudi-rs 0.5.0, over tables of this package (version 9)",
        "lsm_table",
        "hudi-rs",
        packages=("hudi==0.5.0", "fastavro==1.13.1", *_ARROW),
        workloads="R",
    ),
)
"""All of them, in the order of the page."""


def system(name: str) -> System:
    """The system of a name; `KeyError` when there is none."""
    return {each.name: each for each in SYSTEMS}[name]
