"""``jobs/compact.py`` and ``jobs/clean.py`` as processes of their own beside a process that writes."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.spark.jvm.java import find_java
from streaming_lsm.txn.planned_actions import pending_compactions
from tests.support.cluster import spark_home
from tests.support.hudi_tables import unpacked
from tests.support.service_processes import (
    assert_rows,
    done,
    held,
    job,
    slow_job,
    started,
)


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
