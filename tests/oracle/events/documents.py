"""Parse JSON documents strictly, and locate the row and the kind of change in them.

*Document*: the JSON text of a message's value. *Raw row*: the table's columns as `raw_type` reads them. *Flag*: a field
of a flat document that makes it a delete. *Wrapper*: Kafka Connect's object of ``schema`` and ``payload`` around a
document.

All of it is Spark column expressions over a row of Spark's Kafka source. Documents are parsed with the types that their
format prescribes, and those that do not fit a second time, which keeps every value as text, to give the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.oracle.events.values import raw_type

_PLACEHOLDER = "__debezium_unavailable_value"
_NUMBERS = [str(octet) for octet in _PLACEHOLDER.encode()]
_IN_BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
_AS_UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
UNAVAILABLE = (
    _PLACEHOLDER,
    _IN_BASE64,
    *(f'["{text}"]' for text in (_PLACEHOLDER, _IN_BASE64, _AS_UUID)),
    *(f"[{','.join(every)}]" for every in (_NUMBERS, [f"{number}.0" for number in _NUMBERS])),
    f'{{"{_PLACEHOLDER}":"{_PLACEHOLDER}"}}',
)
"""Debezium's placeholder for a large value that an update did not change: texts, and the JSON of other values."""
UNAVAILABLE_TEXTS = tuple(
    "[" + ",".join(f'"{number}"' for number in every) + "]"
    for every in (_NUMBERS, [f"{number}.0" for number in _NUMBERS])
)
"""The same as arrays of texts, which the numbers become in an ARRAY<STRING>."""

DELETED_FLAGS = ("_hoodie_is_deleted", "__deleted")
"""Flags of a flat document: Hudi's, and that of Debezium's ExtractNewRecordState."""

ENVELOPE_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "_change_operation_type": ("op",),
    "_upstream_event_processed_ts_ms": ("ts_ms",),
    "_event_origin_ts_ms": ("source", "ts_ms"),
    "db_shard_source_partition": ("source", "name"),
    "_event_tx_id": ("source", "txId"),
    "_event_lsn": ("source", "lsn"),
    "_event_xmin": ("source", "xmin"),
    "_event_bin_file": ("source", "file"),
    "_event_pos": ("source", "pos"),
    "_event_row": ("source", "row"),
}
"""Hudi's column names for Debezium's metadata, and the path of each in the envelope."""

_STRICT = {
    "columnNameOfCorruptRecord": "bad",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_TEXTS = T.MapType(T.StringType(), T.StringType())


def parse_strictly(text: Column, kind: T.DataType) -> Column:
    """Parse a JSON text that must be one whole document.

    Returns:
        struct ``v: kind, bad: string``. `bad` is null when the document fits. When it is set, `v` is null or holds
        the values that could be read: `bad` does not distinguish a syntax error from a value of another type.
    """
    # Nested in a field, as Spark's parser ignores text after a document on its own.
    whole = F.concat(F.lit('{"v":'), text, F.lit("}"))
    return F.from_json(whole, T.StructType().add("v", kind).add("bad", "string"), _STRICT)


def syntax_error(text: Column) -> Column:
    """Return whether a text is not a JSON object."""
    loose = parse_strictly(text, _TEXTS)
    return loose["bad"].isNotNull() | loose["v"].isNull()


def fields_as_text(text: Column) -> Column:
    """Parse the fields of a JSON object, each value as text; nested values as JSON."""
    return parse_strictly(text, _TEXTS)["v"]


def shown(text: Column) -> Column:
    """Cut a text to 60 characters for a message."""
    return F.when(F.length(text) > 60, F.concat(F.substring(text, 1, 60), F.lit("…"))).otherwise(text)


class Documents(Protocol):
    """Builds the expressions that read documents of one format."""

    def steps(self) -> list[dict[str, Column]]:
        """Return the columns to add, one projection after another, that parse column ``_lsm_text``."""
        ...

    def reason(self) -> Column:
        """Return the reason why the value is not an event of this format; null when it is one."""
        ...

    def complaint(self) -> Column:
        """Return whether a value of the document did not fit its column."""
        ...

    def is_delete(self) -> Column:
        """Return whether the event deletes its key."""
        ...

    def has_row(self) -> Column:
        """Return whether the value holds the row; otherwise key and partition are read from the message's key."""
        ...

    def raw(self, name: str) -> Column:
        """Return the raw value of a column."""
        ...

    def as_text(self, name: str) -> Column:
        """Return the value of a column as text, of any JSON type; it takes a second parse."""
        ...

    def semantic(self, name: str) -> Column | None:
        """Return the schema name that the event states for a column; None when documents have no schema."""
        ...


def raw_struct(columns: T.StructType) -> T.StructType:
    """Return the struct type of a raw row."""
    return T.StructType([T.StructField(field.name, raw_type(field)) for field in columns.fields])


def _semantic(fields: Column, name: str) -> Column:
    return F.get(F.filter(fields, lambda field: field["field"] == name), F.lit(0))["name"]


def _field(column: str, path: tuple[str, ...]) -> Column:
    found = F.col(column)
    for name in path:
        found = found[name]
    return found


def _flag(raw: Column) -> Column:
    return F.lower(raw) == "true"


class FlatDocuments:
    """Reads documents that are the row itself, bare or in the ``payload`` of a wrapper; a flag makes one a delete."""

    def __init__(self, columns: T.StructType) -> None:
        """Take the columns of the table."""
        self._columns = columns
        self._flags = [name for name in DELETED_FLAGS if name not in columns.names]
        self._wrapper = not {"schema", "payload"} & set(columns.names)

    def steps(self) -> list[dict[str, Column]]:
        """See `Documents`."""
        row = raw_struct(self._columns)
        for flag in self._flags:
            row = row.add(flag, "string")
        if not self._wrapper:
            return [{"_lsm_doc": parse_strictly(F.col("_lsm_text"), row)}]
        outer = T.StructType(list(row.fields)).add("schema", "string").add("payload", "string")
        payload = F.when(self._is_wrapped(), F.col("_lsm_doc")["v"]["payload"])
        fields = T.ArrayType(T.StructType().add("field", "string").add("name", "string"))
        schema = F.from_json(F.col("_lsm_doc")["v"]["schema"], T.StructType().add("fields", fields))
        return [
            {"_lsm_doc": parse_strictly(F.col("_lsm_text"), outer)},
            {"_lsm_inner": parse_strictly(payload, row), "_lsm_schema": schema["fields"]},
        ]

    def _is_wrapped(self) -> Column:
        document = F.col("_lsm_doc")["v"]
        return document["schema"].isNotNull() & document["payload"].isNotNull()

    def _part(self, *path: str) -> Column:
        outer = _field("_lsm_doc", path)
        return F.when(self._is_wrapped(), _field("_lsm_inner", path)).otherwise(outer) if self._wrapper else outer

    def _row_text(self) -> Column:
        text = F.col("_lsm_text")
        return F.when(self._is_wrapped(), F.col("_lsm_doc")["v"]["payload"]).otherwise(text) if self._wrapper else text

    def reason(self) -> Column:
        """See `Documents`."""
        wrong = [
            F.when(
                ~F.lower(self.raw(name)).isin("true", "false"),
                F.concat(F.lit(f"field '{name}' holds '"), shown(self.raw(name)), F.lit("', which is not BOOLEAN")),
            )
            for name in self._flags
        ]
        return F.coalesce(
            F.when(
                self._part("bad").isNotNull() & syntax_error(self._row_text()),
                F.concat(F.lit("the value is not a JSON object: "), shown(F.col("_lsm_text"))),
            ),
            F.when(F.col("_lsm_doc")["v"].isNull(), F.lit("the value is the JSON null")),
            *wrong,
        )

    def complaint(self) -> Column:
        """See `Documents`."""
        return self._part("bad").isNotNull()

    def is_delete(self) -> Column:
        """See `Documents`."""
        flags = [_flag(self.raw(name)) for name in DELETED_FLAGS]
        return F.coalesce(flags[0], F.lit(False)) | F.coalesce(flags[1], F.lit(False))

    def has_row(self) -> Column:
        """See `Documents`."""
        return F.lit(True)

    def raw(self, name: str) -> Column:
        """See `Documents`."""
        return self._part("v", name)

    def as_text(self, name: str) -> Column:
        """See `Documents`."""
        return fields_as_text(self._row_text())[name]

    def semantic(self, name: str) -> Column | None:
        """See `Documents`."""
        return _semantic(F.col("_lsm_schema"), name) if self._wrapper else None


class DebeziumDocuments:
    """Reads Debezium's envelope (``op``, ``before``, ``after``, ``source``), bare or as ``payload`` of a wrapper."""

    def __init__(self, columns: T.StructType) -> None:
        """Take the columns of the table."""
        self._columns = columns

    def steps(self) -> list[dict[str, Column]]:
        """See `Documents`."""
        envelope = self._envelope_type()
        described = T.ArrayType(T.StructType().add("field", "string").add("name", "string"))
        sides = T.ArrayType(T.StructType().add("field", "string").add("fields", described))
        outer = T.StructType(list(envelope.fields)).add("payload", envelope)
        outer = outer.add("schema", T.StructType().add("fields", sides))
        document, found = F.col("_lsm_doc")["v"], F.col("_lsm_envelope")
        bare = F.struct(*[document[name].alias(name) for name in envelope.names])
        both = F.filter(document["schema"]["fields"], lambda side: side["field"].isin("before", "after"))
        return [
            {"_lsm_doc": parse_strictly(F.col("_lsm_text"), outer)},
            {
                "_lsm_envelope": F.coalesce(document["payload"], bare),
                "_lsm_schema": F.flatten(F.transform(both, lambda side: side["fields"])),
            },
            {"_lsm_row": F.when(self.is_delete(), found["before"]).otherwise(found["after"])},
        ]

    def _envelope_type(self) -> T.StructType:
        row = raw_struct(T.StructType([field for field in self._columns.fields if field.name not in ENVELOPE_COLUMNS]))
        source = T.StructType()
        for path in ENVELOPE_COLUMNS.values():
            source = source.add(path[1], "string") if len(path) == 2 else source
        envelope = T.StructType().add("op", "string").add("ts_ms", "string").add("source", source)
        return envelope.add("before", row).add("after", row)

    def reason(self) -> Column:
        """See `Documents`."""
        document, operation = F.col("_lsm_doc"), F.col("_lsm_envelope")["op"]
        return F.coalesce(
            F.when(
                document["bad"].isNotNull() & syntax_error(F.col("_lsm_text")),
                F.concat(F.lit("the value is not a JSON object: "), shown(F.col("_lsm_text"))),
            ),
            F.when(document["v"].isNull(), F.lit("the value is the JSON null")),
            F.when(operation.isNull(), F.lit("the value is no Debezium envelope: it has no 'op'")),
            F.when(operation == "t", F.lit("a truncate (op 't') is not applied to the table")),
            F.when(
                ~operation.isin("c", "r", "u", "d"), F.concat(F.lit("op '"), shown(operation), F.lit("' is not known"))
            ),
            F.when(
                (operation != "d") & F.col("_lsm_row").isNull(),
                F.concat(F.lit("op '"), operation, F.lit("' without a row in 'after'")),
            ),
        )

    def complaint(self) -> Column:
        """See `Documents`."""
        return F.col("_lsm_doc")["bad"].isNotNull()

    def is_delete(self) -> Column:
        """See `Documents`."""
        return F.coalesce(F.col("_lsm_envelope")["op"] == "d", F.lit(False))

    def has_row(self) -> Column:
        """See `Documents`."""
        return F.col("_lsm_row").isNotNull()

    def raw(self, name: str) -> Column:
        """See `Documents`."""
        if name not in ENVELOPE_COLUMNS:
            return F.col("_lsm_row")[name]
        return _field("_lsm_envelope", ENVELOPE_COLUMNS[name])

    def as_text(self, name: str) -> Column:
        """See `Documents`."""
        outer = fields_as_text(F.col("_lsm_text"))
        envelope = F.coalesce(fields_as_text(outer["payload"]), outer)
        side = F.when(self.is_delete(), envelope["before"]).otherwise(envelope["after"])
        return fields_as_text(side)[name]

    def semantic(self, name: str) -> Column | None:
        """See `Documents`."""
        return _semantic(F.col("_lsm_schema"), name)
