"""Files of one task: names, footers key by key, Parquet settings, meta columns, stats."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm.errors import Fenced, RecordError
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.format.table.file_names import LogFileName, LogKind, WriteToken, bucket_of, parse_file_name
from streaming_lsm.format.table.partition_metadata import parse_partition_metadata
from streaming_lsm.lock.heartbeat import heartbeat_path
from streaming_lsm.lock.markers import list_marked_files
from streaming_lsm.schema import META_COLUMNS, from_avro, with_meta
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.write.buffer.dedup import FileGroupChanges
from streaming_lsm.write.buffer.record_buffer import RecordBuffer
from streaming_lsm.write.files.file_group_writer import FileGroupWriter
from streaming_lsm.write.partition_writer import write_partition
from streaming_lsm.write.plan import FileOptions, WritePlan
from tests.support import small_tables
from tests.support.plans import INSTANT, SCHEMA, make_plan, open_instant
from tests.support.writers import files_below

TOKEN = WriteToken(3, 7, 1)
SMALL_FILES = FileOptions(codec="snappy", row_group_rows=4, page_bytes=1024)


def events(rows: list[tuple[str, int | None, int, bool]], part: str = "p") -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.record_batch([columns[0], [part] * len(rows), *columns[1:]], schema=SCHEMA)


def upserts(*keys: str, part: str = "p") -> pa.RecordBatch:
    return events([(key, 1, place, False) for place, key in enumerate(keys)], part)


def write(plan: WritePlan, *batches: pa.RecordBatch, token: WriteToken = TOKEN) -> list[WriteStat]:
    return list(write_partition(plan, batches, token).stats)


def footer(root: Path, stat: WriteStat) -> dict[str, str]:
    metadata = pq.ParquetFile(root / stat.path).metadata.metadata
    return {key.decode(): value.decode() for key, value in metadata.items()}


def log_name(stat: WriteStat) -> LogFileName:
    name = parse_file_name(Path(stat.path).name)
    assert isinstance(name, LogFileName)
    return name


def test_a_data_logs_footer_holds_exactly_two_entries(tmp_path: Path) -> None:
    (stat,) = write(open_instant(make_plan(tmp_path)), upserts("b", "a"))
    found = footer(tmp_path, stat)
    assert set(found) == {"hudi.log.format.metadata", "parquet.avro.schema"}
    header = json.loads(found["hudi.log.format.metadata"])
    assert next(iter(header)) == "VERSION"
    assert set(header) == {"VERSION", "INSTANT_TIME", "SCHEMA"}
    assert (header["VERSION"], header["INSTANT_TIME"]) == ("2", INSTANT)
    assert header["SCHEMA"] == found["parquet.avro.schema"]
    assert from_avro(header["SCHEMA"], "footer").equals(with_meta(SCHEMA))


def test_a_delete_log_holds_keys_and_ordering_values_and_the_tables_schema(tmp_path: Path) -> None:
    (stat,) = write(open_instant(make_plan(tmp_path)), events([("b", 2, 1, True), ("a", None, 1, True)]))
    found = footer(tmp_path, stat)
    assert set(found) == {"hudi.log.format.metadata", "parquet.avro.schema"}
    assert from_avro(json.loads(found["hudi.log.format.metadata"])["SCHEMA"], "f").equals(with_meta(SCHEMA))
    record = json.loads(found["parquet.avro.schema"])
    assert record == {
        "type": "record",
        "name": "hudi_delete_log_record",
        "fields": [
            {"name": "_hoodie_record_key", "type": "string"},
            {"name": "ts", "type": ["null", "long"], "default": None},
        ],
    }
    rows = pq.read_table(tmp_path / stat.path)
    assert rows.to_pylist() == [{"_hoodie_record_key": "a", "ts": None}, {"_hoodie_record_key": "b", "ts": 2}]
    assert not rows.schema.field("_hoodie_record_key").nullable
    assert (stat.num_deletes, stat.num_writes, log_name(stat).kind) == (2, 0, LogKind.DELETES)


def test_a_commit_time_delete_log_holds_keys_alone(tmp_path: Path) -> None:
    (stat,) = write(open_instant(make_plan(tmp_path, event_time=False)), events([("a", 1, 1, True)]))
    assert pq.read_schema(tmp_path / stat.path).names == ["_hoodie_record_key"]


def test_parquet_settings_of_a_log(tmp_path: Path) -> None:
    plan = open_instant(make_plan(tmp_path, files=SMALL_FILES))
    (stat,) = write(plan, upserts(*(f"k{number}" for number in range(9))))
    metadata = pq.ParquetFile(tmp_path / stat.path).metadata
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [4, 4, 1]
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        key_column = metadata.schema.names.index("_hoodie_record_key")
        assert row_group.sorting_columns == (pq.SortingColumn(key_column, descending=False, nulls_first=False),)
        for place in range(row_group.num_columns):
            column = row_group.column(place)
            assert column.compression == "SNAPPY"
            assert column.has_column_index
            assert column.has_offset_index
    assert "ARROW:schema" not in footer(tmp_path, stat)
    assert pq.read_table(tmp_path / stat.path).schema.remove_metadata().equals(with_meta(SCHEMA))


def test_a_flipped_bit_in_a_page_is_noticed(tmp_path: Path) -> None:
    (stat,) = write(open_instant(make_plan(tmp_path)), upserts("a", "b"))
    path = tmp_path / stat.path
    metadata = pq.ParquetFile(path).metadata
    data = bytearray(path.read_bytes())
    last = metadata.row_group(0).column(metadata.num_columns - 1)
    data[last.data_page_offset + last.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(path, page_checksum_verification=True)


def test_meta_columns_of_a_log(tmp_path: Path) -> None:
    (stat,) = write(open_instant(make_plan(tmp_path, partitioned=True)), upserts("b", "a", part="x/y"))
    rows = pq.read_table(tmp_path / stat.path)
    assert rows.schema.names[:5] == list(META_COLUMNS)
    assert rows.select(list(META_COLUMNS)).to_pylist() == [
        {
            "_hoodie_commit_time": INSTANT,
            "_hoodie_commit_seqno": f"{INSTANT}_3_{place}",
            "_hoodie_record_key": key,
            "_hoodie_partition_path": "x/y",
            "_hoodie_file_name": stat.file_id,
        }
        for place, key in enumerate("ab")
    ]
    metadata = parse_partition_metadata((tmp_path / "x/y/.hoodie_partition_metadata").read_bytes(), "")
    assert (metadata.instant, metadata.depth) == (INSTANT, 2)


def test_sequence_numbers_go_on_over_the_files_of_a_task(tmp_path: Path) -> None:
    plan = open_instant(make_plan(tmp_path, partitioned=True, buckets=2))
    stats = write(plan, upserts(*"abcdef", part="x"), upserts(*"abcdef", part="y"))
    assert len(stats) == 4
    numbers = [n for stat in stats for n in pq.read_table(tmp_path / stat.path)["_hoodie_commit_seqno"].to_pylist()]
    assert numbers == [f"{INSTANT}_3_{place}" for place in range(12)]


def test_a_surviving_unordered_delete_has_a_version_before_the_rows(tmp_path: Path) -> None:
    plan = open_instant(make_plan(tmp_path))
    rows = [("a", 9, 1, False), ("a", None, 2, True), ("a", 3, 3, False), ("b", 1, 4, True)]
    stats = write(plan, events(rows))
    names = [log_name(stat) for stat in stats]
    assert [(name.version, name.kind) for name in names] == [
        (1, LogKind.DELETES),
        (2, LogKind.DATA),
        (2, LogKind.DELETES),
    ]
    assert [name.sort_key for name in names] == sorted(name.sort_key for name in names)
    assert {(name.file_id, name.instant, str(name.token)) for name in names} == {(stats[0].file_id, INSTANT, "3-7-1")}
    assert [pq.read_table(tmp_path / stat.path)["_hoodie_record_key"].to_pylist() for stat in stats] == [
        ["a"],
        ["a"],
        ["b"],
    ]


def test_only_the_files_that_have_rows_are_written(tmp_path: Path) -> None:
    (stat,) = write(open_instant(make_plan(tmp_path)), events([("a", 9, 1, True)]))
    assert (log_name(stat).version, log_name(stat).kind) == (1, LogKind.DELETES)
    assert write(make_plan(tmp_path)) == []


def test_a_bulk_insert_into_an_empty_bucket_makes_a_base_file(tmp_path: Path) -> None:
    plan = open_instant(make_plan(tmp_path, operation="bulk_insert", combine=False))
    (stat,) = write(plan, upserts("b", "é", "a", "b"))
    assert Path(stat.path).name == f"{stat.file_id}_3-7-1_{INSTANT}.parquet"
    found = footer(tmp_path, stat)
    assert set(found) == {
        "parquet.avro.schema",
        "writer.model.name",
        "hoodie_min_record_key",
        "hoodie_max_record_key",
    }
    assert from_avro(found["parquet.avro.schema"], "").equals(with_meta(SCHEMA))
    assert (found["hoodie_min_record_key"], found["hoodie_max_record_key"]) == ("a", "é")
    rows = pq.read_table(tmp_path / stat.path)
    assert rows["_hoodie_record_key"].to_pylist() == ["a", "b", "b", "é"]
    assert set(rows["_hoodie_file_name"].to_pylist()) == {Path(stat.path).name}
    assert (stat.num_writes, stat.num_inserts, stat.log_version) == (4, 4, None)


@pytest.mark.parametrize("known", [True, False], ids=["bucket-in-use", "with-a-delete"])
def test_a_bulk_insert_that_cannot_make_a_base_file_makes_logs(tmp_path: Path, known: bool) -> None:
    file_id = "00000000-aaaa-bbbb-cccc-000000000000-0"
    plan = make_plan(tmp_path, operation="bulk_insert", file_ids={("", 0): file_id} if known else {})
    stats = write(open_instant(plan), events([("a", 1, 1, False), ("b", 1, 1, not known)]))
    assert [log_name(stat).kind for stat in stats] == [LogKind.DATA, LogKind.DELETES][: len(stats)]
    assert len(stats) == (1 if known else 2)
    assert not known or stats[0].file_id == file_id


def test_a_new_group_has_its_bucket_in_its_id_and_the_same_id_in_every_attempt(tmp_path: Path) -> None:
    plan = open_instant(make_plan(tmp_path, buckets=3))
    first = write(plan, upserts(*"abcdef"), token=WriteToken(0, 1, 0))
    again = write(plan, upserts(*"abcdef"), token=WriteToken(0, 1, 1))
    assert [bucket_of(stat.file_id) for stat in first] == [0, 1, 2]
    assert [stat.file_id for stat in first] == [stat.file_id for stat in again]
    assert {stat.path for stat in first}.isdisjoint(stat.path for stat in again)


def blocks_of(plan: WritePlan, *rows: list[tuple[str, int | None, int, bool]]) -> list[WriteStat]:
    """Write blocks of one group as a buffer would hand them over, each from events of its own."""
    blocks = []
    for part in rows:
        buffer = RecordBuffer(plan)
        buffer.append(events(part))
        blocks += [block for _, found in buffer.drain() for block in found]
    return list(FileGroupWriter(plan, TOKEN).write(("", 0), blocks))


def keys_by_log(root: Path, stats: list[WriteStat]) -> list[tuple[int, str, list[str]]]:
    """Version, kind and keys of each log, in merge order."""
    found = [
        (log_name(stat).version, str(log_name(stat).kind), pq.read_table(root / stat.path)["_hoodie_record_key"])
        for stat in sorted(stats, key=lambda stat: log_name(stat).sort_key)
    ]
    return [(version, kind, keys.to_pylist()) for version, kind, keys in found]


def test_a_log_that_is_large_enough_ends_with_its_version(tmp_path: Path) -> None:
    files = replace(SMALL_FILES, row_group_rows=1, log_bytes=1)
    stats = blocks_of(
        open_instant(make_plan(tmp_path, files=files)),
        [("a", 1, 1, False), ("b", 1, 1, True)],
        [("c", 1, 1, False)],
        [("d", 1, 1, True)],
    )
    assert keys_by_log(tmp_path, stats) == [
        (1, "log", ["a"]),
        (1, "deletes", ["b"]),
        (2, "log", ["c"]),
        (3, "deletes", ["d"]),
    ]


def test_unordered_deletes_that_turn_up_late_begin_a_roll_of_their_own(tmp_path: Path) -> None:
    deleted_without_order = [("c", 9, 1, False), ("c", None, 1, True), ("c", 1, 2, False)]
    stats = blocks_of(
        open_instant(make_plan(tmp_path)),
        [("a", 1, 1, False), ("b", 1, 1, True)],
        deleted_without_order,
        [("d", 1, 1, False)],
        [(key.replace("c", "e"), *rest) for key, *rest in deleted_without_order],
    )
    assert keys_by_log(tmp_path, stats) == [
        (1, "log", ["a"]),
        (1, "deletes", ["b"]),
        (2, "deletes", ["c", "e"]),
        (3, "log", ["c", "d", "e"]),
    ]


def test_a_bulk_insert_goes_on_with_its_base_file_when_deletes_turn_up(tmp_path: Path) -> None:
    base, deletes = blocks_of(
        open_instant(make_plan(tmp_path, operation="bulk_insert")),
        [("a", 1, 1, False)],
        [("b", 1, 1, True), ("c", 9, 1, False), ("c", None, 1, True), ("c", 1, 2, False)],
        [("d", 1, 1, False)],
    )
    rows = pq.read_table(tmp_path / base.path)
    assert rows["_hoodie_record_key"].to_pylist() == ["a", "c", "d"]
    assert set(rows["_hoodie_file_name"].to_pylist()) == {Path(base.path).name}
    assert keys_by_log(tmp_path, [deletes]) == [(1, "deletes", ["b"])]


def test_a_failing_input_leaves_no_file_behind(tmp_path: Path) -> None:
    plan = open_instant(make_plan(tmp_path))

    def blocks() -> Iterator[FileGroupChanges]:
        buffer = RecordBuffer(plan)
        buffer.append(upserts("a"))
        yield from (block for _, found in buffer.drain() for block in found)
        raise OSError("the spill is gone")

    with pytest.raises(OSError, match="the spill is gone"):
        list(FileGroupWriter(plan, TOKEN).write(("", 0), blocks()))
    assert not [path for path in files_below(tmp_path) if path.endswith(".parquet")]


def test_every_file_has_a_marker_and_a_size(tmp_path: Path) -> None:
    plan = open_instant(make_plan(tmp_path, partitioned=True, buckets=2))
    stats = write(plan, upserts(*"abcd", part="x"), events([("a", 1, 1, True)], "y"))
    assert set(list_marked_files(plan.storage, INSTANT)) == {stat.path for stat in stats}
    assert all((tmp_path / stat.path).stat().st_size == stat.total_bytes for stat in stats)
    assert {stat.path for stat in stats} == {path for path in files_below(tmp_path) if path.endswith(".parquet")}


def test_a_fenced_task_leaves_no_data_file(tmp_path: Path) -> None:
    plan = open_instant(make_plan(tmp_path))
    plan.storage.delete(heartbeat_path(INSTANT))
    before = files_below(tmp_path)
    with pytest.raises(Fenced):
        write(plan, upserts("a"))
    assert files_below(tmp_path) == before


def test_a_task_fenced_after_its_last_file_discards_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = open_instant(make_plan(tmp_path))
    monkeypatch.setattr(
        "streaming_lsm.write.partition_writer.DeadLetterBox.post",
        lambda box: plan.storage.delete(heartbeat_path(INSTANT)),
    )
    with pytest.raises(Fenced):
        write(plan, upserts("a"))
    assert not [path for path in files_below(tmp_path) if path.endswith(".parquet")]


def test_a_fenced_task_discards_each_file_though_one_of_them_cannot_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = open_instant(make_plan(tmp_path))
    failed: list[str] = []

    class Failing(LocalStorage):
        def delete(self, path: str) -> None:
            if path.endswith(".parquet") and not failed:
                failed.append(path)
                raise OSError(errno.EIO, "injected", path)
            super().delete(path)

    monkeypatch.setattr(
        "streaming_lsm.write.partition_writer.DeadLetterBox.post",
        lambda box: plan.storage.delete(heartbeat_path(INSTANT)),
    )
    with pytest.raises(Fenced):
        write(replace(plan, storage=Failing(tmp_path)), upserts(*"abcdefgh"))
    left = [path for path in files_below(tmp_path) if path.endswith(".parquet")]
    assert len(failed) == len(left) == 1


def test_a_refused_row_leaves_no_file(tmp_path: Path) -> None:
    plan = open_instant(make_plan(tmp_path))
    before = files_below(tmp_path)
    with pytest.raises(RecordError):
        write(plan, upserts("a"), events([("b", None, 1, False)]))
    assert files_below(tmp_path) == before


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "uncompressed"])
def test_parquet_blocks_of_inline_logs_take_every_codec(tmp_path: Path, codec: str) -> None:
    options = {
        "hoodie.write.table.version": 9,
        "hoodie.logfile.data.block.format": "parquet",
        "hoodie.parquet.compression.codec": codec,
    }
    table = small_tables.create(tmp_path / "t", **options)
    table.upsert(small_tables.rows(("a", "nl", 1, 1)))
    assert list((tmp_path / "t" / "nl").glob(".*.log.*"))
    assert small_tables.shown(table) == [("a", "nl", 1, 1)]


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "uncompressed"])
def test_every_codec_is_written_as_it_is_named(tmp_path: Path, codec: str) -> None:
    files = FileOptions(codec=codec, row_group_rows=100, page_bytes=1024)
    (stat,) = write(open_instant(make_plan(tmp_path, operation="bulk_insert", files=files)), upserts("a"))
    found = pq.ParquetFile(tmp_path / stat.path).metadata.row_group(0).column(0).compression
    assert found == codec.upper()


def test_nested_columns_are_written_and_have_three_level_lists(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            *SCHEMA,
            ("tags", pa.list_(pa.field("element", pa.string()))),
            ("counts", pa.map_(pa.string(), pa.int32())),
            ("place", pa.struct([("x", pa.float64()), ("names", pa.list_(pa.field("element", pa.string())))])),
        ]
    )
    plan = open_instant(make_plan(tmp_path, schema=schema))
    row = {"id": "a", "part": "p", "ts": 1, "value": 1, "gone": False, "tags": ["t", None], "counts": [("c", 1)]}
    rows = pa.RecordBatch.from_pylist([{**row, "place": {"x": 0.5, "names": ["n"]}}], schema=schema)
    (stat,) = write(plan, rows)
    paths = [column.path for column in pq.ParquetFile(tmp_path / stat.path).schema]
    assert {"tags.list.element", "counts.key_value.key", "place.names.list.element"} <= set(paths)
    assert pq.read_table(tmp_path / stat.path).select(schema.names).to_pylist() == rows.to_pylist()
