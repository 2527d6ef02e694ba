"""Columns that are renamed: every query finds their values under the names of the moment that it reads."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.cli.commands import main
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import CommitConflict, ConfigError, CorruptFileError, SchemaError, UnsupportedTable
from streaming_lsm.txn.transaction import Transaction
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.small_tables import create
from tests.unit.test_dropped_columns import KEPT, SCHEMA, batch, made
from tests.unit.test_evolved_tables import OCC, act_before_commit, write_meanwhile

NAMES = {"qty": "count", "note": "remark", "notes.element.b": "text", "named.value.a": "number"}
KINDS = pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
LAYOUTS = pytest.mark.parametrize(
    "layout",
    [
        {"hoodie.write.table.version": 10},
        {"hoodie.write.table.version": 10, "hoodie.table.storage.layout": "default"},
        {"hoodie.write.table.version": 9},
        {"hoodie.write.table.version": 9, "hoodie.logfile.data.block.format": "parquet"},
    ],
    ids=["lsm_tree", "default layout", "version 9", "version 9, parquet blocks"],
)


def renamed(rows: pa.Table) -> pa.Table:
    """The rows with the columns and fields of NAMES renamed."""
    found = [
        {
            **{name: row[name] for name in KEPT},
            "count": row["qty"],
            "remark": row["note"],
            "notes": row["notes"] and [{"a": one["a"], "text": one["b"]} for one in row["notes"]],
            "named": row["named"] and [(key, {"number": one["a"], "b": one["b"]}) for key, one in row["named"]],
        }
        for row in rows.to_pylist()
    ]
    return pa.Table.from_pylist(found, AFTER)


AFTER = pa.schema(
    [
        *(SCHEMA.field(name) for name in KEPT),
        ("count", pa.int32()),
        ("remark", SCHEMA.field("note").type),
        ("notes", pa.list_(pa.struct([("a", pa.int32()), ("text", pa.string())]))),
        ("named", pa.map_(pa.string(), pa.struct([("number", pa.int32()), ("b", pa.string())]))),
    ]
)


def listed(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: str(row["id"]))


def bases(table: LsmTable) -> list[Path]:
    found = table.scan().slices
    return [Path(table.path.removeprefix("file://")) / one.base.path for one in found if one.base is not None]


@KINDS
@LAYOUTS
def test_every_query_finds_the_values_under_the_new_names(tmp_path: Path, kind: str, layout: dict[str, object]) -> None:
    table = made(tmp_path, **layout, **{"hoodie.datasource.write.table.type": kind})
    before = table.timeline.completed_writes[-1].completed or ""
    completed = table.rename_columns(NAMES)
    assert table.timeline.read_commit(completed).operation_type == "ALTER_SCHEMA"
    table.upsert(renamed(batch("c", 3)))
    rows = listed(renamed(pa.concat_tables([batch("a", 1), batch("b", 2), batch("c", 3)])))
    for found in (table, LsmTable(tmp_path, table.options)):
        assert found.schema.names == AFTER.names
        assert listed(found.scan().to_arrow()) == rows
        assert listed(found.scan(["id", "count"], filter="count >= 2").to_arrow()) == [
            {"id": "b", "count": 2}, {"id": "c", "count": 3},
        ]  # fmt: skip
        assert listed(found.incremental("000").to_arrow()) == rows
        assert listed(found.lookup(["a", "c"])) == [rows[0], rows[2]]
        assert listed(found.scan(as_of=before).to_arrow()) == listed(pa.concat_tables([batch("a", 1), batch("b", 2)]))
        assert found.scan(filter="count = 1 and id = 'a'").count() == 1
    images = table.changes("000").to_arrow()["after"].to_pylist()
    shown = [{name: image[name] for name in AFTER.names} for image in images]
    expected = renamed(pa.concat_tables([batch("ab", 1), batch("b", 2), batch("c", 3)])).to_pylist()
    assert sorted(map(repr, shown)) == sorted(map(repr, expected))
    if kind == "MERGE_ON_READ":
        if layout["hoodie.write.table.version"] == 10:
            versions = table.history("b").to_pylist()
            assert [version["count"] for version in versions] == [1, 2]
        assert table.compact() is not None
        assert all("count" in pq.read_schema(path).names for path in bases(table))
    assert listed(LsmTable(tmp_path).scan().to_arrow()) == rows


def test_the_read_optimized_rows_have_the_new_names(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.rename_columns(NAMES)
    found = table.scan(query_type="read_optimized").to_arrow()
    assert listed(found) == listed(renamed(batch("ab", 1)))


def test_a_log_compaction_writes_the_new_names(tmp_path: Path) -> None:
    table = made(tmp_path, **{"hoodie.log.compaction.blocks.threshold": 2})
    table.upsert(batch("b", 3))
    table.rename_columns(NAMES)
    table.upsert(renamed(batch("b", 4)))
    done, _ = table.services.compact(LocalEngine(1), log=True)
    assert done is not None
    (stat, *_) = table.timeline.read_commit(done).stats
    assert pq.read_schema(tmp_path / stat.path).names[5:] == AFTER.names
    assert listed(LsmTable(tmp_path).scan().to_arrow()) == listed(
        renamed(pa.concat_tables([batch("a", 1), batch("b", 4)]))
    )


@pytest.mark.parametrize("mode", ["OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER"])
@KINDS
@pytest.mark.parametrize("version", [10, 9])
def test_changes_that_were_recorded_before_have_the_new_names(
    tmp_path: Path, kind: str, mode: str, version: int
) -> None:
    table = made(
        tmp_path,
        **{
            "hoodie.datasource.write.table.type": kind,
            "hoodie.write.table.version": version,
            "hoodie.table.cdc.enabled": True,
            "hoodie.table.cdc.supplemental.logging.mode": mode,
        },
    )
    if kind == "MERGE_ON_READ":
        table.compact()
    table.rename_columns(NAMES)
    table.upsert(renamed(batch("b", 3)))
    if kind == "MERGE_ON_READ":
        table.compact()
    images = [
        (
            change["op"],
            *(
                (side and side["count"], side and side["notes"][0]["text"])
                for side in (change["before"], change["after"])
            ),
        )
        for change in table.changes("000").to_arrow().to_pylist()
    ]
    assert sorted(images, key=str) == [
        ("i", (None, None), (1, "x")), ("i", (None, None), (1, "x")),
        ("u", (1, "x"), (2, "x")), ("u", (2, "x"), (3, "x")),
    ]  # fmt: skip


@pytest.mark.parametrize("mode", ["IGNORE_DEFAULTS", "FILL_UNAVAILABLE"])
@pytest.mark.parametrize("version", [10, 9])
def test_partial_rows_fill_the_values_of_before(tmp_path: Path, version: int, mode: str) -> None:
    table = made(tmp_path, **{"hoodie.write.table.version": version, "hoodie.table.partial.update.mode": mode})
    table.rename_columns({"qty": "count"})
    missing = None if mode == "IGNORE_DEFAULTS" else "__HUDI_DEFAULT__"
    rows = batch("b", 3).drop_columns(["note", "notes", "named"]).rename_columns([*KEPT, "count"])
    null = {**dict.fromkeys(("note", "notes", "named")), **({"count": None} if missing is None else {})}
    full = pa.Table.from_pylist([{**row, **null} for row in rows.to_pylist()], table.schema)
    table.upsert(full)
    (found,) = table.scan(["count"], filter="id = 'b'").to_arrow().to_pylist()
    assert found == {"count": 2 if missing is None else 3}
    table.compact()
    assert table.scan(["count"], filter="id = 'b'").to_arrow().to_pylist() == [found]


def test_row_groups_with_the_old_names_are_not_copied(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("country", pa.string()), ("ts", pa.int64()), ("qty", pa.int32())])
    table = create(tmp_path, schema, **{"lsm.parquet.row.group.rows": 2, "hoodie.bucket.index.num.buckets": 1})
    rows = pa.table(
        {"id": [f"{n:03}" for n in range(100)], "country": ["DE"] * 100, "ts": [1] * 100, "qty": range(100)}
    )
    table.bulk_insert(rows.cast(schema))
    table.rename_columns({"qty": "count"})
    table.upsert(pa.table({"id": ["000"], "country": ["DE"], "ts": [2], "count": pa.array([7], pa.int32())}))
    table.compact()
    assert all(pq.read_schema(path).names[-1] == "count" for path in bases(table))
    assert table.scan(["count"]).to_arrow()["count"].to_pylist()[:3] == [7, 1, 2]
    assert sum(table.scan(["count"]).to_arrow()["count"].to_pylist()) == 7 + sum(range(100))


def test_a_filter_on_a_renamed_column_skips_nothing_of_older_files(tmp_path: Path) -> None:
    table = create(tmp_path, **{"hoodie.bucket.index.num.buckets": 1, "lsm.parquet.row.group.rows": 1})
    schema = table.schema
    rows = [{"id": "a", "country": "DE", "ts": 1, "qty": 1}, {"id": "b", "country": "DE", "ts": 1, "qty": 2}]
    table.bulk_insert(pa.Table.from_pylist(rows, schema))
    table.rename_columns({"qty": "count"})
    assert table.scan(["id"], filter="count = 2").to_arrow()["id"].to_pylist() == ["b"]
    told = table.scan(["id"], filter="count = 2 and id = 'b'").explain().counts
    assert (told.by_key, told.by_values) == (1, 0)


# --- which names may be given --------------------------------------------------------------------------------------


def test_a_column_is_renamed_back_and_forth(tmp_path: Path) -> None:
    table = made(tmp_path)
    for names in ({"qty": "count"}, {"count": "qty"}, {"qty": "count"}, {"count": "total"}):
        table.rename_columns(names)
        (name,) = names.values()
        assert table.scan([name], filter="id = 'b'").to_arrow().to_pylist() == [{name: 2}]
    table.compact()
    assert table.scan(["total"]).to_arrow()["total"].to_pylist() == [1, 2]


def test_a_name_that_another_column_had_is_refused(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.rename_columns({"qty": "count"})
    table.drop_columns(["note.b"])
    for names in ({"notes": "qty"}, {"notes": "QTY"}, {"note.a": "b"}):
        with pytest.raises(SchemaError, match="older files have values of another column under this name"):
            table.rename_columns(names)
    for rows in (batch("c", 3, "note"), pa.table({**{name: batch("c", 3)[name] for name in KEPT}, "QTY": [1]})):
        with pytest.raises(SchemaError, match=r"'(qty' was renamed to 'count|QTY' was dropped or renamed)"):
            LsmTable(tmp_path, {**table.options, "hoodie.write.set.null.for.missing.columns": True}).upsert(rows)
    assert table.scan(["count"]).to_arrow()["count"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"id": "key"}, "'id' cannot be renamed: the record key, partition path, order or deletes"),
        ({"country": "land"}, "'country' cannot be renamed"),
        ({"ts": "time"}, "'ts' cannot be renamed"),
        ({"qty": "n", "other": "m"}, "'other' is not in the table"),
        ({"note.c": "d"}, r"'note\.c' is not in the table"),
        ({"qty": "note"}, "'qty' to 'note', as there is 'note'; give it another name"),
        ({"qty": "TS"}, "'qty' to 'TS', as there is 'ts'"),
        ({"qty": "qty"}, "'qty' has the name 'qty' already"),
        ({"qty": "x", "note": "X"}, "'note' to 'X', as there is 'x'"),
        ({"qty": "note", "note": "qty"}, "'qty' to 'note', as there is 'note'"),
        ({"notes.element.a": "z", "notes.element.b": "z"}, r"'notes\.element\.b' to 'z', as there is 'z'"),
        ({"qty": "_hoodie_x"}, "'qty' to '_hoodie_x': expected letters, .* reserved beginnings"),
        ({"note.a": "a.b"}, r"'note\.a' to 'a\.b': expected letters, digits and _"),
    ],
)
def test_names_that_cannot_be_are_refused(tmp_path: Path, names: dict[str, str], message: str) -> None:
    table = made(tmp_path)
    for rename in (table.plan_rename_columns, table.rename_columns):
        with pytest.raises(SchemaError, match=message):
            rename(names)
    assert LsmTable(tmp_path).schema == SCHEMA
    assert not table.timeline.pending
    assert not list((tmp_path / ".hoodie" / ".schema").iterdir())


@pytest.mark.parametrize("names", [{}, ["qty"], {"qty": None}])
def test_no_name_at_all_is_refused(tmp_path: Path, names: Any) -> None:
    with pytest.raises(ConfigError, match="takes the new names of columns by their names now"):
        made(tmp_path).rename_columns(names)


def test_fields_inside_columns_get_their_names_back_and_no_others(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.rename_columns({"note.b": "c"})
    table.rename_columns({"note": "remark"})
    with pytest.raises(SchemaError, match=r"'remark\.a' cannot be renamed to 'remark\.b'"):
        table.rename_columns({"remark.a": "b"})
    table.rename_columns({"remark.c": "b"})
    table.rename_columns({"remark": "note", "remark.b": "c"})
    with pytest.raises(SchemaError, match=r"'note\.a' cannot be renamed to 'note\.b'"):
        table.rename_columns({"note.a": "b"})
    assert table.get("a", ["note"]) == {"note": {"a": 1, "c": "x"}}


def test_the_case_of_a_name_is_changed_again_and_again(tmp_path: Path) -> None:
    table = made(tmp_path)
    for old, new in (("qty", "Qty"), ("Qty", "QTY"), ("QTY", "qty")):
        table.rename_columns({old: new})
        assert sorted(table.scan([new]).to_arrow()[new].to_pylist()) == [1, 2]


def test_the_old_name_is_refused_also_where_unknown_columns_are_ignored(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.rename_columns({"qty": "count", "note.a": "n"})
    ignoring = {"lsm.schema.evolution": "ignore", "hoodie.write.set.null.for.missing.columns": True}
    with pytest.raises(SchemaError, match="'qty' was renamed to 'count': rename it in the batch, too"):
        LsmTable(tmp_path, ignoring).upsert(batch("a", 5))
    rows = batch("a", 5).rename_columns({"qty": "count"})
    with pytest.raises(SchemaError, match=r"'note\.a' was renamed to 'note\.n'"):
        LsmTable(tmp_path, ignoring).upsert(rows)


# --- beside other writers and services -----------------------------------------------------------------------------


@KINDS
def test_a_write_that_began_before_the_rename_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    one = made(tmp_path, **OCC, **{"hoodie.datasource.write.table.type": kind})
    other = LsmTable(tmp_path, one.options)
    write_meanwhile(one, lambda: other.rename_columns({"qty": "count"}), monkeypatch)
    with pytest.raises(SchemaError, match="'qty' was renamed to 'count'"):
        one.upsert(batch("a", 3))
    assert listed(LsmTable(tmp_path).scan(["id", "count"]).to_arrow()) == [
        {"id": "a", "count": 1},
        {"id": "b", "count": 2},
    ]
    write_meanwhile(one, lambda: other.rename_columns({"count": "total"}), monkeypatch)
    one.delete(pa.table({"id": ["a"], "country": ["DE"]}))
    assert listed(LsmTable(tmp_path).scan(["id", "total"]).to_arrow()) == [{"id": "b", "total": 2}]


@pytest.mark.parametrize("act", ["upsert", "compact"])
@KINDS
def test_files_that_were_written_during_the_rename_under_the_old_name_have_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, act: str
) -> None:
    """The other action begins after the rename, and is completed before it."""
    one = made(tmp_path, **OCC, **{"hoodie.datasource.write.table.type": kind})
    other = LsmTable(tmp_path, one.options)
    acts = {"upsert": lambda: other.upsert(batch("b", 7)), "compact": other.compact}
    act_before_commit(one, acts[act], monkeypatch)
    done = one.rename_columns({"qty": "count"})
    assert done.requested == max(write.requested for write in one.timeline.completed_writes)
    found = listed(LsmTable(tmp_path).scan(["id", "count"]).to_arrow())
    assert found == [{"id": "a", "count": 1}, {"id": "b", "count": 7 if act == "upsert" else 2}]


def test_of_two_writes_that_add_columns_the_one_that_began_first_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = made(tmp_path, **OCC, **{"hoodie.write.set.null.for.missing.columns": True})
    one.rename_columns({"qty": "count"})
    other = LsmTable(tmp_path, one.options)
    rows = batch("c", 3).rename_columns({"qty": "count"})
    act_before_commit(one, lambda: other.upsert(rows.append_column("theirs", pa.array([1]))), monkeypatch)
    one.upsert(rows.append_column("ours", pa.array([2])))
    found = LsmTable(tmp_path)
    (*_, last) = found.timeline.completed_writes
    (file,) = (tmp_path / ".hoodie" / ".schema").glob(f"{last.requested}_*")
    versions = [one["version_id"] for one in json.loads(file.read_text())["schemas"]]
    assert versions == sorted(versions, reverse=True)
    assert len(versions) == 4
    assert {"ours", "theirs", "count"} <= set(found.schema.names)


def test_of_two_renames_of_a_column_the_second_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = made(tmp_path, **OCC)
    other = LsmTable(tmp_path, one.options)
    act_before_commit(one, lambda: other.rename_columns({"qty": "count"}), monkeypatch)
    with pytest.raises(SchemaError, match="'qty' is not in the table"):
        one.rename_columns({"qty": "total"})
    act_before_commit(one, lambda: other.rename_columns({"note": "remark"}), monkeypatch)
    one.rename_columns({"count": "total"})
    assert listed(LsmTable(tmp_path).scan(["id", "total", "remark"]).to_arrow())[0] == {
        "id": "a", "total": 1, "remark": {"a": 1, "b": "x"},
    }  # fmt: skip


def test_a_pending_compaction_is_run_first(tmp_path: Path) -> None:
    table = made(tmp_path)
    planned, _ = table.services.schedule()
    assert planned is not None
    with pytest.raises(CommitConflict, match=rf"{planned.path} .* is pending, .* run the compaction"):
        table.rename_columns({"qty": "count"})
    assert LsmTable(tmp_path).schema == SCHEMA
    table.compact()
    table.rename_columns({"qty": "count"})


def test_a_compaction_that_began_before_a_rename_of_hudi_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hudi renames columns whatever is pending."""
    table = made(tmp_path)
    table.rename_columns({"qty": "count"})
    table.upsert(batch("c", 3).rename_columns({"qty": "count"}))
    planned, _ = table.services.schedule()
    assert planned is not None
    other = LsmTable(tmp_path, table.options)
    monkeypatch.setattr("streaming_lsm.writable_table.pending_rewrites", lambda timeline: ())
    rename_in_between(monkeypatch, lambda: other.rename_columns({"count": "total"}))
    with pytest.raises(CommitConflict, match="columns were renamed since the run of"):
        table.compact()
    assert table.compact() is not None
    assert all("total" in pq.read_schema(path).names for path in bases(table))
    assert sorted(LsmTable(tmp_path).scan(["total"]).to_arrow()["total"].to_pylist()) == [1, 2, 3]


def rename_in_between(monkeypatch: pytest.MonkeyPatch, rename: Any) -> None:
    """Rename once between the tasks of a compaction and its commit."""
    reconcile, pending = Transaction.reconcile, [rename]

    def late(self: Transaction, *given: Any) -> None:
        while pending:
            pending.pop()()
        reconcile(self, *given)

    monkeypatch.setattr(Transaction, "reconcile", late)


def test_a_rollback_and_a_restore_bring_the_old_name_back(tmp_path: Path) -> None:
    table = made(tmp_path)
    saved = table.timeline.completed_writes[-1].requested
    table.savepoint(saved)
    table.rename_columns({"qty": "count"})
    table.rollback()
    assert table.scan(["qty"], filter="id = 'b'").to_arrow().to_pylist() == [{"qty": 2}]
    table.rename_columns({"qty": "total"})
    assert table.scan(["total"], filter="id = 'b'").to_arrow().to_pylist() == [{"total": 2}]
    table.restore(saved)
    assert LsmTable(tmp_path).schema == SCHEMA
    table.upsert(batch("c", 3))
    assert sorted(LsmTable(tmp_path).scan(["qty"]).to_arrow()["qty"].to_pylist()) == [1, 2, 3]
    table.rename_columns({"qty": "count"})
    assert sorted(LsmTable(tmp_path).scan(["count"]).to_arrow()["count"].to_pylist()) == [1, 2, 3]


def test_the_ids_stay_however_many_writes_follow(tmp_path: Path) -> None:
    table = made(tmp_path, **{"hoodie.clean.automatic": False})
    done = table.rename_columns({"qty": "count"})
    rows = batch("c", 3).rename_columns({"qty": "count"})
    for _ in range(40):
        table.upsert(rows)
    assert table.timeline.is_archived(done.requested)
    # Those of writes that were archived after the last but one write are still there.
    assert len(list((tmp_path / ".hoodie" / ".schema").iterdir())) <= 20
    assert table.scan(["count"], filter="id = 'a'").to_arrow().to_pylist() == [{"count": 1}]


def test_versions_that_were_deleted_are_an_error_for_reading_and_writing(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.rename_columns({"qty": "count"})
    shutil.rmtree(tmp_path / ".hoodie" / ".schema")
    rows = batch("c", 3).rename_columns({"qty": "count"})
    for act in (lambda: LsmTable(tmp_path).scan(), lambda: LsmTable(tmp_path, table.options).upsert(rows)):
        with pytest.raises(CorruptFileError, match=r"no file has the columns as of .* restore the folder"):
            act()


def test_the_types_of_columns_have_the_names_that_hudi_gives_them(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("moment", pa.timestamp("us"))).append(pa.field("day", pa.date32()))
    table = create(tmp_path, schema)
    table.rename_columns({"moment": "when", "qty": "count"})
    latest = json.loads(table.timeline.read_commit(table.timeline.completed_writes[-1]).extra["latest_schema"])
    kinds = {field["name"]: field["type"] for field in latest["fields"]}
    assert (kinds["when"], kinds["day"], kinds["count"]) == ("local-timestamp-micros", "date", "int")


def test_a_repair_finds_the_ids_of_each_write(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.rename_columns({"qty": "count"})
    rows = batch("c", 3).rename_columns({"qty": "count"})
    table.upsert(rows)
    expected = listed(table.scan().to_arrow())
    shutil.rmtree(tmp_path / ".hoodie" / "timeline")
    LsmTable(tmp_path).repair()
    repaired = LsmTable(tmp_path, table.options)
    assert listed(repaired.scan().to_arrow()) == expected
    repaired.upsert(rows)
    assert listed(repaired.scan().to_arrow()) == expected


@KINDS
def test_the_independent_reader_finds_the_same_values(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path, **{"hoodie.datasource.write.table.type": kind})
    table.rename_columns({"qty": "count", "note": "remark"})
    rows = batch("c", 3).rename_columns({"qty": "count", "note": "remark"})
    table.upsert(rows)
    table.rename_columns({"count": "qty", "remark": "comment"})
    assert validate(tmp_path) == []
    found = read_snapshot(tmp_path)
    assert found.column_names == [*KEPT, "qty", "comment", "notes", "named"]
    assert listed(found) == listed(table.scan().to_arrow())
    assert sorted(found["qty"].to_pylist()) == [1, 2, 3]


def test_a_table_whose_versions_would_be_too_large_keeps_those_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path)
    table.rename_columns({"qty": "count"})
    monkeypatch.setattr("streaming_lsm.format.internal_schema.MOST_OF_VERSIONS", 20_000)
    rows = batch("c", 3).rename_columns({"qty": "count"})

    def widen() -> None:
        given = rows
        for number in range(30):
            given = given.append_column(f"c{number}", pa.array([1]))
            table.upsert(given)

    with pytest.raises(UnsupportedTable, match=r"versions of its columns would take .* characters, and 20,000 at most"):
        widen()
    found = LsmTable(tmp_path).scan().to_arrow()
    assert len(found) == 3
    assert "c0" in found.column_names


def test_what_readers_get_stays_small_however_often_columns_are_added(tmp_path: Path) -> None:
    table = made(tmp_path, **{"hoodie.archive.automatic": False})
    table.rename_columns({"qty": "count"})
    rows = batch("c", 3).rename_columns({"qty": "count"})
    sizes = []
    for number in range(6):
        rows = rows.append_column(f"c{number}", pa.array([1]))
        table.upsert(rows)
        sizes.append(len(pickle.dumps(table.file_names)))
    assert max(sizes) == min(sizes)
    assert sizes[0] < 1000


def test_files_with_the_old_name_are_sound(tmp_path: Path) -> None:
    """A new column has another type under a name that older files have for a renamed one, as Hudi permits."""
    table = made(tmp_path, **{"hoodie.write.table.version": 9})
    table.rename_columns({"note": "remark"})
    rows = batch("c", 3).rename_columns({"note": "remark"})
    with allowed_names(table):
        table.upsert(rows.append_column("note", pa.array([[1]])))
    assert main(["verify", str(tmp_path)]) == 0
    found = listed(LsmTable(tmp_path).scan(["id", "note", "remark"]).to_arrow())
    note = {"a": 1, "b": "x"}
    assert found == [
        {"id": "a", "note": None, "remark": note},
        {"id": "b", "note": None, "remark": note},
        {"id": "c", "note": [1], "remark": note},
    ]
    assert [row["note"] for row in LsmTable(tmp_path).lookup(["b"]).to_pylist()] == [None]
    table.compact()
    assert listed(LsmTable(tmp_path).scan(["id", "note", "remark"]).to_arrow()) == found


@contextmanager
def allowed_names(table: LsmTable) -> Iterator[None]:
    """Let a name be given to another column, as Hudi does."""
    rules = table.schema_rules
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "schema_rules", lambda timeline: replace(rules(timeline), dropped=frozenset(), renamed={}))
        yield
