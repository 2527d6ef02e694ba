"""What a task hands over of a batch: sorted, deduplicated, deletes apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming_lsm.errors import RecordError, SchemaError
from streaming_lsm.keys.bucket import bucket_ids
from streaming_lsm.write.buffer.dedup import FileGroupChanges
from streaming_lsm.write.buffer.record_buffer import RecordBuffer
from streaming_lsm.write.plan import WritePlan
from tests.support.plans import SCHEMA, make_plan

NOWHERE = Path("/nowhere")
Event = tuple[str, int | None, int, bool]


def batch(events: list[Event], *, schema: pa.Schema = SCHEMA, part: str = "p", **control: Any) -> pa.RecordBatch:
    """Events as (key, ts, value, delete), with control columns by name."""
    columns = {
        "id": [event[0] for event in events],
        "part": [part] * len(events),
        "ts": [event[1] for event in events],
        "value": [event[2] for event in events],
        "gone": [event[3] for event in events],
    }
    rows = pa.table(columns).select(schema.names).cast(schema)
    for name, values in control.items():
        rows = rows.append_column(name, pa.array(values))
    return rows.combine_chunks().to_batches()[0]


def drain(plan: WritePlan, *batches: pa.RecordBatch) -> list[FileGroupChanges]:
    buffer = RecordBuffer(plan)
    for one in batches:
        buffer.append(one)
    return handed_over(buffer)


def handed_over(buffer: RecordBuffer) -> list[FileGroupChanges]:
    """The blocks of all groups; tests with few rows see one a group."""
    return [block for _, blocks in buffer.drain() for block in blocks]


def only(groups: list[FileGroupChanges]) -> dict[str, list[tuple[Any, ...]]]:
    """The one group's rows (key, value), deletes and unordered deletes (key, ts)."""
    (group,) = groups
    return {
        "rows": list(zip(group.keys.to_pylist(), group.rows["value"].to_pylist(), strict=True)),
        "deletes": [tuple(row.values()) for row in group.deletes.to_pylist()],
        "earlier_deletes": [tuple(row.values()) for row in group.earlier_deletes.to_pylist()],
    }


def test_event_time_keeps_the_larger_value_and_the_later_of_a_tie() -> None:
    plan = make_plan(NOWHERE)
    events: list[Event] = [("b", 5, 1, False), ("a", 1, 2, False), ("b", 4, 3, False), ("a", 1, 4, False)]
    assert only(drain(plan, batch(events))) == {"rows": [("a", 4), ("b", 1)], "deletes": [], "earlier_deletes": []}


def test_commit_time_keeps_the_later_row() -> None:
    plan = make_plan(NOWHERE, event_time=False)
    events: list[Event] = [("b", 5, 1, False), ("a", 9, 2, False), ("b", 4, 3, False), ("a", None, 4, False)]
    assert only(drain(plan, batch(events)))["rows"] == [("a", 4), ("b", 3)]


def test_without_combine_repeated_keys_stay_in_the_order_of_arrival() -> None:
    plan = make_plan(NOWHERE, combine=False)
    events: list[Event] = [("b", 5, 1, False), ("a", 9, 2, False), ("b", 4, 3, False)]
    assert only(drain(plan, batch(events)))["rows"] == [("a", 2), ("b", 1), ("b", 3)]


@pytest.mark.parametrize("combine", [True, False], ids=["combined", "repeated-keys"])
def test_a_key_with_rows_and_deletes_is_reduced_to_the_winner(combine: bool) -> None:
    plan = make_plan(NOWHERE, combine=combine)
    events: list[Event] = [
        ("kept", 9, 1, False),
        ("kept", 8, 2, True),
        ("gone", 1, 3, False),
        ("gone", 1, 4, True),
        ("plain", 1, 5, False),
    ]
    assert only(drain(plan, batch(events))) == {
        "rows": [("kept", 1), ("plain", 5)],
        "deletes": [("gone", 1)],
        "earlier_deletes": [],
    }


@pytest.mark.parametrize("combine", [True, False], ids=["combined", "repeated-keys"])
def test_a_unordered_delete_that_a_row_survives_is_handed_over_apart(combine: bool) -> None:
    plan = make_plan(NOWHERE, combine=combine)
    events: list[Event] = [("a", 9, 1, False), ("a", None, 2, True), ("a", 3, 3, False), ("a", 2, 4, False)]
    assert only(drain(plan, batch(events))) == {"rows": [("a", 3)], "deletes": [], "earlier_deletes": [("a", None)]}


def test_a_unordered_delete_before_an_ordered_delete_is_handed_over_apart() -> None:
    events: list[Event] = [("a", None, 1, True), ("a", 3, 2, False), ("a", 4, 3, True)]
    assert only(drain(make_plan(NOWHERE), batch(events))) == {
        "rows": [],
        "deletes": [("a", 4)],
        "earlier_deletes": [("a", None)],
    }


def test_a_unordered_delete_at_the_end_is_a_plain_delete() -> None:
    events: list[Event] = [("a", 9, 1, False), ("a", None, 2, True)]
    assert only(drain(make_plan(NOWHERE), batch(events))) == {
        "rows": [],
        "deletes": [("a", None)],
        "earlier_deletes": [],
    }


def test_a_deletes_int_zero_unordered_deletes_and_is_stored_as_zero() -> None:
    schema = SCHEMA.set(2, pa.field("ts", pa.int32()))
    plan = make_plan(NOWHERE, schema=schema)
    events: list[Event] = [("a", 9, 1, False), ("a", 0, 2, True), ("a", -5, 3, False)]
    assert only(drain(plan, batch(events, schema=schema))) == {
        "rows": [("a", 3)],
        "deletes": [],
        "earlier_deletes": [("a", 0)],
    }


def from_kafka(events: list[Event], tombstones: list[bool], offsets: list[int]) -> pa.RecordBatch:
    position = {"_lsm_topic": ["t"] * len(events), "_lsm_partition": [0] * len(events), "_lsm_offset": offsets}
    return batch(events, _lsm_tombstone=tombstones, **position)


def test_a_tombstone_right_after_its_delete_is_taken_in_and_says_nothing_new() -> None:
    events: list[Event] = [("a", 5, 1, True), ("a", None, 0, False), ("b", None, 0, False)]
    buffer = RecordBuffer(make_plan(NOWHERE))
    buffer.append(from_kafka(events, [False, True, True], [10, 11, 12]))
    assert only(handed_over(buffer)) == {"rows": [], "deletes": [("a", 5), ("b", None)], "earlier_deletes": []}
    assert (buffer.rows_in, buffer.rows_kept, buffer.rows_deleted) == (3, 0, 2)


@pytest.mark.parametrize("buffer_bytes", [1, 1 << 20])
def test_a_batch_of_nothing_but_answered_tombstones_leaves_nothing(buffer_bytes: int) -> None:
    buffer = RecordBuffer(make_plan(NOWHERE, buffer_bytes=buffer_bytes, open_deletes={"t/0": "a"}))
    buffer.append(from_kafka([("a", None, 0, False)], [True], [10]))
    assert handed_over(buffer) == []
    assert buffer.rows_in == 1


def test_a_tombstone_that_does_not_say_where_it_comes_from_deletes() -> None:
    events: list[Event] = [("a", 5, 1, True), ("a", None, 0, False)]
    found = only(drain(make_plan(NOWHERE), batch(events, _lsm_tombstone=[False, True])))
    assert found == {"rows": [], "deletes": [("a", None)], "earlier_deletes": []}


def test_a_tombstone_after_a_row_or_another_tombstone_deletes() -> None:
    events: list[Event] = [("a", 5, 1, False), ("a", None, 0, False), ("a", None, 0, False), ("a", 1, 2, False)]
    found = only(drain(make_plan(NOWHERE), from_kafka(events, [False, True, True, False], [1, 2, 3, 4])))
    assert found == {"rows": [("a", 2)], "deletes": [], "earlier_deletes": [("a", None)]}


def test_tombstones_answer_in_the_order_of_offsets_not_of_the_rows() -> None:
    plan = make_plan(NOWHERE, arrival_fields=("_lsm_offset",))
    events: list[Event] = [("a", None, 0, False), ("a", 5, 1, True)]
    found = only(drain(plan, from_kafka(events, [True, False], [11, 10])))
    assert found["deletes"] == [("a", 5)]


def test_control_columns_delete_and_are_not_stored() -> None:
    (group,) = drain(make_plan(NOWHERE), batch([("a", 1, 1, False), ("b", 2, 2, False)], _lsm_delete=[True, None]))
    assert group.rows.schema.equals(SCHEMA)
    assert only([group]) == {"rows": [("b", 2)], "deletes": [("a", 1)], "earlier_deletes": []}


def test_arrival_fields_order_the_events_of_a_key_over_batches() -> None:
    plan = make_plan(NOWHERE, event_time=False, arrival_fields=("_lsm_partition", "_lsm_offset"))
    first = batch([("a", 1, 1, False), ("a", 1, 2, False)], _lsm_partition=[1, 0], _lsm_offset=[5, 9])
    second = batch([("a", 1, 3, False), ("a", 1, 4, False)], _lsm_partition=[1, 1], _lsm_offset=[7, 6])
    assert only(drain(plan, first, second))["rows"] == [("a", 3)]
    repeated = make_plan(NOWHERE, combine=False, arrival_fields=plan.arrival_fields)
    assert only(drain(repeated, second, first))["rows"] == [("a", 2), ("a", 1), ("a", 4), ("a", 3)]


@pytest.mark.parametrize("column", [pa.array(["x"]), pa.array([None], pa.int64()), pa.array([1.5])], ids=str)
def test_an_arrival_column_that_cannot_order_is_refused_by_name(column: pa.Array) -> None:
    plan = make_plan(NOWHERE, arrival_fields=("seen",))
    with pytest.raises(SchemaError, match="'seen'"):
        drain(plan, batch([("a", 1, 1, False)], seen=column))
    with pytest.raises(SchemaError, match="'seen' is missing"):
        drain(plan, batch([("a", 1, 1, False)]))


def test_groups_come_by_partition_and_bucket_each_sorted() -> None:
    plan = make_plan(NOWHERE, partitioned=True, buckets=3)
    keys = [f"k{number:02d}" for number in range(30)]
    one = batch([(key, 1, place, False) for place, key in enumerate(keys[::-1])], part="x")
    other = batch([(key, 1, 100 + place, False) for place, key in enumerate(keys)], part="y")
    groups = drain(plan, one, other)
    expected = dict(zip(keys, bucket_ids(pa.array(keys), ("id",), ("id",), 3).tolist(), strict=True))
    assert [group.group for group in groups] == [(part, bucket) for part in "xy" for bucket in range(3)]
    for group in groups:
        part, bucket = group.group
        assert group.keys.to_pylist() == [key for key in keys if expected[key] == bucket]
        assert set(group.rows["part"].to_pylist()) == {part}
    assert sum(group.rows.num_rows for group in groups) == 60


def test_one_key_in_two_partitions_is_two_rows() -> None:
    plan = make_plan(NOWHERE, partitioned=True)
    groups = drain(plan, batch([("a", 1, 1, False)], part="x"), batch([("a", 9, 2, False)], part="y"))
    assert [(group.group[0], group.rows["value"].to_pylist()) for group in groups] == [("x", [1]), ("y", [2])]


def test_keys_are_sorted_by_their_bytes() -> None:
    keys = ["\U00020000", "\ue000", "b", "a\0", "a"]
    (group,) = drain(make_plan(NOWHERE), batch([(key, 1, 1, False) for key in keys]))
    assert group.keys.to_pylist() == ["a", "a\0", "b", "\ue000", "\U00020000"]


def test_a_delete_operation_needs_no_more_than_key_and_partition() -> None:
    schema = pa.schema([SCHEMA.field("id"), SCHEMA.field("part"), pa.field("value", pa.int32(), nullable=False)])
    plan = make_plan(NOWHERE, operation="delete", schema=schema, event_time=False, ordering=())
    keys = pa.record_batch({"id": ["b", "a", "b"], "part": ["p"] * 3})
    (group,) = drain(plan, keys)
    assert group.deletes.to_pylist() == [{"_hoodie_record_key": "a"}, {"_hoodie_record_key": "b"}]
    assert group.rows.num_rows == 0


@pytest.mark.parametrize("key", [None, ""], ids=["null", "empty"])
def test_a_row_without_key_is_refused_by_row_and_column(key: str | None) -> None:
    events = batch([("a", 1, 1, False)]).set_column(0, "id", pa.array([key], pa.string()))
    with pytest.raises(RecordError, match=r"row 0.*'id'"):
        drain(make_plan(NOWHERE), events)


def test_a_row_without_ordering_value_is_refused_by_key_and_column() -> None:
    with pytest.raises(RecordError, match=r"'ts' is null.*'bad'"):
        drain(make_plan(NOWHERE), batch([("a", 1, 1, False), ("bad", None, 1, False)]))


def test_a_null_in_a_required_column_is_refused_except_in_a_delete() -> None:
    schema = SCHEMA.set(3, pa.field("value", pa.int32(), nullable=False))
    plan = make_plan(NOWHERE, schema=schema)
    rows = batch([("a", 1, 1, True), ("bad", 1, 1, False)])
    nulls = rows.set_column(3, "value", pa.array([None, None], pa.int32()))
    with pytest.raises(RecordError, match=r"'value' is null.*'bad'"):
        drain(plan, nulls)
    assert only(drain(plan, nulls.slice(0, 1)))["deletes"] == [("a", 1)]


def test_a_delete_with_some_ordering_fields_is_refused() -> None:
    plan = make_plan(NOWHERE, ordering=("ts", "value"))
    rows = batch([("a", None, 1, True)])
    with pytest.raises(RecordError, match=r"'a'.*ts, value"):
        drain(plan, rows)
    assert drain(plan, rows.set_column(3, "value", pa.nulls(1, pa.int32())))[0].deletes.num_rows == 1


def test_a_missing_or_changed_column_is_refused_by_name() -> None:
    rows = batch([("a", 1, 1, False)])
    with pytest.raises(SchemaError, match="'value' is missing"):
        drain(make_plan(NOWHERE), rows.select(["id", "part", "ts", "gone"]))
    with pytest.raises(SchemaError, match="'value' has type string"):
        drain(make_plan(NOWHERE), rows.set_column(3, "value", pa.array(["1"])))


def test_a_drained_buffer_is_empty() -> None:
    buffer = RecordBuffer(make_plan(NOWHERE))
    buffer.append(batch([("a", 1, 1, False)]).slice(0, 0))
    assert handed_over(buffer) == []
    buffer.append(batch([("a", 1, 1, False)]))
    assert len(handed_over(buffer)) == 1
    assert handed_over(buffer) == []


events_of = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(-1, 2), st.integers(0, 999), st.booleans(), st.booleans()),
    min_size=1,
    max_size=25,
)


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=events_of, cut=st.integers(0, 25))
def test_what_is_handed_over_acts_as_the_events_do_on_any_older_row(
    drawn: list[tuple[str, int, int, bool, bool]], cut: int
) -> None:
    events: list[Event] = [(k, None if gone and bare else ts, v, gone) for k, ts, v, gone, bare in drawn]
    parts = [part for part in (events[:cut], events[cut:]) if part]
    (group,) = drain(make_plan(NOWHERE), *(batch(part) for part in parts))
    stored: list[Event] = [
        (row["_hoodie_record_key"], row["ts"], -1, True) for row in group.earlier_deletes.to_pylist()
    ]
    stored += [
        (key, ts, value, False)
        for key, ts, value in zip(
            group.keys.to_pylist(), group.rows["ts"].to_pylist(), group.rows["value"].to_pylist(), strict=True
        )
    ]
    stored += [(row["_hoodie_record_key"], row["ts"], -1, True) for row in group.deletes.to_pylist()]
    for key in "abc":
        for older in (None, -2, 0, 1, 5):
            start: list[Event] = [] if older is None else [(key, older, 12345, False)]
            assert _fold(start + events, key) == _fold(start + stored, key)


def _fold(events: list[Event], key: str) -> tuple[int | None, int] | None:
    state: Event | None = None
    for event in (event for event in events if event[0] == key):
        if state is not None and state[1] is not None and event[1] is not None and event[1] < state[1]:
            continue
        state = event
    return None if state is None or state[3] else (state[1], state[2])


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.string())])
def test_text_that_is_not_utf8_is_refused_by_column_and_key(kind: pa.DataType) -> None:
    schema = pa.schema([*SCHEMA, ("note", kind)])
    texts = pa.array([b"fine", b"\xffA", b"fine"], pa.binary()).view(pa.string())
    if kind != pa.string():
        texts = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), texts)
    rows = pa.table([*batch([(key, 1, 0, False) for key in "abc"]).columns, texts], schema=schema)
    buffer = RecordBuffer(make_plan(NOWHERE, schema=schema))
    with pytest.raises(RecordError, match=r"column 'note' .* not UTF-8 in the row with key 'b'"):
        buffer.append(rows.to_batches()[0])


def test_an_arrival_column_without_sign_is_refused_by_name() -> None:
    buffer = RecordBuffer(make_plan(NOWHERE, arrival_fields=("_lsm_row",)))
    with pytest.raises(SchemaError, match="'_lsm_row' is uint64"):
        buffer.append(batch([("a", 1, 0, False)], _lsm_row=pa.array([2**63], pa.uint64())))
