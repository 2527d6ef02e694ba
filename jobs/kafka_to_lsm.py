"""Stream change events from Kafka into an LSM table.

    python jobs/kafka_to_lsm.py --properties conf/kafka_demo.properties --bootstrap-servers host:9092 \\
        lsm.table.path=/lake/orders checkpointLocation=/lake/_checkpoints/orders

spark-submit runs it on a cluster, with the master and the settings that it is given (docs/cluster.md); without
spark-submit it starts a local session.

Options, see docs/configuration.md: KEY=VALUE arguments override LSM_CONF_ environment variables, which override the
properties file. Other keys under kafka. (such as kafka.security.protocol) go to the Kafka client.
Exit status: 0 all events read (lsm.trigger=availableNow) or stopped by SIGTERM, 1 the stream failed, 2 an option is
wrong or no broker answers, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

from streaming_lsm.scripts import INTERRUPTED, fail, importing, is_submitted, key_values

with importing("kafka_to_lsm"):
    from py4j.protocol import Py4JError, Py4JNetworkError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from streaming_lsm import config
    from streaming_lsm.errors import ConfigError, LsmError
    from streaming_lsm.kafka.addresses import check_source
    from streaming_lsm.kafka.connector import provide_connector
    from streaming_lsm.kafka.packaged import connector_jars
    from streaming_lsm.kafka.settings import JobSettings
    from streaming_lsm.kafka.source_watch import SourceWatch
    from streaming_lsm.kafka.stream import StreamWatcher, Totals, start_stream
    from streaming_lsm.kafka.topic_columns import check_columns
    from streaming_lsm.kafka.topic_tables import check_tables
    from streaming_lsm.spark.session import (
        QUERY_LOGGER,
        TASK_LOGGER,
        local_session,
        silence,
        submitted_session,
    )

_NAME = "kafka_to_lsm"
_JAVA_ENDED = (
    "the stream failed: Spark's Java process has ended, its output above says why. If that is an OutOfMemoryError, run "
    "the job by spark-submit with more memory (--driver-memory 3g, on a cluster --executor-memory), or read fewer or "
    "smaller events at a time (maxOffsetsPerTrigger)"
)


def main(arguments: list[str] | None = None) -> int:
    """Run the job; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--properties", type=Path, help="Java properties file with options")
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT,…", help="the option kafka.bootstrap.servers")
    parser.add_argument("--cores", type=int, help="cores of the local Spark session (default 2)")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="stop the query and fail after this time")
    parser.add_argument("options", nargs="*", metavar="KEY=VALUE", help="options that override file and environment")
    given = parser.parse_args(arguments)
    try:
        overrides = key_values(given.options)
        if given.bootstrap_servers:
            overrides[config.KAFKA_SERVERS.key] = given.bootstrap_servers
        settings = JobSettings.load(given.properties, overrides)
        return _run(settings, given.cores, given.timeout)
    except KeyboardInterrupt:
        return fail(_NAME, "interrupted", INTERRUPTED)
    except ConfigError as error:
        return fail(_NAME, error, 2)
    except (Py4JNetworkError, ConnectionError):
        return fail(_NAME, _JAVA_ENDED, 1)
    except (LsmError, PySparkException, Py4JError, TimeoutError) as error:
        return fail(_NAME, _reason(error), 1)


def _reason(error: Exception) -> str:
    try:
        # Spark appends the query's plan and Java's stack trace to the reason.
        reason = str(error).partition("\n=== Streaming Query ===")[0].partition("\n\tat ")[0]
    except (Py4JError, ConnectionError):
        # Java would have been asked for the text.
        return _JAVA_ENDED
    return f"the stream failed: {reason}"


def _run(settings: JobSettings, cores: int | None, timeout_seconds: float | None) -> int:
    # Options and brokers are checked before Spark starts, which takes seconds.
    settings.need(config.CHECKPOINT)
    tables = check_tables(settings)
    check_source(settings.source())
    for table in tables:
        table.settings.check_schemas()
    check_columns(tables)
    spark = _session(cores)
    try:
        stopping = threading.Event()
        # The job tells a named error in one line; Spark logs it with three stacks.
        stream = start_stream(spark, settings, stopping.is_set, before_failure=lambda: silence(spark, QUERY_LOGGER))
        # Spark logs the cancelled batch of a stop as an error.
        watcher = StreamWatcher(
            stream.query,
            stream.sinks.parts,
            stopping,
            before_stop=lambda: spark.sparkContext.setLogLevel("OFF"),
            source=SourceWatch(stream.ids.check),
            waiting=lambda trouble: print(f"{_NAME}: the stream waits: {trouble}", file=sys.stderr, flush=True),
        )
        signals = _stop_on_signals(watcher)
        totals = Totals()
        for report in watcher.reports(timeout_seconds):
            totals.add(report)
            print(report, flush=True)
        paths = stream.sinks.paths
    finally:
        # Where Java has ended there is nothing to stop. Tasks that a stop interrupts are no news.
        with suppress(Py4JError, ConnectionError):
            spark.sparkContext.setLogLevel("OFF")
            spark.stop()
    written = f"table{'s' if len(paths) > 1 else ''} at {', '.join(paths)}"
    read = f"{totals}, {written}"
    if signal.SIGINT in signals:
        return fail(_NAME, f"interrupted; {read}", INTERRUPTED)
    print(f"stream ended: {read}", flush=True)
    return 0


def _session(cores: int | None) -> SparkSession:
    """Return the session of spark-submit, or start a local one; either has Spark's Kafka source."""
    if not is_submitted():
        settings = {"spark.log.level": "ERROR"}
        spark = local_session(_NAME, cores=2 if cores is None else cores, jars=connector_jars(), settings=settings)
        # A failed task fails the query, with the same error.
        silence(spark, TASK_LOGGER)
        return spark
    if cores is not None:
        raise ConfigError("--cores is an option of the local session: give spark-submit --master or --executor-cores")
    spark = submitted_session()
    provide_connector(spark)
    return spark


def _stop_on_signals(watcher: StreamWatcher) -> list[int]:
    """Stop the query gracefully on SIGTERM and Ctrl-C; a second signal ends the job at once.

    Returns:
        The list to which received signals are appended.
    """
    signals: list[int] = []

    def stop(number: int, _: object) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(number)
        watcher.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    return signals


if __name__ == "__main__":
    sys.exit(main())
