"""A local Spark session with the settings this package is tested with."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from streaming_lsm.spark.java import find_java

DEFAULTS: dict[str, str] = {
    # Instants, partition values and ISO texts without a zone must not depend on the machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Over TCP each Python task of a small batch waits some 40 ms for an acknowledgement that is held back.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.log.level": "WARN",
}
"""Settings of `local_session`. Adaptive execution is off, as it would merge the tasks of small batches and
adds a planning step to each; streaming queries run without it anyway."""


def local_session(
    app_name: str,
    *,
    cores: int = 2,
    jars: Sequence[Path] = (),
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, started when there is none yet.

    Environment variables that Spark's launcher and its Python workers read are set in this process:
    ``JAVA_HOME`` (see `find_java`), ``PYSPARK_PYTHON`` (this interpreter) and ``SPARK_LOCAL_IP``.

    Args:
        app_name: name of the application.
        cores: threads of ``local[n]``, and the number of shuffle partitions.
        jars: files added to the class path, such as Spark's Kafka source.
        settings: override `DEFAULTS`.

    Returns:
        The session. When one is already running its static settings, the jars included, stay as they are.

    Raises:
        ConfigError: no suitable Java.
    """
    prepare_environment()
    builder = SparkSession.builder.appName(app_name)
    for key, value in session_settings(cores, jars, settings).items():
        builder = builder.config(key, value)
    with _interrupts_held_back():
        return builder.getOrCreate()


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Hold Ctrl-C back until Spark's Java process is known: PySpark leaves it behind when its start is interrupted.

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
        # A new Spark context brings a handler of its own, which stays.
        if signal.getsignal(signal.SIGINT) is remember:
            signal.signal(signal.SIGINT, previous or signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt


def session_settings(
    cores: int = 2, jars: Sequence[Path] = (), settings: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The settings that `local_session` passes on."""
    chosen = {**DEFAULTS, "spark.master": f"local[{cores}]", "spark.sql.shuffle.partitions": str(cores)}
    if jars:
        chosen["spark.jars"] = ",".join(str(jar) for jar in jars)
    return {**chosen, **(settings or {})}


def prepare_environment() -> None:
    """Set what Spark reads from the environment: Java home, the workers' Python, the address to bind to.

    Raises:
        ConfigError: no suitable Java.
    """
    os.environ["JAVA_HOME"] = str(find_java().home)
    # Workers would otherwise take the first python3 on PATH, which need not be this one.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
