"""When clusterings are due, and who runs them: writers, jobs, the command line."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.cli.commands import main
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import ClusteringConflict, UnsupportedTable
from streaming_lsm.service_job.messages import message
from streaming_lsm.services.plan_worker import Failed
from tests.support.service_tables import OPTIONS_OF_SERVICES, reopened
from tests.support.small_tables import create, rows, shown
from tests.unit.services.clustering.test_runner import CLUSTERED, clusterings, grown

ROOT = Path(__file__).parents[4]
COMMITS = "hoodie.clustering.inline.max.commits"


@pytest.fixture(autouse=True)
def _disk_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    # Processes die in these tests, machines do not.
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def write(table: LsmTable, *keys: str) -> None:
    for number, key in enumerate(keys):
        table.upsert(rows((key, "nl", number, number)))


def test_a_writer_clusters_after_every_so_many_commits(tmp_path: Path) -> None:
    table = create(tmp_path, **{**CLUSTERED, "hoodie.clustering.inline": True, COMMITS: 3})
    write(table, *"abcdefg")
    actions = [found.action for found in table.timeline.completed_writes]
    assert actions == [*["deltacommit"] * 3, "replacecommit"] * 2 + ["deltacommit"]
    assert [row[0] for row in shown(table)] == [*"abcdefg"]


def test_a_writer_that_only_schedules_leaves_one_plan_to_a_job(tmp_path: Path) -> None:
    table = create(tmp_path, **{**CLUSTERED, "hoodie.clustering.schedule.inline": True, COMMITS: 2})
    write(table, *"abc")
    (planned,) = table.timeline.pending
    assert (planned.action, clusterings(table)) == ("clustering", [])
    due = {found.service: found for found in table.services.due()}["cluster"]
    assert (due.is_due, due.is_inline, due.pending) == (True, False, (planned.file_name,))
    worker = reopened(table, **CLUSTERED).services.clustering_worker(LocalEngine(1))
    (done,) = worker.look()
    assert "2 file groups replaced by 1 new one, 2 rows in" in message(done)
    assert list(worker.look()) == []
    assert "none is due by" in worker.idle


def test_a_clustering_that_a_dead_process_has_left_is_run_before_a_write_that_it_refuses(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    writer = reopened(table, **{**CLUSTERED, "hoodie.clustering.inline": True, COMMITS: 100})
    for ts, has_written in ((1000, False), (1001, True)):
        changed = rows(*((*row[:2], ts, row[3]) for row in model.values()))
        assert table.services.schedule_clustering()[0] is not None
        with pytest.raises(ClusteringConflict):
            reopened(table, **CLUSTERED).upsert(changed)
        # Rows that are given once are tried once.
        writer.upsert(changed if has_written else changed.to_reader())
        assert (table.timeline.pending, len(clusterings(table))) == ((), 1 + has_written)
        assert {row[2] for row in shown(table)} == {ts}
        assert len(shown(table)) == len(model)
    assert table.services.schedule_clustering()[0] is not None
    writer.delete_partitions(sorted({row[1] for row in model.values()}))
    assert (table.timeline.pending, shown(table)) == ((), [])


def test_a_job_schedules_what_is_due_and_tells_what_failed(tmp_path: Path) -> None:
    table, model = grown(tmp_path, **{COMMITS: 2})
    worker = table.services.clustering_worker(LocalEngine(1))
    said = [message(event) for event in worker.look()]
    assert [text.partition(":")[0].rpartition(".")[2] for text in said] == ["requested", "replacecommit"]
    write(table, "m", "n")
    lost = next(found.base or found.logs[0] for found in table.file_slices())
    planned, _ = table.services.schedule_clustering()
    assert planned is not None
    (tmp_path / lost.path).unlink()
    (failed,) = table.services.clustering_worker(LocalEngine(1), schedules=False).look()
    assert isinstance(failed, Failed)
    assert planned.file_name in message(failed)
    assert [pending.requested for pending in table.timeline.pending] == [planned.requested]
    assert len(model) > 0


def test_a_job_refuses_a_bucket_table_and_a_writer_passes_over_it(tmp_path: Path) -> None:
    table = create(tmp_path, **{**OPTIONS_OF_SERVICES, "hoodie.clustering.inline": True, COMMITS: 1})
    write(table, *"ab")
    assert clusterings(table) == []
    with pytest.raises(UnsupportedTable, match="cannot be clustered"):
        list(table.services.clustering_worker(LocalEngine(1)).look())


def test_the_command_line_plans_schedules_and_clusters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, _ = grown(tmp_path)
    options = ["-o", "hoodie.clustering.plan.strategy.sort.columns=qty"]

    def run(*arguments: str) -> str:
        assert main(["cluster", str(tmp_path), *options, *arguments]) == 0
        return capsys.readouterr().out

    assert "file groups to cluster in 1 input groups" in run("--dry-run")
    assert table.timeline.pending == ()
    (group,) = json.loads(run("--dry-run", "--json"))["groups"]
    assert (group["partition"], group["output_file_groups"]) == ("nl", 1)
    assert run("--schedule-only").startswith("scheduled ")
    done = json.loads(run("--json"))
    assert done["completed"] == table.timeline.completed_writes[-1].file_name
    assert "clustered already" in run()


def test_the_job_clusters_what_is_due(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.nice", lambda by: by)  # the process of the tests keeps its own
    table, model = grown(tmp_path)
    job = importlib.util.spec_from_file_location("cluster_job", ROOT / "jobs" / "cluster.py")
    assert job is not None
    assert job.loader is not None
    module = importlib.util.module_from_spec(job)
    job.loader.exec_module(module)
    assert module.main([f"lsm.table.path={tmp_path}", "--threads", "1", f"{COMMITS}=2"]) == 0
    scheduled, done = capsys.readouterr().out.splitlines()
    assert scheduled.startswith("scheduled ")
    assert f"replaced by 1 new one, {len(model)} rows in" in done
    assert len(clusterings(table)) == 1
