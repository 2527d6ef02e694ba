"""A process of the judge, driven over its pipes."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_LOG_LINES = 40
_STOP_SECONDS = 20


class Refused(Exception):
    """The judge answered with an error, and lives on.

    Attributes:
        error_class: class of its exception.
        message: the exception's message and its causes, at most 2,000 characters.
    """

    def __init__(self, error_class: str, message: str, log: Path) -> None:
        super().__init__(f"{error_class}: {message}\n(more in {log})")
        self.error_class = error_class
        self.message = message


class JudgeLost(Exception):
    """The judge's process did not answer in time, or ended; it is not running any more."""


class Worker:
    """One process that answers requests, started when the first is made and again after it was lost."""

    def __init__(self, command: Sequence[str], *, folder: Path, environment: Mapping[str, str], log: Path) -> None:
        """Say how to start it.

        Args:
            command: program and arguments.
            folder: its working folder.
            environment: all of its variables.
            log: file that its standard error goes to.
        """
        self._command = list(command)
        self._folder = folder
        self._environment = dict(environment)
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()

    def ask(self, request: Mapping[str, object], timeout: float) -> Any:
        """Send a request and wait for what it gives.

        Args:
            request: `do` and the handler's arguments.
            timeout: seconds; starting the process has its own.

        Raises:
            Refused: the answer is an error.
            JudgeLost: no answer in time, or the process ended; the message has the end of its log.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise self._lost(f"had ended before {request['do']}") from None
        return self._receive(str(request["do"]), timeout)

    def stop(self) -> None:
        """Ask the process to end, and kill it when it does not."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write('{"do": "stop"}\n')
            process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill(process)
        self._drain(process)

    def _start(self) -> subprocess.Popen[str]:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            # A session of its own, so that killing the group takes the JVM along.
            process = subprocess.Popen(
                self._command, cwd=self._folder, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=log, text=True, encoding="utf-8", start_new_session=True,
            )  # fmt: skip
        self._process, self._answers = process, queue.Queue()
        threading.Thread(target=_forward, args=(process, self._answers), daemon=True).start()
        self._receive("start", timeout=120)
        return process

    def _receive(self, asked: str, timeout: float) -> Any:
        try:
            line = self._answers.get(timeout=timeout)
        except queue.Empty:
            raise self._lost(f"did not answer {asked} within {timeout:.0f} s") from None
        if line is None:
            raise self._lost(f"ended during {asked}")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"]["class"], answer["error"]["message"], self._log)
        return answer["ok"]

    def _lost(self, what: str) -> JudgeLost:
        process, self._process = self._process, None
        assert process is not None
        self._kill(process)
        self._drain(process)
        return JudgeLost(
            f"the judge {what} (exit status {process.returncode}). The end of {self._log}:\n{self._tail()}"
        )

    def _kill(self, process: subprocess.Popen[str]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(_STOP_SECONDS)

    def _drain(self, process: subprocess.Popen[str]) -> None:
        # The reading thread closes standard output at its end.
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:])


def _forward(process: subprocess.Popen[str], answers: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            answers.put(line)
    answers.put(None)
