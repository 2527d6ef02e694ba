"""Spark with executors that are processes of their own: what a cluster has and ``local[n]`` has not."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from streaming_lsm import register
from streaming_lsm.spark.session import local_session, prepare_environment
from streaming_lsm.spark.versions import HAS_PYTHON_DATA_SOURCE

MASTER = "local-cluster[2,1,1024]"
REPOSITORY = Path(__file__).parents[2]
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a Java process that lives for seconds: optimised compilation costs it more than it gains."""
WATCHED = {"spark.python.daemon.module": "tests.support.watched_worker"}


@contextmanager
def cluster(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    master: str = MASTER,
) -> Iterator[SparkSession]:
    """A session on two executors of one core and 1 GiB each, stopped on leaving.

    Args:
        folder: takes the executors' own folders.
        settings: Spark settings besides.
        environment: variables of the executors and of their Python workers.
        master: another cluster, see `two_hosts`.
    """
    # A worker of Spark's own cluster keeps its files in SPARK_HOME/work, which is no place inside an installation.
    os.environ["SPARK_HOME"] = str(spark_home(folder / "spark"))
    variables = {"PYTHONPATH": str(REPOSITORY), **(environment or {})}
    session = local_session(
        "cluster",
        settings={
            "spark.master": master,
            **{f"spark.executorEnv.{name}": value for name, value in variables.items()},
            **(settings or {}),
        },
    )
    try:
        if HAS_PYTHON_DATA_SOURCE:
            register(session)
        yield session
    finally:
        session.stop()


@contextmanager
def two_hosts(folder: Path) -> Iterator[str]:
    """A cluster of two machines by name, with one core each; its address. Only there Spark makes copies of tasks."""
    prepare_environment()
    home = spark_home(folder / "spark")
    with ExitStack() as processes, socket.create_server(("127.0.0.1", 0)) as free:
        address = f"spark://127.0.0.1:{free.getsockname()[1]}"
        free.close()
        started = [("master.Master", "127.0.0.1", ["--port", address.rpartition(":")[2]])]
        for host in ("127.0.0.1", "localhost"):
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{host}")]
            started.append(("worker.Worker", host, [*size, address]))
        for place, (role, host, more) in enumerate(started):
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", "--host", host]
            log = processes.enter_context((folder / f"daemon-{place}.log").open("wb"))
            environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"}
            process = Popen([*command, "--webui-port", "0", *more], stdout=log, stderr=log, env=environment)
            processes.callback(_end, process)
        yield address


def await_executors(spark: SparkSession, count: int = 2, seconds: float = 120) -> None:
    """Wait until `count` executors are there: Spark replaces a killed one while the others go on."""
    context: Any = spark.sparkContext
    deadline = time.monotonic() + seconds
    while (there := context._jsc.sc().getExecutorMemoryStatus().size() - 1) != count:  # the driver is counted, too
        assert time.monotonic() < deadline, f"{there} executors after {seconds:.0f} s"
        time.sleep(0.05)


def stages(spark: SparkSession) -> list[Any]:
    """What Spark's own store tells of each stage so far, as objects of the JVM."""
    context: Any = spark.sparkContext
    empty = context._jvm.java.util.ArrayList()
    doubles = context._gateway.new_array(context._jvm.double, 0)
    found = context._jsc.sc().statusStore().stageList(empty, False, False, doubles, empty)
    return [found.apply(place) for place in range(found.size())]


def _end(process: Popen[bytes]) -> None:
    process.terminate()
    process.wait(timeout=30)


def spark_home(folder: Path) -> Path:
    """Make a home of the installed Spark; a cluster of it keeps its files there."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in Path(pyspark.__file__).parent.iterdir():
        link = folder / part.name
        if part.name not in ("work", "logs") and not link.exists():
            link.symlink_to(part)
    return folder
