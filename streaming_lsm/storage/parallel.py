"""Read several files in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_THREADS = 8
S = TypeVar("S")
T = TypeVar("T")


def read_in_threads(read: Callable[[S], T], files: Sequence[S], threads: int) -> list[T]:
    """Read files; without a second thread in the caller's.

    Args:
        read: reads one.
        files: the files, or what is made of several.
        threads: number of threads; 0 for a default.
    """
    width = min(threads or _THREADS, len(files))
    if width < 2:
        return [read(file) for file in files]
    with ThreadPoolExecutor(width) as pool:
        return list(pool.map(read, files))
