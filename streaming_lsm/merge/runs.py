"""Merge the sorted files of one slice, block by block.

A block holds the records of all runs in one key range (`sorted_runs`), and can be folded at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, flags, strings
from streaming_lsm.arrow.ranges import places_in
from streaming_lsm.keys.words import KeyWords, SortedKeys, sort_keys
from streaming_lsm.merge.fold import fold
from streaming_lsm.merge.pair_fold import fold_live_pairs
from streaming_lsm.merge.partial import fold_columns, sent_values
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.sorted_runs import SortedRun, aligned_blocks
from streaming_lsm.schema import COMMIT_TIME, RECORD_KEY, kept_deletes_schema


@dataclass(frozen=True)
class Block:
    """The merged rows of one key range.

    Attributes:
        rows: the live rows, ascending by key; none when all keys of the range are deleted.
        inserts: number of live keys that the base file does not have.
        updates: number of keys of the base file that a log record replaced.
        deletes: number of keys of the base file that were deleted.
        kept: the winning deletes with an ordering value, ascending, with the columns of `kept_deletes_schema`; None if
            there are none, or unless they are asked for.
    """

    rows: pa.Table
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    kept: pa.Table | None = None


Chunks = Sequence[tuple[SortedRun, pa.Table]]
"""The rows of a block by run, in merge order."""


def merge_runs(
    runs: Sequence[SortedRun],
    rule: MergeRule,
    end: bytes | None = None,
    keep: pa.Schema | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[Block]:
    """Merge the runs of one slice into live records, ascending by key.

    See docs/format/05-merge.md, "Pairwise rule"; docs/format/03-native-logs.md, "Merge order".

    Args:
        runs: in merge order, the oldest first; data runs share one schema, but for their `marks`.
        rule: the table's merge semantics.
        end: the key before which the merge ends; the runs keep what follows. None for all keys.
        keep: the columns of the data runs, `_hoodie_commit_time` among them, if the blocks are to have the winning
            deletes with an ordering value.
        columns: the columns of the blocks' rows, at least one; None for all of the data runs.

    Yields:
        Blocks of rows. A delete yields no row.
    """
    for parts in aligned_blocks(runs, end):
        block = _merge_block([(run, pa.Table.from_batches(batches)) for run, batches in parts], rule, keep, columns)
        if block is not None and (block.rows.num_rows or block.deletes or block.kept is not None):
            yield block


def _merge_block(
    chunks: Chunks, rule: MergeRule, keep: pa.Schema | None, columns: Sequence[str] | None
) -> Block | None:
    if len(chunks) == 1 and chunks[0][0].base and chunks[0][0].distinct:
        rows = chunks[0][1]
        return Block(rows if columns is None else rows.select(columns))
    data = data_of_runs(chunks)
    if not data:
        if keep is None:
            return None
        data = [keep.empty_table()]
    keys = keys_of_runs(chunks)
    ordered = sort_keys_of_runs(chunks, keys)
    values = pa.concat_tables(data)
    records = Records.of(chunks, values, rule)
    winner = winners(ordered, records)
    # The base file is the oldest run: it has the key if the first record is its own, and it alone if the last one is.
    in_base = records.base[ordered.order[ordered.starts]]
    only_base = records.base[ordered.order[ends_of(ordered) - 1]]
    live = only_base | ~records.deleted[winner]
    return Block(
        _live_rows(values, columns or values.schema.names, ordered, records, winner[live], live, rule),
        inserts=int(np.count_nonzero(live & ~in_base)),
        updates=int(np.count_nonzero(live & in_base & ~records.base[winner])),
        deletes=int(np.count_nonzero(in_base & ~live)),
        kept=None if keep is None else _kept(chunks, keys, winner[~live], records, rule),
    )


def _live_rows(
    values: pa.Table,
    columns: Sequence[str],
    ordered: SortedKeys,
    records: Records,
    winner: Int64s,
    live: Flags,
    rule: MergeRule,
) -> pa.Table:
    """Return the rows of the `live` keys: their winners, or what is made of all their records."""
    rows, returned = records.value_row[winner], values.select(columns)
    several = np.flatnonzero(live & (ends_of(ordered) - ordered.starts > 1))
    if rule.takes_winner or not len(several):
        return gather_rows(returned, rows)
    begins, places = _records_of(ordered, several)
    slots = (np.cumsum(live) - 1)[several]
    if rule.strategy:
        made, _ = fold_live_pairs(values, begins, records.value_row[places], records.deleted[places], rule)
        rows[slots] = len(values) + np.arange(len(made))
        return pa.concat_tables([returned, made.select(columns)]).take(pa.array(rows, pa.int64()))
    return _filled(returned, rows, slots, begins, places, records, rule)


def _filled(
    values: pa.Table, rows: Int64s, slots: Int64s, begins: Int64s, places: Int64s, records: Records, rule: MergeRule
) -> pa.Table:
    """Gather rows; those in the `slots` are filled from all records of their keys."""
    found = records.value_row[places]
    sent = sent_values(values, [(None, len(values))], rule).take(found)
    deleted, unordered_deletes = records.deleted[places], records.unordered_deletes[places]
    ranks = None if records.ranks is None else records.ranks[places]
    chosen = fold_columns(begins, deleted, unordered_deletes, ranks, sent)
    columns = []
    for name in values.schema.names:
        of_column = rows.copy()
        of_column[slots] = found[chosen.places.get(name, chosen.ruling)]
        columns.append(values.column(name).take(pa.array(of_column, pa.int64())))
    return pa.table(columns, schema=values.schema)


def _records_of(ordered: SortedKeys, keys: Int64s) -> tuple[Int64s, Int64s]:
    """Select the records of some keys: the first one of each key among these, and their places in merge order."""
    begins_there = ordered.starts[keys]
    counts = ends_of(ordered)[keys] - begins_there
    begins = np.cumsum(counts) - counts
    return begins, ordered.order[places_in(begins_there, counts)]


def _kept(chunks: Chunks, keys: pa.StringArray, deletes: Int64s, records: Records, rule: MergeRule) -> pa.Table | None:
    """Return those of some deletes that have an ordering value; None if there are none."""
    places = pa.array(deletes[~records.unordered_deletes[deletes]], pa.int64())
    if not len(places):
        return None
    ordering = pa.concat_tables([rows.select(rule.ordering_fields) for _, rows in chunks]).take(places)
    times = pa.chunked_array([time for run, rows in chunks for time in times_of_run(run, rows)]).take(places)
    return pa.table(
        [keys.take(places), *ordering.columns, times], schema=kept_deletes_schema(ordering.schema, rule.ordering_fields)
    )


def times_of_run(run: SortedRun, rows: pa.Table) -> Sequence[pa.Array[Any]]:
    """Return the times of the records of a run."""
    return [pa.repeat(run.time, len(rows))] if run.deletes else rows.column(COMMIT_TIME).chunks


def data_of_runs(chunks: Chunks) -> list[pa.Table]:
    """Return the rows of the data runs, without their marks."""
    return [table.drop_columns(run.marks) if run.marks else table for run, table in chunks if not run.deletes]


def keys_of_runs(chunks: Chunks) -> pa.StringArray:
    """Return the keys of all records of a block, in merge order."""
    return strings(pa.chunked_array([chunk for _, table in chunks for chunk in table.column(RECORD_KEY).chunks]))


def sort_keys_of_runs(chunks: Chunks, keys: pa.StringArray) -> SortedKeys:
    """Sort the records of a block by key; those of one key keep their order."""
    longest = max(len(table) for _, table in chunks)
    return sort_keys(KeyWords.of(keys), runs=longest * 4 > len(keys) * 3)


def gather_rows(values: pa.Table, rows: Int64s) -> pa.Table:
    """Take rows of a table; return a slice without a copy if they are contiguous and at least half of the table.

    A slice keeps all rows of its table in memory, which is too much for a caller that keeps a few rows of each block.
    """
    most = 2 * len(rows) >= len(values)
    if most and len(rows) and rows[-1] - rows[0] == len(rows) - 1 and bool((rows[1:] > rows[:-1]).all()):
        return values.slice(int(rows[0]), len(rows))
    return values.take(pa.array(rows, pa.int64()))


def ends_of(ordered: SortedKeys) -> Int64s:
    """Return the position after the last record of each key, int64 (keys,)."""
    return np.append(ordered.starts[1:], len(ordered.order))


def winners(ordered: SortedKeys, records: Records) -> Int64s:
    """Find the winning record of each key.

    It is the key's last record unless a smaller ordering value follows a larger one or there is an unordered delete;
    only such keys are folded.
    """
    order, starts = ordered.order, ordered.starts
    winner = order[ends_of(ordered) - 1]
    if records.ranks is None or len(starts) == len(order):
        return winner
    ranks, unordered_deletes = records.ranks[order], records.unordered_deletes[order]
    unclear = unordered_deletes.copy()
    unclear[1:] |= ranks[1:] < ranks[:-1]
    unclear[starts] = unordered_deletes[starts]
    groups = np.unique(np.searchsorted(starts, np.flatnonzero(unclear), "right") - 1)
    if len(groups):
        begins, places = _records_of(ordered, groups)
        of_groups = fold(begins, records.unordered_deletes[places], records.ranks[places])
        winner[groups] = places[of_groups.winner]
    return winner


@dataclass(frozen=True)
class Records:
    """The columns of a block's records that the fold needs, in merge order.

    Attributes:
        deleted: whether it is a delete, by its file or by its own columns.
        unordered_deletes: whether it is an unordered delete.
        base: whether it is of the base file.
        ranks: its ordering value as a number; None in commit-time mode.
        value_row: its place among the rows of the data runs, unless it is of a delete run.
        is_row: whether it is a row of a data file, rather than a record of a delete log.
    """

    deleted: Flags
    unordered_deletes: Flags
    base: Flags
    ranks: Int64s | None
    value_row: Int64s
    is_row: Flags

    @staticmethod
    def of(chunks: Chunks, values: pa.Table, rule: MergeRule) -> Records:
        """Compute them for the whole block at once.

        Args:
            chunks: the runs' rows, in merge order.
            values: the rows of the data runs.
            rule: the table's merge semantics.
        """
        base = [np.full(len(rows), run.base) for run, rows in chunks]
        is_value = np.concatenate([np.full(len(rows), not run.deletes) for run, rows in chunks])
        ordering = pa.concat_tables([rows.select(rule.ordering_fields) for _, rows in chunks])
        deleted = ~is_value
        deleted[is_value] = rule.deletes(values)
        is_row = is_value
        if any(run.marks is not None for run, _ in chunks):
            marked = np.concatenate([_marked(run, rows) for run, rows in chunks])
            deleted |= marked
            is_row = is_value & ~marked
        return Records(
            deleted,
            rule.unordered_deletes(ordering, deleted),
            np.concatenate(base),
            rule.ranks(ordering),
            np.cumsum(is_value, dtype=np.int64) - 1,
            is_row,
        )


def _marked(run: SortedRun, rows: pa.Table) -> Flags:
    return np.zeros(len(rows), np.bool_) if run.marks is None else flags(rows.column(run.marks))
