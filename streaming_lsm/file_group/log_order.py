"""The logs of a slice in merge order, compacted ones in place of those they stand for."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import TypeAlias, TypeVar

Log = TypeVar("Log")


Said: TypeAlias = Callable[[Log], tuple[str, tuple[str, ...]]]
"""The instant of a log, and the instants that it stands for, none unless a log compaction wrote it."""


def logs_of_commits(logs: Sequence[Log], said: Said[Log], commits: Container[str]) -> list[Log]:
    """The logs that an incremental read takes (docs/format/10-rules.md, "Rule 1", "Rule 4").

    Those of the instants in question; and what a log compaction wrote where the files that it stands for are gone, of
    which only some rows may be of those instants.
    """
    there = {said(log)[0] for log in logs}
    return [log for log in logs if _taken(*said(log), there, commits)]


def _taken(instant: str, compacted: tuple[str, ...], there: Container[str], commits: Container[str]) -> bool:
    return not all(time in there for time in compacted) if compacted else instant in commits


def merge_order(logs: Sequence[Log], said: Said[Log]) -> list[Log]:
    """Logs, or blocks of logs, that take part in a merge, the oldest first.

    See docs/format/04-inline-logs.md, "Scan algorithm"; docs/format/10-rules.md, "Rule 3".

    What one instant wrote stays together, at the place of its first. What a log compaction wrote takes the place of the
    newest uncompacted instant that it stands for; what is of the instants it lists is left out.

    Args:
        logs: in the order of their files.
        said: what each says of itself.
    """
    instants = [said(log)[0] for log in logs]
    covers = {instant: compacted for instant, compacted in map(said, logs) if compacted}
    if not covers:
        first = {instant: place for place, instant in reversed(list(enumerate(instants)))}
        return sorted(logs, key=lambda log: first[said(log)[0]])
    covered = {instant for compacted in covers.values() for instant in compacted}

    def place(log: Log) -> tuple[str, str]:
        instant = said(log)[0]
        return (_newest(instant, covers), instant)

    return sorted((log for log, instant in zip(logs, instants, strict=True) if instant not in covered), key=place)


def _newest(instant: str, covers: Mapping[str, tuple[str, ...]]) -> str:
    """The newest instant without a compaction of its own that `instant` stands for."""
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
