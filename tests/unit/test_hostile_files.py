"""A hostile file under ``.hoodie`` is a named error that takes two seconds and 256 MiB at most."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hostile_files import COMMIT, SHAPES


@pytest.mark.parametrize("shape", SHAPES)
def test_a_hostile_file_is_refused_by_name_at_a_bounded_cost(tmp_path: Path, shape: str) -> None:
    command = [sys.executable, "-m", "tests.support.hostile_files", str(tmp_path / "t"), shape]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    name = SHAPES[shape][0]
    assert found["said"].startswith(("CorruptFileError: ", "CommitConflict: ")), found
    assert (".deltacommit: " if name == COMMIT else name) in found["said"]
    assert found["seconds"] <= 2
    assert found["rise"] <= 256 << 20
