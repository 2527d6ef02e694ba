"""Service jobs that are killed beside a stream and other jobs: the next ones finish what they left."""

from __future__ import annotations

import signal
from pathlib import Path

from streaming_lsm.format.actions.compaction_plan import CompactionPlan
from streaming_lsm.txn.planned_actions import pending_cleans, pending_compactions
from tests.support.service_processes import (
    BATCHES,
    DUE,
    OPTIONS,
    RETAIN,
    assert_rows,
    done,
    held,
    job,
    slow_job,
    started,
    writer,
)
from tests.support.small_tables import create


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
