"""Do the cleans of a table in a process of their own, while streams go on; see `Cleaner`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from streaming_lsm.format.actions.clean import CleanMetadata
from streaming_lsm.services.cleaning.planner import Retention
from streaming_lsm.services.cleaning.runner import Cleaner
from streaming_lsm.services.context import Engine, ServiceContext
from streaming_lsm.timeline.clock import Clock, system_clock
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.txn.planned_actions import pending_cleans


@dataclass(frozen=True)
class Cleaned:
    """A clean was completed.

    Attributes:
        completed: the clean.
        files: number of deleted files.
    """

    completed: Instant
    files: int


class CleaningWorker:
    """Runs pending cleans, and plans and runs one when there may be files to delete."""

    def __init__(self, context: ServiceContext, engine: Engine, *, clock: Clock = system_clock) -> None:
        """Create the worker without reading the table.

        Args:
            engine: deletes files, several at a time.
            clock: the current time, for writes that are rolled back lazily, and hours that are retained.
        """
        self._clock = clock
        self._context = context
        self._engine = engine
        self._cleaner = Cleaner(context, clock=clock, with_history=True)
        self._is_left = False

    @property
    def idle(self) -> str:
        """Say why the last look found nothing to do."""
        if self._is_left:
            return "nothing to clean: another process cleans"
        return f"nothing to clean: every file slice is needed ({Retention.of(self._context.options)})"

    def look(self, is_stopping: Callable[[], bool] = lambda: False) -> Iterator[Cleaned]:
        """Clean if there may be something to delete; an idle look lists the timeline's folder.

        Args:
            is_stopping: nothing is begun when it returns True.

        Raises:
            EngineStopped: the engine was told to stop; the clean stays planned.
            LsmError, OSError: the clean failed; it stays planned, if it was.
        """
        timeline = self._context.load_timeline()
        if not timeline.completed_writes:  # a run that was interrupted by the removal may have left its inflight file
            self._context.check_unchanged()
        pending = pending_cleans(timeline)
        elsewhere = self._context.run_elsewhere(timeline) if pending else frozenset()
        self._is_left = bool(pending) and all(clean.requested in elsewhere for clean in pending)
        if self._is_left or is_stopping() or not self._cleaner.is_due(timeline, self._clock()):
            return
        completed = self._cleaner.clean(self._engine)
        if completed is not None:
            metadata = CleanMetadata.decode(self._context.storage.read(completed.path), completed.path)
            yield Cleaned(completed, sum(map(len, metadata.files.values())))
