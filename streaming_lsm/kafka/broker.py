"""Run a single-node Kafka broker (KRaft) in a JVM on this machine, for the demo and the tests."""

from __future__ import annotations

import base64
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError

from streaming_lsm.errors import LsmError
from streaming_lsm.spark.jvm.java import Java

_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
# After a kill the old registration must time out before the broker may come back.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
"""

_LOGGING = """status=error
appender.file.type=File
appender.file.name=file
appender.file.fileName={log}
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %c{{1}}: %m%n
rootLogger.level=info
rootLogger.appenderRef.file.ref=file
"""


class BrokerError(LsmError):
    """Reports that the broker did not start; the message has the end of its log."""


class KafkaBroker:
    """Starts and stops a broker that keeps its files in one folder and its ports over restarts.

    As a context manager it starts on entry and stops on exit. It does not delete its files.

    Attributes:
        folder: folder of data, settings and logs.
        log: the broker's log file.
        bootstrap_servers: ``host:port`` for clients; set by the first start.
    """

    def __init__(
        self,
        folder: Path,
        jars: Sequence[Path],
        java: Java,
        *,
        start_seconds: float = 60,
        new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        """Describe a broker; nothing is started yet.

        Args:
            folder: folder of data, settings and logs, created by the first start.
            jars: the broker's jars (``broker_jars.txt``).
            java: the Java that runs them.
            start_seconds: limit for formatting the folder, and for the start.
            new_uuid: source of the cluster id.
        """
        self.folder = folder.absolute()
        self.log = self.folder / "broker.log"
        self.bootstrap_servers = ""
        self._jars = [str(jar) for jar in jars]
        self._java = java
        self._start_seconds = start_seconds
        self._new_uuid = new_uuid
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> KafkaBroker:
        """Start."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:
        """Format the folder if it is new, start the JVM and wait until the broker answers.

        Raises:
            BrokerError: the broker ended or did not answer in time.
        """
        if self._process is not None:
            return
        for attempt in range(3):
            self._prepare()
            self._launch()
            try:
                self._wait_until_ready()
                return
            except BrokerError as error:
                self.kill()
                # Other ports are chosen on the first start only: clients know those of a later one.
                if attempt == 2 or "Address already in use" not in str(error) or self._formatted():
                    raise
                self.bootstrap_servers = ""

    def stop(self, timeout_seconds: float = 20) -> None:
        """Stop the broker by SIGTERM, and kill it after `timeout_seconds`."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._process = None

    def kill(self) -> None:
        """Kill the broker with SIGKILL, as in a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def log_tail(self, lines: int = 30) -> str:
        """Return the last lines of the broker's log and of its standard error."""
        parts = []
        for path in (self.log, self.folder / "broker.err"):
            if path.exists():
                parts += path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
        return "\n".join(parts)

    def _formatted(self) -> bool:
        return (self.folder / "data" / "meta.properties").exists() and bool(list((self.folder / "data").glob("*-*")))

    def _prepare(self) -> None:
        if self.bootstrap_servers:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        broker, controller = _free_ports(2)
        data = self.folder / "data"
        shutil.rmtree(data, ignore_errors=True)
        text = _PROPERTIES.format(broker=broker, controller=controller, data=data)
        (self.folder / "server.properties").write_text(text, encoding="utf-8")
        (self.folder / "log4j2.properties").write_text(_LOGGING.format(log=self.log), encoding="utf-8")
        settings = str(self.folder / "server.properties")
        done = subprocess.run(
            self._command("kafka.tools.StorageTool", ["format", "-t", cluster_id(self._new_uuid), "-c", settings]),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=self._start_seconds, check=False,
        )  # fmt: skip
        if done.returncode:
            raise BrokerError(f"formatting the broker's folder {data} failed:\n{done.stdout[-2000:]}")
        self.bootstrap_servers = f"127.0.0.1:{broker}"

    def _command(self, main: str, arguments: Sequence[str]) -> list[str]:
        java = [
            str(self._java.program), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}", "-Djava.net.preferIPv4Stack=true",
            "-cp", ":".join(self._jars), main, *arguments,
        ]  # fmt: skip
        # With setpriv the kernel kills the broker when this process is killed and cannot stop it.
        guard = shutil.which("setpriv")
        return [guard, "--pdeathsig", "KILL", *java] if guard else java

    def _launch(self) -> None:
        errors: IO[bytes]
        with (self.folder / "broker.err").open("ab") as errors:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", [str(self.folder / "server.properties")]),
                stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                start_new_session=True,  # Ctrl-C goes to Python only, which stops the broker.
            )  # fmt: skip

    def _wait_until_ready(self) -> None:
        host, _, port = self.bootstrap_servers.partition(":")
        deadline = time.monotonic() + self._start_seconds
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise BrokerError(f"the broker ended while starting:\n{self.log_tail()}")
            # The port is tried first, as the client's own retries are slow and log an error each.
            if _accepts(host, int(port)) and self._answers():
                return
            time.sleep(0.1)
        raise BrokerError(f"the broker did not answer within {self._start_seconds:.0f} s:\n{self.log_tail()}")

    def _answers(self) -> bool:
        try:
            client = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        except KafkaError:
            return False
        try:
            return bool(client.describe_cluster().get("brokers"))
        except KafkaError:
            return False
        finally:
            client.close()


def cluster_id(new_uuid: Callable[[], uuid.UUID] = uuid.uuid4) -> str:
    """Generate a cluster id as Kafka does: 22 characters of URL-safe base64 that do not begin with ``-``.

    Kafka's tools read an id that begins with ``-`` as an option.
    """
    while True:
        text = base64.urlsafe_b64encode(new_uuid().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def create_topic(bootstrap_servers: str, name: str, partitions: int) -> None:
    """Create a topic with one replica."""
    client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        client.create_topics([NewTopic(name=name, num_partitions=partitions, replication_factor=1)])
    finally:
        client.close()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
