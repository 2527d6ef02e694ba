"""Find the slices of a scan that another reader of Parquet returns as they are: one base file, and nothing to merge."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pyarrow as pa

from streaming_lsm.arrow.nullable import nullable_type
from streaming_lsm.file_group.data_file import open_base
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.query.scan import Scan
from streaming_lsm.storage.failures import named_failures

_SHIFTED = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Footer entries by which Spark shifts old dates and times to another calendar, which Arrow does not."""
_PLAIN = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_timestamp,
    pa.types.is_decimal128,
)


def plain_slices(scan: Scan) -> list[FileSlice]:
    """List the slices without logs whose base file stores the columns that the scan needs in the table's types.

    The footer of each such file is read.

    Raises:
        LsmError: a file cannot be opened, see `SliceReader.blocks`.
    """
    schema = scan.reader.output_schema
    # Spark matches names without case.
    is_ambiguous = len({name.lower() for name in scan.reader.schema.names}) < len(scan.reader.schema.names)
    if is_ambiguous or scan.reader.commits is not None or not all(_is_plain(field.type) for field in schema):
        return []
    based = [found for found in scan.slices if found.is_base_only]
    needed = frozenset(schema.names)
    based = [found for found in based if not scan.default_partition.nulls(found.partition_path) & needed]
    with named_failures():
        stored = scan.run(_stores(scan, schema), based)
        return [found for found, is_plain in zip(based, stored, strict=True) if is_plain]


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_map(kind):
        return all(_is_plain(kind.field(place).type) for place in range(kind.num_fields))
    return any(is_kind(kind) for is_kind in _PLAIN)


def _stores(scan: Scan, schema: pa.Schema) -> Callable[[FileSlice], bool]:
    types = {field.name: nullable_type(field.type) for field in schema}

    folded = {name.lower() for name in types}

    def stores(file_slice: FileSlice) -> bool:
        assert file_slice.base is not None
        if not file_slice.base.path.endswith(".parquet"):
            return False
        with ExitStack() as files:
            base = open_base(scan.reader.storage, file_slice.base, files, scan.reader.file_names)
            opened = base.opened
            assert opened is not None
            if base.names is not None:
                return False
            found = opened.parquet.schema_arrow
            # Spark would take a column of the file whose name differs by case.
            if any(name.lower() in folded and name not in types for name in found.names):
                return False
            if any(mark in (opened.parquet.metadata.metadata or {}) for mark in _SHIFTED):
                return False
        # A column that the file lacks is null in both readers.
        return all(nullable_type(found.field(name).type) == kind for name, kind in types.items() if name in found.names)

    return stores
