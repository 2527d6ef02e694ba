"""Compare the sink's rate on two versions of PySpark, batch by batch in turns: ``python -m tests.matrix.speed``.

MATRIX="3.5-py311 4.2-py311" names two cells, the one to judge and its reference; both environments are made if they are
not there. Exit status: 0 when the first has at least 0.8 of the rate of the second, 1 otherwise.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from statistics import median
from typing import Any

from streaming_lsm.errors import ConfigError
from tests.matrix.cells import ROOT, Cell, chosen
from tests.matrix.environment import find_python, prepare

TARGET = 0.8
_PAIR = "3.5-py311 4.2-py311"
_WARM_UP, _RUNS = 8, 12


class Writer:
    """A process of one cell that writes a batch at each call of `batch`."""

    def __init__(self, cell: Cell) -> None:
        """Start it and wait until its rows are cached."""
        python = find_python(cell.python)
        if python is None:
            raise ConfigError(f"{cell.name}: no interpreter: set MATRIX_PYTHONS")
        command = [str(prepare(cell, python)), "-W", "ignore", "-m", "tests.matrix.sink_rate"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started = self._answer()
        self.name, self.rows = f"{cell.name} (PySpark {started['pyspark']})", int(started["rows"])
        self.taken: list[dict[str, float]] = []

    def batch(self) -> None:
        """Write one batch and keep its times."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.taken.append(self._answer())

    def end(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=120)

    def middle(self, of: str) -> float:
        """The median of the batches after the warm-up."""
        return median(each[of] for each in self.taken[_WARM_UP:])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ConfigError(f"the process of a cell ended with status {self._process.wait(timeout=120)}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def main() -> int:
    """Run both in turns and print the comparison; returns the exit status."""
    judged, reference = writers = [Writer(cell) for cell in chosen(os.environ.get("MATRIX") or _PAIR)]
    try:
        for number in range(_WARM_UP + _RUNS):
            for writer in writers if number % 2 else reversed(writers):
                writer.batch()
            seconds = ", ".join(f"{writer.taken[-1]['seconds']:.2f} s" for writer in writers)
            print(f"batch {number}{' (warm-up)' if number < _WARM_UP else ''}: {seconds}", flush=True)
    finally:
        for writer in writers:
            writer.end()
    print(f"sink, {judged.rows:,} rows a batch, {_RUNS} batches each in turns after {_WARM_UP}; medians")
    for writer in writers:
        rate, cost = writer.rows / writer.middle("seconds"), writer.middle("processor_seconds") / writer.rows * 1e6
        print(f"{writer.name}: {rate:,.0f} rows/s, {cost:.2f} processor seconds per million rows")
    ratio = reference.middle("seconds") / judged.middle("seconds")
    cost = judged.middle("processor_seconds") / reference.middle("processor_seconds")
    print(f"rate: {ratio:.2f} of the reference's (target {TARGET}); processor seconds: {cost:.2f}")
    return int(ratio < TARGET)


if __name__ == "__main__":
    sys.exit(main())
