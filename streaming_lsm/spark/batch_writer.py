"""Write one micro-batch on Spark's executors.

*Sender task*: reads rows of the batch, computes keys and buckets, sorts, and cuts them by writer task. *Writer task*:
receives the rows of its file groups and writes their files. *Cell*: a row of Spark's shuffle that holds a piece of a
compressed Arrow message (`write/shuffle/exchange.py`). Where few files come of it, the tasks that read rows write them
without a shuffle (`spark/exchange_choice.py`).
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.machinery import PathFinder
from time import perf_counter

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import streaming_lsm
from streaming_lsm import config, errors
from streaming_lsm.casts import fit_known
from streaming_lsm.decode.decoder import Messages
from streaming_lsm.errors import ConfigError, LsmError, MissingPackage
from streaming_lsm.format.table.file_names import WriteToken
from streaming_lsm.format.table.properties import RECORD_INDEXES
from streaming_lsm.spark.batch_rows import BatchRows
from streaming_lsm.spark.batch_size_history import BatchSize, BatchSizeHistory, Transfer
from streaming_lsm.spark.exchange_choice import (
    CARRIED_GROUPS,
    WHOLE_BUCKETS,
    check_whole_buckets,
    exchanges,
    most_groups,
    needs_one_writer,
)
from streaming_lsm.spark.hash_partitioning import of_partition, repartitioned_by_id
from streaming_lsm.spark.versions import BYTES_LIMIT, ROWS_LIMIT, frame_of, limits_bytes, spark_schema
from streaming_lsm.storage.failures import named_failures
from streaming_lsm.table import LsmTable
from streaming_lsm.write.intake import control_columns
from streaming_lsm.write.intake.batch_columns import stored_columns
from streaming_lsm.write.numbers import InputCounts, TaskNumbers, added
from streaming_lsm.write.partition_writer import WriteResult, write_partition
from streaming_lsm.write.plan import WritePlan
from streaming_lsm.write.shuffle.exchange import (
    CELLS,
    TASK,
    RunSender,
    SenderReport,
    Spread,
    by_file_group,
    by_record_key,
    group_cells,
    settle_received,
    write_received,
)

TaskReport = tuple[WriteResult, list[SenderReport], int]
"""Report of a task that writes files: the files, the reports of sender tasks, bytes of the rows that it read itself."""

_LOG = logging.getLogger(__name__)

_OWN_ERROR = re.compile(
    r"streaming_lsm\.errors\.(\w+): (.*?)(?=\n\n|\nDuring handling|\n\tat |\n SQLSTATE|\Z)", re.DOTALL
)
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
# Bits below it number the rows of a partition, as in Spark's monotonically_increasing_id.
_PARTITION_BIT = 33


@dataclass(frozen=True)
class BatchResult:
    """Holds the files and numbers that the tasks of a batch returned.

    Attributes:
        written: files, and numbers of the writer tasks.
        sent: numbers of the sender tasks; zeros for a batch without a shuffle.
        size: rows and bytes of the batch.
    """

    written: WriteResult
    sent: TaskNumbers
    size: BatchSize

    @staticmethod
    def joined(found: list[TaskReport]) -> BatchResult:
        """Join the reports of the tasks of a batch."""
        written = WriteResult.joined(part for part, _, _ in found)
        reports = [report for _, reports, _ in found for report in reports]
        sent = TaskNumbers.joined(report.numbers for report in reports)
        rows = sent.rows_in or written.numbers.rows_in
        bytes_in = sum(size for _, _, size in found) + sum(report.size for report in reports)
        partitions = len({stat.partition_path for stat in written.stats})
        size = BatchSize(rows, bytes_in, len(reports) or len(found), written.file_groups, partitions)
        return BatchResult(written, sent, size)

    @property
    def changing_schemas(self) -> frozenset[int]:
        """Schemas of messages that change the table's columns; if there is one, rows are missing (`TaskNumbers`)."""
        return self.written.numbers.changing_schemas | self.sent.changing_schemas

    @property
    def numbers(self) -> TaskNumbers:
        """Add up the numbers of sender and writer tasks; `sort_ms` and `write_ms` are those of the writer tasks."""
        numbers, sent = self.written.numbers, self.sent
        dropped = sent.rows_in - numbers.rows_in if sent.rows_in else 0
        return replace(
            numbers,
            rows_in=numbers.rows_in + dropped,
            rows_replaced=numbers.rows_replaced + dropped + sent.rows_added,
            peak_bytes=max(numbers.peak_bytes, sent.peak_bytes),
            dead_letters=numbers.dead_letters + sent.dead_letters,
            unknown_fields=added([numbers.unknown_fields, sent.unknown_fields]),
            changing_schemas=numbers.changing_schemas | sent.changing_schemas,
        )


def write_batch(
    batch: BatchRows, table: LsmTable, plan: WritePlan, history: BatchSizeHistory | None = None
) -> BatchResult:
    """Decode and write the rows of a batch, each by the task that writes its file group.

    Rows go to Python once. Those that other tasks write go through the shuffle as sorted runs.

    Args:
        batch: the rows.
        table: the table.
        plan: the write plan of the batch.
        history: sizes of recent batches; this batch is added when it succeeds, all are cleared when it fails.

    Raises:
        LsmError: the error that the failed task raised.
    """
    known, begun = history or BatchSizeHistory(), perf_counter()
    with known.trusted(), unwrapped_errors():
        done = _write(batch, plan, known, table)
    if not done.changing_schemas:
        known.note(done.size)
    spent = round(1000 * (perf_counter() - begun))
    return replace(done, written=replace(done.written, numbers=done.numbers.within(spent)))


def _write(batch: BatchRows, plan: WritePlan, known: BatchSizeHistory, table: LsmTable) -> BatchResult:
    tasks, worth = _tasks(batch.frame.sparkSession, table, known)
    if tasks == 1:
        return BatchResult.joined(_one_stage(batch, plan, known, 1))
    if table.config.has_global_index:
        # The events of a key may be of several partitions, and one of them wins: one task has all of them. Each task
        # that looks keys up without a record index reads those of all files.
        settling = tasks if table.config.index_type in RECORD_INDEXES else 1
        return BatchResult.joined(_three_stages(batch, plan, known, settling, tasks))
    asked, size = table.options[config.EXCHANGE] or "auto", partial(_size, batch, table, known)
    if asked == WHOLE_BUCKETS:
        parts = _one_stage(batch, plan, known, tasks)
        check_whole_buckets(written for written, _, _ in parts)
        return BatchResult.joined(parts)
    if known.needs_exchange or exchanges(asked, plan, tasks, size, worth):
        return BatchResult.joined(_two_stages(batch, plan, known, tasks))
    parts = _one_stage(batch, plan, known, tasks, most_groups(asked, tasks))
    if BatchResult.joined(parts).changing_schemas:
        return BatchResult.joined(parts)
    too_many = any(written.left_out for written, _, _ in parts)
    if not too_many and not needs_one_writer(asked, plan, [written for written, _, _ in parts]):
        return BatchResult.joined(parts)
    if not too_many:
        _LOG.warning(
            "tasks that read cannot write this batch (docs/writing.md, Which task writes a row): it is written again, "
            "and batches are exchanged from now on"
        )
        known.needs_exchange = True
    # The files of the tasks are no part of the commit, which deletes them.
    if plan.dead_letters is not None:
        plan.dead_letters.storage.delete_folder(plan.dead_letters.folder)
    return BatchResult.joined(_two_stages(batch, plan, known, tasks))


def _tasks(spark: SparkSession, table: LsmTable, history: BatchSizeHistory) -> tuple[int, int]:
    """Return the number of tasks that write a batch, and the number that suits its size, buckets not considered."""
    asked = table.options[config.SHUFFLE_PARTITIONS]
    if asked:
        return asked, asked
    worth = history.tasks(spark.sparkContext.defaultParallelism)
    most = table.most_groups_per_partition
    return (worth if table.config.partition_fields or most is None else min(worth, most)), worth


def _size(batch: BatchRows, table: LsmTable, known: BatchSizeHistory) -> tuple[int, int]:
    """Return the numbers of tasks that read a batch and of its file groups; those of recent batches if there are any.

    Without them a table without partitions has a file group for each bucket; others may have any number. With adaptive
    execution Spark would compute a batch for the number of its partitions.
    """
    if known.readers:
        return known.readers, known.file_groups
    adapts = batch.frame.sparkSession.conf.get("spark.sql.adaptive.enabled") == "true"
    most = table.most_groups_per_partition
    if table.config.partition_fields or adapts or most is None:
        return 0, 0
    return batch.frame.rdd.getNumPartitions(), most


def _run(tasks: DataFrame, transfer: Transfer) -> list[TaskReport]:
    with _limited(tasks.sparkSession, transfer):
        return [pickle.loads(row.written) for row in tasks.collect()]


def _one_stage(
    batch: BatchRows, plan: WritePlan, known: BatchSizeHistory, tasks: int, most_groups: int | None = None
) -> list[TaskReport]:
    """Let the tasks that read the batch write it."""
    messages = batch.messages

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        token = _token()
        with named_failures():
            rows = _IncomingBatches(batches, plan, token.task, messages)
            written = write_partition(plan, rows, token, most_groups)
            numbers = replace(
                written.numbers,
                unknown_fields=added([rows.counts.unknown_fields]),
                changing_schemas=frozenset(rows.counts.changing_schemas),
            )
            yield _report((replace(written, numbers=numbers), [], rows.counts.bytes))

    limits = known.transfer(plan.buffer_bytes, limits_bytes(batch.frame.sparkSession))
    return _run(batch.frame.coalesce(tasks).mapInArrow(write, "written binary"), limits)


def _two_stages(batch: BatchRows, plan: WritePlan, known: BatchSizeHistory, tasks: int) -> list[TaskReport]:
    """Exchange the rows of the batch between the tasks that read it and those that write it."""
    # Tasks that read agree on where a new key goes, without knowing how many there are.
    reading = plan.without_groups().expecting(known.rows_a_partition)
    return _written(_sent(batch, reading, tasks, by_file_group), plan, tasks, _limits(batch, plan, known))


def _three_stages(
    batch: BatchRows, plan: WritePlan, known: BatchSizeHistory, settling: int, tasks: int
) -> list[TaskReport]:
    """Exchange the rows of the batch by record key, and again by file group.

    Args:
        settling: number of the tasks that find the file groups of rows.
        tasks: number of those that write.
    """
    reading = plan.without_groups().expecting(known.rows_a_partition)

    def settle(cells: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with named_failures():
            source = _token().task
            yield from settle_received(reading, of_partition(cells, TASK, source), tasks, source)

    sent = _sent(batch, reading.settling(False), settling, by_record_key)
    settled = repartitioned_by_id(sent, settling, TASK).mapInArrow(settle, spark_schema(CELLS))
    return _written(settled, plan, tasks, _limits(batch, plan, known))


def _limits(batch: BatchRows, plan: WritePlan, known: BatchSizeHistory) -> Transfer:
    return known.transfer(plan.buffer_bytes, limits_bytes(batch.frame.sparkSession), has_cells=True)


def _sent(batch: BatchRows, plan: WritePlan, tasks: int, spread: Spread) -> DataFrame:
    """Return the cells of the tasks that read the batch, for `tasks` others."""
    messages = batch.messages

    def send(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source = _token().task
        rows = _IncomingBatches(batches, plan, source, messages)
        with named_failures():
            yield from RunSender(plan, tasks, source, rows.counts, spread).send(rows)

    return batch.frame.mapInArrow(send, spark_schema(CELLS))


def _written(sent: DataFrame, plan: WritePlan, tasks: int, limits: Transfer) -> list[TaskReport]:
    """Let `tasks` tasks write the rows that others have sent them, each those of its file groups."""
    # More go through the shuffle to the task that writes them, which costs one more partition.
    writing = plan if len(plan.file_ids) <= CARRIED_GROUPS else plan.without_groups(follow=True)
    writing = replace(writing, lookup=None)

    def write(cells: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with named_failures():
            token = _token()
            yield _report((*write_received(writing, of_partition(cells, TASK, token.task), token), 0))

    if writing.groups_follow:
        groups = pa.Table.from_batches(group_cells(plan, tasks), CELLS)
        # One partition keeps the cells of a message in order. It comes last, so that senders keep their partition ids.
        sent = sent.union(frame_of(sent.sparkSession, groups).coalesce(1))
    return _run(repartitioned_by_id(sent, tasks, TASK).mapInArrow(write, "written binary"), limits)


class _IncomingBatches:
    """Decodes the batches of a Spark partition, casts them to the table's types, and adds row positions for the order.

    Attributes:
        counts: what was read so far.
    """

    def __init__(
        self, batches: Iterable[pa.RecordBatch], plan: WritePlan, partition: int, messages: Messages | None
    ) -> None:
        self._batches, self._plan = batches, plan
        self._decoder = None if messages is None else messages.decoder()
        self.counts = InputCounts()
        if self._decoder is not None:
            self.counts = InputCounts(0, self._decoder.unknown_fields, self._decoder.changing_schemas)
        self._next = partition << _PARTITION_BIT

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        counted = control_columns.ROW in self._plan.arrival_fields
        counted_batches = self._counted()
        for batch in counted_batches if self._decoder is None else self._decoder.decoded(counted_batches):
            if self._decoder is None:
                batch, ignored = stored_columns(batch, self._plan.schema, self._plan.arrival_fields)
                if ignored:
                    self.counts.unknown_fields = added([self.counts.unknown_fields, ignored])
            rows = fit_known(batch, self._plan.schema)
            if counted:
                position = np.arange(self._next, self._next + batch.num_rows)
                rows = rows.append_column(control_columns.ROW, pa.array(position))
                self._next += batch.num_rows
            yield rows

    def _counted(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.counts.bytes += batch.nbytes
            yield batch


def _token() -> WriteToken:
    """Return the write token of the running task attempt."""
    freeze_gc()
    check_package()
    task = TaskContext.get()
    assert task is not None
    return WriteToken(task.partitionId(), task.stageId(), task.taskAttemptId())


@cache
def check_package() -> None:
    """Check that the package which a worker has imported is the one that it would import now.

    Raises:
        ConfigError: ``--py-files`` has another one, and workers had theirs before (`python_daemon`).
    """
    found, used = PathFinder.find_spec("streaming_lsm"), str(streaming_lsm.__file__)
    given = used if found is None or found.origin is None else found.origin
    if os.path.realpath(given) != os.path.realpath(used):
        raise ConfigError(
            f"Python workers have imported {os.path.dirname(used)}, and Spark gave them {os.path.dirname(given)} "
            "(--py-files): remove the setting spark.python.daemon.module, or give one package only"
        )


def _report(result: object) -> pa.RecordBatch:
    return pa.record_batch({"written": pa.array([pickle.dumps(result)], pa.binary())})


@cache
def freeze_gc() -> None:
    """Exclude the objects that exist now, mostly imported modules, from garbage collection.

    Spark's workers run a full collection after every task. With pyarrow and pandas loaded it takes 25 ms, longer than
    the work of a small batch.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def _limited(spark: SparkSession, transfer: Transfer) -> Iterator[None]:
    """Set the size of Spark's transfers to Python workers within the context."""
    limits = {ROWS_LIMIT: transfer.rows} | ({} if transfer.bytes is None else {BYTES_LIMIT: transfer.bytes})
    before = {key: spark.conf.get(key) for key in limits}
    try:
        for key, value in limits.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is not None:
                spark.conf.set(key, old)


@contextmanager
def unwrapped_errors() -> Iterator[None]:
    """Raise an `LsmError` of a task as that class. Spark passes it on as text inside an exception of its own.

    A stop of the query interrupts the thread that waits for the tasks: that is an `LsmError`, too.
    """
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        ours = own_error(error)
        if ours is None and isinstance(error, Py4JJavaError) and "java.lang.InterruptedException" in str(error):
            ours = LsmError("Spark cancelled the tasks, as their query was stopped")
        if ours is None:
            raise
        raise ours from None


def own_error(error: Exception) -> LsmError | None:
    """Return the `LsmError` of a task, or of a batch, that an error of Spark was made of; None if there was none."""
    found = _OWN_ERROR.search(str(error))
    kind = getattr(errors, found[1], None) if found else None
    if found and isinstance(kind, type) and issubclass(kind, LsmError):
        return kind(found[2].strip())
    missing = _MISSING_MODULE.search(str(error))
    if missing:
        return MissingPackage(
            f"Spark's executors have no Python module {missing[1]!r}: install streaming_lsm where they run, or give "
            "spark-submit --py-files or --archives (docs/cluster.md)"
        )
    return None
