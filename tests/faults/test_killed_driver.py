"""SIGKILL of the driver in mid-batch, then the same command again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from streaming_lsm import LsmTable
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.orders import final_rows, make_orders, rows_of, write_source

POINTS = ("begun", "writing", "written", "completed")


def start(folder: Path, *more: str) -> subprocess.Popen[bytes]:
    paths = [str(folder / name) for name in ("source", "table", "checkpoint")]
    command = [sys.executable, "-m", "tests.support.stream_job", *paths, *more]
    with (folder / "job.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def kill_at(folder: Path, point: str) -> None:
    flag = folder / f"reached-{point}"
    job = start(folder, point, str(flag))
    deadline = time.monotonic() + 120
    while not flag.exists():
        assert job.poll() is None, (folder / "job.log").read_text()[-4000:]
        assert time.monotonic() < deadline, f"the job did not reach {point!r}"
        time.sleep(0.05)
    job.send_signal(signal.SIGKILL)
    job.wait()


def test_after_each_kill_the_same_command_goes_on_without_losing_or_repeating_a_batch(tmp_path: Path) -> None:
    orders = []
    for number in range(12):
        part = make_orders(400, seed=number)
        write_source(tmp_path / "source", f"part-{number}", part)
        orders += part
    for point in POINTS:
        kill_at(tmp_path, point)
    last = start(tmp_path)
    assert last.wait(timeout=180) == 0, (tmp_path / "job.log").read_text()[-4000:]

    expected = final_rows(orders)
    path = str(tmp_path / "table")
    assert rows_of(LsmTable(path).scan().to_arrow()) == expected
    assert rows_of(read_snapshot(path)) == expected
    assert validate(path) == [], "an orphan file, or a commit that does not fit its files"
    timeline = LsmTable(path).timeline
    batches = [json.loads(timeline.read_commit(write).extra["lsm.writers"]) for write in timeline.every_write]
    (writer,) = batches[-1]
    assert [ledger[writer][0] for ledger in batches] == [0, 1, 2, 3, 4, 5]
    history = timeline.history
    archived = [found.action for found in history.instants(history.manifest.files)]
    actions = [*archived, *(instant.action for instant in timeline.instants)]
    assert actions.count("rollback") == len(POINTS) - 1
