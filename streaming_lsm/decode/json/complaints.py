"""Read what Arrow's JSON parser complains of, and find the documents that a complaint tells of."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, flags, pc

_ROW = re.compile(r"in row (\d+)\Z")
# Arrow's words for a value that has not the form's type, and how a value of a type begins. Other words only cost time.
_CHANGED = re.compile(r"Column\(/(.*)\) changed from \w+ to (string|number|boolean|object|array) in row")
UNEXPECTED = "unexpected field"
_BEGINS = {"string": '"', "number": "[-0-9]", "boolean": "[tf]", "object": r"\{", "array": r"\["}
_VALUES = tuple(map(re.compile, (r"couldn't parse:(.*)\Z", r"The string '(.*)' is not a valid", r": (\S+) requires ")))
_NOT_WHOLE = "Failed to convert JSON to int"
# Characters of a value and names of fields that make a pattern: longer values are hardly part of another value.
_PATTERN = 100
# Part of the documents that may have a misfit of one kind, for all of them to be left out at once.
_RARE = 1 / 12
# Kinds of misfits that are searched.
_MOST_KINDS = 8


class Misfits:
    """Finds the documents that the parser complains of.

    Attributes:
        left: whether a document is not among them, bool (documents,).
    """

    def __init__(self, documents: pa.BinaryArray, not_whole: str | None) -> None:
        """Take the documents, and the pattern of those with a number that is no whole one, where one must be."""
        self.left = np.ones(len(documents), np.bool_)
        self._documents, self._not_whole = documents, not_whole
        self._kinds: dict[str, Flags] = {}

    def leave_out(self, places: Int64s, complaint: str, row: int | None, *, common: bool) -> bool:
        """Leave out the documents that a complaint tells of; returns whether there are any.

        That is the document of the row or value that it names, and those with the same kind of misfit: all of them if
        few documents seem to have it, and those of the part if `common`.

        Args:
            places: the positions of the documents that were parsed.
            complaint: the words of the parser.
            row: the row that it names.
            common: whether a kind is left out that many documents seem to have.
        """
        found = np.zeros(len(places), np.bool_)
        if row is not None:
            found[row] = True
        else:
            found |= _with_value(self._documents.take(places), complaint)
        held = self._held(complaint)
        if held is not None and (common or complaint.startswith(_NOT_WHOLE)):
            found |= held[places]
        if held is not None and held.mean() <= _RARE:
            self.left &= ~held
        self.left[places[found]] = False
        return bool(found.any())

    def _held(self, complaint: str) -> Flags | None:
        """Flag the documents that have the kind of misfit that a complaint tells of; None if it tells of none."""
        changed = _CHANGED.search(complaint)
        pattern = self._not_whole if complaint.startswith(_NOT_WHOLE) else None
        if changed:
            name = re.escape(changed[1].rpartition("/")[2])
            pattern = f'{name}"[ \\t\\r\\n]*:[ \\t\\r\\n]*{_BEGINS[changed[2]]}'
        if pattern is None or (len(self._kinds) == _MOST_KINDS and pattern not in self._kinds):
            return None
        if pattern not in self._kinds:
            self._kinds[pattern] = with_field(self._documents, pattern)
        return self._kinds[pattern]


def with_field(documents: pa.BinaryArray, pattern: str) -> Flags:
    """Flag documents with a field whose name, without the first quotation mark, and value match a pattern.

    A pattern that begins with a rare letter is found four times as fast as one that begins with a quotation mark. Of
    the documents that are found so, some have a longer name.
    """
    found = flags(pc.match_substring_regex(documents, pattern)).copy()
    places = np.flatnonzero(found)
    if len(places):
        found[places] = flags(pc.match_substring_regex(documents.take(places), f'"{pattern}'))
    return found


def row_of(complaint: str, count: int) -> int | None:
    """Return the row, of `count`, that the parser names; None if it names none."""
    named = _ROW.search(complaint)
    return int(named[1]) if named and int(named[1]) < count else None


def _with_value(documents: pa.BinaryArray, complaint: str) -> Flags:
    """Flag the documents that have the value that the parser names."""
    found = np.zeros(len(documents), np.bool_)
    value = next(filter(None, (words.search(complaint) for words in _VALUES)), None)
    if value is None or not value[1]:
        return found
    held = np.flatnonzero(flags(pc.match_substring(documents, value[1].encode())))
    if len(value[1]) <= _PATTERN:
        whole = rf'[:,\[][ \t\r\n]*"?{re.escape(value[1])}"?[ \t\r\n]*[,}}\]]'
        held = held[flags(pc.match_substring_regex(documents.take(held), whole))]
    found[held] = True
    return found


def not_whole(names: Iterable[str]) -> str | None:
    """Return the pattern, for `with_field`, of a number that is no whole one, or is too long; None of many names."""
    every = [re.escape(name) for name in names]
    if not 0 < len(every) <= _PATTERN:
        return None
    return f'(?:{"|".join(every)})"[ \\t\\r\\n]*:[ \\t\\r\\n]*-?(?:[0-9]+[.eE]|[0-9]{{20}})'


def tells_of_value(complaint: str) -> bool:
    """Tell whether the parser complains of a field or a value, and not of text that is no JSON."""
    return UNEXPECTED in complaint or any(each.search(complaint) for each in (_CHANGED, *_VALUES))


def field_of(complaint: str) -> str | None:
    """Return the parser's name of the field that it complains of, ``column/field/[]``; None if it names none."""
    changed = _CHANGED.search(complaint)
    return None if changed is None else changed[1]
