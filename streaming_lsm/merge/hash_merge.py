"""Merge the files of a slice whose rows are not sorted, by the keys of the logs, which are held in memory.

The logs are folded first, and their outcome is merged with the base file as the older side. An unordered delete among
the logs removes the base row, so that the outcome is that of a fold of all records from left to right. Up to table
version 9 it does not if a row follows it in the logs, as in Hudi's readers (docs/format/05-merge.md, "Pairwise rule").
Up to that version the outcome also counts for the first base row of a key only; in version 10 for all of them
(docs/format/10-rules.md, "Rule 11").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.batches import coalesced
from streaming_lsm.arrow.columns import Flags, Int64s, pc, strings
from streaming_lsm.keys.words import KeyWords, sort_keys
from streaming_lsm.merge.fold import fold
from streaming_lsm.merge.pair_fold import fold_live_pairs, merge_pairs
from streaming_lsm.merge.partial import SentValues, fold_columns, sent_values, take_columns
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.runs import Block
from streaming_lsm.schema import COMMIT_TIME, RECORD_KEY, kept_deletes_schema

_BASE_BYTES = 128 << 20
"""Maximum bytes of the rows of a base file that are merged with the logs at a time."""


@dataclass(frozen=True)
class LogPart:
    """The records of one block, in file order.

    Attributes:
        rows: with the columns of every other part; a delete part has the key and the ordering fields only.
        deletes: whether every record is a delete.
        columns: the columns that a block of partial rows has; None for all.
        logs_first: whether it is of an inline log, as those of version 9, so that it merges as there in any version.
        time: of a delete part, the time of its records; rows have it in their `_hoodie_commit_time`.
    """

    rows: pa.Table
    deletes: bool = False
    columns: frozenset[str] | None = None
    logs_first: bool = False
    time: str = ""


@dataclass(frozen=True)
class LogOutcome:
    """The winning log record of each key in the logs of a slice.

    Attributes:
        keys: the keys, each once.
        rows: one row per key; that of a deleted key has only the key and the ordering fields.
        deleted: bool (keys,), whether the winner is a delete.
        cleared: bool (keys,), whether an unordered delete removes the base row, whatever its ordering value.
        preceded: bool (keys,), whether an unordered delete precedes the winner in the logs.
        spreads: bool (keys,), whether the winner competes with every base row of the key, not with the first one only.
        present: the columns that were sent, in a merge of partial rows; None when rows are taken whole.
        kept: the deletes with an ordering value among the winners, if they are asked for.
    """

    keys: pa.StringArray
    rows: pa.Table
    deleted: Flags
    cleared: Flags
    preceded: Flags
    spreads: Flags
    present: SentValues | None = None
    kept: KeptDeletes | None = None


@dataclass(frozen=True)
class KeptDeletes:
    """The winning deletes that a compaction keeps.

    Attributes:
        places: int64, their keys' places in the outcome.
        records: one row each, with the columns of `kept_deletes_schema`.
    """

    places: Int64s
    records: pa.Table

    def without(self, keys: Flags) -> pa.Table | None:
        """Return the records but those of some keys of the outcome; None if none are left."""
        found = self.records.filter(pa.array(~keys[self.places]))
        return found if found.num_rows else None


def fold_logs(
    parts: Sequence[LogPart], schema: pa.Schema, rule: MergeRule, *, keeps_deletes: bool = False
) -> LogOutcome:
    """Fold the blocks of a slice's logs.

    Args:
        parts: in merge order, the oldest first.
        schema: columns of a data part.
        rule: the table's merge semantics.
        keeps_deletes: whether the outcome is to have the winning deletes with an ordering value; `schema` has
            `_hoodie_commit_time` then.
    """
    tables = [schema.empty_table(), *(part.rows for part in parts)]
    # Deletes lack the other columns; these become null.
    rows = pa.concat_tables(tables, promote_options="default").combine_chunks()
    deleted = rule.deletes(rows)
    lengths = [len(part.rows) for part in parts]
    deleted |= np.repeat(np.array([part.deletes for part in parts], np.bool_), lengths)
    unordered_deletes, ranks = rule.unordered_deletes(rows, deleted), rule.ranks(rows)
    keys = strings(rows.column(RECORD_KEY))
    ordered = sort_keys(KeyWords.of(keys))
    ordered_ranks = None if ranks is None else ranks[ordered.order]
    order = ordered.order
    folded = fold(ordered.starts, unordered_deletes[order], ordered_ranks)
    winner, preceded = order[folded.winner], folded.unordered_delete >= 0
    older = np.repeat(np.array([rule.logs_first or part.logs_first for part in parts], np.bool_), lengths)
    cleared = _cleared(ordered.starts, unordered_deletes[order], ordered_ranks, older[order])
    spreads = np.logical_or.reduceat(~older[order], ordered.starts) if len(order) else cleared
    kept = _kept(parts, rows, winner, deleted & ~unordered_deletes, rule) if keeps_deletes else None
    if rule.partial is None and all(part.columns is None for part in parts):
        values = rows.take(pa.array(winner, pa.int64()))
        if rule.strategy:
            made, lives = fold_live_pairs(rows, ordered.starts, order, deleted[order], rule)
            values = _with_rows(values, np.flatnonzero(lives), made)
        return LogOutcome(_taken(keys, winner), values, deleted[winner], cleared, preceded, spreads, kept=kept)
    sent = sent_values(rows, [(part.columns, len(part.rows)) for part in parts], rule)
    chosen = fold_columns(ordered.starts, deleted[order], unordered_deletes[order], ordered_ranks, sent.take(order))
    return LogOutcome(
        _taken(keys, winner),
        take_columns(rows, {name: order[place] for name, place in chosen.places.items()}, order[chosen.ruling]),
        deleted[winner],
        cleared,
        preceded,
        spreads,
        chosen.present,
        kept,
    )


def _with_rows(rows: pa.Table, places: Int64s, others: pa.Table) -> pa.Table:
    """Put other rows in some places of a table."""
    source = np.arange(len(rows), dtype=np.int64)
    source[places] = len(rows) + np.arange(len(others))
    return pa.concat_tables([rows, others]).take(pa.array(source, pa.int64()))


def _kept(
    parts: Sequence[LogPart], rows: pa.Table, winner: Int64s, ordered_deletes: Flags, rule: MergeRule
) -> KeptDeletes:
    """Select the winners that are deletes with an ordering value; `rows` are the records of all parts."""
    places = np.flatnonzero(ordered_deletes[winner])
    taken = pa.array(winner[places], pa.int64())
    times = [
        time
        for part in parts
        for time in ([pa.repeat(part.time, len(part.rows))] if part.deletes else part.rows.column(COMMIT_TIME).chunks)
    ]
    schema = kept_deletes_schema(rows.schema, rule.ordering_fields)
    found = rows.select(schema.names[:-1]).append_column(COMMIT_TIME, pa.chunked_array(times, pa.string()))
    return KeptDeletes(places, found.take(taken).cast(schema))


def _cleared(starts: Int64s, unordered_deletes: Flags, ranks: Int64s | None, logs_first: Flags) -> Flags:
    """Mark the keys whose base row an unordered delete removes, bool (keys,).

    Any of them does, but of the records marked `logs_first`, which are older than the others, only one that wins there.
    """
    cleared = np.zeros(len(starts), np.bool_)
    key = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(unordered_deletes))))
    cleared[key[unordered_deletes & ~logs_first]] = True
    places = np.flatnonzero(logs_first)
    begins = np.flatnonzero(np.diff(key[places], prepend=-1))
    winner = fold(begins, unordered_deletes[places], None if ranks is None else ranks[places]).winner
    cleared[key[places[begins]]] |= unordered_deletes[places[winner]]
    return cleared


def _taken(keys: pa.StringArray, rows: Int64s) -> pa.StringArray:
    return strings(keys.take(pa.array(rows, pa.int64())))


def merge_base(base: Iterable[pa.RecordBatch], logs: LogOutcome, rule: MergeRule) -> Iterator[Block]:
    """Merge a base file with the logs: the live rows in the order of the base file, then the keys found in logs only.

    If the base file has a key more than once, up to version 9 its first row is merged with the logs, as in Hudi. In
    version 10 its rows that stand side by side, as in sorted files, are folded before; of rows in different places each
    is compared with the logs, and those that lose are left out.

    Args:
        base: the base file's batches, with the columns of `logs.rows`.
        logs: the outcome of the logs.
        rule: the table's merge semantics.
    """
    met = np.zeros(len(logs.keys), np.bool_)
    stands = met.copy()
    if not len(logs.keys):
        yield from (Block(pa.Table.from_batches([batch])) for batch in base)
    else:
        # `index_in` hashes the keys of the logs anew for each table, so a table has about as many rows as the logs.
        tables = coalesced(base, size=_BASE_BYTES, rows=2 * len(logs.keys))
        for rows in _whole_keys(tables) if logs.spreads.any() else tables:
            yield _merge_batch(rows, logs, rule, met, stands)
    left = np.flatnonzero(~met & ~logs.deleted)
    if len(left):
        yield Block(logs.rows.take(pa.array(left, pa.int64())), inserts=len(left))
    kept = None if logs.kept is None else logs.kept.without(stands)
    if kept is not None:
        yield Block(logs.rows.slice(0, 0), kept=kept)


def _whole_keys(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Cut the tables anew, so that rows of one key that stand side by side are in one table."""
    held: list[pa.Table] = []
    for table in tables:
        if not len(table):
            yield table
            continue
        keys = table.column(RECORD_KEY)
        others = np.flatnonzero(np.asarray(pc.not_equal(keys, keys[-1])))
        cut = int(others[-1]) + 1 if len(others) else 0
        if held and (cut or keys[0] != held[0].column(RECORD_KEY)[0]):
            yield pa.concat_tables([*held, table.slice(0, cut)])
            held.clear()
        elif cut:
            yield table.slice(0, cut)
        held.append(table.slice(cut))
    if held:
        yield pa.concat_tables(held)


def _merge_batch(rows: pa.Table, logs: LogOutcome, rule: MergeRule, met: Flags, stands: Flags) -> Block:
    """Merge some rows of a base file; marks the keys of the logs that were `met`, and those whose base row `stands`."""
    found = pc.index_in(rows.column(RECORD_KEY), value_set=logs.keys)
    place = np.asarray(pc.fill_null(found, -1), np.int64)
    kept = ~_lost_beside(rows, place, logs, rule)
    touched = np.flatnonzero((place >= 0) & kept)
    if not len(touched):
        return Block(rows)
    is_first = np.zeros(len(touched), np.bool_)
    is_first[np.unique(place[touched], return_index=True)[1]] = True
    is_first &= ~met[place[touched]]
    is_compared = is_first | logs.spreads[place[touched]]
    stands[place[touched[~is_compared]]] = True
    base_rows, is_first = touched[is_compared], is_first[is_compared]
    if not len(base_rows):
        return Block(rows)
    log_rows = place[base_rows]
    met[log_rows] = True
    of_base, of_logs = rows.take(pa.array(base_rows, pa.int64())), logs.rows.take(pa.array(log_rows, pa.int64()))
    cleared = logs.cleared[log_rows]
    wins = _log_wins(of_base, of_logs, cleared, rule)
    # The first row gives its place to the winner of the logs; what loses to it elsewhere has none to give.
    gone = np.where(wins, logs.deleted[log_rows] | ~is_first, rule.deletes(of_base))
    stands[log_rows[~gone]] = True
    merged = of_logs
    if rule.strategy:
        pairs = np.flatnonzero(wins & ~logs.deleted[log_rows] & ~cleared & ~rule.deletes(of_base))
        places = pa.array(pairs, pa.int64())
        merged = _with_rows(of_logs, pairs, merge_pairs(of_base.take(places), of_logs.take(places), rule))
    if logs.present is not None:
        sent = logs.present.take(log_rows)
        merged = _merge_columns(of_base, of_logs, wins & ~logs.deleted[log_rows], cleared, sent, rule)
        wins |= ~logs.deleted[log_rows]  # if the base row wins, the logs still fill its missing columns
    source = np.arange(len(rows), dtype=np.int64)
    source[base_rows[wins]] = len(rows) + np.flatnonzero(wins)
    kept[base_rows[gone]] = False
    values = pa.concat_tables([rows, merged])
    return Block(
        values.take(pa.array(source[kept], pa.int64())),
        updates=int(np.count_nonzero(wins & ~gone & is_first)),
        deletes=int(np.count_nonzero(gone & is_first)),
    )


def _lost_beside(rows: pa.Table, place: Int64s, logs: LogOutcome, rule: MergeRule) -> Flags:
    """Mark the base rows that lose to one of the same key beside them, where the logs have the key."""
    lost = np.zeros(len(rows), np.bool_)
    repeats = np.zeros(len(rows), np.bool_)
    repeats[1:] = (place[1:] == place[:-1]) & (place[1:] >= 0)
    repeats[repeats] = logs.spreads[place[repeats]]
    if not repeats.any():
        return lost
    several = np.flatnonzero(repeats | np.append(repeats[1:], False))
    values = rows.take(pa.array(several, pa.int64()))
    unordered_deletes = rule.unordered_deletes(values, rule.deletes(values))
    lost[several] = True
    lost[several[fold(np.flatnonzero(~repeats[several]), unordered_deletes, rule.ranks(values)).winner]] = False
    return lost


def _log_wins(base: pa.Table, logs: pa.Table, cleared: Flags, rule: MergeRule) -> Flags:
    both = pa.concat_tables([base.select(rule.ordering_fields), logs.select(rule.ordering_fields)])
    ranks = rule.ranks(both) if rule.event_time else None
    if ranks is None:
        return np.ones(len(base), np.bool_)
    wins: Flags = cleared | (ranks[len(base) :] >= ranks[: len(base)])
    return wins


def _merge_columns(
    base: pa.Table, logs: pa.Table, wins: Flags, cleared: Flags, sent: SentValues, rule: MergeRule
) -> pa.Table:
    """Merge rows by column: take the winner's value if it was sent, else the other side's.

    See docs/format/05-merge.md, "Partial updates".
    """
    of_base = sent_values(base, [(None, len(base))], rule)
    gone = cleared | rule.deletes(base)  # a deleted row fills no columns
    columns = []
    for name in base.schema.names:
        from_logs = gone | np.where(wins, sent.of(name), ~of_base.of(name) & sent.of(name))
        columns.append(pc.if_else(pa.array(from_logs), logs.column(name), base.column(name)))
    return pa.table(columns, schema=base.schema)
