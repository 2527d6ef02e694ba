"""Define where the schemas of messages come from.

*Writer schema*: the Avro schema that a message was encoded with; the message has its id. *Reference*: a schema that
defines types which another schema names.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from streaming_lsm.errors import LsmError, RegistryError
from streaming_lsm.storage.local import open_storage

_KEPT = 1000


@dataclass(frozen=True)
class WriterSchema:
    """Holds a schema as it was published.

    Attributes:
        id: its id in messages.
        text: Avro JSON.
        references: Avro JSON of the schemas whose types it names; each names only types of those before it.
        source: the URL or file that it comes from, for messages.
    """

    id: int
    text: str
    references: tuple[str, ...]
    source: str


class SchemaSource(Protocol):
    """Finds schemas by id. An id has the same schema for ever, so that schemas are kept. Sources are hashable."""

    @property
    def name(self) -> str:
        """The URL or folder, without secrets."""
        ...

    def find(self, schema_id: int) -> WriterSchema | None:
        """Fetch a schema; None if there is none of that id.

        Raises:
            RegistryError: the source cannot be read.
            SchemaError: the schema is not Avro.
        """
        ...


@dataclass(frozen=True)
class SchemaFolder:
    """Reads schemas from files ``<id>.avsc``, each complete by itself, in a folder that every executor can read.

    Attributes:
        path: the folder or its ``file://`` URI.
    """

    path: str | os.PathLike[str]

    @property
    def name(self) -> str:
        """The folder."""
        return os.fspath(self.path)

    def find(self, schema_id: int) -> WriterSchema | None:
        """Read a schema; None if there is no file of that id.

        Raises:
            RegistryError: the file cannot be read.
        """
        storage, name = open_storage(self.name), f"{schema_id}.avsc"
        where = f"{storage.uri}/{name}"
        try:
            return WriterSchema(schema_id, storage.read(name).decode(), (), where)
        except FileNotFoundError:
            return None
        except (OSError, LsmError, UnicodeDecodeError) as error:
            raise RegistryError(f"{where}: the schema cannot be read ({error}): correct the file") from error


def schema_of(sources: Sequence[SchemaSource], schema_id: int) -> WriterSchema:
    """Fetch a schema from the first source that has it. Schemas are kept for the life of the process.

    Raises:
        RegistryError: no source has it, or a source before that cannot be read.
        SchemaError: the schema is not Avro.
    """
    return _schema_of(tuple(sources), schema_id)


@lru_cache(maxsize=_KEPT)
def _schema_of(sources: tuple[SchemaSource, ...], schema_id: int) -> WriterSchema:
    for source in sources:
        found = source.find(schema_id)
        if found is not None:
            return found
    raise RegistryError(
        f"schema {schema_id} is not known to {' or '.join(source.name for source in sources)}: register it again, or "
        f"put it as {schema_id}.avsc into the folder of lsm.kafka.schema.folder, then start the query again"
    )
