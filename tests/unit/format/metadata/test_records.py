import json
import random

import pytest

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.metadata.files_partition import ALL_PARTITIONS_KEY
from streaming_lsm.format.metadata.records import (
    ColumnStats,
    FileBloom,
    FilesRecord,
    MetadataFileInfo,
    MetadataRecord,
    RecordLocation,
    decode_record,
    encode_record,
    read_records,
)
from streaming_lsm.format.metadata.schema import metadata_schema
from tests.support.hfiles import written

_MODEL = "org.apache.hudi.avro.model"
UUID = "00000003-4275-4bc9-ab7f-a922c8591494"
STATS = ColumnStats(
    file_name="f.parquet",
    column_name="amount",
    min_value=(f"{_MODEL}.LongWrapper", {"value": -5}),
    max_value=(f"{_MODEL}.DateWrapper", {"value": 20_000}),
    value_count=10,
    null_count=1,
    total_size=100,
    total_uncompressed_size=200,
    is_deleted=False,
    is_tight_bound=True,
    value_type=(10, "20,4"),
)
RECORDS: list[MetadataRecord] = [
    FilesRecord({}, all_partitions=True),
    FilesRecord({"north": MetadataFileInfo(0), "": MetadataFileInfo(0, is_deleted=True)}, all_partitions=True),
    FilesRecord({"a.parquet": MetadataFileInfo(2**40), "ü.log": MetadataFileInfo(0, is_deleted=True)}),
    STATS,
    ColumnStats(
        file_name="north",
        column_name=None,
        min_value=None,
        max_value=None,
        value_count=None,
        null_count=None,
        total_size=None,
        total_uncompressed_size=None,
        is_deleted=True,
        of_partition=True,
    ),
    FileBloom("DYNAMIC_V0", "20261121033213750", b"/////w==", is_deleted=True),
    RecordLocation("", f"{UUID}-0", 1_795_231_924_032),
    RecordLocation("north", f"ffffffff-ffff-ffff-8000-000000000000-{10**9 - 1}", 0, position=7),
    RecordLocation("north", UUID, -1),
    RecordLocation("north", "files-0000-0", 5),
    RecordLocation("north", f"{UUID.upper()}-0", 5),
    RecordLocation("north", f"{UUID}-01", 5),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_records_survive_encoding(record: MetadataRecord) -> None:
    for file_name in (None, "files-0000-0_0-1-2_00000000000000000.hfile"):
        assert decode_record(encode_record(record, file_name), metadata_schema(), "f") == record


def test_only_a_file_name_fills_a_meta_column_and_the_key_is_empty() -> None:
    assert encode_record(FilesRecord({}))[:7] == bytes(7 - 1) + b"\x04"
    assert encode_record(FilesRecord({}), "a.hfile")[:15] == bytes(4) + b"\x02\x0ea.hfile" + b"\x00\x04"


def test_records_of_a_file_come_with_their_keys() -> None:
    records = {ALL_PARTITIONS_KEY: RECORDS[1], "north": RECORDS[2], "ü": RECORDS[2]}
    entries = [(key.encode(), encode_record(record)) for key, record in records.items()]
    data = written(entries, schema_json=metadata_schema(), created_ms=0)
    assert dict(read_records(HFile.open(data, "f"))) == records


def test_a_record_type_without_a_reader_is_refused_by_number() -> None:
    value = bytearray(encode_record(FilesRecord({})))
    value[6] = 7 << 1
    with pytest.raises(UnsupportedTable, match="f: metadata record of type 7"):
        decode_record(bytes(value), metadata_schema(), "f")


@pytest.mark.parametrize("schema", ["", "[]", "{", '"string"', '{"type":"record","name":"R","fields":[{"name":"a"}]}'])
def test_a_schema_that_is_none_is_an_error(schema: str) -> None:
    with pytest.raises(CorruptFileError, match="f: "):
        decode_record(b"\x00", schema, "f")


def test_a_schema_with_fields_of_other_types_is_an_error() -> None:
    fields = [{"name": "type", "type": "int"}, {"name": "filesystemMetadata", "type": {"type": "map", "values": "int"}}]
    schema = json.dumps({"type": "record", "name": "HoodieMetadataRecord", "fields": fields})
    with pytest.raises(CorruptFileError, match="field a of a metadata record is 1"):
        decode_record(b"\x04\x02\x02a\x02\x00", schema, "f")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_damaged_records_are_errors_or_other_records(record: MetadataRecord) -> None:
    value = encode_record(record, "x.hfile")
    for end in range(len(value)):
        with pytest.raises(CorruptFileError):
            decode_record(value[:end], metadata_schema(), "f")
    draw = random.Random(len(value))
    for _ in range(100):
        changed = bytearray(value)
        changed[draw.randrange(len(value))] ^= 1 << draw.randrange(8)
        try:
            decode_record(bytes(changed), metadata_schema(), "f")
        except (CorruptFileError, UnsupportedTable):
            continue
