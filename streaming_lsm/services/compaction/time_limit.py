"""Limit the time that a batch waits for compactions (option ``lsm.compact.inline.max.ms``).

A compaction that runs is not stopped: plans are made so small that they fit, and the next one is begun only if the time
that is left suffices for it by the pace of the last ones. What does not fit stays planned, for a later batch or for
another process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum, auto

from streaming_lsm import config
from streaming_lsm.format.actions.compaction_plan import CompactionOperation
from streaming_lsm.services.compaction.pace import CompactionPace
from streaming_lsm.services.context import Engine, ServiceContext
from streaming_lsm.timeline.instant import Instant

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


class TimeLimit:
    """The time that one batch waits for compactions, from its first look at them."""

    def __init__(self, limit_s: float, pace: CompactionPace, width: int, elapsed: Callable[[], float]) -> None:
        """Begin to count.

        Args:
            limit_s: seconds.
            pace: of the last compactions.
            width: number of operations that run at a time.
            elapsed: returns seconds of a clock that only goes forward.
        """
        self.limit_s = limit_s
        self._pace = pace
        self._width = width
        self._elapsed = elapsed
        self._begun = self._last = elapsed()
        self._ran = False

    def room_for(self, operations: Sequence[CompactionOperation]) -> Room:
        """Decide whether to begin a compaction now; the first one of a batch is, unless it never fits.

        A single operation is not left to others, as it cannot be made smaller: it is the first one of a batch.
        """
        seconds, now = self._pace.seconds(operations, self._width), self._elapsed()
        if len(operations) > 1 and seconds > self.limit_s:
            return Room.NEVER
        if self._ran and now - self._begun + seconds > self.limit_s:
            return Room.LATER
        self._ran, self._last = True, now
        return Room.NOW

    def record(self, operations: Sequence[CompactionOperation]) -> None:
        """Record that the compaction for which there was room last is completed."""
        self._pace.record(operations, self._width, self._elapsed() - self._last)

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

    def begin(self, engine: Engine) -> TimeLimit | None:
        """Begin the limit of a batch; None if there is none."""
        limit_ms = self._context.options[config.COMPACT_LIMIT_MS]
        if not limit_ms:
            return None
        return TimeLimit(limit_ms / 1000, self._pace, engine.width, self._context.runtime.elapsed)

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
