"""The tables that real Hudi wrote, with the rows that it read back, as a list of reads."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.environment import ROOT
from tests.conformance.judge import Query

FOLDER = ROOT.parent / "shared" / "fixtures"


@dataclass(frozen=True, slots=True)
class Read:
    """One query of one fixture.

    Attributes:
        table: folder and name, such as ``hudi-1.2/v9_mor_avro``.
        query: query type.
        how: begin, end and as_of, where the query type has them.
        expected: file of the JSON lines.
    """

    table: str
    query: Query
    how: dict[str, str]
    expected: Path

    @property
    def label(self) -> str:
        """The query type with its parameters."""
        return "_".join([self.query, *self.how.values()])

    def lines(self) -> list[str]:
        """The rows that it shall return."""
        return self.expected.read_text(encoding="utf-8").split("\n")[:-1]


def all_reads(folder: Path = FOLDER) -> list[Read]:
    """Every read that the manifests list; none when the folder is not there."""
    return [read for manifest in sorted(folder.glob("*/*.json")) for read in _reads(manifest)]


def _reads(manifest: Path) -> Iterator[Read]:
    table = f"{manifest.parent.name}/{manifest.stem}"
    for query, listed in json.loads(manifest.read_text(encoding="utf-8"))["reads"].items():
        for one in listed if isinstance(listed, list) else [listed]:
            how = {name: one[name] for name in ("begin", "end", "as_of") if name in one}
            yield Read(table, query, how, manifest.parent / one["file"])


def unpack(table: str, into: Path, folder: Path = FOLDER) -> Path:
    """Folder of the table, unpacked below `into` when it is not there yet."""
    release, name = table.split("/")
    target = into / release / name
    if not target.exists():
        with tarfile.open(folder / f"{table}.tar.gz") as packed:
            packed.extractall(into / release, filter="data")
    return target
