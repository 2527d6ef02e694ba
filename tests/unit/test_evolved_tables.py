"""Tables whose columns change: two writers at once, the archived past, compactions, deletes, ignored columns."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from streaming_lsm import Instant, LsmTable
from streaming_lsm.errors import SchemaError
from tests.support.small_tables import SCHEMA, create, rows

OCC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}


def with_column(batch: pa.Table, name: str, values: pa.Array | list[Any]) -> pa.Table:
    column = values if isinstance(values, pa.Array) else pa.array(values)
    place = batch.schema.get_field_index(name)
    return batch.append_column(name, column) if place < 0 else batch.set_column(place, name, column)


def write_meanwhile(table: LsmTable, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `act` happen once between the begin of the table's next write and its commit."""
    write, pending = table._write_here, [act]

    def paused(*given: Any) -> Instant:
        while pending:
            pending.pop()()
        return write(*given)

    monkeypatch.setattr(table, "_write_here", paused)


def act_before_commit(table: LsmTable, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `act` happen once between the tasks of the table's next write and its commit."""
    commit, pending = table.commit, [act]

    def late(*given: Any, **more: Any) -> Any:
        while pending:
            pending.pop()()
        return commit(*given, **more)

    monkeypatch.setattr(table, "commit", late)


def test_columns_that_two_writers_add_at_once_are_both_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = create(tmp_path, **OCC)
    one.upsert(rows(("a", "DE", 1, 1), ("b", "FR", 1, 1)))
    other = LsmTable(tmp_path, one.options)
    theirs = with_column(with_column(rows(("b", "FR", 2, 2)), "there", ["x"]), "qty", pa.array([2**40]))
    write_meanwhile(one, lambda: other.upsert(theirs), monkeypatch)
    one.upsert(with_column(rows(("a", "DE", 2, 2)), "here", [7]))
    found = LsmTable(tmp_path).scan(["id", "qty", "here", "there"]).to_arrow()
    assert found.sort_by("id").to_pylist() == [
        {"id": "a", "qty": 2, "here": 7, "there": None},
        {"id": "b", "qty": 2**40, "here": None, "there": "x"},
    ]
    other.upsert(rows(("c", "FR", 3, 3)).append_column("there", pa.array(["y"])).append_column("here", pa.array([8])))
    assert LsmTable(tmp_path).schema.names == [*SCHEMA.names, "there", "here"]


def test_a_write_whose_column_contradicts_one_that_was_added_meanwhile_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = create(tmp_path, **OCC)
    one.upsert(rows(("a", "DE", 1, 1)))
    other = LsmTable(tmp_path, one.options)
    theirs = with_column(rows(("b", "FR", 2, 2)), "more", [{"x": 1}])
    write_meanwhile(one, lambda: other.upsert(theirs), monkeypatch)
    with pytest.raises(SchemaError, match=r"'more' has type int64, the table has struct"):
        one.upsert(with_column(rows(("a", "DE", 2, 2)), "more", [7]))
    assert sorted(LsmTable(tmp_path).scan(["id", "ts"]).to_arrow()["ts"].to_pylist()) == [1, 2]


def test_columns_that_are_added_during_a_compaction_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(tmp_path)
    for ts in range(1, 4):
        table.upsert(rows(("a", "DE", ts, ts)))
    other = LsmTable(tmp_path, table.options)
    engine_map, pending = table._engine.map, [with_column(rows(("a", "DE", 9, 9)), "new", ["x"])]

    def paused(*given: Any) -> Any:
        while pending:
            other.upsert(pending.pop())
        return engine_map(*given)

    monkeypatch.setattr(type(table._engine), "map", lambda _, *given: paused(*given))
    assert table.compact() is not None
    monkeypatch.undo()
    found = LsmTable(tmp_path)
    assert found.timeline.newest_first().__next__().action == "commit"
    assert found.scan(["ts", "new"]).to_arrow().to_pylist() == [{"ts": 9, "new": "x"}]


def test_a_time_whose_writes_are_archived_has_the_columns_of_then(tmp_path: Path) -> None:
    table = create(tmp_path, **{"hoodie.clean.automatic": False})
    table.upsert(rows(("a", "DE", 1, 1)))
    wider = with_column(with_column(rows(("b", "DE", 2, 2)), "new", ["x"]), "qty", pa.array([2**40]))
    then = table.upsert(wider)
    assert then is not None
    for ts in range(3, 24):
        later = with_column(with_column(rows(("c", "FR", ts, 1)), "new", ["y"]), "later", [1])
        table.upsert(later)
    assert table.timeline.is_archived(then.requested)
    found = table.scan(as_of=then.requested).to_arrow().sort_by("id")
    assert found.column_names == [*SCHEMA.names, "new"]
    assert found.select(["id", "qty", "new"]).to_pylist() == [
        {"id": "a", "qty": 1, "new": None},
        {"id": "b", "qty": 2**40, "new": "x"},
    ]


@pytest.mark.parametrize("layout", ["lsm_tree", "default"])
def test_a_delete_without_ordering_value_stays_one_when_the_ordering_column_is_widened(
    tmp_path: Path, layout: str
) -> None:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int32())])
    options = {"hoodie.datasource.write.partitionpath.field": None, "hoodie.table.storage.layout": layout}
    table = create(tmp_path, schema, **options)
    table.upsert(pa.table({"id": ["a", "b"], "ts": [5, 5]}, schema=schema))
    table.delete(pa.table({"id": ["a"], "ts": [0]}, schema=schema))
    assert table.scan().to_arrow().to_pylist() == [{"id": "b", "ts": 5}]
    table.upsert(pa.table({"id": ["c"], "ts": [2**40]}))
    for _ in range(2):
        assert sorted(LsmTable(tmp_path).scan(["id"]).to_arrow()["id"].to_pylist()) == ["b", "c"]
        table.compact()


def test_records_compare_by_a_widened_ordering_column(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int32()), ("v", pa.int32())])
    table = create(tmp_path, schema, **{"hoodie.datasource.write.partitionpath.field": None})
    table.upsert(pa.table({"id": ["a", "b"], "ts": [2**31 - 1, -1], "v": [1, 1]}, schema=schema))
    table.upsert(pa.table({"id": ["a", "b"], "ts": [2**31 - 2, 0], "v": pa.array([2, 2], pa.int32())}))
    assert table.scan(["id", "v"]).to_arrow().sort_by("id")["v"].to_pylist() == [1, 2]
    with pytest.raises(SchemaError, match="column of the ordering"):
        table.upsert(pa.table({"id": ["a"], "ts": ["3"], "v": pa.array([3], pa.int32())}))


def test_row_groups_of_older_columns_are_not_copied_into_a_compacted_file(tmp_path: Path) -> None:
    options = {
        "hoodie.datasource.write.partitionpath.field": None,
        "hoodie.bucket.index.num.buckets": 1,
        "lsm.parquet.row.group.rows": 10,
    }
    table = create(tmp_path, SCHEMA, **options)
    table.bulk_insert(rows(*((f"k{number:03d}", "DE", 1, number) for number in range(60))))
    table.upsert(with_column(rows(("k000", "DE", 2, 7)), "new", ["x"]))
    before = table.scan().to_arrow().sort_by("id")
    table.compact()
    (found,) = table.file_slices()
    assert found.base is not None
    assert "new" in pq.read_schema(tmp_path / found.base.path).names
    assert table.scan().to_arrow().sort_by("id").equals(before)


def test_no_row_is_pruned_by_statistics_of_the_narrower_type(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.bulk_insert(rows(("a", "DE", 1, 9), ("b", "DE", 1, 10)))
    table.upsert(with_column(rows(("c", "DE", 2, 0)), "qty", ["95"]))
    found = table.scan(["id"], filter=pc.field("qty") > "89").to_arrow()
    assert sorted(found["id"].to_pylist()) == ["a", "c"]
    assert [row["id"] for row in table.scan(filter=pc.field("qty") == "10").to_arrow().to_pylist()] == ["b"]


def test_incremental_and_change_queries_have_the_newest_columns(tmp_path: Path) -> None:
    table = create(tmp_path)
    first = table.upsert(rows(("a", "DE", 1, 1)))
    table.upsert(with_column(rows(("a", "DE", 2, 2)), "new", ["x"]))
    assert first is not None
    (row,) = table.incremental("000", None).to_arrow().to_pylist()
    assert (row["qty"], row["new"]) == (2, "x")
    changes = table.changes("000", None).to_arrow().to_pylist()
    assert [(change["before"] or {}).get("new") for change in changes] == [None, None]
    assert changes[-1]["after"]["new"] == "x"


def test_ignored_columns_are_counted_named_once_and_not_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = create(tmp_path, **{"lsm.schema.evolution": "ignore"})
    more = with_column(rows(("a", "DE", 1, 1), ("b", "FR", 1, 2)), "new", ["x", None])
    with caplog.at_level(logging.WARNING):
        table.upsert(with_column(more, "_hoodie_commit_time", ["1", "2"]))
        table.upsert(pa.RecordBatchReader.from_batches(more.schema, more.to_batches()))
    assert table.last_numbers is not None
    assert table.last_numbers.unknown_fields == {"new": 1}
    assert LsmTable(tmp_path).schema.names == SCHEMA.names
    assert sum("no column for them: new" in record.getMessage() for record in caplog.records) == 1


def test_nulls_relax_a_required_column_and_rows_without_nulls_do_not(tmp_path: Path) -> None:
    schema = SCHEMA.set(3, pa.field("qty", pa.int32(), nullable=False))
    table = create(tmp_path, schema)
    table.upsert(rows(("a", "DE", 1, 1)))
    assert not LsmTable(tmp_path).schema.field("qty").nullable
    deleting = pa.table({"id": ["a"], "country": ["DE"], "ts": [2], "qty": pa.nulls(1, pa.int32())})
    table.upsert(deleting.append_column("_hoodie_is_deleted", pa.array([True])))
    assert not LsmTable(tmp_path).schema.field("qty").nullable
    table.upsert(with_column(rows(("b", "DE", 3, 1)), "qty", pa.nulls(1, pa.int32())))
    assert LsmTable(tmp_path).schema.field("qty").nullable
    assert table.scan(["id", "qty"]).to_arrow().to_pylist() == [{"id": "b", "qty": None}]


def test_a_widened_record_key_finds_the_rows_that_were_stored_before(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int32()), ("ts", pa.int64())])
    table = create(tmp_path, schema, **{"hoodie.datasource.write.partitionpath.field": None})
    table.upsert(pa.table({"id": [1, 2], "ts": [1, 1]}, schema=schema))
    table.upsert(pa.table({"id": [1, 2**40], "ts": [2, 2]}))
    table.upsert(pa.table({"id": ["2", "x"], "ts": [3, 3]}))
    found = LsmTable(tmp_path).scan().to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": "1", "ts": 2}, {"id": str(2**40), "ts": 2}, {"id": "2", "ts": 3}, {"id": "x", "ts": 3}]
    for key, ts in (("1", 2), ("2", 3)):
        assert table.scan(filter=pc.field("id") == key).to_arrow()["ts"].to_pylist() == [ts]
