"""Select the actions to archive (docs/format/02-timeline.md, "Archived timeline"); pure, without file access.

A *bound* is a requested time at which archiving stops: the action at that time, and all younger ones, stay on the
active timeline. The bounds are those of writes. What is archived has also taken effect before each write that stays:
the state before a write, to which rollbacks and restores return, is that of the writes completed before it, and cleans
look for the files that a compaction superseded when it is completed. *Passed* are cleans before the newest one, and
rollbacks: they do not wait for the writes beside them, as each write of a table may bring one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.errors import ConfigError
from streaming_lsm.services.cleaning.planner import Retention
from streaming_lsm.services.compaction.trigger import CompactionTrigger
from streaming_lsm.services.survey import savepoints
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline

_MARGIN = 3
"""Commits more than are cleaned that stay at most, if the options do not say how many."""

_PASSING = ("clean", "rollback")

_MOST_LINKS = 3
"""Times that a bound is lowered for a write that was completed late."""


@dataclass(frozen=True, slots=True)
class Bound:
    """State that archiving stops at a requested time, and the reason."""

    time: str
    reason: str


@dataclass(frozen=True)
class ActiveCommits:
    """State how many completed writes stay on the active timeline.

    Attributes:
        least: number of writes that archiving leaves.
        most: number of writes beyond which it begins.
    """

    least: int
    most: int

    @staticmethod
    def of(options: Options) -> ActiveCommits:
        """Read the limits from the options; one that is not set is raised above the commits that cleans retain.

        Raises:
            ConfigError: a limit that is set is too small.
        """
        least, most = options[config.KEEP_MIN_COMMITS], options[config.KEEP_MAX_COMMITS]
        retention = Retention.of(options)
        if retention.by_commits and least <= retention.commits:
            if options.is_set(config.KEEP_MIN_COMMITS):
                raise ConfigError(
                    f"{config.KEEP_MIN_COMMITS.key}={least} is not more than {config.CLEAN_COMMITS.key}="
                    f"{retention.commits}, whose commits cleans need: raise it, or retain fewer commits"
                )
            least = retention.commits + 1
        if most <= least:
            if options.is_set(config.KEEP_MAX_COMMITS):
                raise ConfigError(
                    f"{config.KEEP_MAX_COMMITS.key}={most} is not more than the {least} commits that stay "
                    f"({config.KEEP_MIN_COMMITS.key}, and one more than {config.CLEAN_COMMITS.key}): raise it"
                )
            most = least + _MARGIN
        return ActiveCommits(least, most)

    @property
    def margin(self) -> int:
        """Number of actions besides the writes that stay, and the newest clean, beyond which archiving begins."""
        return self.most - self.least

    def bound(self, timeline: Timeline) -> Bound:
        """Return the bound by number."""
        writes = timeline.completed_writes
        first = writes[-self.least].requested if len(writes) >= self.least else ""
        return Bound(first, f"{config.KEEP_MIN_COMMITS.key}={self.least}")


@dataclass(frozen=True)
class ArchiveSelection:
    """The actions that are to be archived.

    Attributes:
        actions: completed actions, the oldest ones, by requested time.
        passed: passed actions that are younger, by requested time.
        bound: where archiving stops; None if no more actions may go than may stay.
        commits: how many writes stay.
    """

    actions: tuple[Instant, ...]
    passed: tuple[Instant, ...]
    bound: Bound | None
    commits: ActiveCommits

    @property
    def every(self) -> tuple[Instant, ...]:
        """All actions to archive."""
        return (*self.actions, *self.passed)

    def __str__(self) -> str:
        if self.every:
            return f"{len(self.every)} actions to archive, up to {self.every[-1].requested}"
        if self.bound is None:
            most = f"{config.KEEP_MAX_COMMITS.key}={self.commits.most}"
            return f"nothing to archive: the timeline has no more commits than {most}"
        since = f" before {self.bound.time}" if self.bound.time else ""
        return f"nothing to archive{since}: {self.bound.reason}"


def select(
    timeline: Timeline, options: Options, zone: str, further: Iterable[Bound] = (), kept: Collection[str] = ()
) -> ArchiveSelection:
    """Select the actions to archive: all completed ones that are older than each bound, and passed ones.

    Nothing goes until more actions are older than the writes that stay, or passed, than lie between the limits.

    Args:
        options: number of commits to keep, and which cleans and compactions need them.
        zone: the timeline's zone, ``UTC`` or ``LOCAL``.
        further: bounds that are known from files.
        kept: requested times of passed actions that stay.

    Raises:
        ConfigError: the numbers of commits contradict each other.
    """
    commits = ActiveCommits.of(options)
    by_number = commits.bound(timeline)
    if len(_older(timeline, by_number)) + len(_passed(timeline, by_number)) <= commits.margin:
        return ArchiveSelection((), (), None, commits)
    bound = min([by_number, *_bounds(timeline, options, zone), *further], key=lambda found: found.time)
    bound = _in_order(timeline, bound)
    return ArchiveSelection(_older(timeline, bound), _passed(timeline, bound, kept), bound, commits)


def _in_order(timeline: Timeline, bound: Bound) -> Bound:
    """Lower a bound until each older write was completed before all writes that stay.

    A write that was completed later, such as a long compaction, stays with all that were requested after it, and these
    may keep an older one. Where writes overlap each other without end, only some of them do, so that the timeline stays
    bounded: then a write that stays is not rolled back, as an archived one was completed after it. All do where a
    savepoint is to be restored.
    """
    writes = timeline.completed_writes
    for _ in count() if savepoints(timeline) else range(_MOST_LINKS):
        first = min((write.completed or "" for write in writes if write.requested >= bound.time), default="~")
        late = next((w for w in writes if w.requested < bound.time and (w.completed or "") > first), None)
        if late is None:
            break
        bound = Bound(late.requested, f"{late.file_name} was completed after writes that stay")
    return bound


def _older(timeline: Timeline, bound: Bound) -> tuple[Instant, ...]:
    return tuple(action for action in timeline.instants if action.requested < bound.time)


def _passed(timeline: Timeline, bound: Bound, kept: Collection[str] = ()) -> tuple[Instant, ...]:
    """Return the passed actions that are not older than a bound, and older than each pending action.

    The one with the last time of the timeline stays: the next time is drawn after it, however late the clock is.
    """
    until = min((pending.requested for pending in timeline.pending), default="~")
    newest, last = timeline.completed_cleans[-1:], timeline.last_time
    passed = (
        action
        for action in timeline.instants
        if action.action in _PASSING and action not in newest and (action.completed or "") < last
    )
    return tuple(action for action in passed if bound.time <= action.requested < until and action.requested not in kept)


def _bounds(timeline: Timeline, options: Options, zone: str) -> Iterator[Bound]:
    for pending in timeline.pending[:1]:
        yield Bound(pending.requested, f"{pending.file_name} is pending")
    for savepoint in savepoints(timeline)[:1]:
        yield Bound(savepoint.requested, f"{savepoint.file_name} keeps it")
    retained = Retention.of(options).needs_since(timeline, zone)
    if retained is not None:
        yield Bound(retained, "cleans retain it")
    if options[config.COMPACT_INLINE] or options[config.COMPACT_SCHEDULE]:
        needed = CompactionTrigger.of(options).needs_since(timeline, zone)
        if needed:
            yield Bound(needed, f"{config.COMPACT_TRIGGER.key} counts from it")
