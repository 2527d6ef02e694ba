"""Define where the schemas of messages come from.

*Writer schema*: the Avro schema that a message was encoded with; the message has its id. *Reference*: a schema that
defines types which another schema names.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

from streaming_lsm.errors import ConfigError, LsmError, RegistryError
from streaming_lsm.storage.uris import open_storage


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

    @property
    def characters(self) -> int:
        """Length of the texts."""
        return len(self.text) + sum(map(len, self.references))


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

    def check(self) -> None:
        """Check that the folder is there.

        Raises:
            ConfigError: it is not.
        """
        storage = open_storage(self.name)
        try:
            there = storage.exists("")
            storage.names("")
        except (OSError, LsmError) as error:
            raise ConfigError(f"lsm.kafka.schema.folder: {self.name!r} cannot be read as a folder ({error})") from None
        if not there:
            raise ConfigError(_no_folder(self.name))

    def find(self, schema_id: int) -> WriterSchema | None:
        """Read a schema; None if there is no file of that id.

        Raises:
            RegistryError: the file cannot be read, or there is no folder.
        """
        return self._read(f"{schema_id}.avsc", schema_id)

    def newest(self, subject: str) -> WriterSchema | None:
        """Read the file ``<subject>.avsc``, which gives a new table its columns; None if there is none.

        Raises:
            RegistryError: the file cannot be read, or there is no folder.
        """
        return self._read(f"{subject}.avsc", 0)

    def _read(self, name: str, schema_id: int) -> WriterSchema | None:
        storage = open_storage(self.name)
        where = f"{storage.uri}/{name}"
        try:
            text = storage.read(name).decode()
        except FileNotFoundError:
            if not storage.exists(""):
                raise RegistryError(_no_folder(self.name)) from None
            return None
        except (OSError, LsmError, UnicodeDecodeError) as error:
            raise RegistryError(f"{where}: the schema cannot be read ({error}): correct the file") from error
        if not text.strip():
            raise RegistryError(f"{where}: the file is empty: write the schema into it, as Avro JSON")
        return WriterSchema(schema_id, text, (), where)


def _no_folder(name: str) -> str:
    return (
        f"lsm.kafka.schema.folder: there is no folder {name!r}: correct the path, or make the folder, with a file "
        "<id>.avsc for each schema, where driver and executors can read it"
    )
