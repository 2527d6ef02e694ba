"""Cut the value of one field out of many JSON documents, so that the value is parsed strictly and the rest is not.

*Rest*: a document with a mark in the place of the value. A mark is drawn at random, so that no document has it: where
the rest is an object whose field holds the mark, and the value is an object, the document is the one with the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import array_of, bytes_of
from streaming_lsm.arrow.columns import Flags, Int64s, flags, pc


@dataclass(frozen=True)
class CutField:
    """Describes a field and where it stands.

    Attributes:
        name: its name.
        following: name of the field after it, which holds an object, too.
    """

    name: str
    following: str


@dataclass(frozen=True)
class Cut:
    """Holds the parts of documents: the values of a field, and the rests without them.

    Attributes:
        rests: the documents with a mark instead of the value.
        values: the values; ``{}`` of documents that have null.
        has_value: bool (documents,).
    """

    rests: pa.BinaryArray
    values: pa.BinaryArray
    has_value: Flags


def cut(documents: pa.BinaryArray, field: CutField, mark: str) -> Cut | None:
    """Cut a field's value out of each document, where it is written without white space.

    Args:
        documents: JSON, without nulls.
        field: the field.
        mark: text that no document holds.

    Returns:
        None if a document has the field in another place, or neither an object nor null in it.
    """
    offsets, data = bytes_of(documents)
    opening = np.flatnonzero(data == ord("{"))
    begins, ends = (_after(opening, data, f',"{name}":'.encode()) for name in (field.name, field.following))
    ends -= len(f',"{field.following}":')
    begun, ended = (np.searchsorted(offsets, places, "right") - 1 for places in (begins, ends))
    has_value = np.zeros(len(documents), np.bool_)
    has_value[begun] = True
    ends, ended = ends[has_value[ended]], ended[has_value[ended]]
    # A document may have neither, or one of each in this order.
    if not np.array_equal(begun, ended) or len(begun) != has_value.sum() or (ends <= begins).any():
        return None
    others = documents.filter(pa.array(~has_value))
    if not pc.all(pc.match_substring(others, f',"{field.name}":null,'), min_count=0).as_py():
        return None
    first = offsets[1:].copy()
    last = first.copy()
    first[has_value], last[has_value] = begins, ends
    heads, values, tails = _pieces(documents, offsets, first, last)
    marks = pa.scalar(f'"{mark}"'.encode())
    if len(others):
        chosen = pa.array(has_value)
        marks, values = pc.if_else(chosen, marks, b""), pc.if_else(chosen, values, b"{}")
    return Cut(pc.binary_join_element_wise(heads, marks, tails, b""), values, has_value)


def holds_marks(column: Any, has_value: Flags, mark: str) -> bool:
    """Tell whether the field of each rest holds its mark, or null where the document does."""
    found = flags(pc.fill_null(pc.equal(column, mark), False))
    return bool((found == has_value).all() and (flags(pc.is_null(column)) == ~has_value).all())


def _after(places: Int64s, data: Any, text: bytes) -> Int64s:
    """Select the places that stand after a text."""
    places = places[places >= len(text)]
    for distance, byte in enumerate(reversed(text), start=1):
        places = places[data[places - distance] == byte]
    return places


def _pieces(documents: pa.BinaryArray, offsets: Any, first: Any, last: Any) -> list[Any]:
    """Split each document before `first` and before `last`."""
    places = np.empty(3 * len(documents) + 1, np.int32)
    places[0:-1:3], places[1::3], places[2::3], places[-1] = offsets[:-1], first, last, offsets[-1]
    _, data = bytes_of(documents)
    pieces: Any = array_of(pa.binary(), len(places) - 1, [None, places, data])
    return [pieces.take(pa.array(np.arange(nth, len(places) - 1, 3))) for nth in range(3)]
