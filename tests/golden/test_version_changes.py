"""Upgrade and downgrade of tables that real Hudi wrote: rows stay, and a run that dies is gone on with.

Dying before a call that only looks leaves what dying before the next call that changes something leaves. So a process
dies before each of the latter and after the last, with LSM_ALL_FAULTS=1; without it before every 23rd, and before other
ones for each table.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.cli.commands import main
from streaming_lsm.errors import ConfigError, SchemaError, UnsupportedTable
from streaming_lsm.format.table.file_names import LogFileName, parse_file_name
from streaming_lsm.java_properties import parse_properties, print_properties
from tests.support.crash_points import EVERY_CALL, sample
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.hudi_tables import MANIFESTS, unpacked

CHANGEABLE = [name for name, manifest in MANIFESTS.items() if manifest["table_version"] in (8, 9)]
READ_ONLY = [name for name, manifest in MANIFESTS.items() if manifest["table_version"] == 6]
BUCKETS = "hoodie.bucket.index.num.buckets"
BUCKETED = [
    name
    for name in CHANGEABLE
    if BUCKETS in MANIFESTS[name]["write_options"] and MANIFESTS[name]["table_type"] == "MERGE_ON_READ"
]
STEP = 1 if EVERY_CALL else 23
LOOKING = {"read", "exists", "list", "walk", "open_input"}
"""Storage calls that change nothing."""
ROWS_ONLY = "_hoodie_file_name"
"""The one column that a compaction rewrites."""


def rows(path: Path, **options: object) -> list[str]:
    """All rows, but for the names of their files."""
    found = LsmTable(path, options).scan(meta=True).to_arrow().drop_columns([ROWS_ONLY])
    return sorted(map(str, found.to_pylist()))


def buckets(name: str) -> dict[str, str]:
    """The options that Hudi keeps to itself."""
    written = MANIFESTS[name]["write_options"]
    return {key: written[key] for key in (BUCKETS, "hoodie.bucket.index.hash.field") if key in written}


def versions(path: Path) -> tuple[int, str]:
    config = LsmTable(path).config
    return config.version, config.storage_layout


@pytest.mark.parametrize("name", sample(CHANGEABLE, 0, 2))
def test_a_table_goes_up_and_down_with_the_same_rows(name: str, tmp_path: Path) -> None:
    path, version = unpacked(name, tmp_path), MANIFESTS[name]["table_version"]
    before = rows(path)
    for target in (10, 9, 8, 9, 10, version):
        LsmTable(path).change_version(target)
        assert versions(path) == (target, "default")
        assert rows(path) == before


@pytest.mark.parametrize("name", sample(CHANGEABLE, 1, 2))
def test_sorted_files_hold_the_same_rows(name: str, tmp_path: Path) -> None:
    path = unpacked(name, tmp_path)
    before = rows(path)
    table = LsmTable(path)
    if [pending.action for pending in table.timeline.pending if pending.action == "clustering"]:
        with pytest.raises(UnsupportedTable, match="clustering"):
            table.change_version(layout="lsm_tree")
        assert rows(path) == before
        return
    table = table.change_version(layout="lsm_tree")
    assert versions(path) == (10, "lsm_tree")
    assert rows(path) == before
    keys = [batch.column("_hoodie_record_key") for batch in table.scan(["_hoodie_record_key"]).to_batches()]
    assert all(chunk.to_pylist() == sorted(chunk.to_pylist()) for chunk in keys)
    table.change_version(9)
    assert versions(path) == (9, "default")
    assert rows(path) == before


@pytest.mark.parametrize("name", BUCKETED)
def test_native_logs_are_compacted_before_a_table_goes_down(name: str, tmp_path: Path) -> None:
    path, options = unpacked(name, tmp_path), buckets(name)
    LsmTable(path, options).change_version(10)
    table = LsmTable(path, options)
    some = table.scan().to_arrow().slice(3, 10)
    ordering = table.config.ordering_fields
    for field in ordering:
        place = some.schema.get_field_index(field)
        step = pa.scalar(1, pa.duration("s")) if pa.types.is_timestamp(some.schema.field(field).type) else pa.scalar(1)
        newer = pa.compute.add(some.column(field), step).cast(some.schema.field(field).type)
        some = some.set_column(place, some.schema.field(field), newer)
    table.upsert(some)
    before, native = rows(path, **options), _native(path)
    assert native
    LsmTable(path, options).change_version(9)
    assert not _native(path)
    assert rows(path, **options) == before


def _native(path: Path) -> list[str]:
    return [file.name for file in path.rglob("*") if isinstance(parse_file_name(file.name), LogFileName)]


CHANGES = [(*change, name) for change in ((9, 10), (10, 9), (9, 8), (8, 9)) for name in CHANGEABLE]


@pytest.mark.parametrize(("begin", "target", "name"), sample(CHANGES, 0, 6))
def test_a_change_that_dies_is_gone_on_with(name: str, begin: int, target: int, tmp_path: Path) -> None:
    template = unpacked(name, tmp_path / "template")
    LsmTable(template).change_version(begin)
    _check_every_death(template, target, tmp_path, CHANGEABLE.index(name))


@pytest.mark.parametrize("name", sample(BUCKETED, 0, 4))
def test_a_downgrade_that_dies_over_native_logs_is_gone_on_with(name: str, tmp_path: Path) -> None:
    options, template = buckets(name), unpacked(name, tmp_path / "template")
    table = LsmTable(template, options).change_version(10)
    table.upsert(table.scan().to_arrow().slice(0, 20))
    assert _native(template)
    _check_every_death(template, 9, tmp_path, BUCKETED.index(name))


@pytest.mark.parametrize("name", ["v9_mor_avro", "v8_mor_mdt", "v9_cow_hive_mdt"])
def test_a_change_to_sorted_files_that_dies_is_gone_on_with(name: str, tmp_path: Path) -> None:
    _check_every_death(unpacked(name, tmp_path / "template"), 10, tmp_path, BUCKETED.index("v9_mor_avro"), "lsm_tree")


def _check_every_death(template: Path, target: int, folder: Path, first: int, layout: str | None = None) -> None:
    before, calls = rows(template), _calls(_copy(template, folder / "counted"), target, layout)
    changing = [number for number, (name, _) in enumerate(calls) if name not in LOOKING]
    assert len(changing) > 3
    deaths = [(call, Fault.KILL_BEFORE) for call in changing[first % min(STEP, len(changing)) :: STEP]]
    for call, fault in [*deaths, (changing[-1], Fault.KILL_AFTER)]:
        path = _copy(template, folder / f"{call}-{fault.name}")
        dying = LsmTable(path)
        dying.storage = FaultyStorage(dying.storage, {call: fault})
        with suppress(Killed):
            dying.change_version(target, layout)
        assert rows(path) == before, calls[call]
        LsmTable(path).change_version(target, layout)
        assert versions(path) == (target, layout or "default"), calls[call]
        assert rows(path) == before, calls[call]
        shutil.rmtree(path)


def _copy(template: Path, target: Path) -> Path:
    shutil.copytree(template, target)
    return target


def _calls(path: Path, target: int, layout: str | None) -> list[tuple[str, str]]:
    table = LsmTable(path)
    table.storage = counting = FaultyStorage(table.storage)
    table.change_version(target, layout)
    return counting.calls


@pytest.mark.parametrize("name", READ_ONLY)
def test_an_older_table_is_copied_to_a_new_one(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, target = unpacked(name, tmp_path), tmp_path / "copied"
    assert main(["upgrade", str(path)]) == 2
    assert "lsm copy" in capsys.readouterr().err
    assert main(["copy", str(path), str(target), "-o", f"{BUCKETS}=3"]) == 0
    source, copied = LsmTable(path), LsmTable(target)
    assert (copied.config.version, copied.config.storage_layout, copied.config.num_buckets) == (10, "lsm_tree", 3)
    assert sorted(map(str, copied.scan().to_arrow().to_pylist())) == sorted(
        map(str, source.scan().to_arrow().to_pylist())
    )
    with pytest.raises(UnsupportedTable, match="only read"):
        source.compact()


def test_the_command_line_says_what_it_would_do_and_does_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = unpacked("v9_mor_avro", tmp_path)
    assert main(["upgrade", str(path), "--storage-layout", "lsm_tree", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert said.count("compact ") == 4
    assert "set hoodie.table.version=10" in said
    assert versions(path) == (9, "default")
    assert main(["upgrade", str(path), "--storage-layout", "lsm_tree"]) == 0
    assert "version 10, storage layout lsm_tree" in capsys.readouterr().out
    assert main(["downgrade", str(path), "--to", "8"]) == 0
    assert versions(path) == (8, "default")
    assert main(["upgrade", str(path), "--to", "8", "--storage-layout", "lsm_tree"]) == 2
    assert main(["downgrade", str(path), "--to", "9"]) == 2


def test_an_upgrade_leaves_logs_where_they_are_and_adds_native_ones_to_the_same_slices(tmp_path: Path) -> None:
    path, options = unpacked("v9_mor_avro", tmp_path), {BUCKETS: 2}
    pinned = LsmTable(path, options).timeline.last_time
    before = rows(path)
    table = LsmTable(path, options).change_version(10)
    table.upsert(table.scan().to_arrow())
    mixed = [{log.is_native for log in found.logs} for found in table.file_slices()]
    assert {True, False} in mixed
    assert not [write for write in table.timeline.completed_writes if write.action == "commit"]
    seen = table.scan(as_of=pinned, meta=True).to_arrow().drop_columns([ROWS_ONLY]).to_pylist()
    assert sorted(map(str, seen)) == before


def test_a_writer_that_asks_for_a_later_version_upgrades_when_it_may(tmp_path: Path) -> None:
    path = unpacked("v9_mor_avro", tmp_path)
    asked = {BUCKETS: 2, "hoodie.write.table.version": 10}
    with pytest.raises(ConfigError, match=r"hoodie\.write\.table\.version=10"):
        LsmTable(path, asked)
    table = LsmTable(path, {**asked, "hoodie.write.auto.upgrade": True})
    some = table.scan().to_arrow().slice(0, 5)
    assert versions(path) == (9, "default")
    table.upsert(some)
    assert versions(path) == (10, "default")
    table.upsert(some)
    assert len(_native(path)) > 0


@pytest.mark.parametrize(
    ("name", "buckets", "renamed"),
    [("v9_mor_avro", 2, "zzz"), ("v9_mor_avro", 3, "price")],
    ids=["strange column", "wrong number of buckets"],
)
def test_a_write_that_is_refused_upgrades_nothing(name: str, buckets: int, renamed: str, tmp_path: Path) -> None:
    path = unpacked(name, tmp_path)
    table = LsmTable(path, {BUCKETS: buckets, "hoodie.write.table.version": 10, "hoodie.write.auto.upgrade": True})
    some = table.scan().to_arrow().slice(0, 5)
    before = (path / ".hoodie/hoodie.properties").read_bytes()
    with pytest.raises((SchemaError, ConfigError, UnsupportedTable)):
        table.upsert(some.rename_columns([renamed if field == "price" else field for field in some.column_names]))
    assert (path / ".hoodie/hoodie.properties").read_bytes() == before


@pytest.mark.parametrize("name", BUCKETED)
def test_a_wrong_number_of_buckets_is_found_before_anything_is_written(name: str, tmp_path: Path) -> None:
    path, count = unpacked(name, tmp_path), int(MANIFESTS[name]["write_options"][BUCKETS])
    before = rows(path)
    for wrong in (count + 1, count + 3):
        table = LsmTable(path, {BUCKETS: wrong})
        with pytest.raises(ConfigError, match=rf"hoodie\.bucket\.index\.num\.buckets={wrong}"):
            table.upsert(table.scan().to_arrow().slice(0, 5))
    assert rows(path) == before


def test_tables_with_consistent_hashing_are_refused_by_name(tmp_path: Path) -> None:
    path = unpacked("v9_mor_avro", tmp_path)
    folder = path / ".hoodie/.bucket_index/consistent_hashing_metadata/north"
    folder.mkdir(parents=True)
    (folder / "00000000000000.hashing_meta").write_bytes(b"{}")
    with pytest.raises(UnsupportedTable, match="consistent hashing"):
        LsmTable(path)


def test_a_table_that_was_changed_meanwhile_is_to_be_opened_again(tmp_path: Path) -> None:
    path, options = unpacked("v9_mor_avro", tmp_path), {BUCKETS: 2}
    stale = LsmTable(path, options)
    table = LsmTable(path, options).change_version(10)
    table.upsert(table.scan().to_arrow().slice(0, 5))
    with pytest.raises(ConfigError, match="open it again"):
        stale.change_version(8)
    assert versions(path) == (10, "default")


def test_delete_marks_that_a_class_implied_are_kept(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("Op", pa.string())])
    options = {"hoodie.table.name": "t", "hoodie.write.table.version": 8, BUCKETS: 1}
    LsmTable.create(tmp_path, schema, {**options, "hoodie.datasource.write.recordkey.field": "id"})
    file = tmp_path / ".hoodie/hoodie.properties"
    dms = {"hoodie.compaction.payload.class": "org.apache.hudi.common.model.AWSDmsAvroPayload"}
    file.write_bytes(print_properties({**parse_properties(file.read_bytes(), ""), **dms}, []))
    table = LsmTable(tmp_path)
    table.upsert(pa.table([["a", "b"], ["I", "I"]], schema=schema))
    table.upsert(pa.table([["a"], ["D"]], schema=schema))
    for target in (8, 9, 10, 9, 8):
        table = table.change_version(target)
        assert table.scan(["id"]).to_arrow().to_pylist() == [{"id": "b"}], target
    assert parse_properties(file.read_bytes(), "")["hoodie.compaction.payload.class"] == dms.popitem()[1]


PAYLOADS = "org.apache.hudi.common.model."


def _properties(path: Path) -> dict[str, str]:
    return parse_properties((path / ".hoodie/hoodie.properties").read_bytes(), "")


def _set(path: Path, **values: str) -> None:
    """Set properties; "__" stands for a dot."""
    found = {**_properties(path), **{key.replace("__", "."): value for key, value in values.items()}}
    (path / ".hoodie/hoodie.properties").write_bytes(print_properties(found, []))


@pytest.mark.parametrize(
    "payload", ["PartialUpdateAvroPayload", "OverwriteNonDefaultsWithLatestAvroPayload", "AWSDmsAvroPayload"]
)
def test_merging_by_a_class_is_so_again_after_an_upgrade_and_a_downgrade(payload: str, tmp_path: Path) -> None:
    path = unpacked("v8_mor_mdt", tmp_path)
    _set(
        path,
        hoodie__compaction__payload__class=PAYLOADS + payload,
        hoodie__record__merge__mode="CUSTOM",
        hoodie__record__merge__strategy__id="00000000-0000-0000-0000-000000000000",
    )
    before = _properties(path)
    between = LsmTable(path).change_version(9)
    assert between.config.merge_mode != "CUSTOM"
    assert between.config.properties["hoodie.table.legacy.payload.class"] == PAYLOADS + payload
    between.change_version(8)
    after = _properties(path)
    assert {key: (before.get(key), after.get(key)) for key in before.keys() | after.keys() if "m" in key} == {
        key: (before.get(key), before.get(key) if "metadata" not in key and "index.defs" not in key else after.get(key))
        for key in before.keys() | after.keys()
        if "m" in key
    }


@pytest.mark.parametrize("payload", ["PostgresDebeziumAvroPayload", "MySqlDebeziumAvroPayload"])
def test_a_downgrade_to_what_could_not_be_opened_is_refused_before_anything_changes(
    payload: str, tmp_path: Path
) -> None:
    path = unpacked("v9_mor_avro", tmp_path)
    _set(
        path,
        hoodie__table__legacy__payload__class=f"{PAYLOADS}debezium.{payload}",
        hoodie__record__merge__property__hoodie__payload__delete__field="_change_operation_type",
        hoodie__record__merge__property__hoodie__payload__delete__marker="d",
    )
    before = _properties(path)
    table = LsmTable(path)
    for attempt in (table.plan_version, table.change_version):
        with pytest.raises(UnsupportedTable, match=f"version 8: .*{payload}"):
            attempt(8)
    assert _properties(path) == before
    assert len(table.timeline.instants) == len(LsmTable(path).timeline.instants)


def test_a_dry_run_of_a_downgrade_names_every_file_that_will_be_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id", BUCKETS: 2}
    table = LsmTable.create(tmp_path, schema, {**options, "hoodie.metadata.enable": True})
    ids = [f"k{number}" for number in range(20)]
    for number in range(3):
        table.upsert(pa.table([ids, [number] * 20], schema=schema))
    table.compact()
    table.upsert(pa.table([["k1"], [7]], schema=schema))
    before = _data_files(tmp_path)
    assert main(["downgrade", str(tmp_path), "--to", "9", "--dry-run"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert _data_files(tmp_path) == before
    assert "drop the metadata table" in said
    assert any("time travel" in line for line in said)
    assert main(["downgrade", str(tmp_path), "--to", "9"]) == 0
    announced = {line.removeprefix("delete ") for line in said if line.startswith("delete ")}
    assert announced == before - _data_files(tmp_path)
    assert len(announced) > 6
    assert not (tmp_path / ".hoodie/metadata").exists()


def _data_files(path: Path) -> set[str]:
    found = (file.relative_to(path) for file in path.rglob("*.parquet"))
    return {str(file) for file in found if not str(file).startswith(".hoodie")}


def test_a_key_that_is_there_twice_is_named_before_files_are_sorted(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    options = {"hoodie.table.name": "t", "hoodie.write.table.version": 9, BUCKETS: 1}
    table = LsmTable.create(tmp_path, schema, {**options, "hoodie.datasource.write.recordkey.field": "id"})
    table.bulk_insert(pa.table([["a", "a", "b"], [1, 2, 3]], schema=schema))
    with pytest.raises(UnsupportedTable, match=r"\.parquet: a record key occurs twice"):
        table.change_version(layout="lsm_tree")
    assert table.scan().to_arrow().num_rows == 3
