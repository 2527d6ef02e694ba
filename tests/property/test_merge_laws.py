"""The laws of a merge, for each merger: the outcome does not depend on how a slice is cut and when it is compacted.

*Bracketing*: adjacent sources may be reduced to one first. *Repetition*: a source that comes twice in a row changes
nothing. *The base file is the oldest source*: what a compaction merged into it need not be merged again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_lsm.arrow.columns import flags, strings
from streaming_lsm.keys.words import KeyWords, sort_keys
from streaming_lsm.merge.fold import survivors
from streaming_lsm.merge.hash_merge import LogPart, fold_logs, merge_base
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.runs import merge_runs
from streaming_lsm.merge.sorted_runs import SortedRun, interleave_runs
from tests.support.crash_points import random_cases

KEY, GONE = "_hoodie_record_key", "_hoodie_is_deleted"
SCHEMA = pa.schema(
    [
        (KEY, pa.string()),
        ("ts", pa.int64()),
        ("seq", pa.int32()),
        (GONE, pa.bool_()),
        ("a", pa.int64()),
        ("b", pa.int64()),
    ]
)
RULES = {
    "event-time": MergeRule(True, ("ts",)),
    "int-ordering": MergeRule(True, ("seq",)),
    "two-fields": MergeRule(True, ("ts", "seq")),
    "commit-time": MergeRule(False),
}
each_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
cases = settings(max_examples=random_cases(200, 15), deadline=None, derandomize=True)

Rows = list[tuple[str, int | None, int | None, bool, int | None, int | None]]


@st.composite
def sources(draw: st.DrawFn, *, ordered_deletes: bool = True) -> list[Rows]:
    """Sources in merge order: rows, and deletes with and without ordering values."""
    found: list[Rows] = []
    for number in range(draw(st.integers(1, 6))):
        rows: Rows = []
        for place in range(draw(st.integers(0, 7))):
            key, gone = draw(st.sampled_from("abcé")), number > 0 and draw(st.integers(0, 2)) == 0
            bare = gone and (not ordered_deletes or draw(st.booleans()))
            ts, seq = (None, None) if bare else (draw(st.integers(-2, 2)), draw(st.sampled_from([-1, 1, 2])))
            value = None if gone else 100 * number + place
            sent = draw(st.sampled_from([(value, value), (value, None), (None, value)]))
            rows.append((key, ts, seq, gone, *sent))
        found.append(sorted(rows, key=lambda row: row[0]))
    return found


def table(rows: Rows) -> pa.Table:
    return pa.Table.from_arrays(
        [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(SCHEMA)], schema=SCHEMA
    )


def run(rows: pa.Table, *, base: bool = False) -> SortedRun:
    return SortedRun("source", iter(rows.to_batches(max_chunksize=2)), base=base)


def merged(found: Sequence[pa.Table], rule: MergeRule, *, base: bool = True) -> list[dict[str, object]]:
    """The live rows of a slice whose first source is the base file."""
    runs = [run(rows, base=base and not place) for place, rows in enumerate(found)]
    return [row for block in merge_runs(runs, rule) for row in block.rows.to_pylist()]


def reduced(found: Sequence[pa.Table], rule: MergeRule) -> pa.Table:
    """Adjacent sources as one: of each key the records that can still win."""
    rows = pa.concat_tables([SCHEMA.empty_table(), *interleave_runs([run(rows) for rows in found])]).combine_chunks()
    deleted = rule.deletes(rows)
    starts = sort_keys(KeyWords.of(strings(rows.column(KEY))), runs=True).starts
    stays = survivors(starts, rule.unordered_deletes(rows, deleted), rule.ranks(rows))
    return rows.filter(pa.array(stays))


def unique(rows: pa.Table) -> pa.Table:
    """The first row of each key."""
    keys = rows.column(KEY).to_pylist()
    return rows.filter(pa.array([key not in keys[:place] for place, key in enumerate(keys)], pa.bool_()))


@each_rule
@cases
@given(drawn=sources(), cut=st.tuples(st.integers(1, 6), st.integers(1, 6)))
def test_adjacent_logs_may_be_reduced_to_one_first(rule: MergeRule, drawn: list[Rows], cut: tuple[int, int]) -> None:
    found = [table(rows) for rows in drawn]
    begin, end = sorted(cut)
    joined = [*found[:begin], reduced(found[begin:end], rule), *found[end:]]
    assert merged(joined, rule) == merged(found, rule)
    assert merged([found[0], reduced([reduced(found[1:begin], rule), *found[begin:]], rule)], rule) == merged(
        found, rule
    )


@each_rule
@cases
@given(drawn=sources(), twice=st.integers(0, 5))
def test_a_source_that_comes_twice_in_a_row_changes_nothing(rule: MergeRule, drawn: list[Rows], twice: int) -> None:
    found = [table(rows) for rows in drawn]
    twice %= len(found)
    assert merged([*found[: twice + 1], *found[twice:]], rule) == merged(found, rule)


@each_rule
@cases
@given(drawn=sources(ordered_deletes=False), cut=st.integers(0, 6))
def test_what_a_compaction_merged_need_not_be_merged_again(rule: MergeRule, drawn: list[Rows], cut: int) -> None:
    """Deletes with an ordering value are left out: a base file keeps no deletes, so that a compaction forgets them."""
    found = [table(rows) for rows in drawn]
    base = pa.Table.from_pylist(merged(found[: cut + 1], rule), schema=SCHEMA)
    assert merged([base, *found[cut + 1 :]], rule) == merged(found, rule)


@each_rule
@cases
@given(drawn=sources())
def test_a_base_file_merges_as_a_log_that_is_older_than_all_others(rule: MergeRule, drawn: list[Rows]) -> None:
    found = [table(rows) for rows in drawn]
    assert merged(found, rule) == merged(found, rule, base=False)


def hashed(base: pa.Table, logs: Sequence[pa.Table], rule: MergeRule) -> list[dict[str, object]]:
    """The live rows of a slice by the merge of unsorted files; the rows of each file are turned round."""
    parts = [part for rows in logs for part in log_parts(rows)]
    blocks = merge_base(base.to_batches(max_chunksize=2), fold_logs(parts, SCHEMA, rule), rule)
    return sorted((row for block in blocks for row in block.rows.to_pylist()), key=lambda row: row[KEY])


def log_parts(rows: pa.Table) -> list[LogPart]:
    """A log, in one part or more: its deletes are flagged rows here, and delete blocks where they stand alone."""
    if len(rows) and rows.column(GONE).to_pylist() == [True] * len(rows):
        return [LogPart(rows.select([KEY, "ts", "seq"]), deletes=True)]
    return [LogPart(rows)]


@each_rule
@cases
@given(drawn=sources())
def test_unsorted_files_give_the_rows_of_sorted_ones(rule: MergeRule, drawn: list[Rows]) -> None:
    found = [unique(table(drawn[0])), *(table(rows) for rows in drawn[1:])]
    assert hashed(found[0], found[1:], rule) == merged(found, rule)


@each_rule
@pytest.mark.parametrize("logs_first", [False, True], ids=["version-10", "up-to-9"])
@cases
@given(drawn=sources(), cut=st.tuples(st.integers(1, 6), st.integers(1, 6)), twice=st.integers(1, 6))
def test_unsorted_logs_may_be_reduced_and_repeated(
    rule: MergeRule, logs_first: bool, drawn: list[Rows], cut: tuple[int, int], twice: int
) -> None:
    rule = replace(rule, logs_first=logs_first)
    base, logs = unique(table(drawn[0])), [table(rows) for rows in drawn]
    begin, end = sorted(cut)
    expected = hashed(base, logs[1:], rule)
    assert hashed(base, [*logs[1:begin], reduced(logs[begin:end], rule), *logs[end:]], rule) == expected
    assert hashed(base, [*logs[1:twice], *logs[max(1, twice - 1) :]], rule) == expected


PARTIAL = [MergeRule(False, partial="IGNORE_DEFAULTS"), MergeRule(True, ("ts",), partial="IGNORE_DEFAULTS")]


def filled(logs: Sequence[pa.Table], rule: MergeRule) -> list[pa.Table]:
    """Logs as at most two: the keys that were deleted on the way, and what was sent after that."""
    outcome = fold_logs([LogPart(rows) for rows in logs], SCHEMA, rule)
    gone = {key for rows in logs for key in rows.filter(flags_of(rows)).column(KEY).to_pylist()}
    deletes: Rows = [(key, None, None, True, None, None) for key in sorted(gone)]
    return [table(deletes), outcome.rows.filter(pa.array(~outcome.deleted))]


def flags_of(rows: pa.Table) -> pa.Array:  # type: ignore[type-arg]
    return pa.array(flags(rows.column(GONE)))


@cases
@given(drawn=sources(), cut=st.tuples(st.integers(1, 6), st.integers(1, 6)))
def test_partial_updates_in_commit_order_may_be_reduced_first(drawn: list[Rows], cut: tuple[int, int]) -> None:
    base, logs = unique(table(drawn[0])), [table(rows) for rows in drawn]
    begin, end = sorted(cut)
    rule = PARTIAL[0]
    joined = [*logs[1:begin], *filled(logs[begin:end], rule), *logs[end:]]
    assert hashed(base, joined, rule) == hashed(base, logs[1:], rule)


@pytest.mark.parametrize("rule", PARTIAL, ids=["commit-time", "event-time"])
@cases
@given(drawn=sources(), twice=st.integers(1, 5))
def test_a_partial_update_that_comes_twice_in_a_row_changes_nothing(
    rule: MergeRule, drawn: list[Rows], twice: int
) -> None:
    base, logs = unique(table(drawn[0])), [table(rows) for rows in drawn]
    once = hashed(base, logs[1:], rule)
    assert hashed(base, [*logs[1 : twice + 1], *logs[max(1, twice) :]], rule) == once


def test_partial_updates_in_event_time_depend_on_the_bracketing_where_ordering_values_fall() -> None:
    """As in Hudi: of two updates that are older than a row, the one merged with it first fills a column."""
    rule = PARTIAL[1]
    newest, older, between = ([("k", ts, 0, False, a, b)] for ts, a, b in ((5, 1, None), (3, None, 2), (4, None, 9)))
    logs = [table(rows) for rows in (newest, older, between)]
    at_once = fold_logs([LogPart(rows) for rows in logs], SCHEMA, rule).rows
    last_two = fold_logs([LogPart(rows) for rows in logs[1:]], SCHEMA, rule).rows
    bracketed = fold_logs([LogPart(logs[0]), LogPart(last_two)], SCHEMA, rule).rows
    assert [rows.column("b").to_pylist() for rows in (at_once, bracketed)] == [[2], [9]]
