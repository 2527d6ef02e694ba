"""A process that writes batches when it is told to: one line in, one batch, one line of JSON out.

Each line of standard input asks for one more batch of the benchmark's cached rows. The answers have the seconds of the
batch, and the processor seconds of this process with Java and Python workers.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from itertools import count

import pyspark

from streaming_lsm import LsmSink
from streaming_lsm.spark.session import local_session
from tests.bench.bench_sink import BATCHES, OPTIONS, ROWS, cached_batches
from tests.bench.processor import processor_seconds

_SETTINGS = {"spark.log.level": "ERROR"}


def main() -> None:
    """Answer until the input ends."""
    spark = local_session("sink-rate", cores=2, settings=_SETTINGS)
    with tempfile.TemporaryDirectory() as folder, cached_batches(spark, folder) as batches:
        sink, numbers = LsmSink(f"{folder}/table", OPTIONS), count()
        print(json.dumps({"pyspark": pyspark.__version__, "rows": ROWS}), flush=True)
        for _ in sys.stdin:
            number = next(numbers)
            begun, spent = time.perf_counter(), processor_seconds(os.getpid())
            sink(batches[number % BATCHES], number)
            taken = {
                "seconds": time.perf_counter() - begun,
                "processor_seconds": processor_seconds(os.getpid()) - spent,
            }
            print(json.dumps(taken), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
