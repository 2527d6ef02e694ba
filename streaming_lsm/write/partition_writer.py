"""What one task does with its part of a batch: collect, sort, dedup, write, report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from streaming_lsm.errors import Fenced
from streaming_lsm.format.commit import WriteStat
from streaming_lsm.format.names import WriteToken
from streaming_lsm.timeline.heartbeat import check_still_inflight
from streaming_lsm.write.dead_letters import DeadLetterBox
from streaming_lsm.write.group_writer import GroupWriter
from streaming_lsm.write.plan import WritePlan
from streaming_lsm.write.record_buffer import RecordBuffer
from streaming_lsm.write.tombstones import LastEvents


@dataclass(frozen=True)
class Written:
    """What one task, or a whole batch, has written.

    Attributes:
        stats: one per file.
        last_events: the last event of each topic partition, as each task saw it.
    """

    stats: tuple[WriteStat, ...]
    last_events: tuple[LastEvents, ...] = ()

    @staticmethod
    def joined(parts: Iterable[Written]) -> Written:
        """What several tasks have written."""
        found = list(parts)
        stats = tuple(stat for part in found for stat in part.stats)
        return Written(stats, tuple(events for part in found for events in part.last_events))


def write_partition(plan: WritePlan, batches: Iterable[pa.RecordBatch], token: WriteToken) -> Written:
    """Write all rows of some buckets.

    Args:
        plan: the batch being written.
        batches: rows of any number of buckets, in the table's types; no other task has rows of the same buckets.
        token: the attempt of the task.

    Raises:
        RecordError, SchemaError: see `RecordBuffer.append`; nothing was written.
        Fenced: the instant was completed or rolled back meanwhile; the files are removed.
    """
    return write_collected(plan, collect(plan, batches, token), token)


@dataclass(frozen=True)
class Collected:
    """The rows of one task, checked, and its unreadable events."""

    buffer: RecordBuffer
    letters: DeadLetterBox


def collect(plan: WritePlan, batches: Iterable[pa.RecordBatch], token: WriteToken) -> Collected:
    """The first half of `write_partition`, which finds bad input and writes nothing; the plan needs no instant."""
    collected = Collected(RecordBuffer(plan), DeadLetterBox(plan, token))
    for batch in batches:
        collected.buffer.append(collected.letters.divert(batch))
    return collected


def write_collected(plan: WritePlan, collected: Collected, token: WriteToken) -> Written:
    """The second half of `write_partition`."""
    buffer, writer = collected.buffer, GroupWriter(plan, token)
    try:
        stats = tuple(stat for group_rows in buffer.drain() for stat in writer.write(group_rows))
        collected.letters.post()
        check_still_inflight(plan.storage, plan.instant)
    except Fenced:
        writer.discard()
        raise
    return Written(stats, tuple(buffer.last_events))
