"""How a job ends: what runs comes to its end within the grace, or is put back."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pytest

from streaming_lsm.engine import LocalEngine
from streaming_lsm.service_job.stopping import Stop, StoppableEngine
from streaming_lsm.services.context import EngineStopped

T = TypeVar("T")
R = TypeVar("R")


def test_the_first_signal_gives_grace_and_the_second_none() -> None:
    clock = [0.0]
    stop = Stop(20, lambda: clock[0])
    assert not stop.is_requested
    stop.request(signal.SIGTERM)
    assert stop.is_requested
    assert stop.name == "SIGTERM"
    clock[0] = 19.9
    assert not stop.is_over
    clock[0] = 20.0
    assert stop.is_over
    clock[0] = 5.0
    stop.request(signal.SIGINT)
    assert stop.is_over
    assert stop.is_interrupted


def test_signals_are_handled_while_it_is_installed_and_end_a_wait() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with Stop().installed() as stop:
        begun = time.monotonic()
        stop.wait(0.01)
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
        stop.wait(60)
        assert time.monotonic() - begun < 30
        assert stop.name == "SIGTERM"
        assert not stop.is_interrupted
        stop.wait(60)
        assert time.monotonic() - begun < 30, "no wait begins after a signal"
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_interrupted
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_files_are_open_only_while_it_is_installed() -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = count()
    with Stop().installed():
        assert count() == before + 2
    assert count() == before


def test_within_the_grace_all_tasks_are_run() -> None:
    stop, said = Stop(60), list[str]()

    def task(number: int) -> int:
        if number == 0:
            stop.request()
            deadline = time.monotonic() + 30
            while not said and time.monotonic() < deadline:
                time.sleep(0.01)
        return number * 2

    engine = StoppableEngine(LocalEngine(1), stop, tell=said.append)
    assert list(engine.map(task, range(4))) == [0, 2, 4, 6]
    assert said == ["SIGTERM: what is being run has 60 s to end, then it is put back; a second signal puts it back now"]


def test_after_the_grace_no_further_task_is_begun() -> None:
    stop, begun = Stop(), list[int]()

    def task(number: int) -> None:
        begun.append(number)
        if number == 1:
            stop.request()
            stop.request()

    engine = StoppableEngine(LocalEngine(1), stop, tell=lambda _: None)
    with pytest.raises(EngineStopped, match="stopped by SIGTERM"):
        list(engine.map(task, range(100)))
    assert len(begun) <= 4, "those that were begun, or waited for a thread"


class Cancelled:
    """An engine whose tasks end with an error when they are cancelled, as Spark's."""

    width = 2

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        assert list(items)
        assert self.cancelled.wait(60)
        raise RuntimeError("job 1 was cancelled")
        yield


def test_tasks_that_can_be_cancelled_are_and_their_error_is_no_failure() -> None:
    stop, engine = Stop(), Cancelled()
    stop.request()
    stop.request()
    stoppable = StoppableEngine(engine, Stop(), engine.cancelled.set, lambda _: None)
    assert stoppable.width == 2
    stoppable = StoppableEngine(engine, stop, engine.cancelled.set, lambda _: None)
    with pytest.raises(EngineStopped):
        list(stoppable.map(str, []))


def test_an_error_of_a_task_is_raised_as_it_is() -> None:
    engine = StoppableEngine(LocalEngine(1), Stop())
    with pytest.raises(ValueError, match="invalid literal"):
        list(engine.map(int, ["1", "x"]))
