"""Bases and logs of the metadata table's partition ``files``."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from streaming_lsm.errors import CorruptFileError, LsmError, UnsupportedTable
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.log.delete_block import encode_delete_block
from streaming_lsm.format.log.inline_blocks import BlockType, Header, encode_block, read_blocks
from streaming_lsm.format.metadata.files_partition import (
    ALL_PARTITIONS_KEY,
    FILE_GROUP,
    Records,
    partition_key,
    partition_path,
)
from streaming_lsm.format.metadata.group_files import FIRST_INSTANT, base_name, log_name
from streaming_lsm.format.metadata.records import FilesRecord, MetadataFileInfo
from streaming_lsm.format.metadata.schema import metadata_schema
from streaming_lsm.format.table.file_names import InlineLogName, LogFileName, parse_file_name
from tests.support.hfiles import sought, written
from tests.support.listed_files import decode_base, decode_log, encode_base, encode_log, existing, merge_files
from tests.support.metadata_records import FileBloom, encode_record

TIME = "20261121120000000"
RECORDS: Records = {
    "nl": FilesRecord({"a.parquet": MetadataFileInfo(17), "b.parquet": MetadataFileInfo(0, is_deleted=True)}),
    ALL_PARTITIONS_KEY: FilesRecord({"nl": MetadataFileInfo(0)}, all_partitions=True),
}


@pytest.mark.parametrize("native", [False, True])
def test_a_log_gives_back_its_records_and_their_instant(native: bool) -> None:
    name = log_name(FILE_GROUP, TIME, native=native)
    (logged,) = decode_log(encode_log(RECORDS, name, 1), name, "log")
    assert (logged.instant, logged.records) == (TIME, RECORDS)
    assert parse_file_name(str(name)) == name


def test_logs_are_inline_up_to_version_nine_and_native_from_ten_on() -> None:
    inline, native = log_name(FILE_GROUP, TIME, native=False), log_name(FILE_GROUP, TIME, native=True)
    assert (str(inline), str(native)) == (
        f".files-0000-0_{TIME}.log.1_0-0-0",
        f"files-0000-0_0-0-0_{TIME}_1.log.hfile",
    )
    (block,) = read_blocks(encode_log(RECORDS, inline, 1), "log")
    assert block.type is BlockType.HFILE_DATA
    assert block.header == {Header.INSTANT_TIME: TIME, Header.SCHEMA: metadata_schema()}
    header = json.loads(HFile.open(encode_log(RECORDS, native, 1), "log").info["hudi.log.format.metadata"])
    assert header == {"VERSION": "2", "INSTANT_TIME": TIME, "SCHEMA": metadata_schema()}


def test_the_log_that_marks_a_new_group_has_an_empty_delete_block_or_no_rows() -> None:
    inline = encode_log({}, log_name(FILE_GROUP, FIRST_INSTANT, native=False), 1)
    (block,) = read_blocks(inline, "log")
    assert (block.type, bytes(block.content).hex(), len(inline)) == (BlockType.DELETE, "000000030000000100", 80)
    assert list(decode_log(inline, InlineLogName("files-0000-0", FIRST_INSTANT, 1), "log")) == []
    name = log_name(FILE_GROUP, FIRST_INSTANT, native=True)
    native = encode_log({}, name, 1)
    assert HFile.open(native, "log").entry_count == 0
    assert [logged.records for logged in decode_log(native, name, "log")] == [{}]


def test_a_base_file_gives_back_its_records_and_answers_for_its_keys() -> None:
    name = base_name(FILE_GROUP, TIME)
    data = encode_base(RECORDS, name, 1)
    assert decode_base(data, "base") == RECORDS
    file = HFile.open(data, "base")
    assert (file.info["minRecordKey"], file.info["maxRecordKey"]) == (b"__all_partitions__", b"nl")
    assert file.meta("bloomFilter")
    assert str(name).encode() in sought(file, [b"nl"])[b"nl"]


OTHER = written(
    [(b"k", encode_record(FileBloom("DYNAMIC_V0", TIME, b"")))], schema_json=metadata_schema(), created_ms=1
)
HEADER = {Header.INSTANT_TIME: TIME, Header.SCHEMA: metadata_schema()}


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (encode_block(BlockType.COMMAND, {Header.COMMAND_BLOCK_TYPE: "0"}, b""), UnsupportedTable, "COMMAND"),
        (encode_block(BlockType.DELETE, HEADER, b"\0\0\0\3\0\0\0\2xx"), CorruptFileError, "more items than bytes"),
        (
            encode_block(BlockType.DELETE, HEADER, encode_delete_block(pa.array(["k"]), pa.array(["files"]), [])),
            CorruptFileError,
            "f at offset 0: deletes, which files has not: drop the metadata table",
        ),
        (
            encode_block(BlockType.HFILE_DATA, HEADER | {Header.COMPACTED_BLOCK_TIMES: TIME}, OTHER),
            UnsupportedTable,
            "HFILE_DATA",
        ),
        (
            encode_block(BlockType.HFILE_DATA, HEADER, OTHER),
            CorruptFileError,
            "of type 4 where records of type 1 or 2 belong",
        ),
        (encode_block(BlockType.HFILE_DATA, HEADER, OTHER)[:-1], CorruptFileError, "damaged block"),
        (b"", CorruptFileError, "does not begin"),
    ],
)
def test_what_is_not_such_a_log_is_refused(data: bytes, error: type[LsmError], message: str) -> None:
    with pytest.raises(error, match=message):
        list(decode_log(data, InlineLogName("files-0000-0", TIME, 1), "f"))


def test_a_native_log_of_a_log_compaction_is_refused() -> None:
    name = log_name(FILE_GROUP, TIME, native=True)
    assert isinstance(name, LogFileName)
    header = json.dumps({"SCHEMA": metadata_schema(), "COMPACTED_BLOCK_TIMES": TIME}).encode()
    info = {"hudi.log.format.metadata": header}
    data = written([], schema_json=metadata_schema(), created_ms=1, extra_info=info)
    with pytest.raises(UnsupportedTable, match="log compaction"):
        list(decode_log(data, name, "f"))


def test_an_unpartitioned_table_has_a_dot_for_its_partition() -> None:
    assert [partition_key(path) for path in ("", "a/b")] == [".", "a/b"]
    assert [partition_path(key) for key in (".", "a/b")] == ["", "a/b"]


def test_newer_entries_go_over_older_ones() -> None:
    older = {
        "kept": MetadataFileInfo(1),
        "gone": MetadataFileInfo(2),
        "grown": MetadataFileInfo(3),
        "shrunk": MetadataFileInfo(9),
    }
    newer = {
        "gone": MetadataFileInfo(0, is_deleted=True),
        "grown": MetadataFileInfo(5),
        "shrunk": MetadataFileInfo(8),
        "new": MetadataFileInfo(6),
    }
    assert merge_files(older, newer) == {
        "kept": MetadataFileInfo(1),
        "grown": MetadataFileInfo(5),
        "shrunk": MetadataFileInfo(9),
        "new": MetadataFileInfo(6),
    }
    assert older["gone"] == MetadataFileInfo(2)


def test_a_tombstone_waits_for_a_file_that_older_records_name() -> None:
    tombstone = {"f": MetadataFileInfo(0, is_deleted=True)}
    assert merge_files({}, tombstone) == merge_files(tombstone, tombstone) == tombstone
    assert existing(merge_files({}, tombstone)) == {}
    assert merge_files({"f": MetadataFileInfo(7)}, merge_files({}, tombstone)) == {}
    assert existing(merge_files(tombstone, {"f": MetadataFileInfo(4)})) == {"f": 4}
