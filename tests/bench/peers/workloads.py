"""What the process of a run does, for each workload."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.peers.adapters.base import NoReader, OpenSystem, Table
from tests.bench.peers.columns import CHANGE_COLUMNS, DOCUMENT_COLUMNS, ROW_COLUMNS, Columns
from tests.bench.peers.digest import digest
from tests.bench.peers.measures import STARTED, Watch, folder_size
from tests.bench.peers.sizes import LAST, LOGS, PARTITIONS, Sizes
from tests.bench.peers.systems import CHANGES, KAFKA, QUERIES, READS, ROWS, TRICKLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Answer = dict[str, Any]
"""What was measured, for JSON: see `page` for the names."""

# Spark asks for the end of a topic partition after every poll; a fetch on its way then waits there, by default 500 ms.
_READING = {"kafka.fetch.max.wait.ms": "10", "kafka.max.poll.records": "5000"}


@dataclass
class Run:
    """One run.

    Attributes:
        system: with its session started.
        sizes: how much.
        inputs: folder of the files.
        servers: address of the broker.
        folder: for checkpoints.
        keeps: whether the table has the newest row of each key only, so that its rows are compared.
        answer: what was measured.
    """

    system: OpenSystem
    sizes: Sizes
    inputs: Path
    servers: str
    folder: Path
    keeps: bool
    answer: Answer = field(default_factory=dict)

    def measure(self, workload: str) -> Answer:
        """Do the workload; the answer has what was measured.

        Raises:
            Exception: whatever the system raises.
        """
        self.answer["session_seconds"] = time.perf_counter() - STARTED
        steps: dict[str, Callable[[], None]] = {
            ROWS: self._rows,
            KAFKA: lambda: self._kafka(KAFKA, DOCUMENT_COLUMNS, self.sizes.rows),
            CHANGES: lambda: self._kafka(CHANGES, CHANGE_COLUMNS, self.sizes.changes),
            TRICKLE: self._trickle,
            READS: self._reads,
            QUERIES: self._queries,
        }
        steps[workload]()
        return self.answer

    # --- writes -------------------------------------------------------------------------------------------------

    def _rows(self) -> None:
        batches = self._batches(ROWS)
        self._warm_up([batches[number % len(batches)] for number in range(self.sizes.warm_up)])
        table = self.system.table("measured", ROW_COLUMNS)
        with Watch() as watch:
            for number, files in enumerate(batches):
                watch.time(lambda: table.upsert(files, number))  # noqa: B023
        self._written(table, watch, len(batches) * self.sizes.rows)
        self._check(table, ROW_COLUMNS)

    def _trickle(self) -> None:
        batches = self._batches(TRICKLE)
        self._warm_up([batches[number % len(batches)] for number in range(self.sizes.second_warm_up)])
        table = self.system.table("measured", ROW_COLUMNS)
        ages, taken, number = [], 0, 0
        with Watch() as watch:
            begun = time.perf_counter()
            while taken < len(batches):
                # The rows of second n are there at its end; those that came during a batch make the next one.
                due = min(len(batches), int(time.perf_counter() - begun))
                if due == taken:
                    time.sleep(begun + taken + 1 - time.perf_counter())
                    continue
                files = [file for batch in batches[taken:due] for file in batch]
                watch.time(lambda: table.upsert(files, number))  # noqa: B023
                ages.append(time.perf_counter() - begun - taken - 1)
                taken, number = due, number + 1
        self._written(table, watch, len(batches) * self.sizes.second_rows)
        self.answer["age_seconds"] = ages
        self._check(table, ROW_COLUMNS)

    def _warm_up(self, batches: list[list[str]]) -> None:
        warm, watch = self.system.table("warm", ROW_COLUMNS), Watch()
        for number, files in enumerate(batches):
            watch.time(lambda: warm.upsert(files, number))  # noqa: B023
        self.answer["first_batch_seconds"] = watch.seconds[0]

    def _kafka(self, topic: str, columns: Columns, batch: int) -> None:
        warm = self._stream(self.system.table("warm", columns), f"{topic}-warm", batch)
        self.answer["first_batch_seconds"] = warm[0]
        table = self.system.table("measured", columns)
        with Watch() as watch:
            watch.seconds = self._stream(table, topic, batch)
        self._written(table, watch, self.sizes.batches * batch)
        self._check(table, columns)

    def _stream(self, table: Table, topic: str, batch: int) -> list[float]:
        """Stream a topic to a table until its end; seconds of each trigger that had rows, as Spark reports them."""
        spark = self.system.spark
        assert spark is not None
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.servers).options(**_READING)
        # Partitions have about, not exactly, the same number of messages: without some more a last batch would be tiny.
        limit = batch + batch // 100 + PARTITIONS
        messages = reader.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=limit).load()
        writer = messages.writeStream.foreachBatch(table.take_messages)
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoints" / topic))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = [each for each in query.recentProgress if each["numInputRows"]]
        return [each["durationMs"]["triggerExecution"] / 1000 for each in progress]

    # --- reads --------------------------------------------------------------------------------------------------

    def _reads(self) -> None:
        base, *logs = self._batches(READS)
        table = self.system.table("measured", ROW_COLUMNS)
        watch = Watch()
        watch.time(lambda: table.upsert(base, 0))
        self.answer["first_batch_seconds"] = watch.seconds[0]
        self._compact(table, "base_compaction")
        done = 0
        for count in LOGS:
            for number in range(done, count):
                table.upsert(logs[number], number + 1)
            done = count
            self._snapshots(table, str(count))
        self._check(table, ROW_COLUMNS)
        if self._compact(table, "compaction"):
            self._snapshots(table, "compacted")
            self._check(table, ROW_COLUMNS)

    def _queries(self) -> None:
        base, *logs = self._batches(READS)
        table = self.system.table("measured", ROW_COLUMNS)
        table.upsert(base, 0)
        table.compact()
        for number, log in enumerate(logs[: max(LOGS)], 1):
            table.upsert(log, number)
        few, key = ROW_COLUMNS.names[:2], f"order{self.sizes.base // 2:012d}"
        self._query("all rows, 20 logs", table.spark_rows)
        self._query("two columns, 20 logs", lambda: table.spark_rows(few))
        self._query("one key, 20 logs", lambda: table.spark_rows(key=key))
        self._query(f"last {LAST} batches", lambda: table.spark_rows_of_last(LAST))
        table.compact()
        self._query("all rows, compacted", table.spark_rows)
        self._query("two columns, compacted", lambda: table.spark_rows(few))
        self._query("one key, compacted", lambda: table.spark_rows(key=key))
        self._check(table, ROW_COLUMNS)

    def _query(self, name: str, query: Callable[[], DataFrame]) -> None:
        """Time a query from its planning to the last row, which Spark has as its own."""
        watch, counts = Watch(), []

        def count() -> None:
            counts.append(query()._jdf.queryExecution().toRdd().count())

        for _ in range(1 + self.sizes.reads):
            watch.time(count)
        found = {"first_seconds": watch.seconds[0], "seconds": watch.seconds[1:], "rows": counts[-1]}
        self.answer.setdefault("queries", {})[name] = found

    def _compact(self, table: Table, name: str) -> bool:
        """Time a compaction; returns whether the system has one."""
        watch = Watch()
        try:
            watch.time(table.compact)
        except NotImplementedError as error:
            self.answer[name] = {"none": str(error)}
            return False
        size, files = folder_size(table.folder)
        self.answer[name] = {"seconds": watch.seconds[0], "bytes": size, "files": files}
        return True

    def _snapshots(self, table: Table, logs: str) -> None:
        """Time reads of all rows and columns, by Spark as its own rows and into an Arrow table."""

        def spark() -> None:
            # Delta cannot write to the format `noop` from a table with deletion vectors.
            rows: Any = table.spark_rows().select(*ROW_COLUMNS.names)
            rows._jdf.queryExecution().toRdd().count()

        found = self.answer.setdefault("snapshots", {}).setdefault(logs, {})
        for name, read in (("spark", spark), ("arrow", table.arrow_rows)):
            watch = Watch()
            try:
                for _ in range(1 + self.sizes.reads):
                    watch.time(read)
            except NoReader as error:
                found[name] = {"none": str(error)}
            # A panic in Rust is no Exception; a reader that fails is told in its cell, and the others go on.
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt | SystemExit):
                    raise
                found[name] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
            else:
                found[name] = {"first_seconds": watch.seconds[0], "seconds": watch.seconds[1:]}

    # --- the rest -----------------------------------------------------------------------------------------------

    def _batches(self, workload: str) -> list[list[str]]:
        folders = sorted((self.inputs / workload).iterdir())
        return [sorted(map(str, folder.iterdir())) for folder in folders]

    def _written(self, table: Table, watch: Watch, rows: int) -> None:
        size, files = folder_size(table.folder)
        self.answer |= {
            "rows": rows,
            "batch_seconds": watch.seconds,
            "processor_seconds": watch.processor,
            "bytes": size,
            "files": files,
        }

    def _check(self, table: Table, columns: Columns) -> None:
        """Digest the rows by each of the system's readers; the driver compares them with those that must be there."""
        if not self.keeps:
            return
        found: dict[str, str] = {}
        if self.system.spark is not None:
            from tests.bench.peers.adapters.spark_session import collect

            found["spark"] = digest(collect(table.spark_rows().select(*columns.names)), columns)
        try:
            found["arrow"] = digest(table.arrow_rows(), columns)
        except NoReader:
            pass
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit) or "spark" not in found:
                raise
            found["arrow"] = f"{type(error).__name__}: {str(error)[:300]}"
        for name, text in found.items():
            self.answer.setdefault("digests", {}).setdefault(name, []).append(text)
