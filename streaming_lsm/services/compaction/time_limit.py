"""Limit the time that a batch waits for compactions (option ``lsm.compact.inline.max.ms``).

A compaction that runs is not stopped: plans are made so small that they fit, and the next one is begun only if the time
that is left suffices for it by the pace of the last ones. What does not fit stays planned, for a later batch or for
another process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import TypeVar

from streaming_lsm import config
from streaming_lsm.format.actions.compaction_plan import CompactionOperation
from streaming_lsm.services.compaction.pace import CompactionPace
from streaming_lsm.services.context import Engine, ServiceContext
from streaming_lsm.timeline.instant import Instant

T = TypeVar("T")
R = TypeVar("R")

_LOG = logging.getLogger(__name__)

MOST_PENDING = 32
"""Compactions that are pending until batches with a time limit schedule no more: each costs a file per look."""
_SHARE = 0.5
"""Share of the limit for which a plan is made; the rest is for what the estimate misses."""


class Room(Enum):
    """Whether a compaction fits into the time that is left of a limit."""

    NOW = auto()
    LATER = auto()
    """It is begun by a later batch."""
    NEVER = auto()
    """It has several operations and takes longer than the whole limit: it is left to another process."""


class _Timed:
    """An engine that measures for how long it runs tasks."""

    def __init__(self, engine: Engine, elapsed: Callable[[], float]) -> None:
        self._engine = engine
        self._elapsed = elapsed
        self.seconds = 0.0

    @property
    def width(self) -> int:
        """Number of tasks that run at a time."""
        return self._engine.width

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Run a task for every item; see `Engine.map`."""
        begun = self._elapsed()
        yield from self._engine.map(task, items)
        self.seconds += self._elapsed() - begun


class TimeLimit:
    """The time that one batch waits for compactions, from its first look at them.

    Attributes:
        limit_s: seconds.
        engine: runs the compactions.
    """

    def __init__(self, limit_s: float, pace: CompactionPace, engine: Engine, elapsed: Callable[[], float]) -> None:
        """Begin to count.

        Args:
            pace: of the last compactions.
            engine: runs the operations.
            elapsed: returns seconds of a clock that only goes forward.
        """
        self.limit_s = limit_s
        self.engine = _Timed(engine, elapsed)
        self._pace = pace
        self._width = engine.width
        self._elapsed = elapsed
        self._begun = self._last = elapsed()
        self._ran = False

    def room_for(self, operations: Sequence[CompactionOperation], *, is_cut: bool = False) -> Room:
        """Decide whether to begin a compaction now; the first one of a batch is, unless it never fits.

        A single operation is not left to others, as it cannot be made smaller: it is the first one of a batch.

        Args:
            is_cut: whether the plan was cut to this limit. Then it is not left to others either, though the machine
                got slower: its file groups would wait for ever.
        """
        now = self._elapsed()
        small = is_cut or len(operations) <= 1
        if not small and self._pace.fewest_seconds(operations, self._width) > self.limit_s:
            return Room.NEVER
        if self._ran and now - self._begun + self.seconds(operations) > self.limit_s:
            return Room.LATER
        self._ran, self._last, self.engine.seconds = True, now, 0.0
        return Room.NOW

    def record(self, operations: Sequence[CompactionOperation]) -> None:
        """Record that the compaction for which there was room last is completed."""
        merging_s = self.engine.seconds
        around_s = max(0.0, self._elapsed() - self._last - merging_s)
        self._pace.record(operations, self._width, merging_s, around_s)

    def cut(self, operations: Sequence[CompactionOperation]) -> list[tuple[CompactionOperation, ...]]:
        """Cut operations into plans that fit."""
        return self._pace.cut(operations, self._width, self.limit_s * _SHARE)

    def seconds(self, operations: Sequence[CompactionOperation]) -> float:
        """Estimate the seconds of a compaction."""
        return self._pace.seconds(operations, self._width)


class TimeLimits:
    """Begins a time limit for each batch of a process, as the options say."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._pace = CompactionPace()
        self._reported: set[str] = set()
        self._cut: set[str] = set()

    def add_cut(self, plans: Iterable[Instant]) -> None:
        """Remember plans that were cut to the limit."""
        self._cut.update(plan.requested for plan in plans)

    def is_cut(self, plan: Instant) -> bool:
        """Return whether this process cut a plan to the limit."""
        return plan.requested in self._cut

    def begin(self, engine: Engine) -> TimeLimit | None:
        """Begin the limit of a batch; None if there is none."""
        limit_ms = self._context.options[config.COMPACT_LIMIT_MS]
        if not limit_ms:
            return None
        return TimeLimit(limit_ms / 1000, self._pace, engine, self._context.runtime.elapsed)

    def report_too_long(self, plan: Instant, limit: TimeLimit, operations: Sequence[CompactionOperation]) -> None:
        """Log once that a compaction is left to other processes."""
        if plan.requested in self._reported:
            return
        self._reported.add(plan.requested)
        _LOG.warning(
            "%s in %s has %d file groups, for about %.0f s, and %s=%.0f: it is left to `lsm compact` and "
            "jobs/compact.py",
            *(plan.path, self._context.storage.uri, len(operations), limit.seconds(operations)),
            *(config.COMPACT_LIMIT_MS.key, limit.limit_s * 1000),
        )
