"""Run independent tasks on threads of this process."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class LocalEngine:
    """Runs tasks on threads of this process.

    Attributes:
        threads: number of tasks that run at a time; 0 means one per core.
    """

    threads: int = 0

    @property
    def width(self) -> int:
        """Number of tasks that run at a time."""
        return self.threads or os.cpu_count() or 1

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Run a task for every item and yield the results in order; at most one result per thread is kept waiting.

        A single item is run in the caller's thread.
        """
        items = iter(items)
        first = list(islice(items, 2))
        if len(first) < 2:
            yield from map(task, first)
            return
        with ThreadPoolExecutor(self.width) as pool:
            pending: deque[Future[R]] = deque()
            try:
                for item in chain(first, items):
                    pending.append(pool.submit(task, item))
                    if len(pending) > self.width:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            except BaseException:
                # Nobody takes the results of the tasks that have not begun.
                pool.shutdown(wait=False, cancel_futures=True)
                raise
