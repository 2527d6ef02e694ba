"""Look at a table once, or again and again until a signal comes.

A *look* is a call of a worker's `look`, see `streaming_lsm.services.compaction.worker`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from streaming_lsm.errors import ConfigError, LsmError, TableNotFound
from streaming_lsm.service_job.messages import Event, message, reason
from streaming_lsm.service_job.stopping import Stop
from streaming_lsm.services.context import EngineStopped
from streaming_lsm.services.plan_worker import Failed
from streaming_lsm.storage.failures import named_failures

INTERVAL_S = 10.0
"""Seconds between two looks, if the command line names none."""
_LONGEST_S = 300.0


class Worker(Protocol):
    """Looks for work of one kind on one table."""

    @property
    def idle(self) -> str:
        """Say why the last look found nothing to do."""
        ...

    def look(self, is_stopping: Callable[[], bool]) -> Iterator[Event]:
        """Do what there is to do, and yield an event for each action."""
        ...


@dataclass(frozen=True)
class ServiceLoop:
    """Runs the looks of one job, and prints what they do.

    Attributes:
        name: name of the program, for its messages.
        open: opens the table and creates the worker.
        stop: says when to end.
    """

    name: str
    open: Callable[[], Worker]
    stop: Stop

    def once(self) -> bool:
        """Look once; returns whether nothing failed.

        Raises:
            LsmError: the table cannot be opened or read.
        """
        worker = self.open()
        shown, sound = 0, True
        for event in self._events(worker):
            shown, sound = shown + 1, sound and not isinstance(event, Failed)
        if not shown and not self.stop.is_requested:
            self._say(worker.idle)
        return sound

    def watch(self, interval_s: float, table: str) -> None:
        """Look every `interval_s` seconds until a signal comes; a look that fails is tried again after a longer pause.

        Raises:
            LsmError: the table cannot be opened, or its settings were changed and it cannot be opened again.
            EngineStopped: the engine lost its processes.
        """
        worker = self.open()
        self._say(f"watching {table}, a look every {interval_s:g} s")
        failures = 0
        while not self.stop.is_requested:
            try:
                failed = False
                for event in self._events(worker):
                    failed = failed or (isinstance(event, Failed) and event.planned is None)
            except ConfigError as error:
                self._complain(f"{reason(error)}: opened again")
                worker, failed = self.open(), True
            except TableNotFound:
                raise
            except (LsmError, OSError, pa.ArrowException) as error:
                self._complain(f"{reason(error)}; tried again")
                failed = True
            failures = failures + 1 if failed else 0
            self.stop.wait(pause_s(interval_s, failures))

    def _events(self, worker: Worker) -> Iterator[Event]:
        try:
            with named_failures():
                for event in worker.look(lambda: self.stop.is_requested):
                    self._tell(event)
                    yield event
        except EngineStopped:
            if not self.stop.is_requested:
                raise

    def _tell(self, event: Event) -> None:
        if isinstance(event, Failed):
            self._complain(message(event))
        else:
            self._say(message(event))

    def _say(self, text: str) -> None:
        print(text, flush=True)

    def _complain(self, text: str) -> None:
        print(f"{self.name}: {text}", file=sys.stderr, flush=True)


def pause_s(interval_s: float, failures: int) -> float:
    """Return the seconds until the next look: doubled by each failure in a row, up to five minutes."""
    return max(interval_s, min(interval_s * 2.0 ** min(failures, 32), _LONGEST_S))
