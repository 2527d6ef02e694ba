"""Records of the record index, as columns: as Hudi writes them, and damaged."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.metadata.record_index import LOCATIONS, decode_locations, encode_locations, shards_of
from streaming_lsm.format.metadata.records import FilesRecord
from streaming_lsm.format.metadata.schema import metadata_schema
from tests.support.hfiles import written
from tests.support.metadata_records import RecordLocation, decode_record, encode_record, read_records

UUID = "00000003-4275-4bc9-ab7f-a922c8591494"
ROWS = [
    ("", f"{UUID}-0", 1_795_231_924_032),
    ("north", f"ffffffff-ffff-ffff-8000-000000000000-{10**9 - 1}", 0),
    ("north", UUID, -1),
    ("a=1/b=ü", "files-0000-0", 5),
    ("north", f"{UUID.upper()}-0", 5),
    ("north", f"{UUID}-01", 5),
    ("south", f"{UUID}-0", 7),
]


def _batch(rows: list[tuple[str, str, int]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ([], [], [])
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, LOCATIONS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=LOCATIONS)


def _decoded(values: list[bytes]) -> pa.RecordBatch:
    data = written(
        [(f"{place:04d}".encode(), value) for place, value in enumerate(values)],
        schema_json=metadata_schema(),
        created_ms=0,
    )
    file = HFile.open(data, "f")
    return (
        pa.Table.from_batches([decode_locations(cells, file.schema_json, "f") for cells in file.cells()], LOCATIONS)
        .combine_chunks()
        .to_batches()[0]
    )


@pytest.mark.parametrize("file_name", [None, "record-index-0000-0_0-1-2_00000000000000000.hfile"])
def test_locations_are_encoded_and_decoded_as_one_by_one(file_name: str | None) -> None:
    values = encode_locations(_batch(ROWS), file_name).to_pylist()
    records = [RecordLocation(*row) for row in ROWS]
    assert [decode_record(value, metadata_schema(), "f") for value in values] == records
    assert values == [encode_record(record, file_name) for record in records]
    assert _decoded(values) == _batch(ROWS)
    assert _decoded(values[:3]) == _batch(ROWS[:3])


def test_no_locations_are_encoded_to_none() -> None:
    assert encode_locations(_batch([]), None).to_pylist() == []


def test_records_of_other_types_are_refused() -> None:
    values = [*encode_locations(_batch(ROWS), None).to_pylist(), encode_record(FilesRecord({}))]
    with pytest.raises(CorruptFileError, match=r"f: metadata record b'0007' of type 2 where records of type 5 belong"):
        _decoded(values)


def test_damaged_records_are_errors_or_other_locations() -> None:
    (value,) = encode_locations(_batch(ROWS[:1]), None).to_pylist()
    for end in range(len(value)):
        with pytest.raises(CorruptFileError):
            _decoded([value[:end]])
    for place in range(len(value)):
        for bit in range(8):
            changed = bytearray(value)
            changed[place] ^= 1 << bit
            try:
                found = _decoded([bytes(changed)])
            except (CorruptFileError, UnsupportedTable):
                continue
            found.validate(full=True)


def test_keys_are_spread_by_the_hash_of_java() -> None:
    keys = pa.array(["", "a", "ord-0000", "polygenelubricants", "\U0001f600"])
    # Hashes: 0, 97, 2104300592 … the fourth is the smallest int, whose absolute value is itself.
    assert shards_of(keys, 1).tolist() == [0] * 5
    assert shards_of(keys, 10).tolist()[:2] == [0, 7]
    assert shards_of(keys, 10).tolist()[3] == 2**31 % 10
    assert shards_of(keys, 7).tolist() == [_shard(key, 7) for key in keys.to_pylist()]


def _shard(key: str, shards: int) -> int:
    hashed = 0
    units = key.encode("utf-16-be")
    for place in range(0, len(units), 2):
        hashed = (31 * hashed + int.from_bytes(units[place : place + 2], "big")) & 0xFFFFFFFF
    signed = hashed - 2**32 if hashed >= 2**31 else hashed
    absolute = signed if signed == -(2**31) else abs(signed)
    return abs(absolute) % shards


def test_the_records_that_hudi_wrote_are_read() -> None:
    from tests.golden.test_hfile import FOLDER

    name = "v9_record_index_base.hfile"
    file = HFile.open((FOLDER / name).read_bytes(), name)
    expected = dict(read_records(file))
    found: dict[str, RecordLocation] = {}
    for cells in file.cells():
        batch = decode_locations(cells, file.schema_json, name)
        values = encode_locations(batch, "record-index-0000-0_2-773-1380_20261121033216832.hfile")
        assert values == cells.values
        found |= {
            key.decode(): RecordLocation(*row.values())
            for key, row in zip(cells.keys.to_pylist(), batch.to_pylist(), strict=True)
        }
    assert found == expected
