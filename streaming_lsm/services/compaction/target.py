"""What the operations of a compaction share, whether they merge whole file slices or logs only."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.format.column_versions import FileNames
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.query.slices.slice_reader import LogCounts
from streaming_lsm.schema import delete_log_avro, delete_log_schema, to_avro, with_meta
from streaming_lsm.storage.base import Storage
from streaming_lsm.write.plan import FileOptions


@dataclass(frozen=True)
class CompactionTarget:
    """The table that a compaction writes to, and how; picklable, so that it can be sent to executors.

    Attributes:
        storage: the table's files.
        instant: requested time of the compaction.
        table_name: the record name of the Avro schema in the new files' footers.
        columns: the table's columns, without meta columns.
        rule: the table's merge semantics.
        files: Parquet settings, and the bytes at which a log ends and the next version begins.
        spill_folder: a folder on a local disk for slices of many files; None means the system's for temporary files.
        sorted_files: whether the table's files are sorted by record key.
        file_names: names the columns of files that were written before columns were renamed.
        columns_version: the `InternalSchema.version` of `columns`; None if columns have no ids.
    """

    storage: Storage
    instant: str
    table_name: str
    columns: pa.Schema
    rule: MergeRule
    files: FileOptions
    spill_folder: str | None = None
    sorted_files: bool = True
    file_names: FileNames | None = None
    columns_version: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of a data file, meta columns included."""
        return with_meta(self.columns)

    @property
    def avro(self) -> str:
        """The Avro schema of a data file."""
        return to_avro(self.schema, self.table_name)

    @property
    def delete_schema(self) -> pa.Schema:
        """The columns of a delete log."""
        return delete_log_schema(self.columns, self.rule.ordering_fields)

    @property
    def delete_avro(self) -> str:
        """The Avro schema of a delete log."""
        return delete_log_avro(self.columns, self.rule.ordering_fields)


def with_counts(stat: WriteStat, found: FileSlice, counts: LogCounts, *, records: int, waited_ms: int) -> WriteStat:
    """Add to the first stat of an operation the counts of what it read.

    Args:
        found: the slice that was merged.
        counts: its records and blocks.
        records: number of records that were written.
        waited_ms: how long the writer waited for the reader, in milliseconds.
    """
    return replace(
        stat,
        log_records=counts.records,
        log_blocks=counts.blocks,
        updated_records_compacted=records,
        log_files_compacted=len(found.logs),
        log_bytes_compacted=sum(log.size for log in found.logs),
        log_read_ms=waited_ms,
        scan_ms=waited_ms,
    )
