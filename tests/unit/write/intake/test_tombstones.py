"""A tombstone behind its Debezium delete is no delete of its own, wherever the batches are cut."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.write.intake.tombstones import LastEvent, newest_events, open_deletes, repeated_tombstones
from tests.oracle.reader import read_snapshot

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
EVENTS = pa.schema(
    [
        *SCHEMA,
        ("_lsm_delete", pa.bool_()),
        ("_lsm_tombstone", pa.bool_()),
        ("_lsm_topic", pa.string()),
        ("_lsm_partition", pa.int32()),
        ("_lsm_offset", pa.int64()),
    ]
)
# (key, ordering value, kind) at offsets 0, 1, 2, …: the delete with ts 3 is older than the row with ts 9.
LATE_DELETE = [("a", 9, "row"), ("b", 1, "row"), ("a", 3, "delete"), ("a", None, "tombstone"), ("b", 2, "row")]
LONE_TOMBSTONE = [("a", 9, "row"), ("b", 5, "delete"), ("a", None, "tombstone"), ("b", 4, "row")]
PARTED = [("a", 39, "row"), ("a", 20, "delete"), ("b", 1, "row"), ("a", None, "tombstone")]
PARTED_BY_A_KEY_OF_THE_SAME_TASK = [(key.replace("b", "c"), ts, kind) for key, ts, kind in PARTED]
TWO_TOMBSTONES = [("a", 9, "row"), ("a", 3, "delete"), ("a", None, "tombstone"), ("a", None, "tombstone")]


def events(found: list[tuple[str, int | None, str]], first: int) -> pa.Table:
    return pa.table(
        {
            "id": [key for key, _, _ in found],
            "ts": [ts for _, ts, _ in found],
            "_lsm_delete": [kind != "row" for *_, kind in found],
            "_lsm_tombstone": [kind == "tombstone" for *_, kind in found],
            "_lsm_topic": ["orders"] * len(found),
            "_lsm_partition": [0] * len(found),
            "_lsm_offset": list(range(first, first + len(found))),
        },
        schema=EVENTS,
    )


@pytest.mark.parametrize("cuts", [[], [1], [2], [3], [4], [3, 4], [1, 2, 3, 4]], ids=str)
@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (LATE_DELETE, {"a": 9, "b": 2}),
        (LONE_TOMBSTONE, {}),
        (TWO_TOMBSTONES, {}),
        (PARTED, {"b": 1}),
        (PARTED_BY_A_KEY_OF_THE_SAME_TASK, {"c": 1}),
    ],
    ids=["late-delete", "lone-tombstone", "two-tombstones", "parted", "parted-by-a-key-of-the-same-task"],
)
def test_the_rows_do_not_depend_on_where_batches_are_cut(
    stream: list[tuple[str, int | None, str]], expected: dict[str, int], cuts: list[int], tmp_path: Path
) -> None:
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.bucket.index.num.buckets": 2,
        "lsm.write.arrival.fields": "_lsm_partition,_lsm_offset",
        "lsm.writer.id": "query",
    }
    table = LsmTable.create(tmp_path / "t", SCHEMA, options)
    bounds = [0, *cuts, len(stream)]
    for batch_id, (begin, end) in enumerate(itertools.pairwise(bounds)):
        table.upsert(events(stream[begin:end], begin), batch_id=batch_id)
    for rows in (table.scan().to_arrow(), read_snapshot(tmp_path / "t")):
        assert {row["id"]: row["ts"] for row in rows.to_pylist()} == expected


@pytest.mark.parametrize(
    ("before", "offset", "expected"),
    [
        (LastEvent(6, "a"), 7, True),
        (LastEvent(-1, "a"), 7, True),
        (LastEvent(8, "a"), 7, False),
        (LastEvent(6, "b"), 7, False),
        (LastEvent(6, None), 7, False),
    ],
    ids=["right-after", "offset-unknown", "earlier", "other-key", "no-delete"],
)
def test_the_first_event_of_a_batch_is_answered_by_the_last_one_before(
    before: LastEvent, offset: int, expected: bool
) -> None:
    (batch,) = events([("a", None, "tombstone")], offset).to_batches()
    yes, no = np.ones(1, np.bool_), np.zeros(1, np.bool_)
    found, last = repeated_tombstones(batch, pa.array(["a"]), no, yes, {"orders/0": before})
    assert found.tolist() == [expected]
    assert last == {"orders/0": before if before.offset > offset else LastEvent(offset, None)}


def test_the_tombstone_of_a_very_long_key_is_found_in_the_next_batch_by_its_hash() -> None:
    no, yes = np.zeros(1, np.bool_), np.ones(1, np.bool_)
    (deleted,), (tombstone,) = (events([("a", None, "delete")], place).to_batches() for place in (0, 1))
    long, other = "k" * 5_000_000, "k" * 4_999_999 + "x"
    _, last = repeated_tombstones(deleted, pa.array([long]), yes, no, {})
    assert [len(event.deleted_key or "") for event in last.values()] == [71]
    assert [repeated_tombstones(tombstone, pa.array([key]), no, yes, last)[0][0] for key in (long, other)] == [1, 0]


def test_events_of_several_sources_are_answered_each_by_its_own() -> None:
    keys, kinds = ["a", "b", "a", "b"], ["delete", "delete", "tombstone", "tombstone"]
    (batch,) = events(list(zip(keys, [1, 1, None, None], kinds, strict=True)), 5).to_batches()
    place = batch.schema.get_field_index("_lsm_partition")
    deletes, tombstone = (np.array([kind == wanted for kind in kinds]) for wanted in ("delete", "tombstone"))
    split = batch.set_column(place, batch.schema.field(place), pa.array([0, 1, 0, 1], pa.int32()))
    for one, expected in ((split, [False, False, True, True]), (batch, [False] * 4)):
        found, last = repeated_tombstones(one, pa.array(keys), deletes, tombstone, {"other/9": LastEvent(3, "z")})
        assert found.tolist() == expected
        assert last["other/9"] == LastEvent(3, "z")
    assert last["orders/0"] == LastEvent(8, None)


def test_the_first_event_of_a_source_is_not_answered_by_the_last_one_of_another() -> None:
    (batch,) = events([("a", 1, "delete"), ("a", None, "tombstone")], 5).to_batches()
    place = batch.schema.get_field_index("_lsm_partition")
    split = batch.set_column(place, batch.schema.field(place), pa.array([0, 1], pa.int32()))
    deletes = np.array([True, False])
    assert repeated_tombstones(batch, pa.array(["a", "a"]), deletes, ~deletes, {})[0].tolist() == [False, True]
    assert not repeated_tombstones(split, pa.array(["a", "a"]), deletes, ~deletes, {})[0].any()


def test_the_last_event_of_a_source_is_the_one_with_the_largest_offset_over_all_tasks() -> None:
    tasks = [{"t/0": LastEvent(7, "a"), "t/1": LastEvent(3, "b")}, {"t/0": LastEvent(9, None)}]
    assert open_deletes({"t/0": "old", "t/2": "kept"}, tasks) == {"t/1": "b", "t/2": "kept"}


def test_the_newest_event_of_each_source_is_kept_over_batches_in_any_order() -> None:
    early, late, other = LastEvent(3, "a"), LastEvent(7, None), LastEvent(1, "b")
    assert newest_events({"t/0": early}, {"t/0": late, "t/1": other}) == {"t/0": late, "t/1": other}
    assert newest_events({"t/0": late}, {"t/0": early}) == {"t/0": late}


@pytest.mark.parametrize("column", ["_lsm_topic", "_lsm_partition", "_lsm_offset"])
def test_events_that_do_not_say_where_they_come_from_are_written_as_they_are(tmp_path: Path, column: str) -> None:
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id", "lsm.writer.id": "w"}
    table = LsmTable.create(tmp_path / "table", SCHEMA, {**options, "hoodie.bucket.index.num.buckets": 1})
    found = events([("a", 1, "row"), ("b", 2, "row"), ("a", 3, "delete")], 0)
    place = found.schema.get_field_index(column)
    nothing = pa.nulls(3, found.schema.field(place).type)
    table.upsert(found.set_column(place, found.schema.field(place), nothing), batch_id=0)
    assert table.scan().to_arrow()["id"].to_pylist() == ["b"]
