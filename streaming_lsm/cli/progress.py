"""Show on a terminal how far a long work is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import TypeVar

from streaming_lsm.config import READ_THREADS
from streaming_lsm.engine import LocalEngine
from streaming_lsm.readable_table import ReadableTable

T = TypeVar("T")
R = TypeVar("R")


class ProgressLine:
    """Shows on standard error how far a long work is, if that is a terminal; the line is erased at the end."""

    def __init__(self, what: str) -> None:
        """Begin without a line.

        Args:
            what: what is counted.
        """
        self._what = what
        self._width = 0

    def __enter__(self) -> ProgressLine:
        return self

    def __call__(self, done: int, every: int) -> None:
        """Show numbers."""
        if sys.stderr.isatty():
            line = f"{_bar(done, every)} {done:,} of {every:,} {self._what}"
            self._width = max(self._width, len(line))
            print(f"\r{line:<{self._width}}", end="", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._width:
            print(f"\r{'':<{self._width}}\r", end="", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class ShownEngine:
    """Runs the tasks of a service on threads, and shows how many are done.

    Attributes:
        engine: runs the tasks.
        progress: shows their numbers.
    """

    engine: LocalEngine
    progress: ProgressLine

    @staticmethod
    def of(table: ReadableTable, progress: ProgressLine) -> ShownEngine:
        """Run tasks on as many threads as read the table."""
        return ShownEngine(LocalEngine(table.options[READ_THREADS]), progress)

    @property
    def width(self) -> int:
        """Number of tasks that run at a time."""
        return self.engine.width

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Run a task for every item and yield the results in order."""
        known = items if isinstance(items, Sized) else list(items)
        for done, result in enumerate(self.engine.map(task, known), 1):
            self.progress(done, len(known))
            yield result


_CELLS = 20


def _bar(done: int, every: int) -> str:
    filled = _CELLS * done // max(1, every)
    return f"[{'#' * filled}{'.' * (_CELLS - filled)}]"
