"""Random Avro schemas and rows: the codec against another one, both ways; and chains against following by steps."""

from __future__ import annotations

import datetime
import decimal
import io
import itertools
import json
import math
from dataclasses import dataclass
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming_lsm.arrow.columns import Int64s
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.avro import item_chains, record_reader, record_writer
from streaming_lsm.format.avro.item_chains import follow
from streaming_lsm.format.avro.record_reader import decode_data_block
from streaming_lsm.format.avro.record_writer import encode_data_block, encode_records
from tests.support.crash_points import random_cases

RANDOM = settings(
    max_examples=random_cases(250, 40), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
UTC = datetime.UTC


@dataclass(frozen=True)
class Kind:
    """An Avro type and values of it."""

    avro: Any
    values: st.SearchStrategy[Any]


def moments(zone: datetime.tzinfo | None, step: int) -> st.SearchStrategy[datetime.datetime]:
    """Moments from 1700 to 2300, in steps of some microseconds."""
    epoch = datetime.datetime(1970, 1, 1, tzinfo=zone)
    return st.integers(-8_520_336_000_000_000 // step, 10_413_792_000_000_000 // step).map(
        lambda count: epoch + datetime.timedelta(microseconds=count * step)
    )


def decimals(digits: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    sized = st.integers(1, digits).flatmap(lambda used: st.integers(-(10**used) + 1, 10**used - 1))
    return sized.map(lambda unscaled: decimal.Decimal(unscaled).scaleb(-scale, decimal.Context(prec=60)))


def decimal_kinds() -> st.SearchStrategy[Kind]:
    def kind(precision: int, scale: int, size: int | None) -> Kind:
        logical = {"logicalType": "decimal", "precision": precision, "scale": scale}
        if size is None:
            return Kind({"type": "bytes", **logical}, decimals(precision, scale))
        return Kind({"type": "fixed", "name": "", "size": size, **logical}, decimals(precision, scale))

    fits = st.integers(1, 38).flatmap(
        lambda precision: st.tuples(
            st.just(precision),
            st.integers(0, precision),
            st.none() | st.integers(math.ceil((precision * math.log2(10) + 1) / 8), 19),
        )
    )
    return fits.map(lambda chosen: kind(*chosen))


NUMBERS = st.integers(0, 63).flatmap(lambda bits: st.integers(-(1 << bits), (1 << bits) - 1))
SMALL_NUMBERS = st.integers(0, 31).flatmap(lambda bits: st.integers(-(1 << bits), (1 << bits) - 1))
TEXTS = st.text(max_size=12) | st.sampled_from(["", "a" * 200])
PLAIN = [
    Kind("null", st.none()),
    Kind("boolean", st.booleans()),
    Kind("int", SMALL_NUMBERS),
    Kind("long", NUMBERS),
    Kind("float", st.floats(width=32, allow_nan=False)),
    Kind("double", st.floats(allow_nan=False)),
    Kind("string", TEXTS),
    Kind({"type": "string", "avro.java.string": "String"}, TEXTS),
    Kind("bytes", st.binary(max_size=12)),
    Kind({"type": "fixed", "name": "", "size": 5}, st.binary(min_size=5, max_size=5)),
    Kind({"type": "int", "logicalType": "date"}, st.dates()),
    Kind({"type": "long", "logicalType": "timestamp-micros"}, moments(UTC, 1)),
    Kind({"type": "long", "logicalType": "timestamp-millis"}, moments(UTC, 1000)),
    Kind({"type": "long", "logicalType": "local-timestamp-micros"}, moments(None, 1)),
    Kind({"type": "long", "logicalType": "local-timestamp-millis"}, moments(None, 1000)),
]


def nested(inside: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    counted = inside.filter(lambda kind: kind.avro != "null")
    arrays = counted.map(lambda kind: Kind({"type": "array", "items": kind.avro}, st.lists(kind.values, max_size=4)))
    maps = inside.map(
        lambda kind: Kind({"type": "map", "values": kind.avro}, st.dictionaries(TEXTS, kind.values, max_size=3))
    )
    records = st.lists(counted, min_size=1, max_size=3).map(
        lambda kinds: Kind(
            {"type": "record", "name": "", "fields": fields_of(kinds)},
            st.fixed_dictionaries({f"f{place}": kind.values for place, kind in enumerate(kinds)}),
        )
    )
    return optional(arrays) | optional(maps) | optional(records)


def optional(kinds: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    def union(kind: Kind, order: str) -> Kind:
        if order == "never" or kind.avro == "null":
            return kind
        avro = ["null", kind.avro] if order == "first" else [kind.avro, "null"]
        return Kind(avro, st.none() | kind.values)

    return st.builds(union, kinds, st.sampled_from(["first", "first", "last", "never"]))


def fields_of(kinds: list[Kind]) -> list[dict[str, Any]]:
    return [{"name": f"f{place}", "type": kind.avro} for place, kind in enumerate(kinds)]


KINDS = st.recursive(optional(st.sampled_from(PLAIN) | decimal_kinds()), nested, max_leaves=5)


def named(avro: Any, names: itertools.count[int]) -> Any:
    """The schema with a name of its own for every type that needs one."""
    if isinstance(avro, list):
        return [named(branch, names) for branch in avro]
    if not isinstance(avro, dict):
        return avro
    found = {key: named(value, names) if key in ("type", "items", "values") else value for key, value in avro.items()}
    if "fields" in found:
        found["fields"] = [named(field, names) for field in found["fields"]]
    if found.get("name") == "":
        found["name"] = f"n{next(names)}"
    return found


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, list[dict[str, Any]]]:
    kinds = draw(st.lists(KINDS, min_size=1, max_size=4).filter(lambda kinds: any(k.avro != "null" for k in kinds)))
    record = named({"type": "record", "name": "row", "fields": fields_of(kinds)}, itertools.count())
    row = st.fixed_dictionaries({f"f{place}": kind.values for place, kind in enumerate(kinds)})
    return json.dumps(record), draw(st.lists(row, max_size=8))


def datums_of(avro: str, rows: list[dict[str, Any]]) -> list[bytes]:
    schema, found = fastavro.parse_schema(json.loads(avro)), []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, row, strict=True)
        found.append(stream.getvalue())
    return found


def block_of(datums: list[bytes]) -> bytes:
    framed = b"".join(len(datum).to_bytes(4, "big") + datum for datum in datums)
    return (3).to_bytes(4, "big") + len(datums).to_bytes(4, "big") + framed


@RANDOM
@given(tables(), st.integers(1, 5))
def test_what_another_codec_writes_is_read(table: tuple[str, list[dict[str, Any]]], part_rows: int) -> None:
    avro, rows = table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_reader, "_PART_ROWS", part_rows)
        batch = decode_data_block(avro, block_of(datums_of(avro, rows)), "f")
    batch.validate(full=True)
    assert batch.to_pylist(maps_as_pydicts="strict") == rows


@RANDOM
@given(tables(), st.integers(1, 5), st.data())
def test_another_codec_reads_what_is_written(
    table: tuple[str, list[dict[str, Any]]], part_rows: int, data: st.DataObject
) -> None:
    avro, rows = table
    batch = decode_data_block(avro, block_of(datums_of(avro, rows)), "f")
    first = data.draw(st.integers(0, len(rows)))
    schema = fastavro.parse_schema(json.loads(avro))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_writer, "_PART_ROWS", part_rows)
        datums = encode_records(batch.slice(first), avro).to_pylist()
        block = encode_data_block(batch.slice(first), avro)
    assert [fastavro.schemaless_reader(io.BytesIO(datum), schema, None) for datum in datums] == rows[first:]
    assert block == block_of(datums)
    assert decode_data_block(avro, block, "f").equals(batch.slice(first))


@RANDOM
@given(tables(), st.data())
def test_a_part_of_the_columns_is_what_all_of_them_hold(
    table: tuple[str, list[dict[str, Any]]], data: st.DataObject
) -> None:
    avro, rows = table
    content = block_of(datums_of(avro, rows))
    batch = decode_data_block(avro, content, "f")
    names = data.draw(st.lists(st.sampled_from(batch.schema.names), unique=True))
    part = decode_data_block(avro, content, "f", names)
    assert part.num_rows == len(rows)
    assert part.schema.names == names
    assert all(part.column(name).equals(batch.column(name)) for name in names)


@RANDOM
@given(tables(), st.data())
def test_a_changed_byte_is_corrupt_or_leaves_as_many_rows(
    table: tuple[str, list[dict[str, Any]]], data: st.DataObject
) -> None:
    avro, rows = table
    content = bytearray(block_of(datums_of(avro, rows)))
    place = data.draw(st.integers(4, len(content) - 1))
    content[place] = data.draw(st.integers(0, 255))
    try:
        batch = decode_data_block(avro, bytes(content), "f")
    except CorruptFileError:
        return
    batch.validate(full=True)
    assert batch.num_rows == int.from_bytes(content[4:8], "big") == len(rows)


@settings(RANDOM, max_examples=random_cases(400, 60))
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=300),
    st.sampled_from(["zeros", "ones", "random", "small"]),
    st.sampled_from([0, 1 << 14]),
    st.integers(0, 2),
    st.data(),
)
def test_a_chain_is_followed_as_step_by_step(
    sizes: list[int], fill: str, small: int, cut: int, data: st.DataObject
) -> None:
    """Items are a byte with their length and as many bytes, which may look like items themselves."""
    rng = np.random.default_rng(len(sizes))
    most = {"zeros": 1, "ones": 2, "random": 256, "small": 9}[fill]
    low = 1 if fill == "ones" else 0
    content = np.concatenate(
        [np.append(size, rng.integers(low, most, size)).astype(np.uint8) for size in sizes for _ in range(4)]
    )
    count = data.draw(st.integers(0, 4 * len(sizes) + 3))
    stop = len(content) - cut

    def step(at: Int64s) -> Int64s:
        behind = at + 1 + content[at]
        return np.where(behind > stop, -1, behind)

    expected, at = [0], 0
    while len(expected) <= count and at < stop and (at := int(step(np.array([at]))[0])) >= 0:
        expected.append(at)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(item_chains, "_SMALL", small)
        assert follow(step, 0, stop, count).tolist() == expected
