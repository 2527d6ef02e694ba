"""A streaming job to be killed: ``python -m tests.support.stream_job SOURCE TABLE CHECKPOINT [POINT FLAG]``.

With a POINT it stops there during the second batch, creates FLAG and waits to be killed. Points: ``begun`` (the
instant is inflight, nothing written), ``writing`` (a task has written some files and is in the middle of one),
``written`` (all files are there, not committed), ``completed`` (committed, and Spark does not know it yet).
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from streaming_lsm import LsmSink
from streaming_lsm.spark import sink as sink_module
from streaming_lsm.spark.session import local_session
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.table import LsmTable
from streaming_lsm.write.plan import WritePlan
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


class Stalling(LocalStorage):
    """Lets each task create two files and hang in the middle of the third."""

    def __init__(self, root: str, flag: str) -> None:
        super().__init__(root)
        self.flag, self.created = flag, 0

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        self.created += 1
        with super().create(path) as sink:
            if self.created == 3:
                sink.write(b"PAR1, and then no more")
                sink.flush()
                Path(self.flag).touch()
                time.sleep(600)
            yield sink


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

    def writing(batch: Any, table: LsmTable, plan: WritePlan, *more: Any) -> Any:
        def stall() -> None:
            root = table.path.removeprefix("file://")
            write_batch(batch, table, dataclasses.replace(plan, storage=Stalling(root, str(flag))))

        second(stall)
        return write_batch(batch, table, plan, *more)

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
        sink_module.write_batch = {"begun": begun, "writing": writing, "written": written}[point]


if __name__ == "__main__":
    if len(sys.argv) > 4:
        stop_at(sys.argv[4], Path(sys.argv[5]))
    run(*sys.argv[1:4])
