"""``lsm files`` and ``lsm history``: what lies in the file groups, and the versions of a key in them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm.cli.commands import main
from tests.support.service_tables import grown
from tests.support.small_tables import create, rows

OPTIONS: dict[str, object] = {"hoodie.bucket.index.num.buckets": 1, "hoodie.clean.automatic": False}


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main([str(argument) for argument in arguments]) == code
    out, err = capsys.readouterr()
    assert bool(err) == bool(code), err
    return err if code else out


def listed(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, object]]:
    return [json.loads(line) for line in run(capsys, "files", *arguments, "--json").splitlines()]


def test_groups_are_listed_with_rows_keys_and_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = create(tmp_path, **OPTIONS)
    table.upsert(rows(("a", "nl", 1, 1), ("b", "nl", 1, 1), ("x", "de", 1, 1)))
    table.upsert(rows(("c", "nl", 1, 1)))
    table.delete(pa.table({"id": ["a"], "country": ["nl"]}))
    (nl,) = listed(capsys, tmp_path, "--partition", "nl")
    (found,) = nl["slices"]
    assert (found["rows"], found["key_range"], len(found["files"]), len(found["runs"])) == (3, ["a", "c"], 3, 3)
    assert found["bytes"] == sum(size for path, size in sizes(tmp_path) if path.parent.name == "nl")
    assert [group["partition"] for group in listed(capsys, tmp_path)] == ["de", "nl"]
    *_, last = run(capsys, "files", tmp_path).splitlines()
    assert last.startswith("2 file groups, 4 files, ")
    assert "has no partition 'fr'" in run(capsys, "files", tmp_path, "--partition", "fr", code=2)


def sizes(root: Path) -> list[tuple[Path, int]]:
    return [(path, path.stat().st_size) for path in root.glob("*/*.parquet")]


def test_old_slices_are_listed_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, _ = grown(tmp_path, **{"hoodie.clean.automatic": False})
    table.compact()
    (first, *_) = listed(capsys, tmp_path)
    assert [found["is_latest"] for found in first["slices"]] == [True]
    every = listed(capsys, tmp_path, "--all")
    assert [[found["is_latest"] for found in group["slices"]] for group in every] == [[False, True]] * 2
    assert sum(len(found["files"]) for group in every for found in group["slices"]) == len(sizes(tmp_path))
    assert sum(line.endswith(" old") for line in run(capsys, "files", tmp_path, "--all").splitlines()) == 2


def test_the_versions_of_a_key_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = create(tmp_path, **OPTIONS)
    table.upsert(rows(("a", "nl", 1, 1)))
    table.upsert(rows(("a", "nl", 2, 7)))
    table.delete(pa.table({"id": ["a"], "country": ["nl"], "ts": [3]}))
    times = [write.requested for write in table.timeline.completed_writes]
    heading, *lines = run(capsys, "history", tmp_path, "a").splitlines()
    assert heading.split()[:4] == ["commit", "time", "partition", "deleted"]
    assert [line.split()[0] for line in lines] == times
    versions = [json.loads(line) for line in run(capsys, "history", tmp_path, "a", "--json").splitlines()]
    assert [(found["qty"], found["_lsm_deleted"]) for found in versions] == [(1, False), (7, False), (None, True)]
    assert run(capsys, "history", tmp_path, "z").startswith("no version of key 'z'")
    assert run(capsys, "history", tmp_path, "z", "--json") == ""
