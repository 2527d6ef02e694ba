"""One micro-batch through Spark's executors, as one action."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming_lsm import config, errors
from streaming_lsm.errors import LsmError
from streaming_lsm.format.names import WriteToken
from streaming_lsm.schema import fit_known
from streaming_lsm.table import LsmTable
from streaming_lsm.write import control
from streaming_lsm.write.partition_writer import Written, write_partition
from streaming_lsm.write.plan import WritePlan
from streaming_lsm.write.routing import Router

_TASK = "_lsm_task"
_OURS = re.compile(r"streaming_lsm\.errors\.(\w+): (.*?)(?=\n\n|\nDuring handling|\n\tat |\Z)", re.DOTALL)


def write_batch(batch: DataFrame, table: LsmTable, plan: WritePlan) -> Written:
    """Send every row to the task that writes its bucket, and write.

    Only the key and partition columns go to Python before the shuffle; whole rows go there once.

    Raises:
        LsmError: as the task that failed raised it.
    """
    tasks = _tasks(batch, table)
    rows = (
        batch.withColumn(control.ROW, F.monotonically_increasing_id()) if control.ROW in plan.arrival_fields else batch
    )
    # A task says more of a row without a place than the router could: where it came from.
    router = table.router(tasks, tolerant=plan.dead_letters is not None or control.BAD in batch.columns)
    routed = rows.withColumn(_TASK, _task_of(rows, router, plan.schema))
    shuffled = routed.repartitionById(tasks, _TASK).drop(_TASK)
    try:
        written = shuffled.mapInArrow(_writer(plan), "written binary").collect()
    except PySparkException as error:
        ours = _error_of_ours(error)
        if ours is None:
            raise
        raise ours from None
    return Written.joined(pickle.loads(row.written) for row in written)


def _tasks(batch: DataFrame, table: LsmTable) -> int:
    asked = table.options[config.SHUFFLE_PARTITIONS]
    if asked:
        return asked
    cores = batch.sparkSession.sparkContext.defaultParallelism
    return cores if table.config.partition_fields else min(cores, table.config.num_buckets)


def _task_of(rows: DataFrame, router: Router, schema: pa.Schema) -> Column:
    columns = [name for name in dict.fromkeys([*router.columns, control.BAD]) if name in rows.columns]

    def task_of(*values: pa.Array) -> pa.Array:  # type: ignore[type-arg]  # Spark looks for these very hints
        batch = pa.RecordBatch.from_arrays(list(values), names=columns)
        return pa.array(router.route(fit_known(batch, schema)), pa.int32())

    routed: Column = F.arrow_udf(task_of, "int")(*(F.col(f"`{name}`") for name in columns))  # type: ignore[attr-defined]
    return routed


def _writer(plan: WritePlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        token = WriteToken(task.partitionId(), task.stageId(), task.taskAttemptId())
        written = write_partition(plan, (fit_known(batch, plan.schema) for batch in batches), token)
        yield pa.record_batch({"written": pa.array([pickle.dumps(written)], pa.binary())})

    return write


def _error_of_ours(error: PySparkException) -> LsmError | None:
    """The error that a worker raised, which Spark hands over as text in the middle of its own."""
    found = _OURS.search(str(error))
    kind = getattr(errors, found[1], None) if found else None
    if found and isinstance(kind, type) and issubclass(kind, LsmError):
        return kind(found[2].strip())
    return None
