"""Detect decided actions that another program undoes (docs/layout.md, "Decision records").

Other programs do not read decision records. They roll back a write that is decided and still pending, and may stop
before its pending files are deleted. To complete it then would publish files that are gone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import WRITE_ACTIONS, Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.decision import Decision
from streaming_lsm.txn.lost_completion import planned_rollbacks

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RevertedActions:
    """Check decisions of dead writers before they are carried out, and collect the actions that are not completed.

    The timeline is loaded for each check, as a rollback may be planned at any time; decisions to be checked are rare.

    Attributes:
        found: the actions that another program undoes.
    """

    storage: Storage
    found: list[Instant] = field(default_factory=list)

    def has(self, pending: Instant, decided: Decision) -> bool:
        """Return whether a pending action is undone by another program, although it was decided to be completed."""
        if not self._is_rolled_back(pending):
            return False
        _LOG.warning("%s in %s is not completed: a rollback of it exists", decided.path, self.storage.uri)
        self.found.append(pending)
        return True

    def _is_rolled_back(self, pending: Instant) -> bool:
        """Return whether a pending rollback, or a completed rollback of a write, names the action.

        A compaction may be run again after a completed rollback.
        """
        timeline = Timeline.load(self.storage)
        if pending.requested in planned_rollbacks(self.storage, timeline):
            return True
        finished = timeline.finished_rollbacks(since=pending.requested)
        return pending.action in WRITE_ACTIONS and pending.requested in finished
