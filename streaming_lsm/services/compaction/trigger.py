"""Decide from the timeline alone whether a compaction is due (docs/format/06-services.md, "Compaction")."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.services.context import ServiceContext
from streaming_lsm.timeline.action_kind import COMPACTION, LOG_COMPACTION
from streaming_lsm.timeline.clock import Clock, instant_ms
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.planned_actions import pending_compactions

Merges = tuple[str, list[str]]
"""The requested times of the last compaction, "" without one, and of the delta commits that it did not merge."""
LOG_COMPACT = "LOG_COMPACT"
"""Operation type of a log compaction."""
NUM_COMMITS = "NUM_COMMITS"
NUM_COMMITS_AFTER_LAST_REQUEST = "NUM_COMMITS_AFTER_LAST_REQUEST"
TIME_ELAPSED = "TIME_ELAPSED"
NUM_AND_TIME = "NUM_AND_TIME"
NUM_OR_TIME = "NUM_OR_TIME"


@dataclass(frozen=True)
class CompactionTrigger:
    """The rule by which the next compaction is scheduled.

    Attributes:
        strategy: Hudi's name of the rule.
        commits: delta commits since the last compaction that make the next one due.
        seconds: time since the last compaction that makes the next one due.
    """

    strategy: str
    commits: int
    seconds: int

    @staticmethod
    def of(options: Options) -> CompactionTrigger:
        """Read the trigger from the options."""
        return CompactionTrigger(
            options[config.COMPACT_TRIGGER] or NUM_COMMITS,
            options[config.COMPACT_COMMITS],
            options[config.COMPACT_SECONDS],
        )

    def __str__(self) -> str:
        commits = f"{config.COMPACT_COMMITS.key}={self.commits}"
        seconds = f"{config.COMPACT_SECONDS.key}={self.seconds}"
        if self.strategy == TIME_ELAPSED:
            return f"{self.strategy}, {seconds}"
        return f"{self.strategy}, {commits}" + (f", {seconds}" if "TIME" in self.strategy else "")

    def is_due(
        self,
        timeline: Timeline,
        now_ms: int,
        zone: str,
        since: str = "",
        archived: Callable[[Timeline], Merges] | None = None,
    ) -> bool:
        """Return whether a compaction is due.

        Args:
            since: a time up to which nothing is left to merge; treated as a compaction.
            now_ms: milliseconds since the epoch. A clock that was set back never makes a compaction due by time.
            zone: the timeline's zone, ``UTC`` or ``LOCAL``.
            archived: reads the history, if archived delta commits count, too; called where the active timeline has
                neither a compaction nor enough of them. Archiving by the same options leaves what is needed there; by
                those of another process it may not.
        """
        after_request = self.strategy == NUM_COMMITS_AFTER_LAST_REQUEST
        last = max(since, _last_compaction(timeline, requested=after_request))
        new = _delta_commits_since(timeline.completed_writes, last)
        if archived is not None and not last and len(new) < self.commits:
            last, older = archived(timeline)
            new = [*older, *new]
        enough = len(new) >= self.commits
        if self.strategy in (NUM_COMMITS, NUM_COMMITS_AFTER_LAST_REQUEST) or not new:
            return enough and bool(new)
        late = now_ms - instant_ms(last or min(new), zone) >= self.seconds * 1000
        if self.strategy == TIME_ELAPSED:
            return late
        return enough and late if self.strategy == NUM_AND_TIME else enough or late

    def needs_since(self, timeline: Timeline, zone: str) -> str | None:
        """Return the requested time of the oldest delta commit by which `is_due` decides; None if it needs none.

        Archiving leaves it on the active timeline, with all that is younger.
        """
        deltas = [write for write in timeline.completed_writes if write.action == "deltacommit"]
        needed = []
        if "NUM" in self.strategy:
            needed += [deltas[-self.commits :][0].requested] if deltas else []
        if "TIME" in self.strategy and deltas:
            newest = instant_ms(deltas[-1].requested, zone)
            old = [d.requested for d in deltas if newest - instant_ms(d.requested, zone) >= self.seconds * 1000]
            needed.append(old[-1] if old else deltas[0].requested)
        return min(needed, default=None)


def log_compaction_is_due(timeline: Timeline, commits: int, since: str = "") -> bool:
    """Return whether so many delta commits were completed since the last compaction or log compaction.

    Args:
        since: a time up to which nothing is left to merge.
    """
    if any(pending.action == LOG_COMPACTION for pending in timeline.pending):
        return False
    new = 0
    for write in timeline.newest_first():
        if (write.completed or "") <= since or write.action == "commit":
            return False
        if write.action == "deltacommit":
            if timeline.read_commit(write).operation_type == LOG_COMPACT:
                return False
            new += 1
            if new >= commits:
                return True
    return False


class NextCompaction:
    """Tells when the next compaction of a table is due; remembers in memory up to when there was nothing to merge.

    Attributes:
        trigger: the rule.
    """

    def __init__(self, context: ServiceContext, clock: Clock) -> None:
        """Begin without any memory.

        Args:
            clock: the current time, for compactions that are due by time.
        """
        self.trigger = CompactionTrigger.of(context.options)
        self._zone = context.config.timeline_zone
        self._clock = clock
        self._fruitless = ""
        self._archived: tuple[str | None, Merges] | None = None

    def is_due(self, timeline: Timeline) -> bool:
        """Return whether a compaction is due; see `CompactionTrigger.is_due`."""
        return self.trigger.is_due(timeline, self._clock(), self._zone, self._fruitless, self._in_history)

    def _in_history(self, timeline: Timeline) -> Merges:
        """Read the history, again only when something was archived since."""
        if self._archived is None or self._archived[0] != timeline.first:
            history, last = timeline.history, timeline.history.last_compaction()
            self._archived = timeline.first, (last, _delta_commits_since(history.writes().values(), last))
        return self._archived[1]

    def found_nothing(self, timeline: Timeline) -> None:
        """Record that there was nothing to merge, so that partitions are not listed again each time."""
        self._fruitless = timeline.last_time


def _last_compaction(timeline: Timeline, *, requested: bool) -> str:
    """Return the requested time of the last completed (with `requested` also pending) compaction, "" if none."""
    done = [write.requested for write in timeline.completed_writes if write.action == "commit"]
    pending = (instant for instant in pending_compactions(timeline) if instant.action == COMPACTION)
    planned = [instant.requested for instant in pending] if requested else []
    return max([*done, *planned], default="")


def _delta_commits_since(writes: Iterable[Instant], last: str) -> list[str]:
    """List the requested times of the delta commits that the compaction at `last` did not merge."""
    return [write.requested for write in writes if write.action == "deltacommit" and (write.completed or "") > last]
