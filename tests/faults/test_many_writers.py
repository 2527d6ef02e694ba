"""Real processes: several writers of one table beside a compaction and a cleaning process, some killed, one stopped.

In each concurrency mode four writers write overlapping buckets. Three times a process is killed and started again,
and once a writer is stopped (SIGSTOP) for longer than its lease and continued, at moments that a random number
chooses. Then each batch is in the table exactly once, and each row is that of the last batch in order that wrote its
key.

``LSM_WRITERS_SEED`` repeats the choices of a run, though not the exact moments, which are the scheduler's;
``LSM_WRITERS_COMMITS`` is the number of commits of each writer.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from streaming_lsm.config import CONCURRENCY_MODE, NON_BLOCKING, OPTIMISTIC, SINGLE_WRITER
from tests.support.many_writers import WRITERS, name_of, rows_of
from tests.support.service_tables import OPTIONS_OF_SERVICES, Model, assert_sound
from tests.support.small_tables import create, shown
from tests.support.stopped_driver import left_behind, settled

SEED = int(os.environ.get("LSM_WRITERS_SEED") or time.time_ns() % 1_000_000)
COMMITS = int(os.environ.get("LSM_WRITERS_COMMITS") or 200)
KILLS = 3
LEASE_S = 1.0
STOPPED_S = 2.5
PATIENCE_S = 900

OPTIONS: dict[str, object] = {
    **OPTIONS_OF_SERVICES,
    "hoodie.client.heartbeat.interval_in_ms": 250,
    "hoodie.client.heartbeat.tolerable.misses": 4,
    "hoodie.clean.commits.retained": 4,
    "hoodie.write.lock.wait_time_ms": 60_000,
    "lsm.write.single.writer.wait.ms": 300_000,
}
COW: dict[str, object] = {"hoodie.table.type": "COPY_ON_WRITE"}
KINDS: dict[str, dict[str, object]] = {
    "single": {CONCURRENCY_MODE.key: SINGLE_WRITER},
    "optimistic": {CONCURRENCY_MODE.key: OPTIMISTIC},
    "optimistic-copy-on-write": {CONCURRENCY_MODE.key: OPTIMISTIC, **COW},
    "non-blocking": {CONCURRENCY_MODE.key: NON_BLOCKING},
}


@dataclass
class Process:
    """A writer or a service, which is started again when it was killed.

    Attributes:
        heard: its reports so far.
        acknowledged: number of its batches that it was told are committed.
    """

    role: str
    root: Path
    number: int
    options: dict[str, object]
    heard: list[dict[str, object]] = field(default_factory=list)
    acknowledged: int = 0

    def start(self) -> None:
        """Start it, from the first batch that was not acknowledged."""
        script = [sys.executable, "-m", "tests.support.many_writers", self.role, str(self.root), str(self.number)]
        batches = [str(self.acknowledged), str(COMMITS - self.acknowledged)]
        with self.root.with_name(f"{self.root.name}-{self.role}-{self.number}.log").open("a") as errors:
            self._process = subprocess.Popen(
                [*script, *batches, json.dumps(self.options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._listener = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
        self._listener.start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.endswith("\n"):  # it was killed
                return
            report = json.loads(line)
            self.heard.append(report)
            if report["told"] in ("committed", "already committed") and self.role == "write":
                self.acknowledged = report["batch"] + 1

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill it, and start it again."""
        self._process.kill()
        self._end()
        self.start()

    def stop_for(self, seconds: float) -> None:
        """Stop it for a while."""
        os.kill(self._process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self._process.pid, signal.SIGCONT)

    def end(self) -> None:
        """Have a service end."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait()
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


def play(root: Path, options: dict[str, object], chance: random.Random) -> tuple[list[Process], float]:
    """Let all write and serve to the end, with their faults; returns the processes and the seconds that it took."""
    create(root, **{**OPTIONS, **options})
    writers = [Process("write", root, number, {**OPTIONS, **options}) for number in range(WRITERS)]
    services = [Process(role, root, 0, {**OPTIONS, **options}) for role in ("compact", "clean")]
    begun = time.monotonic()
    for process in (*writers, *services):
        process.start()
    faults = sorted(chance.sample(range(WRITERS * COMMITS * 9 // 10), KILLS + 1))
    stop_at = chance.randrange(len(faults))
    deadline = begun + PATIENCE_S
    try:
        for number, moment in enumerate(faults):
            while sum(writer.acknowledged for writer in writers) < moment:
                assert time.monotonic() < deadline, "the writers do not get on"
                time.sleep(0.01)
            running = [writer for writer in writers if writer.is_running]
            time.sleep(chance.random() / 10)
            if number == stop_at:
                chance.choice(running).stop_for(STOPPED_S)
            else:
                chance.choice([*running, *services]).kill()
        while any(writer.is_running for writer in writers):
            assert time.monotonic() < deadline, "the writers do not end"
            time.sleep(0.05)
    finally:
        took = time.monotonic() - begun
        for process in (*writers, *services):
            process.end()
    return [*writers, *services], took


def strange(root: Path, options: dict[str, object], processes: list[Process]) -> Iterator[str]:
    """What is wrong with the reports and with the table."""
    for process in processes:
        yield from (f"{process.role} {process.number}: {heard}" for heard in process.heard if "strange" in heard)
    table = settled(root, {**OPTIONS, **options})
    model: Model = {}
    for batch in range(COMMITS):
        for number in range(WRITERS):
            model.update({row[0]: row for row in rows_of(number, batch)})
    found = set(shown(table))
    yield from (f"missing: {row}" for row in sorted(set(model.values()) - found))
    yield from (f"not written: {row}" for row in sorted(found - set(model.values())))
    action = "commit" if table.config.is_copy_on_write else "deltacommit"
    commits = {write.file_name for write in table.timeline.every_write if write.action == action}
    if len(commits) != WRITERS * COMMITS:
        yield f"{len(commits)} commits of {WRITERS * COMMITS} batches"
    told = {heard["instant"] for process in processes for heard in process.heard if "instant" in heard}
    yield from (f"acknowledged, and gone: {name}" for name in sorted(map(str, told - commits)))
    yield from left_behind(table)
    assert_sound(table, model)


def figures(processes: list[Process], took: float) -> str:
    """Reports, waits and conflicts in a few lines."""
    writers = [process for process in processes if process.role == "write"]
    commits = [heard for writer in writers for heard in writer.heard if heard["told"] == "committed"]
    lines = [f"{len(commits)} commits in {took:.1f} s, {len(commits) / took:.1f}/s"]
    for name in ("ms", "wait_ms", "lock_ms"):
        values = sorted(int(str(heard[name])) for heard in commits)
        p50, p95 = statistics.median(values), values[int(0.95 * len(values))]
        lines.append(f"{name}: p50 {p50:.0f}, p95 {p95}, most {values[-1]}")
    lines.append(f"conflicts by batch: {dict(sorted(Counter(heard['conflicts'] for heard in commits).items()))}")  # type: ignore[type-var]
    for process in processes:
        told = Counter(str(heard["told"]) for heard in process.heard)
        lines.append(f"{name_of(process.number) if process.role == 'write' else process.role}: {dict(told)}")
    return "\n  ".join(lines)


@pytest.mark.timeout(PATIENCE_S + 120)
@pytest.mark.parametrize("kind", KINDS)
def test_many_writers_lose_nothing(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(f"{SEED} {kind}")
    processes, took = play(tmp_path / "table", KINDS[kind], chance)
    with capsys.disabled():
        print(f"\n{kind}, LSM_WRITERS_SEED={SEED}: {figures(processes, took)}")
    assert list(strange(tmp_path / "table", KINDS[kind], processes)) == []
