"""Recognise Debezium's placeholder for a large value that an update did not change.

The placeholder (``unavailable.value.placeholder``) is a text. Debezium's Postgres connector sends in its place the
bytes of the text for ``bytea``; for an array of texts, bytes or UUIDs an array of the text, its bytes, or the UUID that
Java makes of them; for an array of numbers or dates one number for each byte; and for ``hstore`` a map from the text to
the text, or that as JSON. *Form*: one of these, as a value of a column.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import offsets_of
from streaming_lsm.arrow.columns import Flags, flags, pc
from streaming_lsm.decode.json.document import Members, Number, text_of
from streaming_lsm.errors import ConfigError

PLACEHOLDER = "__debezium_unavailable_value"
"""Default of Debezium's ``unavailable.value.placeholder``."""
_HEX = "hex:"
_UUID_VERSION = 3


@dataclass(frozen=True)
class Unavailable:
    """Recognises the forms of a placeholder.

    Attributes:
        text: the text.
        texts: its forms in a column that is read as text.
        nested: its forms in ARRAY and MAP columns, maps as lists of pairs.
        octets: the bytes of the text.
    """

    text: str
    texts: frozenset[str]
    nested: tuple[list[Any], ...]
    octets: bytes

    def is_form(self, value: Any, filled: pa.DataType | None = None) -> bool:
        """Test whether a text, or a value of a nested column, is a form; see `suspects` for `filled`."""
        if isinstance(value, str):
            return value in self.texts and value not in self._filled(filled)
        return isinstance(value, list) and value in self.nested

    def _filled(self, kind: pa.DataType | None) -> frozenset[str]:
        """Return the forms, read as text, that a table fills in a column of a type."""
        if kind is None or not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            return frozenset()
        return frozenset([self.text if pa.types.is_string(kind) else base64.b64encode(self.octets).decode()])

    def suspects(self, values: Any, filled: pa.DataType | None = None) -> Flags | None:
        """Flag values that may be forms: all that are, and others that begin in the same way.

        Args:
            values: a column of any type.
            filled: the type of the column that these become, if the table fills values that were not sent: then the
                text in a text column, and its bytes in a binary one, are left as they are.

        Returns:
            bool (rows,); None if values of that type are no forms.
        """
        kind = values.type
        if pa.types.is_string(kind):
            return flags(pc.is_in(values, pa.array(self.texts - self._filled(filled))))
        if pa.types.is_binary(kind):
            return (
                None
                if filled is not None and pa.types.is_binary(filled)
                else flags(pc.fill_null(pc.equal(values, self.octets), False))
            )
        if pa.types.is_map(kind):
            return self._begin(values, values.keys)
        return self._begin(values, values.values) if pa.types.is_list(kind) else None

    def _begin(self, values: Any, inside: Any) -> Flags:
        """Flag lists with the length and the first element of a form; `inside` are the elements of all lists."""
        offsets, found = offsets_of(values), np.zeros(len(values), np.bool_)
        lengths = np.diff(offsets)
        for size in {len(form) for form in self.nested}:
            rows = np.flatnonzero(lengths == size)
            firsts = _elements([form[0] for form in self.nested if len(form) == size], inside.type)
            if len(rows) and len(firsts):
                found[rows] = flags(pc.is_in(inside.take(pa.array(offsets[rows])), firsts))
        return found


def _elements(values: list[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Return those of the values that are of a type, as an array of it."""
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    wanted = str if pa.types.is_string(kind) else bytes if pa.types.is_binary(kind) else int if is_number else ()
    return pa.array([value for value in values if isinstance(value, wanted)], kind)


@lru_cache(maxsize=8)
def unavailable(placeholder: str) -> Unavailable:
    """Make the forms of a placeholder.

    Args:
        placeholder: the connector's setting: a text, or ``hex:`` and the hexadecimal digits of its bytes.

    Raises:
        ConfigError: it is empty, or the digits are not hexadecimal.
    """
    octets = _octets(placeholder)
    if not octets:
        raise ConfigError(
            f"lsm.kafka.debezium.unavailable.value={placeholder!r}: write the text of the connector's "
            "unavailable.value.placeholder, or 'hex:' and the hexadecimal digits of its bytes"
        )
    text, encoded = octets.decode(errors="replace"), base64.b64encode(octets).decode()
    # As Java's UUID.nameUUIDFromBytes does, and with Java's signed bytes.
    name = str(UUID(bytes=hashlib.md5(octets, usedforsecurity=False).digest(), version=_UUID_VERSION))
    numbers = np.frombuffer(octets, np.int8).tolist()
    single = [[text], [encoded], [name]]
    tokens = [*single, Members([(text, text)]), *([Number(one) for one in every] for every in _printed(numbers))]
    texts = frozenset([text, encoded, *(str(text_of(token)) for token in tokens)])
    return Unavailable(text, texts, (*single, [octets], numbers, *_printed(numbers), [(text, text)]), octets)


def _printed(numbers: list[int]) -> tuple[list[str], list[str]]:
    return [str(number) for number in numbers], [str(float(number)) for number in numbers]


def _octets(placeholder: str) -> bytes:
    if not placeholder.startswith(_HEX):
        return placeholder.encode()
    try:
        return bytes.fromhex(placeholder.removeprefix(_HEX))
    except ValueError:
        return b""
