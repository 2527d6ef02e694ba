"""Prepare and run pending plans, of compactions and of clusterings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from streaming_lsm.errors import LsmError
from streaming_lsm.services.context import ServiceContext
from streaming_lsm.services.survey import looked
from streaming_lsm.timeline.action_kind import RESTORE, ROLLBACK
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
Find = Callable[[Timeline], "Instant | None"]
"""Finds the plan on a timeline; None if it is not pending."""


def prepare_run(context: ServiceContext, find: Find, prepare: Callable[[Timeline, Instant], T]) -> T | None:
    """Prepare a run before the lock is acquired; None if its plan is not pending any more.

    Raises:
        LsmError, OSError: what `prepare` raises though the plan is pending.
    """

    def look(timeline: Timeline) -> T | None:
        planned = find(timeline)
        return None if planned is None else prepare(timeline, planned)

    try:
        return looked(context, look)
    except (LsmError, OSError):
        now = context.load_timeline()
        if find(now) is None or _is_undone(context, now, find):
            return None
        raise


def _is_undone(context: ServiceContext, timeline: Timeline, find: Find) -> bool:
    """Return whether a rollback or restore has undone a plan; one that a dead process left is finished then."""
    planned = find(timeline)
    is_undoing = any(found.action in (ROLLBACK, RESTORE) for found in timeline.pending)
    if not is_undoing and (planned is None or timeline.has_plan(planned)):
        return False
    with context.transaction() as tx:
        return find(tx.timeline) is None


def run_plans(
    context: ServiceContext, what: str, planned: Iterable[Instant], run: Callable[[str], Instant | None]
) -> Instant | None:
    """Execute pending plans and return the last completed action.

    All are tried even if one fails; the first error is raised at the end.

    Args:
        what: what the plans are of, for the log.
        run: executes the plan of a requested time; None if it is not pending any more.
    """
    last, failed = None, None
    for pending in planned:
        try:
            last = run(pending.requested) or last
        except Exception as error:
            _LOG.warning("%s %s of %s failed: %s", what, pending.requested, context.storage.uri, error)
            failed = failed or error
    if failed is not None:
        raise failed
    return last
