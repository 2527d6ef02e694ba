"""A judge that hangs, dies or chatters on standard output is noticed, and replaced at the next request."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.environment import ROOT
from tests.conformance.worker import JudgeLost, Refused, Worker

PROGRAM = """
import os, sys, time
from tests.conformance.serve import claim_stdout, serve
answers = claim_stdout()
os.write(1, b"chatter of a library\\n")
handlers = {"add": lambda a, b: a + b, "hang": lambda: time.sleep(60), "die": lambda: os._exit(7), "pid": os.getpid}
serve(handlers, lambda error: (type(error).__name__, str(error)), answers)
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    command = [sys.executable, "-c", PROGRAM]
    worker = Worker(command, folder=ROOT, environment=dict(os.environ), log=tmp_path / "log")
    yield worker
    worker.stop()


def test_requests_are_answered_by_one_process_whatever_it_prints(worker: Worker, tmp_path: Path) -> None:
    assert worker.ask({"do": "add", "a": 1, "b": 2}, 10) == 3
    assert worker.ask({"do": "pid"}, 10) == worker.ask({"do": "pid"}, 10)
    assert "chatter" in (tmp_path / "log").read_text()


def test_an_error_is_an_answer(worker: Worker) -> None:
    before = worker.ask({"do": "pid"}, 10)
    with pytest.raises(Refused, match="TypeError: unsupported operand") as refused:
        worker.ask({"do": "add", "a": 1, "b": "x" * 5000}, 10)
    assert refused.value.error_class == "TypeError"
    with pytest.raises(Refused, match="KeyError: 'juggle'"):
        worker.ask({"do": "juggle"}, 10)
    assert worker.ask({"do": "pid"}, 10) == before


def test_a_judge_that_hangs_is_ended_and_replaced(worker: Worker) -> None:
    before = worker.ask({"do": "pid"}, 10)
    with pytest.raises(JudgeLost, match=r"did not answer hang within 1 s[\s\S]*chatter"):
        worker.ask({"do": "hang"}, 1)
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)
    assert worker.ask({"do": "pid"}, 10) != before


def test_a_judge_that_dies_is_replaced(worker: Worker) -> None:
    with pytest.raises(JudgeLost, match=r"ended during die \(exit status 7\)"):
        worker.ask({"do": "die"}, 10)
    assert worker.ask({"do": "add", "a": 1, "b": 2}, 10) == 3
