"""The law of kept deletes: a compaction of the oldest files changes no row, whatever follows and whatever it merges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streaming_lsm.merge.hash_merge import LogPart, fold_logs, merge_base
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.runs import Block, merge_runs
from streaming_lsm.merge.sorted_runs import SortedRun
from streaming_lsm.query.slices.key_order import in_key_order
from streaming_lsm.schema import COMMIT_TIME
from tests.property.test_log_fold_laws import parts_of
from tests.property.test_merge_laws import GONE, KEY, SCHEMA, Rows, cases, each_rule, sources, table, unique

TIMED = SCHEMA.append(pa.field(COMMIT_TIME, pa.string()))
State = tuple[pa.Table, pa.Table | None]
"""A base file, and the deletes kept beside it."""


def timed(rows: pa.Table, time: str) -> pa.Table:
    return rows.append_column(COMMIT_TIME, pa.array([time] * len(rows), pa.string()))


def drawn_logs(drawn: list[Rows], rule: MergeRule) -> tuple[pa.Table, list[LogPart]]:
    """A base file of time 0, and logs; the records of each have its number as their time."""
    logs = []
    for number, rows in enumerate(drawn[1:], 1):
        for part in parts_of(table(rows), rule):
            held = part.rows if part.deletes else timed(part.rows, str(number))
            logs.append(replace(part, rows=held, time=str(number)))
    return timed(unique(table(drawn[0])), "0"), logs


def state_of(blocks: Sequence[Block]) -> State:
    rows = pa.concat_tables([TIMED.empty_table(), *(block.rows.select(TIMED.names) for block in blocks)])
    kept = [block.kept for block in blocks if block.kept is not None]
    return rows.combine_chunks(), pa.concat_tables(kept) if kept else None


def sorted_merge(state: State, logs: Sequence[LogPart], rule: MergeRule) -> State:
    runs = [SortedRun("base", iter(state[0].to_batches(max_chunksize=2)), base=True)]
    for log in with_kept(state, logs):
        batches = iter(log.rows.to_batches(max_chunksize=2))
        runs.append(SortedRun("log", batches, deletes=log.deletes, time=log.time))
    return state_of(list(merge_runs(runs, rule, keep=TIMED)))


def hash_merge(state: State, logs: Sequence[LogPart], rule: MergeRule) -> State:
    outcome = fold_logs(with_kept(state, logs), TIMED, rule, keeps_deletes=True)
    return state_of(list(in_key_order(merge_base(state[0].to_batches(max_chunksize=2), outcome, rule), None)))


def with_kept(state: State, logs: Sequence[LogPart]) -> list[LogPart]:
    """The logs of a slice; each period of kept deletes is a log."""
    if state[1] is None:
        return list(logs)
    times = sorted(set(state[1].column(COMMIT_TIME).to_pylist()))
    parts = [
        state[1].filter(pa.array([time == one for one in state[1].column(COMMIT_TIME).to_pylist()])) for time in times
    ]
    return [
        *(LogPart(part.drop_columns(COMMIT_TIME), True, time=time) for part, time in zip(parts, times, strict=True)),
        *logs,
    ]


@each_rule
@cases
@given(drawn=sources(), cuts=st.lists(st.integers(0, 6), max_size=3))
def test_compactions_change_no_row_and_keep_the_newest_deletes_with_their_times(
    rule: MergeRule, drawn: list[Rows], cuts: list[int]
) -> None:
    if not rule.event_time:
        return
    base, logs = drawn_logs(drawn, rule)
    whole = sorted_merge((base, None), logs, rule)
    assert hash_merge((base, None), logs, rule)[0].equals(whole[0])
    bounds = [0, *sorted(cuts), len(logs)]
    for merge in (sorted_merge, hash_merge):
        state: State = (base, None)
        for begin, end in pairwise(bounds):
            state = merge(state, logs[begin:end], rule)
        assert state[0].to_pylist() == whole[0].to_pylist()
        kept = [] if state[1] is None else state[1].to_pylist()
        assert [one[KEY] for one in kept] == sorted(
            {one[KEY] for one in kept} - {one[KEY] for one in whole[0].to_pylist()}
        )
        assert kept == ([] if whole[1] is None else whole[1].to_pylist())
        written = {(one[KEY], log.time) for log in logs for one in log.rows.to_pylist() if log.deletes or one[GONE]}
        assert {(one[KEY], one[COMMIT_TIME]) for one in kept} <= written
