"""A real broker, and the job that streams from it in a process of its own.

The run on two executors, in a job that goes on, is left to LSM_ALL_FAULTS=1, as are some ways to end a job.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from kafka import KafkaConsumer, KafkaProducer

from streaming_lsm import LsmTable
from streaming_lsm.decode.envelope import EventFormat
from streaming_lsm.kafka.broker import KafkaBroker, create_topic
from streaming_lsm.kafka.demo.avro_orders import AvroOrders
from streaming_lsm.kafka.demo.order import Message, Order
from streaming_lsm.kafka.demo.orders import OrderEvents
from streaming_lsm.kafka.demo.producing import send
from streaming_lsm.kafka.demo.registry_server import RegistryServer
from streaming_lsm.kafka.packaged import broker_jars
from streaming_lsm.schema_registry.registry import SchemaRegistry
from streaming_lsm.spark.jvm.java import find_java
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.cluster import SHORT_LIVED, spark_home
from tests.support.crash_points import sample

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def job_command(broker: KafkaBroker, folder: Path, topic: str, *options: str) -> list[str]:
    return [
        sys.executable, "jobs/kafka_to_lsm.py", "--properties", "conf/kafka_demo.properties", "--timeout", "150",
        "--bootstrap-servers", broker.bootstrap_servers, f"subscribe={topic}", f"lsm.table.path={folder / 'table'}",
        f"checkpointLocation={folder / 'checkpoint'}", f"lsm.dead.letter.path={folder / 'dead'}", *options,
    ]  # fmt: skip


def run_job(broker: KafkaBroker, folder: Path, topic: str, *options: str) -> subprocess.CompletedProcess[str]:
    return run(job_command(broker, folder, topic, *options), ENVIRONMENT)


def run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)


def submit_job(
    broker: KafkaBroker, folder: Path, topic: str, settings: dict[str, str], *options: str
) -> subprocess.CompletedProcess[str]:
    """Run the job by spark-submit on two executors, which get the package as an archive."""
    package = shutil.make_archive(str(folder / "streaming_lsm"), "zip", ROOT, "streaming_lsm")
    home = spark_home(folder / "spark")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        "SPARK_HOME": str(home), "JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    command = [str(home / "bin" / "spark-submit"), "--master", "local-cluster[2,1,1024]", "--py-files", package]
    (folder / "events").mkdir()
    logged = {"spark.eventLog.dir": (folder / "events").as_uri(), "spark.eventLog.compress": "false"}
    logged["spark.executor.extraJavaOptions"] = SHORT_LIVED
    for key, value in {**settings, "spark.eventLog.enabled": "true", **logged}.items():
        command += ["--conf", f"{key}={value}"]
    return run([*command, *job_command(broker, folder, topic, *options)[1:]], environment)


def rows_by_key(table: pa.Table) -> dict[str, Order]:
    found = {}
    for row in table.select(list(Order.__dataclass_fields__)).to_pylist():
        at = row.pop("updated_at")
        row["updated_at"] = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        found[row["order_id"]] = Order(**row)
    assert len(found) == table.num_rows
    return found


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    """A registry that wants a password."""
    with RegistryServer("job:s3cret") as server:
        yield SchemaRegistry(server.url, "job:s3cret")


def check_events(folder: Path) -> None:
    """Spark's log says that executors ran every task, two of them, with the settings of spark-submit."""
    logs = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".crc"]
    events: dict[str, list[dict[str, Any]]] = {}
    for event in [json.loads(line) for log in logs for line in log.read_text().splitlines()]:
        events.setdefault(event["Event"].removeprefix("SparkListener"), []).append(event)
    tasks = events["TaskEnd"]
    assert len(tasks) > 5
    assert {task["Task Info"]["Executor ID"] for task in tasks} == {"0", "1"}
    assert {task["Task End Reason"]["Reason"] for task in tasks} == {"Success"}
    # Jars that are added to a running session update it.
    environment = events["EnvironmentUpdate"][0]
    properties = environment["Spark Properties"]
    assert properties["spark.master"] == "local-cluster[2,1,1024]"
    assert properties["spark.executor.memory"] == "640m"
    jobs = [job["Properties"] for job in events["JobStart"]]
    assert all(TOKYO.items() <= job.items() for job in jobs)


TOKYO = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.broadcastTimeout": "77"}
AT_NINE = Order("o-tokyo", "c", "JP", "new", 1, Decimal("1.00"), None, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("kind", "runs"), sample([(EventFormat.JSON, 2), (EventFormat.DEBEZIUM, 1), (EventFormat.DEBEZIUM_AVRO, 1)], 2, 3)
)
def test_job_writes_what_the_events_say_and_goes_on_from_its_checkpoint_on_a_cluster(
    broker: KafkaBroker, registry: SchemaRegistry, tmp_path: Path, kind: EventFormat, runs: int
) -> None:
    topic, poison = f"orders-{kind}", []
    events = OrderEvents(11, kind, AvroOrders(registry, topic) if kind.is_avro else None)
    access = {
        "lsm.kafka.schema.registry.url": registry.url,
        "lsm.kafka.schema.registry.basic.auth.user.info": str(registry.user_info),
    }
    options = [f"lsm.kafka.format={kind}", "maxOffsetsPerTrigger=700"]
    options += [f"{key}={value}" for key, value in access.items()] if kind.is_avro else []
    expected: dict[str, Order] = {}
    create_topic(broker.bootstrap_servers, topic, 3)
    for number in range(runs):
        sent = send(broker.bootstrap_servers, topic, events.take(1200))
        poison += [(partition, offset) for partition, offset, _ in sent.poison]
        count = sent.messages
        if number == 0:
            done = run_job(broker, tmp_path, topic, *options)
        else:
            local_time = json.dumps({**AT_NINE.as_json(), "updated_at": "2026-01-01T09:00:00"}).encode()
            count += send(broker.bootstrap_servers, topic, [Message(b"o-tokyo", local_time)]).messages
            expected["o-tokyo"] = AT_NINE
            done = submit_job(broker, tmp_path, topic, {**TOKYO, "spark.executor.memory": "640m"}, *options)
            check_events(tmp_path / "events")
        assert done.returncode == 0, done.stdout + done.stderr[-4000:]
        assert "s3cret" not in done.stdout + done.stderr
        assert f"stream ended: {count:,} events in 2 batches" in done.stdout

    path = tmp_path / "table"
    expected |= events.model.rows()
    assert rows_by_key(LsmTable(path).scan().to_arrow()) == expected
    assert rows_by_key(read_snapshot(path)) == expected
    assert validate(path) == []
    letters = ds.dataset(tmp_path / "dead", format="parquet").to_table()
    assert sorted(zip(letters["partition"].to_pylist(), letters["offset"].to_pylist(), strict=True)) == sorted(poison)
    assert letters["reason"].null_count == 0
    assert set(letters["topic"].to_pylist()) == {topic}


def test_bad_event_stops_the_job_by_name_and_what_was_committed_stays(broker: KafkaBroker, tmp_path: Path) -> None:
    create_topic(broker.bootstrap_servers, "strict", 1)
    row = {"order_id": "o-1", "country": "DE", "updated_at": "2026-01-01T00:00:00Z"}
    send(broker.bootstrap_servers, "strict", [Message(b"k", json.dumps(row).encode())])
    send(broker.bootstrap_servers, "strict", [Message(b"k", json.dumps({**row, "qty": "many"}).encode())])
    failed = run_job(broker, tmp_path, "strict", "lsm.on.bad.event=fail", "maxOffsetsPerTrigger=1")
    assert failed.returncode == 1
    assert failed.stdout.startswith("batch 0: 1 events -> 1 rows")
    said = (
        "kafka_to_lsm: the stream failed: event at topic 'strict', partition 0, offset 1: column 'qty' holds 'many', "
    )
    assert failed.stderr.splitlines()[-1].startswith(said)
    assert '  File "' not in failed.stderr, "a stack of Python"
    assert "\tat " not in failed.stderr, "a stack of Java"
    assert LsmTable(tmp_path / "table").scan().to_arrow().num_rows == 1
    committed = [path.name for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name.isdigit()]
    assert committed == ["0"], "the checkpoint advanced over a bad event"


def test_job_that_goes_on_for_ever_sets_aside_what_has_no_place_and_ends_in_order_on_sigterm(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, "endless", 1)
    row = {"order_id": "o-1", "country": "DE", "updated_at": "2026-01-01T00:00:00Z"}
    astray = [{**row, "order_id": f"o-{n}", "country": country} for n, country in enumerate(["x/../..", "é" * 128], 2)]
    send(broker.bootstrap_servers, "endless", [Message(b"k", json.dumps(one).encode()) for one in (row, *astray)])
    command = job_command(broker, tmp_path, "endless", "lsm.trigger=1 second")
    with (tmp_path / "job.err").open("wb") as errors:
        job = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert job.stdout is not None
    with job.stdout as lines:
        line = lines.readline()
        assert line.startswith("batch 0: 3 events -> 1 rows"), (tmp_path / "job.err").read_text()[-4000:]
        assert ", 2 dead letters, " in line
        job.terminate()
        assert lines.read().startswith("stream ended: 3 events in 1 batches")
    assert job.wait(timeout=60) == 0
    assert LsmTable(tmp_path / "table").scan().to_arrow().num_rows == 1


def test_broker_starts_whatever_id_is_drawn_for_its_cluster(tmp_path: Path) -> None:
    java, drawn = find_java(), iter([uuid.UUID(bytes=b"\xf8" * 16), uuid.UUID(bytes=b"\x00\xf8" * 8)])
    with KafkaBroker(tmp_path, broker_jars(java), java, new_uuid=lambda: next(drawn)) as broker:
        create_topic(broker.bootstrap_servers, "any", 1)


def test_broker_keeps_address_and_events_over_stop_and_crash(broker: KafkaBroker) -> None:
    create_topic(broker.bootstrap_servers, "kept", 1)
    address = broker.bootstrap_servers
    for restart in (broker.stop, broker.kill):
        producer = KafkaProducer(bootstrap_servers=address)
        producer.send("kept", b"event").get(timeout=30)
        producer.close(timeout=10)
        restart()
        broker.start()
        assert broker.bootstrap_servers == address
    consumer = KafkaConsumer("kept", bootstrap_servers=address, auto_offset_reset="earliest", consumer_timeout_ms=5000)
    assert [message.value for message in consumer] == [b"event", b"event"]
    consumer.close()


def test_wrong_options_end_the_job_before_spark_starts() -> None:
    command = [sys.executable, "jobs/kafka_to_lsm.py", "lsm.kafka.shema=x"]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "did you mean 'lsm.kafka.schema'" in done.stderr


def test_ctrl_c_stops_the_query_in_order_and_ends_the_job_in_one_line(broker: KafkaBroker, tmp_path: Path) -> None:
    """SIGINT goes to the whole process group, as from a terminal: while a batch is written; then, when the job was
    started again and went on to the last event, while the query waits."""
    events = OrderEvents(5, EventFormat.JSON)
    create_topic(broker.bootstrap_servers, "interrupted", 1)
    send(broker.bootstrap_servers, "interrupted", events.take(5000))
    heartbeats = tmp_path / "table" / ".hoodie" / ".heartbeat"
    for last in sample(("batch 0:", "batch 4:"), 1, 2):
        command = job_command(broker, tmp_path, "interrupted", "lsm.trigger=1 second", "maxOffsetsPerTrigger=1000")
        with (tmp_path / "job.err").open("wb") as errors:
            job = subprocess.Popen(
                command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=errors, text=True,
                start_new_session=True,
            )  # fmt: skip
        assert job.stdout is not None
        seen = any(line.startswith(last) for line in iter(job.stdout.readline, ""))
        assert seen, (tmp_path / "job.err").read_text()
        if last == "batch 0:":
            wait_for(job, lambda: any(heartbeats.glob("*")))
        os.killpg(job.pid, signal.SIGINT)
        job.communicate(timeout=120)
        said = (tmp_path / "job.err").read_text()
        assert job.returncode == 130, said
        assert said.splitlines()[-1].startswith("kafka_to_lsm: interrupted; ")
        assert "\tat " not in said, "a stack of Java"
        # A worker of Spark's that is killed while it starts says so itself.
        assert not re.search(r'File ".*(streaming_lsm|jobs)/', said), said
    assert rows_by_key(LsmTable(tmp_path / "table").scan().to_arrow()) == events.model.rows()


def test_ctrl_c_while_spark_starts_ends_the_job_in_one_line(broker: KafkaBroker, tmp_path: Path) -> None:
    create_topic(broker.bootstrap_servers, "any-topic", 1)
    command = job_command(broker, tmp_path, "any-topic", "lsm.trigger=1 second")
    job = subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert job.stderr is not None
    with job.stderr as errors:
        # The first line of all is of the Java process that starts.
        assert "incubator" in errors.readline()
        os.killpg(job.pid, signal.SIGINT)
        said = errors.read()
    # The end of the pipe is the end of Java, too, which has it from the job.
    assert job.wait(timeout=120) == 130
    assert said.splitlines()[-1] == "kafka_to_lsm: interrupted"
    assert "Traceback" not in said


def test_an_address_without_a_broker_is_told_before_spark_starts(tmp_path: Path) -> None:
    command = [sys.executable, "jobs/kafka_to_lsm.py", "--properties", "conf/kafka_demo.properties",
               "--bootstrap-servers", "127.0.0.1:1", f"lsm.table.path={tmp_path / 'table'}",
               f"checkpointLocation={tmp_path / 'checkpoint'}"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("kafka_to_lsm: kafka.bootstrap.servers='127.0.0.1:1': no broker answers (127.0.0.1:1: ")


def test_a_checkpoint_that_cannot_be_made_is_told_without_a_stack(broker: KafkaBroker, tmp_path: Path) -> None:
    create_topic(broker.bootstrap_servers, "nowhere", 1)
    (tmp_path / "file").touch()
    failed = run_job(broker, tmp_path, "nowhere", f"checkpointLocation={tmp_path / 'file' / 'checkpoint'}")
    assert failed.returncode == 1
    assert "kafka_to_lsm: the stream failed: " in failed.stderr
    assert str(tmp_path / "file") in failed.stderr.rpartition("kafka_to_lsm: ")[2]
    assert "Traceback" not in failed.stderr


def wait_for(job: subprocess.Popen[str], reached: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert job.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
