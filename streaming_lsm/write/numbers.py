"""Count and time the work of one task and of a whole batch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import Generic, TypeVar

from streaming_lsm.format.actions.commit import WriteStat

T = TypeVar("T")

Counts = Mapping[str, int]
OTHER_FIELDS = "(other fields)"
"""Stands for fields that are not counted by name."""
MOST_FIELDS = 100
"""Names of unknown fields that a commit keeps."""


@dataclass
class InputCounts:
    """Counts the input of a task, while it reads.

    Attributes:
        bytes: size of the batches as Spark handed them over, messages or rows.
        unknown_fields: upserts by field of theirs that the table does not have.
        changing_schemas: see `TaskNumbers`.
    """

    bytes: int = 0
    unknown_fields: Counts = field(default_factory=dict)
    changing_schemas: Set[int] = field(default_factory=set)


@dataclass(frozen=True)
class TaskNumbers:
    """Counts and times of one task, or of several.

    Attributes:
        rows_in: events taken in; those set aside as dead letters are not among them.
        rows_kept, rows_deleted: rows and deletes handed over to be written.
        rows_added: deletes of rows that move, and copies of events for further rows of their keys.
        rows_replaced: events that another one of the same key in the same batch made void.
        spilled_bytes: bytes of sorted runs written to disk.
        peak_bytes: the most memory that one task has counted at a time.
        dead_letters: events set aside.
        unknown_fields: upserts by field of theirs that the table does not have (`decode/unknown_fields.py`).
        changing_schemas: ids of schemas of messages that change the table's columns. If there is one, the task has
            left out rows, and the batch has to be written again with these columns.
        receive_ms, sort_ms, write_ms: time spent waiting for input; checking, sorting, spilling and merging; writing
            files. Of several tasks the longest, as tasks run side by side.
    """

    rows_in: int = 0
    rows_kept: int = 0
    rows_deleted: int = 0
    rows_added: int = 0
    rows_replaced: int = 0
    spilled_bytes: int = 0
    peak_bytes: int = 0
    dead_letters: int = 0
    unknown_fields: Counts = field(default_factory=dict)
    changing_schemas: frozenset[int] = frozenset()
    receive_ms: int = 0
    sort_ms: int = 0
    write_ms: int = 0

    @staticmethod
    def joined(parts: Iterable[TaskNumbers]) -> TaskNumbers:
        """Add up the numbers of several tasks."""
        found = list(parts)
        return TaskNumbers(
            rows_in=sum(part.rows_in for part in found),
            rows_kept=sum(part.rows_kept for part in found),
            rows_deleted=sum(part.rows_deleted for part in found),
            rows_added=sum(part.rows_added for part in found),
            rows_replaced=sum(part.rows_replaced for part in found),
            spilled_bytes=sum(part.spilled_bytes for part in found),
            peak_bytes=max((part.peak_bytes for part in found), default=0),
            dead_letters=sum(part.dead_letters for part in found),
            unknown_fields=added(part.unknown_fields for part in found),
            changing_schemas=frozenset[int]().union(*(part.changing_schemas for part in found)),
            receive_ms=max((part.receive_ms for part in found), default=0),
            sort_ms=max((part.sort_ms for part in found), default=0),
            write_ms=max((part.write_ms for part in found), default=0),
        )

    def within(self, spent_ms: int) -> TaskNumbers:
        """Raise the receiving time to the part of `spent_ms` that is neither sorting nor writing.

        The tasks that write do not see how long others read and sent.
        """
        return replace(self, receive_ms=max(self.receive_ms, spent_ms - self.sort_ms - self.write_ms))


NUMBERS_KEY = "lsm.numbers"
"""Key of a batch's numbers in a commit's extra metadata."""


@dataclass(frozen=True)
class BatchNumbers:
    """Counts and times of one committed batch.

    Attributes:
        rows_in: events taken in; those set aside as dead letters are not among them.
        rows_deduplicated: events that another one of the same key in the batch made void.
        rows_deleted: deletes written.
        files, bytes: written, and their size.
        spilled_bytes: sorted runs that went to local disk on the way.
        peak_bytes: the most memory that one task has counted against `lsm.write.buffer.bytes`.
        shuffle_ms: longest time that a task waited for its input; on Spark all that is neither sorting nor writing:
            reading the batch, checking and sending its rows, starting tasks.
        sort_ms, write_ms: longest time that a task took to check, sort and merge, and to write files.
        dead_letters: events set aside.
        unknown_fields: upserts by field of theirs that the table does not have, at most `MOST_FIELDS` names, the most
            frequent first, and `OTHER_FIELDS`.
        commit_ms: from the last task's end to the completed instant; None in the commit's own metadata.
        log_files: of the file slice that has most of them, this batch's included.
        wait_ms: waiting for other writers, and for the table's lock; None in the commit's own metadata, as the others
            that follow.
        lock_ms: for which the lock was held.
        conflicts: attempts at the batch that were in conflict with other writes.
    """

    rows_in: int
    rows_deduplicated: int
    rows_deleted: int
    files: int
    bytes: int
    spilled_bytes: int
    peak_bytes: int
    shuffle_ms: int
    sort_ms: int
    write_ms: int
    log_files: int
    dead_letters: int = 0
    unknown_fields: Counts = field(default_factory=dict)
    commit_ms: int | None = None
    wait_ms: int | None = None
    lock_ms: int | None = None
    conflicts: int | None = None

    @staticmethod
    def of(tasks: TaskNumbers, stats: Sequence[WriteStat], log_files: int) -> BatchNumbers:
        """Compute the numbers of a batch that is about to be committed."""
        return BatchNumbers(
            rows_in=tasks.rows_in,
            rows_deduplicated=tasks.rows_replaced,
            rows_deleted=tasks.rows_deleted,
            files=len(stats),
            bytes=sum(stat.total_bytes for stat in stats),
            spilled_bytes=tasks.spilled_bytes,
            peak_bytes=tasks.peak_bytes,
            shuffle_ms=tasks.receive_ms,
            sort_ms=tasks.sort_ms,
            write_ms=tasks.write_ms,
            log_files=log_files,
            dead_letters=tasks.dead_letters,
            unknown_fields=most_frequent(tasks.unknown_fields),
        )

    def encode(self) -> str:
        """Encode as JSON for the commit's metadata; numbers not known yet are left out."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})

    def line(self) -> str:
        """Format all numbers in one line, for the log."""
        return ", ".join(
            f"{name}={value:,}" if isinstance(value, int) else f"{name}={value}"
            for name, value in asdict(self).items()
            if value not in (None, {})
        )


def added(parts: Iterable[Counts]) -> Counts:
    """Add up counts by name; the result is in the order of names."""
    every: Counter[str] = Counter()
    for part in parts:
        every.update(part)
    return dict(sorted(every.items()))


def most_frequent(counts: Counts, most: int = MOST_FIELDS) -> Counts:
    """Keep the `most` largest counts in descending order, and add the others up as `OTHER_FIELDS`."""
    ordered = sorted(counts.items(), key=lambda each: (each[0] == OTHER_FIELDS, -each[1], each[0]))
    rest = sum(count for name, count in ordered[most:] if name != OTHER_FIELDS) + counts.get(OTHER_FIELDS, 0)
    kept = {name: count for name, count in ordered[:most] if name != OTHER_FIELDS}
    return {**kept, OTHER_FIELDS: rest} if rest else kept


class Timed(Generic[T]):
    """Iterates, and adds up the time of waiting for items.

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
