"""Read several files in parallel."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from streaming_lsm.storage.base import Storage

_MOST_THREADS = 8
S = TypeVar("S")
T = TypeVar("T")


def read_in_threads(read: Callable[[S], T], files: Sequence[S], storage: Storage, threads: int = 0) -> list[T]:
    """Read files; without a second thread in the caller's.

    Args:
        read: reads one.
        files: the files, or what is made of several.
        storage: where they are.
        threads: number of threads; 0 for a default: one a core for a file system, eight for an object store, whose
            answers take longer than decoding them.
    """
    usual = min(os.cpu_count() or 1, _MOST_THREADS) if storage.is_file_system else _MOST_THREADS
    width = min(threads or usual, len(files))
    if width < 2:
        return [read(file) for file in files]
    with ThreadPoolExecutor(width) as pool:
        return list(pool.map(read, files))
