"""What was judged: case by direction by query type, with outcome and seconds, printed at the end of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

_HEADINGS = ("case", "direction", "query", "outcome", "seconds", "note")
_OUTCOMES = ("passed", "failed", "refused", "not run")


@dataclass(slots=True)
class Line:
    """One line of the table.

    Attributes:
        case: the table or its history.
        direction: who wrote it and who reads it.
        query: query type.
        note: anything to be said about it; may be set while the line is open.
        outcome: passed, failed, refused or not run; empty while it is open.
        seconds: from this line's `record` call to the next one or the test's end.
    """

    case: str
    direction: str
    query: str
    note: str = ""
    outcome: str = ""
    seconds: float = 0.0
    begun: float = field(default=0.0, repr=False)
    refused: bool = field(default=False, repr=False)

    def refuse(self, reason: str) -> None:
        """Say that the reader refuses this case, as is known of it; the line is neither passed nor failed then."""
        self.note, self.refused = reason, True


class Record(Protocol):
    """What a test calls to begin a line; see `Results.record`."""

    def __call__(self, case: str, direction: str, query: str, note: str = "") -> Line: ...


class Results:
    """Lines of all tests of a run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.lines: list[Line] = []

    def record(self, case: str, direction: str, query: str, note: str = "") -> Line:
        """Begin a line; the one that is open was passed, as the test came this far."""
        self.close("passed")
        line = Line(case, direction, query, note, begun=self._clock())
        self.lines.append(line)
        return line

    def close(self, outcome: str) -> None:
        """End the open line, if there is one."""
        if self.lines and not self.lines[-1].outcome:
            line = self.lines[-1]
            line.outcome = "refused" if line.refused and outcome == "passed" else outcome
            line.seconds = self._clock() - line.begun


def as_text(lines: list[Line]) -> Iterator[str]:
    """The table's text lines, and one that counts outcomes."""
    rows = [_HEADINGS, *((x.case, x.direction, x.query, x.outcome, f"{x.seconds:.1f}", x.note) for x in lines)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADINGS) - 1)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        cells[4] = cells[4].strip().rjust(widths[4])
        yield "  ".join([*cells, row[-1]]).rstrip()
    outcomes = [line.outcome for line in lines]
    yield "; ".join(f"{outcomes.count(name)} {name}" for name in _OUTCOMES if name in outcomes)
