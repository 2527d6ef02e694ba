"""A streaming job to be killed: ``python -m tests.support.stream_job SOURCE TABLE CHECKPOINT [POINT FLAG]``.

With a POINT it stops there during the second batch, creates FLAG and waits to be killed. Points: ``begun`` (the
instant is inflight, nothing written), ``written`` (all files are there, not committed), ``completed`` (committed, and
Spark does not know it yet).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streaming_lsm import LsmSink
from streaming_lsm.spark import sink as sink_module
from streaming_lsm.spark.session import local_session
from streaming_lsm.table import LsmTable
from tests.support.orders import OPTIONS, SPARK_SCHEMA


def run(source: str, table: str, checkpoint: str) -> None:
    """Write everything that is in the source folder, two files a batch."""
    spark = local_session("stream-job", cores=2)
    stream = spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 2).parquet(source)
    query = (
        stream.writeStream.foreachBatch(LsmSink(table, OPTIONS))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


def stop_at(point: str, flag: Path) -> None:
    """Make the second batch of this process stop at `point`."""
    calls = {"count": 0}

    def second(wait: Callable[[], None]) -> None:
        calls["count"] += 1
        if calls["count"] == 2:
            wait()

    def wait() -> None:
        flag.touch()
        time.sleep(600)

    write_batch, commit = sink_module.write_batch, LsmTable.commit

    def begun(*arguments: Any) -> Any:
        second(wait)
        return write_batch(*arguments)

    def written(*arguments: Any) -> Any:
        stats = write_batch(*arguments)
        second(wait)
        return stats

    def completed(*arguments: Any) -> Any:
        instant = commit(*arguments)
        second(wait)
        return instant

    if point == "completed":
        LsmTable.commit = completed  # type: ignore[method-assign]
    else:
        sink_module.write_batch = {"begun": begun, "written": written}[point]


if __name__ == "__main__":
    if len(sys.argv) > 4:
        stop_at(sys.argv[4], Path(sys.argv[5]))
    run(*sys.argv[1:4])
