"""Measure the time that a compaction waits for the rows that it writes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Timed(Generic[T]):
    """Iterates over blocks and measures the time spent waiting for them."""

    def __init__(self, blocks: Iterable[T]) -> None:
        """Begin to measure."""
        self._blocks = blocks
        self._begun = time.monotonic()
        self._waited = 0.0

    def __iter__(self) -> Iterator[T]:
        """Iterate over the blocks, once."""
        asked = time.monotonic()
        for block in self._blocks:
            self._waited += time.monotonic() - asked
            yield block
            asked = time.monotonic()
        self._waited += time.monotonic() - asked

    @property
    def waited_ms(self) -> int:
        """Milliseconds spent reading and merging."""
        return int(self._waited * 1000)

    @property
    def age_ms(self) -> int:
        """Milliseconds since the merge was created."""
        return int((time.monotonic() - self._begun) * 1000)
