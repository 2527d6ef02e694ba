"""Count the fields of documents that the table has no column for.

*Unknown field*: a field of the row, or of an object in a STRUCT column, that the table does not have; its name is
``column.field`` in the latter case. Counted are the events that upsert a row and in which its value is not null.
Names are not trusted: they are counted as `shown_name` returns them.

There are two ways, with the same result. Fields that a sample of the documents has are parsed as columns of their own
(`json/expected_fields.py`), and a field beyond them makes the parser complain. Documents that it complains of are
scanned for names (`json/structure.py`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import bytes_of
from streaming_lsm.arrow.columns import Flags, Int64s, flags, pc
from streaming_lsm.decode.column_types import Field
from streaming_lsm.decode.envelope import DELETED_FLAGS, ENVELOPE_COLUMNS, Envelope, EventFormat
from streaming_lsm.decode.json.document import Members
from streaming_lsm.decode.json.structure import Fields, fields_of, written_name
from streaming_lsm.write.numbers import OTHER_FIELDS, Counts, most_frequent

MOST_NAMES = 1_000
"""Names that a task counts. Further ones count as `OTHER_FIELDS`, as do documents that are too large for a scan."""
_LONGEST_NAME = 100
_MOST_WARNED = 100
_LOG = logging.getLogger(__name__)
_LARGEST_SCANNED = 4 << 20


@dataclass(frozen=True)
class Scanned:
    """Holds the unknown fields that a scan found in documents.

    Attributes:
        counts: number of documents by unknown field.
        examples: positions of documents that have them all, int64, ascending.
    """

    counts: Counts
    examples: Int64s


class UnknownFields:
    """Adds up the numbers of events of one task by unknown field.

    Attributes:
        counts: number of events by unknown field.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, counts: Counts) -> None:
        """Add the counts of some documents, by names as the documents have them."""
        for written, count in counts.items():
            if not count:
                continue
            name = shown_name(written)
            known = name in self.counts or len(self.counts) < MOST_NAMES
            self.counts[name if known else OTHER_FIELDS] += count


class UnknownFieldWarnings:
    """Warns once of each unknown field; the last warning, after `_MOST_WARNED` fields, says that it is the last."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def warn_of(self, counts: Counts) -> None:
        """Warn of the most frequent fields that no warning had yet."""
        if len(self._warned) >= _MOST_WARNED:
            return
        new = [name for name in most_frequent(counts) if name not in self._warned]
        self._warned.update(new)
        if new:
            last = "; no warning names further ones" if len(self._warned) >= _MOST_WARNED else ""
            _LOG.warning(
                "fields of the events are not stored, as the table has no column for them: %s; each batch's numbers "
                "count them%s",
                *(", ".join(new), last),
            )


def shown_name(name: str) -> str:
    """Return a field's name for logs and metadata: short, on one line, and valid as UTF-8.

    Of a long name the begin and the length stay; characters that cannot be printed are escaped.
    """
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}… ({len(name):,} characters)"
    return name if name.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in name)


class RowFields:
    """Finds the fields of rows that are not read: the table has no column for them.

    Attributes:
        known: fields that are read.
        nested: names of the fields of each STRUCT column.
    """

    def __init__(self, columns: Iterable[Field], others: Iterable[str] = ()) -> None:
        """Take the columns that come from the row, and the names of `others` that are read from it."""
        every = list(columns)
        self.known = frozenset((*(one.name for one in every), *others))
        self.nested = {
            one.name: {one.type.field(place).name for place in range(one.type.num_fields)}
            for one in every
            if pa.types.is_struct(one.type)
        }

    def unknown_in(self, row: Members) -> set[str]:
        """Return the unknown fields of a row."""
        found = {name for name, value in row.every if value is not None and name not in self.known}
        for column, children in self.nested.items():
            inside = row.get(column)
            if isinstance(inside, Members):
                found |= {f"{column}.{name}" for name, value in inside.every if not (value is None or name in children)}
        return found

    def scanned(self, documents: pa.BinaryArray, side: str | None) -> Scanned:
        """Find the unknown fields of documents by a scan.

        A document that is too large for it counts as having `OTHER_FIELDS`, even if it has no unknown field.

        Args:
            documents: JSON objects, each with a row.
            side: the field of each document that holds the row; None if the document is the row.
        """
        offsets, data = bytes_of(documents)
        small = np.flatnonzero(np.diff(offsets) <= _LARGEST_SCANNED)
        large = len(documents) - len(small)
        if large:
            rest = self.scanned(documents.take(small), side)
            return Scanned(Counter(rest.counts) + Counter({OTHER_FIELDS: large}), small[rest.examples])
        if not len(data):
            return Scanned({}, small)
        rows, level = _row_fields(fields_of(data), data, side)
        found = [self._found(rows.chosen((rows.level == level) & rows.has_value), data, offsets, None)]
        for column in self.nested:
            inside = _lies_in(rows, level, column, data) & (rows.level == level + 1) & rows.has_value
            found.append(self._found(rows.chosen(inside), data, offsets, column))
        counts: Counter[str] = Counter()
        for part in found:
            counts.update(part.counts)
        return Scanned(counts, np.unique(np.concatenate([part.examples for part in found])))

    def _found(self, fields: Fields, data: Any, offsets: Any, column: str | None) -> Scanned:
        """Find the unknown ones of `fields`, which lie in a STRUCT column or in none."""
        texts = pc.dictionary_encode(fields.names(data))
        names = [written_name(text) for text in texts.dictionary.to_pylist()]
        known = self.known if column is None else self.nested[column]
        unknown = np.array([name not in known for name in names], np.bool_)
        code = np.asarray(texts.indices)
        chosen = unknown[code] if unknown.any() else np.zeros(len(code), np.bool_)
        document = np.searchsorted(offsets, fields.begin[chosen], "right") - 1
        # A document may have a field twice.
        pairs = np.unique(code[chosen] * len(offsets) + document)
        found, first, counts = np.unique(pairs // len(offsets), return_index=True, return_counts=True)
        prefix = "" if column is None else f"{column}."
        named = {f"{prefix}{names[each]}": count for each, count in zip(found.tolist(), counts.tolist(), strict=True)}
        return Scanned(named, pairs[first] % len(offsets))


def row_fields(envelope: Envelope) -> RowFields:
    """Return the fields of the rows of an envelope's documents."""
    if envelope.format is EventFormat.DEBEZIUM:
        return RowFields(column for column in envelope.columns if column.name not in ENVELOPE_COLUMNS)
    return RowFields(envelope.columns, DELETED_FLAGS)


def valued(columns: Mapping[str, Any], chosen: Flags | None) -> Counts:
    """Count the rows in which columns are not null.

    Args:
        columns: columns by name.
        chosen: the rows that count, bool (rows,); None for all.
    """
    if chosen is None:
        return {name: len(column) - column.null_count for name, column in columns.items()}
    return {name: int((flags(pc.is_valid(column)) & chosen).sum()) for name, column in columns.items()}


def _row_fields(fields: Fields, data: Any, side: str | None) -> tuple[Fields, int]:
    """Select the fields of rows, and return the level of a row's own ones."""
    if side is None:
        return fields, 1
    return fields.chosen(_lies_in(fields, 1, side, data)), 2


def _lies_in(fields: Fields, level: int, name: str, data: Any) -> Flags:
    """Flag the fields inside the object that a field of a level and name holds."""
    outer = np.flatnonzero(fields.level == level)
    if not len(outer):
        return np.zeros(len(fields), np.bool_)
    names = pc.dictionary_encode(fields.take(outer).names(data))
    asked = np.array([written_name(text) == name for text in names.dictionary.to_pylist()], np.bool_)
    around = np.searchsorted(outer, np.arange(len(fields)), "right") - 1
    inside: Flags = (fields.level > level) & (around >= 0) & asked[np.asarray(names.indices)][around]
    return inside
