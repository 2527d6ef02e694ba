"""Parse the command line of ``jobs/compact.py``, ``jobs/cluster.py`` and ``jobs/clean.py``, and run the job."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from streaming_lsm import config
from streaming_lsm.config import FREE_PREFIXES, OPTIONS, Options, read_properties, resolve
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import ConfigError, LsmError, TableNotFound
from streaming_lsm.scripts import INTERRUPTED, fail, is_submitted, key_values
from streaming_lsm.service_job.loop import INTERVAL_S, ServiceLoop, Worker
from streaming_lsm.service_job.messages import reason
from streaming_lsm.service_job.stopping import GRACE_S, Stop, StoppableEngine
from streaming_lsm.services.context import Engine, EngineStopped
from streaming_lsm.table import LsmTable

THREADS, SPARK = "threads", "spark"
_NICE = 10
"""Niceness at which a batch beside a job takes hardly longer, and which costs nothing where there is no other work."""


class CancellableEngine(Engine, Protocol):
    """An engine whose tasks can be ended from another thread."""

    def cancel(self) -> None:
        """End the tasks that run."""
        ...


OpenSpark = Callable[[str, int | None], AbstractContextManager[CancellableEngine]]
"""Opens an engine of Spark's executors for a job of this name, with cores of a local session; None by default."""


@dataclass(frozen=True)
class ServiceJob:
    """One of the jobs.

    Attributes:
        name: name of the program, for its messages.
        worker: creates the worker of an open table.
        schedules: whether its command line has ``--no-schedule``.
    """

    name: str
    worker: Callable[[LsmTable, Engine, argparse.Namespace], Worker]
    schedules: bool = False


def run_job(job: ServiceJob, description: str, open_spark: OpenSpark, arguments: Sequence[str] | None = None) -> int:
    """Run a job; returns its exit status."""
    given = _parser(job, description).parse_intermixed_args(arguments)
    try:
        options = load_options(given.properties, key_values(given.options))
        path = _path(options)
        engine = _engine_name(given)
        # The table is opened before Spark starts, which takes seconds.
        table = LsmTable(path, options)
        stop = Stop(given.grace)
        os.nice(given.nice)
        with _engine(job.name, engine, given, table, open_spark, stop) as tasks, stop.installed():
            loop = ServiceLoop(job.name, lambda: job.worker(LsmTable(path, options), tasks, given), stop)
            sound = _run(loop, given.watch, table.path)
    except KeyboardInterrupt:
        return fail(job.name, "interrupted", INTERRUPTED)
    except (ConfigError, TableNotFound) as error:
        return fail(job.name, error, 2)
    except (LsmError, OSError, EngineStopped) as error:
        return fail(job.name, reason(error), 1)
    if stop.is_interrupted:
        return fail(job.name, "interrupted", INTERRUPTED)
    if stop.is_requested:
        print(f"stopped by {stop.name}", flush=True)
    return 0 if sound else 1


def _run(loop: ServiceLoop, interval_s: float | None, table: str) -> bool:
    if interval_s is None:
        return loop.once()
    loop.watch(interval_s, table)
    return True


def load_options(properties: Path | None, arguments: Mapping[str, str]) -> Options:
    """Load options by precedence: properties file < environment < arguments.

    Keys of the Kafka client and options of single topics in the file are passed over, so that it may be that of
    ``jobs/kafka_to_lsm.py``.

    Raises:
        ConfigError: an unreadable or malformed file, an unknown key or a malformed value.
    """
    file = read_properties(properties) if properties else {}
    ours = {key: value for key, value in file.items() if key in OPTIONS or not key.startswith(FREE_PREFIXES)}
    return Options(ours, source=str(properties)).merged(resolve(arguments))


def seconds(text: str) -> float:
    """Parse a number of seconds of a command line.

    Raises:
        ArgumentTypeError: it is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds; other arguments go before --watch")
    return number


def watch_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--watch [SECONDS]``."""
    parser.add_argument(
        "--watch",
        nargs="?",
        type=seconds,
        const=INTERVAL_S,
        metavar="SECONDS",
        help=f"go on until SIGTERM or Ctrl-C, with a look every so many seconds (default {INTERVAL_S:g})",
    )


def _parser(job: ServiceJob, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=job.name, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--properties", type=Path, help="Java properties file with options")
    watch_argument(parser)
    parser.add_argument(
        "--engine", choices=(THREADS, SPARK), help="default: spark if spark-submit started the job, else threads"
    )
    parser.add_argument("--threads", type=int, help="threads of this process (default: the option lsm.read.threads)")
    parser.add_argument("--cores", type=int, help="cores of the local Spark session (default 2)")
    parser.add_argument(
        "--grace",
        type=seconds,
        default=GRACE_S,
        metavar="SECONDS",
        help=f"time that a running action has after a signal, before it is put back (default {GRACE_S:g})",
    )
    parser.add_argument(
        "--nice",
        type=int,
        choices=range(20),
        default=_NICE,
        metavar="0…19",
        help=f"how far the job, beside a stream on the same cores, stands back (default {_NICE})",
    )
    if job.schedules:
        parser.add_argument("--no-schedule", action="store_true", help="run only what others have scheduled")
    parser.add_argument("options", nargs="*", metavar="KEY=VALUE", help="options that override file and environment")
    return parser


def _path(options: Options) -> str:
    path = options[config.TABLE_PATH]
    if not path:
        raise ConfigError(f"{config.TABLE_PATH.key} is not set: give {config.TABLE_PATH.key}=PATH")
    if "{topic}" in path:
        raise ConfigError(
            f"{config.TABLE_PATH.key}={path!r} is the path of several tables: give {config.TABLE_PATH.key}=PATH of one"
        )
    return path


def _engine_name(given: argparse.Namespace) -> str:
    """Return the engine's name, and refuse arguments that it does not have."""
    name: str = given.engine or (SPARK if is_submitted() else THREADS)
    if name == SPARK and given.threads is not None:
        raise ConfigError("--threads is an option of --engine threads: leave it out")
    if name == THREADS and given.cores is not None:
        raise ConfigError("--cores is an option of --engine spark: give --threads")
    if any(number is not None and number < 1 for number in (given.threads, given.cores)):
        raise ConfigError("--threads and --cores are at least 1")
    return name


@contextmanager
def _engine(
    job: str, name: str, given: argparse.Namespace, table: LsmTable, open_spark: OpenSpark, stop: Stop
) -> Iterator[Engine]:
    def tell(text: str) -> None:
        print(text, flush=True)

    if name == SPARK:
        with open_spark(job, given.cores) as spark:
            yield StoppableEngine(spark, stop, spark.cancel, tell)
    else:
        threads = given.threads or table.options[config.READ_THREADS]
        yield StoppableEngine(LocalEngine(threads), stop, tell=tell)
