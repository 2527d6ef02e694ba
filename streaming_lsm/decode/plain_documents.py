"""Read documents many at a time, and large ones alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import bytes_of
from streaming_lsm.decode.document_rows import DocumentRows
from streaming_lsm.decode.envelope import Envelope
from streaming_lsm.decode.exact_documents import MOST_COMMAS
from streaming_lsm.decode.table_rows import Rows
from streaming_lsm.decode.unknown_fields import UnknownFields


class PlainDocuments:
    """Reads the documents of an envelope's format that are plain.

    The exact reader refuses a document of many commas, so that such a one must be plain to be read. Whether it is does
    not depend on the documents before and beside it, as it is read alone.
    """

    def __init__(self, envelope: Envelope, zone: str, unknown: UnknownFields) -> None:
        """Take the arguments of `DocumentRows`."""
        self._envelope, self._zone, self._unknown = envelope, zone, unknown
        self._together = self._alone()

    def _alone(self) -> DocumentRows:
        return DocumentRows(self._envelope, self._zone, unknown=self._unknown)

    def read(self, documents: pa.BinaryArray) -> Iterator[Rows]:
        """Read the documents; yields rows with the positions of their documents.

        Args:
            documents: values of messages, without nulls.
        """
        offsets, _ = bytes_of(documents)
        large = np.diff(offsets) > MOST_COMMAS
        if not large.any():
            yield from self._together.read(documents)
            return
        others = np.flatnonzero(~large)
        if len(others):
            for rows in self._together.read(documents.take(others)):
                yield Rows(others[rows.places], rows.columns, rows.delete)
        for place in np.flatnonzero(large).tolist():
            for rows in self._alone().read(documents.slice(place, 1)):
                yield Rows(rows.places + place, rows.columns, rows.delete)
