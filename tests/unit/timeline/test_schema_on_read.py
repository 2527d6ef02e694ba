"""Tables whose columns Hudi changed with schema-on-read: read by name where that shows the same rows, else refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streaming_lsm import Instant, LsmTable
from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.schema import META_COLUMNS
from tests.support.small_tables import create, rows, shown

ROWS = [("a", "DE", 1, 1), ("b", "FR", 1, 2)]
META: list[dict[str, Any]] = [{"name": name, "type": ["null", "string"], "default": None} for name in META_COLUMNS]
Fields = list[dict[str, Any]]


def fields(**kinds: Any) -> Fields:
    """Columns with the ids of their places, as those of the table are."""
    return [
        {"id": place, "name": name, "optional": True, "type": kind} for place, (name, kind) in enumerate(kinds.items())
    ]


def version(number: int, columns: Fields) -> dict[str, Any]:
    return {"max_column_id": 20, "version_id": number, "type": "record", "fields": columns}


FIRST = fields(id="string", country="string", ts="long", qty="int")


def altered(
    root: Path, columns: Fields, before: Fields = FIRST, *, avro: Callable[[Fields], Fields] = lambda x: x
) -> LsmTable:
    """Make a table of which the last commit is an ALTER TABLE of Hudi that leaves it with `columns`."""
    table = create(root, **{"hoodie.write.table.version": 9})
    table.upsert(rows(*ROWS))
    last = table.upsert(rows(ROWS[0]))
    assert last is not None
    number = int(last.requested)
    folder = root / ".hoodie" / ".schema"
    folder.mkdir(exist_ok=True)
    history = {"schemas": [version(number, columns), version(0, before)]}
    (folder / f"{number}_{number + 5}.schemacommit").write_text(json.dumps(history))

    def change(extra: dict[str, str]) -> dict[str, str]:
        record = json.loads(extra["schema"])
        stored = json.dumps({**record, "fields": META + avro(record["fields"])})
        return {**extra, "schema": stored, "latest_schema": json.dumps(version(number, columns))}

    change_extra(root, last, change)
    return LsmTable(root, table.options)


def change_extra(root: Path, commit: Instant, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    file = root / commit.path
    found = CommitMetadata.decode(file.read_bytes(), commit.path)
    file.write_bytes(replace(found, extra=change(dict(found.extra))).encode())


def renamed(columns: Fields, old: str, new: str) -> Fields:
    return [{**column, "name": new} if column["name"] == old else column for column in columns]


def test_meta_columns_that_an_alter_table_stores_are_no_columns_of_the_table(tmp_path: Path) -> None:
    table = altered(tmp_path, FIRST)
    assert table.schema.names == ["id", "country", "ts", "qty"]
    assert shown(table) == ROWS


def test_columns_that_were_added_dropped_moved_and_widened_are_read_by_name(tmp_path: Path) -> None:
    dropped = [*FIRST, {"id": 8, "name": "old", "optional": True, "type": "string"}]
    new = {"id": 9, "name": "new", "optional": True, "type": "string"}
    now = [{**FIRST[3], "type": "double"}, new, *FIRST[:3]]

    def avro(old: Fields) -> Fields:
        kinds = (("qty", "double"), ("new", "string"))
        return [*({"name": name, "type": ["null", kind], "default": None} for name, kind in kinds), *old[:3]]

    found = altered(tmp_path, now, dropped, avro=avro).scan().to_arrow().sort_by("id").to_pylist()
    assert found == [
        {"qty": 1.0, "new": None, "id": "a", "country": "DE", "ts": 1},
        {"qty": 2.0, "new": None, "id": "b", "country": "FR", "ts": 1},
    ]


@pytest.mark.parametrize(
    ("now", "before", "message"),
    [
        (renamed(FIRST, "qty", "count"), FIRST, "'count' was renamed from 'qty'"),
        ([*FIRST[:3], {**FIRST[3], "id": 7}], FIRST, "'qty' was dropped, and added again later"),
        ([*FIRST[:3], {**FIRST[3], "type": "date"}], FIRST, "'qty' was changed from int to date"),
        (
            fields(id="string", inner={"type": "record", "fields": [{"id": 8, "name": "new", "type": "int"}]}),
            fields(id="string", inner={"type": "record", "fields": [{"id": 8, "name": "old", "type": "int"}]}),
            "'inner.new' was renamed from 'inner.old'",
        ),
        (
            fields(id="string", items={"type": "array", "element_id": 5, "element": {
                "type": "record", "fields": [{"id": 8, "name": "new", "type": "int"}]}}),
            fields(id="string", items={"type": "array", "element_id": 5, "element": {
                "type": "record", "fields": [{"id": 8, "name": "old", "type": "int"}]}}),
            "'items.element.new' was renamed from 'items.element.old'",
        ),
        (
            fields(id="string", named={
                "type": "map", "key_id": 5, "key": "string", "value_id": 6, "value": "decimal(9, 3)"}),
            fields(id="string", named={
                "type": "map", "key_id": 5, "key": "string", "value_id": 6, "value": "decimal(9, 2)"}),
            r"'named.value' was changed from decimal\(9, 2\) to decimal\(9, 3\)",
        ),
    ],
)  # fmt: skip
def test_columns_that_other_names_or_types_had_are_refused_by_name(
    tmp_path: Path, now: Fields, before: Fields, message: str
) -> None:
    table = altered(tmp_path, now, before)
    for read in (lambda: table.schema, table.scan, lambda: table.changes("000"), lambda: table.get("a")):
        with pytest.raises(UnsupportedTable, match=message):
            read()


def test_a_time_before_the_change_is_read(tmp_path: Path) -> None:
    table = altered(tmp_path, renamed(FIRST, "qty", "count"))
    first = table.timeline.completed_writes[0]
    assert shown(table, as_of=first.requested) == ROWS


def test_versions_are_found_in_the_file_of_a_later_write(tmp_path: Path) -> None:
    table = altered(tmp_path, renamed(FIRST, "qty", "count"))
    (file,) = (tmp_path / ".hoodie" / ".schema").iterdir()
    content = json.loads(file.read_text())
    later = version(10**17 - 1, renamed(FIRST, "qty", "other"))
    file.with_name(f"{10**17 - 1}.schemacommit").write_text(json.dumps({"schemas": [later, *content["schemas"]]}))
    file.unlink()
    with pytest.raises(
        UnsupportedTable, match=r"/99999999999999999\.schemacommit: column 'count' was renamed from 'qty'"
    ):
        table.scan()


def test_versions_that_are_lost_are_an_error(tmp_path: Path) -> None:
    table = altered(tmp_path, FIRST)
    for file in (tmp_path / ".hoodie" / ".schema").iterdir():
        file.unlink()
    with pytest.raises(CorruptFileError, match="no file has the columns as of"):
        table.scan()


@pytest.mark.parametrize("text", ["{", "[]", '{"version_id": 1, "fields": [{"id": 1, "name": "x"}]}'])
def test_damaged_ids_are_an_error_that_names_the_commit(tmp_path: Path, text: str) -> None:
    table = altered(tmp_path, FIRST)
    last = table.timeline.completed_writes[-1]
    change_extra(tmp_path, last, lambda extra: {**extra, "latest_schema": text})
    with pytest.raises(CorruptFileError, match=f"{last.path}: latest_schema: not an internal schema of Hudi"):
        LsmTable(tmp_path).scan()


def test_tables_with_column_ids_are_neither_written_nor_compacted(tmp_path: Path) -> None:
    table = altered(tmp_path, FIRST)
    for write in (
        lambda: table.upsert(rows(ROWS[1])),
        lambda: table.delete_partitions(["DE"]),
        lambda: table.insert_overwrite_table(rows(ROWS[1])),
        table.compact,
    ):
        with pytest.raises(UnsupportedTable, match="latest_schema, the column ids of Hudi's schema-on-read"):
            write()
    assert shown(LsmTable(tmp_path)) == ROWS
    assert not LsmTable(tmp_path).timeline.pending
