"""Columns that are dropped: no query shows them, older files keep them, and none of them comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import ConfigError, SchemaError
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.small_tables import create
from tests.unit.test_evolved_tables import OCC, act_before_commit, write_meanwhile

NOTE = pa.struct([("a", pa.int32()), ("b", pa.string())])
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("country", pa.string()),
        ("ts", pa.int64()),
        ("qty", pa.int32()),
        ("note", NOTE),
        ("notes", pa.list_(NOTE)),
        ("named", pa.map_(pa.string(), NOTE)),
    ]
)
KEPT = ["id", "country", "ts"]


def batch(keys: str, ts: int, *without: str) -> pa.Table:
    note = {"a": 1, "b": "x"}
    rows = [
        {"id": key, "country": "DE", "ts": ts, "qty": ts, "note": note, "notes": [note], "named": [("k", note)]}
        for key in keys
    ]
    return pa.Table.from_pylist(rows, SCHEMA).drop_columns(list(without))


def made(root: Path, **options: Any) -> LsmTable:
    table = create(root, SCHEMA, **options)
    table.bulk_insert(batch("ab", 1))
    table.upsert(batch("b", 2))
    return table


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
@pytest.mark.parametrize("version", [10, 9])
def test_no_query_shows_a_dropped_column_but_those_of_a_time_before(tmp_path: Path, kind: str, version: int) -> None:
    table = made(tmp_path, **{"hoodie.datasource.write.table.type": kind, "hoodie.write.table.version": version})
    before = table.timeline.completed_writes[-1].completed
    completed = table.drop_columns(["qty"])
    assert table.timeline.read_commit(completed).operation_type == "ALTER_SCHEMA"
    table.upsert(batch("c", 3, "qty"))
    left = [name for name in SCHEMA.names if name != "qty"]
    found = LsmTable(tmp_path).scan().to_arrow().sort_by("id")
    assert found.column_names == left
    assert found.select(["id", "ts"]).to_pylist() == [{"id": "a", "ts": 1}, {"id": "b", "ts": 2}, {"id": "c", "ts": 3}]
    assert table.scan(as_of=before).to_arrow().sort_by("id")["qty"].to_pylist() == [1, 2]
    assert table.incremental("000").to_arrow().column_names == left
    assert table.lookup(["a"]).column_names == left
    assert "qty" not in table.changes("000").to_arrow().schema.field("after").type.names
    with pytest.raises(SchemaError, match="qty"):
        table.scan(["qty"])


def test_fields_inside_columns_are_dropped(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.drop_columns(["note.b", "notes.element.a", "named.value.b"])
    table.compact()
    assert table.get("a", ["note", "notes", "named"]) == {
        "note": {"a": 1}, "notes": [{"b": "x"}], "named": [("k", {"a": 1})],
    }  # fmt: skip
    with pytest.raises(SchemaError, match=r"'note\.b' was dropped"):
        table.upsert(batch("a", 3))


def test_a_compaction_leaves_the_values_out(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.drop_columns("qty")
    assert validate(tmp_path) == []
    compacted = table.compact()
    assert compacted is not None
    assert validate(tmp_path) == []
    assert "qty" not in read_snapshot(tmp_path).column_names
    (stat, *_) = table.timeline.read_commit(compacted).stats
    assert "qty" not in pq.read_schema(tmp_path / stat.path).names


def test_a_dropped_column_is_not_added_again_however_many_writes_follow(tmp_path: Path) -> None:
    table = made(tmp_path, **{"hoodie.clean.automatic": False})
    dropped = table.drop_columns(["qty"])
    for ts in range(3, 40):
        table.upsert(batch("c", ts, "qty"))
    assert table.timeline.is_archived(dropped.requested)
    with pytest.raises(
        SchemaError, match="'qty' was dropped or renamed, and older files still have values under its name"
    ):
        LsmTable(tmp_path, table.options).upsert(batch("c", 50))
    ignoring = LsmTable(tmp_path, {"lsm.schema.evolution": "ignore"})
    ignoring.upsert(batch("c", 50))
    assert "qty" not in LsmTable(tmp_path).schema.names


def test_a_write_with_the_column_that_began_before_the_drop_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = made(tmp_path, **OCC)
    other = LsmTable(tmp_path, one.options)
    write_meanwhile(one, lambda: other.drop_columns(["qty"]), monkeypatch)
    with pytest.raises(SchemaError, match="'qty' was dropped"):
        one.upsert(batch("a", 3))
    assert "qty" not in LsmTable(tmp_path).schema.names
    write_meanwhile(one, lambda: other.drop_columns(["note"]), monkeypatch)
    one.delete(pa.table({"id": ["a"], "country": ["DE"]}))
    found = LsmTable(tmp_path).scan().to_arrow()
    assert (found["id"].to_pylist(), found.column_names) == (["b"], [*KEPT, "notes", "named"])


def test_a_column_that_another_writer_adds_during_the_drop_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = made(tmp_path, **OCC)
    other = LsmTable(tmp_path, one.options)
    act_before_commit(one, lambda: other.upsert(batch("c", 3).append_column("new", pa.array(["x"]))), monkeypatch)
    one.drop_columns(["qty"])
    assert LsmTable(tmp_path).schema.names == [*KEPT, "note", "notes", "named", "new"]


def test_a_rollback_brings_the_column_back(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.drop_columns(["qty"])
    table.rollback()
    table.upsert(batch("c", 3))
    assert table.scan(["qty"]).to_arrow()["qty"].to_pylist().count(None) == 0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["id"], "'id' cannot be dropped: the record key, partition path, order or deletes"),
        (["country"], "'country' cannot be dropped"),
        (["ts"], "'ts' cannot be dropped"),
        (["qty", "other"], "'other' is not in the table"),
        (["note.c"], r"'note\.c' is not in the table"),
        (["note.a", "note.b"], "all fields of 'note' would be dropped"),
    ],
)
def test_columns_that_the_table_needs_or_lacks_are_refused(tmp_path: Path, columns: list[str], message: str) -> None:
    table = made(tmp_path)
    with pytest.raises(SchemaError, match=message):
        table.drop_columns(columns)
    assert LsmTable(tmp_path).schema == SCHEMA
    assert not table.timeline.pending


def test_no_name_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give one at least"):
        made(tmp_path).drop_columns([])


def test_a_dropped_name_is_refused_in_any_case(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.drop_columns(["qty", "note.a"])
    other = batch("c", 3).drop_columns(["qty", "note"]).append_column("note", pa.array([{"b": "x"}]))
    for name, column in (("QTY", pa.array([1])), ("note", pa.array([{"A": 1, "b": "x"}]))):
        rows = other if name != "note" else other.drop_columns(["note"])
        with pytest.raises(SchemaError, match=r"was dropped or renamed, and older files still have values"):
            table.upsert(rows.append_column(name, column))


def test_a_column_and_its_fields_are_dropped_at_once(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.drop_columns(["note", "note.a"])
    assert "note" not in table.schema.names
