"""Start a local Spark session with the settings that this package is tested with, or take the one of spark-submit.

*Submitted process*: a Python process that spark-submit has started, after Spark's Java process; master, settings, jars
and Python packages are those of its command line and of spark-defaults.conf.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from streaming_lsm.spark.jvm.java import find_java
from streaming_lsm.spark.versions import java_releases

DEFAULTS: dict[str, str] = {
    # Instants, partition values and ISO texts without a zone must not depend on the machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # Threads of a concurrent collector compete with the tasks, and a heap of 1 GiB is collected in milliseconds.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Over TCP each Python task of a small batch waits about 40 ms for a delayed acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
    # Workers begin with everything imported.
    "spark.python.daemon.module": "streaming_lsm.spark.python_daemon",
    "spark.sql.adaptive.enabled": "false",
    "spark.log.level": "WARN",
}
"""Settings of `local_session`. Adaptive execution is off: it would merge the tasks of small batches and add a planning
step to each."""

TASK_LOGGER, QUERY_LOGGER = "org.apache.spark.executor.Executor", "org.apache.spark.sql.execution.streaming"
"""Loggers that print the stack of a failed task, and of a failed query."""
_SUBMITTED_DEFAULTS = ("spark.sql.session.timeZone", "spark.sql.adaptive.enabled")


def local_session(
    app_name: str,
    *,
    cores: int = 2,
    jars: Sequence[Path] = (),
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the Spark session of this process, and start it if there is none.

    Environment variables that Spark's launcher and its Python workers read are set in this process:
    ``JAVA_HOME`` (see `find_java`), ``PYSPARK_PYTHON`` (this interpreter) and ``SPARK_LOCAL_IP``.

    Args:
        app_name: name of the application.
        cores: threads of ``local[n]``, and the number of shuffle partitions.
        jars: files added to the class path, such as Spark's Kafka source.
        settings: override `DEFAULTS`.

    Returns:
        The session. An existing session keeps its static settings, including its jars.

    Raises:
        ConfigError: no suitable Java.
    """
    prepare_environment()
    builder = SparkSession.builder.appName(app_name)
    for key, value in session_settings(cores, jars, settings).items():
        builder = builder.config(key, value)
    with _interrupts_held_back():
        return builder.getOrCreate()


def submitted_session() -> SparkSession:
    """Return the Spark session of a submitted process; its settings are kept.

    Two of `DEFAULTS`, on which the rows and the speed of a batch depend, are set if the submission does not have them:
    ``spark.sql.session.timeZone`` and ``spark.sql.adaptive.enabled``.
    """
    spark = SparkSession.builder.getOrCreate()
    for key in _SUBMITTED_DEFAULTS:
        if not spark.sparkContext.getConf().contains(key):
            spark.conf.set(key, DEFAULTS[key])
    return spark


def add_jars(spark: SparkSession, jars: Sequence[Path]) -> None:
    """Add jars to the class paths of a running session and of its executors, which fetch them from the driver."""
    for jar in jars:
        quoted = str(jar).replace("\\", "\\\\").replace("'", "\\'")
        spark.sql(f"ADD JAR '{quoted}'")


def silence(spark: SparkSession, *loggers: str) -> None:
    """Switch off loggers of Spark's Java process, with those below them: the caller reports their errors itself."""
    java: Any = spark.sparkContext._jvm
    log4j = java.org.apache.logging.log4j
    for name in loggers:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Defer Ctrl-C until Spark's Java process has started: an interrupted start of PySpark leaves the process running.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed in the meantime.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed = []

    def remember(*_: object) -> None:
        pressed.append(True)

    previous = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        # A new Spark context installs its own handler, which is kept.
        if signal.getsignal(signal.SIGINT) is remember:
            signal.signal(signal.SIGINT, previous or signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt


def session_settings(
    cores: int = 2, jars: Sequence[Path] = (), settings: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the Spark settings of a `local_session`: `DEFAULTS`, cores and jars, overridden by `settings`."""
    chosen = {**DEFAULTS, "spark.master": f"local[{cores}]", "spark.sql.shuffle.partitions": str(cores)}
    if jars:
        chosen["spark.jars"] = ",".join(str(jar) for jar in jars)
    return {**chosen, **(settings or {})}


def prepare_environment() -> None:
    """Set the environment variables that Spark reads: Java home, the workers' Python, the address to bind to.

    Raises:
        ConfigError: no suitable Java.
    """
    os.environ["JAVA_HOME"] = str(find_java(releases=java_releases()).home)
    # Without it workers run the first python3 on PATH, which may be another one.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
