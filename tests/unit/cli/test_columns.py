"""``lsm drop-columns``, ``lsm rename-columns``: what they do, and what they say of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.cli.commands import main
from tests.support.small_tables import create, rows


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main([str(argument) for argument in arguments]) == code
    out, err = capsys.readouterr()
    return err if code else out


def test_columns_are_proposed_dropped_and_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create(tmp_path).upsert(rows(("a", "DE", 1, 1)))
    assert run(capsys, "drop-columns", tmp_path, "qty", "--dry-run").strip() == "qty would be dropped"
    assert "'id' cannot be dropped" in run(capsys, "drop-columns", tmp_path, "id", "--dry-run", code=2)
    assert LsmTable(tmp_path).schema.names == ["id", "country", "ts", "qty"]
    done = json.loads(run(capsys, "drop-columns", tmp_path, "qty", "--json"))
    assert (done["columns"], done["dry_run"]) == (["qty"], False)
    assert LsmTable(tmp_path).timeline.completed_writes[-1].file_name == done["completed"]
    assert LsmTable(tmp_path).schema.names == ["id", "country", "ts"]
    assert "'qty' is not in the table" in run(capsys, "drop-columns", tmp_path, "qty", code=2)


def test_columns_are_renamed_and_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create(tmp_path).upsert(rows(("a", "DE", 1, 1)))
    assert run(capsys, "rename-columns", tmp_path, "qty=n", "--dry-run").strip() == "qty to n would be renamed"
    for pair, message in (("id=key", "'id' cannot be renamed"), ("qty", "expected COLUMN=NAME"), ("n=m", "'n' is not")):
        assert message in run(capsys, "rename-columns", tmp_path, pair, code=2)
    assert "'qty' has another new name" in run(capsys, "rename-columns", tmp_path, "qty=n", "qty=m", code=2)
    assert LsmTable(tmp_path).schema.names == ["id", "country", "ts", "qty"]
    done = json.loads(run(capsys, "rename-columns", tmp_path, "qty=n", "--json"))
    assert (done["names"], done["dry_run"]) == ({"qty": "n"}, False)
    assert "hoodie.schema.on.read.enable=true" in done["said"]
    assert LsmTable(tmp_path).timeline.completed_writes[-1].file_name == done["completed"]
    assert LsmTable(tmp_path).scan(["n"]).to_arrow().to_pylist() == [{"n": 1}]
