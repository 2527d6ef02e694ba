"""Read the record keys that the files of a slice store, of rows and deletes, without merging them.

An index finds a key that is deleted, too, so that a row with it meets its delete in the same file group.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from streaming_lsm.file_group.data_file import DataFile, open_base
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.key_index import WantedKeys
from streaming_lsm.file_group.slice_files import open_slice
from streaming_lsm.format.base_file_footer import bloom_of_footer
from streaming_lsm.query.slices.log_parts import LogBlocks
from streaming_lsm.query.slices.slice_reader import SliceReader
from streaming_lsm.schema import RECORD_KEY

_KEYS = pa.schema([(RECORD_KEY, pa.string())])


def stored_keys(
    reader: SliceReader, file_slice: FileSlice, wanted: WantedKeys | None, *, by_blooms: bool = False
) -> Iterator[pa.Array[Any]]:
    """Read the record keys of a slice, in any order; a key may come several times.

    Args:
        reader: of the table's slices; its columns do not matter.
        file_slice: the slice.
        wanted: the keys that are looked for; others may be left out. None for all.
        by_blooms: whether a base file is not read if its bloom filter has none of the keys (docs/format/07, "Bloom
            filter").

    Raises:
        CorruptFileError, UnsupportedTable, StorageError: see `SliceReader.blocks`.
    """
    with ExitStack() as files:
        if file_slice.is_native:
            names = reader.file_names
            opened = open_slice(reader.storage, file_slice, reader.rule, files, file_names=names)
            yield from _of_files(opened, wanted, by_blooms=by_blooms)
            return
        if file_slice.base is not None:
            base = open_base(reader.storage, file_slice.base, files, reader.file_names)
            yield from _of_files([base], wanted, by_blooms=by_blooms)
        for part in _log_blocks(reader).parts(file_slice.logs, file_slice.base_instant):
            yield from part.rows.column(RECORD_KEY).chunks


def _of_files(opened: list[DataFile], wanted: WantedKeys | None, *, by_blooms: bool) -> Iterator[pa.Array[Any]]:
    for file in opened:
        part = file if wanted is None else file.of_keys(wanted)
        if part is None or (wanted is not None and by_blooms and not _admits(part, wanted)):
            continue
        yield from (batch.column(0) for batch in part.batches(_KEYS))


def _admits(file: DataFile, wanted: WantedKeys) -> bool:
    """Test whether a base file may have a key, by its bloom filter; any other file may."""
    if not file.is_base or file.opened is None:
        return True
    bloom = bloom_of_footer(file.opened.parquet.metadata.metadata, file.path)
    return bloom is None or bool(bloom.contains(wanted.keys).any())


def _log_blocks(reader: SliceReader) -> LogBlocks:
    names = dict.fromkeys([RECORD_KEY, *reader.rule.columns(reader.schema)])
    schema = pa.schema([reader.schema.field(name).with_nullable(True) for name in names])
    return LogBlocks(
        storage=reader.storage,
        schema=schema,
        rule=reader.rule,
        visible=reader.visible,
        skip_corrupt=reader.skip_corrupt,
        file_names=reader.file_names,
    )
