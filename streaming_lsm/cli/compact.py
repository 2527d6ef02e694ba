"""``lsm compact``: merge log files into base files, or into larger log files."""

from __future__ import annotations

import argparse

from streaming_lsm.cli.arguments import json_argument, opened, service_arguments, write_lines, write_result
from streaming_lsm.cli.progress import ProgressLine, ShownEngine
from streaming_lsm.cli.text_table import TextTable
from streaming_lsm.cli.watching import watch
from streaming_lsm.service_job.command import watch_argument
from streaming_lsm.service_job.messages import compacted
from streaming_lsm.services.compaction.planner import CompactionSelection
from streaming_lsm.table import LsmTable
from streaming_lsm.txn.planned_actions import pending_compactions


def compact_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm compact``."""
    service_arguments(verb)
    verb.add_argument("--schedule-only", action="store_true", help="write the plan; the next compaction runs it")
    verb.add_argument("--log", action="store_true", help="merge log files into larger log files only")
    verb.add_argument("--explain", action="store_true", help="show what is decided for each file group, and why")
    watch_argument(verb)
    json_argument(verb, "one JSON document")
    verb.set_defaults(run=_compact)


def _compact(arguments: argparse.Namespace) -> None:
    if arguments.watch is not None:
        watch(arguments, lambda table, engine: table.services.compaction_worker(engine))
        return
    table = opened(arguments)
    if arguments.explain or arguments.dry_run:
        _preview(table, arguments)
        return
    scheduled, completed = None, None
    if arguments.schedule_only:
        planned, selection = table.services.schedule(log=arguments.log)
        scheduled = planned.file_name if planned else None
        said = f"scheduled {scheduled}" if scheduled else f"nothing to compact: {selection.reasons}"
    else:
        completed, said = _done(table, log=arguments.log)
    if arguments.json:
        write_result(table, arguments, said, completed, scheduled=scheduled)
    else:
        print(said)


def _done(table: LsmTable, *, log: bool) -> tuple[str | None, str]:
    """Compact, and return the completed instant and what is said of it."""
    with ProgressLine("file groups merged") as progress:
        engine = ShownEngine.of(table, progress)
        completed, chosen = table.services.compact(engine, log=log)
    if completed is None:
        return None, f"nothing to compact: {chosen.reasons if chosen else _left_to_others(table)}"
    return completed.file_name, compacted(completed, table.timeline.read_commit(completed).stats)


def _left_to_others(table: LsmTable) -> str:
    pending = len(pending_compactions(table.timeline))
    return f"other processes run what is pending ({pending})" if pending else "another writer has done it"


def _preview(table: LsmTable, arguments: argparse.Namespace) -> None:
    """Show what would be scheduled, or why each file group is chosen or not; nothing is changed."""
    planned = [pending.file_name for pending in pending_compactions(table.timeline)]
    selection = table.services.preview_compaction(log=arguments.log)
    if arguments.json:
        parts = {"planned": planned, "operations": _operations(selection), "decisions": _decisions(selection)}
        write_result(table, arguments, str(selection), None, changes_nothing=True, **parts)
    elif arguments.explain:
        write_lines(_decision_lines(selection), None)
    else:
        write_lines([*(f"planned: {name}" for name in planned), *_operation_lines(selection)], None)


def _operations(selection: CompactionSelection) -> list[dict[str, object]]:
    return [
        {
            "partition": operation.partition_path,
            "file_id": operation.file_id,
            "operation": operation.type,
            "base_file": operation.base_file,
            "logs": list(operation.logs),
            "log_bytes": round(operation.metrics["TOTAL_LOG_FILES_SIZE"]),
        }
        for operation in selection.operations
    ]


def _decisions(selection: CompactionSelection) -> list[dict[str, object]]:
    return [
        {"partition": found.partition_path, "file_id": found.file_id, "operation": found.type, "reason": found.reason}
        for found in selection.decisions
    ]


def _decision_lines(selection: CompactionSelection) -> list[str]:
    shown = TextTable(("partition", "file group", "operation", "why"))
    for decision in selection.decisions:
        shown.add(decision.partition_path, decision.file_id, decision.type or "none", decision.reason)
    return [*shown.lines(), str(selection)]


def _operation_lines(selection: CompactionSelection) -> list[str]:
    if not selection.operations:
        return [f"nothing to schedule: {selection.reasons}"]
    numbers = ("log files", "bytes")
    shown = TextTable(("partition", "file group", "operation", "base file", *numbers), frozenset(numbers))
    for operation in selection.operations:
        size = f"{operation.metrics['TOTAL_LOG_FILES_SIZE']:,.0f}"
        base = operation.base_file or ""
        shown.add(operation.partition_path, operation.file_id, operation.type, base, f"{len(operation.logs):,}", size)
    return [*shown.lines(), str(selection)]
