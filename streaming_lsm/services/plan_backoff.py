"""Try failed plans again after ever longer pauses."""

from __future__ import annotations

from collections.abc import Iterable

from streaming_lsm.timeline.instant import Instant

_LONGEST = 64


class PlanBackoff:
    """Exponential backoff for failed compaction plans.

    A failed plan is tried again after 1, 2, 4, … further writes, at most 64, as it may fail only after merging nearly
    all of its file groups. The backoff is kept in memory: another process tries the plan at once.
    """

    def __init__(self) -> None:
        self._pauses: dict[str, tuple[int, int]] = {}

    def due(self, planned: Iterable[Instant]) -> list[Instant]:
        """Select the plans to try after this write; call it once for each write, with all pending plans."""
        before, due = self._pauses, []
        self._pauses = {}
        for plan in planned:
            left, length = before.get(plan.requested, (0, 0))
            self._pauses[plan.requested] = (max(0, left - 1), length)
            if not left:
                due.append(plan)
        return due

    def begin(self, plan: Instant) -> None:
        """Record an attempt at a plan. If the plan is still pending at the next call of `due`, the attempt failed."""
        _, length = self._pauses.get(plan.requested, (0, 0))
        length = min(2 * length or 1, _LONGEST)
        self._pauses[plan.requested] = (length, length)
