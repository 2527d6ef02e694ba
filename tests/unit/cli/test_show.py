"""``lsm show``: settings, timeline and services of a table, as text and as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from streaming_lsm.cli.commands import main
from streaming_lsm.cli.text_table import TextTable
from tests.support.service_tables import grown
from tests.support.small_tables import create


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main([str(argument) for argument in arguments]) == code
    out, err = capsys.readouterr()
    assert bool(err) == bool(code), err
    return err if code else out


def test_settings_and_services_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, _ = grown(tmp_path)
    said = run(capsys, "show", tmp_path)
    assert said.splitlines()[0] == table.path
    assert "storage layout" in said
    assert "lsm_tree" in said
    assert table.timeline.completed_writes[-1].file_name in said
    shown = json.loads(run(capsys, "show", tmp_path, "--json", "-o", "hoodie.compact.inline.max.delta.commits=2"))
    services = {service["service"]: service for service in shown["services"]}
    assert sorted(services) == ["archive", "clean", "compact", "expire-partitions"]
    assert services["compact"]["is_due"] is True
    assert services["compact"]["found"].startswith("2 file groups to compact")
    assert services["clean"]["is_due"] is False
    assert services["clean"]["found"].startswith("nothing to clean")
    assert services["archive"]["found"].startswith("nothing to archive")
    assert shown["settings"]["record key"] == ["id"]
    assert shown["timeline"]["last write"] == table.timeline.completed_writes[-1].file_name


def test_a_planned_compaction_is_due(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, _ = grown(tmp_path)
    planned, _ = table.services.schedule()
    assert planned is not None
    compact = json.loads(run(capsys, "show", tmp_path, "--json"))["services"][0]
    assert compact["pending"] == [planned.file_name]
    assert compact["is_due"] is True


def test_a_table_without_writes_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create(tmp_path)
    shown = json.loads(run(capsys, "show", tmp_path, "--json"))
    assert shown["timeline"]["last write"] is None
    assert not any(service["is_due"] for service in shown["services"])


def test_the_timeline_is_printed_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, _ = grown(tmp_path)
    planned, _ = table.services.schedule()
    assert planned is not None
    *writes, pending = [json.loads(line) for line in run(capsys, "timeline", tmp_path, "--json").splitlines()]
    assert [found["requested"] for found in writes] == [write.requested for write in table.timeline.completed_writes]
    assert (writes[0]["operation"], writes[0]["state"]) == ("UPSERT", "completed")
    assert writes[0]["rows"] > 0
    assert (pending["requested"], pending["completed"], pending["files"]) == (planned.requested, None, None)


def test_instants_are_whole_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    numbers = ("files", "rows", "deletes", "bytes")
    headings = ("requested", "completed", "action", "state", "operation", *numbers)
    shown = TextTable(headings, frozenset(numbers), frozenset(("requested", "completed")))
    times = ("20261123215126011", "20261123215126168")
    shown.add(*times, "replacecommit", "completed", "INSERT_OVERWRITE", "1,000", "1,000,000", "0", "123,456,789")
    lines = [re.sub("\x1b\\[[0-9]*m", "", line) for line in shown.lines()]
    assert [line.split()[:2] for line in lines if times[0] in line] == [list(times)]
    assert max(map(len, lines)) <= 80
