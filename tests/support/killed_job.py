"""A job process that is killed with all that it started: driver, JVM and Python workers."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_PATIENCE_S = 30


class KilledJob:
    """Runs a command in a session of its own; its output goes to a file.

    A process group is not enough: PySpark's worker daemon makes a group of its own, in the same session.
    """

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> None:
        """Start the command in `folder`; `log` gets its two outputs, after what is there."""
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def status(self) -> int | None:
        """Exit status; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """Kill all processes of the session at once, and wait until none is left."""
        deadline = time.monotonic() + _PATIENCE_S
        while left := _of_session(self._process.pid):
            assert time.monotonic() < deadline, f"processes {left} cannot be killed"
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self._process.poll()
            time.sleep(0.01)
        self._process.wait(_PATIENCE_S)


def _of_session(session: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal():
                state, _, _, of, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(of) == session and state != "Z":
                    found.append(int(entry.name))
    return found
