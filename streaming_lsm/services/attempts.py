"""Which of the plans that wait are tried after a write."""

from __future__ import annotations

from collections.abc import Iterable

from streaming_lsm.timeline.instant import Instant

_LONGEST = 64


class Attempts:
    """The plans that one process tried, and how many writes each is left alone since.

    A plan that cannot be carried out may be found out only when all its file groups but one are merged. So it is tried
    again after 1, 2, 4, … further writes, at most 64. Another process knows nothing of it and tries at once.
    """

    def __init__(self) -> None:
        self._pauses: dict[str, tuple[int, int]] = {}

    def due(self, waiting: Iterable[Instant]) -> list[Instant]:
        """The plans to be tried after this write; to be asked once for each write, with all that wait."""
        before, due = self._pauses, []
        self._pauses = {}
        for plan in waiting:
            left, length = before.get(plan.requested, (0, 0))
            self._pauses[plan.requested] = (max(0, left - 1), length)
            if not left:
                due.append(plan)
        return due

    def begin(self, plan: Instant) -> None:
        """The plan is tried now. If it still waits after that, it has failed."""
        _, length = self._pauses.get(plan.requested, (0, 0))
        length = min(2 * length or 1, _LONGEST)
        self._pauses[plan.requested] = (length, length)
