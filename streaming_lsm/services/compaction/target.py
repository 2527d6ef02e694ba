"""Hold what the operations of a compaction share, of whole file slices or of logs only, and those of a clustering."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from streaming_lsm import config
from streaming_lsm.errors import CorruptFileError, WriteConflict
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.format.column_versions import FileNames
from streaming_lsm.format.table.file_names import LogFileName, LogKind, WriteToken
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.query.slices.slice_reader import LogCounts
from streaming_lsm.schema import delete_log_avro, delete_log_schema, from_avro, to_avro, with_meta
from streaming_lsm.services.context import ServiceContext
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.schema_on_read import column_versions
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.write.files.kept_deletes import Retention
from streaming_lsm.write.files.native_log_writer import NativeLogTarget
from streaming_lsm.write.files.prepare import prepare_data_file
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

    def logs_beside_base(self, partition: str, file_id: str, token: WriteToken, paths: list[str]) -> NativeLogTarget:
        """Say what the logs of kept deletes beside a base file have in common; their paths are added to `paths`."""

        def create(version: int, kind: LogKind) -> tuple[str, LogFileName]:
            name = LogFileName(file_id, token, self.instant, version, kind)
            path = prepare_data_file(self.storage, self.instant, partition, str(name), starts=False)
            paths.append(path)
            return path, name

        return NativeLogTarget(
            storage=self.storage,
            partition=partition,
            instant=self.instant,
            avro=self.avro,
            delete_avro=self.delete_avro,
            updates=False,
            options=self.files,
            create=create,
        )

    @classmethod
    def of_run(cls, context: ServiceContext, timeline: Timeline, planned: Instant) -> CompactionTarget:
        """Describe the table for a run of a planned action.

        Raises:
            CorruptFileError: no commit has a schema.
        """
        versions = column_versions(timeline, context.config.named_columns)
        schema = _schema_of_run(timeline, planned, context, has_ids=versions is not None)
        return cls(
            storage=context.storage,
            instant=planned.requested,
            table_name=context.config.name,
            columns=from_avro(schema, planned.path),
            rule=context.rule,
            files=FileOptions.of(context.options, context.config),
            spill_folder=context.options[config.SPILL_FOLDER],
            sorted_files=context.config.is_lsm_tree,
            file_names=None if versions is None else versions.file_names,
            columns_version=None if versions is None else versions.latest.version,
        )

    def newer_schema(self, timeline: Timeline) -> Mapping[str, str]:
        """Return the schema of the writes beside a run for its commit, if it differs: it may have more columns.

        Raises:
            WriteConflict: columns were renamed meanwhile, so that the files have other names than the commit.
        """
        versions = column_versions(timeline)
        if versions is not None and versions.is_renamed_since(self.columns_version):
            raise WriteConflict(
                f"{timeline.storage.uri}: columns were renamed since the run of {self.instant} began; run it again"
            )
        newest = timeline.table_schema()
        is_own = newest is None or from_avro(newest, f"schema of {timeline.storage.uri}").equals(self.columns)
        return {} if newest is None or is_own else {"schema": newest}

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


def retention_of(context: ServiceContext, requested: str) -> Retention | None:
    """Return which deletes a compaction keeps: none of a table without ordering values, or without native logs."""
    if not context.rule.event_time or not context.config.has_native_logs:
        return None
    return Retention.of(requested, context.options[config.TOMBSTONE_RETENTION], context.config.timeline_zone)


def _schema_of_run(timeline: Timeline, planned: Instant, context: ServiceContext, *, has_ids: bool) -> str:
    """Return the table's schema as of the compaction's instant, which has every column of the plan's files.

    Where columns have ids, it is that of now: files have the names of columns that the commit has, whenever it was
    planned.
    """
    for write in timeline.newest_first():
        if not has_ids and (write.completed or "") < planned.requested:
            schema = timeline.read_commit(write).schema
            if schema is not None:
                return schema
    schema = timeline.table_schema() or context.config.create_schema
    if schema is None:
        raise CorruptFileError(f"{context.storage.uri} has no commit with a schema; restore .hoodie/timeline")
    return schema
