"""Read the history of one record key: every version in the files of its slices, unmerged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.arrow.columns import Column
from streaming_lsm.file_group.data_file import DataFile
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.slice_files import open_slice
from streaming_lsm.format.column_versions import FileNames
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.schema import COMMIT_TIME, OPERATION, RECORD_KEY, delete_log_schema, with_meta
from streaming_lsm.storage.base import Storage

FILE, DELETED = "_lsm_file", "_lsm_deleted"
"""Columns of a history; no column of a table may begin with ``_lsm_``."""


def read_history(
    storage: Storage,
    slices: Sequence[FileSlice],
    schema: pa.Schema,
    rule: MergeRule,
    key: str,
    file_names: FileNames | None = None,
) -> pa.Table:
    """Read the versions of `key`, the oldest file first within a slice.

    Args:
        slices: the slices to search; those of the key's bucket in all partitions suffice.
        schema: the table's columns.
        rule: defines which rows of data files are deletes.
        key: the record key.
        file_names: names the columns of files that were written before columns were renamed.

    Returns:
        Meta columns and `schema`'s, then ``_lsm_file`` (relative path) and ``_lsm_deleted``. Logs that a log
        compaction replaced are left out, as in a snapshot.

    Raises:
        CorruptFileError: a file is missing or damaged, or its footer contradicts its name.
        UnsupportedTable: a file has a feature that is not supported.
    """
    stored = pa.schema([field.with_nullable(True) for field in with_meta(schema)])
    output = pa.schema([*stored, pa.field(FILE, pa.string()), pa.field(DELETED, pa.bool_())])
    found = [output.empty_table()]
    for file_slice in slices:
        with ExitStack() as files:
            for file in open_slice(storage, file_slice, rule, files, file_names=file_names):
                wanted = _schema_of(file, stored, rule)
                found += [_versions(file, rows, output, rule) for rows in _rows(file, wanted, key) if rows.num_rows]
    return pa.concat_tables(found)


def _schema_of(file: DataFile, stored: pa.Schema, rule: MergeRule) -> pa.Schema:
    if file.is_delete:
        return delete_log_schema(stored, rule.ordering_fields)
    return stored.append(pa.field(OPERATION, pa.string())) if OPERATION in file.columns else stored


def _rows(file: DataFile, schema: pa.Schema, key: str) -> Iterator[pa.RecordBatch]:
    matches = pc.field(RECORD_KEY) == key
    # Most files lack the key, so its column is read first. (pyarrow's statistics crash on some damaged files.)
    keys = pa.schema([schema.field(RECORD_KEY)])
    if any(batch.filter(matches).num_rows for batch in file.batches(keys)):
        for batch in file.batches(schema):
            yield batch.filter(matches)


def _versions(file: DataFile, rows: pa.RecordBatch, output: pa.Schema, rule: MergeRule) -> pa.Table:
    count = rows.num_rows
    deleted = pa.repeat(True, count) if file.is_delete else pa.array(rule.deletes(rows))
    columns: dict[str, Column] = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns |= {FILE: pa.repeat(file.path, count), DELETED: deleted}
    if file.is_delete:  # delete logs do not store the commit time
        columns[COMMIT_TIME] = pa.repeat(file.time, count)
    return pa.table([columns.get(field.name, pa.nulls(count, field.type)) for field in output], schema=output)
