"""Sorted rows of one file group → log files, or the group's first base file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

import pyarrow as pa

from streaming_lsm.format.base_footer import AVRO_SCHEMA_KEY, base_file_footer
from streaming_lsm.format.bloom import BloomFilter
from streaming_lsm.format.commit import WriteStat, base_file_stat, file_path, log_file_stat
from streaming_lsm.format.log_header import LogHeader
from streaming_lsm.format.names import BaseFileName, LogFileName, LogKind, WriteToken
from streaming_lsm.format.partition_metadata import PARTITION_METADATA_NAME, print_partition_metadata
from streaming_lsm.schema import delete_log_avro, to_avro, with_meta
from streaming_lsm.timeline.markers import create_marker
from streaming_lsm.write.parquet import SequenceNumbers, add_meta_columns, write_sorted
from streaming_lsm.write.plan import BULK_INSERT, UPSERT, FileGroup, WritePlan
from streaming_lsm.write.record_buffer import GroupRows


class GroupWriter:
    """Writes the files of one task; each is announced by a marker before it appears (format 01, Markers)."""

    def __init__(self, plan: WritePlan, token: WriteToken) -> None:
        """A writer for the task attempt that `token` names."""
        self._plan = plan
        self._token = token
        self._sequence = SequenceNumbers(plan.instant, token.task)
        self._file_schema = to_avro(with_meta(plan.schema), plan.config.name)
        self._partitions: set[str] = set()
        self._paths: list[str] = []

    def write(self, group_rows: GroupRows) -> Iterator[WriteStat]:
        """Write what one batch does to one file group.

        Wipes come in a version of their own, before the rows and deletes that survive them (format 10, rule 2).
        """
        has_deletes = group_rows.deletes.num_rows or group_rows.wipes.num_rows
        if self._plan.operation == BULK_INSERT and self._plan.starts_group(group_rows.group) and not has_deletes:
            yield self._base(group_rows)
            return
        version = 1
        if group_rows.wipes.num_rows:
            yield self._delete_log(group_rows.group, group_rows.wipes, version)
            version += 1
        if group_rows.rows.num_rows:
            yield self._data_log(group_rows, version)
        if group_rows.deletes.num_rows:
            yield self._delete_log(group_rows.group, group_rows.deletes, version)

    def _announce_partition(self, partition: str) -> None:
        path = file_path(partition, PARTITION_METADATA_NAME)
        if partition not in self._partitions and not self._plan.storage.exists(path):
            with suppress(FileExistsError):  # another task was first
                self._plan.storage.put_if_absent(path, print_partition_metadata(self._plan.instant, partition))
        self._partitions.add(partition)

    def _data_log(self, group_rows: GroupRows, version: int) -> WriteStat:
        partition, name = group_rows.group[0], self._log_name(group_rows.group, version, LogKind.DATA)
        rows = self._with_meta(group_rows, partition, name.file_id)
        size = self._write(partition, str(name), rows, self._log_footer(self._file_schema))
        count = rows.num_rows
        inserts = 0 if self._plan.operation == UPSERT else count
        return log_file_stat(partition, name, total_bytes=size, num_inserts=inserts, num_updates=count - inserts)

    def _delete_log(self, group: FileGroup, deletes: pa.Table, version: int) -> WriteStat:
        partition, name = group[0], self._log_name(group, version, LogKind.DELETES)
        avro = delete_log_avro(self._plan.schema, self._plan.rule.ordering_fields)
        size = self._write(partition, str(name), deletes, self._log_footer(avro))
        return log_file_stat(partition, name, total_bytes=size, num_deletes=deletes.num_rows)

    def _base(self, group_rows: GroupRows) -> WriteStat:
        partition, keys, files = group_rows.group[0], group_rows.keys, self._plan.files
        name = BaseFileName(self._plan.file_id(group_rows.group), str(self._token), self._plan.instant)
        rows = self._with_meta(group_rows, partition, str(name))
        bloom = BloomFilter.build(keys, files.bloom_entries, files.bloom_fpp, files.bloom_max_entries, files.bloom_kind)
        footer = base_file_footer(self._file_schema, keys[0].as_py(), keys[-1].as_py(), bloom)
        size = self._write(partition, str(name), rows, footer)
        return base_file_stat(partition, name, total_bytes=size, num_writes=rows.num_rows, num_inserts=rows.num_rows)

    def _log_name(self, group: FileGroup, version: int, kind: LogKind) -> LogFileName:
        return LogFileName(self._plan.file_id(group), self._token, self._plan.instant, version, kind)

    def _log_footer(self, record_schema: str) -> dict[str, str]:
        header = LogHeader(self._plan.instant, self._file_schema).to_footer()
        footer = {key.decode(): value.decode() for key, value in header.items()}
        return {**footer, AVRO_SCHEMA_KEY: record_schema}

    def _with_meta(self, group_rows: GroupRows, partition: str, file_name: str) -> pa.Table:
        return add_meta_columns(
            group_rows.rows,
            group_rows.keys,
            instant=self._plan.instant,
            sequence=self._sequence,
            partition=partition,
            file_name=file_name,
        )

    def _write(self, partition: str, name: str, rows: pa.Table, footer: Mapping[str, str]) -> int:
        create_marker(self._plan.storage, self._plan.instant, partition, name)
        self._announce_partition(partition)
        self._paths.append(file_path(partition, name))
        return write_sorted(self._plan.storage, self._paths[-1], rows, footer, self._plan.files)

    def discard(self) -> None:
        """Delete all files written so far: the instant is no longer this writer's, so nobody else will."""
        for path in self._paths:
            self._plan.storage.delete(path)
