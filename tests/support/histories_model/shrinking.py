"""Run a history, and if it fails, find a short one that fails in the same way."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.support.histories_model.running import Run
from tests.support.histories_model.steps import Event, History, Step, Write
from tests.support.leaving_out import leave_out


@dataclass(frozen=True)
class Failure:
    """A history that fails.

    Attributes:
        kind: the query that diverged, or the name of an error.
    """

    history: History
    kind: str
    message: str

    def __str__(self) -> str:
        steps = [f"  {number}. {_told(step)}" for number, step in enumerate(self.history.steps, 1)]
        return "\n".join(
            [
                f"seed {self.history.seed}, with the steps and rows left out that it does not need:",
                f"  {self.history.kind}",
                *steps,
                self.message,
            ]
        )


def run_history(history: History, folder: Path) -> Failure | None:
    """Do the steps of a history; return how it failed, None if it did not."""
    try:
        Run.begin(history, folder).all_steps()
    except Exception as error:  # whatever goes wrong is to be told with its history
        kind = getattr(error, "kind", type(error).__name__)
        return Failure(history, kind, f"{type(error).__name__}: {error}")
    return None


def shrink(failure: Failure, *, seconds: float = 20) -> Failure:
    """Leave steps out, then rows, while the history fails in the same way.

    Args:
        seconds: after which it is short enough.
    """
    until = time.monotonic() + seconds
    best = failure

    def fails(history: History) -> bool:
        nonlocal best
        if time.monotonic() > until:
            return False
        with tempfile.TemporaryDirectory() as folder:
            found = run_history(history, Path(folder) / "table")
        if found is None or found.kind != failure.kind:
            return False
        best = found
        return True

    def fails_with_steps(steps: Sequence[Step]) -> bool:
        return fails(replace(best.history, steps=tuple(steps)))

    def fails_with_events(step: int, events: tuple[Event, ...]) -> bool:
        return bool(events) and fails(best.history.without(step, events))

    leave_out(failure.history.steps, fails_with_steps)
    for number, step in enumerate(best.history.steps):
        if isinstance(step, Write):
            leave_out(step.events, partial(fails_with_events, number))
    return best


def _told(step: Step) -> str:
    return str(step) if isinstance(step, Write) else str(getattr(step, "value", step))
