"""A hostile file is a named error, or is read, at a bounded cost."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import repeated_values
from tests.support.hostile_files import COMMIT, SHAPES


@dataclass(frozen=True)
class Measured:
    """What the processes printed, by shape, and their errors."""

    costs: dict[str, dict[str, Any]]
    errors: str


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    command = [sys.executable, "-m", "tests.support.hostile_files", str(tmp_path_factory.mktemp("hostile"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return Measured({line["shape"]: line for line in lines}, done.stderr)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_hostile_file_is_refused_by_name_at_a_bounded_cost(measured: Measured, shape: str) -> None:
    assert shape in measured.costs, measured.errors[-2000:]
    found = measured.costs[shape]
    name = SHAPES[shape][0]
    assert found["said"].startswith(("CorruptFileError: ", "LockTimeout: ")), found
    assert (".deltacommit: " if name == COMMIT else name) in found["said"]
    assert found["seconds"] <= 2
    assert found["rise"] <= 256 << 20


# The file is not refused but read to its end, in bounded batches; the seconds are those of that read. Compaction misses
# the 2 s and 256 MiB of the other cases: it takes 2 s of CPU and 366 MiB when nothing else runs.
@pytest.mark.parametrize(("way", "seconds", "most"), [("file", 2, 256), ("scan", 2, 256), ("compaction", 8, 448)])
def test_two_gigabytes_of_repeated_values_are_read_in_bounded_time_and_memory(
    tmp_path: Path, way: str, seconds: int, most: int
) -> None:
    """A file of 50 kB decodes to 2 GB. A compaction holds row groups of 128 MiB of the file that it writes too."""
    command = [sys.executable, "-m", "tests.support.repeated_values", str(tmp_path), way]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["rows"] == repeated_values.ROWS
    assert found["seconds"] <= seconds
    assert found["rise"] <= most << 20
