"""Avro records as columns and back: every type, both ways against another codec, and bytes that are corrupt."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import io
import json
import struct
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm.errors import CorruptFileError, SchemaError, UnsupportedTable
from streaming_lsm.format.avro import item_chains, record_reader, record_writer, skipping
from streaming_lsm.format.avro.record_reader import decode_data_block, decode_records, record_starts
from streaming_lsm.format.avro.record_writer import encode_data_block, encode_records
from streaming_lsm.schema import from_avro, to_avro
from tests.support.crash_points import random_cases

DECIMAL = decimal.Decimal
UTC = datetime.UTC
FIELDS = pa.schema(
    [
        pa.field("required", pa.int64(), nullable=False),
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("big", pa.int64()),
        ("ratio", pa.float32()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(10, 2)),
        ("wide", pa.decimal128(38, 3)),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("strict", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("place", pa.struct([pa.field("x", pa.float64(), nullable=False), ("names", pa.list_(pa.string()))])),
        ("deep", pa.list_(pa.field("element", pa.list_(pa.struct([("k", pa.map_(pa.string(), pa.bool_()))]))))),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "required": -(2**63),
        "flag": True,
        "small": -(2**31),
        "big": 2**63 - 1,
        "ratio": 1.5,
        "double": -0.0,
        "text": "über 東京 🚀",
        "bytes": b"\x00\xff\x80",
        "day": datetime.date(1860, 10, 8),
        "moment": datetime.datetime(2024, 5, 1, 12, 0, 0, 250001, UTC),
        "local": datetime.datetime(1944, 5, 30, 23, 59, 58, 845908),
        "price": DECIMAL("-12345678.90"),
        "wide": DECIMAL("9" * 35 + ".999"),
        "tags": ["a", None, "", "long " * 50],
        "strict": [0, -1, 2**31 - 1, 64, -65],
        "counts": {"a": 1, "": None, "ß": -5},
        "place": {"x": float("inf"), "names": [None, "n"]},
        "deep": [[{"k": {"t": True, "n": None}}, None], [], None],
    },
    dict.fromkeys(FIELDS.names) | {"required": 0},
    {
        "required": 63,
        "flag": False,
        "small": 0,
        "big": -64,
        "ratio": 0.0,
        "double": 5e-324,
        "text": "",
        "bytes": b"",
        "day": datetime.date(1970, 1, 1),
        "moment": datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        "local": datetime.datetime(1970, 1, 1),
        "price": DECIMAL("0.00"),
        "wide": DECIMAL("-0.001"),
        "tags": [],
        "strict": [],
        "counts": {},
        "place": {"x": -1.0, "names": []},
        "deep": [],
    },
]
AVRO = to_avro(FIELDS, "orders")
BATCH = pa.RecordBatch.from_pylist(ROWS, FIELDS)


def datums_of(avro: str, rows: Sequence[dict[str, Any]]) -> list[bytes]:
    """What another codec writes."""
    schema, found = fastavro.parse_schema(json.loads(avro)), []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, row)
        found.append(stream.getvalue())
    return found


def block_of(datums: Sequence[bytes], version: int = 3) -> bytes:
    framed = [struct.pack(">i", len(datum)) + datum for datum in datums]
    return struct.pack(">ii", version, len(datums)) + b"".join(framed)


def record(*fields: tuple[str, Any]) -> str:
    return json.dumps(
        {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    )


def decode(avro: str, *datums: bytes, columns: Sequence[str] | None = None) -> pa.RecordBatch:
    batch = decode_data_block(avro, block_of(datums), "some/file", columns)
    batch.validate(full=True)
    return batch


def number(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def text(value: bytes) -> bytes:
    return number(len(value)) + value


BLOCK = block_of(datums_of(AVRO, ROWS))


@pytest.mark.parametrize("times", [1, 7])
def test_what_another_codec_writes_is_read(times: int) -> None:
    batch = decode(AVRO, *datums_of(AVRO, ROWS * times))
    assert batch.equals(pa.RecordBatch.from_pylist(ROWS * times, FIELDS))


def test_another_codec_reads_what_is_written() -> None:
    assert encode_records(BATCH, AVRO).to_pylist() == datums_of(AVRO, ROWS)
    assert encode_data_block(BATCH, AVRO) == BLOCK


def test_a_part_of_a_batch_is_written_as_its_rows_are() -> None:
    many = pa.RecordBatch.from_pylist(ROWS * 5, FIELDS)
    datums = datums_of(AVRO, ROWS * 5)
    for first, count in ((1, 3), (4, 1), (5, 9), (0, 15)):
        assert encode_records(many.slice(first, count), AVRO).to_pylist() == datums[first : first + count]


def test_no_rows_are_a_block_of_eight_bytes() -> None:
    assert encode_data_block(BATCH.slice(0, 0), AVRO) == struct.pack(">ii", 3, 0)
    assert decode_data_block(AVRO, struct.pack(">ii", 3, 0), "f").equals(BATCH.slice(0, 0))
    assert len(encode_records(BATCH.slice(0, 0), AVRO)) == 0


def test_rows_in_many_parts_are_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    datums = datums_of(AVRO, ROWS * 4)
    monkeypatch.setattr(record_reader, "_PART_ROWS", 5)
    monkeypatch.setattr(record_reader, "_PART_BYTES", 100)
    monkeypatch.setattr(record_writer, "_PART_ROWS", 5)
    many = pa.RecordBatch.from_pylist(ROWS * 4, FIELDS)
    assert decode(AVRO, *datums).equals(many)
    assert encode_data_block(many, AVRO) == block_of(datums)
    with pytest.raises(CorruptFileError, match="of record 11 "):
        decode(AVRO, *datums[:-1], datums[-1][:-1])


def test_records_may_lie_anywhere_and_in_any_order() -> None:
    datums = datums_of(AVRO, ROWS)
    content = b"key" + datums[2] + b"\xff\xff" + datums[0] + datums[1]
    starts = np.array([content.index(datum) for datum in datums])
    ends = starts + [len(datum) for datum in datums]
    assert decode_records(AVRO, content, starts, ends, "f").equals(BATCH)
    with pytest.raises(CorruptFileError, match="outside"):
        decode_records(AVRO, content, starts, ends + len(content), "f")


def test_asked_columns_come_in_the_order_asked_and_unknown_ones_are_left_out() -> None:
    wanted = ["deep", "required", "later", "text"]
    batch = decode(AVRO, *datums_of(AVRO, ROWS), columns=wanted)
    assert batch.equals(BATCH.select(["deep", "required", "text"]))
    none = decode(AVRO, *datums_of(AVRO, ROWS), columns=["later"])
    assert (none.num_rows, none.num_columns) == (3, 0)


def test_types_that_are_not_read_are_walked_over() -> None:
    odd = ["null", "int", "string", {"type": "array", "items": ["boolean", {"type": "map", "values": "double"}]}]
    suit = {"type": "enum", "name": "suit", "symbols": ["a", "b"]}
    avro = record(("odd", odd), ("suit", suit), ("again", ["null", "suit"]), ("kept", "long"))
    rows = [
        {"odd": value, "suit": "b", "again": "a" if place else None, "kept": place}
        for place, value in enumerate([None, 5, "text", [True, {"x": 1.0, "y": 2.0}, False], [], "", -(2**31)])
    ]
    datums = datums_of(avro, rows)
    assert decode(avro, *datums, columns=["kept"]).to_pydict() == {"kept": list(range(7))}
    with pytest.raises(UnsupportedTable, match=r"some/file.*'odd'"):
        decode(avro, *datums)
    with pytest.raises(UnsupportedTable, match="'suit'"):
        decode(avro, *datums, columns=["suit"])


def test_a_type_that_the_schema_names_again_is_read() -> None:
    image = {"type": "record", "name": "image", "namespace": "n", "fields": [{"name": "id", "type": "string"}]}
    avro = record(("before", ["null", image]), ("after", ["null", "n.image"]))
    rows = [{"before": None, "after": {"id": "a"}}, {"before": {"id": "b"}, "after": None}]
    assert decode(avro, *datums_of(avro, rows)).to_pylist() == rows


def test_null_may_come_first_last_or_be_all() -> None:
    avro = record(("last", ["string", "null"]), ("all", "null"), ("never", ["long"]))
    rows = [{"last": "a", "all": None, "never": 1}, {"last": None, "all": None, "never": 2}]
    datums = datums_of(avro, rows)
    batch = decode(avro, *datums)
    assert batch.to_pylist() == rows
    assert encode_records(batch, avro).to_pylist() == datums


def test_fixed_and_millisecond_types_are_read_and_written() -> None:
    fixed = {"type": "fixed", "name": "four", "size": 4}
    wide = {"type": "fixed", "name": "wide", "size": 20, "logicalType": "decimal", "precision": 38, "scale": 0}
    short = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    local = {"type": "long", "logicalType": "local-timestamp-millis"}
    avro = record(("f", ["null", fixed]), ("w", wide), ("s", ["null", short]), ("t", millis), ("l", local))
    moment = datetime.datetime(2024, 5, 1, 12, 0, 0, 250000)
    at = {"t": moment.replace(tzinfo=UTC), "l": moment}
    rows = [
        {
            "f": b"abcd",
            "w": DECIMAL(-(10**38) + 1),
            "s": DECIMAL("-0.129"),
            "t": moment.replace(tzinfo=UTC),
            "l": moment,
        },
        {"f": None, "w": DECIMAL(0), "s": None, **at},
        {
            "f": b"\0\0\0\0",
            "w": DECIMAL(7),
            "s": DECIMAL("999999999.999"),
            "t": moment.replace(tzinfo=UTC),
            "l": moment,
        },
        {"f": b"\0\0\0\0", "w": DECIMAL(7), "s": DECIMAL("0.127"), **at},
    ]
    datums = datums_of(avro, rows)
    batch = decode(avro, *datums)
    assert batch.schema.types == [pa.binary(), pa.decimal128(38, 0), pa.decimal128(12, 3), *batch.schema.types[3:]]
    assert batch.schema.types[3:] == [pa.timestamp("ms", "UTC"), pa.timestamp("ms")]
    assert batch.to_pylist() == rows
    assert encode_records(batch, avro).to_pylist() == datums


@pytest.mark.parametrize("inside", [pa.decimal128(9, 2), pa.string(), pa.list_(pa.string()), pa.float32()])
def test_lists_that_are_all_empty_are_read_and_written(inside: pa.DataType) -> None:
    kind = pa.list_(pa.field("element", pa.list_(pa.field("element", inside))))
    batch = pa.record_batch({"a": pa.array([[], None, [[]], [None]], kind)})
    avro = to_avro(batch.schema, "t")
    datums = datums_of(avro, batch.to_pylist())
    assert encode_records(batch, avro).to_pylist() == datums
    assert encode_records(batch.slice(0, 1), avro).to_pylist() == datums[:1]
    assert decode(avro, *datums).to_pylist() == batch.to_pylist()


def test_every_bit_of_a_float_is_kept() -> None:
    bits = np.array([0x7FF8000000000001, 0xFFF0000000000000, 0x8000000000000000, 1], np.uint64)
    batch = pa.record_batch({"d": bits.view(np.float64), "f": bits.astype(np.uint32).view(np.float32)})
    avro = to_avro(batch.schema, "t")
    decoded = decode(avro, *encode_records(batch, avro).to_pylist())
    assert decoded.column("d").to_numpy().tobytes() == bits.tobytes()
    assert decoded.column("f").to_numpy().tobytes() == bits.astype(np.uint32).tobytes()


def test_numbers_of_every_length_are_read_and_written() -> None:
    values = [sign * (1 << shift) + near for shift in range(63) for near in (-1, 0, 1) for sign in (1, -1)]
    batch = pa.record_batch({"n": pa.array([*values, 2**63 - 1, -(2**63)], pa.int64())})
    avro = record(("n", "long"))
    datums = datums_of(avro, batch.to_pylist())
    assert encode_records(batch, avro).to_pylist() == datums
    assert decode(avro, *datums).column("n").to_pylist() == batch.column("n").to_pylist()


def test_items_may_come_in_several_blocks_with_or_without_their_size() -> None:
    avro = record(("a", {"type": "array", "items": "string"}), ("m", {"type": "map", "values": "int"}), ("z", "int"))
    one, two = text(b"x") + text(b""), text(b"yy")
    entry = text(b"k") + number(5)
    array = number(-2) + number(len(one)) + one + number(1) + two + number(0)
    pair = number(1) + entry + number(-1) + number(len(entry)) + entry + number(0)
    plain = number(0) + number(1) + entry + number(0) + number(9)
    datums = [array + pair + number(7), plain, array + number(0) + number(8)]
    batch = decode(avro, *datums)
    assert batch.column("a").to_pylist() == [["x", "", "yy"], [], ["x", "", "yy"]]
    assert batch.column("m").to_pylist() == [[("k", 5), ("k", 5)], [("k", 5)], []]
    assert decode(avro, *datums, columns=["z"]).column("z").to_pylist() == [7, 9, 8]


def test_long_arrays_among_short_ones_are_read_without_a_step_per_item() -> None:
    avro = record(("a", {"type": "array", "items": ["null", "string"]}), ("b", {"type": "array", "items": "int"}))
    rng = np.random.default_rng(5)
    sizes = [0, 3, 40_000, 1, 20, 17_000, 0, 2]
    rows = [
        {
            "a": [None if n % 7 == 0 else "x" * int(n % 23) for n in range(size)],
            "b": rng.integers(0, 999, size).tolist(),
        }
        for size in sizes
    ]
    datums = datums_of(avro, rows)
    begun = time.perf_counter()
    batch = decode(avro, *datums)
    assert time.perf_counter() - begun < 10  # forty thousand steps take longer
    assert batch.to_pylist() == rows
    assert encode_records(batch, avro).to_pylist() == datums


@pytest.mark.parametrize("few", [1, 32, 1000])
def test_long_arrays_of_arrays_are_read(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(skipping, "_FEW", few)
    avro = record(("a", {"type": "array", "items": {"type": "array", "items": ["null", "string"]}}))
    sizes = [0, 3, 30, 1, 17, 2] * 10
    rows = [{"a": [["x" * (n % 5)] * n for n in sizes[:size]]} for size in (5, 60, 0)]
    assert decode(avro, *datums_of(avro, rows)).to_pylist() == rows


def test_many_blocks_are_read_at_a_cost_that_grows_with_their_bytes() -> None:
    avro = record(
        ("a", {"type": "array", "items": "int"}), ("b", {"type": "array", "items": {"type": "map", "values": "int"}})
    )
    entry = number(1) + text(b"k") + number(5) + number(0)
    sized = number(-1) + number(len(entry)) + entry
    blocks = [(number(1) + number(n)) * 20_000 + number(0) + sized * 20_000 + number(0) for n in range(3)]
    begun = time.perf_counter()
    rows = decode(avro, *blocks).to_pylist()
    assert time.perf_counter() - begun < 10
    assert [row["a"] for row in rows] == [[n] * 20_000 for n in range(3)]
    assert [row["b"] for row in rows] == [[[("k", 5)]] * 20_000] * 3
    assert decode(avro, *blocks, columns=["a"]).num_rows == 3


def test_schemas_that_a_datum_could_not_bear_are_refused() -> None:
    empty = {"type": "record", "name": "e", "fields": [{"name": "n", "type": "null"}]}
    loop = {"type": "record", "name": "l", "fields": [{"name": "next", "type": ["null", "l"]}]}
    bomb: Any = "int"
    for level in range(40):
        bomb = {"type": "array", "items": bomb} if level % 2 else ["null", bomb]
    wide = [
        {
            "type": "record",
            "name": f"w{n}",
            "fields": [{"name": f"f{m}", "type": f"w{n - 1}" if n else "int"} for m in "abcdefgh"],
        }
        for n in range(8)
    ]
    number_as_decimal = {"type": "int", "logicalType": "decimal", "precision": 5}
    for avro in (
        record(("a", {"type": "array", "items": "null"})),
        record(("a", {"type": "array", "items": empty})),
        record(("a", loop)),
        record(("a", bomb)),
        record(*((f"c{n}", kind) for n, kind in enumerate(wide))),
        record(("a", number_as_decimal)),
        record(("a", {"type": "fixed", "name": "f", "size": 0})),
        record(("a", ["null", "int", "long"])),
        record(("a", "unheard")),
        "[1]",
    ):
        for columns in (None, []):
            if columns is None or ("logicalType" not in avro and '"long"' not in avro):
                with pytest.raises((SchemaError, UnsupportedTable), match="some/file"):
                    decode_data_block(avro, block_of([b"\0"]), "some/file", columns)


@pytest.mark.parametrize(
    ("kind", "datum", "why"),
    [
        ("boolean", b"\x02", "neither true nor false"),
        ("boolean", b"", "past the record's end"),
        ("int", number(2**31), "32 bits"),
        ("int", b"\x80\x80\x80\x80\x80\x00", "32 bits"),
        ("long", b"\xff" * 10 + b"\x01", "64 bits"),
        ("long", b"\xff" * 9 + b"\x02", "64 bits"),
        ("long", b"\x80", "past the record's end"),
        ("double", b"\0" * 7, "past the record's end"),
        ("string", number(-1), "length that is negative"),
        ("string", number(2), "length that is negative"),
        ("bytes", number(2**62), "length that is negative"),
        ("string", text(b"\xff"), "UTF-8"),
        ("string", text(b"\xed\xa0\x80"), "UTF-8"),
        (["null", "long"], b"\x04\x02", "a branch index beyond the 2 types"),
        (["null", "long"], b"\x01", "a branch index beyond the 2 types"),
        (["null", "long"], b"\x80\x00", "a branch index beyond the 2 types"),
        ({"type": "array", "items": "int"}, number(2**40), "more items than bytes"),
        ({"type": "array", "items": "int"}, number(-(2**63)) + number(0), "more items than bytes"),
        ({"type": "array", "items": "int"}, number(1) + number(1), "past the record's end"),
        ({"type": "array", "items": "double"}, number(2) + b"\0" * 15, "more items than bytes"),
        ({"type": "map", "values": "int"}, number(3) + text(b"k") + number(1), "more items than bytes"),
        ({"type": "map", "values": "int"}, number(1) + text(b"\xff") + number(1) + number(0), "UTF-8"),
        ({"type": "fixed", "name": "f", "size": 3}, b"ab", "past the record's end"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, text(b"\x64"), "not a decimal of 2 digits"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, text(b""), "not a decimal of 2 digits"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38}, text(b"\x01" + b"\0" * 16), "decimal of 38"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38}, text(b"\0" * 65), "decimal of 38"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38}, text(b"\0" + b"\xff" * 16), "decimal of 38"),
        ("int", number(1) + b"\0", "no column takes"),
    ],
)  # fmt: skip
def test_corrupt_bytes_are_named_with_file_column_and_record(kind: Any, datum: bytes, why: str) -> None:
    avro = record(("before", "int"), ("it", kind))
    good = {"boolean": b"\0", "double": b"\0" * 8}.get(kind, b"\0") if isinstance(kind, str) else b"\0"
    if isinstance(kind, dict) and kind["type"] in ("fixed", "bytes"):
        good = b"abc" if kind["type"] == "fixed" else text(b"\x05")
    content = block_of([b"\x02" + good, b"\x02" + datum])
    with pytest.raises(CorruptFileError, match=f"some/file: column 'it.* of record 1 .*{why}.*restore the file"):
        decode_data_block(avro, content, "some/file")
    if why not in ("UTF-8", "not a decimal of 2 digits", "decimal of 38", "neither true nor false", "32 bits"):
        with pytest.raises(CorruptFileError, match="of record 1 "):
            decode_data_block(avro, content, "some/file", ["before"])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "0 bytes"),
        (b"\0" * 7, "7 bytes"),
        (struct.pack(">ii", 3, -1), "-1 records"),
        (struct.pack(">ii", 3, 2**31 - 1) + b"\0" * 100, "2147483647 records"),
        (struct.pack(">ii", 3, 0) + b"\0", "record 0 of 0"),
        (struct.pack(">iii", 3, 1, 0) + b"\0", "record 0 of 1"),
        (struct.pack(">iii", 3, 1, -5) + b"\0", "record 0 of 1"),
        (struct.pack(">iii", 3, 1, 2) + b"\0", "record 0 of 1"),
        (block_of([b"\0"] * 3) + b"\0", "record 3 of 3"),
        (block_of([b"\0\0"] * 3)[:-1], "record 2 of 3"),
    ],
)  # fmt: skip
def test_a_block_whose_lengths_do_not_lead_to_its_end_is_corrupt(content: bytes, why: str) -> None:
    with pytest.raises(CorruptFileError, match=f"some/file: .*{why}.*restore the file"):
        decode_data_block(record(("i", "int")), content, "some/file")


def test_every_known_version_has_one_layout_and_others_are_refused_by_name() -> None:
    datums = datums_of(AVRO, ROWS)
    for version in (0, 1, 2, 3):
        assert decode_data_block(AVRO, block_of(datums, version), "f").equals(BATCH)
    for version in (4, -1):
        with pytest.raises(UnsupportedTable, match=f"some/file: data block version {version}"):
            decode_data_block(AVRO, block_of(datums, version), "some/file")


def test_records_full_of_what_looks_like_lengths_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    fill = struct.pack(">iii", 4, 12, 1)
    datums = [bytes(1 + int(n) % 40) if n % 3 else fill * (1 + int(n) % 9) for n in rng.integers(0, 1000, 5000)]
    content = block_of(datums)
    expected = 12 + np.cumsum([0] + [4 + len(datum) for datum in datums[:-1]])
    for small in (item_chains._SMALL, 0, 1 << 30):
        monkeypatch.setattr(item_chains, "_SMALL", small)
        starts, ends = record_starts(content, 8, len(datums), "f")
        assert (starts == expected).all()
        assert (ends - starts == [len(datum) for datum in datums]).all()
        head = int(starts[3000]) - 4
        for broken in (content + b"\0", content[:-1], content[:head] + b"\xff" * 4 + content[head + 4 :]):
            with pytest.raises(CorruptFileError):
                record_starts(broken, 8, len(datums), "f")


def damaged(content: bytes, flips: int) -> Iterator[bytes]:
    """The content cut off at every byte, and with single bits turned over."""
    yield from (content[:size] for size in range(len(content)))
    rng = np.random.default_rng(11)
    for place, bit in zip(rng.integers(0, len(content), flips), rng.integers(0, 8, flips), strict=True):
        broken = bytearray(content)
        broken[place] ^= 1 << int(bit)
        yield bytes(broken)


def test_damage_anywhere_is_corrupt_or_leaves_as_many_rows() -> None:
    survived, cases = 0, random_cases(700, 100)
    for nth, content in enumerate(damaged(BLOCK, cases)):
        begun = time.perf_counter()
        try:
            batch = decode_data_block(AVRO, content, "f", ["required", "wide"] if nth % 4 == 0 else None)
        except CorruptFileError:
            continue
        except UnsupportedTable:
            assert content[:4] != BLOCK[:4]
            continue
        finally:
            assert time.perf_counter() - begun < 5
        batch.validate(full=True)
        assert batch.num_rows == len(ROWS)
        survived += 1
    assert cases / 14 < survived < cases


def test_damage_takes_no_more_memory_than_the_bytes_can_ask_for() -> None:
    tracemalloc.start()
    for content in damaged(BLOCK, random_cases(150, 20)):
        if len(content) % 20 == 0 or len(content) == len(BLOCK):
            with contextlib.suppress(CorruptFileError, UnsupportedTable):
                decode_data_block(AVRO, content, "f")
    assert tracemalloc.get_traced_memory()[1] < 50 << 20
    tracemalloc.stop()


def test_rows_that_do_not_fit_the_schema_are_refused_with_their_column() -> None:
    with pytest.raises(SchemaError, match="'big'"):
        encode_records(BATCH.drop_columns(["big"]), AVRO)
    with pytest.raises(SchemaError, match="'required'"):
        encode_records(pa.record_batch({"required": pa.array([1, None], pa.int64())}), record(("required", "long")))
    inner = pa.record_batch({"a": pa.array([[1, None]], pa.list_(pa.int32()))})
    with pytest.raises(SchemaError, match="'a"):
        encode_records(inner, record(("a", {"type": "array", "items": "int"})))
    four = {"type": "fixed", "name": "four", "size": 4}
    with pytest.raises(SchemaError, match=r"'f'.*4 bytes"):
        encode_records(pa.record_batch({"f": pa.array([b"abc"])}), record(("f", four)))
    tight = {**four, "size": 1, "logicalType": "decimal", "precision": 5}
    with pytest.raises(SchemaError, match=r"'f'.*1 bytes"):
        encode_records(pa.record_batch({"f": pa.array([DECIMAL(128)], pa.decimal128(5, 0))}), record(("f", tight)))


def test_columns_that_widen_to_the_schema_are_written_in_its_types() -> None:
    batch = pa.record_batch({"l": pa.array([1, None], pa.int32()), "s": pa.array(["a", "b"]).dictionary_encode()})
    avro = record(("s", ["null", "string"]), ("l", ["null", "long"]))
    assert encode_records(batch, avro).to_pylist() == datums_of(avro, [{"s": "a", "l": 1}, {"s": "b", "l": None}])


def test_the_decoded_schema_is_that_of_the_avro_schema() -> None:
    assert decode(AVRO, *datums_of(AVRO, ROWS)).schema.equals(from_avro(AVRO, "f"))
