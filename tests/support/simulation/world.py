"""The simulated world: one disk, one time, processes on hosts, and what happens to them."""

from __future__ import annotations

import itertools
import random
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from streaming_lsm.errors import WriteConflict
from streaming_lsm.lock.background import Background
from streaming_lsm.lock.lease import LeaseWatch
from streaming_lsm.lock.lock import LOCK_FILE
from streaming_lsm.lock.owner import Process
from streaming_lsm.lock.runtime import ProcessLocks, Runtime
from tests.support.faulty_storage import Killed
from tests.support.memory_objects import MemoryObjects
from tests.support.memory_storage import MemoryStorage
from tests.support.simulation.model.conflicts import rules_of
from tests.support.simulation.model.history import Attempt, History, Violation
from tests.support.simulation.schedule import Event, Kind, Schedule, path_kind
from tests.support.simulation.scheduler import Life, Scheduler, Task
from tests.support.simulation.storage import SimulatedStorage, failure
from tests.support.simulation.work.workload import SEEDS, Workload
from tests.support.writers import NOON_MS

URI = "file:///simulated/orders"
_MOST_STEPS = 60_000
kind_of_path = lru_cache(100_000)(path_kind)


@dataclass(frozen=True)
class Line:
    """One line of what happened."""

    us: int
    track: str
    text: str
    is_detail: bool = False

    def __str__(self) -> str:
        return f"{self.us / 1000:10.1f} ms  {self.track:7s} {self.text}"


@dataclass
class Trace:
    """What happened, line by line; the calls that only look are kept as a checksum unless `details` are wanted."""

    details: bool = False
    lines: list[Line] = field(default_factory=list)
    checksum: int = 0

    def add(self, us: int, track: str, text: str, *, is_detail: bool = False) -> None:
        line = Line(us, track, text, is_detail)
        self.checksum = zlib.crc32(str(line).encode(), self.checksum)
        if self.details or not is_detail:
            self.lines.append(line)


class World:
    """Everything that the processes of a run share.

    Attributes:
        disk: the files.
        scheduler: the time, and whose turn it is.
        history: what was committed.
        struck: how often which kind of event happened at which kind of call.
        calls: how often which kind of call was made.
        conflicts: how often which conflict was raised between writes.
        checked: how often which index was compared with the data.
        checked_actions: the files of the timelines then, the last time.
    """

    def __init__(self, seed: int, workload: Workload, schedule: Schedule, *, details: bool = False) -> None:
        self.seed = seed
        self.workload = workload
        self.schedule = schedule
        self.scheduler = Scheduler(_MOST_STEPS)
        self.disk = MemoryObjects(URI) if workload.on_objects else MemoryStorage(URI)
        self.history = History(rules_of(workload))
        self.conflicts: Counter[str] = Counter()
        self.checked: Counter[str] = Counter()
        self.checked_actions: frozenset[str] = frozenset()
        self.trace = Trace(details)
        self.attempts: dict[Task, Attempt | None] = {}
        self.struck: Counter[tuple[str, str, Kind]] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.dead: set[Process] = set()
        self.stopped: dict[SimulatedProcess, Task] = {}
        self.on_replace: Callable[[SimulatedProcess], None] = lambda process: None
        self.numbers = itertools.count(1)
        self._counts: Counter[str] = Counter()

    @property
    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return NOON_MS + self.scheduler.now_us // 1000

    def chance(self, what: str) -> random.Random:
        """Random numbers of one use, which do not depend on what else happens."""
        return random.Random(f"{SEEDS}{self.seed} {what}")

    def tell(self, text: str, *, is_detail: bool = False) -> None:
        """Add a line to the trace."""
        self.trace.add(self.scheduler.now_us, self.scheduler.current.name, text, is_detail=is_detail)

    def fail(self, violation: Violation) -> None:
        """End the run: a promise is broken."""
        self.tell(f"VIOLATION {violation}")
        self.scheduler.give_up(violation)

    def check(self, what: Callable[[], None]) -> None:
        """End the run if a check breaks a promise."""
        try:
            what()
        except Violation as violation:
            self.fail(violation)

    def on_conflict(self, conflict: WriteConflict) -> None:
        """A write of the current task was refused because of another one."""
        attempt = self.attempts.get(self.scheduler.current)
        if attempt is None:
            return
        self.conflicts[type(conflict).__name__] += 1
        self.tell(f"{attempt.batch}: {type(conflict).__name__}: {conflict}")
        self.check(lambda: self.history.on_conflict(attempt, conflict))

    def count(self, track: str) -> int:
        """Number the next call of a track."""
        number = self._counts[track]
        self._counts[track] += 1
        return number


class SimulatedProcess:
    """One process on a host: its identity, its clock, its way to the storage; see `Caller`.

    Attributes:
        down_us: how long it takes until another one is started, once it is killed.
    """

    def __init__(self, world: World, name: str, host: str) -> None:
        self.world = world
        self.life = Life()
        self.down_us = 0
        self.identity = Process(host, host, next(world.numbers), world.scheduler.now_us)
        self.storage = SimulatedStorage(world.disk, self)
        self.skew_ms = world.workload.skews_ms[host]
        self._chance = world.chance(f"process {name}")
        tokens = itertools.count()
        self.runtime = Runtime(
            clock=self._clock,
            elapsed=lambda: world.scheduler.now_us / 1e6,
            sleep=self._sleep,
            random=self._chance.random,
            new_token=lambda: f"{name}-{next(tokens)}",
            process=lambda: self.identity,
            process_lives=lambda process: process not in world.dead,
            process_locks=_SimulatedLocks(world.scheduler),
            leases=LeaseWatch(),
            background=self._background,
        )

    def kill(self) -> None:
        """Let it die: none of its tasks comes to another call."""
        self.life.is_dead = True
        self.world.dead.add(self.identity)

    def begin_call(self, method: str, path: str) -> Event | None:
        world = self.world
        track = world.scheduler.current.name
        number = world.count(track)
        event = world.schedule.at(track, number, method, path)
        # Most calls take a millisecond, some ten times as long.
        world.scheduler.pause(int(200 + 600 * self._chance.paretovariate(2)))
        self._set_clock()
        world.calls[method, kind_of_path(path)] += 1
        return event

    def befall(self, event: Event, *, is_over: bool) -> None:
        if event.kind.is_after is not is_over:
            return
        world, kind = self.world, event.kind
        method, _, path = event.what.partition(" ")
        world.struck[method, kind_of_path(path), kind] += 1
        world.tell(f"*** {event}")
        if kind.family == "FAIL":
            if not is_over:
                raise failure(event, path)
        elif kind.family == "KILL":
            self.down_us = event.us
            self.kill()
            raise Killed(event.what)
        else:
            self._hold_up(event)

    def _hold_up(self, event: Event) -> None:
        world, scheduler = self.world, self.world.scheduler
        begun_us = scheduler.now_us
        if event.kind.family != "DELAY":
            self.life.stopped_until_us = begun_us + event.us
            world.stopped[self] = scheduler.current
        if event.kind.family == "REPLACE":
            world.on_replace(self)
        try:
            scheduler.pause(event.us)
        finally:
            world.stopped.pop(self, None)
        world.schedule.lasted(event, scheduler.now_us - begun_us)
        self._set_clock()
        world.tell("… goes on", is_detail=True)

    def go_on(self, task: Task, after_us: int) -> None:
        """Let a stopped process go on earlier than it would."""
        until_us = self.world.scheduler.now_us + after_us
        self.life.stopped_until_us = min(until_us, self.life.stopped_until_us)
        task.wake_us = min(until_us, task.wake_us)

    def end_call(self, method: str, path: str, answer: object, data: bytes | None) -> None:
        world = self.world
        is_change = method not in ("read", "exists", "list", "names", "folders", "open_input", "sweep")
        world.tell(f"{method} {path} {_shown(path, answer, data)}", is_detail=not is_change)
        if method == "put_if_absent" and not isinstance(answer, Exception):
            try:
                world.history.on_put(path, world.attempts.get(world.scheduler.current), data)
            except Violation as violation:
                world.fail(violation)
        if method == "delete" or (method == "delete_if_unchanged" and answer is True):
            world.check(lambda: world.history.on_delete(path))
        if method == "delete" and kind_of_path(path) in ("base", "log", "delete log"):
            world.history.deleted += 1
        if (method, path, answer) == ("replace_if_unchanged", LOCK_FILE, True):
            self._let_go_on(world.schedule.on_take_over(world.scheduler.current.name))
        elif (method, kind_of_path(path), answer) == ("put_if_absent", "completed", None):
            self._let_go_on(world.schedule.on_publish())

    def _let_go_on(self, after_us: int | None) -> None:
        if after_us is not None:
            for process, task in self.world.stopped.items():
                process.go_on(task, after_us)

    def tear(self) -> float:
        return self._chance.random()

    def _set_clock(self) -> None:
        skew_ms = 0 if self.world.workload.server_times else self.skew_ms
        self.world.disk.clock = lambda: self.world.now_ms + skew_ms

    def _clock(self) -> int:
        return self.world.now_ms + self.skew_ms

    def _sleep(self, seconds: float) -> None:
        self.world.scheduler.pause(int(seconds * 1e6))

    def _background(self, name: str, run: Callable[[Background], None]) -> Background:
        return _SimulatedThread(self, run)


class _SimulatedThread:
    """A thread of a process, such as its heartbeat, as a task of the scheduler."""

    def __init__(self, process: SimulatedProcess, run: Callable[[Background], None]) -> None:
        self._process, self._scheduler = process, process.world.scheduler
        self._run = run
        self._is_stopped = False
        self._task: Task | None = None

    def start(self) -> None:
        name = self._scheduler.current.name + "~"
        self._task = self._scheduler.spawn(name, lambda: self._run(self), self._process.life)

    def wait(self, seconds: float) -> bool:
        if not self._is_stopped:
            self._scheduler.pause(int(seconds * 1e6))
        return self._is_stopped

    def stop(self) -> None:
        self._is_stopped = True
        if self._task is not None and not self._task.has_ended:
            self._scheduler.wake(self._task)
            self._scheduler.join(self._task)


class _SimulatedCondition:
    """Stands in for the condition of `ProcessLocks`: one task runs at a time, and waits by simulated pauses."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        pass

    def wait_for(self, is_true: Callable[[], bool], seconds: float) -> bool:
        until_us = self._scheduler.now_us + int(seconds * 1e6)
        while not is_true():
            if self._scheduler.now_us >= until_us:
                return False
            self._scheduler.pause(1000)
        return True

    def notify_all(self) -> None:
        pass


class _SimulatedLocks(ProcessLocks):
    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._freed = _SimulatedCondition(scheduler)  # type: ignore[assignment]


def _shown(path: str, answer: object, data: bytes | None) -> str:
    if isinstance(answer, Exception):
        return type(answer).__name__
    if isinstance(answer, bytes):
        data, answer = answer, ""
    shown = "" if answer is None else str(answer) if isinstance(answer, bool | str) else f"{type(answer).__name__}"
    if isinstance(answer, list):
        shown = f"{len(answer)} names"
    # Commits, which the history has, too, have the times that tasks took, and a metadata table is created with the date
    # of today: no two runs share these. All other content is the same.
    kind = "history" if "/history/" in path else kind_of_path(path).rpartition(": ")[2]
    if data is not None and kind not in ("completed", "decision", "properties", "history"):
        shown += f" {len(data)} bytes {zlib.crc32(data):08x}"
    return shown.strip()
