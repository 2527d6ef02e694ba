"""Stop a job in order on SIGTERM and Ctrl-C.

The first signal lets the action that runs come to its end, for a time of *grace*; then, or at the second signal, the
action is put back: its tasks that have begun end, no further one is begun, and the action stays planned.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from streaming_lsm.services.context import Engine, EngineStopped

T = TypeVar("T")
R = TypeVar("R")

GRACE_S = 20.0
"""Seconds that an action has to end, fewer than the 30 after which Kubernetes kills a pod."""
_LOOK_S = 0.1


class Stop:
    """Records the signals that a process received; safe to call from a signal handler."""

    def __init__(self, grace_s: float = GRACE_S, elapsed: Callable[[], float] = time.monotonic) -> None:
        """Prepare; no signal is handled before `installed`.

        Args:
            grace_s: seconds that the running action has to end.
            elapsed: returns seconds of a clock that only goes forward.
        """
        self.grace_s = grace_s
        self._elapsed = elapsed
        self._signals: list[int] = []
        self._over_at = float("inf")
        self._pipe: tuple[int, int] | None = None

    @contextmanager
    def installed(self) -> Iterator[Stop]:
        """Handle SIGTERM and SIGINT in the meantime."""
        # A lock, as of an event, would be taken twice if a signal came while this thread holds it.
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[1], False)
        before = {number: signal.signal(number, self._handle) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            pipe, self._pipe = self._pipe, None
            for end in pipe:
                os.close(end)

    def request(self, number: int = signal.SIGTERM) -> None:
        """Record a signal."""
        self._over_at = self._elapsed() if self._signals else self._elapsed() + self.grace_s
        self._signals.append(number)
        if self._pipe is not None:
            with suppress(BlockingIOError):  # it is full of signals
                os.write(self._pipe[1], b"s")

    @property
    def is_requested(self) -> bool:
        """Whether no further action is to be begun."""
        return bool(self._signals)

    @property
    def is_over(self) -> bool:
        """Whether the running action is to be put back."""
        return self._elapsed() >= self._over_at

    @property
    def name(self) -> str:
        """Name of the first signal."""
        return signal.Signals(self._signals[0]).name if self._signals else ""

    @property
    def is_interrupted(self) -> bool:
        """Whether one of the signals was Ctrl-C."""
        return signal.SIGINT in self._signals

    def wait(self, seconds: float) -> None:
        """Wait, until a signal comes at most."""
        if not self.is_requested:
            select.select(self._pipe[:1] if self._pipe else (), (), (), seconds)

    def _handle(self, number: int, _: object) -> None:
        self.request(number)


@dataclass(frozen=True)
class StoppableEngine:
    """An engine that stops when the grace is over; implements `streaming_lsm.services.context.Engine`.

    Attributes:
        engine: runs the tasks.
        stop: says when.
        cancel: ends the tasks that have begun; without it they are waited for.
        tell: gets a message for the operator when the job is to stop while tasks run.
    """

    engine: Engine
    stop: Stop
    cancel: Callable[[], None] | None = None
    tell: Callable[[str], None] = print

    @property
    def width(self) -> int:
        """Number of tasks that run at a time."""
        return self.engine.width

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Run a task for every item and yield the results in order.

        Raises:
            EngineStopped: the grace was over; tasks that had begun have ended.
        """
        with self._watched():
            try:
                yield from self.engine.map(task, self._until_over(items))
            except Exception:
                if self.cancel is not None and self.stop.is_over:
                    raise EngineStopped(f"stopped by {self.stop.name}") from None
                raise

    def _until_over(self, items: Iterable[T]) -> Iterator[T]:
        for item in items:
            if self.stop.is_over:
                raise EngineStopped(f"stopped by {self.stop.name}")
            yield item

    @contextmanager
    def _watched(self) -> Iterator[None]:
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(done,), name="lsm-stop", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()

    def _watch(self, done: threading.Event) -> None:
        told = False
        while not done.wait(_LOOK_S):
            if self.stop.is_requested and not told:
                told = True
                self.tell(
                    f"{self.stop.name}: what is being run has {self.stop.grace_s:.0f} s to end, then it is put back; a "
                    "second signal puts it back now"
                )
            if self.stop.is_over:
                if self.cancel is not None:
                    self.cancel()
                return
