"""Rows go to the shuffle partition that they name, whatever Spark's adaptive execution is set to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming_lsm.spark.hash_partitioning import repartitioned_by_id, spark_hashes, values_of_partitions

SPLITTING = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.forceApply": "true",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1b",
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "0.0",
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "1b",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1b",
    # Compiling the small plans takes longer than running them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
JOINING = {
    **SPLITTING,
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1g",
}


def session_with(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    changed = spark.newSession()
    for key, value in settings.items():
        changed.conf.set(key, value)
    return changed


def test_spark_hashes_integers_as_the_table_of_values_expects(spark: SparkSession) -> None:
    for partitions in (1, 7, 200):
        values = F.expr(f"array({', '.join(map(str, values_of_partitions(partitions)))})")
        rows = spark.range(1).select(F.posexplode(values).alias("number", "value"))
        assert rows.where(f"pmod(hash(value), {partitions}) != number").count() == 0
    chosen = [*range(-50, 50), 2**31 - 1, -(2**31)]
    asked = spark.createDataFrame([(number,) for number in chosen], "number INT").selectExpr("hash(number)").collect()
    assert spark_hashes(np.array(chosen, np.int32)).tolist() == [row[0] for row in asked]


def test_the_settings_join_and_split_partitions_without_a_number(spark: SparkSession) -> None:
    rows = session_with(spark, JOINING).range(0, 300, 1, 3)
    assert rows.repartition("id").rdd.getNumPartitions() == 1
    skewed = session_with(spark, SPLITTING).sql("SELECT /*+ REBALANCE(one) */ id, 0 AS one FROM range(0, 300, 1, 3)")
    assert skewed.rdd.getNumPartitions() > 1


@pytest.mark.parametrize("partitions", [2, 13])
@pytest.mark.parametrize("settings", [{}, SPLITTING, JOINING], ids=["pinned", "splitting", "joining"])
def test_each_partition_gets_its_own_rows_and_those_of_a_source_in_order(
    spark: SparkSession, settings: Mapping[str, str], partitions: int
) -> None:
    """As the cells of a message are sent: by tasks that each have rows for every partition, the most for the first."""

    def send(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        for _ in batches:
            places = np.arange(3000, dtype=np.int32)
            number = np.where(places % 3 == 0, places % partitions, 0).astype(np.int32)
            yield pa.record_batch([number, np.full(3000, task.partitionId(), np.int32), places], names=["n", "s", "p"])

    def receive(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task, seen, rows = TaskContext.get(), {0: -1, 1: -1, 2: -1}, 0
        assert task is not None
        for batch in batches:
            number, source, place = (np.asarray(column) for column in batch.columns)
            assert (number == task.partitionId()).all()
            for each, last in seen.items():
                places = place[source == each]
                assert (np.diff(np.append(last, places)) > 0).all()
                seen[each] = int(places[-1]) if len(places) else last
            rows += len(place)
        yield pa.record_batch({"partition": [task.partitionId()], "rows": [rows]})

    sent = session_with(spark, settings).range(0, 3, 1, 3).mapInArrow(send, "n int, s int, p int")
    rows = repartitioned_by_id(sent, partitions, "n").mapInArrow(receive, "partition long, rows long").collect()
    assert sorted(row.partition for row in rows) == list(range(partitions)), "partitions were joined or split"
    assert sum(row.rows for row in rows) == 9000
