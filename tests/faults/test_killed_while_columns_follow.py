"""SIGKILL of the driver, the JVM and the workers while a batch adds columns, then the same command again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from streaming_lsm import LsmTable
from streaming_lsm.kafka.broker import KafkaBroker, create_topic
from streaming_lsm.kafka.demo.registry_server import RegistryServer
from streaming_lsm.kafka.packaged import broker_jars
from streaming_lsm.spark.jvm.java import find_java
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.avro_messages import encoded, framed, nullable, record
from tests.support.killed_job import KilledJob
from tests.support.watched_stream import put, rows

ROOT = Path(__file__).parents[2]
ONE = record(("id", "long"), ("v", "int"))
TWO = record(("id", "long"), ("v", "long"), ("note", nullable("string")))
LATEST = record(("id", "long"), ("later", "string"))
LARGE = 1 << 40


def test_the_batch_that_adds_columns_is_whole_after_a_kill_between_its_two_readings(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    log, flag = tmp_path / "job.log", tmp_path / "flag"
    with (
        KafkaBroker(tmp_path / "broker", broker_jars(find_java()), find_java()) as broker,
        RegistryServer() as registry,
    ):
        places = [broker.bootstrap_servers, registry.url, str(tmp_path)]
        command = [sys.executable, "-m", "tests.support.following_job", *places]

        def message(avro: Any, **value: Any) -> bytes:
            return framed(registry.register("t-value", json.dumps(avro)), encoded(avro, value))

        create_topic(broker.bootstrap_servers, "t", 2)
        put(broker, "t", *(message(ONE, id=n, v=n) for n in range(50)))
        subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=180)
        put(broker, "t", *(message(ONE, id=n, v=-n) for n in range(10)))
        put(broker, "t", *(message(TWO, id=n, v=LARGE + n, note=f"n{n}") for n in range(40, 90)))
        job = KilledJob([*command, str(flag)], ROOT, environment, log)
        deadline = time.monotonic() + 120
        while not flag.exists():
            assert job.status is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, f"no batch adds columns: {log.read_text()[-3000:]}"
            time.sleep(0.05)
        job.kill()
        assert LsmTable(tmp_path / "t").schema.names == ["id", "v"]
        registry.register("t-value", json.dumps(LATEST))
        subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=180)
    expected = [{"id": n, "v": -n if n < 10 else n, "note": None} for n in range(40)]
    expected += [{"id": n, "v": LARGE + n, "note": f"n{n}"} for n in range(40, 90)]
    assert rows(tmp_path / "t") == sorted(expected, key=lambda row: str(row["id"]))
    assert read_snapshot(str(tmp_path / "t")).num_rows == 90
    assert validate(tmp_path / "t") == [], "an orphan file, or a commit that does not fit its files"
    assert len(LsmTable(tmp_path / "t").timeline.every_write) == 2
