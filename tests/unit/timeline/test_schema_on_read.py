"""Tables whose columns Hudi changed with schema-on-read: the values are found by the ids of columns."""

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
from streaming_lsm.schema import META_COLUMNS, to_avro
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
    table.upsert(rows(ROWS[0]))
    own = to_avro(table.schema, "t")
    last = table.rename_columns({"qty": "other"})  # a commit without files
    number = int(last.requested)
    (file,) = (root / ".hoodie" / ".schema").iterdir()
    file.write_text(json.dumps({"schemas": [version(number, columns), version(0, before)]}))

    def change(extra: dict[str, str]) -> dict[str, str]:
        record = json.loads(own)
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


def values(table: LsmTable) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def avro_of(columns: Fields) -> Callable[[Fields], Fields]:
    """Name the columns of the commit's schema as those with ids."""
    return lambda old: [{**field, "name": column["name"]} for field, column in zip(old, columns, strict=True)]


def renamed_table(root: Path) -> LsmTable:
    now = renamed(FIRST, "qty", "count")
    return altered(root, now, avro=avro_of(now))


def test_a_renamed_column_has_the_values_of_older_files(tmp_path: Path) -> None:
    table = renamed_table(tmp_path)
    assert table.schema.names == ["id", "country", "ts", "count"]
    assert values(table) == ROWS
    assert table.scan(["count"], filter="id = 'b' and count = 2").to_arrow().to_pylist() == [{"count": 2}]
    assert table.get("a") == dict(zip(table.schema.names, ROWS[0], strict=True))
    assert {change["after"]["count"] for change in table.changes("000").to_arrow().to_pylist()} == {1, 2}


def test_a_column_that_was_dropped_and_added_again_has_no_value_in_older_files(tmp_path: Path) -> None:
    table = altered(tmp_path, [*FIRST[:3], {**FIRST[3], "id": 7}])
    assert values(table) == [(*row[:3], None) for row in ROWS]


@pytest.mark.parametrize(
    ("now", "before", "message"),
    [
        ([*FIRST[:3], {**FIRST[3], "type": "date"}], FIRST, "'qty' was changed from int to date"),
        (
            fields(id="string", named={
                "type": "map", "key_id": 5, "key": "string", "value_id": 6, "value": "decimal(9, 3)"}),
            fields(id="string", named={
                "type": "map", "key_id": 5, "key": "string", "value_id": 6, "value": "decimal(9, 2)"}),
            r"'named.value' was changed from decimal\(9, 2\) to decimal\(9, 3\)",
        ),
        (renamed(FIRST, "ts", "time"), FIRST, "column 'time' was renamed from 'ts'.* order"),
        (renamed(FIRST, "id", "key"), FIRST, "column 'key' was renamed from 'id'.* record key"),
    ],
)  # fmt: skip
def test_other_types_and_names_of_needed_columns_are_refused(
    tmp_path: Path, now: Fields, before: Fields, message: str
) -> None:
    table = altered(tmp_path, now, before)
    for read in (table.scan, lambda: table.changes("000"), lambda: table.get("a"), table.compact):
        with pytest.raises(UnsupportedTable, match=message):
            read()


def test_a_needed_column_that_has_its_name_again_is_read_from_all_files(tmp_path: Path) -> None:
    table = altered(tmp_path, FIRST)
    (file,) = (tmp_path / ".hoodie" / ".schema").iterdir()
    versions = json.loads(file.read_text())["schemas"]
    between = version(versions[0]["version_id"] - 1, renamed(FIRST, "ts", "time"))
    file.write_text(json.dumps({"schemas": [versions[0], between, versions[1]]}))
    assert shown(table) == ROWS


@pytest.mark.parametrize("kind", ["uuid", "fixed[4]", "time"])
def test_types_that_are_not_known_here_stay_as_they_are(tmp_path: Path, kind: str) -> None:
    now = [*FIRST[:3], {**FIRST[3], "type": kind}]
    table = altered(tmp_path, now, now)
    written = table.upsert(rows(("a", "DE", 2, 9)))
    assert written is not None
    latest = json.loads(table.timeline.read_commit(written).extra["latest_schema"])
    assert {field["name"]: field["type"] for field in latest["fields"]}["qty"] == kind
    assert shown(LsmTable(tmp_path)) == [("a", "DE", 2, 9), ROWS[1]]


def test_a_time_before_the_change_is_read(tmp_path: Path) -> None:
    table = renamed_table(tmp_path)
    first = table.timeline.completed_writes[0]
    assert table.scan(as_of=first.requested).schema.names == ["id", "country", "ts", "qty"]
    assert shown(table, as_of=first.requested) == ROWS


def test_a_file_of_versions_whose_write_is_not_completed_does_not_count(tmp_path: Path) -> None:
    renamed_table(tmp_path)
    folder = tmp_path / ".hoodie" / ".schema"
    later = {"schemas": [version(10**17 - 1, FIRST)]}
    (folder / f"{10**17 - 1}.schemacommit").write_text(json.dumps(later))
    assert values(LsmTable(tmp_path)) == ROWS


def test_the_version_of_a_write_that_was_completed_after_a_change_is_that_of_its_commit(tmp_path: Path) -> None:
    """The columns were changed while the newest write ran, and it wrote files with the new names."""
    table = renamed_table(tmp_path)
    written = table.upsert(rows(("a", "DE", 2, 9)).rename_columns(table.schema.names))
    assert written is not None
    number = int(written.requested) + 1  # the change was requested after the write, and before it was completed
    assert number < int(written.completed or 0)
    latest = version(number, renamed(FIRST, "qty", "count"))
    for file in (tmp_path / ".hoodie" / ".schema").iterdir():
        file.write_text(json.dumps({"schemas": [latest, version(0, FIRST)]}))
    change_extra(tmp_path, written, lambda extra: {**extra, "latest_schema": json.dumps(latest)})
    assert values(LsmTable(tmp_path)) == [("a", "DE", 2, 9), ROWS[1]]


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


def test_every_write_keeps_the_ids(tmp_path: Path) -> None:
    table = renamed_table(tmp_path)
    again = rows(ROWS[1]).rename_columns(table.schema.names)
    writes: list[Callable[[], Instant | None]] = [
        lambda: table.upsert(again),
        lambda: table.insert_overwrite(again),
        lambda: table.delete(again),
        table.compact,
    ]
    for write in writes:
        completed = write()
        assert completed is not None
        found = json.loads(table.timeline.read_commit(completed).extra["latest_schema"])
        names = [one["name"] for one in found["fields"] if one["id"] < len(FIRST)]
        assert names == ["id", "country", "ts", "count"]
    assert values(LsmTable(tmp_path)) == ROWS[:1]


def test_a_column_of_a_table_without_commits_is_renamed_and_gets_its_first_name_back(tmp_path: Path) -> None:
    table = create(tmp_path)
    for names in ({"qty": "count"}, {"count": "qty"}):
        table.rename_columns(names)
    table.upsert(rows(*ROWS))
    assert shown(table) == ROWS
