"""Convert between the Arrow and Avro schemas of a table.

The *table schema* has the columns of the user, the *schema of a data file* also the five meta columns in front.
Timestamps are microseconds: ``timestamp[us, UTC]`` (Avro ``timestamp-micros``) and ``timestamp[us]``
(``local-timestamp-micros``). A nullable Arrow field is an Avro union with null first and default null.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from streaming_lsm.avro_names import resolved_avro
from streaming_lsm.errors import SchemaError, UnsupportedTable

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"
META_COLUMNS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
OPERATION = "_hoodie_operation"
IS_DELETED = "_hoodie_is_deleted"
DELETE_LOG_RECORD = "hudi_delete_log_record"

AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_IN_AVRO_NAMES = re.compile(r"^[^A-Za-z_]|[^A-Za-z0-9_]")

Avro = str | dict[str, object] | list[object]

_PRIMITIVES: dict[pa.DataType, Avro] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
}
_DECIMAL_DIGITS = 38
"""Most digits of a 16-byte decimal in Arrow and Parquet, and of a Spark decimal."""

_ARROW: dict[tuple[str, str | None], pa.DataType] = {
    ("null", None): pa.null(),
    ("boolean", None): pa.bool_(),
    ("int", None): pa.int32(),
    ("long", None): pa.int64(),
    ("float", None): pa.float32(),
    ("double", None): pa.float64(),
    ("string", None): pa.string(),
    ("bytes", None): pa.binary(),
    ("fixed", None): pa.binary(),
    ("int", "date"): pa.date32(),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
}


def table_schema(schema: pa.Schema) -> pa.Schema:
    """Convert `schema` to the types that a table stores, and drop meta columns.

    Large, view and dictionary encodings become plain; small integers become int32; timestamps
    become microseconds, every time zone UTC.

    Raises:
        SchemaError: a type that Hudi tables cannot hold, or a column name that is used twice.
    """
    names = [name for name in schema.names if name not in META_COLUMNS]
    for name in names:
        if not AVRO_NAME.fullmatch(name):
            raise SchemaError(f"column {name!r}: expected letters, digits and _, and no digit first; rename it")
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise SchemaError(f"column {repeated[0]!r} appears more than once; rename one of them")
    return pa.schema([_stored_field(schema.field(name), name) for name in names])


def _stored_field(field: pa.Field[Any], where: str) -> pa.Field[Any]:
    return pa.field(field.name, stored_type(field.type, where), field.nullable)


def stored_type(kind: pa.DataType, where: str) -> pa.DataType:
    """Convert a type as `table_schema`; `where` is the column, for messages."""
    if pa.types.is_dictionary(kind):
        return stored_type(kind.value_type, where)
    if pa.types.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or kind == pa.binary_view():
        return pa.binary()
    if kind in (pa.int8(), pa.int16(), pa.uint8(), pa.uint16()):
        return pa.int32()
    if kind == pa.uint32():
        return pa.int64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_date64(kind):
        return pa.date32()
    if kind in _PRIMITIVES or pa.types.is_decimal128(kind):
        return kind
    return _stored_nested(kind, where)


def _stored_nested(kind: pa.DataType, where: str) -> pa.DataType:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = kind.value_field
        return pa.list_(pa.field("element", stored_type(element.type, f"{where}.element"), element.nullable))
    if pa.types.is_map(kind) and pa.types.is_string(stored_type(kind.key_type, where)):
        item = kind.item_field
        return map_type(pa.string(), stored_type(item.type, f"{where}.value"), item.nullable)
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.struct([_stored_field(child, f"{where}.{child.name}") for child in kind.fields])
    raise SchemaError(f"column {where!r} has type {kind}, which a Hudi table cannot hold; cast it first")


def map_type(key: pa.DataType, value: pa.DataType, nullable: bool = True) -> pa.DataType:
    """Build the type of a map."""
    kind: pa.DataType = pa.map_(key, pa.field("value", value, nullable))  # type: ignore[call-overload]  # fields missed
    return kind


def with_inner_type(kind: Any, change: Callable[[Any, str], pa.DataType]) -> pa.DataType:
    """Change the type of the elements of a list, or of the values of a map; return other types as they are.

    Args:
        kind: a type as tables store it.
        change: takes the inner type, and ``element`` or ``value``, by which full names call it.
    """
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(change(kind.value_type, "element")))
    if pa.types.is_map(kind):
        return map_type(kind.key_type, change(kind.item_type, "value"), kind.item_field.nullable)
    return kind  # type: ignore[no-any-return]


def with_meta(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a data file: the five meta columns, then those of the table.

    See docs/format/01-table.md, "Record columns".
    """
    return pa.schema([pa.field(name, pa.string()) for name in META_COLUMNS] + list(schema))


def delete_log_schema(schema: pa.Schema, ordering_fields: Sequence[str]) -> pa.Schema:
    """Return the schema of a delete log: the record key, then each ordering field, nullable.

    See docs/format/03-native-logs.md, "Delete log schema".
    """
    ordering = [schema.field(name).with_nullable(True) for name in ordering_fields]
    return pa.schema([pa.field(RECORD_KEY, pa.string(), nullable=False), *ordering])


def kept_deletes_schema(schema: pa.Schema, ordering_fields: Sequence[str]) -> pa.Schema:
    """Return the schema of deletes that a compaction keeps: that of a delete log, then the time of each delete."""
    return delete_log_schema(schema, ordering_fields).append(pa.field(COMMIT_TIME, pa.string()))


def delete_log_avro(schema: pa.Schema, ordering_fields: Sequence[str]) -> str:
    """Return the Avro JSON of a delete log's records (docs/format/03-native-logs.md, "Delete log schema")."""
    fields = [_avro_field(field, DELETE_LOG_RECORD) for field in delete_log_schema(schema, ordering_fields)]
    return json.dumps({"type": "record", "name": DELETE_LOG_RECORD, "fields": fields}, separators=(",", ":"))


def to_avro(schema: pa.Schema, table: str) -> str:
    """Convert `schema` to Avro JSON: record ``<table>_record`` in namespace ``hoodie.<table>``, as Hudi names it.

    Characters of the table's name that an Avro name cannot hold become ``__``, as in Hudi.
    """
    table = _NOT_IN_AVRO_NAMES.sub("__", table)
    namespace, name = f"hoodie.{table}", f"{table}_record"
    fields = [_avro_field(field, f"{namespace}.{name}") for field in schema]
    record = {"type": "record", "name": name, "namespace": namespace, "fields": fields}
    return json.dumps(record, separators=(",", ":"))


def _avro_field(field: pa.Field[Any], namespace: str) -> dict[str, object]:
    kind = _avro_type(field.type, field.name, namespace)
    if not field.nullable:
        return {"name": field.name, "type": kind}
    doc = {"doc": ""} if field.name in META_COLUMNS else {}
    return {"name": field.name, "type": ["null", kind], **doc, "default": None}


def _avro_type(kind: pa.DataType, name: str, namespace: str) -> Avro:
    if kind in _PRIMITIVES:
        return _PRIMITIVES[kind]
    if pa.types.is_decimal128(kind):
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{namespace}.{name}",
            "size": decimal_bytes(kind.precision),
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if pa.types.is_list(kind):
        return {"type": "array", "items": _avro_element(kind.value_field, name, namespace)}
    if pa.types.is_map(kind):
        return {"type": "map", "values": _avro_element(kind.item_field, name, namespace)}
    if pa.types.is_struct(kind):
        fields: list[object] = [_avro_field(child, f"{namespace}.{name}") for child in kind.fields]
        return {"type": "record", "name": name, "namespace": namespace, "fields": fields}
    raise SchemaError(f"column {name!r} has type {kind}, which a Hudi table cannot hold; cast it first")


def _avro_element(field: pa.Field[Any], name: str, namespace: str) -> Avro:
    kind = _avro_type(field.type, name, namespace)
    return ["null", kind] if field.nullable else kind


def decimal_bytes(precision: int) -> int:
    """Return the smallest number of bytes that holds a signed decimal of `precision` digits."""
    largest: int = 10**precision - 1
    return (largest.bit_length() + 8) // 8


@lru_cache(maxsize=64)
def from_avro(text: str, source: str) -> pa.Schema:
    """Convert the schema of an Avro record to an Arrow schema; cached, as each write asks for its table's again.

    Args:
        text: Avro JSON.
        source: the file that holds it, for messages.

    Raises:
        SchemaError: not an Avro record.
        UnsupportedTable: a type that is not read; the message names the column.
    """
    return arrow_fields(resolved_avro(text, source), source)


def arrow_fields(fields: Sequence[Mapping[str, Any]], source: str, *, unions: bool = False) -> pa.Schema:
    """Convert the fields that `resolved_avro` returns to an Arrow schema.

    Args:
        fields: the fields.
        source: the file that holds the schema, for messages.
        unions: whether a union of several records is read: as a struct with a column for each, by its name, of which at
            most one is not null.

    Raises:
        SchemaError: not fields of an Avro record.
        UnsupportedTable: a type that is not read; the message names the column.
    """
    try:
        return pa.schema([_arrow_field(field, source, unions) for field in fields])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SchemaError(f"{source}: not an Avro record schema ({error}): {str(fields)[:80]!r}") from error


def _arrow_field(field: Mapping[str, Avro], source: str, unions: bool) -> pa.Field[Any]:
    kind, nullable = _arrow_type(field["type"], f"{source}: column {field['name']!r}", unions)
    return pa.field(str(field["name"]), kind, nullable)


def _arrow_type(avro: Avro, where: str, unions: bool) -> tuple[pa.DataType, bool]:
    """Convert an Avro type to an Arrow type and whether it is nullable."""
    if isinstance(avro, list):
        branches = [branch for branch in avro if branch != "null"]
        if unions and len(branches) > 1 and all(isinstance(branch, dict) and "name" in branch for branch in branches):
            kinds = {str(branch["name"]): _arrow_type(branch, where, unions)[0] for branch in branches}  # type: ignore[index, arg-type]
            return pa.struct(list(kinds.items())), True
        if len(branches) != 1:
            raise UnsupportedTable(f"{where}: only unions of null and one type are supported: {str(avro)[:200]}")
        return _arrow_type(branches[0], where, unions)[0], "null" in avro  # type: ignore[arg-type]
    if isinstance(avro, str):
        avro = {"type": avro}
    return _arrow_complex(avro, where, unions), avro.get("type") == "null"


def _arrow_complex(avro: Mapping[str, object], where: str, unions: bool) -> pa.DataType:
    kind, logical = avro.get("type"), avro.get("logicalType")
    if logical == "decimal":
        precision = int(str(avro["precision"]))
        if precision > _DECIMAL_DIGITS:
            raise UnsupportedTable(f"{where}: decimal of {precision} digits; at most {_DECIMAL_DIGITS} are supported")
        return pa.decimal128(precision, int(str(avro.get("scale", 0))))
    if kind == "array":
        item, nullable = _arrow_type(avro["items"], where, unions)  # type: ignore[arg-type]
        return pa.list_(pa.field("element", item, nullable))
    if kind == "map":
        value, nullable = _arrow_type(avro["values"], where, unions)  # type: ignore[arg-type]
        return map_type(pa.string(), value, nullable)
    if kind == "record":
        return pa.struct([_arrow_field(child, where, unions) for child in avro["fields"]])  # type: ignore[attr-defined]
    for key in ((str(kind), None if logical is None else str(logical)), (str(kind), None)):
        if key in _ARROW:
            return _ARROW[key]
    raise UnsupportedTable(f"{where}: Avro type {str(kind)[:80]!r} is not read")
