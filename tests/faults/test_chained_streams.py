"""Kafka feeds table A, and the changes of A feed table B; the job is killed and started again, and B equals the model.

The job is killed when table A or B has so many files on its timeline as a random number says, states in between of a
commit among them. ``LSM_CHAIN_SEED`` repeats the events and these numbers.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.compute as pc

from streaming_lsm import LsmTable
from streaming_lsm.kafka.broker import KafkaBroker, create_topic
from streaming_lsm.kafka.demo.order import Message
from streaming_lsm.kafka.demo.producing import send
from streaming_lsm.kafka.packaged import broker_jars
from streaming_lsm.spark.jvm.java import find_java
from tests.oracle.validator import validate
from tests.support.killed_job import KilledJob

SEED = int(os.environ.get("LSM_CHAIN_SEED") or time.time_ns() % 1_000_000)
ROOT = Path(__file__).parents[2]
TOPIC, KEYS, EVENTS, KILLS = "chained", 60, 300, 5
Rows = dict[str, tuple[int, int]]


class Source:
    """Sends events of few keys, with late ones and deletes, and knows the rows that they lead to."""

    def __init__(self, servers: str, chance: random.Random) -> None:
        self._servers, self._chance, self._number = servers, chance, 0
        self._newest: dict[str, tuple[int, int, bool]] = {}

    def send(self, count: int) -> None:
        """Send some events; no two have one ordering value, and those of a key go to one partition in any order."""
        messages = []
        for _ in range(count):
            self._number += 1
            key = f"k{self._chance.randrange(KEYS):02d}"
            late = self._chance.choice([0, 0, 0, 400])
            ts = 2 * (self._number - late) + (1 if late else 0)
            qty, is_deleted = self._chance.randrange(10**6), self._chance.random() < 0.2
            if key not in self._newest or ts > self._newest[key][0]:
                self._newest[key] = ts, qty, is_deleted
            value = {"id": key, "ts": ts, "qty": qty, "_hoodie_is_deleted": is_deleted}
            messages.append(Message(key.encode(), json.dumps(value).encode()))
        send(self._servers, TOPIC, messages)

    @property
    def rows(self) -> dict[str, int]:
        """The live rows: quantity by key."""
        return {key: qty for key, (_, qty, is_deleted) in self._newest.items() if not is_deleted}


def command(servers: str, folder: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "tests.support.chained_job", servers, TOPIC, str(folder), *more]


def files_on_timelines(folder: Path) -> list[int]:
    timelines = [folder / name / ".hoodie" / "timeline" for name in ("a", "b")]
    return [sum(1 for _ in timeline.iterdir()) if timeline.exists() else 0 for timeline in timelines]


def kill_when_there_are_more_files(job: KilledJob, folder: Path, place: int, more: int) -> bool:
    """Kill the job; whether it lived until then."""
    until, deadline = files_on_timelines(folder)[place] + more, time.monotonic() + 120
    while job.status is None and files_on_timelines(folder)[place] < until and time.monotonic() < deadline:
        time.sleep(0.005)
    lived, reached = job.status is None, files_on_timelines(folder)[place] >= until
    job.kill()
    return lived and reached


def test_the_second_table_equals_the_model_after_kills(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    log = tmp_path / "job.log"
    with KafkaBroker(tmp_path / "broker", broker_jars(find_java()), find_java()) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, TOPIC, 2)
        source = Source(servers, chance)
        for kill in range(KILLS):
            source.send(EVENTS)
            place, more = (0, chance.randrange(4, 14)) if kill == 0 else (chance.randrange(2), chance.randrange(1, 12))
            job = KilledJob(command(servers, tmp_path), ROOT, environment, log)
            reached = kill_when_there_are_more_files(job, tmp_path, place, more)
            assert reached, f"seed {SEED}, kill {kill}: {log.read_text()[-3000:]}"
        source.send(EVENTS)
        drained = subprocess.run(
            command(servers, tmp_path, "drain"), cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert drained.returncode == 0, f"seed {SEED}: {drained.stderr[-3000:]}"
    for name in ("a", "b"):
        table = LsmTable(tmp_path / name)
        rows = table.scan(["id", "qty"]).to_arrow()
        assert dict(zip(*(column.to_pylist() for column in rows.columns), strict=True)) == source.rows, f"seed {SEED}"
        assert validate(tmp_path / name) == []
        assert any(table.timeline.read_commit(write).compacted for write in table.timeline.completed_writes)
    assert pc.count(LsmTable(tmp_path / "a").changes("000").to_arrow()["op"]).as_py() > len(source.rows)
