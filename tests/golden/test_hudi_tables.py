"""Tables that real Hudi wrote, of versions 6, 8 and 9, read as it reads them itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.cli.commands import main
from streaming_lsm.errors import CorruptFileError
from tests.support.faulty_storage import FaultyStorage
from tests.support.hudi_change_lines import hudi_change_lines
from tests.support.hudi_tables import FOLDER, MANIFESTS, reads, unpacked
from tests.support.printed_rows import printed_lines

QUERY_TYPES = {
    "snapshot": "snapshot",
    "read_optimized": "read_optimized",
    "incremental": "incremental",
    "time_travel": "snapshot",
    "cdc": "cdc",
}


READS = list(reads())
LISTED = [name for name, manifest in MANIFESTS.items() if "files" in manifest["metadata_partitions"]]
"""Tables with a metadata table."""
LISTED_READS = [read for read in READS if read[0] in LISTED]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    for name in MANIFESTS:
        unpacked(name, folder)
    return folder


def test_every_stored_expectation_is_read() -> None:
    stored = {path.name for path in FOLDER.glob("*.jsonl")}
    assert {read["file"] for _, _, read in READS} == stored
    assert len(MANIFESTS) == 33


@pytest.mark.parametrize(("table", "kind", "read"), READS, ids=[read["file"] for _, _, read in READS])
def test_the_command_line_prints_what_hudi_reads(
    tables: Path, tmp_path: Path, table: str, kind: str, read: dict[str, str]
) -> None:
    assert printed(tables / table, kind, read, tmp_path / "printed.jsonl") == expected(read)


@pytest.mark.parametrize(("table", "kind", "read"), LISTED_READS, ids=[read["file"] for _, _, read in LISTED_READS])
def test_the_same_is_printed_of_the_files_that_the_metadata_table_lists(
    tables: Path,
    tmp_path: Path,
    table: str,
    kind: str,
    read: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("LSM_CONF_HOODIE_METADATA_ENABLE", "true")
    assert printed(tables / table, kind, read, tmp_path / "printed.jsonl") == expected(read)
    assert "folders are listed" not in caplog.text


@pytest.mark.parametrize("table", LISTED)
def test_no_folder_is_listed_where_the_metadata_table_is_asked(tables: Path, table: str) -> None:
    asking = LsmTable(tables / table, {"hoodie.metadata.enable": True})
    asking.storage = counting = FaultyStorage(asking.storage)
    asking.scan().to_arrow()
    folders = [path for call, path in counting.calls if call == "list" and not path.startswith(".hoodie")]
    assert folders == []


def printed(table: Path, kind: str, read: dict[str, str], target: Path) -> list[str]:
    """What the command line prints of one of the stored reads; changes in the form in which Hudi prints them."""
    command = ["read", str(table), "--query-type", QUERY_TYPES[kind], "--format", "jsonl"]
    if kind != "cdc":
        command.append("--meta")
    for name, option in (("begin", "--begin"), ("end", "--end"), ("as_of", "--as-of")):
        if name in read:
            command += [option, read[name]]
    assert main([*command, "--output", str(target)]) == 0
    if kind != "cdc":
        return printed_lines(target)
    changes = LsmTable(table).changes(read["begin"], read.get("end")).to_arrow()
    found = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert [(row["op"], row["ts_ms"]) for row in found] == [(row["op"], row["ts_ms"]) for row in changes.to_pylist()]
    return sorted(hudi_change_lines(changes))


def expected(read: dict[str, str]) -> list[str]:
    """What Hudi read."""
    return sorted((FOLDER / read["file"]).read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("table", MANIFESTS)
def test_a_check_finds_no_fault(tables: Path, table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tables / table)]) == 0
    assert capsys.readouterr().out.endswith(": no faults\n")


@pytest.mark.parametrize("table", ["v6_mor_compaction", "r015_cow_archived"])
def test_a_timeline_of_version_6_that_is_gone_is_no_empty_table(tmp_path: Path, table: str) -> None:
    root = unpacked(table, tmp_path)
    for path in (root / ".hoodie").glob("20*"):
        path.unlink()
    with pytest.raises(CorruptFileError, match="its instant files were lost"):
        LsmTable(root).scan().to_arrow()
