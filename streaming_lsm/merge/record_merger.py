"""Find the record mergers of other packages, by merge strategy id.

A package offers one by an entry point of the group `GROUP`, whose name is the strategy id and whose object is a
`RecordMerger`, or a class without arguments that makes one. Executors find it by the same id, so that it is installed
there, too. See docs/format/05-merge.md, "Modes".
"""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

import pyarrow as pa

from streaming_lsm.errors import MergerError, UnsupportedTable

GROUP = "streaming_lsm.record_mergers"


class RecordMerger(Protocol):
    """Merges rows of the same record key, many pairs at a time."""

    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        """Merge each row of `older` with the row of `newer` in the same place.

        Rows of a key are merged from the oldest to the newest one, `older` being the outcome so far. A delete is not
        merged: it removes what is older, and the row after it stands alone.

        Args:
            older, newer: as many rows, with the table's columns, without meta columns; all columns are nullable.

        Returns:
            As many rows with the same columns.
        """
        ...


def find_merger(strategy: str, source: str) -> RecordMerger:
    """Load the merger of a strategy id; it is kept for later calls.

    Args:
        strategy: the id, a UUID in lower case.
        source: what needs it, for messages.

    Raises:
        UnsupportedTable: no installed package offers it, several do, or it cannot be loaded.
    """
    try:
        return _load(strategy)
    except LookupError as error:
        raise UnsupportedTable(
            f"{source}: hoodie.record.merge.strategy.id={strategy:.80}: a custom merger, and {error}; install one that "
            f"does, by an entry point of the group {GROUP} (docs/writing.md)"
        ) from None


@lru_cache(maxsize=64)
def _load(strategy: str) -> RecordMerger:
    found = [point for point in entry_points(group=GROUP) if point.name.lower() == strategy]
    if not found:
        raise LookupError("no installed package offers it")
    if len({point.value for point in found}) > 1:
        raise LookupError(f"several packages offer it ({', '.join(sorted(point.value for point in found))})")
    return _made(found[0])


def _made(point: EntryPoint) -> RecordMerger:
    try:
        loaded = point.load()
        made: RecordMerger = loaded() if isinstance(loaded, type) else loaded
    except Exception as error:
        raise LookupError(f"{point.value} cannot be loaded ({type(error).__name__}: {error})") from error
    if not callable(getattr(made, "merge", None)):
        raise LookupError(f"{point.value} has no method merge")
    return made


def merged_rows(merger: RecordMerger, older: pa.Table, newer: pa.Table) -> pa.Table:
    """Merge pairs of rows, and check the result.

    Raises:
        MergerError: the merger fails, or returns another number of rows or other columns.
    """
    name = f"the record merger {type(merger).__module__}.{type(merger).__qualname__}"
    try:
        found = merger.merge(older, newer)
    except Exception as error:
        raise MergerError(f"{name} failed ({type(error).__name__}: {error})") from error
    if not isinstance(found, pa.Table) or len(found) != len(newer):
        shown = f"{len(found)} rows" if isinstance(found, pa.Table) else type(found).__name__
        raise MergerError(f"{name} returned {shown} for {len(newer)} pairs of rows: return one row for each")
    if found.schema.names != newer.schema.names:
        raise MergerError(f"{name} returned the columns {', '.join(found.schema.names)}: return those of its arguments")
    try:
        return found.cast(newer.schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise MergerError(f"{name} returned other types than those of its arguments: {error}") from None
