"""Compare a secondary index with the values that rows have.

See docs/format/07-index-and-metadata.md, "Secondary index".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import take
from streaming_lsm.arrow.columns import Flags, flags, pc
from streaming_lsm.format.metadata.secondary_index import entry_keys, entry_shards, group_file_id, split_keys
from streaming_lsm.metadata.file_slices import MetadataFileSlice
from streaming_lsm.metadata.index_definitions import read_definitions
from streaming_lsm.metadata.secondary_entries import indexed_column, newest_entries
from streaming_lsm.metadata.slice_records import numbered_groups
from streaming_lsm.services.indexes.findings import (
    DAMAGED,
    LEFT_OVER,
    MISSING,
    Checked,
    CheckedState,
    IndexFinding,
    shown,
)

_NAMED = 4
_WHAT = {
    MISSING: "values of rows are not in it",
    LEFT_OVER: "values are of rows that do not have them",
    DAMAGED: "values are in another file group than their hash says",
}


def check_secondary_index(name: str, state: CheckedState) -> Checked:
    """Compare the entries of an index with the record keys and values of all rows.

    Raises:
        CorruptFileError, UnsupportedTable, TableNotFound, OSError: the index cannot be read; or a data file.
    """
    column = indexed_column(name, read_definitions(state.storage, state.properties, checked=name))
    names = state.metadata.names(name)
    groups = numbered_groups(name, group_file_id(name), names)
    live = state.readers.values.live(state.storage, state, column)
    none: Any = pa.array([], pa.string())
    expected = pa.concat_arrays([none, *(entry_keys(rows.values, rows.keys) for rows in live)])
    shards = entry_shards(split_keys(expected, name)[0], len(groups))
    different: dict[str, list[Any]] = {kind: [none] for kind in _WHAT}
    count = 0
    for number, group in enumerate(groups):
        newest = MetadataFileSlice.newest(state.timeline, names, group)
        told = newest_entries(newest.parts(state.metadata, state.counts))
        real = expected.filter(pa.array(shards == number))
        different[MISSING].append(_chosen(real, ~flags(pc.is_in(real, value_set=told))))
        different[LEFT_OVER].append(_chosen(told, ~flags(pc.is_in(told, value_set=real))))
        different[DAMAGED].append(_chosen(told, entry_shards(split_keys(told, name)[0], len(groups)) != number))
        count += len(told)
    return Checked(count, tuple(_findings(name, different)))


def _chosen(keys: Any, wanted: Flags) -> Any:
    return take(keys, np.flatnonzero(wanted))


def _findings(name: str, different: dict[str, list[Any]]) -> list[IndexFinding]:
    found = []
    for kind, parts in different.items():
        keys: Any = pa.concat_arrays(parts)
        if len(keys):
            texts = take(keys, np.asarray(pc.sort_indices(keys)[:_NAMED])).to_pylist()
            first = [f"{key!r:.80}" for key in texts]
            found.append(IndexFinding(name, kind, f"{len(keys):,} {_WHAT[kind]}: {shown(first, len(keys))}", len(keys)))
    return found
