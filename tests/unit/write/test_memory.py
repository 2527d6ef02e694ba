"""The memory of a task stays within its budget, whatever the input."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.crash_points import sample

BUDGET = 64 << 20


@dataclass(frozen=True)
class Peaks:
    """What a process found out about itself: bytes; `baseline` and `peak` as the kernel counts them."""

    baseline: int
    peak: int
    counted: int
    spilled: int

    @property
    def within_budget(self) -> bool:
        return self.peak <= self.baseline + BUDGET * 5 // 4


def measure(folder: Path, shape: str, times: float) -> Peaks:
    command = [sys.executable, "-m", "tests.support.peak_memory", str(folder), shape, str(times), str(BUDGET)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return Peaks(**json.loads(done.stdout))


SHAPES = [
    (shape, times, f"{name}-{shape}")
    for times, name in ((3, "three-times-the-budget"), (0.35, "just-within"))
    for shape in ("short-keys", "long-keys", "wide-rows")
]


@pytest.mark.parametrize(("shape", "times"), [pytest.param(*case, id=name) for *case, name in sample(SHAPES, 0, 6)])
def test_the_peak_is_the_baseline_and_the_budget_and_a_quarter(tmp_path: Path, shape: str, times: float) -> None:
    found = measure(tmp_path, shape, times)
    assert (found.spilled > BUDGET // 2) == (times > 1)
    assert BUDGET // 4 < found.counted <= BUDGET
    assert found.within_budget, found


@pytest.mark.parametrize("shape", sample(["one-hot-key-tombstones", "few-large-rows", "one-hot-key"], 0, 3))
def test_a_few_rows_or_one_key_may_have_most_of_the_bytes(tmp_path: Path, shape: str) -> None:
    found = measure(tmp_path, shape, 3)
    assert found.spilled > 0
    assert found.counted <= BUDGET
    assert found.within_budget, found


@pytest.mark.parametrize("times", [0.3, 1.5])
def test_a_look_up_of_keys_stays_within_the_budget(tmp_path: Path, times: float) -> None:
    found = measure(tmp_path, "global-index", times)
    assert 0 < found.counted <= BUDGET
    assert found.within_budget, found


def test_a_base_file_of_large_rows_is_rewritten_within_the_budget(tmp_path: Path) -> None:
    found = measure(tmp_path, "large-base-rows", 3.2)
    assert 0 < found.counted <= BUDGET
    assert found.within_budget, found


def test_a_key_whose_events_all_count_is_loaded_whole_and_counted(tmp_path: Path) -> None:
    found = measure(tmp_path, "one-hot-key-falling", 2)
    assert found.counted > BUDGET
    assert found.peak <= found.baseline + found.counted * 5 // 4
