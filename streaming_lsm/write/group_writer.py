"""Sorted blocks of one file group → log files, or the group's first base file; one block in memory at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import partial

import pyarrow as pa

from streaming_lsm.format.base_footer import AVRO_SCHEMA_KEY
from streaming_lsm.format.commit import WriteStat, base_file_stat
from streaming_lsm.format.log_header import LogHeader
from streaming_lsm.format.names import BaseFileName, InlineLogName, LogFileName, LogKind, WriteToken
from streaming_lsm.schema import delete_log_avro, to_avro, with_meta
from streaming_lsm.write.announce import announce
from streaming_lsm.write.base_writer import BaseFileWriter
from streaming_lsm.write.budget import Meter
from streaming_lsm.write.inline_roll import BlockOptions, InlineRoll, InlineSource
from streaming_lsm.write.log_roll import LogRoll, OpenLog
from streaming_lsm.write.parquet import SequenceNumbers
from streaming_lsm.write.plan import BULK_INSERT, UPSERT, FileGroup, WritePlan
from streaming_lsm.write.settle import GroupRows, block_with_meta
from streaming_lsm.write.sorted_file import SortedFile


class GroupWriter:
    """Writes the files of one task; each is announced by a marker before it appears (format 01, Markers)."""

    def __init__(self, plan: WritePlan, token: WriteToken, meter: Meter | None = None) -> None:
        """A writer for the task attempt that `token` names; `meter` counts what its open files hold."""
        self._plan = plan
        self._token = token
        self._meter = Meter() if meter is None else meter
        self._sequence = SequenceNumbers(plan.instant, token.task)
        self._file_schema = to_avro(with_meta(plan.schema), plan.config.name)
        self._delete_schema = delete_log_avro(plan.schema, plan.rule.ordering_fields)
        self._paths: list[str] = []

    def write(self, group: FileGroup, blocks: Iterable[GroupRows]) -> Iterator[WriteStat]:
        """Write what one batch does to one file group.

        A bulk insert into a new group makes its base file, unless the first block has deletes. Deletes that turn up
        later are logs on top of it; wipes are left out then, as there is nothing older that they could act on.

        Args:
            group: partition path and bucket.
            blocks: ascending by record key; no two share a key.
        """
        with ExitStack() as files:
            base: BaseFileWriter | None = None
            roll: LogRoll | InlineRoll | None = None
            version = 1
            for block in blocks:
                rows, deletes, wipes = block_with_meta(self._plan, block, self._sequence), block.deletes, block.wipes
                if base is None and roll is None and self._begins_base(block):
                    base = files.enter_context(self._open_base(group))
                if base is not None:
                    base.append(rows)
                    rows, wipes = rows.slice(0, 0), wipes.slice(0, 0)
                if roll is not None and not roll.takes(wipes):
                    yield from roll.finish()
                    version, roll = roll.next_version, None
                if roll is None and (rows.num_rows or deletes.num_rows):
                    roll = self._begin_roll(group, version, wipes)
                    files.push(roll)
                if roll is not None:
                    roll.append(rows, deletes, wipes)
                self._count(base, roll)
            if base is not None:
                yield self._finish_base(group, base)
            if roll is not None:
                yield from roll.finish()
        self._count(None, None)

    def _begins_base(self, block: GroupRows) -> bool:
        has_deletes = block.deletes.num_rows or block.wipes.num_rows
        return self._plan.operation == BULK_INSERT and self._plan.starts_group(block.group) and not has_deletes

    def _open_base(self, group: FileGroup) -> BaseFileWriter:
        plan = self._plan
        name = BaseFileName(plan.file_id(group), str(self._token), plan.instant)
        base = BaseFileWriter(plan.storage, plan.instant, group[0], name, self._file_schema, plan.files)
        self._paths.append(base.path)
        return base

    def _finish_base(self, group: FileGroup, base: BaseFileWriter) -> WriteStat:
        size, rows = base.finish(), base.rows
        return base_file_stat(group[0], base.name, total_bytes=size, num_writes=rows, num_inserts=rows)

    def _begin_roll(self, group: FileGroup, version: int, wipes: pa.Table) -> LogRoll | InlineRoll:
        if not self._plan.config.has_native_logs:
            return InlineRoll(self._inline_source(group), version)
        create = partial(self._open_log, group)
        return LogRoll(create, version, self._plan.files.log_bytes, has_wipes=wipes.num_rows > 0)

    def _open_log(self, group: FileGroup, version: int, kind: LogKind) -> OpenLog:
        plan, partition = self._plan, group[0]
        name = LogFileName(plan.file_id(group), self._token, plan.instant, version, kind)
        self._paths.append(announce(plan.storage, plan.instant, partition, str(name)))
        file = SortedFile(plan.storage, self._paths[-1], plan.files, instant=plan.instant)
        schema = self._file_schema if kind is LogKind.DATA else self._delete_schema
        header = LogHeader(plan.instant, self._file_schema).to_footer()
        footer = {key.decode(): value.decode() for key, value in header.items()}
        return OpenLog(partition, name, file, {**footer, AVRO_SCHEMA_KEY: schema}, plan.operation == UPSERT)

    def _inline_source(self, group: FileGroup) -> InlineSource:
        plan, partition = self._plan, group[0]

        def create(version: int) -> tuple[str, InlineLogName]:
            name = InlineLogName(plan.file_id(group), plan.instant, version, self._token)
            self._paths.append(announce(plan.storage, plan.instant, partition, str(name)))
            return self._paths[-1], name

        files = plan.files
        options = BlockOptions(files.data_block_format, files.codec, files.log_bytes)
        updates = plan.operation == UPSERT
        schema = with_meta(plan.schema)
        return InlineSource(plan.storage, partition, plan.instant, schema, self._file_schema, updates, options, create)

    def _count(self, base: BaseFileWriter | None, roll: LogRoll | InlineRoll | None) -> None:
        held = (0 if base is None else base.held) + (0 if roll is None else roll.held)
        # A row group's pages come into being while its rows are still there.
        self._meter.count("files", 2 * held)

    def discard(self) -> None:
        """Delete all files written so far: the task fails, and its files are nobody's."""
        for path in self._paths:
            with suppress(FileNotFoundError):
                self._plan.storage.delete(path)
