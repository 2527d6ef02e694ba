"""Log compactions of chosen logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from unittest import mock

from streaming_lsm import LsmTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.file_group.data_file import open_log
from streaming_lsm.file_group.file_system_view import FileSlice, LogFile
from streaming_lsm.file_group.log_order import merge_order
from streaming_lsm.format.actions.compaction_plan import LOG, CompactionOperation, CompactionPlan
from streaming_lsm.format.log.inline_blocks import read_blocks
from streaming_lsm.services.compaction.log_task import LogCompactionTask
from streaming_lsm.services.compaction.runner import run_compaction
from streaming_lsm.services.compaction.target import CompactionTarget
from streaming_lsm.timeline.action_kind import LOG_COMPACTION
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.write.plan import FileOptions

Pick = Callable[[Sequence[str]], Sequence[str]]
"""Chooses, of the instants of a slice's logs in merge order, adjacent ones."""


def every(instants: Sequence[str]) -> Sequence[str]:
    """Choose all logs."""
    return instants


def log_task(table: LsmTable, instant: str, **files: int) -> LogCompactionTask:
    """The task of a log compaction at `instant`; `files` are changes of the Parquet settings."""
    target = CompactionTarget(
        storage=table.storage,
        instant=instant,
        table_name=table.config.name,
        columns=table.schema,
        rule=table.rule,
        files=replace(FileOptions.of(table.options), **files),  # type: ignore[arg-type]
        sorted_files=table.config.is_lsm_tree,
    )
    return LogCompactionTask(target, native_logs=table.config.has_native_logs)


def live_logs(table: LsmTable, found: FileSlice) -> list[LogFile]:
    """The logs of a slice in merge order, without those that a log compaction replaced, and without kept deletes."""
    logs = [log for log in found.logs if not found.is_kept(log)]
    return merge_order(logs, lambda log: (log.name.instant, _compacted(table, log)))


def _compacted(table: LsmTable, log: LogFile) -> tuple[str, ...]:
    if not log.is_native:
        return read_blocks(table.storage.read(log.path), log.path)[0].compacted
    with ExitStack() as files:
        return open_log(table.storage, log, table.rule, files)[1].compacted


def windows(table: LsmTable, pick: Pick = every) -> list[FileSlice]:
    """Slices with the chosen logs, of every file group that has logs."""
    chosen = []
    for found in table.file_slices():
        logs = live_logs(table, found)
        instants = pick(list(dict.fromkeys(log.name.instant for log in logs)))
        taken = tuple(log for log in logs if log.name.instant in instants)
        if taken:
            chosen.append(replace(found, base=None, logs=taken))
    return chosen


def compact_logs(table: LsmTable, pick: Pick = every, **files: int) -> Instant:
    """Schedule and run a log compaction of the chosen logs; `files` are changes of the Parquet settings."""
    operations = [
        CompactionOperation(
            found.partition_path,
            found.file_id,
            found.logs[0].name.instant,
            tuple(str(log.name) for log in sorted(found.logs, key=lambda log: log.name.sort_key)),
            type=LOG,
        )
        for found in windows(table, pick)
    ]
    with table.transaction() as tx:
        plan = CompactionPlan(tuple(operations)).encode()
        planned = tx.schedule(LOG_COMPACTION, tx.new_time(), plan)
    changed = replace(FileOptions.of(table.options), **files)  # type: ignore[arg-type]
    with mock.patch.object(FileOptions, "of", return_value=changed):
        completed = run_compaction(table._context, planned.requested, LocalEngine(1))
    assert completed is not None
    return completed
