"""``lsm compact`` and ``lsm clean``: what they do, and what they say when nothing is due."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from streaming_lsm.cli.commands import main
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.txn.locked_table import Beside
from streaming_lsm.txn.planned_actions import pending_compactions
from streaming_lsm.txn.transaction import Transaction
from tests.support.service_tables import assert_sound, cleans, compactions, grow, grown, reopened
from tests.support.small_tables import create, rows


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main([str(argument) for argument in arguments]) == code
    out, err = capsys.readouterr()
    assert bool(err) == bool(code), err
    return err if code else out


def test_compact_merges_and_says_how_much(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, model = grown(tmp_path)
    said = run(capsys, "compact", tmp_path)
    (completed,) = compactions(table)
    assert said.startswith(f"{completed.file_name}: 2 file groups compacted, 7 log files merged, 9 rows in ")
    assert_sound(table, model)
    assert run(capsys, "compact", tmp_path) == "nothing to compact: of 2 file groups 2 have no log files\n"


def test_a_dry_run_shows_the_operations_and_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, _ = grown(tmp_path)
    before = table.timeline.instants
    lines = run(capsys, "compact", tmp_path, "--dry-run").splitlines()
    assert lines[0].split() == ["partition", "file", "group", "operation", "base", "file", "log", "files", "bytes"]
    assert [line.split()[:2] for line in lines[1:3]] == [
        ["nl", operation.file_id] for operation in table.services.preview_compaction().operations
    ]
    assert lines[3] == "2 file groups to compact; of 2 file groups 0 have no log files"
    assert table.timeline.instants == before


def test_a_savepoint_is_made_listed_and_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, _ = grown(tmp_path)
    first, *_, last = (write.requested for write in table.timeline.completed_writes)
    assert run(capsys, "savepoint", tmp_path, "--dry-run").startswith(f"the table as of {last} would be kept: ")
    assert table.savepoints == ()
    said = run(capsys, "savepoint", tmp_path, "--comment", "nightly", "--user", "ann")
    assert "is a savepoint already" in run(capsys, "savepoint", tmp_path, "--dry-run", code=2)
    assert said.startswith(f"{last}_")
    assert said.endswith(f".savepoint: the table as of {last} is kept\n")
    run(capsys, "savepoint", tmp_path, first)
    lines = run(capsys, "savepoint", tmp_path, "--list").splitlines()
    assert [line.split()[0] for line in lines] == ["instant", first, last]
    assert lines[2].split()[3:] == ["ann", "nightly", "7"]
    said = run(capsys, "savepoint", tmp_path, first, "--delete", "--dry-run")
    assert said == f"the savepoint of {first} would be deleted\n"
    assert run(capsys, "savepoint", tmp_path, first, "--delete").startswith(f"deleted the savepoint of {first}")
    assert [found.instant.requested for found in table.savepoints] == [last]
    assert "--delete needs the INSTANT" in run(capsys, "savepoint", tmp_path, "--delete", code=2)
    assert f"has no savepoint '{first}'" in run(capsys, "savepoint", tmp_path, first, "--delete", code=2)


def test_the_last_write_is_rolled_back_after_a_dry_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, model = grown(tmp_path)
    table.upsert(rows(("new", "nl", 1, 1)))
    undone = table.timeline.completed_writes[-1]
    *files, said = run(capsys, "rollback", tmp_path, "--dry-run").splitlines()
    assert said == f"{undone.file_name} would be rolled back: {len(files)} files"
    assert all(undone.requested in file for file in files)
    said = run(capsys, "rollback", tmp_path, undone.requested)
    assert said.endswith(f".rollback: {undone.requested}.deltacommit is rolled back, {len(files)} file deleted\n")
    assert "was rolled back by" in run(capsys, "rollback", tmp_path, undone.requested, code=2)
    assert_sound(table, model)


def test_a_table_is_restored_after_a_dry_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, model = grown(tmp_path)
    time = table.savepoint().requested
    grow(table, dict(model), 5)
    *undone, said = run(capsys, "restore", tmp_path, time, "--dry-run").splitlines()
    assert undone == [write.file_name for write in reversed(table.timeline.completed_writes) if write.requested > time]
    assert said == "2 actions would be undone"
    assert run(capsys, "restore", tmp_path, time).endswith(f".restore: 2 actions undone, the table is as of {time}\n")
    assert_sound(table, model)
    assert "nothing was completed or planned since" in run(capsys, "restore", tmp_path, time, code=2)


def test_schedule_only_leaves_a_plan_that_the_next_call_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, model = grown(tmp_path)
    said = run(capsys, "compact", tmp_path, "--schedule-only")
    (waiting,) = pending_compactions(table.timeline)
    assert said == f"scheduled {waiting.file_name}\n"
    assert "2 have a pending plan already" in run(capsys, "compact", tmp_path, "--schedule-only")
    assert run(capsys, "compact", tmp_path, "--dry-run").startswith(f"planned: {waiting.file_name}\n")
    assert run(capsys, "compact", tmp_path).startswith(waiting.requested)
    assert_sound(table, model)


def test_clean_takes_options_and_says_why_nothing_was_due(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, model = grown(tmp_path)
    table.compact()
    grow(table, model, 3)
    assert "no more than the 10 commits" in run(capsys, "clean", tmp_path)
    retained = "hoodie.clean.commits.retained=1"
    listed = run(capsys, "clean", tmp_path, "--option", retained, "--dry-run").splitlines()
    assert listed[-1] == "7 files to delete in 1 partitions"
    assert all((tmp_path / path).exists() for path in listed[:-1])
    said = run(capsys, "clean", tmp_path, "-o", retained)
    (completed,) = cleans(table)
    assert said == f"{completed.file_name}: 7 files deleted\n"
    assert not any((tmp_path / path).exists() for path in listed[:-1])
    assert "no file slice is older" in run(capsys, "clean", tmp_path, "-o", retained)
    assert_sound(table, model)


def test_the_timeline_shows_what_services_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, model = grown(tmp_path, **{"hoodie.clean.commits.retained": 1})
    table.compact()
    grow(table, model, 3)
    table.clean()
    table.services.schedule()
    lines = [line.split() for line in run(capsys, "timeline", tmp_path).splitlines()[1:]]
    shown = {tuple(words[2:4]) for words in lines if words[2] in ("commit", "clean")}
    assert shown == {("commit", "COMPACT,"), ("clean", "KEEP_LATEST_COMMITS,")}
    assert lines[-1][1:] == ["requested", "compaction"]


def test_options_that_are_no_options_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grown(tmp_path)
    assert "option 'seven' has no value: write KEY=VALUE" in run(capsys, "clean", tmp_path, "-o", "seven", code=2)
    wrong = run(capsys, "compact", tmp_path, "-o", "hoodie.compaction.strategy=Fastest", code=2)
    assert "LogFileSizeBasedCompactionStrategy" in wrong


def test_hudis_full_class_names_are_strategies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grown(tmp_path)
    name = "org.apache.hudi.table.action.compact.strategy.LogFileNumBasedCompactionStrategy"
    options = ["-o", f"hoodie.compaction.strategy={name}", "-o", "hoodie.compaction.logfile.num.threshold=4"]
    lines = run(capsys, "compact", tmp_path, "--dry-run", *options).splitlines()
    assert lines[-1].startswith("1 file groups to compact")
    assert "1 have fewer logs than the strategy's minimum" in lines[-1]


@pytest.mark.parametrize(("verb", "done"), [("compact", "file groups compacted"), ("clean", "7 files deleted")])
def test_a_watch_does_what_comes_up_and_ends_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str, done: str
) -> None:
    table, model = grown(tmp_path)
    if verb == "clean":
        table.compact()
        grow(table, model, 3)
    verb_and_options = [verb, str(tmp_path), "--watch", "0.05", "-o", "hoodie.clean.commits.retained=1"]
    said = ""

    def grow_and_end() -> None:
        nonlocal said
        waits = [lambda: "watching" in said, lambda: done in said]
        for reached in waits:
            deadline = time.monotonic() + 60
            while not reached() and time.monotonic() < deadline:
                time.sleep(0.02)
                said += capsys.readouterr().out
            if verb == "compact" and done not in said:
                table.services.schedule()
        os.kill(os.getpid(), signal.SIGTERM)

    other = threading.Thread(target=grow_and_end)
    other.start()
    assert main(verb_and_options) == 0
    other.join()
    said += capsys.readouterr().out
    assert said.splitlines()[0] == f"watching {table.path}, a look every 0.05 s"
    assert said.count(done) == 1
    assert said.splitlines()[-1] == "stopped by SIGTERM"
    assert_sound(table, model)


def test_a_watch_takes_no_argument_that_changes_what_a_look_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grown(tmp_path)
    assert "--watch does not take --dry-run" in run(capsys, "clean", tmp_path, "--watch", "--dry-run", code=2)
    both = run(capsys, "compact", tmp_path, "--watch", "5", "--schedule-only", code=2)
    assert "--watch does not take --schedule-only" in both


def test_what_another_process_runs_is_said_to_be_left_to_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, model = grown(tmp_path)
    plan, _ = table.services.schedule()
    assert plan is not None
    with table.transaction(beside=Beside.ALL) as running:
        running.start(plan)
        assert run(capsys, "compact", tmp_path) == "nothing to compact: other processes run what is pending (1)\n"
    table.compact()
    for batch in (9, 10):
        grow(table, model, batch)
        table.compact()

    def clean_meanwhile(transaction: Transaction, planned: Instant) -> None:
        start(transaction, planned)
        with mock.patch.object(Transaction, "start", start):
            said.append(run(capsys, "clean", tmp_path, "-o", "hoodie.clean.commits.retained=1"))

    start, said = Transaction.start, list[str]()
    with mock.patch.object(Transaction, "start", clean_meanwhile):
        reopened(table, **{"hoodie.clean.commits.retained": 1}).clean()
    assert said == ["nothing to clean: another process cleans\n"]
    assert len(cleans(table)) == 1


def test_archive_tells_what_leaves_the_timeline_and_why_nothing_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = create(tmp_path, **{"hoodie.archive.automatic": False})
    for number in range(16):
        table.upsert(rows(("a", "nl", number, number)))
    old = [write.file_name for write in table.timeline.completed_writes[:5]]
    planned = run(capsys, "archive", tmp_path, "--dry-run").splitlines()
    assert planned == [*old, f"5 actions to archive, up to {old[-1][:17]}"]
    document = json.loads(run(capsys, "archive", tmp_path, "--dry-run", "--json"))
    assert document == {"dry_run": True, "actions": old, "said": planned[-1]}
    assert run(capsys, "archive", tmp_path) == f"5 actions archived, up to {old[-1][:17]}\n"
    few = "nothing to archive: the timeline has no more commits than hoodie.keep.max.commits=14\n"
    assert run(capsys, "archive", tmp_path) == run(capsys, "archive", tmp_path, "--dry-run") == few
    told = run(capsys, "archive", tmp_path, "-o", "hoodie.keep.min.commits=3", code=2)
    assert "hoodie.keep.min.commits=3 is not more than hoodie.clean.commits.retained=10" in told
    assert len(table.timeline.instants) == 11


def document(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(capsys, *arguments, "--json"))
    return found


def test_each_verb_prints_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, model = grown(tmp_path, **{"hoodie.clean.commits.retained": 1})
    shown = document(capsys, "compact", tmp_path, "--dry-run")
    groups = {operation["file_id"]: len(operation["logs"]) for operation in shown["operations"]}
    assert (len(groups), sum(groups.values()), shown["dry_run"], shown["completed"]) == (2, 7, True, None)
    assert {decision["file_id"] for decision in document(capsys, "compact", tmp_path, "--explain")["decisions"]} == set(
        groups
    )
    scheduled = document(capsys, "compact", tmp_path, "--schedule-only")["scheduled"]
    assert document(capsys, "compact", tmp_path, "--dry-run")["planned"] == [scheduled]
    done = document(capsys, "compact", tmp_path)
    assert done["completed"] == compactions(table)[0].file_name
    assert done["dry_run"] is False
    assert done["said"].startswith(done["completed"])
    assert document(capsys, "compact", tmp_path)["completed"] is None

    grow(table, model, 3)
    table.compact()
    option = ("-o", "hoodie.clean.commits.retained=1")
    files = document(capsys, "clean", tmp_path, *option, "--dry-run")["files"]
    cleaned = document(capsys, "clean", tmp_path, *option)
    assert sorted(cleaned["files"]) == sorted(files) != []
    assert cleaned["completed"] == cleans(table)[0].file_name
    assert document(capsys, "clean", tmp_path, *option)["files"] == []

    kept = document(capsys, "savepoint", tmp_path, "--user", "ann")
    (savepoint,) = kept["savepoints"]
    assert kept["completed"].startswith(savepoint["instant"])
    assert document(capsys, "savepoint", tmp_path, "--list")["savepoints"] == [savepoint]
    for name in ("one", "two"):
        table.upsert(rows((name, "nl", 1, 1)))
    undone = document(capsys, "rollback", tmp_path, "--dry-run")
    assert undone["undone"] == table.timeline.completed_writes[-1].file_name
    assert sorted(document(capsys, "rollback", tmp_path)["files"]) == sorted(undone["files"]) != []
    proposed = document(capsys, "restore", tmp_path, savepoint["instant"], "--dry-run")
    restored = document(capsys, "restore", tmp_path, savepoint["instant"])
    assert len(restored["undone"]) == len(proposed["undone"]) == 1
    assert restored["completed"].endswith(".restore")
    assert document(capsys, "savepoint", tmp_path, savepoint["instant"], "--delete")["savepoints"] == []
    assert_sound(table, model)
    assert "--watch does not take --json" in run(capsys, "clean", tmp_path, "--watch", "1", "--json", code=2)


def test_an_argument_that_is_not_utf_8_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grown(tmp_path)
    for arguments in (["savepoint", tmp_path, "--comment", "\udcff"], ["history", tmp_path, "\udcff"]):
        assert run(capsys, *arguments, code=2) == "lsm: argument '\\udcff' is not UTF-8 text\n"


def test_the_timeline_takes_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grown(tmp_path)
    assert run(capsys, "timeline", tmp_path) == run(capsys, "timeline", tmp_path, "-o", "lsm.read.threads=1")
    assert "lsm.read.threads" in run(capsys, "timeline", tmp_path, "-o", "lsm.read.threads=x", code=2)
