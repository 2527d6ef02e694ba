"""The memory of a task stays within its budget, whatever the input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BUDGET = 64 << 20


@pytest.mark.parametrize("shape", ["short-keys", "long-keys", "wide-rows"])
@pytest.mark.parametrize("times", [5, 0.35], ids=["five-times-the-budget", "just-within"])
def test_the_peak_is_the_baseline_and_the_budget_and_a_quarter(tmp_path: Path, shape: str, times: float) -> None:
    command = [sys.executable, "-m", "tests.support.peak_memory", str(tmp_path), shape, str(times), str(BUDGET)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["spilled"] > BUDGET // 2) == (times > 1)
    assert BUDGET // 4 < found["counted"] <= BUDGET
    assert found["peak"] <= found["baseline"] + BUDGET * 5 // 4
