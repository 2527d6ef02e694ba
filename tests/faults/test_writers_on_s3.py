"""Processes that write one table on S3, one of them killed: each batch is committed once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from streaming_lsm import LsmTable
from streaming_lsm.storage.objects.probe import PROBE_NAME
from tests.oracle.validator import validate
from tests.support.object_writer import batch
from tests.support.raw_objects import download
from tests.support.s3_server import S3Server
from tests.support.small_tables import OPTIONS, SCHEMA, shown

BATCHES = 6
WRITERS = ("a", "b", "c")


def start(uri: str, writer: str) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.support.object_writer", uri, writer, str(BATCHES)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env={**os.environ, "PYTHONPATH": str(root)})


def test_three_processes_commit_each_batch_once_though_one_is_killed(
    object_server: S3Server, s3_uri: str, tmp_path: Path
) -> None:
    LsmTable.create(s3_uri, SCHEMA, OPTIONS)
    running = {writer: start(s3_uri, writer) for writer in WRITERS}
    killed = running["b"]
    assert killed.stdout is not None
    killed.stdout.readline()
    killed.kill()
    killed.communicate()
    running["b"] = start(s3_uri, "b")
    for process in running.values():
        process.communicate(timeout=200)
        assert process.returncode == 0
    table = LsmTable(s3_uri, OPTIONS)
    expected = {row for writer in WRITERS for number in range(BATCHES) for row in batch(writer, number)}
    own = {row for row in expected if row[0] != "shared"}
    found = set(shown(table))
    assert {row for row in found if row[0] != "shared"} == own
    (shared,) = found - own
    assert shared in expected
    assert shared[2] == BATCHES - 1
    ledger = json.loads(table.timeline.read_commit(table.timeline.completed_writes[-1]).extra["lsm.writers"])
    assert {writer: last for writer, (last, _) in ledger.items()} == dict.fromkeys(WRITERS, BATCHES - 1)
    actions = Counter(instant.action for instant in table.timeline.every_write)
    assert actions == {"deltacommit": BATCHES * len(WRITERS)}
    accepted = ("folder.missing: .hoodie/", "leftover.lock: .hoodie/lock")
    said = [violation for violation in validate(download(s3_uri, tmp_path / "copy")) if PROBE_NAME not in violation]
    assert [violation for violation in said if not violation.startswith(accepted)] == []
