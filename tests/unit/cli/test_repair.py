"""``lsm repair``: what it prints before and after it rebuilds a timeline."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from streaming_lsm.cli.commands import main
from tests.support.service_tables import assert_sound, grown, reopened


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main([str(argument) for argument in arguments]) == code
    out, err = capsys.readouterr()
    return err if code else out


def test_a_proposal_changes_nothing_and_is_what_is_written_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, model = grown(tmp_path)
    table.compact()
    before = [write.requested for write in table.timeline.completed_writes]
    shutil.rmtree(tmp_path / ".hoodie/timeline")

    lines = run(capsys, "repair", tmp_path).splitlines()
    assert lines[0].split() == ["requested", "action", "operation", "files", "rows", "deletes"]
    assert [line.split()[0] for line in lines[1:6]] == before
    assert lines[5].split()[1:3] == ["commit", "COMPACT"]
    assert [line.split(":")[0] for line in lines[6:-1]] == ["not known"] * 5
    assert lines[-1].startswith("5 completed instants with ")
    assert lines[-1].endswith(" would be written: run it again with --apply")
    proposed = json.loads(run(capsys, "repair", tmp_path, "--json"))
    assert not (tmp_path / ".hoodie/timeline").exists()

    written = json.loads(run(capsys, "repair", tmp_path, "--apply", "--json"))
    assert written == {**proposed, "applied": True, "rows": len(model)}
    assert [found["requested"] for found in written["instants"]] == before
    assert_sound(reopened(table), model)
    assert "is not lost: an earlier repair has rebuilt its 5 completed writes" in run(
        capsys, "repair", tmp_path, code=2
    )


def test_what_cannot_be_placed_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grown(tmp_path)
    shutil.rmtree(tmp_path / ".hoodie/timeline")
    damaged = next((tmp_path / "nl").glob("*.parquet"))
    damaged.write_bytes(b"torn")
    lines = run(capsys, "repair", tmp_path).splitlines()
    assert any(line.startswith(f"cannot be placed: nl/{damaged.name}: ") for line in lines)
    assert lines[-1].endswith("but for what cannot be placed: restore these files, or move them away")
    assert "cannot be placed" in run(capsys, "repair", tmp_path, "--apply", code=2)


def test_an_empty_table_has_nothing_to_rebuild(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, _ = grown(tmp_path, batches=0)
    said = "nothing to rebuild: there are no data files of writes that are not archived\n"
    assert run(capsys, "repair", tmp_path) == said
    assert run(capsys, "repair", tmp_path, "--apply") == said
    assert table.timeline.instants == ()
