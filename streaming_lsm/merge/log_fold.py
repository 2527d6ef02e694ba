"""Fold the logs of a slice without its base file, for a log compaction.

Per key the winning record is kept, a delete too, since the base file may have the key; and the unordered delete before
it, which removes what is older than the logs (docs/format/10-rules.md, "Rule 2").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s
from streaming_lsm.keys.words import SortedKeys
from streaming_lsm.merge.fold import last_marked
from streaming_lsm.merge.hash_merge import LogOutcome, LogPart, fold_logs
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.runs import (
    Chunks,
    Records,
    data_of_runs,
    gather_rows,
    keys_of_runs,
    sort_keys_of_runs,
    times_of_run,
    winners,
)
from streaming_lsm.merge.sorted_runs import SortedRun, aligned_blocks
from streaming_lsm.schema import COMMIT_TIME, RECORD_KEY, delete_log_schema, kept_deletes_schema


@dataclass(frozen=True)
class FoldedLogs:
    """The records of one key range that act on older and newer records as all records of the logs do.

    Each part ascends by record key. `rows` and `deletes` have no key in common; every key of `unordered_deletes` is in
    one of them.

    Attributes:
        rows: the winning rows, those that are deletes by their own columns among them.
        deletes: the winning deletes with their times, as in `kept_deletes_schema`.
        unordered_deletes: record key and ordering fields of deletes that come before the other records; the ordering
            fields are null.
    """

    rows: pa.Table
    deletes: pa.Table
    unordered_deletes: pa.Table


def fold_sorted_logs(runs: Sequence[SortedRun], rule: MergeRule, schema: pa.Schema) -> Iterator[FoldedLogs]:
    """Fold the sorted runs of logs block by block.

    Args:
        runs: in merge order, the oldest first, as for `merge_runs`; adjacent logs of one slice.
        rule: the table's merge semantics, without partial updates.
        schema: the columns to keep. A row that is a delete by another column becomes a delete.
    """
    for parts in aligned_blocks(runs):
        yield _fold_block([(run, pa.Table.from_batches(batches)) for run, batches in parts], rule, schema)


def _fold_block(chunks: Chunks, rule: MergeRule, schema: pa.Schema) -> FoldedLogs:
    keys = keys_of_runs(chunks)
    ordered = sort_keys_of_runs(chunks, keys)
    data = data_of_runs(chunks)
    values = pa.concat_tables(data) if data else _nullable(schema).empty_table()
    records = Records.of(chunks, values, rule)
    winner = winners(ordered, records)
    stays = records.is_row[winner]
    stays[stays] = ~_lost_marks(values, records.value_row[winner[stays]], rule, schema)
    rows = gather_rows(values.select(schema.names), records.value_row[winner[stays]])
    ordering = pa.concat_tables([table.select(rule.ordering_fields) for _, table in chunks])
    bare = pa.table([keys, *ordering.columns], schema=delete_log_schema(values.schema, rule.ordering_fields))
    times = pa.chunked_array([time for run, table in chunks for time in times_of_run(run, table)], pa.string())
    deletes = bare.append_column(COMMIT_TIME, times).take(pa.array(winner[~stays], pa.int64()))
    return FoldedLogs(rows, deletes, _unordered(bare, _preceding(ordered, records, winner)))


def _preceding(ordered: SortedKeys, records: Records, winner: Int64s) -> Int64s:
    """Find the newest unordered delete of each key, where another record wins; int64 places of records."""
    if records.ranks is None or not records.unordered_deletes.any():
        return np.empty(0, np.int64)
    newest = last_marked(ordered.starts, records.unordered_deletes[ordered.order])
    place = ordered.order[newest]
    found: Int64s = place[(newest >= 0) & (place != winner)]
    return found


def _lost_marks(values: pa.Table, rows: Int64s, rule: MergeRule, schema: pa.Schema) -> Flags:
    """Mark the rows, of the given places, that are deletes by a column that `schema` lacks."""
    if set(values.schema.names) <= set(schema.names):
        return np.zeros(len(rows), np.bool_)
    lost: Flags = rule.deletes(values) & ~rule.deletes(values.select(schema.names))
    return lost[rows]


def _unordered(bare: pa.Table, rows: Int64s) -> pa.Table:
    keys = bare.column(RECORD_KEY).take(pa.array(rows, pa.int64()))
    return pa.table([keys, *(pa.nulls(len(rows), field.type) for field in list(bare.schema)[1:])], schema=bare.schema)


def fold_unsorted_logs(
    parts: Sequence[LogPart], rule: MergeRule, schema: pa.Schema, read: pa.Schema, *, inline: bool
) -> FoldedLogs:
    """Fold the blocks of unsorted logs.

    Inline logs do not remove a base row by an unordered delete that another record follows, native ones do
    (docs/format/05-merge.md, "Pairwise rule"). So if the outcome of inline logs is stored in a native one, they must
    be all inline logs of the slice: only then such a delete need not be kept for older inline logs.

    Args:
        parts: in merge order, the oldest first; no partial rows.
        rule: the table's merge semantics, without partial updates.
        schema: the columns to keep. A row that is a delete by another column becomes a delete.
        read: the columns of a data part.
        inline: whether the outcome is stored in an inline log.
    """
    found = fold_logs([_with_times(part) for part in parts], read, rule)
    stays = _stored_as_rows(found, rule, schema)
    before = found.preceded if inline else _removes_base(found, rule)
    timed_schema = kept_deletes_schema(read, rule.ordering_fields)
    timed = found.rows.select(timed_schema.names).cast(timed_schema)
    return FoldedLogs(
        found.rows.select(schema.names).filter(pa.array(stays)),
        timed.filter(pa.array(~stays)),
        _unordered(timed.drop_columns(COMMIT_TIME), np.flatnonzero(before)),
    )


def _with_times(part: LogPart) -> LogPart:
    """Add to the deletes of a delete part their time, which rows have."""
    if not part.deletes:
        return part
    return replace(part, rows=part.rows.append_column(COMMIT_TIME, pa.repeat(part.time, len(part.rows))))


def _stored_as_rows(found: LogOutcome, rule: MergeRule, schema: pa.Schema) -> Flags:
    by_columns: Flags = rule.deletes(found.rows.select(schema.names))
    return ~found.deleted | by_columns


def _removes_base(found: LogOutcome, rule: MergeRule) -> Flags:
    """Mark the keys whose base row is removed by another record than the winner."""
    if not rule.event_time:
        return np.zeros(len(found.cleared), np.bool_)
    return found.cleared & ~rule.unordered_deletes(found.rows, found.deleted)


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])
