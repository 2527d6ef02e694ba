"""``jobs/compact.py`` and ``jobs/clean.py`` as processes of their own beside a process that writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.format.actions.compaction_plan import CompactionPlan
from streaming_lsm.spark.jvm.java import find_java
from streaming_lsm.txn.planned_actions import pending_cleans, pending_compactions
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.cluster import spark_home
from tests.support.hudi_tables import unpacked
from tests.support.service_writer import batch, model
from tests.support.small_tables import create, rows, shown

ROOT = Path(__file__).parents[2]
BATCHES = 30
OPTIONS: dict[str, object] = {"hoodie.bucket.index.num.buckets": 8, "hoodie.clean.automatic": False}
DUE = "hoodie.compact.inline.max.delta.commits=3"
RETAIN = "hoodie.clean.commits.retained=4"


class Process:
    """A program whose output goes to a file."""

    def __init__(self, log: Path, *command: object) -> None:
        self.log = log
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        with log.open("ab") as output:
            self.running = subprocess.Popen(
                [str(part) for part in command], stdout=output, stderr=output, env=environment, start_new_session=True
            )

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def wait_for(self, reached: Callable[[], bool], seconds: float = 120) -> None:
        """Wait until something is so, while the program runs."""
        deadline = time.monotonic() + seconds
        while not reached():
            assert self.running.poll() is None or reached(), self.said[-4000:]
            assert time.monotonic() < deadline, self.said[-4000:]
            time.sleep(0.02)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit status."""
        self.running.send_signal(number)
        return self.running.wait(120)


def python(*arguments: object) -> list[object]:
    return [sys.executable, *arguments]


@contextmanager
def started(log: Path, *command: object) -> Iterator[Process]:
    """A program that is killed at the latest on leaving."""
    process = Process(log, *command)
    try:
        yield process
    finally:
        if process.running.poll() is None:
            os.killpg(process.running.pid, signal.SIGKILL)
            process.running.wait()


def job(name: str, folder: Path, *options: object) -> list[object]:
    return python(ROOT / "jobs" / f"{name}.py", f"lsm.table.path={folder / 'table'}", *options)


def slow_job(folder: Path, seconds: float) -> list[object]:
    path = f"lsm.table.path={folder / 'table'}"
    return python("-m", "tests.support.slow_compaction", seconds, path, "--threads", "1")


def done(command: list[object], **environment: str) -> subprocess.CompletedProcess[str]:
    """A program that has ended with status 0."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    ended = subprocess.run(
        [str(part) for part in command], check=False, capture_output=True, text=True, env=variables, timeout=240
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended


def writer(folder: Path, *options: object, batches: int = BATCHES, seconds: float = 0.05) -> list[object]:
    return python("-m", "tests.support.service_writer", folder / "table", batches, seconds, *options)


def assert_rows(folder: Path, batches: int = BATCHES) -> None:
    """The table has the rows of all batches, each committed once, for both readers."""
    path = folder / "table"
    expected = model(batches)
    assert shown(LsmTable(path)) == expected
    assert sorted(tuple(row.values()) for row in read_snapshot(str(path)).to_pylist()) == expected
    assert validate(str(path)) == []
    writes = [write for write in LsmTable(path).timeline.every_write if write.action == "deltacommit"]
    assert len(writes) == batches


def test_two_compaction_jobs_and_a_clean_job_work_beside_a_stream_killed_and_started_again(tmp_path: Path) -> None:
    table = create(tmp_path / "table", **OPTIONS)
    watch = ("--watch", "0.1", "--threads", "1")
    with (
        started(tmp_path / "writer.log", *writer(tmp_path)) as stream,
        started(tmp_path / "first.log", *job("compact", tmp_path, DUE, *watch)) as first,
        started(tmp_path / "second.log", *job("compact", tmp_path, DUE, *watch)) as second,
        started(tmp_path / "clean.log", *job("clean", tmp_path, RETAIN, "--watch", "0.1")) as clean,
    ):
        stream.wait_for(lambda: stream.said.count("\n") >= BATCHES // 3)
        # Killed anywhere; what it was running is run again by others.
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
        clean.end(signal.SIGKILL)
        with (
            started(tmp_path / "first.log", *job("compact", tmp_path, DUE, *watch)) as first_again,
            started(tmp_path / "clean.log", *job("clean", tmp_path, RETAIN, "--watch", "0.1")) as clean_again,
        ):
            stream.wait_for(lambda: stream.said.count("\n") >= 2 * BATCHES // 3)
            assert stream.end(signal.SIGKILL) == -signal.SIGKILL
            with started(tmp_path / "writer.log", *writer(tmp_path)) as stream_again:
                assert stream_again.running.wait(120) == 0, stream_again.said
            clean_again.wait_for(lambda: "deleted" in clean_again.said)
            assert [process.end() for process in (first_again, second, clean_again)] == [0, 0, 0]
    for log in ("first", "second", "clean"):
        said = (tmp_path / f"{log}.log").read_text()
        assert said.endswith("stopped by SIGTERM\n"), said
        assert "failed" not in said, said
        assert "Traceback" not in said, said
    compacted = [write for write in table.timeline.every_write if write.action == "commit"]
    assert len(compacted) >= 3
    # What a killed process left is finished by the next one.
    for name, option in (("compact", "hoodie.compact.inline.max.delta.commits=1"), ("clean", RETAIN)):
        done(job(name, tmp_path, option))
    assert pending_compactions(table.timeline) == ()
    assert pending_cleans(table.timeline) == ()
    assert_rows(tmp_path)


def held(tmp_path: Path, groups: int = 8) -> LsmTable:
    """A table with a plan of one file group each, of rows enough for a compaction to take its time."""
    table = create(tmp_path / "table", **{**OPTIONS, "hoodie.bucket.index.num.buckets": groups})
    for number in range(3):
        table.upsert(rows(*batch(number)))
    return table


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_puts_back_what_runs_when_the_grace_is_over_and_the_next_job_runs_it(
    tmp_path: Path, number: int
) -> None:
    table = held(tmp_path)
    planned, _ = table.services.schedule()
    assert planned is not None
    # Each operation waits, so that the signal comes while the plan runs.
    slow = slow_job(tmp_path, 2)
    with started(tmp_path / "slow.log", *slow, "--grace", "0.2") as running:
        running.wait_for(lambda: "operation" in running.said)
        assert running.end(number) == (0 if number == signal.SIGTERM else 130)
    assert f"{planned.file_name} was put back" in running.said, running.said
    assert "has 0 s to end" in running.said
    (left,) = pending_compactions(table.timeline)
    assert left == planned
    with started(tmp_path / "next.log", *job("compact", tmp_path, "--no-schedule")) as following:
        assert following.running.wait(120) == 0
    assert f"{planned.requested}_" in following.said
    assert pending_compactions(table.timeline) == ()
    assert_rows(tmp_path, 3)


def test_two_jobs_share_the_plans_and_one_that_is_killed_leaves_its_plan_to_the_other(tmp_path: Path) -> None:
    table = held(tmp_path)
    operations = table.services.preview_compaction().operations
    with table.transaction() as tx:
        plans = [tx.schedule("compaction", tx.new_time(), CompactionPlan((each,)).encode()) for each in operations]
    slow = slow_job(tmp_path, 120)
    with started(tmp_path / "slow.log", *slow) as running:
        running.wait_for(lambda: "operation" in running.said)
        beside = done(job("compact", tmp_path, "--no-schedule"))
        assert beside.stdout.count(" compacted, ") == len(plans) - 1
        assert beside.stderr == ""
        waiting = done(job("compact", tmp_path, "--no-schedule"))
        assert waiting.stdout == "nothing to compact: other processes run what is pending (1)\n"
        assert running.end(signal.SIGKILL) == -signal.SIGKILL
    after = done(job("compact", tmp_path, "--no-schedule"))
    assert after.stdout.count(" compacted, ") == 1, after.stderr
    assert pending_compactions(table.timeline) == ()
    assert_rows(tmp_path, 3)


def test_a_compaction_that_hudi_has_scheduled_is_run_by_the_job(tmp_path: Path) -> None:
    unpacked("v9_mor_compaction_pending", tmp_path).rename(tmp_path / "table")
    before = LsmTable(tmp_path / "table").scan().to_arrow().sort_by("id")
    assert len(pending_compactions(LsmTable(tmp_path / "table").timeline)) == 1
    assert " file groups compacted, " in done(job("compact", tmp_path, "--no-schedule")).stdout
    table = LsmTable(tmp_path / "table")
    assert pending_compactions(table.timeline) == ()
    assert table.scan().to_arrow().sort_by("id") == before


def test_spark_submit_spreads_a_compaction_over_executors(tmp_path: Path) -> None:
    table = held(tmp_path)
    home = spark_home(tmp_path / "spark")
    environment = {
        "SPARK_HOME": str(home), "JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    submit: list[object] = [home / "bin" / "spark-submit", "--master", "local[2]"]
    compacted = done(
        [*submit, *job("compact", tmp_path, "hoodie.compact.inline.max.delta.commits=1")[1:]], **environment
    )
    groups = table.file_slices()
    assert f": {len(groups)} file groups compacted, " in compacted.stdout
    assert len({found.base.name.token for found in groups if found.base}) == len(groups), "not spread over tasks"
    assert_rows(tmp_path, 3)
