"""Read the raw values of one document or message key at a time, and what a document says of its row.

*Raw value*: a value as a document holds it, before it is converted to the type of its column: a text for most types.
*Misfit*: a value that has not the type of its column. *Flag*: a field of a flat document that makes it a delete.
*Wrapper*: Kafka Connect's object of ``schema`` and ``payload`` around a document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streaming_lsm.decode.column_types import Field, is_nested, sql_name, time_unit
from streaming_lsm.decode.envelope import DELETED_FLAGS, ENVELOPE_COLUMNS, Envelope, EventFormat
from streaming_lsm.decode.json.document import Members, NotJson, Number, parse_document, text_of
from streaming_lsm.decode.values.nested_values import Misfit, nested_converter
from streaming_lsm.decode.values.text_values import converter, fitting_decimal, is_number, raw_decimal

MOST_COMMAS = 1_000_000
"""Commas of a document that is read on its own: each value takes about a hundred bytes of memory."""
_SHOWN = 60
_QUOTED = re.compile(r'"[^\n\r\u0085\u2028\u2029]*"(?:\r\n|[\n\r\u0085\u2028\u2029])?\Z')
_OPERATIONS = ("c", "r", "u", "d")


@dataclass(slots=True)
class RawRow:
    """Holds the raw values of one row of a document.

    Attributes:
        raw: raw values by column.
        members: the object that they come from; None when there is none.
        complaint: whether a value that is read by its JSON type did not fit.
    """

    raw: dict[str, Any] = field(default_factory=dict)
    members: Members | None = None
    complaint: bool = False

    def text(self, name: str) -> str | None:
        """Return the value of a column as text, the first one if it is repeated; None when there is none."""
        if self.members is None:
            return None
        return next((text_of(token) for other, token in self.members.every if other == name), None)


@dataclass(slots=True)
class Document:
    """Holds what a document says.

    Attributes:
        row: the row that it changes; None when it has none.
        reason: why it is no event.
        delete: whether it deletes the row.
        complaint: whether a value that is read by its JSON type did not fit, in the row or elsewhere.
        semantics: schema names by column.
        envelope: raw values of Debezium's metadata, by column.
    """

    row: RawRow | None = None
    reason: str | None = None
    delete: bool = False
    complaint: bool = False
    semantics: Mapping[str, str | None] = field(default_factory=dict)
    envelope: Mapping[str, str | None] = field(default_factory=dict)


class ColumnReader:
    """Reads the values of one column."""

    def __init__(self, column: Field, zone: str) -> None:
        self.name, self.kind, self.sql = column.name, column.type, sql_name(column.type)
        self.by_json_type = is_nested(self.kind) or pa.types.is_decimal128(self.kind)
        self._nested = nested_converter(self.kind) if is_nested(self.kind) else None
        self._typed = None if self.by_json_type else converter(self.kind, time_unit(column), zone)

    def raw(self, token: Any) -> Any:
        """Return the raw value of a token.

        Raises:
            Misfit: the token has another type.
        """
        if self._nested:
            return self._nested(token)
        if not self.by_json_type or token is None:
            return text_of(token)
        if not isinstance(token, str):
            raise Misfit
        value = raw_decimal(token, self.kind)
        if value is None:
            raise Misfit
        return value

    def raw_of_text(self, text: str) -> Any:
        """Return the raw value of a plain text, such as a message key; None when it is none."""
        if self._nested:
            return None
        if self.by_json_type:
            return raw_decimal(text.strip(), self.kind) if is_number(text) else None
        return text

    def value(self, raw: Any, semantic: str | None) -> Any:
        """Convert a raw value to the column's type; None when it does not fit."""
        if raw is None or self._nested:
            return raw
        return fitting_decimal(raw, self.kind, semantic) if self._typed is None else self._typed(raw, semantic)


class DocumentReader:
    """Reads documents and message keys one by one.

    Attributes:
        columns: the readers of the table's columns, by name.
        in_row: those of columns that come from the row, not from Debezium's metadata.
    """

    def __init__(self, envelope: Envelope, zone: str) -> None:
        """Prepare for the documents of `envelope`; `zone` is that of timestamps that name none."""
        self._record_key = envelope.record_key
        self._debezium = envelope.format.is_debezium
        self.columns = {column.name: ColumnReader(column, zone) for column in envelope.columns}
        in_key = {*envelope.record_key, *envelope.partition}
        self._in_key = {name: column for name, column in self.columns.items() if name in in_key}
        in_row = {name: one for name, one in self.columns.items() if name not in ENVELOPE_COLUMNS}
        self.in_row = in_row if self._debezium else self.columns
        self._flags = [name for name in DELETED_FLAGS if name not in self.columns]
        self._wrapper = not {"schema", "payload"} & set(self.columns)
        self._key_wrapper = not {"schema", "payload"} & set(self._in_key)

    def document(self, value: bytes) -> Document:
        """Read the value of a message."""
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return Document(reason="the value is not UTF-8")
        if not text.strip(" "):
            return Document(reason="the value is empty")
        if value.count(b",") > MOST_COMMAS:
            return Document(reason=f"the value is not plain, and has more than {MOST_COMMAS:,} commas: it is not read")
        try:
            token = parse_document(text)
        except NotJson:
            return Document(reason=_not_json(text))
        if token is None:
            return Document(reason="the value is the JSON null")
        if not isinstance(token, Members):
            return Document(reason=_not_json(text))
        return self._debezium_document(token) if self._debezium else self._flat_document(token, text)

    def _flat_document(self, outer: Members, text: str) -> Document:
        inner: Members | None = outer
        semantics: Mapping[str, str | None] = {}
        if self._wrapper:
            schema, payload = outer.get("schema"), outer.get("payload")
            semantics = _names(_member(_reparsed(schema), "fields"))
            if schema is not None and payload is not None:
                token = _reparsed(payload, unread := object())
                if token is unread or not (token is None or isinstance(token, Members)):
                    return Document(reason=_not_json(text))
                inner = token
        row = self._row(inner, self.in_row)
        flags = {name: text_of(inner.get(name)) if inner else None for name in DELETED_FLAGS}
        for name in self._flags:
            flag = flags[name]
            if flag is not None and flag.lower() not in ("true", "false"):
                return Document(reason=f"field '{name}' holds '{shown(flag)}', which is not BOOLEAN")
        delete = any(flag is not None and flag.lower() == "true" for flag in flags.values())
        return Document(row, None, delete, row.complaint, semantics)

    def _debezium_document(self, document: Members) -> Document:
        complaint, members = False, {}
        for name in ("payload", "schema"):
            members[name], misfit = _object(document, name)
            complaint |= misfit
        bare = self._change(document)
        change = bare if members["payload"] is None else self._change(members["payload"])
        semantics, misfit = _sides(members["schema"])
        complaint |= misfit or bare.complaint or change.complaint
        operation = change.operation
        reason = operation_reason(operation, has_after=change.after is not None)
        if reason is not None:
            return Document(reason=reason)
        row = change.before if operation == "d" else change.after
        envelope = {name: change.metadata[name] for name in self.columns if name in ENVELOPE_COLUMNS}
        return Document(row, None, operation == "d", complaint, semantics, envelope)

    def _change(self, members: Members) -> _Change:
        sides: dict[str, RawRow | None] = {}
        source, complaint = _object(members, "source")
        for name in ("before", "after"):
            sides[name] = None
            for other, token in members.every:
                if other != name:
                    continue
                if token is None or isinstance(token, Members):
                    row = None if token is None else self._row(token, self.in_row)
                    sides[name] = row
                    complaint |= row is not None and row.complaint
                else:
                    complaint = True
        metadata = {
            name: text_of(members.get(path[0]) if len(path) == 1 else _member(source, path[1]))
            for name, path in ENVELOPE_COLUMNS.items()
        }
        return _Change(text_of(members.get("op")), sides["before"], sides["after"], metadata, complaint)

    def _row(self, members: Members | None, columns: Mapping[str, ColumnReader]) -> RawRow:
        if members is None:
            return RawRow()
        row = RawRow({}, members)
        repeated = len(members) != len(members.every)
        for name, column in columns.items():
            every = (token for other, token in members.every if other == name) if repeated else (members.get(name),)
            for token in every:
                try:
                    row.raw[name] = column.raw(token)
                except Misfit as misfit:
                    row.complaint = True
                    if misfit.partial:
                        row.raw[name] = PARTIAL
        return row

    def key_row(self, key: bytes | None) -> tuple[RawRow, str | None]:
        """Read the columns of a message's key; returns them, or the reason why it cannot be read."""
        if key is None:
            return RawRow(), "a delete without a value needs a key, and the key is null"
        try:
            text = key.decode()
        except UnicodeDecodeError:
            return RawRow(), "the key is not UTF-8"
        single = len(self._record_key) == 1
        what = "the key is not a JSON object" if single else "the key is not a JSON object of the record key columns"
        body: str | None = text
        token: Any = None
        if _is_object(text):
            token = _parsed(text)
            if self._key_wrapper and _member(token, "schema") is not None and _member(token, "payload") is not None:
                body = text_of(token["payload"])
                token = _parsed(body) if body is not None and _is_object(body) else None
            if body is not None and _is_object(body) and not isinstance(token, Members):
                return RawRow(), f"{what}: {shown(text)}"
        if isinstance(token, Members):
            return self._row(token, self._in_key), None
        if not single:
            return RawRow(), f"{what}: {shown(text)}"
        (name,) = self._record_key
        plain = _unquoted(body or "")
        members = Members([(name, plain)])
        return RawRow({name: self.columns[name].raw_of_text(plain)}, members), None


@dataclass(slots=True)
class _Change:
    """Holds the fields of a Debezium envelope."""

    operation: str | None
    before: RawRow | None
    after: RawRow | None
    metadata: Mapping[str, str | None]
    complaint: bool


PARTIAL: Any = object()
"""Raw value of a nested column of which only a part fits."""


def _object(members: Members, name: str) -> tuple[Members | None, bool]:
    """Return the last object or null of a name, and whether a member of the name is something else."""
    found, misfit = None, False
    for other, token in members.every:
        if other == name:
            if token is None or isinstance(token, Members):
                found = token
            else:
                misfit = True
    return found, misfit


def _member(token: Any, name: str) -> Any:
    return token.get(name) if isinstance(token, Members) else None


def _names(fields: Any) -> Mapping[str, str | None]:
    """Return the schema names of fields by column, as a Connect schema lists them; the first of a column counts."""
    if not isinstance(fields, list) or not all(one is None or isinstance(one, Members) for one in fields):
        return {}
    found: dict[str, str | None] = {}
    for one in fields:
        name = text_of(_member(one, "field"))
        if name is not None:
            found.setdefault(name, text_of(_member(one, "name")))
    return found


def _sides(schema: Members | None) -> tuple[Mapping[str, str | None], bool]:
    """Return the schema names of the rows of an envelope by column, and whether the schema has another form."""
    if schema is None:
        return {}, False
    fields = schema.get("fields")
    if fields is None:
        return {}, False
    if not isinstance(fields, list):
        return {}, True
    every: list[Any] = []
    misfit = False
    for side in fields:
        if side is None:
            continue
        if not isinstance(side, Members):
            return {}, True
        described = side.get("fields")
        if described is None:
            continue
        if not isinstance(described, list) or not all(one is None or isinstance(one, Members) for one in described):
            misfit = True
        elif text_of(side.get("field")) in ("before", "after"):
            every.extend(described)
    return _names(every), misfit


def _parsed(text: str) -> Any:
    try:
        return parse_document(text)
    except NotJson:
        return None


def _reparsed(token: Any, unread: Any = None) -> Any:
    """Return a token, or the document that it holds as a string; `unread` for a string that is no document."""
    if not isinstance(token, str) or isinstance(token, Number):
        return token
    try:
        return parse_document(token)
    except NotJson:
        return unread


def _is_object(text: str) -> bool:
    return text.lstrip(" ").startswith("{")


def _unquoted(text: str) -> str:
    if not _QUOTED.match(text):
        return text
    token = _parsed(text)
    return text if not isinstance(token, str) else str(text_of(token))


def operation_reason(operation: str | None, *, has_after: bool) -> str | None:
    """Return why a Debezium envelope is no event; None if it is one.

    Args:
        operation: its ``op``.
        has_after: whether it has a row in ``after``.
    """
    if operation is None:
        return "the value is no Debezium envelope: it has no 'op'"
    if operation == "t":
        return "a truncate (op 't') is not applied to the table"
    if operation not in _OPERATIONS:
        return f"op '{shown(operation)}' is not known"
    if operation != "d" and not has_after:
        return f"op '{operation}' without a row in 'after'"
    return None


def shown(text: str) -> str:
    return f"{text[:_SHOWN]}…" if len(text) > _SHOWN else text


def _not_json(text: str) -> str:
    return f"the value is not a JSON object: {shown(text)}"


def schema_names(schema: bytes, form: EventFormat) -> Mapping[str, str | None] | None:
    """Return the schema names by column that the schema of a wrapper states; None if it has another form."""
    token = _parsed(schema.decode())
    if not isinstance(token, Members):
        return None
    if form is not EventFormat.DEBEZIUM:
        return _names(_member(token, "fields"))
    names, misfit = _sides(token)
    return None if misfit else names
