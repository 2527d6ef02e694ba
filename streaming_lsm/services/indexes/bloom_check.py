"""Compare the partition ``bloom_filters`` with the footers of base files.

See docs/format/07-index-and-metadata.md, "Bloom filters of the metadata table". Filters are large: those of a few files
are read at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streaming_lsm.arrow.columns import pc, without
from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.bloom import BloomFilter
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.metadata.bloom_filters import FILE_ID, PARTITION, filter_key
from streaming_lsm.format.table.file_names import BaseFileName, parse_file_name
from streaming_lsm.metadata.file_blooms import newest_filters
from streaming_lsm.metadata.file_slices import MetadataFileSlice
from streaming_lsm.metadata.slice_records import numbered_groups, slice_records, sought_records
from streaming_lsm.services.indexes.findings import (
    LEFT_OVER,
    MISSING,
    WRONG,
    Checked,
    CheckedState,
    IndexFinding,
    shown,
    shown_file,
)
from streaming_lsm.storage.parallel import read_in_threads

_FILES = 200
"""Files whose filters are compared at a time."""
_WHAT = {
    MISSING: "bloom filters of base files are not in it",
    WRONG: "filters are not those of their base files",
    LEFT_OVER: "filters are of base files that are gone, or have none",
}


@dataclass
class _Compared:
    """Counts the filters that were compared, and collects files by kind of difference."""

    filters: int = 0
    different: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, name: str) -> None:
        self.different.setdefault(kind, []).append(name)


def check_bloom_filters(state: CheckedState) -> Checked:
    """Compare the filters of all base files of completed actions.

    Raises:
        CorruptFileError, UnsupportedTable, TableNotFound, OSError: the index cannot be read; or a data file.
    """
    found = _Compared()
    files = list(_base_files(state))
    for start in range(0, len(files), _FILES):
        _compare(state, files[start : start + _FILES], found)
    for key in _unknown_keys(state, [filter_key(*file) for file in files]):
        found.add(LEFT_OVER, key)
    findings = [
        IndexFinding(PARTITION, kind, f"{len(names):,} {_WHAT[kind]}: {shown(names, len(names))}", len(names))
        for kind, names in found.different.items()
    ]
    return Checked(found.filters, tuple(findings))


def _base_files(state: CheckedState) -> Iterator[tuple[str, str]]:
    for partition, names in sorted(state.files.items()):
        for name in names:
            path = f"{partition}/{name}" if partition else name
            if isinstance(parse_file_name(name), BaseFileName) and path not in state.doomed:
                yield partition, name


def _compare(state: CheckedState, files: Sequence[tuple[str, str]], found: _Compared) -> None:
    told = _stored(state, pa.array([filter_key(*file) for file in files], pa.string()))
    paths = [f"{partition}/{name}" if partition else name for partition, name in files]
    real = read_in_threads(lambda path: state.readers.bloom(state.storage, path), paths, state.storage, state.threads)
    found.filters += len(told)
    for file, bloom in zip(files, real, strict=True):
        row = told.get(filter_key(*file))
        if bloom is not None and row is None:
            found.add(MISSING, shown_file(*file))
        elif bloom is None and row is not None:
            found.add(LEFT_OVER, shown_file(*file))
        elif bloom is not None and row is not None and not _is_same(bloom, row):
            found.add(WRONG, shown_file(*file))


def _stored(state: CheckedState, keys: pa.StringArray) -> dict[str, dict[str, Any]]:
    """Return the filters of some keys, by key."""
    wanted: pa.StringArray = pc.unique(keys)
    parts = sought_records(state.metadata, state.timeline, state.data, wanted, PARTITION, FILE_ID)
    found: tuple[Any, Any] = newest_filters(parts)
    return {key.decode(): row for key, row in zip(*(column.to_pylist() for column in found), strict=True)}


def _is_same(bloom: tuple[str, bytes], row: dict[str, Any]) -> bool:
    """Return whether a filter is that of a footer, whose text may be another one of the same bits."""
    if bloom == (row["type"], row["bloomFilter"]):
        return True
    try:
        decoded = BloomFilter.decode(row["bloomFilter"].decode("ascii", "replace"), row["type"], PARTITION)
    except (CorruptFileError, UnsupportedTable):
        return False
    return (decoded.kind, decoded.encode().encode()) == bloom


def _unknown_keys(state: CheckedState, known: Sequence[str]) -> Iterator[str]:
    """Yield the keys of filters that are of none of the base files that the table has."""
    names, keys = state.metadata.names(PARTITION), pa.array(known, pa.binary())
    for group in numbered_groups(PARTITION, FILE_ID, names):
        newest = MetadataFileSlice.newest(state.timeline, names, group)
        others: list[Any] = [pa.array([], pa.binary())]
        for part in newest.parts(state.metadata, state.counts):
            if isinstance(part, HFile):
                others += [without(cells.keys, keys) for cells in part.cells()]
        unknown = pc.unique(pa.concat_arrays(others))
        for start in range(0, len(unknown), _FILES):
            parts = slice_records(newest, state.metadata, state.counts, unknown.slice(start, _FILES))
            found: Any = newest_filters(parts)[0].cast(pa.string())
            yield from found.to_pylist()
