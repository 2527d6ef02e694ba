"""The Kafka demo on an S3 server: the job is killed and started again ten times, and the table is what the events say.

The job runs with its default options, on a checkpoint on the local disk. A *moment* is a put to the store, which a
random number chooses: in most runs any of a batch, in others one at the completion of a batch, or of a compaction. The
server holds this put until driver, JVM and Python workers are killed; then it takes effect, or does not. A kill is
*open* if it hits a batch that Spark had begun and the table had not committed. A moment that the run did not reach is
no kill; further ones are drawn until there are ten kills, and enough of them open.

``LSM_DEMO_SEED`` repeats the events and the moments of a run, but not the order of puts that tasks send side by side.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import TableNotFound
from streaming_lsm.kafka.broker import KafkaBroker, create_topic
from streaming_lsm.kafka.demo.comparison import compare_dead_letters, compare_rows
from streaming_lsm.kafka.demo.order import Order
from streaming_lsm.kafka.demo.orders import OrderEvents
from streaming_lsm.kafka.demo.producing import send
from streaming_lsm.kafka.demo.showing import compactions
from streaming_lsm.kafka.packaged import broker_jars
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER
from streaming_lsm.lock.lock import LOCK_FILE
from streaming_lsm.spark.jvm.java import find_java
from streaming_lsm.storage.objects.probe import PROBE_NAME
from streaming_lsm.storage.objects.tombstone import Tombstone
from streaming_lsm.timeline.instant import State
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.cluster import SHORT_LIVED
from tests.support.killed_job import KilledJob
from tests.support.raw_objects import download, raw_keys, raw_object
from tests.support.s3_server import S3Server
from tests.support.stopped_driver import left_behind

SEED = int(os.environ.get("LSM_DEMO_SEED") or time.time_ns() % 1_000_000)
ROOT = Path(__file__).parents[2]
TOPIC, PARTITIONS = "orders", 4
KILLS, OPEN_KILLS, MOST_RUNS = 10, 6, 20
EVENTS_OF_A_BATCH, BATCHES_OF_A_RUN = 400, 4
# The lease of a killed driver is two minutes: a driver that waited for it would not end in time.
RUN_S = 100


@dataclass(frozen=True)
class Moment:
    """The put at which a run is killed.

    Attributes:
        after: end of the path of a put; empty for any.
        puts: so many puts after the first such one.
        takes_effect: whether the put does, though its sender is dead.
    """

    after: str
    puts: int
    takes_effect: bool

    @staticmethod
    def draw(chance: random.Random, after: str, puts: int) -> Moment:
        """Draw one of the first `puts` puts."""
        return Moment(after, chance.randrange(puts), chance.random() < 0.5)


def moments(chance: random.Random) -> list[Moment]:
    """Ten moments, in an order that is random, too; a batch of thirty files sends about eighty puts."""
    drawn = [Moment.draw(chance, "", 80) for _ in range(7)]
    drawn += [Moment.draw(chance, ".deltacommit", 4)]
    drawn += [Moment.draw(chance, ".compaction.inflight", 60) for _ in range(2)]
    chance.shuffle(drawn)
    return drawn


@dataclass
class Trial:
    """The demo, with what was seen of it.

    Attributes:
        poison: topic partition, offset and kind of each bad event sent.
        killed: for each kill the put that was held, and what it hit.
        missed: moments that were not reached before the job had read all events.
    """

    server: S3Server
    broker: KafkaBroker
    uri: str
    folder: Path
    events: OrderEvents
    sent: int = 0
    poison: list[tuple[int, int, str]] = field(default_factory=list)
    killed: list[tuple[str, str]] = field(default_factory=list)
    missed: list[Moment] = field(default_factory=list)

    @property
    def table(self) -> str:
        """The table's root."""
        return f"{self.uri}/table"

    @property
    def log(self) -> Path:
        """Output of all runs of the job."""
        return self.folder / "job.log"

    @property
    def open_kills(self) -> int:
        """Number of kills that hit a batch that was not committed."""
        return sum(hit.startswith("open") for _, hit in self.killed)

    def send(self) -> None:
        """Send events until there are enough for some batches that Spark has not begun."""
        while self.sent < (len(self.numbers("offsets")) + BATCHES_OF_A_RUN) * EVENTS_OF_A_BATCH:
            found = send(self.broker.bootstrap_servers, TOPIC, self.events.take(EVENTS_OF_A_BATCH))
            self.sent += found.messages
            self.poison += found.poison

    def start(self) -> KilledJob:
        """Start the job, on the same checkpoint."""
        command = [
            sys.executable, "jobs/kafka_to_lsm.py", "--properties", "conf/kafka_demo.properties",
            "--timeout", str(RUN_S), "--bootstrap-servers", self.broker.bootstrap_servers, f"subscribe={TOPIC}",
            f"lsm.table.path={self.table}", f"checkpointLocation={self.folder / 'checkpoint'}",
            f"lsm.dead.letter.path={self.uri}/dead", f"maxOffsetsPerTrigger={EVENTS_OF_A_BATCH}",
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "SPARK_SUBMIT_OPTS": SHORT_LIVED}
        return KilledJob(command, ROOT, environment, self.log)

    def run_until(self, moment: Moment) -> None:
        """Run the job, and kill it at a moment, if that comes."""
        self.server.rule("hold", "PUT", moment.after, later=moment.puts)
        job, held = self.start(), ""
        try:
            while job.status is None and not held:
                held = self.server.held(0.2)
        finally:
            ended = job.status
            job.kill()
        if held:
            self.server.release(takes_effect=moment.takes_effect)
            path = held.removeprefix(f"PUT /{self.uri.removeprefix('s3://')}/")
            self.killed.append((f"{path} {'done' if moment.takes_effect else 'lost'}", self.hit()))
        else:
            assert ended == 0, self.tail()
            self.server.clear_rules()
            self.missed.append(moment)

    def run_to_end(self) -> None:
        """Run the job until it has read all events."""
        job = self.start()
        try:
            while job.status is None:
                time.sleep(0.1)
        finally:
            ended = job.status
            job.kill()
        assert ended == 0, self.tail()

    def hit(self) -> str:
        """What Spark and the table know of the last batch, which a kill has hit."""
        begun, ended = self.numbers("offsets"), self.numbers("commits")
        if not begun or begun[-1] in ended:
            return "between batches"
        try:
            timeline = LsmTable(self.table).timeline
        except TableNotFound:
            return "open, no table"
        pending = "+".join(sorted(instant.action for instant in timeline.pending)) or "nothing"
        if begun[-1] in self.batches():
            return f"committed, not in the checkpoint, {pending} pending"
        return f"open, {pending} pending"

    def numbers(self, folder: str) -> list[int]:
        """The batches in a folder of the checkpoint."""
        files = (self.folder / "checkpoint" / folder).glob("*")
        return sorted(int(file.name) for file in files if file.name.isdecimal())

    def batches(self) -> list[int]:
        """The batch ids that the commits remember, in the order of the commits."""
        timeline = LsmTable(self.table).timeline
        writes = [write for write in timeline.every_write if write.action == "deltacommit"]
        ledgers = [json.loads(timeline.read_commit(write).extra["lsm.writers"]) for write in writes]
        assert all(len(ledger) == 1 for ledger in ledgers), "the query is known by two names"
        return [batch for ledger in ledgers for batch, *_ in ledger.values()]

    def tail(self) -> str:
        """The last lines of the job."""
        return f"LSM_DEMO_SEED={SEED}: " + self.log.read_text(errors="replace")[-4000:]

    def figures(self, took: float) -> str:
        """Kills, batches and time in a few lines."""
        lines = [f"{len(self.killed)} kills, {self.open_kills} of them in an open batch, {len(self.missed)} missed"]
        lines += [f"{hit}, at {put}" for put, hit in self.killed]
        lines.append(f"{len(self.batches())} batches of {self.sent:,} events in {took:.0f} s")
        return "\n  ".join(lines)


def data(rows: pa.Table) -> list[tuple[object, ...]]:
    """The rows of a snapshot without their meta columns."""
    columns = list(Order.__dataclass_fields__)
    place, instants = columns.index("updated_at"), pc.cast(rows["updated_at"], pa.timestamp("us", "UTC"))
    utc = rows.select(columns).set_column(place, "updated_at", instants)
    return sorted(tuple(row.values()) for row in utc.to_pylist())


def check(trial: Trial, folder: Path) -> None:
    """The table is what the events say, each batch is there once, and nothing is left over."""
    assert trial.batches() == list(range(len(trial.numbers("offsets")))) == trial.numbers("commits")
    table = LsmTable(trial.table)
    # A compaction that was killed may be planned again, for a later batch.
    assert {(instant.action, instant.state) for instant in table.timeline.pending} <= {("compaction", State.REQUESTED)}
    assert list(left_behind(table)) == []
    copy = download(trial.table, folder / "copy")
    ours, oracle = table.scan().to_arrow(), read_snapshot(copy)
    for rows in (ours, oracle):
        compare_rows(rows, trial.events.model.rows(), trial.events.late, PARTITIONS * len(compactions(table)))
    assert data(ours) == data(oracle)
    tombstones = [path for path in raw_keys(trial.table) if Tombstone.decode(raw_object(trial.table, path))]
    # A heartbeat that was given up, and not deleted yet: docs/object-stores.md.
    given_up = [path for path in tombstones if path != LOCK_FILE]
    assert all(path.startswith(f"{HEARTBEAT_FOLDER}/") for path in given_up), given_up
    assert len(given_up) <= len(trial.killed)
    for path in given_up:
        (copy / path).unlink()
    accepted = ("folder.missing: .hoodie/", "leftover.lock: .hoodie/lock")
    said = [violation for violation in validate(copy) if PROBE_NAME not in violation]
    assert [violation for violation in said if not violation.startswith(accepted)] == []
    assert [path for path in raw_keys(trial.table) if path.endswith(".lsm-tmp")] == []
    compare_dead_letters(download(f"{trial.uri}/dead", folder / "dead"), trial.poison)


@pytest.mark.timeout(MOST_RUNS * RUN_S)
def test_a_stream_into_s3_that_is_killed_ten_times_writes_what_the_events_say(
    object_server: S3Server, s3_uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    java, chance = find_java(), random.Random(SEED)
    with KafkaBroker(tmp_path / "broker", broker_jars(java), java) as broker:
        create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
        trial = Trial(object_server, broker, s3_uri, tmp_path, OrderEvents(SEED))
        begun, planned = time.monotonic(), moments(chance)
        while len(trial.killed) < KILLS or trial.open_kills < OPEN_KILLS:
            assert len(trial.killed) + len(trial.missed) < MOST_RUNS, trial.figures(time.monotonic() - begun)
            if not planned:
                planned = [Moment.draw(chance, "", 80)]
            trial.send()
            trial.run_until(planned.pop())
        trial.send()
        trial.run_to_end()
        took = time.monotonic() - begun
    with capsys.disabled():
        print(f"\nLSM_DEMO_SEED={SEED}: {trial.figures(took)}")
    check(trial, tmp_path)
