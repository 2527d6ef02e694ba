"""Read the keys of many messages without a value at a time, where all of it is plain.

Three forms are read: a JSON object of the columns, the same in the ``payload`` of Kafka Connect's schema wrapper
(Debezium), and, for a table with one record key column, the plain text of that column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import flags, is_utf8, pc
from streaming_lsm.decode.document_rows import DocumentRows
from streaming_lsm.decode.envelope import Envelope, EventFormat
from streaming_lsm.decode.table_rows import Rows, has_key
from streaming_lsm.decode.values.typed_columns import typed
from streaming_lsm.decode.values.unavailable import unavailable

_MARKS = r'^[ {"]'
"""How a text begins that may be JSON."""


class MessageKeys:
    """Reads the record key and partition columns from message keys."""

    def __init__(self, envelope: Envelope, zone: str = "UTC") -> None:
        """Prepare for the keys of `envelope`'s messages; `zone` is that of timestamps that name none."""
        in_key = {*envelope.record_key, *envelope.partition}
        columns = pa.schema([one.with_nullable(True) for one in envelope.columns if one.name in in_key])
        form = replace(
            envelope, columns=columns, partition=(), ordering=(), format=EventFormat.JSON, follows_schemas=False
        )
        self._objects = DocumentRows(form, zone, semantics=False)
        self._plain = columns.field(0) if len(columns) == 1 else None
        self._zone = zone
        self._unavailable = unavailable(envelope.unavailable) if envelope.format.is_debezium else None

    def read(self, keys: pa.BinaryArray) -> Iterator[Rows]:
        """Read keys; yields the rows that have a record key, their partition columns may be null.

        Args:
            keys: keys of messages without a value; null where a message has none.
        """
        places = np.flatnonzero(flags(pc.is_valid(keys)))
        if not len(places):
            return
        known = keys if len(places) == len(keys) else keys.take(places)
        marked = flags(pc.match_substring_regex(known, _MARKS))
        if marked.any():
            objects = known.filter(pa.array(marked))
            for rows in self._objects.read(objects):
                found = places[marked][rows.places]
                yield self._sent(Rows(found, rows.columns, np.ones(len(found), np.bool_)))
        if self._plain is not None and not marked.all():
            yield self._sent(self._texts(known.filter(pa.array(~marked)), places[~marked]))

    def _sent(self, rows: Rows) -> Rows:
        """Leave out rows with Debezium's placeholder for a value that was not sent."""
        good = np.ones(len(rows.places), np.bool_)
        for column in rows.columns.values():
            suspects = None if self._unavailable is None else self._unavailable.suspects(column)
            if suspects is not None:
                good &= ~suspects
        if good.all():
            return rows
        columns = {name: column.filter(pa.array(good)) for name, column in rows.columns.items()}
        return Rows(rows.places[good], columns, rows.delete[good])

    def _texts(self, texts: pa.BinaryArray, places: np.ndarray) -> Rows:
        column = self._plain
        assert column is not None
        good = is_utf8(texts)
        values, found = typed(pc.cast(texts.filter(pa.array(good)), pa.string()), column.type, None, self._zone)
        found = found & has_key(values)
        rows = np.flatnonzero(good)[found]
        return Rows(places[rows], {column.name: values.filter(pa.array(found))}, np.ones(len(rows), np.bool_))
