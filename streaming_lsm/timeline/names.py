"""Parse the file names of a timeline's folder incrementally.

A file name determines an instant completely. So each listing of the folder is compared with the previous one: only new
names are parsed, and the instants of missing names are removed. Contents of files are not cached, because a table that
was deleted and created again may have other files of the same names.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.timeline.instant import Action, Instant

BY_TIME = attrgetter("requested", "action")
"""Sort key of the instants of a timeline."""

_FEW = 64


@dataclass(frozen=True)
class TimelineNames:
    """Hold the parsed names of one listing.

    Attributes:
        parsed: instant of each name; None for other files (checksums, folders).
        states: all recorded states of each action, unordered.
        instants: latest state of each action, ordered by requested time.
    """

    parsed: Mapping[str, Instant | None] = field(default_factory=dict)
    states: Mapping[Action, tuple[Instant, ...]] = field(default_factory=dict)
    instants: tuple[Instant, ...] = ()

    def updated(self, names: Collection[str], layout: int) -> TimelineNames:
        """Return the parsed names of a newer listing of the folder; this object is not changed.

        Raises:
            CorruptFileError: an action is completed twice.
            UnsupportedTable: a file of an unknown action.
        """
        listed = frozenset(names)
        new = {name: Instant.parse(name, layout) for name in sorted(listed - self.parsed.keys())}
        gone = len(self.parsed) + len(new) > len(listed)
        if not new and not gone:
            return self
        parsed = {**self.parsed, **new}
        vanished = [parsed.pop(name) for name in self.parsed.keys() - listed] if gone else []
        states, changed = self._changed(new.values(), vanished)
        instants = self._replaced(states, changed)
        for action in changed:
            if not states[action]:
                del states[action]
        return TimelineNames(parsed, states, instants)

    def _changed(
        self, new: Iterable[Instant | None], gone: Iterable[Instant | None]
    ) -> tuple[dict[Action, tuple[Instant, ...]], set[Action]]:
        """Return `states` with the instants `new` and without the instants `gone`, and the actions that changed."""
        states, changed = dict(self.states), set()
        for instant in filter(None, gone):
            # An inflight commit may have two files, of which one may remain.
            left = list(states[instant.of_action])
            left.remove(instant)
            states[instant.of_action] = tuple(left)
            changed.add(instant.of_action)
        for instant in filter(None, new):
            states[instant.of_action] = (*states.get(instant.of_action, ()), instant)
            changed.add(instant.of_action)
        return states, changed

    def _replaced(
        self, states: Mapping[Action, tuple[Instant, ...]], changed: Collection[Action]
    ) -> tuple[Instant, ...]:
        """Return `instants` with the latest state of each changed action."""
        if len(changed) > _FEW:
            return tuple(sorted((latest_state(found) for found in states.values() if found), key=BY_TIME))
        instants = list(self.instants)
        for action in changed:
            replace_action(instants, action, latest_state(states[action]) if states[action] else None)
        return tuple(instants)


def replace_action(instants: list[Instant], action: Action, latest: Instant | None) -> None:
    """Replace any state of an action in sorted `instants` by `latest`; None removes the action."""
    first = last = bisect_left(instants, action[0], key=attrgetter("requested"))
    others = []
    while last < len(instants) and instants[last].requested == action[0]:
        if instants[last].completes_as != action[1]:
            others.append(instants[last])
        last += 1
    instants[first:last] = sorted([*others, *([latest] if latest else [])], key=BY_TIME)


def latest_state(states: Iterable[Instant]) -> Instant:
    """Return the latest of the states of one action.

    Cleans and rollbacks are idempotent: of two completions by two writers the first one counts.

    Raises:
        CorruptFileError: a write is completed twice.
    """
    latest, *others = states
    for instant in others:
        if latest.is_completed and instant.is_completed and latest != instant:
            if not instant.is_write:
                latest = min(latest, instant, key=lambda completed: completed.completed or "")
                continue
            raise CorruptFileError(
                f"{latest.path} and {instant.path} complete one action twice: keep the one whose files exist"
            )
        if (instant.state.rank, latest.action) > (latest.state.rank, instant.action):
            latest = instant
    return latest
