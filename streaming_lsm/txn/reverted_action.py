"""Detect decided actions that another program undoes (docs/layout.md, "Decision records").

Other programs do not read decision records. They roll back a write that is decided and still pending, or revert a
compaction to requested, and may stop before its pending files are deleted, or before they run it again. To complete
the action then would publish files that are gone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import REWRITES
from streaming_lsm.timeline.instant import WRITE_ACTIONS, Instant, State
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.decision_record import Decision
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
        is_put_back = pending.action in REWRITES and self._is_put_back(pending, decided)
        if not is_put_back and not self._is_rolled_back(pending):
            return False
        _LOG.warning("%s in %s is not completed, as another program undoes it", decided.path, self.storage.uri)
        self.found.append(pending)
        return True

    def _is_put_back(self, rewrite: Instant, decided: Decision) -> bool:
        """Return whether the inflight file of a compaction or clustering or a file of its decided run is gone."""
        written = CommitMetadata.decode(decided.data, decided.path).paths
        return not all(self.storage.exists(path) for path in (rewrite.at(State.INFLIGHT).path, *sorted(written)))

    def _is_rolled_back(self, pending: Instant) -> bool:
        """Return whether a pending rollback, or a completed rollback of a write, names the action.

        A compaction may be run again after a completed rollback.
        """
        timeline = Timeline.load(self.storage)
        if pending.requested in planned_rollbacks(self.storage, timeline):
            return True
        if pending.action not in WRITE_ACTIONS:
            return False
        return timeline.is_undone(pending.requested)
