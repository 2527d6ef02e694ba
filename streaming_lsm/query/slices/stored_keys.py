"""Find record keys among those that the files of a slice store, of rows and deletes, without merging them.

An index finds a key that is deleted, too, so that a row with it meets its delete in the same file group.
"""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Int64s, pc, strings
from streaming_lsm.arrow.text_search import search_texts
from streaming_lsm.file_group.data_file import DataFile, open_base
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.key_filters import WantedKeys
from streaming_lsm.file_group.key_search import KeySearch
from streaming_lsm.file_group.slice_files import open_slice
from streaming_lsm.format.base_file_footer import bloom_of_footer
from streaming_lsm.query.slices.slice_reader import SliceReader
from streaming_lsm.schema import RECORD_KEY

_SEARCHED = 16
"""A batch of ascending keys is searched for fewer wanted keys than one in so many, else all are hashed."""
_LONGEST = 256
"""Bytes of the longest key up to which keys are searched."""


def find_stored_keys(
    reader: SliceReader, file_slice: FileSlice, keys: pa.StringArray, wanted: WantedKeys | None, *, by_blooms: bool
) -> Int64s:
    """Find record keys in a slice.

    Args:
        reader: of the table's slices; its columns do not matter.
        file_slice: the slice.
        keys: what is looked for, ascending, each once.
        wanted: the same, to leave out files and row groups by them; None to read all.
        by_blooms: whether a base file is not read if its bloom filter has none of the keys (docs/format/07, "Bloom
            filter").

    Returns:
        int64, places in `keys` of those that the slice has; a place may come several times.

    Raises:
        CorruptFileError, UnsupportedTable, StorageError: see `SliceReader.blocks`.
    """
    search, of_logs = _Search(keys), None if wanted is None else KeySearch(wanted)
    with ExitStack() as files:
        names = reader.file_names
        if file_slice.is_native:
            opened = open_slice(reader.storage, file_slice, reader.rule, files, file_names=names, search=of_logs)
        else:
            opened = [] if file_slice.base is None else [open_base(reader.storage, file_slice.base, files, names)]
        for file in opened:
            part = file if wanted is None else file.of_keys(wanted)
            if part is not None and (not by_blooms or _admits(part, keys)):
                for batch in part.record_keys():
                    search.look_in(batch, ascends=file.declared)
    if not file_slice.is_native:
        columns = dict.fromkeys([RECORD_KEY, *reader.rule.columns(reader.schema)])
        schema = pa.schema([reader.schema.field(name).with_nullable(True) for name in columns])
        for log in reader.log_blocks(schema).parts(file_slice.logs, file_slice.base_instant):
            search.look_in(strings(log.rows.column(RECORD_KEY)), ascends=False)
    return search.places


class _Search:
    """Collects which of some keys are met."""

    def __init__(self, keys: pa.StringArray) -> None:
        self._keys = keys
        self._found: list[Int64s] = []
        lengths = pc.binary_length(keys)
        self._is_short = int(pc.max(lengths).as_py() or 0) <= _LONGEST

    @property
    def places(self) -> Int64s:
        """Places of the keys that were met."""
        return np.concatenate([np.zeros(0, np.int64), *self._found])

    def look_in(self, stored: pa.StringArray, *, ascends: bool) -> None:
        """Look for the keys in a batch; `ascends` says that its keys do."""
        if not len(stored):
            return
        if not (ascends and self._is_short):
            self._found.append(_by_hash(stored, self._keys))
            return
        (first, last), (_, is_there) = search_texts(self._keys, pc.take(stored, pa.array([0, len(stored) - 1])))
        last += is_there
        inside = self._keys.slice(first, last - first)
        if _SEARCHED * len(inside) > len(stored):
            self._found.append(first + _by_hash(stored, inside))
        elif len(inside):
            self._found.append(first + np.flatnonzero(search_texts(stored, inside)[1]))


def _by_hash(stored: pa.StringArray, keys: pa.StringArray) -> Int64s:
    # The smaller side is hashed.
    if len(stored) < len(keys):
        return np.flatnonzero(np.asarray(pc.is_in(keys, value_set=stored)))
    places = pc.index_in(stored, value_set=keys).drop_null()
    return np.asarray(places, np.int64)


def _admits(file: DataFile, keys: pa.StringArray) -> bool:
    """Test whether a base file may have a key, by its bloom filter; any other file may."""
    if not file.is_base or file.opened is None:
        return True
    bloom = bloom_of_footer(file.opened.parquet.metadata.metadata, file.path)
    return bloom is None or bool(bloom.contains(keys).any())
