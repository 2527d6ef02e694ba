"""Tables that real Hudi wrote, of versions 6, 8 and 9, read as it reads them itself."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming_lsm.cli import main

TABLES = Path(__file__).parent / "data" / "tables"
MANIFESTS = sorted(TABLES.glob("*.json"))

QUERY_TYPES = {
    "snapshot": "snapshot",
    "read_optimized": "read_optimized",
    "incremental": "incremental",
    "time_travel": "snapshot",
    "cdc": "cdc",
}


def _reads() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Table, kind of read and its parameters, for every expectation that is stored."""
    for path in MANIFESTS:
        for kind, found in json.loads(path.read_text(encoding="utf-8"))["reads"].items():
            for read in found if isinstance(found, list) else [found]:
                yield path.stem, kind, read


READS = list(_reads())


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    for path in MANIFESTS:
        with tarfile.open(TABLES / f"{path.stem}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return folder


def test_every_stored_expectation_is_read() -> None:
    stored = {path.name for path in TABLES.glob("*.jsonl")}
    assert {read["file"] for _, _, read in READS} == stored
    assert len(MANIFESTS) == 33


@pytest.mark.parametrize(("table", "kind", "read"), READS, ids=[read["file"] for _, _, read in READS])
def test_the_command_line_prints_what_hudi_reads(
    unpacked: Path, tmp_path: Path, table: str, kind: str, read: dict[str, str]
) -> None:
    command = ["read", str(unpacked / table), "--query-type", QUERY_TYPES[kind], "--format", "jsonl"]
    if kind != "cdc":
        command.append("--meta")
    for name, option in (("begin", "--begin"), ("end", "--end"), ("as_of", "--as-of")):
        if name in read:
            command += [option, read[name]]
    printed = tmp_path / "printed.jsonl"

    assert main([*command, "--output", str(printed)]) == 0

    assert printed.read_text(encoding="utf-8") == (TABLES / read["file"]).read_text(encoding="utf-8")
