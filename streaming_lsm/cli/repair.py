"""``lsm repair``: show which completed instants of a lost timeline the data files tell, and write them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from streaming_lsm.cli.arguments import json_argument, json_line, opened, option_arguments, write_lines
from streaming_lsm.cli.progress import ProgressLine, ShownEngine
from streaming_lsm.cli.text_table import TextTable
from streaming_lsm.service_job.messages import counted
from streaming_lsm.services.repair.plan import RebuiltInstant, RepairPlan


def repair_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm repair``."""
    verb.add_argument("table", help="path of the table")
    verb.add_argument("--apply", action="store_true", help="write the instants; without it nothing is changed")
    json_argument(verb, "one JSON document")
    option_arguments(verb)
    verb.set_defaults(run=_repair)


def _repair(arguments: argparse.Namespace) -> None:
    table = opened(arguments)
    with ProgressLine("files read") as progress:
        engine = ShownEngine.of(table, progress)
        plan, count = table.repair(engine) if arguments.apply else (table.plan_repair(engine), None)
    if arguments.json:
        write_lines(
            [json_line({"path": table.path, **_document(plan), "applied": arguments.apply, "rows": count})], None
        )
    else:
        write_lines([*_lines(plan, count)], None)


def _document(plan: RepairPlan) -> dict[str, object]:
    return {
        "instants": [_instant(found) for found in plan.instants],
        "finished": [found.completed.file_name for found in plan.finished],
        "dropped_savepoints": [found.requested for found in plan.dropped],
        "abandoned": [found.requested for found in plan.abandoned],
        "left_out": [{"path": path, "reason": why} for path, why in plan.left_out.items()],
        "unplaced": [{"path": path, "reason": why} for path, why in plan.unplaced.items()],
        "doubts": list(plan.doubts),
        "limits": list(plan.limits),
    }


def _instant(found: RebuiltInstant) -> dict[str, object]:
    replaced = found.metadata.replaced
    return {
        "requested": found.completed.requested,
        "completed": found.completed.completed,
        "action": found.completed.action,
        "operation": found.metadata.operation_type,
        "files": found.paths,
        "rows": found.rows,
        "deletes": found.deletes,
        "replaced": None if replaced is None else {path: list(ids) for path, ids in replaced.items()},
    }


def _lines(plan: RepairPlan, count: int | None) -> Iterator[str]:
    numbers = ("files", "rows", "deletes")
    shown = TextTable(("requested", "action", "operation", *numbers), frozenset(numbers), frozenset(("requested",)))
    for found in plan.instants:
        stored = (f"{len(found.paths):,}", f"{found.rows:,}", f"{found.deletes:,}")
        shown.add(found.completed.requested, found.completed.action, found.metadata.operation_type, *stored)
    if plan.instants:
        yield from shown.lines()
    yield from (f"left out: {path}: {why}" for path, why in plan.left_out.items())
    yield from (f"rolled back by the next write: {found.requested}" for found in plan.abandoned)
    yield from (f"completed, as nothing is left of what it deletes: {found.completed.path}" for found in plan.finished)
    yield from (f"deleted, as savepoints do not come back: {found.path}" for found in plan.dropped)
    yield from (f"cannot be placed: {path}: {why}" for path, why in plan.unplaced.items())
    yield from (f"guessed: {doubt}" for doubt in plan.doubts)
    if plan.instants:
        yield from (f"not known: {limit}" for limit in plan.limits)
    yield _said(plan, count)


def _said(plan: RepairPlan, count: int | None) -> str:
    if not plan.instants:
        return "nothing to rebuild: there are no data files of writes that are not archived"
    if count is not None:
        return f"{plan} written; the table has {counted(count, 'row')}"
    if plan.unplaced:
        return f"{plan} would be written, but for what cannot be placed: restore these files, or move them away"
    return f"{plan} would be written: run it again with --apply"
