"""Every version of one key that the files of a slice hold, unmerged."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_lsm.columns import Column
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.names import LogKind
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.read.file_view import FileSlice
from streaming_lsm.schema import COMMIT_TIME, RECORD_KEY, with_meta
from streaming_lsm.storage.base import Storage

FILE, DELETED = "file", "deleted"


def read_history(
    storage: Storage, slices: Sequence[FileSlice], schema: pa.Schema, rule: MergeRule, key: str
) -> pa.Table:
    """Versions of `key`, the oldest file first within a slice.

    Args:
        slices: where to look.
        schema: the table's columns.
        rule: tells which rows of data files are deletes.
        key: the record key.

    Returns:
        Meta columns and `schema`'s, then ``file`` (relative path) and ``deleted``.

    Raises:
        CorruptFileError: a file is missing or damaged.
    """
    output = pa.schema([*with_meta(schema), pa.field(FILE, pa.string()), pa.field(DELETED, pa.bool_())])
    output = pa.schema([field.with_nullable(True) for field in output])
    found = [_versions(storage, path, output, rule, key) for found in slices for path in _files(found)]
    return pa.concat_tables([output.empty_table(), *found])


def _files(file_slice: FileSlice) -> list[tuple[str, str | None]]:
    """Paths, with the instant for delete logs, which do not store it."""
    base = [(file_slice.base.path, None)] if file_slice.base else []
    return base + [
        (log.path, log.name.instant if log.name.kind is LogKind.DELETES else None) for log in file_slice.logs
    ]


def _versions(storage: Storage, file: tuple[str, str | None], output: pa.Schema, rule: MergeRule, key: str) -> pa.Table:
    path, delete_instant = file
    try:
        with storage.open_input(path) as source:
            rows = pq.read_table(source, filters=pc.field(RECORD_KEY) == key, page_checksum_verification=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptFileError(f"{path}: missing or not a readable Parquet file: {error}; restore it") from error
    deleted = pa.array(rule.deletes(rows)) if delete_instant is None else pa.array([True] * rows.num_rows, pa.bool_())
    constants: dict[str, Column] = {FILE: pa.array([path] * rows.num_rows, pa.string()), DELETED: deleted}
    if delete_instant is not None:
        constants[COMMIT_TIME] = pa.array([delete_instant] * rows.num_rows, pa.string())
    columns: list[Column] = [
        constants[field.name]
        if field.name in constants
        else rows.column(field.name)
        if field.name in rows.schema.names
        else pa.nulls(rows.num_rows, field.type)
        for field in output
    ]
    return pa.table(columns, schema=output)
