"""``lsm delete-partitions``: what it deletes, and what it says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streaming_lsm.cli.commands import main
from tests.support.small_tables import create, rows, shown


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main([str(argument) for argument in arguments]) == code
    out, err = capsys.readouterr()
    return err if code else out


def test_partitions_are_deleted_after_a_dry_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = create(tmp_path)
    table.upsert(rows(("a", "nl", 1, 1), ("b", "be", 1, 2), ("c", "de", 1, 3)))
    lines = run(capsys, "delete-partitions", tmp_path, "nl", "be", "--dry-run").splitlines()
    assert [line.split() for line in lines[1:3]] == [["nl", "1"], ["be", "1"]]
    assert lines[-1] == "2 file groups of 2 partitions would be deleted"
    proposed = json.loads(run(capsys, "delete-partitions", tmp_path, "nl", "be", "--dry-run", "--json"))
    assert len(shown(table)) == 3

    done = json.loads(run(capsys, "delete-partitions", tmp_path, "nl", "be", "--json"))
    assert done["partitions"] == proposed["partitions"]
    assert (done["path"], done["dry_run"], proposed["completed"]) == (table.path, False, None)
    assert done["completed"] == table.timeline.completed_writes[-1].file_name
    assert shown(table) == [("c", "de", 1, 3)]
    said = run(capsys, "delete-partitions", tmp_path, "de").splitlines()[-1]
    assert said.endswith(".replacecommit: 1 file group of 1 partition deleted, a clean deletes the files")
    for more in ([], ["--dry-run"]):
        assert "'nl' of" in run(capsys, "delete-partitions", tmp_path, "nl", *more, code=2)
