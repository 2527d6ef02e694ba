"""Decode one Avro datum by the specification, and by nothing of the package: the oracle of changed messages.

*Strict*: every value is checked; otherwise only what is needed to find the next value.
"""

from __future__ import annotations

import struct
from typing import Any

_LONGEST = 10
_INT_BYTES = 5
_MOST_DECIMAL, _MOST_SCALE = 16, 40


class Malformed(ValueError):
    """Reports bytes that do not follow the schema."""


class Ambiguous(ValueError):
    """Reports what readers may take one way or another: a block of items with a size, a decimal without digits."""


class Datum:
    """Reads the values of a datum, one after the other.

    Attributes:
        at: position of the next byte.
    """

    def __init__(self, data: bytes, avro: Any, *, changed: bool = False) -> None:
        """Begin at the first byte.

        Args:
            data: the datum.
            avro: the schema whose named types may be named again, by their full names.
            changed: whether bytes were changed, so that doubtful values are reported.
        """
        self._data, self.at, self._changed = data, 0, changed
        self._names: dict[str, Any] = {}
        self._note_names(avro)

    def _note_names(self, avro: Any) -> None:
        if isinstance(avro, dict):
            if "name" in avro and "namespace" in avro:
                self._names[f"{avro['namespace']}.{avro['name']}"] = avro
            for value in avro.values():
                self._note_names(value)
        elif isinstance(avro, list):
            for value in avro:
                self._note_names(value)

    def end(self) -> None:
        """Check that nothing follows."""
        if self.at != len(self._data):
            raise Malformed("bytes behind")

    def value(self, avro: Any, *, strict: bool) -> Any:
        """Read a value."""
        if isinstance(avro, list):
            branch = self._bytes(1)[0]
            if branch & 1 or branch >= 2 * len(avro):
                raise Malformed("branch")
            return self.value(avro[branch // 2], strict=strict)
        if isinstance(avro, str):
            avro = self._names.get(avro, {"type": avro})
        kind = avro["type"]
        if isinstance(kind, (dict, list)):
            return self.value(kind, strict=strict)
        if kind in ("array", "map"):
            return self._items(avro, strict=strict)
        if kind == "record":
            found = {field["name"]: self.value(field["type"], strict=strict) for field in avro["fields"]}
            if self._changed and avro["name"] == "VariableScaleDecimal" and abs(found["scale"]) > _MOST_SCALE:
                raise Ambiguous
            return found
        if kind == "fixed":
            return self._bytes(avro["size"])
        return self._scalar(kind, avro, strict=strict)

    def _scalar(self, kind: str, avro: Any, *, strict: bool) -> Any:
        if kind == "null":
            return None
        if kind == "boolean":
            byte = self._bytes(1)[0]
            if strict and byte > 1:
                raise Malformed("boolean")
            return byte == 1
        if kind in ("float", "double"):
            return struct.unpack("<f" if kind == "float" else "<d", self._bytes(4 if kind == "float" else 8))[0]
        if kind in ("bytes", "string"):
            raw = self._bytes(self._long())
            if self._changed and "logicalType" in avro and not 0 < len(raw) < _MOST_DECIMAL:
                raise Ambiguous
            return raw if kind == "bytes" else self._text(raw, strict=strict)
        begin, number = self.at, self._long()
        if strict and kind in ("int", "enum") and (self.at - begin > _INT_BYTES or not -(2**31) <= number < 2**31):
            raise Malformed("int")
        if kind != "enum":
            return number
        if strict and not 0 <= number < len(avro["symbols"]):
            raise Malformed("symbol")
        return avro["symbols"][number] if strict else None

    @staticmethod
    def _text(raw: bytes, *, strict: bool) -> str | None:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            if strict:
                raise Malformed("UTF-8") from None
            return None

    def _items(self, avro: Any, *, strict: bool) -> Any:
        pairs: list[tuple[str, Any]] = []
        while count := self._long():
            if count < 0:
                raise Ambiguous
            if count > len(self._data) - self.at:
                raise Malformed("items")
            for _ in range(count):
                key = self.value("string", strict=strict) if avro["type"] == "map" else ""
                pairs.append((key, self.value(avro.get("items", avro.get("values")), strict=strict)))
        return dict(pairs) if avro["type"] == "map" else [value for _, value in pairs]

    def _bytes(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self.at:
            raise Malformed("end")
        self.at += size
        return self._data[self.at - size : self.at]

    def _long(self) -> int:
        value = 0
        for place in range(_LONGEST):
            byte = self._bytes(1)[0]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                if value >> 64:
                    raise Malformed("64 bits")
                return (value >> 1) ^ -(value & 1)
        raise Malformed("64 bits")
