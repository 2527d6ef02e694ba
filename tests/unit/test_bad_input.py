"""What is wrong with a batch, an option or a table is said by name, and nothing is written.

Every refusal is checked in the same way: the error's class, what it names, no data file more, no write completed,
and the rows of before still there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import (
    ConfigError,
    CorruptFileError,
    LsmError,
    RecordError,
    SchemaError,
    TableNotFound,
    UnsupportedTable,
)
from streaming_lsm.java_properties import parse_properties, print_properties
from tests.support.small_tables import SCHEMA, create, data_files, rows, shown
from tests.support.writers import files_below

GOOD = rows(("a", "DE", 1, 10), ("b", "FR", 1, 20))
PROPERTIES = ".hoodie/hoodie.properties"


def refused(table: LsmTable, write: Callable[[], object], error: type[LsmError], *named: str) -> None:
    """Check that `write` is refused and leaves no trace that a reader could see."""
    root = Path(table.path.removeprefix("file://"))
    before, rows_before, writes = data_files(root), shown(table), table.timeline.completed_writes
    outside = files_below(root.parent) - {str(Path(root.name) / path) for path in files_below(root)}
    with pytest.raises(error) as found:
        write()
    assert all(text in str(found.value) for text in named), str(found.value)
    assert data_files(root) == before
    assert table.timeline.completed_writes == writes
    assert table.timeline.pending == ()
    assert shown(LsmTable(root)) == rows_before
    now_outside = files_below(root.parent) - {str(Path(root.name) / path) for path in files_below(root)}
    assert now_outside == outside
    table.upsert(rows(("after", "DE", 1, 1)))  # and the writer goes on


def filled(tmp_path: Path, **options: object) -> LsmTable:
    table = create(tmp_path / "table", **options)
    table.upsert(GOOD)
    return table


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert"])
@pytest.mark.parametrize(
    ("name", "values", "error", "named"),
    [
        ("id", ["x", None], RecordError, ["'id'", "None"]),
        ("id", ["x", ""], RecordError, ["'id'", "''"]),
        ("ts", [1, None], RecordError, ["'ts'", "'y'"]),
        ("qty", [True, False], SchemaError, ["'qty'", "bool", "int32", "lsm.schema.evolution"]),
        ("qty", [{"a": 1}, None], SchemaError, ["'qty'", "struct", "int32", "lsm.schema.evolution"]),
        ("ts", [1.0, 2.0], SchemaError, ["'ts'", "double", "int64"]),
        ("country", ["DE", ".."], RecordError, ["'country'", "'..'"]),
        ("country", ["DE", "../other"], RecordError, ["'country'", "'../other'"]),
        ("country", ["DE", "a/../../b"], RecordError, ["'country'", "'a/../../b'"]),
        ("country", ["DE", "..\\x"], RecordError, ["'country'"]),
        ("country", ["DE", "/etc"], RecordError, ["'country'", "'/etc'"]),
        ("country", ["DE", ".hoodie"], RecordError, ["'country'", "'.hoodie'"]),
        ("country", ["DE", ".hoodie/timeline"], RecordError, ["'country'", "'.hoodie/timeline'"]),
        ("country", ["DE", "a\0b"], RecordError, ["'country'"]),
        ("country", ["DE", "a//b"], RecordError, ["'country'", "'a//b'"]),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_bad_value_is_refused(
    tmp_path: Path, operation: str, name: str, values: Any, error: type[LsmError], named: list[str]
) -> None:
    table = filled(tmp_path)
    batch = rows(("x", "DE", 5, 1), ("y", "FR", 5, 2))
    place = batch.schema.get_field_index(name)
    column = values if isinstance(values, pa.Array) else pa.array(values)
    refused(table, lambda: getattr(table, operation)(batch.set_column(place, name, column)), error, *named)


@pytest.mark.parametrize("name", SCHEMA.names)
def test_a_missing_column_is_refused_by_name(tmp_path: Path, name: str) -> None:
    table = filled(tmp_path)
    refused(table, lambda: table.upsert(GOOD.drop_columns([name])), SchemaError, f"'{name}' is missing")


def test_new_columns_and_wider_types_are_refused_by_name_if_the_options_say_so(tmp_path: Path) -> None:
    table = filled(tmp_path, **{"lsm.schema.evolution": "fail"})
    asked = "lsm.schema.evolution=add"
    refused(table, lambda: table.upsert(GOOD.append_column("extra", pa.array([1, 2]))), SchemaError, "'extra'", asked)
    place = GOOD.schema.get_field_index("qty")
    for wider in (pa.array([1, 2], pa.int64()), pa.array(["1", "2"])):
        write = partial(table.upsert, GOOD.set_column(place, "qty", wider))
        refused(table, write, SchemaError, "'qty'", str(wider.type), "int32", asked)


@pytest.mark.parametrize("name", ["id", "country"])
def test_a_delete_without_key_or_partition_column_is_refused_by_name(tmp_path: Path, name: str) -> None:
    table = filled(tmp_path)
    refused(table, lambda: table.delete(GOOD.drop_columns([name])), SchemaError, f"'{name}' is missing")


def test_a_partition_that_is_a_link_out_of_the_table_is_not_written_through(tmp_path: Path) -> None:
    table = filled(tmp_path)
    (tmp_path / "outside").mkdir()
    (tmp_path / "table/evil").symlink_to(tmp_path / "outside")
    with pytest.raises((LsmError, ValueError), match="evil"):
        table.upsert(rows(("x", "evil", 1, 1)))
    assert files_below(tmp_path / "outside") == set()
    (tmp_path / "table/evil").unlink()
    assert shown(LsmTable(tmp_path / "table")) == [("a", "DE", 1, 10), ("b", "FR", 1, 20)]


def test_an_unknown_option_is_refused_with_the_nearest(tmp_path: Path) -> None:
    table = filled(tmp_path)
    refused(table, lambda: LsmTable(table.path, {"hoodie.tabel.name": "x"}), ConfigError, "'hoodie.table.name'")


def test_another_bucket_count_is_refused_with_both_numbers(tmp_path: Path) -> None:
    table = filled(tmp_path)
    other = {"hoodie.bucket.index.num.buckets": 16}
    refused(table, lambda: LsmTable(table.path, other), ConfigError, "=16", "with 2")


def test_file_groups_beyond_the_bucket_count_are_refused_with_both_numbers(tmp_path: Path) -> None:
    table = filled(tmp_path)
    set_property(tmp_path / "table", "lsm.bucket.index.num.buckets", "1")
    smaller = LsmTable(tmp_path / "table")
    before = data_files(tmp_path)
    with pytest.raises(ConfigError, match=r"bucket 1.*is 1"):
        smaller.upsert(GOOD)
    assert data_files(tmp_path) == before
    assert table.timeline.pending == ()
    assert len(table.timeline.completed_writes) == 1


@pytest.mark.parametrize("kind", ["missing", "folder", "file", "hoodie-folder-only"])
def test_a_path_that_is_no_table_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "place"
    if kind in ("folder", "hoodie-folder-only"):
        path.mkdir()
    if kind == "hoodie-folder-only":
        (path / ".hoodie/timeline").mkdir(parents=True)
    if kind == "file":
        path.write_text("no table")
    before = files_below(tmp_path)
    with pytest.raises(TableNotFound, match="place"):
        LsmTable(path)
    assert files_below(tmp_path) == before
    assert kind != "missing" or not path.exists()


def set_property(root: Path, key: str, value: str | None) -> None:
    path = root / PROPERTIES
    values = {**parse_properties(path.read_bytes(), ""), key: value}
    path.write_bytes(print_properties({name: text for name, text in values.items() if text is not None}, []))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.table.version", "7"),
        ("hoodie.table.version", "11"),
        ("hoodie.table.storage.layout", "sorted"),
        ("hoodie.bootstrap.base.path", "/elsewhere"),
        ("hoodie.table.type", "APPEND_ONLY"),
        ("hoodie.table.base.file.format", "ORC"),
        ("hoodie.table.base.file.format", "HFILE"),
        ("hoodie.table.base.file.format", "LANCE"),
        ("hoodie.populate.meta.fields", "false"),
        ("hoodie.meta.fields.mode", "NONE"),
        ("hoodie.table.recordkey.fields", None),
        ("hoodie.table.recordkey.fields", ""),
        ("hoodie.datasource.write.drop.partition.columns", "true"),
        ("hoodie.table.multiple.base.file.formats.enable", "true"),
        ("hoodie.record.merge.mode", "CUSTOM"),
        ("hoodie.table.partial.update.mode", "KEEP_VALUES"),
        ("hoodie.compaction.payload.class", "com.example.Payload"),
    ],
)
def test_an_unsupported_table_is_refused_by_key_and_value(tmp_path: Path, key: str, value: str | None) -> None:
    filled(tmp_path)
    set_property(tmp_path / "table", key, value)
    before = files_below(tmp_path)
    with pytest.raises(UnsupportedTable) as found:
        LsmTable(tmp_path / "table")
    assert key in str(found.value)
    assert "hoodie.properties" in str(found.value)
    assert not value or value in str(found.value)
    assert files_below(tmp_path) == before


def test_a_table_without_a_number_of_buckets_is_read_but_not_written(tmp_path: Path) -> None:
    filled(tmp_path)
    set_property(tmp_path / "table", "lsm.bucket.index.num.buckets", None)
    table = LsmTable(tmp_path / "table")
    assert len(shown(table)) == 2
    before = files_below(tmp_path)
    with pytest.raises(UnsupportedTable, match=r"hoodie\.bucket\.index\.num\.buckets"):
        table.upsert(GOOD)
    assert files_below(tmp_path) == before
    LsmTable(tmp_path / "table", {"hoodie.bucket.index.num.buckets": 4}).upsert(GOOD)


@pytest.mark.parametrize("extension", ["orc", "hfile", "lance"])
@pytest.mark.parametrize("native_log", [True, False], ids=["log", "base"])
def test_data_of_another_format_is_refused_by_file(tmp_path: Path, extension: str, native_log: bool) -> None:
    table = filled(tmp_path)
    instant = table.timeline.completed_writes[0].requested
    kind = f"{instant}_1.log.{extension}" if native_log else f"{instant}.{extension}"
    name = f"00000000-aaaa-bbbb-cccc-dddddddddddd-0_0-0-0_{kind}"
    (tmp_path / "table/DE" / name).write_bytes(b"ORC")
    for use in (lambda: shown(table), lambda: LsmTable(table.path).upsert(GOOD)):
        with pytest.raises(UnsupportedTable) as found:
            use()
        assert name in str(found.value)
        assert extension in str(found.value)
    assert table.timeline.pending == ()
    assert len(table.timeline.completed_writes) == 1


def test_damaged_inline_logs_are_named_by_file(tmp_path: Path) -> None:
    table = filled(tmp_path)
    (tmp_path / "table/DE/.00000000-aaaa-0_20260101000000000.log.1_0-0-0").write_bytes(b"#HUDI#")
    with pytest.raises(CorruptFileError, match=r"DE/\.00000000-aaaa-0_.*\.log\.1_0-0-0: block at offset 0: damaged"):
        shown(table)


def test_properties_whose_checksum_does_not_fit_are_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    set_property(tmp_path / "table", "hoodie.table.name", "renamed")
    with pytest.raises(CorruptFileError, match=r"hoodie\.properties.*checksum"):
        LsmTable(tmp_path / "table")


COMPOSITE: dict[str, object] = {"hoodie.datasource.write.recordkey.field": "id,country"}
COLLIDING = rows(("x", "y,country:z", 1, 1), ("x,country:y", "z", 1, 2))


def test_keys_that_collide_are_refused_in_a_table_of_ours_unless_allowed(tmp_path: Path) -> None:
    partitions = {"hoodie.datasource.write.partitionpath.field": None}
    table = create(tmp_path / "table", **COMPOSITE, **partitions)
    table.upsert(GOOD)
    refused(table, lambda: table.upsert(COLLIDING), RecordError, "'id'", "'x,country:y'", "lsm.keys.ambiguous")
    LsmTable(table.path, {"lsm.keys.ambiguous": "allow"}).upsert(COLLIDING)
    assert len(shown(table)) == 4  # of two rows under one key


def test_keys_that_collide_are_reported_in_a_table_that_another_program_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = create(tmp_path / "table", **COMPOSITE, **{"hoodie.datasource.write.partitionpath.field": None})
    set_property(tmp_path / "table", "lsm.keys.ambiguous", None)
    LsmTable(table.path).upsert(COLLIDING)
    assert "'x,country:y'" in caplog.text
    with pytest.raises(RecordError):
        LsmTable(table.path, {"lsm.keys.ambiguous": "refuse"}).upsert(COLLIDING)


def test_what_creation_said_of_ambiguous_keys_holds_for_later_writers(tmp_path: Path) -> None:
    options = {**COMPOSITE, "hoodie.datasource.write.partitionpath.field": None, "lsm.keys.ambiguous": "allow"}
    table = create(tmp_path / "table", **options)
    LsmTable(table.path).upsert(COLLIDING)
    assert len(shown(table)) == 1
