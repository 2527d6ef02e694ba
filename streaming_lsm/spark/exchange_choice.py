"""Choose whether the tasks that read a batch also write it, or exchange its rows first.

*Exchange*: rows go through Spark's shuffle to the one task that writes their file group. Without it each reading task
writes a sorted log of its own for each file group that it has rows of: the rows travel once, and a slice gets as many
logs at one instant as tasks had rows for it. Readers merge them like logs of different instants. What one task alone
would decide by arrival is then decided by the order of log files (docs/format/01-table.md, "Order of log files").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain

from streaming_lsm import config
from streaming_lsm.errors import ConfigError
from streaming_lsm.format.table.file_names import BucketId
from streaming_lsm.write.intake import control_columns
from streaming_lsm.write.partition_writer import WriteResult
from streaming_lsm.write.plan import BASE_FILES, DELETE, WritePlan

WHOLE_BUCKETS = "whole_buckets"
"""The option that states that each partition of the source has all rows of its buckets."""
MOST_FILES = 64
"""Log files that tasks write for one batch without being told to."""
CARRIED_GROUPS = 1024
"""Up to so many live file groups travel in the closure of every task."""
_MOST_TASKS = 10
"""Log files of one version are ordered by their tasks as text: up to 9 that is the order of the numbers."""
_KNOWN_ORDERS = {
    (control_columns.ROW,),
    (control_columns.TOPIC_PARTITION, control_columns.OFFSET),
}


def reason_to_exchange(plan: WritePlan) -> str | None:
    """Say why rows of this plan have to be exchanged; None if tasks may write what they read."""
    if not plan.config.has_buckets:
        return "the table has no buckets, so that several tasks may have a new key"
    if plan.config.is_copy_on_write or plan.operation in BASE_FILES:
        return "a base file has one writer"
    if not plan.config.has_native_logs:
        return "the table has inline logs"
    if not plan.rule.event_time:
        return "the table has no ordering fields, so that the rows of a key count by arrival"
    if plan.rule.partial is not None:
        return "partial updates of a key are merged in the order of all of them"
    if plan.arrival_fields not in _KNOWN_ORDERS:
        return f"{config.ARRIVAL_FIELDS.key} orders the rows of all tasks"
    return None


def exchanges(
    asked: str, plan: WritePlan, tasks: int, size: Callable[[], tuple[int, int]], worth: int | None = None
) -> bool:
    """Choose whether the rows of a batch are exchanged.

    Args:
        asked: the option ``lsm.write.exchange``.
        plan: the batch.
        tasks: tasks that write it, at most one for each bucket.
        size: returns the number of tasks that read the batch, 0 if that is unknown, and that of its file groups.
        worth: tasks that its size is worth, however many buckets there are; `tasks` when not given.
    """
    if asked != "auto":
        return asked == "shuffle"
    if reason_to_exchange(plan) is not None or len(plan.file_ids) > CARRIED_GROUPS or tasks > _MOST_TASKS:
        return True
    readers, file_groups = size()
    # Without the exchange no more tasks read than write.
    too_few = min(readers, worth or tasks) > tasks
    return tasks > readers or too_few or tasks * file_groups > MOST_FILES


def check_exchange(asked: str, plan: WritePlan) -> None:
    """Refuse the option ``lsm.write.exchange=none`` where the table needs the exchange.

    Raises:
        ConfigError: it does.
    """
    reason = reason_to_exchange(plan)
    if asked == "none" and reason is not None:
        raise ConfigError(f"{config.EXCHANGE.key}=none, but {reason}: remove the option")


def check_whole_buckets(parts: Iterable[WriteResult]) -> None:
    """Check what ``lsm.write.exchange=whole_buckets`` states: each file group has the rows of one task.

    Raises:
        ConfigError: several tasks have rows of one file group, or events of one topic partition.
    """
    tasks_of_group: dict[BucketId, int] = {}
    tasks_of_source: dict[str, int] = {}
    for task, part in enumerate(parts):
        for partition, bucket in part.groups:
            if tasks_of_group.setdefault((partition, bucket), task) != task:
                raise ConfigError(
                    f"{config.EXCHANGE.key}={WHOLE_BUCKETS}, but several tasks have rows of bucket {bucket} in "
                    f"partition {partition!r}: remove the option (docs/writing.md, Which task writes a row)"
                )
        for source in (source for events in part.last_events for source, last in events.items() if last.is_seen):
            if tasks_of_source.setdefault(source, task) != task:
                raise ConfigError(
                    f"{config.EXCHANGE.key}={WHOLE_BUCKETS}, but several tasks have events of topic partition "
                    f"{source}, of which one task has to see all: remove the option"
                )


def most_groups(asked: str, tasks: int) -> int | None:
    """Return the number of file groups from which on a task writes nothing; None for any number."""
    return None if asked == "none" or tasks == 1 else MOST_FILES // tasks


def needs_one_writer(asked: str, plan: WritePlan, parts: Iterable[WriteResult]) -> bool:
    """Test whether what tasks wrote as they read it may differ from what one task for each file group would write.

    Such a batch has to be written again. Between tasks nothing but the kind of a log and the number of its task is an
    order, so that all logs of a shared file group need the first version, and every delete an ordering value. A delete
    beats the rows of other tasks that have its ordering value; where a later row would win by arrival, that is accepted
    if ``lsm.write.exchange=none`` asks for it. Between topic partitions there is no arrival.
    """
    found = list(parts)
    read = [
        {source for events in part.last_events for source, last in events.items() if last.is_seen} for part in found
    ]
    if any(tasks > 1 for tasks in Counter(chain.from_iterable(read)).values()):
        return True
    written = [{(stat.partition_path, stat.file_id) for stat in part.stats} for part in found]
    tasks_of = Counter(chain.from_iterable(written))
    for part, groups, sources in zip(found, written, read, strict=True):
        if all(tasks_of[group] == 1 for group in groups):
            continue
        if part.unordered_deletes and plan.operation != DELETE:
            return True
        by_row = plan.arrival_fields == (control_columns.ROW,)
        if not sources and not by_row:
            return True
        shared = [stat for stat in part.stats if tasks_of[(stat.partition_path, stat.file_id)] > 1]
        if any((stat.log_version or 1) > 1 for stat in shared):
            return True
        if by_row and asked == "auto" and plan.operation != DELETE and any(stat.num_deletes for stat in shared):
            return True
    return False
