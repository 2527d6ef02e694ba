"""Make rows of a table from columns of values: leave out those that the exact reader decides, and clear deletes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, flags, pc
from streaming_lsm.decode.envelope import Envelope

Columns = Mapping[str, Any]
"""Arrow arrays by column."""


@dataclass(frozen=True)
class Rows:
    """Holds the rows of documents that are vouched for.

    Attributes:
        places: positions of the documents, int64, ascending.
        columns: values by column of the table.
        delete: whether each deletes its row, bool (rows,).
    """

    places: Int64s
    columns: Columns
    delete: Flags


class TableRows:
    """Makes rows of the table of an envelope.

    Attributes:
        kept: columns whose values a delete keeps.
        of_deletes: these and the ordering columns, which a delete keeps if it has all of them.
    """

    def __init__(self, envelope: Envelope) -> None:
        """Take the roles of the columns from the envelope."""
        self._envelope = envelope
        self.kept = frozenset({*envelope.record_key, *envelope.partition, "_hoodie_is_deleted"})
        self.of_deletes = self.kept | set(envelope.ordering)

    def rows(self, places: Int64s, columns: Columns, delete: Flags, good: Flags) -> Rows:
        """Select the rows that the table takes as they are; deletes get their key, partition and ordering values only.

        Args:
            places: positions of the messages, int64, ascending.
            columns: values in the types of the table; a column that is absent is null.
            delete: whether each row is deleted.
            good: whether all of its values are vouched for.
        """
        good = good & self._is_complete(columns, delete)
        if delete.any():
            columns = self._cleared(columns, delete)
        if good.all():
            return Rows(places, columns, delete)
        kept = pa.array(good)
        return Rows(places[good], {name: value.filter(kept) for name, value in columns.items()}, delete[good])

    def _is_complete(self, columns: Columns, delete: Flags) -> Flags:
        """Flag rows that have key, ordering and required values; deletes also need their partition."""
        envelope, none = self._envelope, np.zeros(len(delete), np.bool_)
        keyed = none
        for name in envelope.record_key:
            keyed = keyed | (has_key(columns[name]) if name in columns else none)
        complete = keyed
        for name in envelope.partition:
            if name not in envelope.record_key:
                complete = complete & (~delete | (flags(pc.is_valid(columns[name])) if name in columns else none))
        required = {*envelope.ordering, *(one.name for one in envelope.columns if not one.nullable)}
        for name in required:
            complete = complete & (delete | (flags(pc.is_valid(columns[name])) if name in columns else none))
        return complete

    def _cleared(self, columns: Columns, delete: Flags) -> Columns:
        """Clear the values of deletes that are no key, partition or ordering values."""
        ordered = np.ones(len(delete), np.bool_)
        for name in self._envelope.ordering:
            # A delete has all of its ordering values or none, as a partly null tuple is not ordered.
            ordered &= flags(pc.is_valid(columns[name])) if name in columns else False
        found = {}
        for name, value in columns.items():
            if name in self.kept:
                found[name] = value
                continue
            cleared = delete & ~ordered if name in self._envelope.ordering else delete
            found[name] = pc.if_else(pa.array(cleared), pa.scalar(None, value.type), value)
        return found


def has_key(values: Any) -> Flags:
    """Flag values that are neither null nor empty."""
    found = flags(pc.is_valid(values))
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        found = found & flags(pc.fill_null(pc.greater(pc.binary_length(values), 0), False))
    return found
