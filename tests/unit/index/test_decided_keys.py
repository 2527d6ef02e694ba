"""Records and deletes that win by their ordering values, compared with the merge of one pair after the other."""

from __future__ import annotations

import random

import pyarrow as pa

from streaming_lsm.index.decided_keys import deletes_above, records_above
from streaming_lsm.merge.rule import MergeRule

RULE = MergeRule(event_time=True, ordering_fields=("ts",))


def table(rows: list[tuple[str, int | None]]) -> pa.Table:
    keys, values = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [])
    return pa.table({"_hoodie_record_key": pa.array(keys, pa.string()), "ts": pa.array(values, pa.int64())})


def test_a_record_is_above_the_older_deletes_of_its_key_that_have_no_larger_ordering_value() -> None:
    draw = random.Random(0)
    for _ in range(200):
        records = [(draw.choice("abc"), draw.randrange(6)) for _ in range(draw.randrange(1, 5))]
        deletes = [(draw.choice("abcd"), draw.choice([None, *range(6)])) for _ in range(draw.randrange(6))]
        expected = [all(ts is None or ts <= own for key, ts in deletes if key == one) for one, own in records]
        assert records_above(RULE, table(records), table(deletes)).tolist() == expected


def test_a_delete_is_above_all_rows_without_an_ordering_value_or_with_the_largest() -> None:
    deletes = table([("a", None), ("b", 4), ("c", 5), ("d", 6)])
    assert deletes_above(RULE, deletes, pa.scalar(5, pa.int64())).tolist() == [True, False, True, True]
    assert deletes_above(RULE, deletes, None).tolist() == [True, False, False, False]
