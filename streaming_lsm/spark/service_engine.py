"""Open an engine of Spark's executors for a job that compacts or cleans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from streaming_lsm.errors import ConfigError
from streaming_lsm.scripts import is_submitted
from streaming_lsm.services.context import EngineStopped
from streaming_lsm.spark.engine import SparkEngine
from streaming_lsm.spark.session import TASK_LOGGER, local_session, silence, submitted_session

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class ServiceEngine:
    """Runs tasks on executors, until it is cancelled or Spark ends.

    Attributes:
        engine: runs the tasks.
    """

    engine: SparkEngine

    @property
    def width(self) -> int:
        """Number of tasks that run at a time."""
        return self.engine.width

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Run a task for every item; see `SparkEngine.map`.

        Raises:
            EngineStopped: Spark's Java process has ended.
        """
        try:
            return self.engine.map(task, items)
        except (Py4JNetworkError, ConnectionError):
            raise EngineStopped("Spark's Java process has ended, its output above says why") from None

    def cancel(self) -> None:
        """End the tasks that run; this program has no others."""
        with suppress(Py4JError, PySparkException, ConnectionError):
            self.engine.spark.sparkContext.cancelAllJobs()


@contextmanager
def service_engine(name: str, cores: int | None) -> Iterator[ServiceEngine]:
    """Open the session of spark-submit or a local one, and stop it at the end.

    Args:
        name: name of a local session's application.
        cores: cores of a local session; None means 2.

    Raises:
        ConfigError: cores were given to a session of spark-submit, or there is no suitable Java.
    """
    if is_submitted():
        if cores is not None:
            raise ConfigError(
                "--cores is an option of the local session: give spark-submit --master or --executor-cores"
            )
        spark = submitted_session()
    else:
        spark = local_session(name, cores=2 if cores is None else cores, settings={"spark.log.level": "ERROR"})
        # A failed task fails the action, with the same error.
        silence(spark, TASK_LOGGER)
    try:
        yield ServiceEngine(SparkEngine(spark))
    finally:
        # Where Java has ended there is nothing to stop. Tasks that a stop interrupts are no news.
        with suppress(Py4JError, ConnectionError):
            spark.sparkContext.setLogLevel("OFF")
            spark.stop()
