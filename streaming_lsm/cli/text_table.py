"""Render rows of text as aligned columns for the command line.

If rich is installed, wide columns are folded to the width of the terminal. Without rich, and in a file or pipe, each
row is one line.
"""

from __future__ import annotations

import datetime
import decimal
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

_GAP = "  "
_PIPE_WIDTH = 1_000
_LEAST_WIDTH = 4
"""Least width of a column that is folded."""


@dataclass(frozen=True)
class TextTable:
    """Collects the headings and rows of a text table.

    Attributes:
        headings: names of the columns.
        right: headings of right-aligned columns, such as numbers.
        whole: headings of columns that are never folded, such as instants; a table that needs more than the width of
            the terminal for them is wider.
        rows: cells of each row, one for each heading.
    """

    headings: Sequence[str]
    right: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    rows: list[Sequence[str]] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        """Append a row."""
        self.rows.append(cells)

    def lines(self) -> list[str]:
        """Render headings and rows, without trailing spaces."""
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_WIDTH
        try:
            return self._folded(width)
        except ModuleNotFoundError:
            return self._plain()

    def _plain(self) -> list[str]:
        table = [self.headings, *([cell.replace("\n", "\\n") for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return [_GAP.join(map(self._aligned, self.headings, row, widths)).rstrip() for row in table]

    @property
    def _least_width(self) -> int:
        """Width in which no column of `whole` is cut."""
        cells = zip(self.headings, zip(self.headings, *self.rows, strict=True), strict=True)
        widths = [max(map(len, column)) if heading in self.whole else _LEAST_WIDTH for heading, column in cells]
        return sum(widths) + len(_GAP) * (len(widths) - 1)

    def _aligned(self, heading: str, cell: str, width: int) -> str:
        return cell.rjust(width) if heading in self.right else cell.ljust(width)

    def _folded(self, width: int) -> list[str]:
        from rich.console import Console
        from rich.table import Table

        shown = Table(box=None, pad_edge=False)
        for heading in self.headings:
            shown.add_column(
                heading,
                justify="right" if heading in self.right else "left",
                overflow="fold",
                no_wrap=heading in self.whole,
            )
        for row in self.rows:
            shown.add_row(*row)
        # Without markup, as a value such as `[/x]` is printed as it is.
        console = Console(
            width=max(width, self._least_width), no_color=True, markup=False, emoji=False, highlight=False
        )
        with console.capture() as capture:
            console.print(shown)
        return [line.rstrip() for line in capture.get().splitlines()]


def row_lines(rows: pa.Table) -> list[str]:
    """Render rows as a table."""
    shown = TextTable(rows.schema.names)
    for row in rows.to_pylist():
        shown.add(*map(cell_text, row.values()))
    return shown.lines()


def cell_text(value: object) -> str:
    """Render a value: a null as an empty text, a time with a zone with ``Z`` at its end, also inside other values."""
    if value is None:
        return ""
    return value if isinstance(value, str) else _nested_text(value)


def _nested_text(value: object) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_nested_text(name)}: {_nested_text(each)}' for name, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_nested_text, value))}]"
    if isinstance(value, tuple):  # an entry of a map
        return f"({', '.join(map(_nested_text, value))})"
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, datetime.datetime) and value.utcoffset() == datetime.timedelta():
        return f"{str(value).removesuffix('+00:00')}Z"
    return repr(value) if isinstance(value, str) else str(value)
