"""A Kafka job to be killed: ``python -m tests.support.following_job SERVERS REGISTRY FOLDER [FLAG]``.

It reads what is in topic ``t`` to the table ``FOLDER/t``, whose columns follow the schemas of the messages. With a FLAG
it stops once the tasks of a batch have met a schema that changes the columns, and before the batch is read again: it
creates FLAG and waits to be killed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from streaming_lsm.kafka.packaged import connector_jars
from streaming_lsm.kafka.settings import JobSettings
from streaming_lsm.kafka.stream import start_stream
from streaming_lsm.spark import sink as sink_module
from streaming_lsm.spark.session import local_session


def run(servers: str, registry: str, folder: Path) -> None:
    """Write what is in the topic."""
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": "t",
        "checkpointLocation": str(folder / "checkpoint"),
        "lsm.table.path": str(folder / "t"),
        "lsm.kafka.format": "avro",
        "lsm.kafka.schema.registry.url": registry,
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.bucket.index.num.buckets": "2",
    }
    spark = local_session("following-job", cores=2, jars=connector_jars())
    start_stream(spark, JobSettings.load(None, options)).query.awaitTermination()
    spark.stop()


def stop_at_new_columns(flag: Path) -> None:
    """Make a batch stop between its first and its second reading."""
    write_batch = sink_module.write_batch

    def stopping(*arguments: Any) -> Any:
        done = write_batch(*arguments)
        if done.changing_schemas:
            flag.touch()
            time.sleep(600)
        return done

    sink_module.write_batch = stopping


if __name__ == "__main__":
    if len(sys.argv) > 4:
        stop_at_new_columns(Path(sys.argv[4]))
    run(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
