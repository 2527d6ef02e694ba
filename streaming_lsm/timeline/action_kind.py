"""Describe the kinds of actions that this package runs: whether they are planned, and how a failure is handled."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from streaming_lsm.timeline.instant import WRITE_ACTIONS

COMPACTION, LOG_COMPACTION, CLUSTERING = "compaction", "logcompaction", "clustering"
CLEAN, ROLLBACK = "clean", "rollback"
SAVEPOINT, RESTORE = "savepoint", "restore"
INDEXING = "indexing"
COMPACTIONS = (COMPACTION, LOG_COMPACTION)
"""Planned actions that merge the files of single file groups."""
REWRITES = (*COMPACTIONS, CLUSTERING)
"""Planned actions that write files of their own, and change no row."""


class OnFailure(Enum):
    """State how an action is handled that was begun and not completed."""

    ROLL_BACK = auto()
    """Its files are deleted and its instant leaves the timeline."""
    PUT_BACK = auto()
    """Its files are deleted and it is reverted to requested; the next run has the same instant."""
    LEAVE = auto()
    """Its instant leaves the timeline; no data file is its own."""
    KEEP = auto()
    """It stays inflight, and the next writer runs the same plan again, as the action is idempotent."""


@dataclass(frozen=True, slots=True)
class ActionKind:
    """Describe one kind of action.

    Attributes:
        action: name of the action while it is pending.
        on_failure: how an action that is not completed is handled.
        is_planned: whether the action is scheduled with a plan and run later, possibly by another process.
    """

    action: str
    on_failure: OnFailure
    is_planned: bool

    @property
    def has_runs(self) -> bool:
        """Whether one instant may have several runs, one after the other."""
        return self.on_failure in (OnFailure.PUT_BACK, OnFailure.KEEP)


_KINDS = {
    kind.action: kind
    for kind in (
        *(ActionKind(action, OnFailure.ROLL_BACK, is_planned=False) for action in sorted(WRITE_ACTIONS)),
        *(ActionKind(action, OnFailure.PUT_BACK, is_planned=True) for action in REWRITES),
        ActionKind(CLEAN, OnFailure.KEEP, is_planned=True),
        ActionKind(ROLLBACK, OnFailure.KEEP, is_planned=False),
        ActionKind(RESTORE, OnFailure.KEEP, is_planned=False),
        ActionKind(SAVEPOINT, OnFailure.ROLL_BACK, is_planned=False),
        ActionKind(INDEXING, OnFailure.LEAVE, is_planned=False),
    )
}


def kind_of(action: str) -> ActionKind:
    """Return the kind of an action, given by its pending name.

    Raises:
        ValueError: this release does not run such actions.
    """
    if action not in _KINDS:
        raise ValueError(f"{action!r} is not run by this release: expected one of {', '.join(sorted(_KINDS))}")
    return _KINDS[action]


def planned_kind(action: str) -> ActionKind:
    """Return the kind of an action that is planned before it is run.

    Raises:
        ValueError: the action is not planned first, or this release does not run it.
    """
    kind = kind_of(action)
    if not kind.is_planned:
        raise ValueError(f"{action!r} is not planned first: compactions, clusterings and cleans are")
    return kind
