"""Tables that real Hudi wrote, of versions 6, 8 and 9, read as it reads them itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_lsm.cli import main
from tests.support.hudi_tables import FOLDER, MANIFESTS, reads, unpacked

QUERY_TYPES = {
    "snapshot": "snapshot",
    "read_optimized": "read_optimized",
    "incremental": "incremental",
    "time_travel": "snapshot",
    "cdc": "cdc",
}


READS = list(reads())


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
    command = ["read", str(tables / table), "--query-type", QUERY_TYPES[kind], "--format", "jsonl"]
    if kind != "cdc":
        command.append("--meta")
    for name, option in (("begin", "--begin"), ("end", "--end"), ("as_of", "--as-of")):
        if name in read:
            command += [option, read[name]]
    printed = tmp_path / "printed.jsonl"

    assert main([*command, "--output", str(printed)]) == 0

    assert printed.read_text(encoding="utf-8") == (FOLDER / read["file"]).read_text(encoding="utf-8")
