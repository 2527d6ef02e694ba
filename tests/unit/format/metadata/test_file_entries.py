"""Records of the partition ``files`` as columns, beside the same records one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.metadata.file_entries import FileEntries
from streaming_lsm.format.metadata.files_partition import ALL_PARTITIONS_KEY, FILE_GROUP, Records
from streaming_lsm.format.metadata.group_files import base_content, base_name
from streaming_lsm.format.metadata.records import FilesRecord, MetadataFileInfo
from tests.support.listed_files import decode_base, encode_base, existing, merge_files

NAME = base_name(FILE_GROUP, "20261121120000000")


def drawn(seed: int) -> list[Records]:
    """Records of several files: names that come, grow, go and come again, and records without a name."""
    chance = np.random.default_rng(seed)
    found = []
    for _ in range(int(chance.integers(1, 7))):
        records = {}
        for key in chance.permutation(["", "a", "b/c", "ž🎁", ALL_PARTITIONS_KEY])[: chance.integers(0, 5)].tolist():
            names = chance.permutation([f"f{number}.parquet" for number in range(5)])[: chance.integers(0, 5)].tolist()
            files = {
                name: MetadataFileInfo(0, is_deleted=True)
                if chance.random() < 0.4
                else MetadataFileInfo(int(chance.integers(0, 99)))
                for name in names
            }
            records[key or "."] = FilesRecord(files, key == ALL_PARTITIONS_KEY)
        found.append(records)
    return found


def entries_of(records: Records) -> FileEntries:
    file = HFile.open(encode_base(records, NAME, 1), "base")
    parts = [FileEntries.decode(cells, file.schema_json, "base") for cells in file.cells()]
    return FileEntries.merged(parts) if len(parts) != 1 else parts[0]


@pytest.mark.parametrize("seed", range(30))
def test_columns_merge_to_what_records_merge_to_one_by_one(seed: int) -> None:
    files, merged = drawn(seed), {}
    for records in files:
        for key, record in records.items():
            before = merged.get(key, FilesRecord({}))
            merged[key] = FilesRecord(merge_files(before.files, record.files), record.all_partitions)
    keys, values = FileEntries.merged([entries_of(records) for records in files]).encode(str(NAME))
    assert keys.to_pylist() == sorted(key.encode() for key in merged)
    found = decode_base(_file(keys, values), "merged")
    assert {key: (dict(existing(record.files)), record.all_partitions) for key, record in found.items()} == {
        key: (existing(record.files), record.all_partitions) for key, record in merged.items()
    }
    assert not any(entry.is_deleted for record in found.values() for entry in record.files.values())


def _file(keys: pa.BinaryArray, values: pa.BinaryArray) -> bytes:
    return base_content(keys, values, 1, "")
