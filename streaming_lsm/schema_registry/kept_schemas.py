"""Find schemas by id, and keep them for the life of the process, within a limit of memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence

from streaming_lsm.errors import RegistryError
from streaming_lsm.schema_registry.sources import SchemaSource, WriterSchema

MOST_CHARACTERS = 64 << 20
"""Limit for the texts of all schemas."""


class KeptSchemas:
    """Keeps the schemas that were asked for last; may be used by several threads."""

    def __init__(self, most_characters: int = MOST_CHARACTERS) -> None:
        """Set the limit for the texts of all schemas, their references included; the last one is kept in any case."""
        self._most, self._size = most_characters, 0
        self._found: OrderedDict[Hashable, WriterSchema] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, find: Callable[[], WriterSchema]) -> WriterSchema:
        """Return the schema that is kept under a key, or find it and keep it."""
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
        schema = find()
        with self._lock:
            if key not in self._found:
                self._found[key] = schema
                self._size += schema.characters
            while self._size > self._most and len(self._found) > 1:
                self._size -= self._found.popitem(last=False)[1].characters
        return schema


_KEPT = KeptSchemas()


def schema_of(sources: Sequence[SchemaSource], schema_id: int) -> WriterSchema:
    """Fetch a schema from the first source that has it, unless it is kept.

    Raises:
        RegistryError: no source has it, or a source before that cannot be read.
        SchemaError: the schema is not Avro.
    """
    return _KEPT.get((tuple(sources), schema_id), lambda: _found(sources, schema_id))


def _found(sources: Sequence[SchemaSource], schema_id: int) -> WriterSchema:
    for source in sources:
        found = source.find(schema_id)
        if found is not None:
            return found
    raise RegistryError(
        f"schema {schema_id} is not known to {' or '.join(source.name for source in sources)}: register it again, or "
        f"put it as {schema_id}.avsc into the folder of lsm.kafka.schema.folder, then start the query again"
    )
