"""Resolve the named types of an Avro schema: replace each reference by the definition of its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streaming_lsm.bounded_json import SMALL, parse_json
from streaming_lsm.errors import SchemaError

_NAMED = ("record", "enum", "fixed")
REMEDY = "correct the file <id>.avsc, or register the schema again"
"""Advises, at the end of an error, how to mend a malformed schema of messages."""
_MAX_AVRO_DEPTH = 32
_MIN_AVRO_TYPES = 10_000
"""Types that a resolved schema may have in any case; a longer schema may have as many as it has characters."""


def resolved_avro(text: str, source: str) -> list[dict[str, Any]]:
    """Return the fields of an Avro record, with each reference to a named type replaced by its definition.

    Raises:
        SchemaError: not an Avro record, longer than `SMALL`, a name used before or inside its definition, or too many
            nested types.
    """
    if len(text) > SMALL:
        raise SchemaError(
            f"{source}: a schema of {len(text)} characters, {SMALL} at most are read: give the table fewer columns, or "
            "shorter names"
        )
    try:
        record = parse_json(text)
        namespace = record.get("namespace", str(record.get("name", "")).rpartition(".")[0])
        return _Definitions(max(_MIN_AVRO_TYPES, len(text))).fields(record, str(namespace), source, 0)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SchemaError(f"{source}: not an Avro record schema ({error}): {text[:80]!r}") from error


def resolved_type(text: str, references: Sequence[str], source: str) -> Any:
    """Return an Avro type of any kind, with each reference to a named type replaced by its definition.

    Args:
        text: Avro JSON of the type.
        references: Avro JSON of types that it names; each names only types of those before it.
        source: where it comes from, for messages.

    Raises:
        SchemaError: not Avro, longer than `SMALL`, or too many nested types.
    """
    texts = [*references, text]
    size = sum(map(len, texts))
    if size > SMALL:
        raise SchemaError(f"{source}: a schema of {size} characters, {SMALL} at most are read: give it fewer fields")
    try:
        # The fields of a record may name the types that the fields before them define.
        fields = [{"name": "schema", "type": parse_json(one)} for one in texts]
        return _Definitions(max(_MIN_AVRO_TYPES, size)).fields({"fields": fields}, "", source, 0)[-1]["type"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SchemaError(f"{source}: not an Avro schema ({error}): {text[:80]!r}; {REMEDY}") from error


class _Definitions:
    """Named types that have been defined so far, in the order of the schema text.

    The number of types is limited, because references to references can grow exponentially. A schema without
    references never exceeds the limit: each type takes at least one character.
    """

    def __init__(self, most_types: int) -> None:
        self._known: dict[str, tuple[dict[str, Any], str]] = {}
        self._types = 0
        self._most_types = most_types

    def fields(self, record: Mapping[str, Any], namespace: str, source: str, depth: int) -> list[dict[str, Any]]:
        named = [(field, f"{source}: column {field['name']!r}") for field in record["fields"]]
        return [{**field, "type": self._walk(field["type"], namespace, where, depth)} for field, where in named]

    def _walk(self, avro: Any, namespace: str, where: str, depth: int) -> Any:
        self._types += 1
        if depth > _MAX_AVRO_DEPTH:
            raise SchemaError(f"{where}: types are nested more than {_MAX_AVRO_DEPTH} levels deep")
        if self._types > self._most_types:
            raise SchemaError(f"{where}: references to named types expand to too many types")
        if isinstance(avro, list):
            return [self._walk(branch, namespace, where, depth + 1) for branch in avro]
        if isinstance(avro, str):
            definition = self._named(avro, namespace)
            return avro if definition is None else self._walk(*definition, where, depth + 1)
        kind = avro["type"]
        if isinstance(kind, dict | list) or self._named(kind, namespace) is not None:
            return self._walk(kind, namespace, where, depth + 1)
        if kind in ("array", "map"):
            child = "items" if kind == "array" else "values"
            return {**avro, child: self._walk(avro[child], namespace, where, depth + 1)}
        return self._define(avro, namespace, where, depth) if kind in _NAMED else avro

    def _named(self, name: str, namespace: str) -> tuple[dict[str, Any], str] | None:
        return self._known.get(f"{namespace}.{name}") or self._known.get(name)

    def _define(self, avro: dict[str, Any], namespace: str, where: str, depth: int) -> dict[str, Any]:
        namespace = str(avro.get("namespace", namespace))
        name = str(avro["name"])
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        written = avro
        if avro["type"] == "record":
            written = {**avro, "fields": self.fields(avro, full.rpartition(".")[0], where, depth + 1)}
        self._known[full] = (avro, namespace)  # after the walk: recursive types are not supported
        return written
