"""Compare expression indexes with the ranges of expressions in data files.

See docs/format/07-index-and-metadata.md, "Expression index". A range may be wider than the values: then it costs time.
It is wrong if it is narrower, as a filter finds fewer rows then. Ranges in partitions are compared in the same way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import take
from streaming_lsm.arrow.columns import Flags, flags, int64s, pc
from streaming_lsm.format.metadata.column_stats import NO_TYPE, bounds_of
from streaming_lsm.format.metadata.expression_index import LOWER, is_widest
from streaming_lsm.format.metadata.secondary_index import group_file_id
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.index.stored_expressions import attained_range
from streaming_lsm.metadata.column_ranges import decoded_ranges
from streaming_lsm.metadata.commit import FileChanges
from streaming_lsm.metadata.file_slices import MetadataFileSlice
from streaming_lsm.metadata.index_definitions import read_definitions
from streaming_lsm.metadata.partitions.expression_index import (
    ExpressionIndex,
    expression_of,
    expression_rows,
    of_files,
    of_partitions,
)
from streaming_lsm.metadata.slice_records import numbered_groups, slice_records
from streaming_lsm.services.indexes.findings import (
    LEFT_OVER,
    MISSING,
    WRONG,
    Checked,
    CheckedState,
    IndexFinding,
    shown,
)
from streaming_lsm.services.indexes.range_check import newest_files
from streaming_lsm.storage.base import Storage

_NAMED = 4


def check_expression_index(name: str, state: CheckedState) -> Checked:
    """Compare the ranges of an expression in the files of the newest slices, and in partitions.

    Raises:
        CorruptFileError, UnsupportedTable, TableNotFound, OSError: the index cannot be read; or a data file.
    """
    function, column = expression_of(name, read_definitions(state.storage, state.properties, checked=name))
    kind = pa.string() if function == LOWER else pa.int32()
    keys, ranges = _stored(name, state)
    # Hudi has ranges in the newest slices only; an older file without one is read.
    rows = _rows(function, column, state, {partition: newest_files(state, partition) for partition in state.files})
    expected, united = of_files(rows), of_partitions(column, rows)
    findings: list[IndexFinding] = []
    known: list[Any] = []
    for texts, wanted, what in ((expected[0], expected[1], "files"), (united[0], united[1], "partitions")):
        named: Any = pc.cast(texts, pa.string())
        at = pc.index_in(named, value_set=keys)
        found: Any = wanted
        has = flags(pc.is_valid(at))
        told = take(ranges, int64s(at.drop_null()))
        lacks = ~has & (int64s(pc.struct_field(found.field("valueType"), "typeOrdinal")) != NO_TYPE)
        findings += _finding(name, MISSING, found.filter(pa.array(lacks)), f"ranges in {what} are not in it")
        there = found.filter(pa.array(has))
        wrong = there.filter(pa.array(_is_narrower(there, told, kind)))
        findings += _finding(name, WRONG, wrong, f"ranges in {what} are narrower than the values")
        known.append(named)
    names = {file for sizes in state.files.values() for file in sizes} | {
        path.rpartition("/")[2] for path in state.doomed
    }
    others: Any = ranges.filter(pc.invert(pc.is_in(keys, value_set=pa.concat_arrays(known))))
    is_file = np.array([parse_file_name(file) is not None and file not in names for file in _names(others)], np.bool_)
    findings += _finding(name, LEFT_OVER, others.filter(pa.array(is_file)), "ranges are of files that are gone")
    return Checked(len(keys), tuple(findings))


def _stored(name: str, state: CheckedState) -> tuple[Any, Any]:
    """Return the keys and ranges of all file groups; the newest of each key of a file."""
    found = []
    for group in numbered_groups(name, group_file_id(name), state.metadata.names(name)):
        slice = MetadataFileSlice.newest(state.timeline, state.metadata.names(name), group)
        found.append(ExpressionIndex.reduced(*decoded_ranges(slice_records(slice, state.metadata, state.counts))))
    keys: Any = pa.concat_arrays([part for files, partitions in found for part in (files[0], partitions[0])])
    ranges: Any = pa.concat_arrays([part for files, partitions in found for part in (files[1], partitions[1])])
    return keys.cast(pa.string()), ranges


def _rows(function: str, column: str, state: CheckedState, files: Any) -> Any:
    """Find values of the expression that rows of files have; none where programs compute them otherwise."""

    def attained(storage: Storage, path: str, function: str, column: str) -> list[dict[str, Any]]:
        if function != LOWER:
            return [attained_range(row, function, path) for row in state.readers.ranges(storage, path, [column])]
        return [_known(row) for row in state.readers.expression(storage, path, function, column)]

    return expression_rows(state.storage, attained, function, column, FileChanges(files), state.threads)


def _known(row: dict[str, Any]) -> dict[str, Any]:
    largest = (row["maxValue"] or {}).get("StringWrapper", {}).get("value")
    return row | {"minValue": None, "maxValue": None} if is_widest(largest) else row


def _is_narrower(expected: Any, told: Any, kind: pa.DataType) -> Flags:
    (low, high), (told_low, told_high) = bounds_of(expected, kind), bounds_of(told, kind)
    narrow = pc.or_(pc.fill_null(pc.greater(told_low, low), False), pc.fill_null(pc.less(told_high, high), False))
    bare = pc.and_(pc.is_valid(expected.field("minValue")), pc.is_null(told.field("minValue")))
    return flags(pc.or_(narrow, bare))


def _names(ranges: Any) -> list[str]:
    found: list[str] = ranges.field("fileName").to_pylist()
    return found


def _finding(index: str, kind: str, ranges: Any, what: str) -> list[IndexFinding]:
    count = len(ranges)
    named = sorted(_names(ranges.slice(0, _NAMED)))
    return [IndexFinding(index, kind, f"{count:,} {what}: {shown(named, count)}", count)] if count else []
