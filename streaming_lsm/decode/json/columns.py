"""Parse many JSON documents of one form at a time, with Arrow's parser.

The documents are joined by line breaks. A document is set aside, for the exact reader, if it does not fit the form, or
if the parser would take it for something else than RFC 8259 does: the parser accepts NaN, several documents in a line,
and any depth, and it ends the process at a bare ``null``.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as pj

from streaming_lsm.arrow.buffers import bytes_of
from streaming_lsm.arrow.columns import Flags, Int64s, flags, is_utf8, pc
from streaming_lsm.decode.column_types import Field
from streaming_lsm.decode.json import cut as json_cut
from streaming_lsm.decode.json.complaints import (
    UNEXPECTED,
    Misfits,
    field_of,
    not_whole,
    row_of,
    tells_of_value,
    with_field,
)
from streaming_lsm.decode.json.document import MOST_DEPTH, MOST_DIGITS
from streaming_lsm.decode.json.structure import Strings, deepest, documents_at, longest_number, next_marks, unclosed

_BLOCK_BYTES, _SEARCHED_BYTES = 4 << 20, 1 << 20
_WINDOW, _FEWEST = 1024, 20
"""Sizes in documents: of a window, which is parsed together after a complaint, and of the smallest that is halved."""
_TRIED, _CALL = 10, 128
"""Limit of documents that the attempts at a window parse, for each of its documents; and the cost of a call of the
parser, as a number of documents."""
# A closing brace inside a document stands before a comma or another closing mark: else two documents share a line.
_SECOND_DOCUMENT = r"\}[ \t\r\n]*[^ \t\r\n,}\]]"
_FOLLOWS = ~np.isin(np.arange(256), list(b",}]"))
# A decimal is found by its name, unless that is written with an escape.
_ESCAPED_NAME = r'\\[^"]*"[ \t\r\n]*:'
# What may follow a number.
_ENDS = np.isin(np.arange(256), list(b" \t\r\n,}]"))
# Complaints of a window before all that have a common misfit are left out of it.
_FEW = 3


@dataclass(frozen=True)
class Parsed:
    """Holds rows of documents.

    Attributes:
        rows: the rows, in columns of the form or of the strict form.
        places: position of each among the documents, int64, ascending.
        strict: whether the documents have no fields but those of the strict form.
    """

    rows: pa.Table
    places: Int64s
    strict: bool


class JsonColumns:
    """Parses documents of one form."""

    def __init__(self, form: pa.Schema, strict: pa.Schema | None = None, row: json_cut.CutField | None = None) -> None:
        """Take the types of the fields.

        Args:
            form: the fields that are read.
            strict: the form and the other fields that documents may have to be parsed strictly; None if all may have
                any other fields.
            row: the field that alone is parsed strictly where it can be cut out; None if there is none.
        """
        self._strict, self._row = strict, row
        self._mark = secrets.token_hex(8)
        self._form = form
        self._reals = any(_has_real(field.type) for field in form)
        decimals = dict(_leaves(form, pa.types.is_decimal128))
        self._long_decimals = [_long_decimal(name, kind) for name, kind in decimals.items()]
        self._not_whole = not_whole(dict(_leaves(form, pa.types.is_integer)))

    def parse(self, documents: pa.BinaryArray) -> Iterator[Parsed]:
        """Parse the documents that fit: those that are parsed strictly, and others.

        Args:
            documents: one JSON object each, without nulls.
        """
        found: dict[tuple[bool, pa.Schema], list[tuple[pa.Table, Int64s]]] = {}
        for begin, end in _blocks(documents, _BLOCK_BYTES):
            block = documents.slice(begin, end - begin)
            usual = np.flatnonzero(self._usual(block))
            part = block if len(usual) == len(block) else block.take(usual)
            for rows, places, strict in self._fitting(part, self._strict is not None):
                found.setdefault((strict, rows.schema), []).append((rows, usual[places] + begin))
        for (strict, _), parts in found.items():
            places = np.concatenate([places for _, places in parts])
            if len(places):
                yield Parsed(pa.concat_tables([rows for rows, _ in parts]), places, strict)

    def _usual(self, documents: pa.BinaryArray) -> Flags:
        """Flag the documents that the parser understands as RFC 8259 does, or refuses."""
        offsets, data = bytes_of(documents)
        size = np.diff(offsets)
        usual: Flags = size >= 2
        first = np.where(usual, offsets[:-1], offsets[0])
        # Where there are no bytes at all, nothing is usual.
        if not len(data) or not usual.any():
            return np.zeros(len(documents), np.bool_)
        last = np.where(usual, offsets[1:] - 1, offsets[0])
        usual &= (data[first] == ord("{")) & (data[last] == ord("}"))
        text = data.tobytes()
        if b"\0" in text:
            for places in _found(data, b"\0"):
                usual[documents_at(places, offsets)] = False
        usual &= ~self._marked(documents, usual, escapes=bool(self._long_decimals) and b"\\" in text)
        for pattern in self._long_decimals:
            usual &= ~with_field(documents, pattern)
        if size.max() > 2 * MOST_DEPTH:
            for place in np.flatnonzero(usual & (_openings(data, offsets) >= MOST_DEPTH)).tolist():
                usual[place] = deepest(data[offsets[place] : offsets[place + 1]]) < MOST_DEPTH
        if size.max() > MOST_DIGITS:
            for place in np.flatnonzero(usual & _long_numbers(data, offsets)).tolist():
                usual[place] = longest_number(data[offsets[place] : offsets[place + 1]]) <= MOST_DIGITS
        return usual & is_utf8(documents)

    def _marked(self, documents: pa.BinaryArray, braced: Flags, *, escapes: bool) -> Flags:
        """Flag documents with something, not in a string, that the parser does not understand as RFC 8259 does.

        All documents are searched, strings included; those in which it is found are searched again without strings,
        unless they are large, or do not begin and end with a brace.
        """
        offsets, data = bytes_of(documents)
        marked = flags(pc.match_substring_regex(documents, _SECOND_DOCUMENT)).copy()
        for places in self._words(data):
            marked[documents_at(places, offsets)] = True
        if escapes:
            marked |= flags(pc.match_substring_regex(documents, _ESCAPED_NAME))
        found = np.flatnonzero(marked & braced & (np.diff(offsets) <= _SEARCHED_BYTES))
        if len(found):
            marked[found] = self._marked_outside_strings(documents.take(found), escapes=escapes)
        return marked

    def _words(self, data: npt.NDArray[np.uint8]) -> Iterator[Int64s]:
        """Yield the places, in strings too, of NaN, Inf and -0 of a real, which the parser reads unlike RFC 8259."""
        yield from _found(data, b"NaN")
        yield from _found(data, b"Inf")
        if self._reals:
            for zeros in _found(data, b"-0"):
                yield zeros[_ENDS[data[np.minimum(zeros + 2, len(data) - 1)]]]

    def _marked_outside_strings(self, documents: pa.BinaryArray, *, escapes: bool) -> Flags:
        offsets, data = bytes_of(documents)
        marked = np.zeros(len(documents), np.bool_)
        strings = Strings(data, offsets)
        braces = np.flatnonzero(data == ord("}"))
        inner = braces[_FOLLOWS[next_marks(data, braces)] & (braces + 1 < offsets[documents_at(braces, offsets) + 1])]
        for places in (inner, *self._words(data)):
            at = documents_at(places, offsets)
            marked[at[strings.outside(places, at)]] = True
        if escapes:
            slashes = np.flatnonzero(data == ord("\\"))
            at = documents_at(slashes, offsets)
            marked[at[strings.in_names(slashes, at)]] = True
        return marked

    def _fitting(self, documents: pa.BinaryArray, strict: bool) -> Iterator[tuple[pa.Table, Int64s, bool]]:
        """Yield the rows of documents that fit, their positions, and whether they were parsed strictly.

        If the parser complains, windows are parsed, each until it does not complain of what is left, or until it has
        taken as long as reading the documents one by one. Halves of a window are tried if it does not tell of what.
        Those that are no JSON are searched at the first complaint of one, with and without a row.
        """
        misfits, searched, counted = Misfits(documents, self._not_whole), False, False
        parts = [_Part(np.arange(len(documents)), strict)]
        while parts:
            part = parts.pop()
            places = part.places[misfits.left[part.places]]
            if not len(places):
                continue
            rows, complaint, strict = self._parsed(documents.take(places), part.strict)
            if rows is not None:
                yield rows, places, strict
                continue
            size, row = len(places), row_of(complaint, len(places))
            found = misfits.leave_out(places, complaint, row, common=part.complaints >= _FEW)
            if row is not None and not searched and not tells_of_value(complaint):
                behind, searched = int(places[row]) + 1, True
                misfits.left[behind + self._no_json(documents.slice(behind))] = False
            if row is None and not counted and not tells_of_value(complaint):
                offsets, data = bytes_of(documents)
                misfits.left &= ~unclosed(data, offsets)
                found, counted = not misfits.left[places].all(), True
            if size > _WINDOW:
                parts += [_Part(places[begin : begin + _WINDOW], strict) for begin in range(0, size, _WINDOW)][::-1]
                continue
            # Converting takes as long as parsing up to the end, and comes after it: a row is complained of before.
            left = part.left - _CALL - (2 * size if row is None else row // 2)
            if left < size:
                continue
            if found:
                parts.append(_Part(places, strict, part.complaints + 1, left))
            elif size >= _FEWEST:
                halves = places[size // 2 :], places[: size // 2]
                parts += [_Part(half, strict, part.complaints + 1, left // 2) for half in halves]

    def _no_json(self, documents: pa.BinaryArray) -> Int64s:
        """Return the positions of documents that are no JSON, as far as it pays to search.

        A form of one field, which they do not have, is parsed up to the first one, then behind it, and so on.
        """
        found, begin, left = [], 0, _TRIED * _WINDOW
        lines, form = _Lines(documents), pa.schema({self._mark: pa.null()})
        while begin < len(documents) and left > 0:
            _, complaint = _read(lines.behind(begin), form, strict=False)
            row = row_of(complaint, len(documents) - begin)
            if row is None:
                break
            begin += row + 1
            found.append(begin - 1)
            left = min(left + _TRIED * row, _TRIED * _WINDOW) - _CALL - row
        return np.array(found, np.int64)

    def _parsed(self, documents: pa.BinaryArray, strict: bool) -> tuple[pa.Table | None, str, bool]:
        """Parse documents, strictly unless they have other fields; returns rows or a complaint, and if strictly."""
        lines = _Lines(documents)
        rows, complaint = self._try(lines, strict)
        if rows is None and strict and self._is_of_other_fields(complaint):
            return *self._try(lines, strict=False), False
        return rows, complaint, strict

    def _try(self, lines: _Lines, strict: bool) -> tuple[pa.Table | None, str]:
        """Parse documents; returns their rows, or None and the parser's complaint."""
        if not strict or self._strict is None:
            return _read(lines, self._form, strict=False)
        found = None if self._row is None else json_cut.cut(lines.documents, self._row, self._mark)
        if found is not None and self._row is not None:
            rows, complaint = self._try_cut(found, self._row.name, self._strict)
            if rows is not None or complaint:
                return rows, complaint
            # What stands there is not the field: such documents are not cut any more.
            self._row = None
        return _read(lines, self._strict, strict=True)

    def _try_cut(self, found: json_cut.Cut, name: str, strict: pa.Schema) -> tuple[pa.Table | None, str]:
        """Parse the rests of documents, and the cut values strictly; there is no complaint if these are no values."""
        place = self._form.get_field_index(name)
        rests, complaint = _read(_Lines(found.rests), self._form.set(place, pa.field(name, pa.string())), strict=False)
        if rests is None:
            return None, complaint
        if not json_cut.holds_marks(rests[name], found.has_value, self._mark):
            return None, ""
        inside: Any = strict.field(name).type
        values, complaint = _read(_Lines(found.values), pa.schema(inside.fields), strict=True)
        if values is None:
            return None, complaint.replace("Column(/", f"Column(/{name}/") if tells_of_value(complaint) else ""
        rows = values.to_struct_array()
        if not found.has_value.all():
            rows = pc.if_else(pa.array(found.has_value), rows, pa.scalar(None, inside))
        return rests.set_column(place, name, rows), ""

    def _is_of_other_fields(self, complaint: str) -> bool:
        """Tell whether the parser complains of a field that is not read."""
        path = field_of(complaint)
        return UNEXPECTED in complaint or (path is not None and not _has_path(self._form, path))


def _read(lines: _Lines, form: pa.Schema, *, strict: bool) -> tuple[pa.Table | None, str]:
    """Parse documents; returns their rows, or None and the parser's complaint."""
    if not len(lines.documents):
        return form.empty_table(), ""
    try:
        table = pj.read_json(
            cast(IO[bytes], pa.BufferReader(lines.text)),
            read_options=pj.ReadOptions(use_threads=False, block_size=lines.text.size + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=form, unexpected_field_behavior="error" if strict else "ignore"
            ),
        )
    except pa.ArrowInvalid as error:
        return None, str(error)
    # Each line begins a document and ends one: as many rows as lines means one document in each.
    return (table.select(form.names), "") if len(table) == len(lines.documents) else (None, "")


def _has_path(form: pa.Schema, path: str) -> bool:
    """Tell whether the parser's name of a field, ``column/field/[]``, is of a field in a form."""
    fields: Any = form
    for name in path.split("/"):
        if name == "[]":
            return True
        place = fields.get_field_index(name)
        if place < 0:
            return False
        fields = fields.field(place).type
        if not pa.types.is_struct(fields):
            return True
    return True


@dataclass(frozen=True)
class _Part:
    """Selects documents that are parsed together.

    Attributes:
        places: their positions.
        strict: whether they are parsed strictly.
        complaints: number of complaints of them so far.
        left: number of documents that may be parsed until the rest is read one by one.
    """

    places: Int64s
    strict: bool
    complaints: int = 0
    left: int = _TRIED * _WINDOW


def _has_real(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or any(_has_real(kind.field(place).type) for place in range(kind.num_fields))


def _leaves(fields: Iterable[Field], chosen: Callable[[pa.DataType], bool]) -> Iterator[tuple[str, pa.DataType]]:
    """Yield name and type of the fields of chosen types, at any depth."""
    for field in fields:
        if chosen(field.type):
            yield field.name, field.type
        elif pa.types.is_struct(field.type):
            yield from _leaves(field.type.fields, chosen)


def _long_decimal(name: str, kind: Any) -> str:
    """Return the pattern, for `with_field`, of a decimal with too many digits before its point, which overflows."""
    blank = r"[ \t\r\n]*"
    return f'{re.escape(name)}"{blank}:{blank}"?[+-]?([0-9]{{{kind.precision - kind.scale + 1}}}|[0-9.]*[eE])'


def _blocks(documents: pa.BinaryArray, size: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of runs of documents of about `size` bytes."""
    offsets, _ = bytes_of(documents)
    begin = 0
    while begin < len(documents):
        end = int(np.searchsorted(offsets, offsets[begin] + size, "right")) - 1
        end = min(max(end, begin + 1), len(documents))
        yield begin, end
        begin = end


class _Lines:
    """Holds documents, and the text that joins them by line breaks."""

    def __init__(self, documents: pa.BinaryArray, text: pa.Buffer | None = None) -> None:
        self.documents, self._text = documents, text

    def behind(self, place: int) -> _Lines:
        """Leave out the documents before `place`."""
        offsets, _ = bytes_of(self.documents)
        return _Lines(self.documents.slice(place), self.text.slice(int(offsets[place] - offsets[0]) + place))

    @property
    def text(self) -> pa.Buffer:
        """The joined documents. A line break inside one is a tab, which a string may not hold either."""
        if self._text is None:
            documents = self.documents
            if (bytes_of(documents)[1] == 10).any():
                documents = pc.replace_substring(documents, b"\n", b"\t")
            every: Any = pa.ListArray.from_arrays(pa.array([0, len(documents)], pa.int32()), documents)
            self._text = pc.binary_join(every, b"\n")[0].as_buffer()
        return self._text


def _openings(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32]) -> Int64s:
    """Count the opening brackets and braces of each document, strings included; none is empty."""
    opening = np.flatnonzero((data == ord("{")) | (data == ord("[")))
    counted: Int64s = np.diff(np.searchsorted(opening, offsets))
    return counted


def _found(data: npt.NDArray[np.uint8], mark: bytes) -> Iterator[Int64s]:
    """Yield the places of some bytes of which the first is rare; in parts, as a document may have it everywhere."""
    last = len(data) - len(mark) + 1
    for begin in range(0, last, _SEARCHED_BYTES):
        places = np.flatnonzero(data[begin : min(begin + _SEARCHED_BYTES, last)] == mark[0]) + begin
        for distance, byte in enumerate(mark[1:], start=1):
            places = places[data[places + distance] == byte]
        yield places


def _long_numbers(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32]) -> Flags:
    """Flag documents that may hold a number of more than `MOST_DIGITS` digits: it meets two samples in a row."""
    step = MOST_DIGITS // 3
    sampled = data[::step]
    digit = (sampled >= ord("+")) & (sampled <= ord("9")) | (sampled == ord("e")) | (sampled == ord("E"))
    places = np.flatnonzero(digit[1:] & digit[:-1]) * step
    found = np.zeros(len(offsets) - 1, np.bool_)
    found[documents_at(places, offsets)] = True
    return found
