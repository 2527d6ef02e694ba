"""The model: the rows after each commit, and which attempts at which batches there were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from streaming_lsm.timeline.instant import TIMELINE_FOLDER, WRITE_ACTIONS, Instant, State
from tests.support.simulation.workload import Batch
from tests.support.small_tables import Row


class Violation(Exception):
    """A promise of the package is broken.

    Attributes:
        kind: which, in a word or two.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.args[1]}"


Rows = dict[str, Row]


@dataclass
class Attempt:
    """One call that writes a batch.

    Attributes:
        batch: the batch.
        track: who made it.
        instant: the requested time, once it is drawn.
        refused: name of the error that says that nothing of it is committed, now or later.
    """

    batch: Batch
    track: str
    instant: str = ""
    refused: str = ""


@dataclass
class Published:
    """A completed write, in the order in which they were completed; compactions change no rows."""

    requested: str
    completed: str
    attempt: Attempt | None
    rows: Rows


@dataclass
class History:
    """What was committed.

    Attributes:
        published: the completed writes and compactions.
        began: attempts by the requested time of their instants.
        deleted: how many data files were deleted.
    """

    published: list[Published] = field(default_factory=list)
    began: dict[str, Attempt] = field(default_factory=dict)
    deleted: int = 0

    def states(self, since: int = 0) -> Iterator[Rows]:
        """The rows at each moment since a number of writes were completed."""
        for count in range(since, len(self.published) + 1):
            yield self.rows_after(count)

    def rows_after(self, count: int) -> Rows:
        """The rows after a number of completed writes."""
        return self.published[count - 1].rows if count else {}

    @property
    def committed(self) -> list[Batch]:
        """The batches of the completed writes."""
        return [one.attempt.batch for one in self.published if one.attempt is not None]

    def on_put(self, path: str, attempt: Attempt | None) -> None:
        """A file was created: an action begins, or is completed."""
        if not path.startswith(TIMELINE_FOLDER + "/"):
            return
        found = Instant.parse(path.removeprefix(TIMELINE_FOLDER + "/"))
        if found is None:
            return
        if found.completed is not None:
            self._on_completed(found, found.completed)
        elif found.state is State.REQUESTED:
            # The time of an action that was rolled back may be used again.
            self.began.pop(found.requested, None)
            if attempt is not None and found.action in WRITE_ACTIONS:
                attempt.instant = found.requested
                self.began[found.requested] = attempt

    def _on_completed(self, found: Instant, completed: str) -> None:
        if not found.is_write:
            return
        last = self.published[-1].completed if self.published else ""
        if completed <= last:
            raise Violation("history not linear", f"{found.path} is completed after one of {last}")
        attempt = self.began.get(found.requested)
        if attempt is not None and attempt.batch in self.committed:
            raise Violation("batch twice", f"{attempt.batch} is committed again by {found.path}")
        if attempt is not None and attempt.refused:
            raise Violation("refused and committed", f"{attempt.batch} by {found.path}: was told {attempt.refused}")
        before = self.rows_after(len(self.published))
        rows = before if attempt is None else applied(before, attempt.batch)
        self.published.append(Published(found.requested, completed, attempt, rows))

    def refuse(self, attempt: Attempt, error: str) -> None:
        """Its writer was told that nothing of an attempt is committed."""
        attempt.refused = error
        if any(one.attempt is attempt for one in self.published):
            raise Violation(
                "refused and committed", f"{attempt.batch} at {attempt.instant}, of {attempt.track}: {error}"
            )

    def acknowledge(self, batch: Batch, how: str) -> None:
        """A writer was told that its batch is committed."""
        if batch not in self.committed:
            raise Violation("acknowledged and not committed", f"{batch}: {how}")


def applied(before: Rows, batch: Batch) -> Rows:
    """The rows after a batch: the greater ordering value wins, and of equal ones the later."""
    rows = dict(before)
    for key, _ in batch.deletes:
        rows.pop(key, None)
    for row in batch.rows:
        known = rows.get(row[0])
        if known is None or row[2] >= known[2]:
            rows[row[0]] = row
    return rows
