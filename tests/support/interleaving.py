"""Drivers that are stopped at a numbered storage call, and go on when others have done something in between.

Each driver is a thread with a process identity of its own, and one of them runs at a time: what is tested is the order
of their storage calls, never luck. A driver that is stopped counts as dead to the others, as one on another machine
does whose lease has ended.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from streaming_lsm import LsmTable
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.uris import open_storage
from tests.support.faulty_storage import Fault, FaultyStorage
from tests.support.service_tables import OPTIONS_OF_SERVICES
from tests.support.writers import NO_WAIT, NOON_MS, new_process

T = TypeVar("T")
PATIENCE_S = 60
_clock = itertools.count(NOON_MS)
Work = Callable[[LsmTable], object]


def one_clock() -> int:
    """Milliseconds of one clock for all drivers, so that no two of them draw the same time."""
    return next(_clock)


class _Halting(FaultyStorage):
    """Stops whoever makes the call of this number, until it is let go on."""

    def __init__(self, inner: Storage, number: int | None, dies_at: int | None) -> None:
        super().__init__(inner, {} if dies_at is None else {dies_at: Fault.KILL_BEFORE})
        self._number = number
        self.halted, self.let_go = threading.Event(), threading.Event()

    def _call(self, name: str, path: str, effect: Callable[[], T]) -> T:
        if len(self.calls) == self._number:
            self.halted.set()
            assert self.let_go.wait(PATIENCE_S)
        return super()._call(name, path, effect)


class Driver:
    """One driver at work, or stopped.

    Attributes:
        calls: its storage calls so far.
        error: what its work raised.
        result: what it returned.
    """

    def __init__(
        self, root: Path | str, work: Work, stop_at: int | None = None, *, dies_at: int | None = None, **options: object
    ) -> None:
        """Open the table, and work until the storage call of this number, from 0, or to the end.

        Args:
            stop_at: waits before this call until `go_on`.
            dies_at: the process is killed before this call.
            options: of the table; one of None is left out.
        """
        self._storage = _Halting(open_storage(root), stop_at, dies_at)
        self.calls = self._storage.calls
        self.error: BaseException | None = None
        self.result: object = None
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, args=(root, work, options), daemon=True)
        self._thread.start()
        assert self._storage.halted.wait(PATIENCE_S), "a driver neither ends nor comes to its call"

    def _run(self, root: Path | str, work: Work, options: dict[str, object]) -> None:
        try:
            given = {**OPTIONS_OF_SERVICES, **NO_WAIT, **options}
            table = LsmTable(root, {key: value for key, value in given.items() if value is not None})
            table.runtime = new_process(clock=one_clock)
            table.storage = self._storage
            self.result = work(table)
        except BaseException as error:
            self.error = error
        finally:
            self._has_ended = True
            self._storage.halted.set()

    @property
    def is_stopped(self) -> bool:
        """Whether it stands at its call; False when it has ended."""
        return not self._has_ended

    @property
    def stands_at(self) -> tuple[str, str]:
        """Method and path of the last call that it made."""
        return self.calls[-1] if self.calls else ("open", "")

    def go_on(self) -> None:
        """Let it go on to its end."""
        self._storage.let_go.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "a driver does not end"
