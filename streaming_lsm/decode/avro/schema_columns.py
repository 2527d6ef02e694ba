"""Derive the columns of a table from the schemas of messages.

==================================  =======================================================================
written type                        column type
==================================  =======================================================================
boolean, float, double, bytes       BOOLEAN, FLOAT, DOUBLE, BINARY; also fixed
int, long, times of day             INT, BIGINT, with the number that is sent
string, enum, uuid                  STRING
decimal                             DECIMAL(p, s); with a precision that is not stated or beyond 38 DECIMAL(38, s)
decimal with its own scale          STRING (Debezium's ``VariableScaleDecimal``)
date                                DATE
timestamp                           TIMESTAMP; also Debezium's ``ZonedTimestamp``, which is a text
local timestamp                     TIMESTAMP_NTZ
array, map, record                  ARRAY, MAP, STRUCT; inside them a decimal is a STRING, and a timestamp the number
                                    that is sent
==================================  =======================================================================

*Row*: the record whose fields are the columns, of an envelope the type of ``after``. A field that is always null has no
type yet, and no column.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from streaming_lsm.decode.avro.column_fit import NATURAL_TYPES, check_fit
from streaming_lsm.decode.avro.written_types import MOST_SCALE, Sense, WrittenType
from streaming_lsm.decode.column_types import Field
from streaming_lsm.decode.envelope import DELETED_FLAGS, ENVELOPE_COLUMNS
from streaming_lsm.errors import SchemaError
from streaming_lsm.schema import META_COLUMNS, map_type
from streaming_lsm.schema_evolution import IGNORE, SchemaRules, check_new_name, promotes

_DIGITS = 38
_NO_COLUMNS = frozenset({*META_COLUMNS, *DELETED_FLAGS})
_ZONED = "io.debezium.time.ZonedTimestamp"
_INSTANT = pa.timestamp("us", "UTC")
_BY_KIND = {kind: found for kind, found in NATURAL_TYPES.items() if kind != "null"}
_BY_SENSE: dict[Sense, pa.DataType] = {
    Sense.UUID: pa.string(),
    Sense.SCALED: pa.string(),
    Sense.DATE: pa.date32(),
    Sense.INSTANT: _INSTANT,
    Sense.LOCAL: pa.timestamp("us"),
}
_NUMBERS_INSIDE = (Sense.INSTANT, Sense.LOCAL)


def row_of(written: WrittenType, *, is_debezium: bool) -> WrittenType | None:
    """Return the row of a schema; None if its messages are no rows or envelopes."""
    if not written.is_record:
        return None
    if not is_debezium:
        return written
    after = written.fields.get("after") if "op" in written.fields else None
    return after if after is not None and after.sense is Sense.RECORD else None


def new_columns(written: WrittenType, where: str, needed: Iterable[str], *, is_debezium: bool) -> pa.Schema:
    """Return the columns of a new table.

    Args:
        written: the schema of messages.
        where: the schema, for messages.
        needed: columns that keys, partitions or the order are made of. Debezium's metadata is a column if named here.
        is_debezium: whether messages are envelopes.

    Raises:
        SchemaError: the messages are no rows, or a field has a type that no column holds.
    """
    row = row_of(written, is_debezium=is_debezium)
    if row is None:
        wanted = "no Debezium envelope with op and a record after" if is_debezium else "no record"
        raise SchemaError(f"{where} is {written.text}, {wanted}: correct lsm.kafka.format, or set lsm.kafka.schema")
    fields = list(_new_fields(row, frozenset(), where, is_debezium=is_debezium))
    metadata = {name: ENVELOPE_COLUMNS[name] for name in needed if is_debezium and name in ENVELOPE_COLUMNS}
    for name, path in metadata.items():
        found = _at(written, path)
        if found is not None:
            fields.append(pa.field(name, _table_type(found, ".".join(path), where)))
    _check_names(fields, "", where)
    return pa.schema(fields)


def _check_names(fields: Iterable[Field], inside: str, where: str) -> None:
    """Check the names of new columns, and of fields inside them, as those of later ones are."""
    known: list[str] = []
    for field in fields:
        try:
            check_new_name(field.name, known, f"{inside}{field.name}")
        except SchemaError as error:
            raise SchemaError(f"{where}: {error}") from None
        known.append(field.name)
        kind, path = _innermost(field.type, f"{inside}{field.name}")
        if pa.types.is_struct(kind):
            _check_names(kind.fields, f"{path}.", where)


def _innermost(kind: Any, path: str) -> tuple[Any, str]:
    """Return the type of what lists and maps of a column hold in the end, and its path."""
    while pa.types.is_map(kind) or pa.types.is_list(kind):
        kind, path = (
            (kind.item_type, f"{path}.value") if pa.types.is_map(kind) else (kind.value_type, f"{path}.element")
        )
    return kind, path


def followed(
    columns: pa.Schema, rules: SchemaRules, written: WrittenType, where: str, *, is_debezium: bool
) -> pa.Schema:
    """Return the columns of a table after messages of a schema: its own in their order, then the new ones.

    A column keeps its type where values of the field fit it, unless the field's type is a wider one. The result stays
    as it is when the schema is followed again.

    Args:
        columns: the table's columns.
        rules: how they may change.
        written: the schema; one whose messages are no rows changes nothing.
        where: the schema, for messages.
        is_debezium: whether messages are envelopes.

    Raises:
        SchemaError: a field is new or wider, and the rules refuse that; or has a type that no column holds, or that
            does not fit its column.
    """
    row = row_of(written, is_debezium=is_debezium)
    if row is None:
        return columns
    adds, metadata = rules.mode != IGNORE, ENVELOPE_COLUMNS if is_debezium else {}
    given = [
        _given(column, None if column.name in metadata else row.fields.get(column.name), column.name, where, adds=adds)
        for column in columns
    ]
    if adds:
        given += _new_fields(row, frozenset(columns.names), where, is_debezium=is_debezium)
    try:
        found = rules.evolved(columns, pa.schema(given))
    except SchemaError as error:
        raise SchemaError(f"{where}: {error}") from None
    for column in found:
        if column.name in row.fields and column.name not in metadata:
            check_fit(column, row.fields[column.name], f"{where}: field {column.name!r}")
    return found


def _new_fields(row: WrittenType, known: frozenset[str], where: str, *, is_debezium: bool) -> Iterable[Field]:
    """Yield a column for each field that is none of the known columns."""
    hidden = known | _NO_COLUMNS | (frozenset(ENVELOPE_COLUMNS) if is_debezium else frozenset())
    for name, one in row.fields.items():
        if name not in hidden and one.sense is not Sense.NULL:
            yield pa.field(name, _table_type(one, name, where))


def _given(column: Field, written: WrittenType | None, path: str, where: str, *, adds: bool) -> Field:
    """Return a column as messages of a schema have it: its own type if the field is missing, or fits it.

    Args:
        adds: whether fields of a record are returned that the STRUCT does not have.
    """
    if written is None or written.sense is Sense.NULL:
        return column
    kind: Any = column.type
    if pa.types.is_struct(kind) and written.sense is Sense.RECORD:
        names = {field.name for field in kind.fields}
        fields = [
            _given(field, written.fields.get(field.name), f"{path}.{field.name}", where, adds=adds)
            for field in kind.fields
        ]
        if adds:
            fields += [
                pa.field(name, _table_type(one, f"{path}.{name}", where, inside=True))
                for name, one in written.fields.items()
                if name not in names and one.sense is not Sense.NULL
            ]
        return column.with_type(pa.struct(fields))
    if pa.types.is_list(kind) and written.sense is Sense.ARRAY:
        element = _given(kind.value_field, written.fields["element"], f"{path}.element", where, adds=adds)
        return column.with_type(pa.list_(element))
    if pa.types.is_map(kind) and written.sense is Sense.MAP:
        value = _given(kind.item_field, written.fields["value"], f"{path}.value", where, adds=adds)
        return column.with_type(map_type(kind.key_type, value.type, value.nullable))
    return column.with_type(_leaf(column, written, path, where))


def _leaf(column: Field, written: WrittenType, path: str, where: str) -> pa.DataType:
    """Return the type of the field if it is wider than that of the column, else the column's."""
    old: pa.DataType = column.type
    if pa.types.is_binary(old) and written.sense is Sense.TEXT:
        raise SchemaError(
            f"{where}: field {path!r} is {written.text}, and the table has BINARY, which may stand for base64 or for "
            "the bytes of the text: declare the columns in lsm.kafka.schema, where it is base64"
        )
    if written.sense in (Sense.OTHER, Sense.ARRAY, Sense.MAP, Sense.RECORD) or _has_open_precision(written):
        return old
    wider = _table_type(written, path, where)
    if pa.types.is_integer(old) and pa.types.is_floating(wider):
        if old == pa.int64():
            raise SchemaError(
                f"{where}: field {path!r} is {written.text}, and the table has BIGINT, whose large values would lose "
                "digits: declare the columns in lsm.kafka.schema, or give the field another name"
            )
        return pa.float64()  # a FLOAT has not all numbers of an INT
    if old == pa.int32() and written.kind == "long":
        return pa.int64()
    is_wider = promotes(old, wider) and not pa.types.is_binary(wider)
    return wider if is_wider else old


def _table_type(written: WrittenType, path: str, where: str, *, inside: bool = False) -> pa.DataType:
    """Return the type of a column that is made for a field."""
    fields, sense = written.fields, written.sense
    if sense is Sense.ARRAY:
        return pa.list_(_table_type(fields["element"], f"{path}.element", where, inside=True))
    if sense is Sense.MAP:
        return map_type(pa.string(), _table_type(fields["value"], f"{path}.value", where, inside=True))
    if sense is Sense.RECORD:
        known = {name: one for name, one in fields.items() if one.sense is not Sense.NULL}
        inner = [pa.field(name, _table_type(one, f"{path}.{name}", where, inside=True)) for name, one in known.items()]
        if inner:
            return pa.struct(inner)
    if sense is Sense.DECIMAL and 0 <= written.scale <= MOST_SCALE:
        digits = _DIGITS if _has_open_precision(written) else int(_described(written)["precision"])
        return pa.string() if inside else pa.decimal128(digits, written.scale)
    if _is_zoned(written) and not inside:
        return _INSTANT
    if sense in _BY_SENSE and not (inside and sense in _NUMBERS_INSIDE):
        return _BY_SENSE[sense]
    if sense not in (Sense.NULL, Sense.OTHER, Sense.RECORD, Sense.DECIMAL):
        return _BY_KIND[written.kind]
    raise SchemaError(
        f"{where}: field {path!r} is {written.text}, for which there is no column type: declare the columns in "
        "lsm.kafka.schema, without it if need be"
    )


def _has_open_precision(written: WrittenType) -> bool:
    """Tell whether a decimal has a precision that says nothing: none, or one that no column has."""
    if written.sense is not Sense.DECIMAL:
        return False
    stated = _described(written).get("precision")
    return not isinstance(stated, int) or not max(1, written.scale) <= stated <= _DIGITS


def _is_zoned(written: WrittenType) -> bool:
    return written.kind == "string" and _described(written).get("connect.name") == _ZONED


def _described(written: WrittenType) -> dict[str, Any]:
    """Return the Avro JSON of a type, without null."""
    one = written.avro
    if isinstance(one, list):
        (one,) = (branch for branch in one if branch != "null")
    return one if isinstance(one, dict) else {"type": one}


def _at(written: WrittenType, path: Iterable[str]) -> WrittenType | None:
    """Return the type of a field inside an envelope; None if there is none."""
    found: WrittenType | None = written
    for name in path:
        found = None if found is None else found.fields.get(name)
    return found
