"""Where the keys of a table without buckets are found, and where new ones go."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import ConfigError, UnsupportedTable, WriteConflict
from streaming_lsm.file_group.file_system_view import BaseFile, FileSlice
from streaming_lsm.format.table.file_names import BaseFileName
from streaming_lsm.index import key_lookup, partition_groups
from streaming_lsm.index.insert_groups import FileSizes, InsertGroups, SmallGroups, small_groups
from streaming_lsm.index.key_lookup import KeyLookup
from streaming_lsm.index.live_file_group import LiveFileGroup
from streaming_lsm.index.partition_groups import PackedGroups, PartitionGroups
from tests.support.metadata_tables import assert_locations

SIZES = FileSizes(small_bytes=600, file_bytes=1000, row_bytes=10)
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.index.type": "SIMPLE",
}


def keys(count: int) -> pa.StringArray:
    return pa.array([f"key-{number}" for number in range(count)])


def rows(first: int, count: int, value: int = 0) -> pa.Table:
    names = [f"key-{number:06d}" for number in range(first, first + count)]
    return pa.table({"k": names, "v": pa.array([value] * count, pa.int64())})


def test_new_keys_fill_the_smallest_groups_first_and_then_begin_new_ones() -> None:
    inserts = InsertGroups(SIZES, {"p": [(4, 100), (2, 500)]}, {"p": 7})
    assert inserts.targets("p", 80).numbers.tolist() == [4]
    assert inserts.targets("p", 100).numbers.tolist() == [4, 2]
    # One task writes as many files as it needs in one new group; several agree on groups by the expected rows.
    assert inserts.targets("p", 350).numbers.tolist() == [4, 2, 7]
    assert replace(inserts, rows=350).targets("p", 1).numbers.tolist() == [4, 2, 7, 8, 9]
    assert inserts.targets("other", 0).numbers.tolist() == [0]


def test_later_keys_go_on_where_those_before_have_ended() -> None:
    inserts = InsertGroups(SIZES, {"p": [(4, 100), (2, 500)]}, {"p": 7})
    whole = inserts.targets("p", 300)
    room = dict(zip(whole.numbers.tolist(), np.diff(whole.ends, prepend=0).tolist(), strict=True))
    taken = dict.fromkeys(room, 0)
    for first in range(0, 300, 10):
        for number in inserts.targets("p", 10, before=first).of(rows(first, 10)["k"].combine_chunks()).tolist():
            taken[number] += 1
    assert sum(taken.values()) == 300
    for number, count in taken.items():
        assert abs(count - room[number]) < 10


def test_each_group_gets_about_the_rows_that_it_has_room_for() -> None:
    chosen = InsertGroups(SIZES, {"p": [(4, 100), (2, 500)]}, {"p": 7}, rows=350).targets("p", 350).of(keys(35_000))
    shares = dict(zip(*np.unique(chosen, return_counts=True), strict=True))
    assert shares[4] == pytest.approx(9000, rel=0.1)
    assert shares[2] == pytest.approx(5000, rel=0.1)
    assert shares[7] == pytest.approx(10_000, rel=0.1)


def test_a_key_goes_to_the_same_group_whatever_else_a_task_has() -> None:
    targets = InsertGroups(SIZES, {"p": [(4, 100), (2, 500)]}, {"p": 7}, rows=350)
    alone = targets.targets("p", 1).of(keys(50))
    assert targets.targets("p", 99_999).of(keys(5000))[:50].tolist() == alone.tolist()


def test_groups_with_logs_take_no_rows_that_are_merged_with_base_files() -> None:
    groups = {0: LiveFileGroup("a", None, (("t", "a.log"),), (5,)), 1: LiveFileGroup("b")}
    assert small_groups(groups, SIZES) == [(1, 0), (0, 5)]
    assert small_groups(groups, SIZES, merges=True) == []


def test_a_task_decodes_the_file_groups_of_the_partitions_that_it_asks_for() -> None:
    base = BaseFile("p1/f1_0-0-0_10.parquet", BaseFileName("f1", "0-0-0", "10"), 7)
    groups = {
        f"p{number}": {0: LiveFileGroup("f0", None, (("t", "p/a.log"),), (5,)), 3: LiveFileGroup("f1", base)}
        for number in range(50)
    }
    packed = PartitionGroups({path: PackedGroups(found) for path, found in groups.items()})
    encoded = pickle.dumps(packed)
    assert pickle.dumps(packed) == encoded
    with pytest.MonkeyPatch.context() as patched:
        decoded: list[bytes] = []
        unpack = partition_groups._decoded
        patched.setattr(partition_groups, "_decoded", lambda data: decoded.append(data) or unpack(data))
        found = pickle.loads(encoded)
        assert found["p7"] == groups["p7"]
        assert SmallGroups(found, SIZES).get("p9") == [(0, 5), (3, 7)]
        assert (len(decoded), list(found)) == (2, list(groups))
    assert dict(found) == groups


@pytest.mark.parametrize("index", ["SIMPLE", "RECORD_INDEX"])
@pytest.mark.parametrize("version", [8, 9, 10])
def test_a_new_key_that_comes_twice_is_one_row_if_batches_are_not_combined(
    tmp_path: Path, version: int, index: str
) -> None:
    options = {"hoodie.combine.before.upsert": False, "hoodie.write.table.version": version}
    table = LsmTable.create(tmp_path, rows(0, 1).schema, {**OPTIONS, **options, "hoodie.index.type": index})
    table.upsert(pa.concat_tables([rows(0, 3), rows(0, 3, 1), rows(7, 1)]))
    table.upsert(pa.concat_tables([rows(5, 1), rows(5, 1, 2), rows(2, 1, 3)]))
    found = table.scan(columns=["k", "v"]).to_arrow().sort_by("k")
    assert found.column("k").to_pylist() == [f"key-{number:06d}" for number in (0, 1, 2, 5, 7)]
    assert found.column("v").to_pylist() == [1, 1, 3, 2, 0]
    assert table.check_indexes().findings == ()


def test_a_new_group_ends_at_the_size_of_a_file(tmp_path: Path) -> None:
    sizes = {
        "hoodie.parquet.max.file.size": 200_000,
        "lsm.parquet.row.group.rows": 4096,
        "lsm.write.buffer.bytes": 4 << 20,
    }
    table = LsmTable.create(tmp_path, rows(0, 1).schema, {**OPTIONS, **sizes})
    table.upsert(rows(0, 100_000))
    slices = table.file_slices()
    assert len(slices) > 2
    assert max(one.size for one in slices) < 300_000
    assert table.scan().count() == 100_000
    names = table.scan(columns=["_hoodie_file_name"]).to_arrow().column(0).unique().to_pylist()
    assert {name.partition("_")[0] for name in names} == {one.file_id for one in slices}


def test_an_update_is_written_to_the_group_of_its_row_and_a_new_row_to_a_small_group(tmp_path: Path) -> None:
    table = LsmTable.create(tmp_path, rows(0, 1).schema, OPTIONS)
    table.upsert(rows(0, 100))
    table.upsert(rows(50, 100, 1))
    (only,) = table.file_slices()
    assert len(only.logs) == 2
    assert sorted(table.scan(columns=["v"]).to_arrow().column(0).to_pylist()) == [0] * 50 + [1] * 100


FILLED: dict[str, dict[str, object]] = {
    "copy on write": {"hoodie.datasource.write.table.type": "COPY_ON_WRITE"},
    "version 9": {"hoodie.write.table.version": 9},
    "version 10": {},
}


@pytest.mark.parametrize("kind", FILLED)
def test_inserts_fill_small_file_groups_up_to_their_limit_and_then_begin_new_ones(kind: str, tmp_path: Path) -> None:
    limit, most, count = 60_000, 100_000, 300
    sizes = {
        "hoodie.parquet.small.file.limit": limit,
        "hoodie.parquet.max.file.size": most,
        "hoodie.copyonwrite.record.size.estimate": 80,
    }
    options = {**OPTIONS, **sizes, "hoodie.clean.automatic": False, "hoodie.parquet.compression.codec": "uncompressed"}
    table = LsmTable.create(tmp_path, rows(0, 1).schema, {**options, **FILLED[kind]})
    grown = 0
    for batch in range(12):
        before = {one.file_id: one for one in table.file_slices()}
        table.upsert(rows(batch * count, count))
        after = {one.file_id: one for one in table.file_slices()}
        small = [file_id for file_id, one in before.items() if one.size < limit]
        assert all(after[file_id].size > before[file_id].size for file_id in small[:1])
        assert all(after[file_id].files == one.files for file_id, one in before.items() if one.size > most)
        grown += len(small)
        if kind == "copy on write" and small:
            assert after[small[0]].base != before[small[0]].base, "merged with its base file"
    assert grown >= 4
    slices = table.file_slices()
    assert sum(one.size < limit for one in slices) <= 1
    assert max(one.size for one in slices) < most + limit
    assert table.scan().count() == 12 * count


def test_two_writes_of_one_partition_conflict_as_both_may_insert_a_key(tmp_path: Path) -> None:
    together = {
        "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
        "hoodie.write.num.retries.on.conflict.failures": 0,
    }
    table = LsmTable.create(tmp_path, rows(0, 1).schema, {**OPTIONS, **together})
    other = LsmTable(tmp_path, together)

    def batches() -> object:
        other.upsert(rows(0, 10, 1))
        yield from rows(0, 10).to_batches()

    reader = pa.RecordBatchReader.from_batches(rows(0, 1).schema, batches())
    with pytest.raises(WriteConflict, match="partition ''"):
        table.upsert(reader)
    assert table.scan(columns=["v"]).to_arrow().column(0).to_pylist() == [1] * 10


def test_non_blocking_writes_are_refused(tmp_path: Path) -> None:
    mode = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
    table = LsmTable.create(tmp_path, rows(0, 1).schema, {**OPTIONS, **mode})
    with pytest.raises(ConfigError, match="needs a bucket index"):
        table.upsert(rows(0, 1))


def test_buckets_and_an_index_that_looks_keys_up_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="which has no buckets"):
        LsmTable.create(tmp_path / "a", rows(0, 1).schema, {**OPTIONS, "hoodie.bucket.index.num.buckets": 4})
    bucketed = {**OPTIONS, "hoodie.index.type": "BUCKET"}
    LsmTable.create(tmp_path / "b", rows(0, 1).schema, bucketed)
    with pytest.raises(ConfigError, match=r"hoodie\.index\.type=SIMPLE but the table"):
        LsmTable(tmp_path / "b", {"hoodie.index.type": "SIMPLE"})


def test_a_table_of_another_program_needs_to_be_told_its_index(tmp_path: Path) -> None:
    table = LsmTable.create(tmp_path, rows(0, 1).schema, OPTIONS)
    table.upsert(rows(0, 10))
    properties = tmp_path / ".hoodie" / "hoodie.properties"
    lines = properties.read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("lsm.index.type", "#lsm.checksum"))]
    properties.write_text("\n".join(kept) + "\n")
    with pytest.raises(UnsupportedTable, match="does not say where a key is stored"):
        LsmTable(tmp_path).upsert(rows(5, 10, 1))
    LsmTable(tmp_path, {"hoodie.index.type": "BLOOM"}).upsert(rows(5, 10, 1))
    assert LsmTable(tmp_path).scan().count() == 15


def test_a_batch_that_is_spilled_finds_the_groups_of_its_keys(tmp_path: Path) -> None:
    for index in ("SIMPLE", "GLOBAL_SIMPLE"):
        options = {**OPTIONS, "hoodie.index.type": index, "lsm.write.buffer.bytes": 4 << 20}
        table = LsmTable.create(tmp_path / index, rows(0, 1).schema, options)
        table.upsert(rows(0, 50_000))
        table.upsert(pa.concat_tables([rows(25_000, 150_000, 1), rows(0, 50_000, 2)]))
        assert table.last_numbers is not None
        assert table.last_numbers.spilled_bytes > 0
        found = table.scan(columns=["k", "v"]).to_arrow().sort_by("k")
        assert found.num_rows == 175_000
        assert found.column("v").to_pylist() == [2] * 50_000 + [1] * 125_000


@pytest.mark.parametrize("index", ["RECORD_INDEX", "RECORD_LEVEL_INDEX"])
@pytest.mark.parametrize("version", [9, 10])
def test_the_record_index_alone_tells_where_keys_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str, version: int
) -> None:
    options = {**OPTIONS, "hoodie.index.type": index, "hoodie.write.table.version": version}
    table = LsmTable.create(tmp_path, rows(0, 1).schema, options)
    table.upsert(rows(0, 100))
    table.upsert(rows(0, 1))  # the first one has no partition yet, for which there could be shards
    assert "record_index" in LsmTable(tmp_path).config.metadata_partitions

    def refuse(*_: object) -> NoReturn:
        raise AssertionError("keys are looked up in the files")

    monkeypatch.setattr(KeyLookup, "find", refuse)
    monkeypatch.setattr(KeyLookup, "live_rows", refuse)
    table.upsert(rows(50, 100, 1))
    table.delete(rows(0, 10).select(["k"]))
    LsmTable(tmp_path).upsert(rows(5, 10, 2))
    found = table.scan(columns=["v"]).to_arrow().column(0).to_pylist()
    assert sorted(found) == [0] * 35 + [1] * 100 + [2] * 10
    assert_locations(tmp_path)


def test_a_record_index_of_each_partition_is_refused_for_the_type_that_looks_in_all(tmp_path: Path) -> None:
    by_partition = {"hoodie.metadata.record.level.index.enable": True}
    with pytest.raises(ConfigError, match=r"hoodie\.index\.type=RECORD_INDEX looks keys up in one of all"):
        LsmTable.create(tmp_path, rows(0, 1).schema, {**OPTIONS, "hoodie.index.type": "RECORD_INDEX", **by_partition})
    LsmTable.create(tmp_path, rows(0, 1).schema, {**OPTIONS, "hoodie.index.type": "RECORD_INDEX"})
    with pytest.raises(ConfigError, match="or choose RECORD_LEVEL_INDEX"):
        LsmTable(tmp_path, by_partition)


def test_keys_are_found_in_the_files_without_a_record_index(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = LsmTable.create(tmp_path, rows(0, 1).schema, {**OPTIONS, "hoodie.index.type": "RECORD_INDEX"})
    table.upsert(rows(0, 100))
    for path in (tmp_path / ".hoodie/metadata/record_index").glob("*.hfile"):
        path.write_bytes(b"damaged")
    LsmTable(tmp_path).upsert(rows(50, 100, 1))
    assert "is not read, no key is looked up" in caplog.text
    found = LsmTable(tmp_path).scan(columns=["v"]).to_arrow().column(0).to_pylist()
    assert sorted(found) == [0] * 50 + [1] * 100


def test_a_row_is_updated_where_it_lives_and_not_where_it_was_deleted(tmp_path: Path) -> None:
    """The record index forgets a deleted key, whose file still has it; then the files are asked."""
    options = {**OPTIONS, "hoodie.index.type": "RECORD_INDEX", "hoodie.parquet.small.file.limit": 0}
    table = LsmTable.create(tmp_path, rows(0, 1).schema, options)
    table.upsert(rows(0, 10))
    table.delete(rows(3, 1).select(["k"]))
    table.upsert(rows(3, 1, 1))
    assert len(table.file_slices()) == 2
    for value, index in enumerate(("SIMPLE", "GLOBAL_SIMPLE"), 2):
        LsmTable(tmp_path, {"hoodie.index.type": index}).upsert(rows(3, 1, value))
        found = LsmTable(tmp_path).lookup(["key-000003"])
        assert found.column("v").to_pylist() == [value]


def test_a_bucketed_table_of_another_program_is_not_taken_for_one_without_buckets(tmp_path: Path) -> None:
    bucketed = {**OPTIONS, "hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 8}
    LsmTable.create(tmp_path, rows(0, 1).schema, bucketed).upsert(rows(0, 100))
    properties = tmp_path / ".hoodie" / "hoodie.properties"
    kept = [line for line in properties.read_text().splitlines() if not line.startswith(("lsm.", "#lsm."))]
    properties.write_text("\n".join(kept) + "\n")
    with pytest.raises(ConfigError, match="begin with buckets"):
        LsmTable(tmp_path, {"hoodie.index.type": "SIMPLE"}).upsert(rows(50, 100, 1))
    LsmTable(tmp_path, {"hoodie.bucket.index.num.buckets": 8}).upsert(rows(50, 100, 1))
    assert LsmTable(tmp_path).scan().count() == 150


@pytest.mark.parametrize("state", ["whole", "damaged"])
def test_bloom_opens_the_files_with_a_key_by_the_filters_of_the_metadata_table(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = {
        **OPTIONS,
        "hoodie.index.type": "BLOOM",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.parquet.bloom.filter.enabled": True,
        "hoodie.metadata.enable": True,
        "hoodie.metadata.index.bloom.filter.enable": True,
        "hoodie.parquet.max.file.size": 60_000,
        "hoodie.parquet.small.file.limit": 0,
    }
    table = LsmTable.create(tmp_path, rows(0, 1).schema, options)
    for first in (0, 100, 200):
        table.upsert(rows(first, 100))
    table = LsmTable(tmp_path, {**options, "hoodie.bloom.index.use.metadata": True})
    table.upsert(rows(300, 10))
    groups = len(table.file_slices())
    assert groups > 3
    if state == "damaged":
        for path in (tmp_path / ".hoodie/metadata/bloom_filters").glob("bloom*"):
            path.write_bytes(b"damaged")
    looked_in: list[str] = []
    find = key_lookup.find_stored_keys

    def counted(reader: Any, one: FileSlice, **given: Any) -> Any:
        looked_in.append(one.file_id)
        return find(reader, one, **given)

    monkeypatch.setattr(key_lookup, "find_stored_keys", counted)
    table.upsert(pa.concat_tables([rows(7, 1, 5), rows(50_000, 1, 5)]))
    assert len(looked_in) == (1 if state == "whole" else groups)
    assert ("bloom_filters is not read" in caplog.text) == (state == "damaged")
    found = table.scan(filter=pc.field("v") == 5).to_arrow()
    assert sorted(found.column("k").to_pylist()) == ["key-000007", "key-050000"]
    assert table.scan().count() == 311
