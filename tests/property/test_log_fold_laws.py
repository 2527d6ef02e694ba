"""The law of a log compaction: it changes no row, whatever adjacent logs are merged, and whatever lies around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streaming_lsm.merge.hash_merge import LogPart, fold_logs, merge_base
from streaming_lsm.merge.log_fold import FoldedLogs, fold_sorted_logs, fold_unsorted_logs
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.runs import merge_runs
from streaming_lsm.merge.sorted_runs import SortedRun, interleave_runs
from streaming_lsm.schema import COMMIT_TIME
from tests.property import test_merge_laws
from tests.property.test_merge_laws import KEY, Rows, cases, each_rule, sources, unique

SCHEMA = test_merge_laws.SCHEMA.append(pa.field(COMMIT_TIME, pa.string()))
cuts = st.tuples(st.integers(1, 6), st.integers(1, 6)).map(sorted)


def table(rows: Rows) -> pa.Table:
    """A source whose records have a time."""
    found = test_merge_laws.table(rows)
    return found.append_column(COMMIT_TIME, pa.array(["1"] * len(found), pa.string()))


def parts_of(rows: pa.Table, rule: MergeRule) -> list[LogPart]:
    """A log; a drawn one without live rows is a delete log."""
    if len(rows) and all(rows.column("_hoodie_is_deleted").to_pylist()):
        return [LogPart(rows.select([KEY, *rule.ordering_fields]), deletes=True)]
    return [LogPart(rows)]


def files_of(folded: FoldedLogs) -> list[LogPart]:
    """The files of a log compaction, in merge order."""
    parts = (folded.unordered_deletes, folded.deletes.drop_columns(COMMIT_TIME))
    deletes = [LogPart(rows, deletes=True) for rows in parts]
    return [deletes[0], LogPart(folded.rows), deletes[1]]


def runs_of(logs: Sequence[LogPart]) -> list[SortedRun]:
    return [SortedRun("log", iter(log.rows.to_batches(max_chunksize=2)), deletes=log.deletes) for log in logs]


def spilled(logs: Sequence[LogPart]) -> SortedRun:
    """Logs combined in a spill file, where deletes are marked."""
    marked = SCHEMA.append(pa.field("mark", pa.bool_()))
    tables = []
    for log in logs:
        wide = pa.concat_tables([SCHEMA.empty_table(), log.rows], promote_options="default")
        tables.append(wide.append_column("mark", pa.array([log.deletes] * len(wide), pa.bool_())).cast(marked))
    runs = [SortedRun("log", iter(rows.to_batches(max_chunksize=2)), marks="mark") for rows in tables]
    batches = [batch for rows in interleave_runs(runs) for batch in rows.to_batches()]
    return SortedRun("spilled", iter(batches), marks="mark", trusted=True)


def as_files(blocks: Sequence[FoldedLogs]) -> list[LogPart]:
    """The files of a log compaction that are written block by block."""
    found = [files_of(block) for block in blocks]
    return [
        replace(same[0], rows=pa.concat_tables([log.rows for log in same]).combine_chunks())
        for same in zip(*found, strict=True)
    ]


def log_compaction(logs: Sequence[LogPart], rule: MergeRule) -> list[LogPart]:
    return as_files(list(fold_sorted_logs(runs_of(logs), rule, SCHEMA)))


def merged(base: pa.Table, logs: Sequence[LogPart], rule: MergeRule) -> list[dict[str, object]]:
    first = SortedRun("base", iter(base.to_batches(max_chunksize=2)), base=True)
    return [row for block in merge_runs([first, *runs_of(logs)], rule) for row in block.rows.to_pylist()]


def hashed(base: pa.Table, logs: Sequence[LogPart], rule: MergeRule) -> list[dict[str, object]]:
    blocks = merge_base(base.to_batches(max_chunksize=2), fold_logs(logs, SCHEMA, rule), rule)
    return sorted((row for block in blocks for row in block.rows.to_pylist()), key=lambda row: row[KEY])


def drawn_logs(drawn: list[Rows], rule: MergeRule) -> tuple[pa.Table, list[LogPart]]:
    """A base file and logs; log `n` is the `n`-th source, so that a cut leaves out the base file."""
    tables = [table(rows) for rows in drawn]
    return tables[0], [part for rows in tables[1:] for part in parts_of(rows, rule)]


@each_rule
@cases
@given(drawn=sources(), cut=cuts)
def test_a_log_compaction_changes_no_row(rule: MergeRule, drawn: list[Rows], cut: list[int]) -> None:
    base, logs = drawn_logs(drawn, rule)
    begin, end = cut[0] - 1, cut[1]
    expected = merged(base, logs, rule)
    output = log_compaction(logs[begin:end], rule)
    assert merged(base, [*logs[:begin], *output, *logs[end:]], rule) == expected
    assert merged(base, log_compaction([*output, *logs[end:]], rule), rule) == merged(base, logs[begin:], rule)
    again = log_compaction([*logs[:begin], *output], rule)
    assert merged(base, [*again, *logs[end:]], rule) == expected


@each_rule
@cases
@given(drawn=sources(), cut=cuts, few=st.integers(0, 6))
def test_it_does_not_depend_on_how_many_files_may_be_open(
    rule: MergeRule, drawn: list[Rows], cut: list[int], few: int
) -> None:
    base, logs = drawn_logs(drawn, rule)
    begin, end = cut[0] - 1, cut[1]
    window = logs[begin:end]
    runs = [spilled(window[:few]), *runs_of(window[few:])] if window[:few] else runs_of(window)
    blocks = list(fold_sorted_logs(runs, rule, SCHEMA))
    output = as_files(blocks)
    assert merged(base, [*logs[:begin], *output, *logs[end:]], rule) == merged(base, logs, rule)
    for part, other in zip(output, log_compaction(window, rule), strict=False):
        assert part.rows.equals(other.rows)


@each_rule
@cases
@given(drawn=sources(), cut=cuts)
def test_every_record_of_the_output_is_needed(rule: MergeRule, drawn: list[Rows], cut: list[int]) -> None:
    _, logs = drawn_logs(drawn, rule)
    output = log_compaction(logs[cut[0] - 1 : cut[1]], rule)
    if not output:
        return
    before, rows, deletes = ([*part.rows.column(KEY).to_pylist()] for part in output)
    winners = sorted([*rows, *deletes])
    assert winners == sorted({key for log in logs[cut[0] - 1 : cut[1]] for key in log.rows.column(KEY).to_pylist()})
    assert set(before) <= set(winners)
    assert [rows, deletes, before] == [sorted(set(keys)) for keys in (rows, deletes, before)]


@each_rule
@cases
@given(drawn=sources(), cut=cuts)
def test_unsorted_logs_of_version_10_may_be_compacted_anywhere(
    rule: MergeRule, drawn: list[Rows], cut: list[int]
) -> None:
    tables, logs = drawn_logs(drawn, rule)
    base, (begin, end) = unique(tables), (cut[0] - 1, cut[1])
    output = files_of(fold_unsorted_logs(logs[begin:end], rule, SCHEMA, SCHEMA, inline=False))
    expected = hashed(base, logs, rule)
    assert hashed(base, [*logs[:begin], *output, *logs[end:]], rule) == expected
    again = files_of(fold_unsorted_logs([*output, *logs[end:]], rule, SCHEMA, SCHEMA, inline=False))
    assert hashed(base, [*logs[:begin], *again], rule) == expected


@each_rule
@cases
@given(drawn=sources(), cut=cuts)
def test_inline_logs_up_to_version_9_may_be_compacted_anywhere(
    rule: MergeRule, drawn: list[Rows], cut: list[int]
) -> None:
    rule = replace(rule, logs_first=True)
    tables, found = drawn_logs(drawn, rule)
    base, logs = unique(tables), [replace(log, logs_first=True) for log in found]
    begin, end = cut[0] - 1, cut[1]
    output = files_of(fold_unsorted_logs(logs[begin:end], rule, SCHEMA, SCHEMA, inline=True))
    inline = [replace(log, logs_first=True) for log in output]
    after = [*logs[:begin], *inline, *logs[end:]]
    assert hashed(base, after, rule) == hashed(base, logs, rule)
    upgraded = replace(rule, logs_first=False)
    assert hashed(base, after, upgraded) == hashed(base, logs, upgraded)


@each_rule
@cases
@given(drawn=sources(), inline=st.integers(0, 6), end=st.integers(1, 6))
def test_all_inline_logs_of_before_an_upgrade_may_be_compacted_to_native_ones(
    rule: MergeRule, drawn: list[Rows], inline: int, end: int
) -> None:
    tables, found = drawn_logs(drawn, rule)
    base, end = unique(tables), max(inline, end)
    logs = [replace(log, logs_first=place < inline) for place, log in enumerate(found)]
    output = files_of(fold_unsorted_logs(logs[:end], rule, SCHEMA, SCHEMA, inline=False))
    assert hashed(base, [*output, *logs[end:]], rule) == hashed(base, logs, rule)


def test_a_row_that_is_a_delete_by_a_column_that_is_not_kept_becomes_a_delete() -> None:
    columns = [(KEY, pa.string()), ("ts", pa.int64()), ("_hoodie_operation", pa.string()), (COMMIT_TIME, pa.string())]
    schema = pa.schema(columns)
    kept = pa.schema(list(schema)[:2])
    rule = MergeRule(True, ("ts",))
    older = pa.Table.from_pylist([{KEY: "a", "ts": 1}, {KEY: "b", "ts": 5}], schema=schema)
    newer = pa.Table.from_pylist([{KEY: key, "ts": 3, "_hoodie_operation": "D"} for key in "ab"], schema=schema)
    logs = [LogPart(older), LogPart(newer)]
    unsorted = files_of(fold_unsorted_logs(logs, rule, kept, schema, inline=False))
    for before, rows, deletes in (as_files(list(fold_sorted_logs(runs_of(logs), rule, kept))), unsorted):
        assert rows.rows.to_pylist() == [{KEY: "b", "ts": 5}]
        assert deletes.rows.to_pylist() == [{KEY: "a", "ts": 3}]
        assert not len(before.rows)


def test_a_flagged_row_that_wins_stays_a_row_and_one_that_a_row_follows_becomes_a_delete() -> None:
    rule = MergeRule(True, ("ts",))
    flagged = table([("a", None, None, True, None, None), ("b", None, None, True, None, None)])
    newer = table([("b", 1, 0, False, 7, 7)])
    logs = [LogPart(flagged), LogPart(newer)]
    unsorted = files_of(fold_unsorted_logs(logs, rule, SCHEMA, SCHEMA, inline=False))
    for before, rows, deletes in (log_compaction(logs, rule), unsorted):
        assert before.rows.to_pylist() == [{KEY: "b", "ts": None}]
        assert rows.rows.column(KEY).to_pylist() == ["a", "b"]
        assert not len(deletes.rows)
