"""Events that could not be read fail the batch or go to their folder, never to the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm.errors import Fenced, RecordError
from streaming_lsm.format.table.file_names import WriteToken
from streaming_lsm.keys.generator import KeyGenerator
from streaming_lsm.lock.heartbeat import heartbeat_path
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.write.intake import dead_letters
from streaming_lsm.write.intake.dead_letters import _values, batch_folder, count_letters
from streaming_lsm.write.partition_writer import write_partition
from streaming_lsm.write.plan import DeadLetters, WritePlan
from streaming_lsm.write.shuffle.exchange import RunSender
from tests.support.plans import SCHEMA, make_plan, open_instant
from tests.support.writers import files_below

REASON = "not JSON"


def events(*, bad: list[bool]) -> pa.RecordBatch:
    count = len(bad)
    rows = pa.record_batch(
        [
            [None if is_bad else f"k{place}" for place, is_bad in enumerate(bad)],
            ["p"] * count,
            [None if is_bad else 1 for is_bad in bad],
            [1] * count,
            [False] * count,
        ],
        schema=SCHEMA,
    )
    control = {
        "_lsm_bad": pa.array([REASON if is_bad else None for is_bad in bad], pa.string()),
        "_lsm_topic": pa.array(["orders"] * count),
        "_lsm_partition": pa.array([4] * count, pa.int32()),
        "_lsm_offset": pa.array([100 + place for place in range(count)]),
        "_lsm_payload": pa.array([b"\xff{"] * count),
    }
    for name, values in control.items():
        rows = rows.append_column(name, values)
    return rows


def plan_with_folder(
    tmp_path: Path, *, partitioned: bool = False, open_deletes: Mapping[str, str] | None = None
) -> tuple[WritePlan, Path]:
    folder = tmp_path / "letters"
    folder.mkdir()
    letters = DeadLetters(LocalStorage(folder), batch_folder("query", 7))
    others = {"dead_letters": letters, "open_deletes": open_deletes or {}}
    return open_instant(make_plan(tmp_path / "table", partitioned=partitioned, **others)), folder


def with_values(batch: pa.RecordBatch, **columns: list[object]) -> pa.RecordBatch:
    for name, values in columns.items():
        place = batch.schema.get_field_index(name)
        batch = batch.set_column(place, batch.schema.field(place), pa.array(values, batch.schema.field(place).type))
    return batch


def unplaced_tombstone(key: str, offset: int) -> pa.RecordBatch:
    batch = with_values(events(bad=[True]), id=[key], _lsm_offset=[offset], _lsm_payload=[None])
    return batch.append_column("_lsm_tombstone", pa.array([True]))


def test_a_bad_event_fails_the_batch_and_names_where_it_is(tmp_path: Path) -> None:
    plan = open_instant(make_plan(tmp_path))
    before = files_below(tmp_path)
    with pytest.raises(RecordError, match=r"'orders', partition 4, offset 101: not JSON; payload b'\\xff{'"):
        write_partition(plan, [events(bad=[False, True])], WriteToken(0, 0, 0))
    assert files_below(tmp_path) == before


def test_bad_events_go_to_the_folder_and_the_others_to_the_table(tmp_path: Path) -> None:
    plan, folder = plan_with_folder(tmp_path)
    (stat,) = write_partition(plan, [events(bad=[False, True, False]), events(bad=[True])], WriteToken(5, 0, 0)).stats
    rows = pq.read_table(tmp_path / "table" / stat.path)
    assert rows["_hoodie_record_key"].to_pylist() == ["k0", "k2"]
    assert not [name for name in rows.schema.names if name.startswith("_lsm_")]
    letters = pq.read_table(folder / "query/batch-7/part-00005.parquet").to_pylist()
    assert letters == [
        {"topic": "orders", "partition": 4, "offset": offset, "reason": REASON, "payload": b"\xff{"}
        for offset in (101, 100)
    ]


def test_a_second_attempt_replaces_the_letters_of_the_first(tmp_path: Path) -> None:
    plan, folder = plan_with_folder(tmp_path)
    for attempt in range(2):
        assert write_partition(plan, [events(bad=[True])], WriteToken(0, 0, attempt)).stats == ()
    assert files_below(folder) == {"query/batch-7/part-00000.parquet"}
    assert pq.read_table(folder / "query/batch-7").num_rows == 1


@pytest.mark.parametrize("most_bytes", [1, 8 << 20], ids=["many", "few"])
@pytest.mark.parametrize("stages", [1, 2])
def test_a_late_task_leaves_the_letters_of_a_later_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stages: int, most_bytes: int
) -> None:
    """The later attempt at the batch has read the source in other parts."""
    plan, folder = plan_with_folder(tmp_path)
    write_partition(plan, [events(bad=[True] * 3)], WriteToken(0, 0, 0))
    plan.storage.delete(heartbeat_path(plan.instant))
    monkeypatch.setattr(dead_letters, "_FILE_BYTES", most_bytes)

    def late() -> object:
        late_events = [events(bad=[True])]
        if stages == 1:
            return write_partition(plan, late_events, WriteToken(0, 0, 1))
        return list(RunSender(plan, 1, 0).send(late_events))

    with pytest.raises(Fenced):
        late()
    assert pq.read_table(folder / "query/batch-7")["offset"].to_pylist() == [100, 101, 102]


def test_without_bad_events_there_is_no_folder(tmp_path: Path) -> None:
    plan, folder = plan_with_folder(tmp_path)
    assert len(write_partition(plan, [events(bad=[False])], WriteToken(0, 0, 0)).stats) == 1
    assert files_below(folder) == set()


def test_events_without_position_are_kept_all_the_same(tmp_path: Path) -> None:
    plan, folder = plan_with_folder(tmp_path)
    bare = events(bad=[True]).select([*SCHEMA.names, "_lsm_bad"])
    write_partition(plan, [bare], WriteToken(0, 0, 0))
    (letter,) = pq.read_table(folder / "query/batch-7").to_pylist()
    assert letter == {"topic": None, "partition": None, "offset": None, "reason": REASON, "payload": None}


def test_rows_whose_key_or_partition_has_no_place_are_set_aside_with_their_values(tmp_path: Path) -> None:
    plan, folder = plan_with_folder(tmp_path, partitioned=True)
    batch = with_values(
        events(bad=[False] * 5),
        id=["k0", "", "k2", "k3", "k4"], part=["p", "p", "../x", "p", "y" * 256], _lsm_payload=[None] * 5,
    )  # fmt: skip
    (stat,) = write_partition(plan, [batch], WriteToken(0, 0, 0)).stats
    assert pq.read_table(tmp_path / "table" / stat.path)["_hoodie_record_key"].to_pylist() == ["k0", "k3"]
    letters = {row["offset"]: row for row in pq.read_table(folder / "query/batch-7").to_pylist()}
    assert letters.keys() == {101, 102, 104}
    assert letters[101]["reason"].startswith("no record key: column 'id' is ''")
    assert letters[102]["reason"].startswith("partition column 'part': '../x' cannot be a partition path: its segment")
    assert "a segment of more than 255 bytes" in letters[104]["reason"]
    assert letters[102]["payload"] == b'{"id": "k2", "part": "../x", "ts": 1, "value": 1, "gone": false}'
    assert count_letters(DeadLetters(LocalStorage(folder), batch_folder("query", 7))) == 3


def test_a_row_without_a_place_fails_the_batch_by_the_name_of_its_event(tmp_path: Path) -> None:
    plan = open_instant(make_plan(tmp_path, partitioned=True))
    batch = with_values(events(bad=[False] * 2), part=["p", ".hoodie"])
    with pytest.raises(RecordError, match=r"'orders', partition 4, offset 101: partition column 'part': '\.hoodie'"):
        write_partition(plan, [batch], WriteToken(0, 0, 0))


def test_an_unplaced_tombstone_of_the_last_deleted_key_is_dropped(tmp_path: Path) -> None:
    plan, folder = plan_with_folder(tmp_path, partitioned=True, open_deletes={"orders/4": "k9"})
    assert write_partition(plan, [unplaced_tombstone("k9", 100)], WriteToken(0, 0, 0)).stats == ()
    assert files_below(folder) == set()


@pytest.mark.parametrize("before", [{}, {"orders/4": "other"}, {"orders/3": "k9"}])
def test_an_unplaced_tombstone_on_its_own_is_a_dead_letter(tmp_path: Path, before: dict[str, str]) -> None:
    plan, folder = plan_with_folder(tmp_path, partitioned=True, open_deletes=before)
    write_partition(plan, [unplaced_tombstone("k9", 100)], WriteToken(0, 0, 0))
    (letter,) = pq.read_table(folder / "query/batch-7").to_pylist()
    assert (letter["offset"], letter["reason"]) == (100, REASON)


def test_a_tombstone_that_was_read_and_has_no_key_is_a_dead_letter(tmp_path: Path) -> None:
    plan, folder = plan_with_folder(tmp_path, open_deletes={"orders/4": "k9"})
    batch = with_values(unplaced_tombstone("k9", 100), id=[None], _lsm_bad=[None])
    write_partition(plan, [batch], WriteToken(0, 0, 0))
    assert pq.read_table(folder / "query/batch-7").num_rows == 1


def test_an_unplaced_tombstone_on_its_own_fails_a_batch_without_a_folder(tmp_path: Path) -> None:
    plan = open_instant(make_plan(tmp_path, partitioned=True, open_deletes={"orders/4": "other"}))
    with pytest.raises(RecordError, match=f"offset 100: {REASON}"):
        write_partition(plan, [unplaced_tombstone("k9", 100)], WriteToken(0, 0, 0))


def test_no_letters_are_counted_where_there_is_no_folder(tmp_path: Path) -> None:
    assert count_letters(DeadLetters(LocalStorage(tmp_path), batch_folder("query", 7))) == 0


def test_a_row_without_a_place_is_set_aside_whatever_its_other_columns_hold() -> None:
    far = pa.array([316516204800000000], pa.int64()).cast(pa.timestamp("us", "UTC"))
    shown = _values(far) + _values(pa.array([10_000_000], pa.int32()).cast(pa.date32()))
    assert all(isinstance(value, str) for value in shown)


def test_many_letters_go_to_several_files_and_a_shorter_attempt_leaves_none_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_FILE_BYTES", 1)
    plan, folder = plan_with_folder(tmp_path)
    for batches in (3, 2):
        write_partition(plan, [events(bad=[True, True])] * batches, WriteToken(1, 0, batches))
        names = ["part-00001.parquet", "part-00001-1.parquet", "part-00001-2.parquet"][:batches]
        assert files_below(folder) == {f"query/batch-7/{name}" for name in names}
        assert pq.read_table(folder / "query/batch-7").num_rows == 2 * batches


def test_an_event_with_an_ambiguous_key_goes_to_the_dead_letters_or_fails_the_batch(tmp_path: Path) -> None:
    plan, folder = plan_with_folder(tmp_path, partitioned=True)
    keys = KeyGenerator.from_config("COMPLEX", ["id", "part"], [("part", "SIMPLE")], ambiguous="refuse")
    plan = replace(plan, keys=keys)
    batch = with_values(events(bad=[False] * 3), id=["a", "b,part:c", "d"])
    written = write_partition(plan, [batch], WriteToken(0, 0, 0))
    assert written.numbers.rows_kept == 2
    (letter,) = pq.read_table(next(folder.rglob("*.parquet"))).to_pylist()
    assert letter["offset"] == 101
    assert letter["reason"].startswith("key column 'id': 'b,part:c' makes the record key")
    with pytest.raises(RecordError, match=r"offset 101: key column 'id': 'b,part:c'"):
        write_partition(replace(plan, dead_letters=None), [batch], WriteToken(1, 0, 0))
