"""What happens to which storage call: drawn at random from a seed, or given, as when a schedule is repeated.

A *track* is one thread of one process, and its storage calls are numbered from 0. An *event* happens at one of them.
A *schedule* is a list of events: with the seed, which gives the work and the usual times of all calls, it determines a
run.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from tests.support.simulation.work.workload import SEEDS, Setting

Call = tuple[str, str]
"""A method of the storage and the kind of its path."""


class Kind(Enum):
    """What happens at a storage call."""

    FAIL_BEFORE = "fails without effect"
    FAIL_AFTER = "takes effect, its answer is lost"
    KILL_BEFORE = "the process is killed before"
    KILL_AFTER = "the process is killed after"
    KILL_TORN = "the process is killed in the middle"
    DELAY_BEFORE = "is late"
    DELAY_AFTER = "is answered late"
    STOP_BEFORE = "the process is stopped before"
    STOP_AFTER = "the process is stopped after"
    REPLACE_BEFORE = "the process is stopped before, and another one started in its place"
    REPLACE_AFTER = "the process is stopped after, and another one started in its place"

    @property
    def is_after(self) -> bool:
        """Whether the call takes effect first."""
        return self.name.endswith("AFTER")

    @property
    def family(self) -> str:
        """Fail, kill, delay, stop or replace."""
        return self.name.partition("_")[0]


@dataclass(frozen=True)
class Event:
    """What happens at one storage call.

    Attributes:
        track: whose call.
        call: its number.
        kind: what happens.
        us: for how long, in microseconds; for a kill, until another process is started.
        what: method and path, for people.
    """

    track: str
    call: int
    kind: Kind
    us: int = 0
    what: str = ""

    def __str__(self) -> str:
        lasts = "" if self.kind.family == "FAIL" else f" ({self.us / 1000:.1f} ms)"
        return f"{self.track}, call {self.call}: {self.what} {self.kind.value}{lasts}"


_KINDS = [
    (re.compile(pattern), name)
    for pattern, name in (
        (r"(.*/)?\.hoodie/lock$", "lock"),
        (r"(.*/)?\.hoodie/hoodie\.properties(\.backup)?$", "properties"),
        (r"(.*/)?\.hoodie/\.heartbeat(/.*)?$", "heartbeat"),
        (r"(.*/)?\.hoodie/\.decisions/.*\.plan\.run$", "plan record"),
        (r"(.*/)?\.hoodie/\.decisions/.*\.run$", "run record"),
        (r"(.*/)?\.hoodie/\.decisions(/.*)?$", "decision"),
        (r"(.*/)?\.hoodie/\.temp(/.*)?$", "markers"),
        (r"(.*/)?\.hoodie/timeline/\d+_\d+\.", "completed"),
        (r"(.*/)?\.hoodie/timeline/\d+\.(\w+\.)?inflight$", "inflight"),
        (r"(.*/)?\.hoodie/timeline/\d+\.\w+\.requested$", "requested"),
        (r"(.*/)?\.hoodie/timeline(/history.*)?$", "timeline"),
        (r"(.*/)?\.hoodie_partition_metadata$", "partition metadata"),
        (r"(.*/)?\.hoodie(/\.[a-z]+.*)?$", "table folder"),
        (r".*\.deletes\.\w+$", "delete log"),
        (r".*\.log\.[^/]*$", "log"),
        (r".*\.(parquet|hfile)$", "base"),
        (r"[^.]*$", "folder"),
    )
]
METADATA = ".hoodie/metadata"
LATE = "+"
"""Marks the tracks of late tasks."""
FAMILIES = ("FAIL", "KILL", "DELAY", "STOP", "REPLACE")


def path_kind(path: str) -> str:
    """What a path is, without names and times."""
    inside = path.startswith(METADATA)
    found = next((name for pattern, name in _KINDS if pattern.match(path)), "other")
    return f"metadata table: {found}" if inside else found


class Schedule:
    """Events that are given.

    Attributes:
        happened: the events that did, in their order.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._events = {(event.track, event.call): event for event in events}
        self.happened: list[Event] = []
        self.is_over = False

    def at(self, track: str, call: int, method: str, path: str) -> Event | None:
        """What happens at a call."""
        if self.is_over:
            return None
        event = self._event(track, call, method, path)
        if event is not None:
            event = Event(track, call, event.kind, event.us, f"{method} {path}")
            self.happened.append(event)
        return event

    def lasted(self, event: Event, us: int) -> None:
        """Record how long a stop has lasted."""
        self.happened[self.happened.index(event)] = replace(event, us=us)

    def on_take_over(self, track: str) -> int | None:
        """The lock was taken over; returns after how many microseconds a stopped process goes on, if earlier."""
        return None

    def on_publish(self) -> int | None:
        """An action was completed; returns as `on_take_over`."""
        return None

    def on_alone(self, track: str) -> None:
        """A write begins for which others are to wait."""

    def _event(self, track: str, call: int, method: str, path: str) -> Event | None:
        return self._events.get((track, call))


_CHANGES = (
    "put_if_absent", "replace", "replace_if_unchanged", "delete_if_unchanged", "delete_all_if_unchanged", "vacate",
    "touch", "delete", "delete_files", "delete_folder", "delete_empty_folder", "make_folder", "create", "close",
)  # fmt: skip
_OF_INTEREST = {
    "lock": 4, "decision": 5, "completed": 3, "heartbeat": 3, "run record": 2, "requested": 1, "inflight": 1,
    "markers": 1, "plan record": 1, "timeline": 1, "log": 1, "base": 1, "properties": 1,
}  # fmt: skip
_FOCUSED = 0.2
_MOST = {"FAIL": 12, "KILL": 5, "DELAY": 25, "STOP": 5, "REPLACE": 4}
_HOT = 0.08
_HOT_CALLS = 40


_RELAY_CALLS = 14
_RELAY_RISK = 0.12


@dataclass
class _Relay:
    """A process is stopped just before it decides; those that take its lock over fail or die in their turn.

    Attributes:
        kind: of the file that it is about to create: the decision, or what carries it out.
        files_left: how many such files are created until then.
        takers_left: how many processes take the lock over until it may go on.
    """

    kind: str
    files_left: int
    takers_left: int

    @classmethod
    def drawn(cls, chance: random.Random) -> _Relay | None:
        """One seed in three has it."""
        if chance.random() >= 0.33:
            return None
        return cls(chance.choice(("decision", "decision", "completed")), chance.randint(1, 6), chance.randint(1, 3))


@dataclass(frozen=True)
class Aim:
    """What is certain to happen in a run.

    Attributes:
        setting: in which the call is made.
        call: the kind of call.
        family: of the event.
    """

    setting: Setting
    call: Call
    family: str


class RandomSchedule(Schedule):
    """Draws events.

    Each seed has some families of events, at some rate, and strikes a few kinds of calls far more often: so that rare
    combinations of rare events come up in some seeds, and others show what one family alone does. What follows a
    take-over of the lock is struck more often, too, and stopped processes go on then, or when others have published.
    The first call of the kind that the seed aims at is struck for certain, and a write for which others are to wait is
    often late when it goes on, so that they overtake it.
    """

    def __init__(self, seed: int, lease_ms: int, aim: Aim | None = None) -> None:
        super().__init__()
        self._aim = aim
        self._random = chance = random.Random(f"{SEEDS}{seed} schedule")
        self._lease_ms = lease_ms
        self._families = [family for family in FAMILIES if chance.random() < 0.6] or ["STOP"]
        self._rate = chance.choice((0.0005, 0.002, 0.006))
        kinds, weights = list(_OF_INTEREST), list(_OF_INTEREST.values())
        self._focus = set(chance.choices(kinds, weights, k=chance.choice((0, 1, 1, 2))))
        self._left = {family: chance.randint(1, _MOST[family]) for family in self._families}
        self._failing: dict[str, int] = {}
        self._hot: dict[str, int] = {}
        self._relay = _Relay.drawn(chance)
        self._alone: dict[str, str] = {}

    def on_take_over(self, track: str) -> int | None:
        chance, relay = self._random, self._relay
        self._hot[track] = _HOT_CALLS
        if relay is None:
            return self._soon() if chance.random() < 0.6 else None
        relay.takers_left -= 1
        self._hot[track] = _RELAY_CALLS
        return self._soon() if relay.takers_left <= 0 and chance.random() < 0.2 else None

    def on_publish(self) -> int | None:
        likely = 0.3 if self._relay is None else 0.6
        return self._soon() if self._random.random() < likely else None

    def on_alone(self, track: str) -> None:
        if self._random.random() < 0.6:
            self._alone[track] = "inflight"

    def _of_alone(self, track: str, call: int, method: str, path: str) -> Event | None:
        """Let the first look at the lock be late once the write is on the timeline."""
        awaited, kind = self._alone.get(track), path_kind(path)
        if method != "put_if_absent" or kind != awaited:
            return None
        if kind == "inflight":
            self._alone[track] = "lock"
            return None
        del self._alone[track]
        return Event(track, call, Kind.DELAY_BEFORE, 1000 * self._random.randint(50, 400))

    def _soon(self) -> int:
        return int(1000 * self._random.uniform(0, self._random.choice((10, 100, 300))))

    def _event(self, track: str, call: int, method: str, path: str) -> Event | None:
        chance, aim = self._random, self._aim
        if aim is not None and LATE not in track and (method, path_kind(path)) == aim.call:
            self._aim = None
            return self._of_family(aim.family, track, call, method)
        if track in self._alone:
            event = self._of_alone(track, call, method, path)
            if event is not None:
                return event
        if self._failing.get(track, 0) > 0:
            self._failing[track] -= 1
            return Event(track, call, Kind.FAIL_BEFORE)
        if self._relay is not None:
            event = self._of_relay(self._relay, track, call, method, path)
            if event is not None:
                return event
        if chance.random() >= self._risk(track, method, path):
            return None
        family = chance.choice(self._families)
        if not self._left[family]:
            return None
        self._left[family] -= 1
        return self._of_family(family, track, call, method)

    def _of_relay(self, relay: _Relay, track: str, call: int, method: str, path: str) -> Event | None:
        chance = self._random
        if method == "put_if_absent" and path_kind(path) == relay.kind:
            relay.files_left -= 1
            if relay.files_left == 0:
                kind = chance.choice((Kind.STOP_BEFORE, Kind.STOP_BEFORE, Kind.REPLACE_BEFORE))
                return Event(track, call, kind, 1000 * 6 * self._lease_ms)
        if relay.takers_left > 0 and self._hot.get(track, 0) > 0:
            self._hot[track] -= 1
            if chance.random() < _RELAY_RISK:
                return self._of_family(chance.choice(("FAIL", "KILL")), track, call, method)
        return None

    def _risk(self, track: str, method: str, path: str) -> float:
        changes = method in _CHANGES
        if changes and path_kind(path).rpartition(": ")[2] in self._focus:
            return _FOCUSED
        if self._hot.get(track, 0) > 0:
            self._hot[track] -= 1
            return _HOT
        return self._rate * (4 if LATE in track else 2 if changes else 1)

    def _of_family(self, family: str, track: str, call: int, method: str) -> Event:
        chance = self._random
        if family == "KILL":
            kind = chance.choice((Kind.KILL_BEFORE, Kind.KILL_AFTER, Kind.KILL_TORN))
            return Event(track, call, kind, 1000 * chance.choice((10, self._lease_ms // 2, 2 * self._lease_ms)))
        if family == "FAIL":
            if chance.random() < 0.2:
                self._failing[track] = chance.randint(1, 8)
            return Event(track, call, chance.choice((Kind.FAIL_BEFORE, Kind.FAIL_AFTER)))
        kind = chance.choice((Kind[f"{family}_BEFORE"], Kind[f"{family}_AFTER"]))
        return Event(track, call, kind, 1000 * self._while(family))

    def _while(self, family: str) -> int:
        """Draw milliseconds: some calls long, or about as long as a lease, or far longer."""
        chance, lease_ms = self._random, self._lease_ms
        if family == "DELAY":
            return chance.choice((chance.randint(2, 20), chance.randint(20, 200), chance.randint(200, 2 * lease_ms)))
        return chance.choice((lease_ms // 2, lease_ms + chance.randint(0, 400), 3 * lease_ms, 6 * lease_ms))
