"""Cluster a table in a process of its own, while streams go on.

    python jobs/cluster.py hoodie.clustering.plan.strategy.sort.columns=city lsm.table.path=/lake/orders
    python jobs/cluster.py --watch 300 --properties conf/kafka_demo.properties lsm.table.path=/lake/orders
    spark-submit jobs/cluster.py lsm.table.path=/lake/orders --watch

Runs the clusterings that anyone has scheduled and nobody runs, the oldest first; then schedules and runs a new one, if
hoodie.clustering.inline.max.commits writes were completed since the last one. For tables without buckets. While it
runs, writes of the file groups that it replaces are refused. Its groups of file slices are sorted by threads, or, with
spark-submit or --engine spark, by Spark's executors.

Options, see docs/configuration.md: KEY=VALUE arguments override LSM_CONF_ environment variables, which override the
properties file, which may be that of jobs/kafka_to_lsm.py.
Exit status: 0 done or stopped by SIGTERM, 1 a clustering failed, 2 an option is wrong or there is no table, 130 stopped
by Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from streaming_lsm.scripts import importing

with importing("cluster"):
    from streaming_lsm import LsmTable
    from streaming_lsm.service_job.command import CancellableEngine, ServiceJob, run_job
    from streaming_lsm.services.clustering.worker import ClusteringWorker
    from streaming_lsm.services.context import Engine

_NAME = "cluster"


def main(arguments: list[str] | None = None) -> int:
    """Run the job; returns its exit status."""
    return run_job(ServiceJob(_NAME, _worker, schedules=True), __doc__ or "", _spark, arguments)


def _worker(table: LsmTable, engine: Engine, given: argparse.Namespace) -> ClusteringWorker:
    return table.services.clustering_worker(engine, schedules=not given.no_schedule)


@contextmanager
def _spark(name: str, cores: int | None) -> Iterator[CancellableEngine]:
    # Threads need no Spark.
    with importing(_NAME):
        from streaming_lsm.spark.service_engine import service_engine
    with service_engine(name, cores) as engine:
        yield engine


if __name__ == "__main__":
    sys.exit(main())
