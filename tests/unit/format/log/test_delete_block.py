"""Delete blocks: keys, and ordering values of every wrapper, both ways; bytes that are corrupt."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import struct
import time
from importlib import resources
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm.errors import CorruptFileError, LsmError, RecordError, SchemaError, UnsupportedTable
from streaming_lsm.format.avro import item_chains
from streaming_lsm.format.log.delete_block import decode_delete_block, encode_delete_block
from tests.support.crash_points import random_cases

DECIMAL = decimal.Decimal
UTC = datetime.UTC
LIST = fastavro.parse_schema(
    json.loads(
        resources.files("streaming_lsm.format").joinpath("schemas", "HoodieDeleteRecordList.avsc").read_text("utf-8")
    )
)
KEY, PARTITION = "_hoodie_record_key", "_hoodie_partition_path"


def wrapped(wrapper: str, value: Any) -> tuple[str, dict[str, Any]]:
    return f"org.apache.hudi.avro.model.{wrapper}", {"value": value}


def in_tuple(*values: Any) -> tuple[str, dict[str, Any]]:
    return "org.apache.hudi.avro.model.ArrayWrapper", {"wrappedValues": list(values)}


def block(*ordering: Any, version: int = 3) -> bytes:
    """A block that another codec writes, with a delete per ordering value."""
    deletes = [
        {"recordKey": f"k{place}", "partitionPath": None if place == 1 else "p", "orderingVal": value}
        for place, value in enumerate(ordering)
    ]
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, LIST, {"deleteRecordList": deletes})
    return struct.pack(">ii", version, len(stream.getvalue())) + stream.getvalue()


def ordering_of(content: bytes, *types: pa.DataType) -> list[list[Any]]:
    fields = [pa.field(f"o{place}", kind, nullable=False) for place, kind in enumerate(types)]
    batch = decode_delete_block(content, fields, "some/file")
    batch.validate(full=True)
    assert batch.schema.types[2:] == list(types)
    return [column.to_pylist() for column in batch.columns[2:]]


def read_by_another(content: bytes) -> list[dict[str, Any]]:
    assert struct.unpack_from(">ii", content) == (3, len(content) - 8)
    stream = io.BytesIO(content[8:])
    found: Any = fastavro.schemaless_reader(stream, LIST, None, return_record_name=True)
    assert not stream.read()
    return list(found["deleteRecordList"])


def test_keys_and_partition_paths_are_read() -> None:
    batch = decode_delete_block(block(None, wrapped("LongWrapper", 5)), [pa.field("ts", pa.int64())], "f")
    assert batch.to_pylist() == [
        {KEY: "k0", PARTITION: "p", "ts": None},
        {KEY: "k1", PARTITION: None, "ts": 5},
    ]


@pytest.mark.parametrize(
    ("wrapper", "value", "kind", "expected"),
    [
        ("BooleanWrapper", True, pa.bool_(), True),
        ("IntWrapper", -7, pa.int32(), -7),
        ("IntWrapper", 7, pa.int64(), 7),
        ("IntWrapper", 7, pa.float64(), 7.0),
        ("IntWrapper", 18263, pa.date32(), datetime.date(2020, 1, 2)),
        ("LongWrapper", 2**40, pa.int64(), 2**40),
        ("LongWrapper", 40, pa.int32(), 40),
        ("LongWrapper", 10**15 + 1, pa.timestamp("us", "UTC"), datetime.datetime(2001, 9, 9, 1, 46, 40, 1, UTC)),
        ("LongWrapper", 10**12, pa.timestamp("ms"), datetime.datetime(2001, 9, 9, 1, 46, 40)),
        ("FloatWrapper", 1.5, pa.float32(), 1.5),
        ("FloatWrapper", 1.5, pa.float64(), 1.5),
        ("DoubleWrapper", 0.1, pa.float64(), 0.1),
        ("BytesWrapper", b"\xff\0", pa.binary(), b"\xff\0"),
        ("StringWrapper", "ü", pa.string(), "ü"),
        ("DateWrapper", 18263, pa.date32(), datetime.date(2020, 1, 2)),
        ("DateWrapper", 0, pa.date32(), datetime.date(1970, 1, 1)),
        ("DecimalWrapper", DECIMAL("-12.340000000000000"), pa.decimal128(10, 2), DECIMAL("-12.34")),
        ("TimeMicrosWrapper", 5, pa.int64(), datetime.timedelta(microseconds=5)),
        ("TimestampMicrosWrapper", 10**15, pa.timestamp("us", "UTC"), datetime.datetime(2001, 9, 9, 1, 46, 40, 0, UTC)),
        ("TimestampMicrosWrapper", 10**15, pa.timestamp("ms"), datetime.datetime(2001, 9, 9, 1, 46, 40)),
    ],
)
def test_a_wrapped_value_is_read_in_the_type_of_its_field(
    wrapper: str, value: Any, kind: pa.DataType, expected: Any
) -> None:
    if wrapper == "TimeMicrosWrapper":
        value, expected = datetime.time(0, 0, 0, 5), 5
    assert ordering_of(block(None, wrapped(wrapper, value)), kind) == [[None, expected]]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.string(), pa.date32(), pa.decimal128(9, 2)])
def test_an_int_of_0_is_no_ordering_value_whatever_the_type(kind: pa.DataType) -> None:
    assert ordering_of(block(wrapped("IntWrapper", 0), None), kind) == [[None, None]]
    assert ordering_of(block(wrapped("IntWrapper", 0), None), kind, pa.int64()) == [[None, None], [None, None]]


def test_a_tuple_has_a_value_per_field_and_an_int_of_0_is_one() -> None:
    content = block(
        in_tuple(wrapped("LongWrapper", 5), wrapped("StringWrapper", "a"), wrapped("LocalDateWrapper", 1)),
        wrapped("IntWrapper", 0),
        in_tuple(wrapped("IntWrapper", 0), None, wrapped("IntWrapper", 0)),
    )
    epoch = datetime.date(1970, 1, 1)
    assert ordering_of(content, pa.int64(), pa.string(), pa.date32()) == [
        [5, None, 0],
        ["a", None, None],
        [datetime.date(1970, 1, 2), None, epoch],
    ]


def test_without_ordering_fields_the_values_are_left_out() -> None:
    assert ordering_of(block(wrapped("LongWrapper", 5), in_tuple(wrapped("IntWrapper", 1)), None)) == []


@pytest.mark.parametrize(
    ("ordering", "kinds", "why"),
    [
        (wrapped("StringWrapper", "a"), [pa.int64()], "StringWrapper"),
        (wrapped("LongWrapper", 2**40), [pa.int32()], "not in range"),
        (wrapped("DoubleWrapper", 0.1), [pa.float32()], "DoubleWrapper"),
        (wrapped("LongWrapper", 2**60 + 1), [pa.float64()], "not in range"),
        (wrapped("DecimalWrapper", DECIMAL("0.001000000000000")), [pa.decimal128(9, 2)], "data loss"),
        (wrapped("TimestampMicrosWrapper", 1), [pa.timestamp("ms")], "lose data"),
        (wrapped("IntWrapper", 3), [pa.int64(), pa.int64()], "one value for several"),
        (wrapped("LongWrapper", 3), [pa.int64(), pa.int64()], "one value for several"),
        (in_tuple(wrapped("LongWrapper", 3)), [pa.int64(), pa.int64()], "not have the 2 values"),
        (in_tuple(wrapped("LongWrapper", 3), wrapped("LongWrapper", 3)), [pa.int64()], "not have the 1 values"),
        (("org.apache.hudi.avro.model.ArrayWrapper", {"wrappedValues": None}), [pa.int64()], "without values"),
    ],
)
def test_an_ordering_value_that_does_not_fit_its_fields_is_corrupt(
    ordering: Any, kinds: list[pa.DataType], why: str
) -> None:
    with pytest.raises(CorruptFileError, match=f"some/file: column 'o0.* of record 1 .*{why}.*restore the file"):
        ordering_of(block(None, ordering), *kinds)


def test_blocks_that_java_serialised_and_unknown_versions_are_refused_by_name() -> None:
    for version, why in ((1, "serialised by Java"), (2, "serialised by Java"), (0, "version 0"), (4, "version 4")):
        with pytest.raises(UnsupportedTable, match=f"some/file: .*{why}"):
            decode_delete_block(block(None, version=version), [], "some/file")


def test_an_empty_list_is_nine_bytes() -> None:
    content = bytes.fromhex("000000030000000100")
    assert decode_delete_block(content, [pa.field("ts", pa.int64())], "f").num_rows == 0
    nothing = pa.array([], pa.string())
    assert encode_delete_block(nothing, nothing, [pa.array([], pa.int64())]) == content


COLUMNS = {
    "BooleanWrapper": pa.array([True, False]),
    "IntWrapper": pa.array([2**31 - 1, -1], pa.int32()),
    "LongWrapper": pa.array([2**60, -1]),
    "FloatWrapper": pa.array([0.5, -1.5], pa.float32()),
    "DoubleWrapper": pa.array([0.1, -1.5]),
    "BytesWrapper": pa.array([b"\xff", b""]),
    "StringWrapper": pa.array(["é", ""]),
    "DecimalWrapper": pa.array([DECIMAL("123456789012345.25"), DECIMAL("-0.01")], pa.decimal128(20, 2)),
}


@pytest.mark.parametrize("wrapper", COLUMNS)
def test_a_value_is_written_in_the_wrapper_of_its_type_and_read_back(wrapper: str) -> None:
    column = pa.concat_arrays([COLUMNS[wrapper], pa.nulls(1, COLUMNS[wrapper].type)])
    keys = pa.array(["a", "ü", "c"])
    content = encode_delete_block(keys, pa.array(["", "p", None]), [column])
    found = read_by_another(content)
    assert [delete["recordKey"] for delete in found] == keys.to_pylist()
    assert [delete["partitionPath"] for delete in found] == ["", "p", None]
    expected = [wrapped(wrapper, value) for value in COLUMNS[wrapper].to_pylist()] + [wrapped("IntWrapper", 0)]
    assert [delete["orderingVal"] for delete in found] == expected
    assert ordering_of(content, column.type) == [column.to_pylist()]


def test_dates_and_timestamps_are_written_as_the_numbers_that_hudis_reader_compares_with() -> None:
    moments = pa.array([10**15, 5])
    keys = pa.array(["a", "b"])
    for column, wrapper in (
        (pa.array([18263, -1], pa.int32()).cast(pa.date32()), "IntWrapper"),
        (moments.cast(pa.timestamp("us", "UTC")), "LongWrapper"),
        (moments.cast(pa.timestamp("us")), "LongWrapper"),
    ):
        content = encode_delete_block(keys, keys, [column])
        numbers = column.view(pa.int32() if wrapper == "IntWrapper" else pa.int64()).to_pylist()
        assert [delete["orderingVal"] for delete in read_by_another(content)] == [wrapped(wrapper, n) for n in numbers]
        assert ordering_of(content, column.type) == [column.to_pylist()]


def test_several_ordering_fields_are_written_as_a_tuple() -> None:
    ordering = [pa.array([1, None, 3]), pa.array(["a", None, ""])]
    content = encode_delete_block(pa.array(["a", "b", "c"]), pa.array(["", "", ""]), ordering)
    assert [delete["orderingVal"] for delete in read_by_another(content)] == [
        in_tuple(wrapped("LongWrapper", 1), wrapped("StringWrapper", "a")),
        wrapped("IntWrapper", 0),
        in_tuple(wrapped("LongWrapper", 3), wrapped("StringWrapper", "")),
    ]
    assert ordering_of(content, pa.int64(), pa.string()) == [column.to_pylist() for column in ordering]


def test_without_ordering_fields_every_delete_has_an_int_of_0() -> None:
    content = encode_delete_block(pa.array(["a"]), pa.array(["p"]), [])
    assert content == bytes.fromhex("000000030000000a0202026102027004 0000")


def test_deletes_that_the_format_cannot_hold_are_refused() -> None:
    keys = pa.array(["a", "b"])
    with pytest.raises(RecordError, match="without a record key"):
        encode_delete_block(pa.array(["a", None]), keys, [])
    with pytest.raises(RecordError, match=r"delete 1 .* 2 ordering fields"):
        encode_delete_block(keys, keys, [pa.array([1, 2]), pa.array([1, None])])
    for value, kind in (
        (DECIMAL("0.1234567890123456"), pa.decimal128(38, 16)),
        (DECIMAL(10**15), pa.decimal128(38, 0)),
    ):
        with pytest.raises(RecordError, match="does not fit"):
            encode_delete_block(keys, keys, [pa.array([value, value], kind)])
    with pytest.raises(SchemaError, match="uint8"):
        encode_delete_block(keys, keys, [pa.array([1, 2], pa.uint8())])


@pytest.mark.parametrize("small", [0, item_chains._SMALL, 1 << 40])
def test_many_deletes_are_read_and_written_in_little_time(monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    monkeypatch.setattr(item_chains, "_SMALL", small)
    rng = np.random.default_rng(7)
    count = 20_000 if small < 1 << 40 else 500
    keys = pa.array([f"key-{'x' * int(n % 200)}{n}" for n in rng.integers(0, 10**6, count)])
    paths = pa.array([None if n % 50 == 0 else f"region={n % 7}" for n in range(count)])
    ordering = [pa.array(rng.integers(-(2**62), 2**62, count), mask=rng.random(count) < 0.3)]
    content = encode_delete_block(keys, paths, ordering)
    begun = time.perf_counter()
    batch = decode_delete_block(content, [pa.field("ts", pa.int64())], "f")
    assert time.perf_counter() - begun < 5
    assert batch.equals(pa.record_batch([keys, paths, *ordering], [KEY, PARTITION, "ts"]))


def test_damage_anywhere_is_corrupt_or_leaves_as_many_deletes() -> None:
    ordering = [wrapped("LongWrapper", 2**40), None, in_tuple(wrapped("LongWrapper", 5), wrapped("StringWrapper", "a"))]
    content = block(*ordering * 4, wrapped("IntWrapper", 0))
    pair = [pa.field("a", pa.int64()), pa.field("b", pa.string())]
    rng = np.random.default_rng(2)
    damaged = [content[:size] for size in range(len(content))]
    cases = random_cases(700, 150)
    for place, bit in zip(rng.integers(4, len(content), cases), rng.integers(0, 8, cases), strict=True):
        damaged.append(content[:place] + bytes([content[place] ^ 1 << int(bit)]) + content[place + 1 :])
    survived = 0
    for fields in ([], pair[:1], pair):
        for broken in damaged:
            begun = time.perf_counter()
            try:
                assert decode_delete_block(broken, fields, "f").num_rows == 13
                survived += 1
            except CorruptFileError:
                pass
            finally:
                assert time.perf_counter() - begun < 5
    assert survived > 50


def test_another_number_of_bytes_or_items_is_corrupt() -> None:
    good = block(None, wrapped("LongWrapper", 5))
    fields = [pa.field("ts", pa.int64())]
    for broken, why in (
        (b"", "0 bytes"),
        (good + b"\0", "bytes of deletes"),
        (good[:4] + struct.pack(">i", len(good) - 7) + good[8:] + b"\0", "1 bytes behind the deletes"),
        (bytes.fromhex("0000000300000004 0e000000".replace(" ", "")), "more items than bytes"),
        (bytes.fromhex("0000000300000005 0200000000".replace(" ", "")), "is null"),
    ):
        with pytest.raises(LsmError, match=f"some/file: .*{why}"):
            decode_delete_block(broken, fields, "some/file")
