"""Run the services of a table until a signal comes, for ``--watch``."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from streaming_lsm import config
from streaming_lsm.cli.arguments import opened
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import ConfigError
from streaming_lsm.service_job.loop import ServiceLoop, Worker
from streaming_lsm.service_job.stopping import Stop, StoppableEngine
from streaming_lsm.services.context import Engine
from streaming_lsm.table import LsmTable


def watch(arguments: argparse.Namespace, worker: Callable[[LsmTable, Engine], Worker]) -> None:
    """Look for work until a signal comes; the table is opened again if its settings were changed."""
    others = ("dry_run", "schedule_only", "explain", "json")
    given = [f"--{name.replace('_', '-')}" for name in others if getattr(arguments, name, False)]
    if given:
        raise ConfigError(f"--watch does not take {given[0]}: leave one out")
    table, stop = opened(arguments), Stop()
    engine = StoppableEngine(LocalEngine(table.options[config.READ_THREADS]), stop)
    with stop.installed():
        ServiceLoop("lsm", lambda: worker(opened(arguments), engine), stop).watch(arguments.watch, table.path)
    if stop.is_interrupted:
        raise KeyboardInterrupt
    print(f"stopped by {stop.name}")
