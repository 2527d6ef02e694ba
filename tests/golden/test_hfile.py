"""HFiles of real metadata tables: read, written anew to the same bytes, and damaged."""

import json
import random
import struct
import zlib
from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from pathlib import Path

import pytest

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.bloom import BloomFilter
from streaming_lsm.format.hfile.block import DATA, HEADER, ROOT_INDEX, Codec, Stretch, read_block
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.hfile.trailer import TRAILER_BYTES
from streaming_lsm.format.metadata.files_partition import ALL_PARTITIONS_KEY
from streaming_lsm.format.metadata.records import FilesRecord, MetadataFileInfo
from streaming_lsm.format.metadata.schema import metadata_schema
from tests.support.hfiles import entries_of, sought, written
from tests.support.listed_files import existing, merge_files
from tests.support.metadata_records import (
    ColumnStats,
    FileBloom,
    MetadataRecord,
    RecordLocation,
    encode_record,
    read_records,
)

FOLDER = Path(__file__).parent / "data" / "hfile"
NAMES = sorted(path.name for path in FOLDER.glob("*.hfile"))
OURS = [name for name in NAMES if name.startswith("v9") and "many_blocks" not in name]
FILES = ["v9_files_base.hfile", "v9_files_log_20261121033216705.hfile", "v9_files_log_20261121033221727.hfile"]
LISTING: dict[str, dict[str, int]] = json.loads((FOLDER / "v9_listing.json").read_text("utf-8"))


def _data(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def _open(name: str) -> HFile:
    return HFile.open(_data(name), name)


def _records(name: str) -> dict[str, MetadataRecord]:
    return dict(read_records(_open(name)))


def _blocks(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Offset and header of every block, to the trailer."""
    at = 0
    while at < len(data) - TRAILER_BYTES:
        yield at, data[at : at + HEADER.size]
        at += HEADER.size + struct.unpack_from(">i", data, at + 8)[0]
    assert at == len(data) - TRAILER_BYTES


def _rewritten(name: str) -> bytes:
    """A file of its own entries, schema, time and bloom filter."""
    file = _open(name)
    bloom, kind = file.meta("bloomFilter"), file.info.get("bloomFilterTypeCode", b"").decode()
    return written(
        entries_of(file),
        schema_json=file.schema_json,
        created_ms=int.from_bytes(file.info["hfile.CREATE_TIME_TS"], "big"),
        bloom=None if bloom is None else BloomFilter.decode(bloom.decode(), kind, name),
    )


def _unpacked(data: bytes) -> list[tuple[bytes, int, bytes]]:
    """Magic, previous offset and payload of every block."""
    stretch, found = Stretch(memoryview(data), 0), []
    for at, header in _blocks(data):
        magic, _, _, previous, *_ = HEADER.unpack(header)
        found.append((magic, previous, read_block(stretch, at, len(data), magic, Codec.GZIP, "f").payload))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_block_is_read_and_every_key_found(name: str) -> None:
    file = _open(name)
    entries = entries_of(file)
    assert len(entries) == file.entry_count > 0
    assert all(before < after for (before, _), (after, _) in pairwise(entries))
    assert sought(file, [key for key, _ in entries]) == dict(entries)
    assert sought(file, [b"", b"\xff", entries[0][0] + b"\x00"]) == {}
    assert [header[:8] for _, header in _blocks(_data(name))][-1] == b"FILEINF2"


def _zlib_packs_as_javas() -> bool:
    """Whether bytes that are compressed here are those that Hudi's Java makes; zlib has successors."""
    data = _data("v9_files_base.hfile")
    at, header = next(_blocks(data))
    payload = read_block(Stretch(memoryview(data), 0), at, len(data), DATA, Codec.GZIP, "f").payload
    return zlib.compress(payload)[2:-4] == data[at + HEADER.size + 10 : HEADER.unpack(header)[-1] - 8]


@pytest.mark.parametrize("name", OURS)
def test_a_file_written_anew_is_the_one_that_hudi_wrote(name: str) -> None:
    ours, expected = _rewritten(name), _data(name)
    if _zlib_packs_as_javas():
        assert ours == expected
    # Indexes and trailer hold sizes of compressed blocks.
    assert [block for block in _unpacked(ours) if block[0] != ROOT_INDEX] == [
        block for block in _unpacked(expected) if block[0] != ROOT_INDEX
    ]


def test_many_blocks_are_cut_where_hudi_cuts_them() -> None:
    theirs = _open("v9_many_blocks.hfile")
    ours = written(entries_of(theirs), schema_json=theirs.schema_json, created_ms=1_795_231_936_832, block_bytes=512)
    blocks, expected = _unpacked(ours), _unpacked(_data("v9_many_blocks.hfile"))
    payloads = [payload for magic, _, payload in expected if magic == DATA]
    assert [payload for magic, _, payload in blocks if magic == DATA] == payloads
    assert len(payloads) == 12
    # Hudi names each block's own offset as that of the one before; ours is the one before.
    starts = [at for at, header in _blocks(ours) if header.startswith(DATA)]
    assert [previous for magic, previous, _ in blocks if magic == DATA] == [-1, *starts[:-1]]


def test_the_bloom_filter_of_a_base_file_is_made_from_its_keys() -> None:
    file = _open("v9_record_index_base.hfile")
    keys = [key for key, _ in entries_of(file)]
    assert file.meta("bloomFilter") == BloomFilter.build(keys, 10_000, 1e-9, 100_000).encode().encode()


def test_base_and_logs_of_the_files_partition_list_the_tables_folders() -> None:
    merged: dict[str, dict[str, MetadataFileInfo]] = {}
    for name in FILES:
        for key, record in _records(name).items():
            assert isinstance(record, FilesRecord)
            assert record.all_partitions == (key == ALL_PARTITIONS_KEY)
            merged[key] = merge_files(merged.get(key, {}), record.files)
    assert existing(merged.pop(ALL_PARTITIONS_KEY)) == {"north": 0, "south": 0}
    assert {partition: existing(files) for partition, files in merged.items()} == LISTING


def test_one_log_names_the_files_of_one_commit() -> None:
    instant = "20261121033221727"
    named: dict[str, FilesRecord] = {}
    for key, record in _records(f"v9_files_log_{instant}.hfile").items():
        assert isinstance(record, FilesRecord)
        named[key] = record
    of_instant = reduce(lambda one, other: {**one, **other}, (record.files for record in list(named.values())[1:]))
    assert {name: entry.size for name, entry in of_instant.items()} == {
        name: size for files in LISTING.values() for name, size in files.items() if instant in name
    }


def test_the_record_index_names_file_groups_of_the_table() -> None:
    records = _records("v9_record_index_base.hfile")
    assert len(records) == 17
    assert records["ord-0000"] == RecordLocation("north", "00000001-86fa-4aeb-b773-116cee9937bb-0", 1_795_231_924_032)
    for record in records.values():
        assert isinstance(record, RecordLocation)
        assert any(name.startswith(record.file_id) for name in LISTING[record.partition])


def test_statistics_and_blooms_say_what_they_are_of() -> None:
    stats = _records("v9_column_stats_log.hfile").values()
    assert {record.column_name for record in stats if isinstance(record, ColumnStats)} >= {"_hoodie_record_key"}
    kinds = {record.value_type[0] for record in stats if isinstance(record, ColumnStats) and record.value_type}
    assert kinds >= {2, 3, 4, 5, 6, 7}
    blooms = list(_records("v9_bloom_filters_log.hfile").values())
    assert [record.timestamp for record in blooms if isinstance(record, FileBloom)] == ["20261121033204032"] * 2
    partitions = _records("v9_partition_stats_base.hfile").values()
    assert {record.file_name for record in partitions if isinstance(record, ColumnStats)} == {"north", "south"}
    assert all(isinstance(record, ColumnStats) and record.of_partition for record in partitions)


@pytest.mark.parametrize("name", OURS)
def test_records_encode_to_the_bytes_that_hudi_wrote(name: str) -> None:
    values = dict(entries_of(_open(name)))
    files = {
        "v9_files_base.hfile": "files-0000-0_6-773-1384_20261121033216832.hfile",
        "v9_record_index_base.hfile": "record-index-0000-0_2-773-1380_20261121033216832.hfile",
        "v9_partition_stats_base.hfile": "partition-stats-0000-0_5-773-1383_20261121033216832.hfile",
    }
    for key, record in _records(name).items():
        assert encode_record(record, files.get(name)) == values[key.encode()]


def test_our_schema_is_hudis_without_comments() -> None:
    def bare(value: object) -> object:
        if isinstance(value, dict):
            return {key: bare(inner) for key, inner in value.items() if key != "doc"}
        return [bare(inner) for inner in value] if isinstance(value, list) else value

    assert bare(json.loads(metadata_schema())) == bare(json.loads(_open("v9_files_base.hfile").schema_json))


def test_a_file_of_hudi_0_15_is_read_by_its_own_schema() -> None:
    assert _records("r015_files_base.hfile") == {ALL_PARTITIONS_KEY: FilesRecord({}, all_partitions=True)}
    log = _records("r015_files_log.hfile")
    assert log[ALL_PARTITIONS_KEY] == FilesRecord(
        {"south": MetadataFileInfo(0), "north": MetadataFileInfo(0)}, all_partitions=True
    )
    assert {key: len(record.files) for key, record in log.items() if isinstance(record, FilesRecord)} == {
        ALL_PARTITIONS_KEY: 2,
        "north": 2,
        "south": 2,
    }


def _outcome(data: bytes, name: str) -> object:
    try:
        file = HFile.open(data, name)
        return entries_of(file), file.meta("bloomFilter")
    except (CorruptFileError, UnsupportedTable) as error:
        return type(error)


@pytest.mark.parametrize("name", ["v9_files_base.hfile", "r015_files_log.hfile", "v9_many_blocks.hfile"])
def test_damage_is_noticed_or_harmless(name: str) -> None:
    data = _data(name)
    sound = _outcome(data, name)
    assert {_outcome(data[:end], name) for end in range(0, len(data), 7)} == {CorruptFileError}
    draw = random.Random(name)
    noticed = 0
    for _ in range(1000):
        changed = bytearray(data)
        changed[draw.randrange(len(data) - TRAILER_BYTES + 100)] ^= 1 << draw.randrange(8)
        outcome = _outcome(bytes(changed), name)
        noticed += outcome in (CorruptFileError, UnsupportedTable)
        assert outcome in (sound, CorruptFileError, UnsupportedTable)
    assert noticed > 800
