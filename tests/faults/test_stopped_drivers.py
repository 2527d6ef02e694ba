"""Real driver processes, stopped for longer than their lease while others take over: no acknowledged batch is lost.

Two drivers write one table, each as from a machine of its own. One is stopped (SIGSTOP) at a moment that a random
number chooses, mostly by watching its files; the other one takes over and commits; the first is continued. In some
stops the second driver is stopped in turn, and continued after the first.

``LSM_STOP_SEED`` repeats the choices of a run, though not the exact moments, which are the scheduler's.
"""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CommitUnknown
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, Instant, State
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from tests.support.service_tables import OPTIONS_OF_SERVICES, Model, assert_sound
from tests.support.small_tables import create, shown
from tests.support.stopped_driver import (
    ALREADY,
    COMMITTED,
    CONTENDED,
    DONE,
    WRITERS,
    left_behind,
    rows_of,
    settled,
)

SEED = int(os.environ.get("LSM_STOP_SEED") or time.time_ns() % 1_000_000)
STOPS = 5
"""In each run."""
AT_A_TIME = 2
"""Runs; a busy machine stops drivers at moments of its own."""
LEASE_S = 0.2
HELD_S = 3.0
"""For so long at most a driver stays stopped: it may hold a lock of the kernel, which its lease does not end."""
PATIENCE_S = 60

DRIVER_OPTIONS: dict[str, object] = {
    **OPTIONS_OF_SERVICES,
    "hoodie.client.heartbeat.interval_in_ms": 100,
    "hoodie.client.heartbeat.tolerable.misses": 2,
}
COW: dict[str, object] = {"hoodie.table.type": "COPY_ON_WRITE"}
SERVICES: dict[str, object] = {
    "hoodie.compact.inline": True,
    "hoodie.compact.inline.max.delta.commits": 3,
    "hoodie.clean.automatic": True,
    "hoodie.clean.commits.retained": 2,
}
KINDS = {"merge-on-read": ({}, 20), "services": (SERVICES, 18), "copy-on-write": (COW, 12)}
"""Options, and number of runs: 50 in all."""

# Moments that a stop is aimed at: any, or when this is seen in the folders.
ANY, BEGUN, PUBLISHING, DECIDED, COMPLETED = "any", "begun", "publishing", "decided", "completed"
AIMS = (ANY, BEGUN, PUBLISHING, PUBLISHING, PUBLISHING, DECIDED, DECIDED, COMPLETED)
DELAYS_S = {
    BEGUN: (0.0, 0.005, 0.02),
    PUBLISHING: (0.0, 0.0, 0.0005),
    DECIDED: (0.0, 0.0, 0.001),
    COMPLETED: (0.0, 0.01),
}
_WRITES = ("commit", "deltacommit", "compaction")
IN_COMMIT_WINDOW = ("deciding", "decided", "completing")


@dataclass(frozen=True)
class Seen:
    """The folders of a table at one moment."""

    timeline: frozenset[str]
    decisions: frozenset[str]

    @classmethod
    def of(cls, root: Path) -> Seen:
        return cls(_names(root / TIMELINE_FOLDER), _names(root / DECISION_FOLDER))

    def writes(self, before: Seen) -> dict[str, Instant]:
        """The writes and compactions that were begun since, in order, each in its last state."""
        new = [found for name in self.timeline - before.timeline if (found := Instant.parse(name)) is not None]
        begun = [found for found in new if found.state is not State.REQUESTED and found.action in _WRITES]
        return {found.requested: found for found in sorted(begun, key=lambda each: (each.requested, each.is_completed))}

    def moment(self, before: Seen) -> str:
        """What the driver was about, as far as its files tell."""
        writes = self.writes(before)
        if not writes:
            return "not begun"
        write = list(writes.values())[-1]
        if write.is_completed:
            return "completed"
        if any(name.partition(".")[0] == write.requested and not name.endswith(".run") for name in self.decisions):
            return "completing" if _has_temporary(self.timeline) else "decided"
        if _has_temporary(self.decisions):
            return "deciding"
        return "creating a file of the timeline" if _has_temporary(self.timeline) else "begun"


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except FileNotFoundError:
        return frozenset()


def _has_temporary(names: frozenset[str]) -> bool:
    return any(name.endswith(".lsm-tmp") for name in names)


class Driver:
    """A driver process, which can be stopped.

    Attributes:
        heard: its reports, one for each attempt to write a batch.
        following: number of its next batch.
    """

    def __init__(self, root: Path, writer: str, options: dict[str, object], log: Path) -> None:
        self.writer, self.following, self.heard = writer, 0, list[dict[str, str]]()
        self._lines: queue.Queue[str] = queue.Queue()
        self._is_idle = False
        script = [sys.executable, "-m", "tests.support.stopped_driver"]
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [*script, str(root), writer, json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def begin(self, batches: int) -> None:
        """Have it write its next batches."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{self.following} {self.following + batches}\n")
        self._process.stdin.flush()
        self.following += batches
        self._is_idle = False

    def hear(self, patience_s: float = PATIENCE_S) -> bool:
        """Take its reports until it is done with what it was told; False when that is not in time."""
        deadline = time.monotonic() + patience_s
        while not self._is_idle:
            try:
                report = json.loads(self._lines.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                break
            if report["told"] == DONE:
                self._is_idle = True
            else:
                self.heard.append(report)
        return self._is_idle

    def stop(self) -> None:
        """Stop it, and see that all its threads stand."""
        os.kill(self._process.pid, signal.SIGSTOP)
        while self._state() != "T":
            assert self._process.poll() is None, f"driver {self.writer} has ended"

    def go_on(self) -> None:
        """Let it go on."""
        os.kill(self._process.pid, signal.SIGCONT)

    def _state(self) -> str:
        return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def end(self) -> None:
        """Have it end by itself, or, where a test has failed, by force."""
        self.go_on()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join()
        self._process.stdout.close()


@dataclass
class Run:
    """One table, two drivers, several stops.

    Attributes:
        moments: how many stops hit which moment of the driver's work.
        takeovers: how many of these saw the other driver commit meanwhile.
    """

    root: Path
    options: dict[str, object]
    random: random.Random
    moments: Counter[str] = field(default_factory=Counter)
    takeovers: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)

    def play(self) -> list[str]:
        """Make the table, stop its drivers, and look at what is there; what was wrong."""
        create(self.root, **{**OPTIONS_OF_SERVICES, **self.options})
        with self._drivers() as drivers:
            for driver in drivers:
                assert driver.hear(), f"driver {driver.writer} does not start"
            for _ in range(STOPS):
                self._stop_one(*self.random.sample(drivers, 2))
        self.told.update(report["told"] for driver in drivers for report in driver.heard)
        return [*strange_reports(drivers), *strange_table(self.root, self.options, drivers)]

    @contextmanager
    def _drivers(self) -> Iterator[list[Driver]]:
        options = {**DRIVER_OPTIONS, **self.options}
        drivers = [
            Driver(self.root, writer, options, self.root.with_name(f"{self.root.name}-{writer}.log"))
            for writer in WRITERS
        ]
        try:
            yield drivers
        finally:
            for driver in drivers:
                driver.end()

    def _stop_one(self, first: Driver, second: Driver) -> None:
        before, count = Seen.of(self.root), len(second.heard)
        first.begin(2)
        self._await(self.random.choice(AIMS), before)
        first.stop()
        moment = Seen.of(self.root).moment(before)
        second.begin(2)
        if self.random.random() < 0.2:
            # The taker is stopped too, amid what it recovers, and goes on when the first has ended.
            time.sleep(LEASE_S + self.random.uniform(0.0, 0.15))
            second.stop()
            first.go_on()
            first.hear(HELD_S)
            second.go_on()
            moment += ", both stopped"
        else:
            second.hear(HELD_S)
            self.takeovers[moment] += any(report["told"] == COMMITTED for report in second.heard[count:])
            first.go_on()
        self.moments[moment] += 1
        for driver in (first, second):
            assert driver.hear(), f"driver {driver.writer} does not end"

    def _await(self, aim: str, before: Seen) -> None:
        """Wait for the moment that is aimed at; for a random while where it does not come."""
        deadline = time.monotonic() + (self.random.uniform(0.0, 0.12) if aim == ANY else 1.0)
        skipped, armed = self.random.choice((0, 0, 1)), False
        while time.monotonic() < deadline:
            seen = Seen.of(self.root)
            if aim == ANY or len(seen.writes(before)) <= skipped:
                continue
            armed = armed or not _has_temporary(seen.timeline)
            moment = seen.moment(before)
            is_there = {
                BEGUN: True,
                PUBLISHING: armed and moment != "begun",
                DECIDED: moment in ("decided", "completing", "completed"),
                COMPLETED: moment == "completed",
            }
            if is_there[aim]:
                if delay_s := self.random.choice(DELAYS_S[aim]):
                    time.sleep(delay_s)
                return


def strange_reports(drivers: list[Driver]) -> Iterator[str]:
    """What a driver was told that it must not be: an error of no name, or one that says what is not true."""
    for driver in drivers:
        told = defaultdict[int, list[str]](list)
        for report in driver.heard:
            told[report["batch"]].append(report["told"])
            if "strange" in report:
                yield f"{driver.writer} {report['batch']}: {report['strange']}"
        for batch, answers in told.items():
            if answers[-1] == ALREADY and CommitUnknown.__name__ not in answers:
                yield f"{driver.writer} {batch}: committed, though it was told {answers}"
        silent = set(range(driver.following)) - told.keys()
        yield from (f"{driver.writer} {batch}: never heard of" for batch in sorted(silent))


def strange_table(root: Path, options: dict[str, object], drivers: list[Driver]) -> Iterator[str]:
    """What is wrong with the table when one more process has written to it."""
    try:
        table = settled(root, {**DRIVER_OPTIONS, **options})
        model: Model = {}
        for driver in drivers:
            for batch in range(driver.following):
                model.update({row[0]: row for row in rows_of(driver.writer, batch) if row[0] != CONTENDED})
        last = [rows_of(driver.writer, driver.following - 1)[-1] for driver in drivers]
        model[CONTENDED] = max(last, key=lambda row: row[2])
        yield from (f"missing: {row}" for row in sorted(set(model.values()) - set(shown(table))))
        yield from strange_timeline(table, drivers)
        assert_sound(table, model)
    except Exception as error:
        yield f"{type(error).__name__}: {error}"


def strange_timeline(table: LsmTable, drivers: list[Driver]) -> Iterator[str]:
    """Each batch is one commit, the one that its driver was told of; nothing is left of the drivers."""
    batch_action = "commit" if table.config.is_copy_on_write else "deltacommit"
    commits = [write for write in table.timeline.every_write if write.action == batch_action]
    if len(commits) != (batches := sum(driver.following for driver in drivers)):
        yield f"{len(commits)} commits of {batches} batches"
    acknowledged = [report["instant"] for driver in drivers for report in driver.heard if "instant" in report]
    yield from (f"acknowledged, and gone: {name}" for name in {*acknowledged} - {write.file_name for write in commits})
    yield from left_behind(table)


@pytest.fixture
def swift_threads() -> Iterator[None]:
    """A thread that sees its moment is not kept from using it by another one."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    yield
    sys.setswitchinterval(before)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("swift_threads")
@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_driver_loses_no_batch(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    options, number = KINDS[kind]
    runs = [Run(tmp_path / f"{kind}-{n}", options, random.Random(f"{SEED} {kind} {n}")) for n in range(number)]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        wrong = {run.root.name: found for run, found in zip(runs, pool.map(Run.play, runs), strict=True) if found}
    moments, takeovers, told = (
        sum((getattr(run, name) for run in runs), Counter[str]()) for name in ("moments", "takeovers", "told")
    )
    with capsys.disabled():
        print(f"\n{kind}, LSM_STOP_SEED={SEED}: {number} runs, {len(wrong)} wrong; reports: {dict(told)}")
        for moment, count in sorted(moments.items()):
            print(f"  {count:4} stopped when {moment}, {takeovers[moment]} of them overtaken by a commit")
    assert not wrong
    assert sum(takeovers.values()) > number, "hardly a stop was long enough for the other driver"
    assert sum(count for moment, count in moments.items() if moment.startswith(IN_COMMIT_WINDOW)) > number // 2
