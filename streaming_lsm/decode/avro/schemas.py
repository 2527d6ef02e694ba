"""Look up the schemas of messages, and group the messages by schema.

*Plan*: what a reader prepares once for the messages of a schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from streaming_lsm.arrow.columns import Int64s
from streaming_lsm.decode.avro.frames import Datums, Frames
from streaming_lsm.decode.avro.written_types import WrittenType, written_type
from streaming_lsm.decode.schema_fault import SchemaFault
from streaming_lsm.errors import LsmError
from streaming_lsm.schema_registry.kept_schemas import schema_of
from streaming_lsm.schema_registry.sources import SchemaSource

T = TypeVar("T")


@dataclass(frozen=True)
class Group(Generic[T]):
    """Holds the messages of one schema.

    Attributes:
        plan: what was made of the schema.
        where: the schema, for messages.
        places: positions of the messages, int64, ascending.
        datums: their datums.
    """

    plan: T
    where: str
    places: Int64s
    datums: Datums


class Groups(Generic[T]):
    """Groups messages by schema, and makes a plan of each schema once."""

    def __init__(self, sources: Sequence[SchemaSource], make: Callable[[WrittenType, str], T]) -> None:
        """Take the sources of schemas, and the function that makes a plan of a schema and its name for messages."""
        self._sources, self._make = sources, make
        self._plans: dict[int, T] = {}

    def of(self, frames: Frames) -> Iterator[Group[T]]:
        """Yield the messages that have a frame, by schema.

        Raises:
            SchemaFault: a schema cannot be had or does not fit the table.
        """
        for schema_id, places, datums in frames.by_schema():
            if schema_id not in self._plans:
                try:
                    self._plans[schema_id] = self._planned(schema_id)
                except LsmError as error:
                    raise SchemaFault(int(places[0]), error) from error
            yield Group(self._plans[schema_id], f"schema {schema_id}", places, datums)

    def _planned(self, schema_id: int) -> T:
        schema = schema_of(self._sources, schema_id)
        return self._make(written_type(schema), f"schema {schema_id} ({schema.source})")
