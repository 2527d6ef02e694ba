"""The logs of a slice in merge order, compacted ones in place of those they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streaming_lsm.format.log_header import LogHeader
from streaming_lsm.read.file_view import LogFile


def merge_order(logs: Sequence[LogFile], headers: Mapping[str, LogHeader]) -> list[LogFile]:
    """Logs that take part in a merge, the oldest first (format 10, rule 3).

    A log compaction's file takes the place of the newest uncompacted instant that it stands for;
    files of the instants it lists are left out.

    Args:
        logs: the logs of one slice.
        headers: their footers by path.
    """
    covers = {header.instant: header.compacted for header in headers.values() if header.compacted}
    covered = {instant for instants in covers.values() for instant in instants}

    def place(log: LogFile) -> tuple[object, ...]:
        return (_newest(log.name.instant, covers), log.name.sort_key)

    return sorted((log for log in logs if log.name.instant not in covered), key=place)


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
