"""The file names of a timeline's folder as instants.

A name says all there is to know of an instant's state, and never changes its meaning. So a later listing of the folder
is compared with the one before, and only names that are new are parsed; names that are gone take their state along.
What the files hold is not kept: a table that was removed and made anew may give the same names to other files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.timeline.instant import Action, Instant

BY_TIME = attrgetter("requested", "action")
"""Sorts instants as a timeline has them."""

_FEW = 64


@dataclass(frozen=True)
class TimelineNames:
    """The names of one listing.

    Attributes:
        parsed: the instant of each name, None where it is of another kind (checksums, folders).
        states: all states of each action that have a file, without order.
        instants: the latest state of each action, by requested time.
    """

    parsed: Mapping[str, Instant | None] = field(default_factory=dict)
    states: Mapping[Action, tuple[Instant, ...]] = field(default_factory=dict)
    instants: tuple[Instant, ...] = ()

    def updated(self, names: Collection[str], layout: int) -> TimelineNames:
        """The names of a newer listing of the folder, all of them; this object stays as it is.

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
        """`states` with `new` ones and without those that are gone, and the actions whose states these are."""
        states, changed = dict(self.states), set()
        for instant in filter(None, gone):
            # An inflight commit has two names: one of them may stay.
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
        """`instants` with the latest state of each changed action in place of the one before."""
        if len(changed) > _FEW:
            return tuple(sorted((latest_state(found) for found in states.values() if found), key=BY_TIME))
        instants = list(self.instants)
        for action in changed:
            replace_action(instants, action, latest_state(states[action]) if states[action] else None)
        return tuple(instants)


def replace_action(instants: list[Instant], action: Action, latest: Instant | None) -> None:
    """Put `latest` into sorted `instants`, in place of any other state of its action; None removes the action."""
    first = last = bisect_left(instants, action[0], key=attrgetter("requested"))
    others = []
    while last < len(instants) and instants[last].requested == action[0]:
        if instants[last].completes_as != action[1]:
            others.append(instants[last])
        last += 1
    instants[first:last] = sorted([*others, *([latest] if latest else [])], key=BY_TIME)


def latest_state(states: Iterable[Instant]) -> Instant:
    """The latest of the states of one action; of a clean or rollback that two writers completed, the first completion.

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
