"""The tables that real Hudi wrote, with the rows that it read back, as a list of reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tests.conformance.judge import Query
from tests.support.hudi_tables import FOLDER, reads, unpacked


@dataclass(frozen=True, slots=True)
class Read:
    """One query of one fixture.

    Attributes:
        table: its name.
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


def all_reads() -> list[Read]:
    """Every read that the manifests list."""
    return [
        Read(
            table,
            cast(Query, query),
            {name: one[name] for name in ("begin", "end", "as_of") if name in one},
            FOLDER / one["file"],
        )
        for table, query, one in reads()
    ]


def unpack(table: str, into: Path) -> Path:
    """Folder of the table, unpacked below `into` when it is not there yet."""
    target = into / table
    return target if target.exists() else unpacked(table, into)
