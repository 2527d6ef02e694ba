"""Records of ``bloom_filters`` as columns, against a codec that takes them one at a time."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.bloom import BloomFilter
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.metadata.bloom_filters import FILTERS, decode_filters, encode_filters, filter_key, filter_row
from streaming_lsm.format.metadata.records import FilesRecord, MetadataFileInfo
from streaming_lsm.format.metadata.schema import metadata_schema
from tests.support.hfiles import written
from tests.support.metadata_records import FileBloom, decode_record, encode_record

TEXT = BloomFilter.build(pa.array(["a", "b"]), 10, 0.01, 100).encode().encode()
ROWS = [
    filter_row("DYNAMIC_V0", "20261121033204032", TEXT),
    filter_row("SIMPLE", "20261121033204033", b""),
    filter_row("", "20261121033204034", b"", is_deleted=True),
]


def _cells(records: list[bytes]) -> Any:
    entries = [(f"k{number}".encode(), record) for number, record in enumerate(records)]
    (cells,) = HFile.open(written(entries, schema_json=metadata_schema(), created_ms=0), "f").cells()
    return cells


@pytest.mark.parametrize("file_name", [None, "a.hfile"])
def test_both_codecs_agree(file_name: str | None) -> None:
    encoded = encode_filters(pa.array(ROWS, FILTERS), file_name).to_pylist()
    blooms = [FileBloom(row["type"], row["timestamp"], row["bloomFilter"], row["isDeleted"]) for row in ROWS]
    assert encoded == [encode_record(bloom, file_name) for bloom in blooms]
    assert [decode_record(value, metadata_schema(), "f") for value in encoded] == blooms
    assert decode_filters(_cells(encoded), metadata_schema(), "f").to_pylist() == ROWS


def test_a_key_has_the_hashes_of_partition_and_name() -> None:
    key = filter_key("south", "a.parquet")
    # That of the partition is one of Hudi's, in the table v9_mor_mdt_full.
    assert key == "uU7KLI7IFI4=" + base64.b64encode(hashlib.md5(b"a.parquet").digest()).decode()


def test_other_records_are_refused() -> None:
    files = encode_record(FilesRecord({"a": MetadataFileInfo(1)}))
    with pytest.raises(CorruptFileError, match="of type 2 where records of type 4"):
        decode_filters(_cells([files]), metadata_schema(), "f")
    with pytest.raises((CorruptFileError, UnsupportedTable)):
        decode_filters(_cells([encode_record(FileBloom("SIMPLE", "1", TEXT, False))[:-9]]), metadata_schema(), "f")
