import io
import json
import tracemalloc

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_lsm.errors import CorruptFileError, StorageError
from streaming_lsm.format.actions.commit import CommitMetadata, WriteStat
from streaming_lsm.format.actions.rollback import RollbackMetadata, RolledBackPartition
from streaming_lsm.format.avro.container import check_readable, decode_record, encode_record, record_name

NAME = "HoodieRollbackPlan"
RECORD = {
    "instantToRollback": {"commitTime": "20261121040120865", "action": "deltacommit"},
    "RollbackRequests": [
        {"partitionPath": "south", "fileId": "f", "latestBaseInstant": "1", "filesToBeDeleted": ["a", "b"]}
    ],
    "version": 1,
}
GOOD = encode_record(NAME, RECORD)


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _container(schema: object, body: bytes, *, count: int = 1, size: int | None = None) -> bytes:
    text = json.dumps(schema).encode()
    header = b"Obj\x01" + _varint(1) + _varint(11) + b"avro.schema" + _varint(len(text)) + text + _varint(0) + b"s" * 16
    return header + _varint(count) + _varint(len(body) if size is None else size) + body + b"s" * 16


def _plan(*fields: object) -> dict[str, object]:
    return {"type": "record", "name": NAME, "fields": list(fields)}


def test_any_avro_reader_reads_what_is_written() -> None:
    reader = fastavro.reader(io.BytesIO(GOOD))
    (record,) = reader
    assert isinstance(record, dict)
    assert record["instantToRollback"] == RECORD["instantToRollback"]
    assert record["RollbackRequests"][0]["logBlocksToBeDeleted"] is None
    assert set(reader.metadata) == {"avro.schema"}


def test_equal_records_have_equal_bytes_and_different_ones_different_sync_markers() -> None:
    assert encode_record(NAME, RECORD) == GOOD
    assert encode_record(NAME, RECORD | {"version": 2})[-16:] != GOOD[-16:]


def test_a_written_record_reads_back() -> None:
    decoded = decode_record(NAME, GOOD, "plan")
    assert decoded["instantToRollback"] == RECORD["instantToRollback"]
    assert record_name(GOOD, "plan") == NAME


def test_a_record_of_an_older_schema_gets_defaults_and_unknown_fields_are_dropped() -> None:
    schema = _plan({"name": "later", "type": ["null", "string"]}, {"name": "version", "type": ["int", "null"]})
    body = _varint(1) + _varint(3) + b"new" + _varint(0) + _varint(7)
    assert decode_record(NAME, _container(schema, body), "plan") == {
        "instantToRollback": None,
        "RollbackRequests": None,
        "version": 7,
    }


@given(st.integers(0, len(GOOD) - 1))
def test_a_truncated_file_is_reported_by_name(length: int) -> None:
    with pytest.raises(CorruptFileError, match=r"t\.rollback"):
        decode_record(NAME, GOOD[:length], "t.rollback")


@settings(max_examples=500)
@given(st.integers(0, len(GOOD) * 8 - 1))
def test_a_flipped_bit_is_either_reported_by_name_or_leaves_a_record_of_the_same_shape(bit: int) -> None:
    data = bytearray(GOOD)
    data[bit // 8] ^= 1 << bit % 8
    try:
        record = decode_record(NAME, bytes(data), "t.rollback")
    except CorruptFileError as error:
        assert "t.rollback" in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert set(record) == set(RECORD)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "the file is empty; restore"),
        (GOOD[:-20], "cut off: expected .* bytes at offset .*, found .*; restore"),
        (GOOD[:4] + _varint(1) + _varint(-50) + GOOD[6:], "a negative length, of -50 bytes, at offset 6; restore"),
        (b"{}\n ", "not an Avro object container"),
        (GOOD + b"x", "intact to the end"),
        (GOOD + GOOD, "intact to the end"),
        (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), "intact to the end"),
        (b"Obj\x01" + b"\xff" * 12, "overlong number"),
        (b"Obj\x01" + _varint(1) + _varint(2**60) + b"x", "bytes at offset"),
        (b"Obj\x01" + _varint(2**60) + b"\x00" * 8, "too many entries"),
        (b"Obj\x01\x02" + _varint(10) + b"avro.codec" + _varint(7) + b"deflate\x00", "codec"),
        (_container("string", b"\x00"), "names no record"),
        (_container({"type": "record", "name": "Other", "fields": []}, b""), "'Other' instead of"),
        (_container(_plan(), b""), "without bytes"),
        (_container(_plan({"name": "version", "type": "int"}), b"\x02", count=2), "one block with one record"),
        (_container(_plan({"name": "version", "type": "int"}), b"\x02", size=2**40), "bytes at offset"),
        (_container(_plan({"name": "version", "type": "int"}), b"\x02", size=-1), "of -1 bytes, at offset"),
        (_container(_plan({"name": "version", "type": "int"}), b"\x02\x02"), "1 bytes after the record"),
        (_container(_plan({"name": "version", "type": "string"}), b"\x02a"), "cannot be decoded"),
        (_container(_plan({"name": "version", "type": "bytes"}), _varint(2**40)), "cannot be decoded"),
        (_container(_plan({"name": "x", "type": {"type": "array", "items": "null"}}), _varint(2**40)), "without bytes"),
        (_container(_plan({"name": "x", "type": {"type": "fixed", "name": "F", "size": 0}}), b""), "without bytes"),
        (_container(_plan({"name": "x", "type": ["null", NAME]}), b"\x02" * 9), "before or inside"),
        (_container(_plan(*({"name": f"f{i}", "type": "int"} for i in range(300))), b""), "too many"),
        (_container(_plan({"name": "x", "type": [["null"]] * 5000}), b""), "too large"),
        (_container(_plan({"name": "x", "type": 5}), b""), "where a type belongs"),
        (_container(_plan({"type": "int"}), b""), "without a name"),
    ],
)
def test_a_hostile_file_is_reported_by_name(data: bytes, why: str) -> None:
    with pytest.raises(CorruptFileError, match=why) as raised:
        decode_record(NAME, data, "t.rollback")
    assert str(raised.value).startswith("t.rollback")


def test_a_deeply_nested_schema_is_refused() -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"x","type":' + '{"type":"array","items":' * 5000
    raw = text.encode()
    data = b"Obj\x01" + _varint(1) + _varint(11) + b"avro.schema" + _varint(len(raw)) + raw + b"\x00" + b"s" * 16
    with pytest.raises(CorruptFileError, match="not JSON"):
        decode_record("R", data + _varint(1) + _varint(0) + b"s" * 16, "deep")


def test_promised_lengths_are_not_allocated() -> None:
    array = {"type": "array", "items": "string"}
    hostile = [
        _container(_plan({"name": "x", "type": "bytes"}), _varint(2**33)),
        _container(_plan({"name": "x", "type": array}), _varint(2**33) + _varint(2**33)),
        _container(_plan({"name": "x", "type": {"type": "fixed", "name": "F", "size": 2**33}}), b"x"),
    ]
    tracemalloc.start()
    try:
        for data in hostile:
            with pytest.raises(CorruptFileError):
                decode_record(NAME, data, "t")
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def _stats(count: int) -> tuple[WriteStat, ...]:
    file_id = "00000000-b23e-5d24-acec-281f4bd856a4-0"
    name = f"{file_id}_0-0-0_20261122071130347_1.log.parquet"
    stat = WriteStat("", file_id, name, "20261122071130347", 1, 1, log_version=1, base_file="", log_files=(name,))
    return (stat,) * count


def test_the_commit_of_many_files_is_not_taken_for_a_hostile_one() -> None:
    data = CommitMetadata(_stats(8_000), "UPSERT", {"schema": "x" * (4 << 20)}).encode()
    assert len(data) > 6 << 20
    assert len(CommitMetadata.decode(data, "x").stats) == 8_000


@pytest.mark.parametrize(
    ("stats", "extra", "message"),
    [
        (
            (WriteStat("", "f", "f", "null", log_files=("",) * (2 << 20)),),
            {},
            r"bytes that are no text \(\d+% from offset 0",
        ),
        ((), {"a": "x" * (18 << 20)}, r"long texts \(18 MiB, 16 at most"),
    ],
    ids=["empty values", "a long text"],
)
def test_content_that_no_action_has_is_refused_before_it_is_decoded(
    stats: tuple[WriteStat, ...], extra: dict[str, str], message: str
) -> None:
    data = CommitMetadata(stats, "UPSERT", extra).encode()
    with pytest.raises(CorruptFileError, match=f"x: .*{message}"):
        CommitMetadata.decode(data, "x")
    with pytest.raises(StorageError, match=f"x would have .*{message}.* write fewer files at a time"):
        check_readable(data, "x")


def test_the_rollback_of_a_write_of_many_files_is_readable() -> None:
    folder = "region=eu-west-1/" + "category=" + "c" * 200
    paths = tuple(f"{folder}/{number:08d}-b23e-5d24-acec-281f4bd856a4-0_0-0-0_1_1.log" for number in range(80_000))
    metadata = RollbackMetadata("2", 0, "1", "deltacommit", (RolledBackPartition(folder, paths),))
    assert len(metadata.encode()) > 20 << 20
    check_readable(metadata.encode(), "x")
    assert RollbackMetadata.decode(metadata.encode(), "x") == metadata
