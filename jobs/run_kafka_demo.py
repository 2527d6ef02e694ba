"""Demonstrate the stream from Kafka on this machine, and compare the table with the events sent.

    DEMO_EVENTS=20000 DEMO_FORMAT=json DEMO_KILL=no python jobs/run_kafka_demo.py

Starts a Kafka broker (for DEMO_FORMAT=avro and debezium-avro a schema registry, too), sends change events of an orders
table (updates, late updates, deletes, poison events), runs jobs/kafka_to_lsm.py on them in its own process, sends
further events, runs the job again from its checkpoint, prints the table and compares it with the events. With
DEMO_KILL=compaction the first run is killed (SIGKILL) during a compaction; its batches are made small enough for a
compaction to be due. Something is printed at least every five seconds.
Exit status: 0 if the rows of the table and the dead letters are exactly those of the events, 1 if not, 2 if an option
is wrong or a package is missing, 130 after Ctrl-C. On failure the folder with table and logs is kept.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

from streaming_lsm.scripts import INTERRUPTED, fail, importing

with importing("run_kafka_demo"):
    from streaming_lsm import ConfigError, LsmError, LsmTable, config
    from streaming_lsm.decode.envelope import EventFormat
    from streaming_lsm.kafka.broker import KafkaBroker, create_topic
    from streaming_lsm.kafka.demo.avro_orders import AvroOrders
    from streaming_lsm.kafka.demo.comparison import DemoFailed, compare_dead_letters, compare_rows
    from streaming_lsm.kafka.demo.order import Message
    from streaming_lsm.kafka.demo.orders import OrderEvents
    from streaming_lsm.kafka.demo.producing import SentEvents, send
    from streaming_lsm.kafka.demo.registry_server import RegistryServer
    from streaming_lsm.kafka.demo.showing import compactions, show_table
    from streaming_lsm.kafka.packaged import broker_jars, connector_jars
    from streaming_lsm.schema_registry.registry import SchemaRegistry
    from streaming_lsm.spark.jvm.java import cache_folder, find_java

TOPIC, PARTITIONS = "orders", 4
HERE = Path(__file__).resolve().parent
_NAME = "run_kafka_demo"
_FEWEST_KILLED = 60
_BATCHES_KILLED = 6
_SMALL, _LARGEST_BATCH, _BATCHES = 40_000, 250_000, 8
"""Up to so many events batches have the size of the properties file; more are read in about eight batches."""
_SILENT_SECONDS = 4.0


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds, kills = list(EventFormat), ("no", "compaction")
    given_by = os.environ.get
    parser.add_argument("--events", type=_count, default=given_by("DEMO_EVENTS", "20000"))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--format", type=EventFormat, choices=kinds, default=given_by("DEMO_FORMAT", "json"))
    parser.add_argument("--timeout", type=float, default=300, help="seconds for each run of the job")
    parser.add_argument("--kill", type=_one_of(*kills), default=given_by("DEMO_KILL", "no"), metavar="|".join(kills))
    parser.add_argument("--keep", action="store_true", help="keep the folder with table and logs")
    given = parser.parse_args(arguments)
    kill = given.kill == "compaction"
    if kill and given.events < _FEWEST_KILLED:
        parser.error(f"{given.events} events are too few for a compaction to be due: send at least {_FEWEST_KILLED}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="lsm-kafka-demo-"))
    with _registry(given.format) as registry:
        encoding = AvroOrders(SchemaRegistry(registry.url), TOPIC) if registry else None
        events = OrderEvents(given.seed, given.format, encoding)
        demo = Demo(folder, events, given.format, given.timeout, registry.url if registry else None)
        status = _status(demo, given.events, kill)
    if status == 0 and given.keep:
        print(f"kept: {folder}")
    elif status in (0, 2):
        shutil.rmtree(folder)
    return status


def _registry(kind: EventFormat) -> AbstractContextManager[RegistryServer | None]:
    """Start a schema registry, if the events are in Avro."""
    return RegistryServer() if kind.is_avro else nullcontext()


def _status(demo: Demo, events: int, kill: bool) -> int:
    """Run the demo and return the exit status; the reason of one other than 0 goes to standard error."""
    kept = f"table and logs are kept in {demo.folder}"
    try:
        demo.run(events, kill=kill)
    except ConfigError as error:
        return fail(_NAME, error, 2)
    except (DemoFailed, LsmError) as error:
        return fail(_NAME, f"FAILED: {error}\n{demo.log_tails()}\n{kept}", 1)
    except KeyboardInterrupt:
        return fail(_NAME, f"interrupted; {kept}", INTERRUPTED)
    except SystemExit as ended:
        return fail(_NAME, f"stopped; {kept}", int(ended.code or 0))
    except Exception:
        traceback.print_exc()
        return fail(_NAME, f"FAILED\n{demo.log_tails()}\n{kept}", 1)
    return 0


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of events, such as 20000")
    return int(text)


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(allowed)}")
        return text

    return parse


class Demo:
    """Runs the demo once, with all of its files in one folder."""

    def __init__(
        self, folder: Path, events: OrderEvents, kind: EventFormat, timeout_seconds: float, registry: str | None = None
    ) -> None:
        """Describe the demo; nothing is started yet. `registry` is the URL of the schema registry of Avro events."""
        self.folder = folder
        self.table_path, self.dead_letters = folder / "table", folder / "dead-letters"
        self._events, self._kind, self._timeout, self._registry = events, kind, timeout_seconds, registry
        self._began = self._said = time.monotonic()
        self._streaming = 0.0
        self._printing = threading.Lock()

    def run(self, count: int, *, kill: bool = False) -> None:
        """Run the demo step by step.

        Args:
            count: number of events.
            kill: whether the first run is killed during a compaction.

        Raises:
            DemoFailed: the table or the dead letters differ from the events.
        """
        java = find_java()
        with self._step("jars (fetched once, then cached)"), self._alive(_fetched):
            jars = broker_jars(java)
            connector_jars(java)
        with ExitStack() as running:
            with self._alive(lambda: "the broker starts"):
                broker = running.enter_context(KafkaBroker(self.folder / "broker", jars, java))
            self._say(f"broker ready at {broker.bootstrap_servers} (Java {java.version} from {java.found})")
            if self._registry:
                self._say(f"schema registry ready at {self._registry}")
            create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
            first = self._send(broker, count * 2 // 3)
            # At least six batches, so that a compaction is due (after every third batch) before the last one.
            largest = min(_LARGEST_BATCH, count // _BATCHES) if count > _SMALL else None
            if kill:
                largest = first.messages // _BATCHES_KILLED
            self._stream(broker, "first run", kill=kill, largest_batch=largest)
            second = self._send(broker, count - first.messages)
            self._stream(broker, "second run, from the checkpoint", largest_batch=None if kill else largest)
        with self._alive(lambda: "the table is read and compared"):
            table = LsmTable(self.table_path)
            show_table(table, self.table_path)
            compare_dead_letters(self.dead_letters, sorted([*first.poison, *second.poison]))
            # Each compaction follows a batch, which begins and ends once in each topic partition.
            most = PARTITIONS * len(compactions(table))
            compare_rows(table.scan().to_arrow(), self._events.model.rows(), self._events.late, most)
        sent = first.messages + second.messages
        self._say(
            f"done: {sent:,} events in {self._streaming:.1f} s of the job, its two starts included "
            f"({sent / self._streaming:,.0f} events/s)"
        )

    def log_tails(self) -> str:
        """Return the last lines of each log."""
        tails = []
        for path in sorted([*self.folder.glob("*.log"), *self.folder.glob("broker/broker.*")]):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-25:]
            tails.append("\n".join([f"--- {path.name}", *lines]))
        return "\n".join(tails)

    def _say(self, text: str) -> None:
        with self._printing:
            self._said = time.monotonic()
            print(f"[{self._said - self._began:5.1f} s] {text}", flush=True)

    @contextmanager
    def _alive(self, doing: Callable[[], str]) -> Iterator[None]:
        """Print what is done whenever nothing else was printed for a few seconds."""
        done = threading.Event()

        def tell() -> None:
            while not done.wait(0.5):
                if time.monotonic() - self._said >= _SILENT_SECONDS:
                    self._say(f"  … {doing()}")

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            yield
        finally:
            done.set()
            teller.join()

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        begin = time.monotonic()
        yield
        self._say(f"{name}: {time.monotonic() - begin:.1f} s")

    def _send(self, broker: KafkaBroker, count: int) -> SentEvents:
        begin, number = time.monotonic(), 0

        def taken() -> Iterator[Message]:
            nonlocal number
            for message in self._events.take(count):
                number += 1
                yield message

        with self._alive(lambda: f"{number:,} of {count:,} events are sent"):
            sent = send(broker.bootstrap_servers, TOPIC, taken())
        seconds = time.monotonic() - begin
        self._say(f"sent {sent.messages:,} events, {len(sent.poison)} of them poison, in {seconds:.1f} s")
        return sent

    def _stream(self, broker: KafkaBroker, name: str, *, kill: bool = False, largest_batch: int | None = None) -> None:
        """Run the job in its own process, as a user would, and print its lines as they arrive."""
        command = [
            sys.executable, str(HERE / "kafka_to_lsm.py"), "--timeout", str(self._timeout),
            "--properties", str(HERE.parent / "conf" / "kafka_demo.properties"),
            "--bootstrap-servers", broker.bootstrap_servers, f"{config.KAFKA_TOPICS.key}={TOPIC}",
            f"{config.KAFKA_FORMAT.key}={self._kind}", f"{config.TABLE_PATH.key}={self.table_path}",
            f"{config.CHECKPOINT.key}={self.folder / 'checkpoint'}",
            f"{config.DEAD_LETTER_PATH.key}={self.dead_letters}",
            *([] if largest_batch is None else [f"{config.KAFKA_MAX_OFFSETS.key}={largest_batch}"]),
            *([] if self._registry is None else [f"{config.SCHEMA_REGISTRY_URL.key}={self._registry}"]),
        ]  # fmt: skip
        self._say(f"{name}: jobs/kafka_to_lsm.py")
        paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}
        with (self.folder / "job.log").open("ab") as log:
            job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
            # The job stops by itself after its timeout; the watchdog kills one that hangs.
            watchdog = threading.Timer(self._timeout + 60, job.kill)
            watchdog.start()
            killer = threading.Thread(target=self._kill_at_compaction, args=(job,), daemon=True)
            if kill:
                killer.start()
            begin, lines = time.monotonic(), 0
            try:
                with self._alive(lambda: "the next batch is written" if lines else "Spark starts"):
                    for line in job.stdout or ():
                        lines += 1
                        self._say("  " + line.rstrip())
                    status = job.wait()
            finally:
                self._streaming += time.monotonic() - begin
                watchdog.cancel()
                job.kill()
                job.wait()
        if kill:
            self._check_killed(status)
        elif status:
            raise DemoFailed(f"jobs/kafka_to_lsm.py ended with status {status}")

    def _kill_at_compaction(self, job: subprocess.Popen[str]) -> None:
        """Kill the job as soon as a compaction is inflight."""
        timeline = self.table_path / ".hoodie" / "timeline"
        while job.poll() is None:
            if list(timeline.glob("*.compaction.inflight")):
                job.kill()
            time.sleep(0.001)

    def _check_killed(self, status: int) -> None:
        left = [str(instant.file_name) for instant in LsmTable(self.table_path).timeline.pending]
        if status != -signal.SIGKILL or not any("compaction" in name for name in left):
            raise DemoFailed(f"the job was not killed during a compaction; it ended with {status} and left {left}")
        self._say(f"  killed during the compaction; pending on the timeline: {', '.join(left)}")


def _fetched() -> str:
    """Tell how much of the jars that are being fetched is there."""
    sizes = []
    for path in cache_folder(os.environ).glob("jars/.fetching-*/**/*"):
        with suppress(OSError):
            sizes.append(path.stat().st_size)
    return f"jars are fetched: {sum(sizes) >> 20} MiB so far"


if __name__ == "__main__":
    sys.exit(main())
