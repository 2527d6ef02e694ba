"""The command line of the jobs: options by precedence, engines, exit status."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from streaming_lsm import config
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import ConfigError
from streaming_lsm.service_job.command import ServiceJob, load_options, run_job
from tests.support.service_tables import assert_sound, compactions, grown

ROOT = Path(__file__).parents[3]
JOB = ServiceJob(
    "compact",
    lambda table, engine, given: table.services.compaction_worker(engine, schedules=not given.no_schedule),
    schedules=True,
)
DUE = "hoodie.compact.inline.max.delta.commits=1"


class FakeSpark(LocalEngine):
    """Counts how it was opened."""

    opened: ClassVar[list[tuple[str, int | None]]] = []

    def cancel(self) -> None:
        pass


@contextmanager
def fake_spark(name: str, cores: int | None) -> Iterator[FakeSpark]:
    FakeSpark.opened.append((name, cores))
    yield FakeSpark(1)


@pytest.fixture(autouse=True)
def nice(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The niceness that jobs asked for; the process of the tests keeps its own."""
    asked: list[int] = []
    monkeypatch.setattr(os, "nice", asked.append)
    return asked


def run(*arguments: object) -> int:
    FakeSpark.opened = []
    return run_job(JOB, "description", fake_spark, [str(argument) for argument in arguments])


def test_a_due_compaction_is_run_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, model = grown(tmp_path)
    assert run(f"lsm.table.path={tmp_path}", DUE) == 0
    said, complained = capsys.readouterr()
    (completed,) = compactions(table)
    assert f"{completed.file_name}: 2 file groups compacted, 7 log files merged, 9 rows in " in said
    assert complained == ""
    assert_sound(table, model)
    assert run(f"lsm.table.path={tmp_path}", DUE) == 0
    assert capsys.readouterr().out.startswith(
        "nothing to compact: no compaction is pending; none is due by NUM_COMMITS"
    )
    assert FakeSpark.opened == []


def test_the_properties_file_of_the_stream_will_do(tmp_path: Path) -> None:
    options = load_options(ROOT / "conf" / "kafka_demo.properties", {"lsm.table.path": "/lake/orders"})
    assert options[config.COMPACT_COMMITS] == 3
    assert options[config.TABLE_PATH] == "/lake/orders"
    file = tmp_path / "job.properties"
    file.write_text("kafka.sasl.jaas.config=secret\nlsm.kafka.topic.a.table.path=/a\nhoodie.clean.commits.retained=4\n")
    assert load_options(file, {})[config.CLEAN_COMMITS] == 4
    assert load_options(file, {"hoodie.clean.commits.retained": "5"})[config.CLEAN_COMMITS] == 5
    file.write_text("hoodie.clean.comits.retained=4\n")
    with pytest.raises(ConfigError, match=r"did you mean 'hoodie\.clean\.commits\.retained'"):
        load_options(file, {})


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "lsm.table.path is not set: give lsm.table.path=PATH"),
        (["lsm.table.path=/lake/{topic}"], "is the path of several tables"),
        (["lsm.table.path"], "option 'lsm.table.path' has no value: write KEY=VALUE"),
        (["lsm.table.path=TABLE", "--cores", "2"], "--cores is an option of --engine spark"),
        (["lsm.table.path=TABLE", "--engine", "spark", "--threads", "2"], "--threads is an option of --engine threads"),
        (["lsm.table.path=TABLE", "--threads", "0"], "at least 1"),
        (["lsm.table.path=TABLE/nope"], "is no table"),
        (["lsm.table.path=TABLE", "--properties", "/nope"], "properties file /nope cannot be read"),
        (["lsm.table.path=TABLE", "hoodie.compaction.strategy=Fastest"], "LogFileSizeBasedCompactionStrategy"),
    ],
)
def test_a_wrong_option_ends_the_job_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    table, _ = grown(tmp_path)
    assert run(*(argument.replace("TABLE", str(tmp_path)) for argument in arguments)) == 2
    said, complained = capsys.readouterr()
    assert said == ""
    assert complained.startswith("compact: ")
    assert complaint in complained
    assert complained.count("\n") == 1
    assert compactions(table) == []


@pytest.mark.parametrize("wrong", ["lsm.table.path=/t", "0", "-1", "inf"])
def test_what_follows_watch_is_a_number_of_seconds(capsys: pytest.CaptureFixture[str], wrong: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        run("--watch", wrong)
    assert "is no number of seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    "page", ["README.md", "docs/services.md", "jobs/compact.py", "jobs/cluster.py", "jobs/clean.py"]
)
def test_the_command_lines_of_the_documentation_are_accepted(page: str) -> None:
    found = re.findall(
        r"^ *(?:python|spark-submit) jobs/(?:compact|cluster|clean)\.py (.+)$", (ROOT / page).read_text(), re.M
    )
    assert found
    for line in found:
        with pytest.raises(SystemExit) as ended:  # by --help, which comes last: what is wrong before it ends with 2
            run(*line.split(), "--help")
        assert ended.value.code == 0, line


def test_a_compaction_that_fails_ends_the_job_with_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, _ = grown(tmp_path)
    plan, _ = table.services.schedule()
    assert plan is not None
    table.storage.replace(plan.path, b"no plan")
    assert run(f"lsm.table.path={tmp_path}", "--no-schedule") == 1
    assert f"compact: {plan.file_name} failed, it stays planned: " in capsys.readouterr().err


def test_spark_runs_the_operations_where_it_started_the_job_or_was_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = grown(tmp_path)
    assert run(f"lsm.table.path={tmp_path}", "--engine", "spark", "--cores", 3, DUE) == 0
    assert FakeSpark.opened == [("compact", 3)]
    assert len(compactions(table)) == 1
    assert_sound(table, model)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert run(f"lsm.table.path={tmp_path}") == 0
    assert FakeSpark.opened == [("compact", None)]
    assert run(f"lsm.table.path={tmp_path}", "--engine", "threads") == 0
    assert FakeSpark.opened == []


def test_a_job_stands_back_behind_a_stream_unless_it_is_asked_not_to(tmp_path: Path, nice: list[int]) -> None:
    grown(tmp_path)
    assert run(f"lsm.table.path={tmp_path}") == 0
    assert run(f"lsm.table.path={tmp_path}", "--nice", "0") == 0
    assert nice == [10, 0]
    with pytest.raises(SystemExit, match="2"):
        run(f"lsm.table.path={tmp_path}", "--nice", "20")
