"""What a golden table is, and the register of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .build import Layout, TableBuilder

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class GoldenTable:
    """A table on disk with the rows that a reader has to return.

    ``rows`` and the values of ``as_of`` are sorted by partition path and record key and have no meta columns; a map is
    a list of pairs, as pyarrow's to_pylist gives it. ``violations`` are the codes that the validator has to report.
    """

    name: str
    path: Path
    rows: Rows
    as_of: Mapping[str, Rows] = field(default_factory=dict)
    violations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expect:
    """What a maker of a golden table returns: expectations by hand."""

    rows: Rows
    as_of: Mapping[str, Rows] = field(default_factory=dict)
    violations: tuple[str, ...] = ()


GOLDEN: dict[str, Callable[[Path], GoldenTable]] = {}
FIELDS: list[tuple[str, Any]] = [("id", "string"), ("name", ["null", "string"]), ("ts", "long")]


def golden(layout: Layout) -> Callable[[Callable[[TableBuilder], Expect]], Callable[[Path], GoldenTable]]:
    """Register a maker under its function's name; the table becomes a folder of that name in the folder given."""

    def register(make: Callable[[TableBuilder], Expect]) -> Callable[[Path], GoldenTable]:
        name = make.__name__

        def build(parent: Path) -> GoldenTable:
            path = Path(parent) / name
            expect = make(TableBuilder(path, layout))
            return GoldenTable(name, path, expect.rows, expect.as_of, expect.violations)

        build.__doc__ = make.__doc__
        GOLDEN[name] = build
        return build

    return register


def at(second: int, millis: int = 0) -> str:
    """Return an instant on 20 November 2026, so many seconds after ten o'clock."""
    return f"2026112010{second // 60:02d}{second % 60:02d}{millis:03d}"


def rows(names: str | Sequence[str], *values: Sequence[Any]) -> Rows:
    """Write rows as tuples under a header of names."""
    header = names.split() if isinstance(names, str) else names
    return [dict(zip(header, value, strict=True)) for value in values]
