"""Clean a table in a process of its own, while streams go on.

    python jobs/clean.py lsm.table.path=/lake/orders hoodie.clean.commits.retained=30
    python jobs/clean.py --watch 300 --properties conf/kafka_demo.properties lsm.table.path=/lake/orders
    spark-submit jobs/clean.py lsm.table.path=/lake/orders --watch

Runs the cleans that anyone has planned and nobody runs; then plans and runs one, if file slices are older than those
that the options retain (hoodie.clean.policy). One clean of a table runs at a time: a second job leaves it to the first.
Files are deleted by threads, or, with spark-submit or --engine spark, by Spark's executors.

Options, see docs/configuration.md: KEY=VALUE arguments override LSM_CONF_ environment variables, which override the
properties file, which may be that of jobs/kafka_to_lsm.py.
Exit status: 0 done or stopped by SIGTERM, 1 a clean failed, 2 an option is wrong or there is no table, 130 stopped by
Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from streaming_lsm.scripts import importing

with importing("clean"):
    from streaming_lsm import LsmTable
    from streaming_lsm.service_job.command import CancellableEngine, ServiceJob, run_job
    from streaming_lsm.services.cleaning.worker import CleaningWorker
    from streaming_lsm.services.context import Engine

_NAME = "clean"


def main(arguments: list[str] | None = None) -> int:
    """Run the job; returns its exit status."""
    return run_job(ServiceJob(_NAME, _worker), __doc__ or "", _spark, arguments)


def _worker(table: LsmTable, engine: Engine, _: argparse.Namespace) -> CleaningWorker:
    return table.services.cleaning_worker(engine)


@contextmanager
def _spark(name: str, cores: int | None) -> Iterator[CancellableEngine]:
    # Threads need no Spark.
    with importing(_NAME):
        from streaming_lsm.spark.service_engine import service_engine
    with service_engine(name, cores) as engine:
        yield engine


if __name__ == "__main__":
    sys.exit(main())
