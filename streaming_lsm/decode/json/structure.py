"""Find brackets and field names in many JSON documents at a time, without parsing their values.

The documents must be JSON objects, one after another. *Level*: number of objects and arrays around a place; the fields
of a document are on level 1.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s

Bytes = npt.NDArray[np.uint8]
_CHUNK = 1 << 20
_LAST_BLANK = ord(" ")
_IN_NUMBERS = np.isin(np.arange(256), list(b"0123456789+-.eE"))
_QUOTE, _BACKSLASH, _COLON, _NULL = b'"\\:n'
# Bit 6 of a bracket tells { from [ and } from ].
_EITHER, _OPENS, _CLOSES = 0x20, ord("{"), ord("}")


@dataclass(frozen=True)
class Fields:
    """Holds fields of documents, in the order in which they stand.

    Attributes:
        begin: place of the opening quote of each name, int64 (fields,).
        end: place of the closing quote, int64.
        level: int64.
        has_value: whether the value is not null, bool.
    """

    begin: Int64s
    end: Int64s
    level: Int64s
    has_value: Flags

    def __len__(self) -> int:
        return len(self.begin)

    def chosen(self, flags: Flags) -> Fields:
        """Select the flagged fields."""
        return self.take(np.flatnonzero(flags))

    def take(self, places: Int64s) -> Fields:
        """Select fields by their positions."""
        return Fields(self.begin[places], self.end[places], self.level[places], self.has_value[places])

    def names(self, data: Bytes) -> pa.BinaryArray:
        """Return the names, as they are written between the quotes."""
        if not len(self):
            return pa.array([], pa.binary())
        places = np.column_stack([self.begin + 1, self.end]).ravel().astype(np.int32)
        # Every other value is what stands between two names.
        buffers = [None, pa.py_buffer(places.tobytes()), pa.py_buffer(data.tobytes())]
        texts: Any = pa.Array.from_buffers(pa.binary(), len(places) - 1, buffers)
        names: pa.BinaryArray = texts.take(np.arange(0, len(places), 2))
        return names


def fields_of(data: Bytes) -> Fields:
    """Find all fields of documents, on any level.

    Args:
        data: the documents, uint8.
    """
    quotes = _quotes(data)
    begin, end = quotes[::2], quotes[1::2]
    follows = _next_mark(data, end + 1)
    named = data[follows] == _COLON
    begin, end = begin[named], end[named]
    value = _next_mark(data, follows[named] + 1)
    places, steps = _brackets(data)
    outside = np.searchsorted(quotes, places) % 2 == 0
    places, steps = places[outside], steps[outside]
    # There are fewer brackets than names: the former are looked up among the latter.
    changes = np.zeros(len(begin) + 1, np.int64)
    np.add.at(changes, np.searchsorted(begin, places), steps)
    return Fields(begin, end, np.cumsum(changes[:-1]), data[value] != _NULL)


class Strings:
    """Tells which places of documents are in strings."""

    def __init__(self, data: Bytes, offsets: npt.NDArray[np.int32]) -> None:
        """Find the strings of documents, which need not be JSON, but begin and end with a brace."""
        self._data = data
        self._quotes = _quotes(data)
        self._before = np.searchsorted(self._quotes, offsets)
        self._open: Flags = np.diff(self._before) % 2 == 1

    def outside(self, places: Int64s, documents: Int64s) -> Flags:
        """Flag the places that are in no string of their documents, and all in those with a string without an end."""
        quotes = np.searchsorted(self._quotes, places) - self._before[documents]
        found: Flags = (quotes % 2 == 0) | self._open[documents]
        return found

    def in_names(self, places: Int64s, documents: Int64s) -> Flags:
        """Flag the places in names of fields, and all in documents with a string without an end."""
        nth = np.searchsorted(self._quotes, places)
        found: Flags = nth < self._before[documents + 1]
        end = self._quotes[nth[found]]
        found[found] = self._data[_next_mark(self._data, end + 1)] == _COLON
        return found | self._open[documents]


def next_marks(data: Bytes, places: Int64s) -> npt.NDArray[np.uint8]:
    """Return the first byte behind each place that is not white space."""
    found: npt.NDArray[np.uint8] = data[_next_mark(data, places + 1)]
    return found


def deepest(data: Bytes) -> int:
    """Return the most objects and arrays around any place of a document, in memory that does not grow with it."""
    most = depth = begin = 0
    inside = False
    while begin < len(data):
        end = min(begin + _CHUNK, len(data))
        while end < len(data) and data[end - 1] == _BACKSLASH:
            end += 1
        part = data[begin:end]
        quoted, escaped = part == _QUOTE, _escaped(part)
        if escaped is not None:
            quoted &= ~escaped
        within = np.bitwise_xor.accumulate(quoted) ^ inside
        places, steps = _brackets(part)
        steps = steps[~within[places]]
        if len(steps):
            depths = depth + np.cumsum(steps, dtype=np.int64)
            most, depth = max(most, int(depths.max())), int(depths[-1])
        inside, begin = bool(within[-1]), end
    return most


def unclosed(data: Bytes, offsets: npt.NDArray[np.int32]) -> Flags:
    """Flag documents of which the brackets do not close, or close before the last byte; they need not be JSON."""
    places, steps = _brackets(data)
    documents = documents_at(places, offsets)
    outside = Strings(data, offsets).outside(places, documents)
    places, documents = places[outside], documents[outside]
    levels = np.append(0, np.cumsum(steps[outside], dtype=np.int64))
    before = levels[np.searchsorted(places, offsets)]
    found: Flags = before[1:] != before[:-1]
    closed = levels[1:] <= before[documents]
    found[documents[closed & (places < offsets[documents + 1] - 1)]] = True
    return found


def documents_at(places: Int64s, offsets: npt.NDArray[np.int32]) -> Int64s:
    """Return the documents that have the bytes at `places`."""
    found: Int64s = np.searchsorted(offsets, places, "right") - 1
    return found


def longest_number(data: Bytes) -> int:
    """Return the length of the longest run of bytes that a number may have, strings included."""
    most, begun = 0, 0
    for begin in range(0, len(data), _CHUNK):
        others = np.flatnonzero(~_IN_NUMBERS[data[begin : begin + _CHUNK]]) + begin
        if len(others):
            most = max(most, int(others[0]) - begun, int(np.diff(others).max(initial=1)) - 1)
            begun = int(others[-1]) + 1
    return max(most, len(data) - begun)


def written_name(name: bytes) -> str:
    """Decode a name as it is written between the quotes: resolve its escapes."""
    return str(json.loads(b'"' + name + b'"')) if b"\\" in name else name.decode("utf-8", "replace")


def _quotes(data: Bytes) -> Int64s:
    """Find the quotes that begin and end strings."""
    quotes = np.flatnonzero(data == _QUOTE)
    escaped = _escaped(data)
    return quotes if escaped is None else quotes[~escaped[quotes]]


def _escaped(data: Bytes) -> Flags | None:
    """Flag the bytes before which an odd number of backslashes stands; None if there are no backslashes."""
    slashes = np.flatnonzero(data == _BACKSLASH)
    if not len(slashes):
        return None
    found = np.zeros(len(data), np.bool_)
    begins = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)
    lengths = np.diff(begins, append=len(slashes))
    after = slashes[begins] + lengths
    found[after[(lengths % 2 == 1) & (after < len(data))]] = True
    return found


def _brackets(data: Bytes) -> tuple[Int64s, npt.NDArray[np.int8]]:
    """Find the brackets, strings included, and 1 or -1 for each."""
    either = data | np.uint8(_EITHER)
    places = np.flatnonzero((either == _OPENS) | (either == _CLOSES))
    return places, np.where(either[places] == _OPENS, 1, -1).astype(np.int8)


def _next_mark(data: Bytes, places: Int64s) -> Int64s:
    """Move places forward to the next byte that is not white space; the last byte of documents is none."""
    places = np.minimum(places, len(data) - 1)
    blank = np.flatnonzero(data[places] <= _LAST_BLANK)
    while len(blank):
        places[blank] += 1
        blank = blank[data[places[blank]] <= _LAST_BLANK]
    return places
