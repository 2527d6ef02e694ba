"""Find the schemas of messages that change the columns of the table.

*Changing schema*: one that has fields, or wider types, that the table is to have before its messages are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from streaming_lsm.decode.avro.frames import Frames
from streaming_lsm.decode.avro.schema_columns import followed
from streaming_lsm.decode.avro.written_types import written_type
from streaming_lsm.decode.envelope import Envelope
from streaming_lsm.decode.schema_fault import SchemaFault
from streaming_lsm.errors import LsmError
from streaming_lsm.schema_evolution import SchemaRules
from streaming_lsm.schema_registry.kept_schemas import schema_of


class FollowedSchemas:
    """Compares the schemas of one task's messages with the columns of the table.

    Attributes:
        changing: ids of the changing schemas that were met.
    """

    def __init__(self, envelope: Envelope, rules: SchemaRules) -> None:
        """Take the columns of an envelope, and the rules by which they may change."""
        self._envelope, self._rules = envelope, rules
        self._met: set[int] = set()
        self.changing: set[int] = set()

    def meet(self, messages: pa.BinaryArray) -> None:
        """Compare the schemas of messages, none of which is null.

        Raises:
            SchemaFault: a schema cannot be had, or the rules refuse its columns.
        """
        frames = Frames.of(messages)
        for schema_id, place in _first_places(frames):
            if schema_id in self._met:
                continue
            try:
                after = columns_after(self._envelope, self._rules, (schema_id,))
            except LsmError as error:
                raise SchemaFault(place, error) from error
            self._met.add(schema_id)
            if after is not self._envelope.columns and after != self._envelope.columns:
                self.changing.add(schema_id)


def _first_places(frames: Frames) -> Iterator[tuple[int, int]]:
    """Yield each schema id, and the first message that has it."""
    places = np.flatnonzero(frames.framed)
    ids = frames.ids[places]
    # Most batches have one schema, which is told without sorting.
    if not len(ids) or (ids == ids[0]).all():
        yield from zip(ids[:1].tolist(), places[:1].tolist(), strict=True)
        return
    every, first = np.unique(ids, return_index=True)
    yield from zip(every.tolist(), places[first].tolist(), strict=True)


def columns_after(envelope: Envelope, rules: SchemaRules, ids: Iterable[int]) -> pa.Schema:
    """Return the columns of the table after messages of some schemas, which are followed in the order of their ids.

    Raises:
        RegistryError: a schema cannot be had.
        SchemaError: the rules refuse the columns of a schema.
    """
    columns = envelope.columns
    for schema_id in sorted(ids):
        schema = schema_of(envelope.schemas, schema_id)
        where = f"schema {schema_id} ({schema.source})"
        columns = followed(columns, rules, written_type(schema), where, is_debezium=envelope.format.is_debezium)
    return columns
