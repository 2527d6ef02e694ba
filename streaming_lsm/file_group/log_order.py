"""Sort the logs of a slice into merge order; the output of a log compaction replaces the logs that it compacted."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

Log = TypeVar("Log")


Said: TypeAlias = Callable[[Log], tuple[str, tuple[str, ...]]]
"""Returns the instant of a log, and its compacted instants, which are empty unless a log compaction wrote it."""


class KnownInstants:
    """Gathers what the headers of logs say, the newest first, so that logs that were replaced need not be opened.

    Attributes:
        said: what the logs of each known instant replaced; nothing unless a log compaction wrote them.
        covered: the instants that were replaced.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self.said: dict[str, tuple[str, ...]] = {}
        self.covered: set[str] = set()

    def learn(self, instant: str, compacted: tuple[str, ...], chain: Mapping[str, tuple[str, ...]] | None) -> None:
        """Add what the header of one log says.

        Args:
            chain: the log compactions that it replaced, directly or not, with what each of them replaced. None if the
                header does not say; then the logs of `compacted` must be looked at.
        """
        if compacted or instant not in self.said:
            self.said[instant] = compacted
        self.covered.update(compacted)
        if chain is None:
            return
        replaced = {*compacted, *chain, *(time for times in chain.values() for time in times)}
        self.covered |= replaced
        for time in replaced:
            self.said.setdefault(time, chain.get(time, ()))


def chain_of(instants: Iterable[str], covers: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the log compactions among some instants, and among what these replaced, with what each of them replaced.

    Args:
        covers: of each log compaction of the slice the instants that it replaced.
    """
    pending, found = list(instants), dict[str, tuple[str, ...]]()
    while pending:
        instant = pending.pop()
        if instant in covers and instant not in found:
            found[instant] = covers[instant]
            pending.extend(covers[instant])
    return found


def is_of_commits(instant: str, compacted: tuple[str, ...], there: Container[str], commits: Container[str]) -> bool:
    """Return whether the logs of an instant take part in an incremental read; see `logs_of_commits`.

    Args:
        compacted: what the instant's logs replaced.
        there: instants of the logs of the slice.
        commits: instants whose rows take part.
    """
    return not all(time in there for time in compacted) if compacted else instant in commits


def logs_of_commits(logs: Sequence[Log], said: Said[Log], commits: Container[str], base_instant: str = "") -> list[Log]:
    """Select the logs of an incremental read (docs/format/10-rules.md, "Rule 1", "Rule 4").

    These are the logs of the given instants, and the logs of a log compaction whose compacted logs were cleaned; only
    some rows of the latter may be of those instants. Deletes that a full compaction kept are of no instant.

    Args:
        logs, said, base_instant: see `merge_order`.
        commits: instants whose rows take part.
    """
    there = {said(log)[0] for log in logs}
    return [log for log in logs if said(log)[0] != base_instant and is_of_commits(*said(log), there, commits)]


def merge_order(
    logs: Sequence[Log],
    said: Said[Log],
    base_instant: str = "",
    replaced: Mapping[str, tuple[str, ...]] | None = None,
) -> list[Log]:
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
        replaced: what other instants of the slice replaced, whose logs are left out of `logs` as they were replaced.
    """
    instants = [said(log)[0] for log in logs]
    headers = [*(replaced or {}).items(), *map(said, logs)]
    covers = {instant: compacted for instant, compacted in headers if compacted}
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
