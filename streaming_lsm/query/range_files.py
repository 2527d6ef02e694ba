"""Find the files of slices that may have rows of an incremental query, by the timeline alone; no file is opened."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.timeline.action_kind import LOG_COMPACTION
from streaming_lsm.timeline.timeline import Timeline


def files_of_range(
    slices: Iterable[FileSlice], timeline: Timeline, since: str, commits: Collection[str]
) -> list[FileSlice]:
    """Return the slices without the files that no write of a range has rows in; slices without any file are left out.

    A base file that was completed by the beginning of the range has older rows only. A log has the rows of its own
    instant only, unless a log compaction wrote it; slices with such a log keep their logs, which together tell which
    rows count (docs/format/10-rules.md, "Rule 4").

    Args:
        slices: any slices; those with inline logs stay as they are.
        timeline: the timeline as of the end of the range.
        since: beginning of the range, excluded.
        commits: requested times of the writes of the range.
    """
    single, wanted = _single_instants(timeline), frozenset(commits)

    def reduced(found: FileSlice) -> FileSlice:
        if not found.is_native:
            return found
        completed = timeline.completion_time(found.base_instant) if found.base else None
        if completed is not None and completed <= since:
            found = replace(found.without_kept(), base=None)
        instants = {log.name.instant for log in found.logs}
        if instants <= single | {found.base_instant}:
            found = replace(found, logs=tuple(log for log in found.logs if log.name.instant in wanted))
        return found

    return [left for found in slices if (left := reduced(found)).paths]


def _single_instants(timeline: Timeline) -> frozenset[str]:
    """Return the requested times of the delta commits that no compaction made: of logs, or of a hybrid plan."""
    states = timeline.whole.names.states
    return frozenset(
        write.requested
        for write in timeline.completed_writes
        if write.action == "deltacommit"
        and write.of_action in states
        and all(state.action != LOG_COMPACTION for state in states[write.of_action])
    )
