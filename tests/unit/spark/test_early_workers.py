"""A worker is started once for an application, and never stands in the way of a sink."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming_lsm import LsmSink
from streaming_lsm.spark import early_workers


class Started:
    """Sessions whose workers were started."""

    def __init__(self) -> None:
        self.sessions: list[Any] = []
        self._added = Event()

    def __call__(self, spark: Any) -> None:
        self.sessions.append(spark)
        self._added.set()
        raise RuntimeError("no such Python")

    def wait(self) -> None:
        assert self._added.wait(60)
        self._added.clear()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    found = Started()
    monkeypatch.setattr(early_workers, "run_empty_task", found)
    monkeypatch.setattr(early_workers, "_STARTED", set())
    return found


def session(application: str) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(applicationId=application))


def test_each_application_gets_a_worker_with_its_first_sink(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = session("one"), session("other")
    for active, is_first in ((one, True), (one, False), (other, True)):
        monkeypatch.setattr(SparkSession, "getActiveSession", lambda found=active: found)
        LsmSink("/nowhere", {})
        if is_first:
            started.wait()
    assert started.sessions == [one, other]


def test_without_a_session_nothing_is_started(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    early_workers.start_workers()
    assert not early_workers._STARTED


def test_a_session_that_has_no_context_is_none_for_it(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: SimpleNamespace())
    LsmSink("/nowhere", {})
    assert not early_workers._STARTED
