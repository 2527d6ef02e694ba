"""Do one thing first in a process: ``python -m tests.bench.first_steps sink|append|format|table|files SOURCE FOLDER``.

Prints the seconds from the ready Spark session until it is done.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from streaming_lsm import LsmSink, read, register
from streaming_lsm.spark.session import local_session
from streaming_lsm.spark.versions import spark_schema
from tests.bench.bench_sink import OPTIONS
from tests.bench.reference.first import stream_once, total
from tests.bench.reference.sink import append_parquet
from tests.bench.workload import REPEATED


def main(step: str, source: str, folder: str) -> None:
    """Do the step and print its seconds."""
    spark = local_session("bench", cores=2, settings={"spark.log.level": "ERROR"})
    begun = time.perf_counter()
    if step == "sink":
        _stream(spark, source, folder, LsmSink(f"{folder}/table", OPTIONS))
    elif step == "append":
        _stream(spark, source, folder, lambda rows, _: append_parquet(rows, f"{folder}/plain", REPEATED))
    elif step == "format":
        register(spark)
        total(spark.read.format("streaming_lsm").load(source))
    elif step == "table":
        total(read(spark, source))
    else:
        total(spark.read.parquet(source))
    print(time.perf_counter() - begun)
    spark.stop()


def _stream(spark: SparkSession, source: str, folder: str, write: Callable[[DataFrame, int], None]) -> None:
    schema = spark_schema(pq.read_schema(f"{source}/part-0.parquet"))
    stream_once(spark, source, schema, f"{folder}/checkpoint", write)


if __name__ == "__main__":
    main(*sys.argv[1:])
