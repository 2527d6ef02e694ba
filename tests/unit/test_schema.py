"""Arrow and Avro schemas: round trips, what widens, what is refused."""

from __future__ import annotations

import datetime
import json

import pyarrow as pa
import pytest

from streaming_lsm.casts import fit, fit_known
from streaming_lsm.errors import SchemaError, UnsupportedTable
from streaming_lsm.schema import (
    META_COLUMNS,
    decimal_bytes,
    delete_log_schema,
    from_avro,
    table_schema,
    to_avro,
    with_meta,
)
from streaming_lsm.schema_evolution import SchemaRules

ELEMENT = pa.field("element", pa.string())
ALL_TYPES = pa.schema(
    [
        pa.field("required", pa.int64(), nullable=False),
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("ratio", pa.float32()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(10, 2)),
        ("large", pa.decimal128(38, 0)),
        ("tags", pa.list_(ELEMENT)),
        ("strict", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("place", pa.struct([pa.field("x", pa.float64(), nullable=False), ("names", pa.list_(ELEMENT))])),
    ]
)


def test_every_type_survives_the_way_to_avro_and_back() -> None:
    assert from_avro(to_avro(ALL_TYPES, "orders"), "test").equals(ALL_TYPES)
    assert from_avro(to_avro(with_meta(ALL_TYPES), "orders"), "test").equals(with_meta(ALL_TYPES))
    assert table_schema(with_meta(ALL_TYPES)).equals(ALL_TYPES)


def test_avro_has_hudis_names_and_unions() -> None:
    record = json.loads(to_avro(with_meta(ALL_TYPES), "orders"))
    assert (record["name"], record["namespace"]) == ("orders_record", "hoodie.orders")
    fields = {field["name"]: field for field in record["fields"]}
    assert list(fields)[:5] == list(META_COLUMNS)
    assert fields["_hoodie_record_key"] == {
        "name": "_hoodie_record_key",
        "type": ["null", "string"],
        "doc": "",
        "default": None,
    }
    assert fields["required"] == {"name": "required", "type": "long"}
    assert fields["moment"]["type"][1] == {"type": "long", "logicalType": "timestamp-micros"}
    assert fields["price"]["type"][1] == {
        "type": "fixed",
        "name": "fixed",
        "namespace": "hoodie.orders.orders_record.price",
        "size": 5,
        "logicalType": "decimal",
        "precision": 10,
        "scale": 2,
    }
    assert fields["strict"]["type"][1] == {"type": "array", "items": "int"}


@pytest.mark.parametrize(
    ("precision", "size"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (9, 4), (10, 5), (18, 8), (38, 16)]
)
def test_a_decimal_takes_the_fewest_bytes(precision: int, size: int) -> None:
    assert decimal_bytes(precision) == size


def test_avro_of_other_writers_is_read() -> None:
    fields = [
        {"name": "a", "type": ["string", "null"]},
        {"name": "b", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "c", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5}},
        {"name": "d", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "e", "type": {"type": ["null", "int"]}},
        {"name": "f", "type": {"type": "map", "values": ["null", {"type": "array", "items": "double"}]}},
    ]
    found = from_avro(json.dumps({"type": "record", "name": "r", "fields": fields}), "test")
    assert found.field("a") == pa.field("a", pa.string())
    assert found.field("b") == pa.field("b", pa.string(), nullable=False)
    assert found.field("c").type == pa.decimal128(5, 0)
    assert found.field("d").type == pa.timestamp("ms", "UTC")
    assert found.field("e").type == pa.int32()
    assert found.field("f").type.item_type == pa.list_(pa.field("element", pa.float64(), nullable=False))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '"string"',
        '{"fields":5}',
        '{"fields":[5]}',
        '{"fields":[{"name":"a"}]}',
        '{"fields":[{"type":"int"}]}',
        '{"fields":[{"name":"a","type":5}]}',
        '{"fields":[{"name":"a","type":{"type":"array"}}]}',
        '{"fields":[{"name":"a","type":{"type":"bytes","logicalType":"decimal"}}]}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:60],
)
def test_what_is_no_avro_record_is_refused_with_its_source(text: str) -> None:
    with pytest.raises(SchemaError, match="some/file"):
        from_avro(text, "some/file")


@pytest.mark.parametrize(
    ("avro", "why"),
    [
        ('["null","int","string"]', "unions"),
        ('{"type":"enum","name":"e","symbols":[]}', "'enum'"),
        ('"other.record"', "'other.record'"),
        ('{"type":"bytes","logicalType":"decimal","precision":39}', "39 digits"),
        ('{"type":"array","items":["null","int","string"]}', "unions"),
    ],
)
def test_an_avro_type_that_is_not_read_is_refused_with_its_column(avro: str, why: str) -> None:
    with pytest.raises(UnsupportedTable, match=f"'odd': .*{why}"):
        from_avro(f'{{"fields":[{{"name":"odd","type":{avro}}}]}}', "some/file")


@pytest.mark.parametrize(
    ("found", "stored"),
    [
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.binary(16), pa.binary()),
        (pa.int8(), pa.int32()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.large_list(pa.int8()), pa.list_(pa.field("element", pa.int32()))),
        (pa.list_(pa.string(), 2), pa.list_(pa.field("element", pa.string()))),
        (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int32())])),
        (pa.map_(pa.large_string(), pa.int8()), pa.map_(pa.string(), pa.int32())),
    ],
    ids=str,
)
def test_a_table_stores_plain_types(found: pa.DataType, stored: pa.DataType) -> None:
    assert table_schema(pa.schema([("c", found)])).field("c").type.equals(stored)


@pytest.mark.parametrize(
    "kind",
    [
        pa.uint64(),
        pa.float16(),
        pa.decimal256(50, 2),
        pa.time64("us"),
        pa.duration("s"),
        pa.null(),
        pa.map_(pa.int32(), pa.string()),
        pa.list_(pa.time32("s")),
        pa.struct([("inner", pa.uint64())]),
        pa.struct([]),
        pa.list_(pa.struct([])),
    ],
    ids=str,
)
def test_a_type_that_a_table_cannot_hold_is_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"'odd(\.\w+)?' has type"):
        table_schema(pa.schema([("odd", kind)]))


def test_a_repeated_column_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match="'a' appears more than once"):
        table_schema(pa.schema([("a", pa.int32()), ("a", pa.string())]))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([1, None], pa.int8()), pa.int32()),
        (pa.array([1, None], pa.int32()), pa.int64()),
        (pa.array([1, None], pa.uint32()), pa.int64()),
        (pa.array([0.5, None], pa.float32()), pa.float64()),
        (pa.array(["a", None], pa.string_view()), pa.string()),
        (pa.array(["a", None]).dictionary_encode(), pa.string()),
        (pa.array([b"a", None], pa.large_binary()), pa.binary()),
        (pa.array([1_000, None], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([1, None], pa.timestamp("s", "Asia/Tokyo")), pa.timestamp("us", "UTC")),
        (pa.array([[1], None], pa.large_list(pa.int8())), pa.list_(pa.field("element", pa.int32()))),
        (pa.array([{"a": 1}, None]), pa.struct([pa.field("a", pa.int64(), nullable=True)])),
        (pa.nulls(2), pa.string()),
        (pa.nulls(2), pa.list_(ELEMENT)),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else str(value),
)
def test_lossless_casts_are_made(values: pa.Array, kind: pa.DataType) -> None:
    schema = pa.schema([("c", kind)])
    batch = pa.record_batch([values], names=["c"])
    SchemaRules().evolved(schema, batch.schema)
    fitted = fit(batch, schema)
    assert fitted.schema.equals(schema)
    assert fitted.column(0).null_count == values.null_count


def test_a_dictionary_of_string_views_becomes_strings() -> None:
    encoded = pa.array(["a", None, "b", "a"]).dictionary_encode()
    views = pa.DictionaryArray.from_arrays(encoded.indices, encoded.dictionary.cast(pa.string_view()))
    fitted = fit(pa.record_batch([views], names=["c"]), pa.schema([("c", pa.string())]))
    assert fitted.column(0).to_pylist() == ["a", None, "b", "a"]


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (pa.int64(), pa.int32()),
        (pa.float64(), pa.float32()),
        (pa.string(), pa.int32()),
        (pa.binary(), pa.string()),
        (pa.uint64(), pa.int64()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.date32(), pa.timestamp("us")),
        (pa.decimal128(12, 2), pa.decimal128(10, 2)),
        (pa.list_(pa.string()), pa.string()),
    ],
    ids=str,
)
def test_a_changed_type_is_refused_with_column_and_both_types(found: pa.DataType, kind: pa.DataType) -> None:
    schema, batch = pa.schema([("c", kind)]), pa.record_batch([pa.nulls(1, found)], names=["c"])
    for check in (lambda: SchemaRules().evolved(schema, batch.schema), lambda: fit(batch, schema)):
        with pytest.raises(SchemaError) as refused:
            check()
        assert all(text in str(refused.value) for text in ("'c'", str(found), str(kind)))


@pytest.mark.parametrize(("value", "unit"), [(1, "ns"), (2**62, "s")], ids=["nanoseconds-lost", "too-late"])
def test_a_cast_that_would_lose_something_is_refused_by_column(value: int, unit: str) -> None:
    batch = pa.record_batch([pa.array([value], pa.int64()).cast(pa.timestamp(unit))], names=["c"])
    with pytest.raises(SchemaError, match="'c'"):
        fit(batch, pa.schema([("c", pa.timestamp("us"))]))


def test_missing_unknown_and_null_columns_are_refused_by_name() -> None:
    schema = pa.schema([pa.field("a", pa.int32(), nullable=False), ("b", pa.int32())])
    with pytest.raises(SchemaError, match="'b' is missing; the batch has a"):
        SchemaRules().evolved(schema, pa.schema([("a", pa.int32())]))
    with pytest.raises(SchemaError, match="'c' is not in the table, which has a, b"):
        SchemaRules().evolved(schema, pa.schema([("a", pa.int32()), ("b", pa.int32()), ("c", pa.int32())]))
    with pytest.raises(SchemaError, match="'a' has nulls"):
        fit(pa.record_batch({"a": pa.nulls(1, pa.int32()), "b": pa.nulls(1, pa.int32())}), schema)
    SchemaRules().evolved(schema, with_meta(schema))


def test_fit_takes_the_columns_by_name_in_the_tables_order() -> None:
    batch = pa.record_batch({"x": [9], "b": [2], "a": [1]})
    assert fit(batch, pa.schema([("a", pa.int64()), ("b", pa.int64())])).to_pydict() == {"a": [1], "b": [2]}


def test_fit_known_leaves_other_columns_and_nulls_alone() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("day", pa.date32())])
    day = datetime.date(2026, 1, 1)
    batch = pa.record_batch(
        [pa.array([None, 1], pa.int8()), pa.array(["x", "y"], pa.string_view()), pa.array([day, None], pa.date64())],
        names=["a", "_lsm_topic", "day"],
    )
    found = fit_known(batch, schema)
    assert found.schema.types == [pa.int64(), pa.string(), pa.date32()]
    assert found.to_pydict() == {"a": [None, 1], "_lsm_topic": ["x", "y"], "day": [day, None]}


def test_a_delete_log_has_the_key_and_the_ordering_fields_nullable() -> None:
    schema = pa.schema([pa.field("ts", pa.int64(), nullable=False), ("v", pa.int32()), ("seq", pa.int32())])
    found = delete_log_schema(schema, ("seq", "ts"))
    assert found.equals(
        pa.schema(
            [pa.field("_hoodie_record_key", pa.string(), nullable=False), ("seq", pa.int32()), ("ts", pa.int64())]
        )
    )
