"""The merge of unsorted files against a model that folds records pair by pair (docs/format/05-merge.md)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_lsm.merge.hash_merge import LogPart, fold_logs, merge_base
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.runs import Block
from tests.support.crash_points import random_cases

SCHEMA = pa.schema([("_hoodie_record_key", pa.string()), ("ts", pa.int64()), ("a", pa.string()), ("b", pa.int64())])
COLUMNS = ("ts", "a", "b")
UNSENT = "__unsent"


@dataclass(frozen=True)
class Record:
    """One record: a delete where `values` is None."""

    ts: int | None
    values: dict[str, object] | None
    sent: frozenset[str] = frozenset(COLUMNS)

    @property
    def unordered_deletes(self) -> bool:
        return self.values is None and self.ts is None


@dataclass
class Case:
    """A slice: blocks of (key, record), the oldest first, and rows of a base file."""

    base: list[tuple[str, Record]]
    blocks: list[tuple[bool, frozenset[str] | None, list[tuple[str, Record]]]] = field(default_factory=list)


def _newer(old: Record, new: Record, rule: MergeRule) -> Record:
    """Pairwise rule, with partial updates where neither is a delete."""
    if not rule.event_time or old.unordered_deletes or new.unordered_deletes:
        rules = True
    else:
        rules = (new.ts or 0) >= (old.ts or 0)
    winner, loser = (new, old) if rules else (old, new)
    if winner.values is None or loser.values is None:
        return winner
    merged = {name: winner.values[name] if name in winner.sent else loser.values[name] for name in COLUMNS}
    return Record(winner.ts, merged, winner.sent | loser.sent)


def _meant(record: Record, rule: MergeRule) -> Record:
    """What counts as sent under the table's partial update mode."""
    if record.values is None:
        return record
    sent = set(record.sent)
    if rule.partial == "IGNORE_DEFAULTS":
        sent -= {name for name in sent if record.values[name] is None}
    if rule.partial == "FILL_UNAVAILABLE":
        sent -= {name for name in sent if record.values[name] == UNSENT}
    return replace(record, sent=frozenset(sent))


def _model(case: Case, rule: MergeRule) -> dict[str, dict[str, object]]:
    # Partial rows of falling ordering values depend on the bracketing (tests/property/test_merge_laws.py).
    partial = rule.partial is not None or any(columns is not None for _, columns, _ in case.blocks)
    if rule.logs_first or (rule.event_time and partial):
        return _logs_first(case, rule)
    return _left_to_right(case, rule)


def _left_to_right(case: Case, rule: MergeRule) -> dict[str, dict[str, object]]:
    found = dict(case.base)
    for _, _, records in case.blocks:
        for key, record in records:
            meant = _meant(record, rule)
            found[key] = _newer(_meant(found[key], rule), meant, rule) if key in found else meant
    return {key: record.values for key, record in found.items() if record.values is not None}


def _logs_first(case: Case, rule: MergeRule) -> dict[str, dict[str, object]]:
    logs: dict[str, Record] = {}
    cleared = set()
    for _, _, records in case.blocks:
        for key, record in records:
            meant = _meant(record, rule)
            if record.unordered_deletes and not rule.logs_first:
                cleared.add(key)
            logs[key] = _newer(logs[key], meant, rule) if key in logs else meant
    rows = {}
    for key, record in case.base:
        if key in cleared:
            continue
        found = _newer(_meant(record, rule), logs.pop(key), rule) if key in logs else record
        if found.values is not None:
            rows[key] = found.values
    rows |= {key: found.values for key, found in logs.items() if found.values is not None}
    return rows


def _table(records: list[tuple[str, Record]]) -> pa.Table:
    rows = [{"_hoodie_record_key": key, **(record.values or {"ts": record.ts})} for key, record in records]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _blocks(case: Case, rule: MergeRule, batch_rows: int) -> list[Block]:
    parts = []
    for deletes, columns, records in case.blocks:
        table = _table(records)
        if deletes:
            table = table.select(["_hoodie_record_key", *rule.ordering_fields])
        has = None if columns is None else columns | {"_hoodie_record_key"}
        parts.append(LogPart(table, deletes, has))
    outcome = fold_logs(parts, SCHEMA, rule)
    rows = _table(case.base)
    empty = pa.RecordBatch.from_pylist([], schema=SCHEMA)  # as of a row group that an incremental read filters
    base = [part for batch in rows.to_batches(max_chunksize=batch_rows) for part in (empty, batch)] + [empty]
    return list(merge_base(base, outcome, rule))


def _merged(case: Case, rule: MergeRule, batch_rows: int) -> dict[str, dict[str, object]]:
    blocks = _blocks(case, rule, batch_rows)
    rows = pa.concat_tables([block.rows for block in blocks] or [SCHEMA.empty_table()]).to_pylist()
    assert len({row["_hoodie_record_key"] for row in rows}) == len(rows)
    base_keys = {key for key, _ in case.base}
    assert sum(block.inserts for block in blocks) == sum(row["_hoodie_record_key"] not in base_keys for row in rows)
    assert len(rows) == len(base_keys) + sum(block.inserts - block.deletes for block in blocks)
    return {row["_hoodie_record_key"]: {name: row[name] for name in COLUMNS} for row in rows}


def _case(seed: int, *, partial_logs: bool, with_unsent: bool, repeated: bool = False) -> Case:
    rng = np.random.default_rng(seed)
    keys = [f"k{number}" for number in range(int(rng.integers(1, 12)))]

    def value(sent: frozenset[str]) -> Record:
        ts = int(rng.integers(-2, 5))
        texts = [None, "x", "y", UNSENT] if with_unsent else [None, "x", "y"]
        values = {"ts": ts, "a": texts[rng.integers(len(texts))], "b": [None, int(rng.integers(100))][rng.integers(2)]}
        return Record(ts, {name: values[name] if name in sent else None for name in COLUMNS}, sent)

    case = Case([(key, value(frozenset(COLUMNS))) for key in rng.permutation(keys) if rng.random() < 0.6])
    if repeated:
        case.base = [(key, value(frozenset(COLUMNS))) for key, _ in case.base for _ in range(int(rng.integers(1, 5)))]
    for _ in range(int(rng.integers(0, 6))):
        chosen = [str(key) for key in rng.choice(keys, int(rng.integers(1, 15)))]
        if rng.random() < 0.35:
            deletes = [(key, Record([None, int(rng.integers(-2, 5))][rng.integers(2)], None)) for key in chosen]
            case.blocks.append((True, None, deletes))
            continue
        sent = frozenset({"ts", str(rng.choice(["a", "b"]))}) if partial_logs and rng.random() < 0.5 else None
        has = frozenset(COLUMNS) if sent is None else sent
        case.blocks.append((False, sent, [(key, value(has)) for key in chosen]))
    return case


EVENT = MergeRule(True, ("ts",))
COMMIT = MergeRule(False)


@settings(max_examples=random_cases(400, 100), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([EVENT, COMMIT]), st.integers(1, 8), st.booleans())
def test_rows_taken_whole(seed: int, rule: MergeRule, batch_rows: int, logs_first: bool) -> None:
    rule = replace(rule, logs_first=logs_first)
    case = _case(seed, partial_logs=False, with_unsent=False)
    assert _merged(case, rule, batch_rows) == _model(case, rule)


@settings(max_examples=random_cases(600, 150), deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([EVENT, COMMIT]),
    st.sampled_from([None, "IGNORE_DEFAULTS", "FILL_UNAVAILABLE"]),
    st.integers(1, 8),
    st.booleans(),
)
def test_partial_updates(seed: int, rule: MergeRule, mode: str | None, batch_rows: int, logs_first: bool) -> None:
    rule = replace(rule, partial=mode, unavailable=UNSENT, logs_first=logs_first)
    case = _case(seed, partial_logs=mode is None, with_unsent=True)
    assert _merged(case, rule, batch_rows) == _model(case, rule)


@settings(max_examples=random_cases(400, 100), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([EVENT, COMMIT]), st.integers(1, 8))
def test_base_rows_of_one_key_side_by_side_are_folded_with_what_the_logs_have_of_it(
    seed: int, rule: MergeRule, batch_rows: int
) -> None:
    case = _case(seed, partial_logs=False, with_unsent=False, repeated=True)
    rows = _shown(case, rule, batch_rows)
    events = [(False, None, [record]) for record in case.base]
    expected = _left_to_right(Case([], [*events, *case.blocks]), rule)
    in_logs = {key for _, _, records in case.blocks for key, _ in records}
    for key in {key for key, _ in case.base} | in_logs:
        if key in in_logs:
            assert rows.get(key, []) == ([expected[key]] if key in expected else [])
        else:
            assert rows[key] == [record.values for found, record in case.base if found == key]


def _shown(case: Case, rule: MergeRule, batch_rows: int) -> dict[str, list[dict[str, object]]]:
    """The rows of each key."""
    shown: dict[str, list[dict[str, object]]] = {}
    for block in _blocks(case, rule, batch_rows):
        for row in block.rows.to_pylist():
            shown.setdefault(row["_hoodie_record_key"], []).append({name: row[name] for name in COLUMNS})
    return shown


@pytest.mark.parametrize("batch_rows", [1, 2, 10])
@pytest.mark.parametrize(
    ("ts", "deleted", "expected", "up_to_9"),
    [
        (None, True, [], [5, 10]),
        (12, True, [], [5, 10]),
        (12, False, [12], [12, 5, 10]),
        (7, True, [8, 10], [8, 5, 10]),
        (7, False, [8, 10], [8, 5, 10]),
        (9, True, [10], [5, 10]),
    ],
)
def test_base_rows_of_one_key_in_different_places_go_where_they_lose_to_the_logs(
    ts: int | None, deleted: bool, expected: list[int], up_to_9: list[int], batch_rows: int
) -> None:
    base = [(key, _row(number)) for key, number in [("k", 8), ("b", 1), ("k", 5), ("c", 1), ("k", 10)]]
    logs = [("k", Record(ts, None) if deleted else _row(ts)), ("c", _row(2))]
    case = Case(base, [(record.values is None, None, [(key, record)]) for key, record in logs])
    for rule, found in ((EVENT, expected), (replace(EVENT, logs_first=True), up_to_9)):
        shown = _shown(case, rule, batch_rows)
        assert [row["ts"] for row in shown.get("k", [])] == found
        assert [row["ts"] for key in "bc" for row in shown[key]] == [1, 2]


def _row(ts: int | None) -> Record:
    return Record(ts, {"ts": ts, "a": "x", "b": 0})
