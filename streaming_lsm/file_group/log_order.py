"""Sort the logs of a slice into merge order; the output of a log compaction replaces the logs that it compacted."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import TypeAlias, TypeVar

Log = TypeVar("Log")


Said: TypeAlias = Callable[[Log], tuple[str, tuple[str, ...]]]
"""Returns the instant of a log, and its compacted instants, which are empty unless a log compaction wrote it."""


def logs_of_commits(logs: Sequence[Log], said: Said[Log], commits: Container[str], base_instant: str = "") -> list[Log]:
    """Select the logs of an incremental read (docs/format/10-rules.md, "Rule 1", "Rule 4").

    These are the logs of the given instants, and the logs of a log compaction whose compacted logs were cleaned; only
    some rows of the latter may be of those instants. Deletes that a full compaction kept are of no instant.

    Args:
        logs, said, base_instant: see `merge_order`.
        commits: instants whose rows take part.
    """
    there = {said(log)[0] for log in logs}
    return [log for log in logs if said(log)[0] != base_instant and _taken(*said(log), there, commits)]


def _taken(instant: str, compacted: tuple[str, ...], there: Container[str], commits: Container[str]) -> bool:
    return not all(time in there for time in compacted) if compacted else instant in commits


def merge_order(logs: Sequence[Log], said: Said[Log], base_instant: str = "") -> list[Log]:
    """Sort logs, or blocks of logs, into merge order, the oldest first, and drop those that were compacted.

    See docs/format/04-inline-logs.md, "Scan algorithm"; docs/format/10-rules.md, "Rule 3".

    Logs of one instant stay together, at the position of the first. Logs of a log compaction take the position of the
    newest uncompacted instant that they replace; logs of the compacted instants are dropped. Deletes that a full
    compaction kept come right after the base file, as the rows that it merged do: a write that was requested before
    the compaction may have been completed after it (docs/format/06-services.md, "Kept deletes").

    Args:
        logs: in the order of their files.
        said: returns a log's instant and compacted instants.
        base_instant: the instant of the slice's base file; logs of it come first. Empty without a base file.
    """
    instants = [said(log)[0] for log in logs]
    covers = {instant: compacted for instant, compacted in map(said, logs) if compacted}
    if not covers:
        first = {instant: place for place, instant in reversed(list(enumerate(instants)))}
        return sorted(logs, key=lambda log: (said(log)[0] != base_instant, first[said(log)[0]]))
    covered = {instant for compacted in covers.values() for instant in compacted}

    def place(log: Log) -> tuple[bool, str, str]:
        instant = said(log)[0]
        return (instant != base_instant, _newest(instant, covers), instant)

    return sorted((log for log, instant in zip(logs, instants, strict=True) if instant not in covered), key=place)


def _newest(instant: str, covers: Mapping[str, tuple[str, ...]]) -> str:
    """Return the newest uncompacted instant that `instant` replaces, directly or through a chain of compactions."""
    pending, seen, found = [instant], set(), ""
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        if current in covers:
            pending.extend(covers[current])
        else:
            found = max(found, current)
    return found
