"""Read the rows and changes of many documents at a time, where all of it is plain.

*Form*: the fields that are parsed, and their types. *Group*: documents of one form: bare ones, or those in a wrapper of
one schema, which is read once. What a group does not vouch for is left to the exact reader, which decides.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, flags, pc
from streaming_lsm.decode.column_types import CONNECT_DECIMAL, SEMANTIC_UNITS, Field, is_nested, time_unit
from streaming_lsm.decode.envelope import DELETED_FLAGS, ENVELOPE_COLUMNS, Envelope
from streaming_lsm.decode.exact_documents import schema_names
from streaming_lsm.decode.json.columns import JsonColumns, Parsed
from streaming_lsm.decode.json.cut import CutField
from streaming_lsm.decode.json.document import Members, NotJson, Number, parse_document
from streaming_lsm.decode.json.expected_fields import ExpectedFields
from streaming_lsm.decode.table_rows import Columns, Rows, TableRows
from streaming_lsm.decode.unknown_fields import UnknownFields, row_fields, valued
from streaming_lsm.decode.values.typed_columns import Token, parsed_type, typed, usual_token
from streaming_lsm.decode.values.unavailable import unavailable

_SAMPLED, _MOST_SAMPLED = 16, 256 << 10
"""Number of documents of a sample, and bytes above which a document is left out of it."""
_LEARNED = 4
"""Learn other fields from one document in so many, after the first sample."""
_MOST_GROUPS = 8
_WRAPPED = b'{"schema":'
_PAYLOAD = b',"payload":'
_UPSERTS = ("c", "r", "u")


@dataclass(frozen=True)
class _Group:
    """Selects documents of one form.

    Attributes:
        members: the documents, bool (documents,).
        prefix: what stands before the payload of each, in a wrapper; empty for bare documents.
        semantics: schema names by column.
    """

    members: Flags
    prefix: bytes = b""
    semantics: Mapping[str, str | None] = field(default_factory=dict)

    def texts(self, documents: pa.BinaryArray) -> pa.BinaryArray:
        """Return the rows or changes that the documents hold."""
        members = documents if self.members.all() else documents.filter(pa.array(self.members))
        return pc.binary_slice(members, len(self.prefix), -1) if self.prefix else members


class DocumentRows:
    """Reads the documents of an envelope's format."""

    def __init__(
        self,
        envelope: Envelope,
        zone: str = "UTC",
        *,
        semantics: bool = True,
        unknown: UnknownFields | None = None,
    ) -> None:
        """Prepare for the documents of `envelope`.

        Args:
            envelope: the format of documents.
            zone: zone of timestamps that name none.
            semantics: whether the schema of a wrapper tells how values are sent.
            unknown: takes the counts of fields that the table does not have; None to count none.
        """
        self._envelope, self._zone, self._semantics = envelope, zone, semantics
        self._debezium = envelope.format.is_debezium
        self._unavailable = unavailable(envelope.unavailable)
        names = set(envelope.columns.names)
        self._in_row = [one for one in envelope.columns if not (self._debezium and one.name in ENVELOPE_COLUMNS)]
        self._metadata = [one for one in envelope.columns if self._debezium and one.name in ENVELOPE_COLUMNS]
        self._flags = [] if self._debezium else [name for name in DELETED_FLAGS if name not in names]
        self._wrapper = self._debezium or not {"schema", "payload"} & names
        self._unknown, self._fields = unknown, row_fields(envelope)
        self._expected = ExpectedFields(self._fields.known, ("before", "after") if self._debezium else ())
        self._row_field = CutField("after", "source") if self._debezium else None
        self._learned = False
        self._readable = all(_is_readable(one.type) for one in envelope.columns)
        # Prefix and tokens of the last documents, if all of them fitted.
        self._fitted: tuple[bytes, dict[str, Token]] = (b"", {})
        self._table = TableRows(envelope)

    def read(self, documents: pa.BinaryArray) -> Iterator[Rows]:
        """Read the documents; yields the rows of each group.

        Args:
            documents: values of messages, without nulls.
        """
        if not self._readable:
            return
        left = np.arange(len(documents))
        for _ in range(_MOST_GROUPS):
            if not len(left):
                return
            part = documents if len(left) == len(documents) else documents.take(left)
            group = self._first_group(part)
            if group.members.any():
                inside = np.flatnonzero(group.members)
                for rows in self._rows(group.texts(part), group):
                    yield Rows(left[inside[rows.places]], rows.columns, rows.delete)
            # The first document is left to the exact reader if it is in no group.
            passed = group.members.copy()
            passed[0] = True
            left = left[~passed]

    def _first_group(self, documents: pa.BinaryArray) -> _Group:
        """Select the group of the first document."""
        if not self._wrapper:
            return _Group(np.ones(len(documents), np.bool_))
        first = documents[0].as_py()
        if not first.startswith(_WRAPPED):
            return _Group(~flags(pc.starts_with(documents, _WRAPPED)))
        prefix = _prefix(first)
        names = None if prefix is None else schema_names(prefix[len(_WRAPPED) : -len(_PAYLOAD)], self._envelope.format)
        if prefix is None or names is None:
            return _Group(np.zeros(len(documents), np.bool_))
        members = flags(pc.and_(pc.starts_with(documents, prefix), pc.ends_with(documents, b"}")))
        return _Group(members, prefix, names if self._semantics else {})

    def _rows(self, texts: pa.BinaryArray, group: _Group) -> Iterator[Rows]:
        prefix, tokens = self._fitted
        if prefix != group.prefix or not tokens:
            tokens = self._tokens(texts)
        form = self._form(tokens, wrapped=bool(group.prefix))
        counts = self._unknown is not None and self._expected.regular
        strict = self._expected.extended(form) if counts else None
        # Documents that are read below may add names, which the strict form does not have.
        names = self._expected.names() if counts else ()
        left, known = np.ones(len(texts), np.bool_), True
        for parsed in JsonColumns(form, strict, self._row_field).parse(texts):
            left[parsed.places] = False
            known &= parsed.strict
            batch = parsed.rows.combine_chunks()
            columns = {name: _whole(batch.column(name)) for name in batch.schema.names}
            read = self._changes if self._debezium else self._flat
            rows = read(columns, group.semantics, parsed.places)
            if len(rows.places):
                self._count_unknown(rows, parsed, columns, texts, names)
                yield rows
        # As long as all documents fit, those that follow are not sampled.
        self._fitted = (group.prefix, {} if left.any() or (counts and not known) else tokens)
        if counts and not known:
            for place in np.flatnonzero(left)[:_SAMPLED].tolist():
                self._sampled(texts[place].as_py())

    def _count_unknown(
        self, rows: Rows, parsed: Parsed, columns: Columns, texts: pa.BinaryArray, names: Iterable[str]
    ) -> None:
        """Count the fields of upserted rows that the table does not have; `names` are those of the strict form."""
        if self._unknown is None:
            return
        upserts = rows.places[~rows.delete]
        if not parsed.strict:
            scanned = self._fields.scanned(texts.take(upserts), "after" if self._debezium else None)
            self._unknown.add(scanned.counts)
            for place in upserts[scanned.examples[:_SAMPLED]].tolist():
                self._sampled(texts[place].as_py())
            return
        chosen = None if len(upserts) == len(parsed.places) else np.isin(parsed.places, upserts, assume_unique=True)
        row = columns["after"].field if self._debezium else columns.__getitem__
        self._unknown.add(valued({name: row(name) for name in names}, chosen))

    # --- forms ----------------------------------------------------------------------------------------------

    def _tokens(self, documents: pa.BinaryArray) -> dict[str, Token]:
        """Choose the kind of JSON value that most documents of a sample have in each column."""
        counts: dict[str, Counter[Token]] = {}
        places = np.unique(np.linspace(0, len(documents) - 1, _SAMPLED).astype(np.int64)).tolist()
        for nth, place in enumerate(places):
            found = self._sampled(documents[place].as_py(), learn=not self._learned or nth % _LEARNED == 0)
            for name, token in found.items():
                counts.setdefault(name, Counter())[token] += 1
        self._learned = True
        chosen = {one.name: usual_token(one.type) for one in self._envelope.columns}
        chosen |= dict.fromkeys(self._flags, Token.BOOLEAN)
        kinds = {one.name: one.type for one in self._envelope.columns} | dict.fromkeys(self._flags, pa.bool_())
        for name, counted in counts.items():
            (token, _), *_ = counted.most_common()
            if name in kinds and parsed_type(kinds[name], token) is not None:
                chosen[name] = token
        return chosen

    def _sampled(self, document: bytes, *, learn: bool = True) -> Mapping[str, Token]:
        if len(document) > _MOST_SAMPLED:
            return {}
        try:
            token = parse_document(document.decode())
        except (NotJson, UnicodeDecodeError):
            return {}
        if not isinstance(token, Members):
            return {}
        if learn:
            self._expected.learn(token)
        if not self._debezium:
            return _kinds(token)
        source = token.get("source")
        found: dict[str, Any] = {}
        for name, path in ENVELOPE_COLUMNS.items():
            within = token if len(path) == 1 else source
            found[name] = within.get(path[-1]) if isinstance(within, Members) else None
        for side in ("before", "after"):
            row = token.get(side)
            if isinstance(row, Members):
                found |= {name: value for name, value in row.items() if value is not None}
        return _kinds(found)

    def _form(self, tokens: Mapping[str, Token], *, wrapped: bool) -> pa.Schema:
        row = [(one.name, _parsed(one.type, tokens[one.name])) for one in self._in_row]
        other = [("schema", pa.null()), ("payload", pa.null())] if self._wrapper and not wrapped else []
        if not self._debezium:
            return pa.schema([*row, *((name, _parsed(pa.bool_(), tokens[name])) for name in self._flags), *other])
        deleted = [(name, kind) for name, kind in row if self._counts_in_deletes(name)]
        metadata = {one.name: _parsed(one.type, tokens[one.name]) for one in self._metadata}
        paths = {ENVELOPE_COLUMNS[name]: kind for name, kind in metadata.items()}
        source = pa.struct([(path[1], kind) for path, kind in paths.items() if len(path) == 2])
        top = [(path[0], kind) for path, kind in paths.items() if len(path) == 1 and path[0] != "op"]
        changes = [("op", pa.string()), ("source", source), ("before", pa.struct(deleted)), ("after", pa.struct(row))]
        return pa.schema([*changes, *top, *other])

    def _counts_in_deletes(self, name: str) -> bool:
        """Tell whether the row before a change is read for a column: for its value, or to see whether it fits."""
        kind = self._envelope.columns.field(name).type
        return name in self._table.of_deletes or is_nested(kind) or pa.types.is_decimal128(kind)

    # --- rows -----------------------------------------------------------------------------------------------

    def _flat(self, parsed: Columns, semantics: Mapping[str, str | None], places: Int64s) -> Rows:
        good = np.ones(len(places), np.bool_)
        delete = np.zeros(len(places), np.bool_)
        for name in DELETED_FLAGS:
            if name in parsed:
                flag = parsed[name]
                if pa.types.is_string(flag.type):
                    flag, found = typed(flag, pa.bool_(), None, self._zone)
                    good &= found
                # A column of the table may have the name: a number, an object or an array in it deletes nothing.
                if pa.types.is_boolean(flag.type):
                    delete |= flags(pc.fill_null(flag, False))
        return self._placed(parsed, semantics, places, delete, good)

    def _changes(self, parsed: Columns, semantics: Mapping[str, str | None], places: Int64s) -> Rows:
        operation = parsed["op"]
        delete = flags(pc.fill_null(pc.equal(operation, "d"), False))
        good = delete | flags(pc.is_in(operation, pa.array(_UPSERTS)))
        after, before = parsed["after"], parsed["before"]
        good &= np.where(delete, flags(pc.is_valid(before)), flags(pc.is_valid(after)))
        deletes = pa.array(delete) if delete.any() else None
        columns: dict[str, Any] = {}
        for one in self._in_row:
            value = after.field(one.name)
            if deletes is not None:
                if self._counts_in_deletes(one.name):
                    value = pc.if_else(deletes, before.field(one.name), value)
                else:
                    value = pc.if_else(deletes, pa.scalar(None, value.type), value)
            columns[one.name] = value
            if pa.types.is_decimal128(one.type):
                # A row before the change with a value that is no decimal makes the event bad.
                _, found = typed(before.field(one.name), one.type, None, self._zone)
                good &= found
        for one in self._metadata:
            path = ENVELOPE_COLUMNS[one.name]
            columns[one.name] = parsed[path[0]] if len(path) == 1 else pc.struct_field(parsed["source"], path[1])
        return self._placed(columns, semantics, places, delete, good)

    def _placed(
        self, parsed: Columns, semantics: Mapping[str, str | None], places: Int64s, delete: Flags, good: Flags
    ) -> Rows:
        """Convert the values, and leave out the rows that the table cannot take as they are."""
        columns: dict[str, Any] = {}
        for one in self._envelope.columns:
            value, found = self._typed(one, parsed[one.name], semantics.get(one.name))
            columns[one.name] = value
            good = good & found
        return self._table.rows(places, columns, delete, good)

    def _typed(self, column: Field, parsed: Any, semantic: str | None) -> tuple[Any, Flags]:
        unit = time_unit(column) or SEMANTIC_UNITS.get(semantic or "")
        value, good = typed(parsed, column.type, unit, self._zone)
        if pa.types.is_decimal128(column.type) and semantic == CONNECT_DECIMAL:
            good = good & flags(pc.is_null(parsed))
        filled = self._envelope.filled(column.name)
        suspects = self._unavailable.suspects(parsed, filled) if self._debezium else None
        if suspects is not None:
            good = good & ~suspects
        return value, good


def _parsed(kind: pa.DataType, token: Token) -> pa.DataType:
    chosen = parsed_type(kind, token)
    assert chosen is not None
    return chosen


def _is_readable(kind: pa.DataType) -> bool:
    """Tell whether the parser reads a type as it is meant: not objects of any names, nor dates and bytes inside."""
    if not is_nested(kind):
        return True
    if pa.types.is_map(kind):
        return False
    inside = [kind.field(place).type for place in range(kind.num_fields)]
    return all(_is_readable(one) and not pa.types.is_date(one) and not pa.types.is_binary(one) for one in inside)


def _kinds(values: Mapping[str, Any]) -> dict[str, Token]:
    found = {}
    for name, value in values.items():
        if isinstance(value, Number):
            found[name] = Token.NUMBER
        elif isinstance(value, str):
            found[name] = Token.STRING
        elif isinstance(value, bool):
            found[name] = Token.BOOLEAN
        elif value is not None:
            found[name] = Token.NESTED
    return found


def _prefix(document: bytes) -> bytes | None:
    """Return the begin of a document up to its payload; None if it has another form."""
    try:
        text = document.decode()
        _, end = json.JSONDecoder().raw_decode(text, len(_WRAPPED))
    except (ValueError, RecursionError):
        return None
    begin = text[:end].encode()
    return begin + _PAYLOAD if document.startswith(_PAYLOAD, len(begin)) else None


def _whole(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
