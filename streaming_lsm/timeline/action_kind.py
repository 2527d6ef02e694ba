"""Describe the kinds of actions that this package carries out: how each is planned, and what its failure leaves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from streaming_lsm.timeline.instant import WRITE_ACTIONS

COMPACTION, CLEAN, ROLLBACK = "compaction", "clean", "rollback"


class OnFailure(Enum):
    """What becomes of an action that was begun and not completed."""

    ROLL_BACK = auto()
    """Its files are deleted and its instant leaves the timeline."""
    PUT_BACK = auto()
    """Its files are deleted and it goes back to requested; the next run has the same instant."""
    KEEP = auto()
    """It stays inflight, and the next writer carries the same plan out again: doing it twice changes nothing."""


@dataclass(frozen=True, slots=True)
class ActionKind:
    """One kind of action.

    Attributes:
        action: its name while it is pending.
        on_failure: what becomes of it when it is not completed.
        is_planned: whether it is scheduled with a plan first and carried out later, maybe by another process.
    """

    action: str
    on_failure: OnFailure
    is_planned: bool

    @property
    def has_runs(self) -> bool:
        """Whether one instant may be run several times, by one writer after the other."""
        return self.on_failure is not OnFailure.ROLL_BACK


_KINDS = {
    kind.action: kind
    for kind in (
        *(ActionKind(action, OnFailure.ROLL_BACK, is_planned=False) for action in sorted(WRITE_ACTIONS)),
        ActionKind(COMPACTION, OnFailure.PUT_BACK, is_planned=True),
        ActionKind(CLEAN, OnFailure.KEEP, is_planned=True),
        ActionKind(ROLLBACK, OnFailure.KEEP, is_planned=False),
    )
}


def kind_of(action: str) -> ActionKind:
    """The kind of an action by its pending name.

    Raises:
        ValueError: this release does not carry out such actions.
    """
    if action not in _KINDS:
        raise ValueError(f"{action!r} is not carried out here: expected one of {', '.join(sorted(_KINDS))}")
    return _KINDS[action]
