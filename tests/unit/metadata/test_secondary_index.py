"""Secondary indexes of tables of ours: keys as Hudi makes them; the values of the snapshot after each action."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.hfile.writer import write_hfile
from streaming_lsm.format.metadata.group_files import base_content
from streaming_lsm.format.metadata.schema import metadata_schema
from streaming_lsm.format.metadata.secondary_index import (
    encode_entries,
    entry_keys,
    entry_shards,
    group_file_id,
    prefixes,
    split_keys,
)
from streaming_lsm.metadata import services
from streaming_lsm.metadata import table as metadata_table
from streaming_lsm.metadata.file_slices import METADATA_TABLE
from streaming_lsm.metadata.secondary_entries import check_own
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.properties_file import load_properties
from tests.support.metadata_tables import LOCATED, PARTITIONS, assert_locations, assert_settled
from tests.support.secondary_entries import entries_of

MADE_BY_HUDI: list[tuple[str | None, str, str, int, int]] = [
    ("amsterdam", "k1", "amsterdam$k1", 0, 2),
    ("a$b", "k$2", "a\\$b$k\\$2", 9, 5),
    ("x\\", "k\\3", "x\\\\$k\\\\3", 0, 5),
    (None, "4", "\0$4", 6, 1),
    ("", "5", "$5", 6, 1),
    ("\0", "6\0", "\\\0$6\\\0", 8, 3),
    ("new\nline", "7\n", "new\nline$7\n", 0, 5),
    ("é$€\\$", "8", "é\\$€\\\\\\$$8", 7, 5),
    ("42", "id:1,part:a", "42$id:1,part:a", 8, 3),
    ("\U0001f600", "9", "\U0001f600$9", 5, 0),
    ("-7", "10", "-7$10", 6, 4),
]
"""Value, record key, key of the entry, and its file group of 10 and of 7: of SecondaryIndexKeyUtils and
HoodieTableMetadataUtil of Hudi 1.2.0."""
NAME = "secondary_index_city"
SCHEMA = pa.schema(
    [("id", pa.string()), ("part", pa.string()), ("city", pa.string()), ("n", pa.int64()), ("ts", pa.int64())]
)
OPTIONS: dict[str, object] = {
    **LOCATED,
    "hoodie.table.name": "cities",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.index.type": "GLOBAL_SIMPLE",
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.metadata.index.secondary.column": "city",
    "hoodie.metadata.compact.max.delta.commits": 4,
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.metadata.record.index.max.filegroup.count": 2,
    "hoodie.clean.commits.retained": 1,
    "lsm.read.threads": 1,
}
CITIES = ["oslo", "bern", "a$b", "ro\\me", "", None]


@pytest.fixture(autouse=True)
def _quiet_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def batch(draw: random.Random, step: int, count: int = 10) -> pa.Table:
    rows = [
        {"id": f"k{key:02d}$", "part": draw.choice("ab"), "city": draw.choice(CITIES), "n": step, "ts": step}
        for key in draw.sample(range(24), count)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def assert_entries(table: LsmTable, root: Path) -> int:
    rows = table.scan(["_hoodie_record_key", "city"], meta=False).to_arrow().to_pylist()
    assert entries_of(LocalStorage(root), NAME) == {(row["city"], row["_hoodie_record_key"]) for row in rows}
    return len(rows)


def shown(table: LsmTable, wanted: Any) -> list[str]:
    return sorted(map(repr, table.scan(filter=wanted).to_arrow().to_pylist()))


def registered(root: Path) -> list[str]:
    return load_properties(LocalStorage(root)).get(PARTITIONS, "").split(",")


def test_keys_and_file_groups_are_those_of_hudi() -> None:
    values, keys, expected, tens, sevens = (list(column) for column in zip(*MADE_BY_HUDI, strict=True))
    texts, record_keys = pa.array(values, pa.string()), pa.array(keys, pa.string())
    found = entry_keys(texts, record_keys)
    assert found.to_pylist() == expected
    beginnings, back = split_keys(found, "file")
    assert back.equals(record_keys)
    assert beginnings.equals(prefixes(texts))
    assert entry_shards(beginnings, 10).tolist() == tens
    assert entry_shards(beginnings, 7).tolist() == sevens
    assert group_file_id("secondary_index_idx_city").format(3) == "secondary-index-idx-city-0003-0"
    with pytest.raises(CorruptFileError, match="no key of a secondary index"):
        split_keys(pa.array(["a\\$b"]), "file")


def test_a_record_has_the_bytes_of_hudi() -> None:
    """Type 7 and an entry that is not deleted; Hudi's own record has the key, too, which is empty in HFiles."""
    (value,) = encode_entries(1, None).to_pylist()
    assert value.endswith(bytes.fromhex("0e000000000200"))


def test_blocks_are_found_by_how_keys_begin() -> None:
    draw, keys = random.Random(3), [f"{value}${number:03d}" for value in "abcdef" for number in range(200)]
    ordered: Any = pa.array(sorted(keys), pa.binary())
    values: Any = pa.array([draw.randbytes(900) for _ in keys], pa.binary())
    file = HFile.open(write_hfile(ordered, values, schema_json=metadata_schema(), created_ms=1), "f")
    assert len(file.blocks) > 8
    for wanted in (["a$"], ["c$", "d$"], ["f$"], ["b$", "zz$"], ["A$"], []):
        found = [cells for cells in file.blocks_from(pa.array(wanted, pa.binary()))]
        read = [key.decode() for cells in found for key in cells.keys.to_pylist()]
        assert [key for key in read if key.startswith(tuple(wanted))] == [
            key for key in sorted(keys) if key.startswith(tuple(wanted))
        ]
        assert len(read) < len(keys) / 2


@pytest.mark.parametrize("kind", [{}, {"hoodie.table.type": "COPY_ON_WRITE", "hoodie.write.table.version": 9}])
def test_it_has_the_values_of_the_snapshot_after_each_action(kind: dict[str, object], tmp_path: Path) -> None:
    draw, compared, skipped = random.Random(5), 0, 0
    table = LsmTable.create(tmp_path, SCHEMA, {**OPTIONS, **kind})
    steps: list[Callable[[int], object]] = [
        lambda step: table.upsert(batch(draw, step)),
        lambda step: table.upsert(batch(draw, step)),
        lambda step: table.rollback(),
        lambda step: table.delete(batch(draw, step, 5)),
        lambda step: None if table.config.is_copy_on_write else table.compact(),
        lambda step: table.upsert(batch(draw, step)),
        lambda step: table.insert_overwrite(batch(draw, step, 6)),
        lambda step: table.clean(),
        lambda step: table.upsert(batch(draw, step)),
    ]
    for step, act in enumerate(steps, 1):
        act(step)
        if step == 1:  # the indexes are made by the next write, of a table with rows
            continue
        assert NAME in registered(tmp_path), step
        compared += assert_entries(table, tmp_path)
        assert_locations(tmp_path)
        assert_settled(tmp_path)
        for wanted in (pc.field("city").isin(["a$b", "ro\\me", "no"]), "city = ''")[: 2 * (step % 2)]:
            assert shown(table, wanted) == shown(LsmTable(tmp_path), wanted), (step, str(wanted))
            skipped += table.scan(filter=wanted).explain().skipped.by_secondary_index
    assert compared > 80
    assert skipped > 0


def test_a_query_names_it_and_does_without_where_it_is_damaged_or_of_another_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = LsmTable.create(tmp_path, SCHEMA, OPTIONS)
    for step, city in enumerate(("oslo", "bern", "rome"), 1):
        rows = [{"id": f"{city}{n}", "part": "a", "city": city, "n": n, "ts": step} for n in range(3)]
        table.upsert(pa.Table.from_pylist(rows, SCHEMA))
    wanted = pc.field("city") == "bern"
    rows = shown(table, wanted)
    told = table.scan(filter=wanted).explain()
    assert told.skipped.by_secondary_index == 2
    assert "file slices: 1 of 3 read; 2 skipped by secondary_index_city" in str(told)
    assert table.scan(filter=(pc.field("city") == "bern") | (pc.field("n") == 1)).explain().slices == 3
    assert table.scan(filter=pc.field("city").is_null()).explain().slices == 3
    assert LsmTable(tmp_path).scan(filter=wanted).explain().slices == 3  # without hoodie.metadata.enable
    first = table.timeline.completed_writes[1].requested
    assert table.scan(filter=wanted, as_of=first).explain().skipped.by_secondary_index == 0

    stored = {path: path.read_bytes() for path in (tmp_path / METADATA_TABLE / NAME).glob("*_*.hfile")}
    for path, content in stored.items():
        path.write_bytes(content[:-30])
    assert shown(LsmTable(tmp_path, {"hoodie.metadata.enable": True}), wanted) == rows
    assert "is not read, no row is looked up by a value of city" in caplog.text
    assert [(one.index, one.kind) for one in table.check_indexes().findings] == [(NAME, "damaged")]
    for path, content in stored.items():
        path.write_bytes(content)
    (path,) = (path for path in stored if ".log." not in path.name)
    changed: Any = pa.array([b"oslo$none", b"oslo$oslo1", b"oslo$oslo2"], pa.binary())
    path.write_bytes(base_content(changed, encode_entries(len(changed), path.name), 1, "other"))
    told = {one.kind: one for one in table.check_indexes().findings}
    assert {kind: one.count for kind, one in told.items()} == {"missing": 1, "left over": 1}
    assert "'oslo$none'" in told["left over"].message
    assert table.rebuild_indexes([NAME]) == [NAME]
    assert table.check_indexes().findings == ()
    assert table.check_indexes().records[NAME] == assert_entries(table, tmp_path) == 9
    assert table.scan(filter=wanted).explain().skipped.by_secondary_index == 2


def test_an_older_definition_of_its_name_is_believed_neither_by_queries_nor_by_writers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {key: value for key, value in OPTIONS.items() if "secondary" not in key}
    table = LsmTable.create(tmp_path, SCHEMA, options)
    table.upsert(batch(random.Random(1), 1))
    name, definitions = "secondary_index_one", tmp_path / ".hoodie/.index_defs/index.json"
    table.create_index(name, {"hoodie.metadata.index.secondary.column": "n"})
    older = definitions.read_bytes()
    table.drop_index(name)
    table.create_index(name, {"hoodie.metadata.index.secondary.column": "city"})
    table.upsert(batch(random.Random(2), 2))
    wanted = pc.field("n") == 1
    rows = shown(LsmTable(tmp_path), wanted)
    assert rows
    definitions.write_bytes(older)
    assert shown(LsmTable(tmp_path, {"hoodie.metadata.enable": True}), wanted) == rows
    assert '"sourceFields":["city"]' in caplog.text
    assert [(one.index, one.kind) for one in LsmTable(tmp_path).check_indexes().findings] == [(name, "damaged")]
    LsmTable(tmp_path, options).upsert(batch(random.Random(3), 3))
    assert name not in registered(tmp_path)
    assert LsmTable(tmp_path).check_indexes().findings == ()


def test_what_cannot_be_indexed_is_refused_and_an_index_goes_with_its_record_index(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = {key: value for key, value in OPTIONS.items() if "metadata" not in key or "record" in key}
    table = LsmTable.create(tmp_path, SCHEMA, {**plain, "hoodie.metadata.record.index.enable": False})
    table.upsert(batch(random.Random(1), 1))
    table.create_index("files")
    wanted = {"hoodie.metadata.index.secondary.column": "city"}

    def create(form: dict[str, object], why: str) -> None:
        with pytest.raises(UnsupportedTable, match=why):
            LsmTable(tmp_path).create_index("secondary_index_one", form)

    create({}, "no column is named")
    create(wanted, "no record_index")
    LsmTable(tmp_path).create_index("record_index")
    create({"hoodie.metadata.index.secondary.column": "town"}, "'town' is not in the table")
    LsmTable(tmp_path).create_index("secondary_index_of_n", {"hoodie.metadata.index.secondary.column": "n"})
    assert registered(tmp_path) == ["files", "record_index", "secondary_index_of_n"]
    LsmTable(tmp_path, {"hoodie.index.type": "GLOBAL_SIMPLE"}).upsert(batch(random.Random(2), 2))
    rows = LsmTable(tmp_path).scan(["_hoodie_record_key", "n"]).to_arrow().to_pylist()
    assert entries_of(LocalStorage(tmp_path), "secondary_index_of_n") == {
        (str(row["n"]), row["_hoodie_record_key"]) for row in rows
    }
    LsmTable(tmp_path).drop_index("record_index")
    LsmTable(tmp_path, {"hoodie.index.type": "GLOBAL_SIMPLE"}).upsert(batch(random.Random(3), 3))
    assert registered(tmp_path) == ["files"]
    assert "has no record_index" in caplog.text


@pytest.mark.parametrize(
    "name",
    [
        "secondary_index_/../../../a",
        "secondary_index_a/b",
        "secondary_index_a,files",
        "expr_index_x ",
        "secondary_index_" + "b" * 121,
    ],
)
def test_a_name_that_is_no_folder_or_entry_of_a_list_is_refused(name: str, tmp_path: Path) -> None:
    table = LsmTable.create(tmp_path, SCHEMA, OPTIONS)
    table.upsert(batch(random.Random(1), 1))
    with pytest.raises(UnsupportedTable, match="cannot be the name of an index"):
        table.create_index(name, {"hoodie.metadata.index.secondary.column": "n"})
    table.upsert(batch(random.Random(2), 2))
    assert assert_entries(table, tmp_path)


def test_it_is_neither_used_nor_kept_where_another_program_has_written_to_it() -> None:
    names = [f".{group_file_id(NAME).format(0)}_20261128010203004.log.1_1-2-3", "other"]
    with pytest.raises(UnsupportedTable, match="another program wrote"):
        check_own(NAME, names, {"hoodie.table.type": "MERGE_ON_READ"})
    check_own(NAME, names, {"hoodie.table.type": "COPY_ON_WRITE"})
    own = [names[0].replace("1-2-3", "0-0-0"), names[0].replace("20261128010203004", "00000000000000002")]
    check_own(NAME, own, {"hoodie.table.type": "MERGE_ON_READ"})


def test_it_is_dropped_with_the_record_index(tmp_path: Path) -> None:
    table = LsmTable.create(tmp_path, SCHEMA, OPTIONS)
    for step in (1, 2):
        table.upsert(batch(random.Random(step), step))
    assert registered(tmp_path) == ["files", "record_index", NAME]
    LsmTable(tmp_path).drop_index("record_index")
    assert registered(tmp_path) == ["files"]
    assert not (tmp_path / ".hoodie/metadata" / NAME).exists()


def test_an_index_whose_definition_is_lost_while_the_metadata_table_is_compacted_is_dropped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    draw = random.Random(7)
    made = LsmTable.create(tmp_path, SCHEMA, {**OPTIONS, "hoodie.metadata.compact.max.delta.commits": 100})
    for step in range(2):
        made.upsert(batch(draw, step))
    assert NAME in registered(tmp_path)
    definitions = tmp_path / ".hoodie/.index_defs/index.json"
    content, compact = definitions.read_bytes(), metadata_table.compact

    def losing(**how: Any) -> Any:
        found = compact(**how)
        definitions.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(metadata_table, "compact", losing)
    # Logs are not merged into a base file that is much larger, so that its records are not asked for.
    monkeypatch.setattr(services, "_LARGE_BASE", 0)
    options = {"hoodie.metadata.enable": True, "hoodie.metadata.compact.max.delta.commits": 1}
    LsmTable(tmp_path, options).upsert(batch(draw, 2))
    monkeypatch.undo()
    assert not definitions.exists()
    definitions.write_bytes(content)
    assert NAME not in registered(tmp_path)
    table = LsmTable(tmp_path, {**OPTIONS, **LOCATED})
    assert table.check_indexes().findings == ()
    assert shown(table, "city = 'oslo'") == shown(
        LsmTable(tmp_path, {"hoodie.metadata.enable": False}), "city = 'oslo'"
    )
