"""What one task counted and timed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class TaskNumbers:
    """Counts and times of one task, or of several.

    Attributes:
        rows_in: events taken in; those set aside as dead letters are not among them.
        rows_kept, rows_deleted: rows and deletes handed over to be written.
        rows_replaced: events that another one of the same key in the same batch made void.
        spilled_bytes: bytes of sorted runs written to disk.
        peak_bytes: the most memory that one task has counted at a time.
        receive_ms, sort_ms, write_ms: time spent waiting for input; checking, sorting, spilling and merging; writing
            files. Of several tasks the longest, as tasks run side by side.
    """

    rows_in: int = 0
    rows_kept: int = 0
    rows_deleted: int = 0
    rows_replaced: int = 0
    spilled_bytes: int = 0
    peak_bytes: int = 0
    receive_ms: int = 0
    sort_ms: int = 0
    write_ms: int = 0

    @staticmethod
    def joined(parts: Iterable[TaskNumbers]) -> TaskNumbers:
        """The numbers of several tasks together."""
        found = list(parts)
        return TaskNumbers(
            rows_in=sum(part.rows_in for part in found),
            rows_kept=sum(part.rows_kept for part in found),
            rows_deleted=sum(part.rows_deleted for part in found),
            rows_replaced=sum(part.rows_replaced for part in found),
            spilled_bytes=sum(part.spilled_bytes for part in found),
            peak_bytes=max((part.peak_bytes for part in found), default=0),
            receive_ms=max((part.receive_ms for part in found), default=0),
            sort_ms=max((part.sort_ms for part in found), default=0),
            write_ms=max((part.write_ms for part in found), default=0),
        )


class Timed(Generic[T]):
    """An iterator that adds up how long its items were waited for.

    Attributes:
        seconds: the time so far.
    """

    def __init__(self, items: Iterable[T], clock: Callable[[], float] = perf_counter) -> None:
        """Pass `items` on; `clock` tells the time in seconds."""
        self._items, self._clock = iter(items), clock
        self.seconds = 0.0

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        begun = self._clock()
        try:
            return next(self._items)
        finally:
            self.seconds += self._clock() - begun
