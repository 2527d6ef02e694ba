"""Names, times and contents of the timeline.

See docs/format/02-timeline.md; docs/format/10-rules.md, "Rule 28", "Rule 29".
"""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from .avro_io import Container, arrow_schema, read_record
from .report import Report
from .table import META, METADATA_RECORD, OPERATION, PENDING_OF, WRITES, Table, history_files, parse_name, read_history

ACTIONS = (*METADATA_RECORD, *PENDING_OF)
NAME = re.compile(r"(\d{17})(?:_(\d{17}))?(?:\.([a-z]+))?(?:\.(requested|inflight))?")
EMPTY = ""
CONTENT: dict[tuple[str, str], tuple[str, ...]] = {
    ("commit", "requested"): (EMPTY,),
    ("deltacommit", "requested"): (EMPTY,),
    ("replacecommit", "requested"): (EMPTY, "HoodieRequestedReplaceMetadata"),
    ("compaction", "requested"): ("HoodieCompactionPlan",),
    ("logcompaction", "requested"): ("HoodieCompactionPlan",),
    ("clustering", "requested"): ("HoodieRequestedReplaceMetadata",),
    ("clean", "requested"): ("HoodieCleanerPlan",),
    ("rollback", "requested"): ("HoodieRollbackPlan",),
    ("restore", "requested"): ("HoodieRestorePlan",),
    ("indexing", "requested"): ("HoodieIndexPlan",),
    ("commit", "inflight"): (EMPTY, "HoodieCommitMetadata"),
    ("deltacommit", "inflight"): (EMPTY, "HoodieCommitMetadata"),
    ("replacecommit", "inflight"): (EMPTY, "HoodieCommitMetadata"),
    ("clustering", "inflight"): (EMPTY, "HoodieCommitMetadata"),
    ("clean", "inflight"): (EMPTY, "HoodieCleanerPlan"),
    ("indexing", "inflight"): (EMPTY, "HoodieIndexPlan"),
}
OPERATIONS = {
    "INSERT",
    "INSERT_PREPPED",
    "UPSERT",
    "UPSERT_PREPPED",
    "BULK_INSERT",
    "BULK_INSERT_PREPPED",
    "DELETE",
    "DELETE_PREPPED",
    "BOOTSTRAP",
    "INSERT_OVERWRITE",
    "INSERT_OVERWRITE_TABLE",
    "DELETE_PARTITION",
    "CLUSTER",
    "COMPACT",
    "LOG_COMPACT",
    "INDEX",
    "ALTER_SCHEMA",
    "BUCKET_RESCALE",
    "UNKNOWN",
}
SERVICE = {"compaction": "COMPACT", "logcompaction": "LOG_COMPACT", "clustering": "CLUSTER"}


class States:
    """The files of one instant: state → the actions named in them."""

    def __init__(self) -> None:
        self.actions: dict[str, list[str]] = {"requested": [], "inflight": [], "completed": []}


def check_timeline(table: Table, report: Report) -> None:
    """Check names, triples, times and contents."""
    instants: dict[str, States] = {}
    for path in sorted((table.path / ".hoodie" / "timeline").iterdir()):
        if path.name == "history" or (path.name.startswith(".") and path.name.endswith(".crc")):
            continue
        parsed = _parse(path.name)
        if not report.check(parsed is not None, "timeline.name", path.name, "matches no pattern"):
            continue
        assert parsed is not None
        instant, action, state = parsed
        report.check(_is_time(instant), "timeline.name", path.name, "is no time")
        report.check(action in ACTIONS, "timeline.name", path.name, f"unknown action {action}")
        states = instants.setdefault(f"{instant} savepoint" if action == "savepoint" else instant, States())
        states.actions[state].append(action)
        _check_content(path, action, state, report)
    for instant, states in instants.items():
        _check_triple(instant, states, report)
    _check_times(table, instants, report)
    for write in table.timeline.writes().values():
        with report.guard("commit.unreadable", f"{write.instant}.{write.action}"):
            states = instants.get(write.instant, States())
            _check_commit(f"{write.instant}.{write.action}", write.metadata(), states, report)
    _check_history(table, report)


def _parse(name: str) -> tuple[str, str, str] | None:
    match = NAME.fullmatch(name)
    if match is None:
        return None
    instant, completion, action, state = match.groups()
    if completion:
        return (instant, action, "completed") if action and not state else None
    if state:
        return instant, action or "commit", state
    return (instant, "commit", "inflight") if action == "inflight" else None


def _is_time(instant: str) -> bool:
    try:
        datetime.strptime(instant[:14], "%Y%m%d%H%M%S")
    except ValueError:
        return int(instant) < 10
    return True


def _check_triple(instant: str, states: States, report: Report) -> None:
    requested, inflight, completed = states.actions.values()
    if instant.endswith("savepoint"):
        report.check(len(completed) <= 1 and len(inflight) == 1, "timeline.triple", instant, states.actions)
        return
    once = len(requested) == 1 and len(inflight) <= 1 and len(completed) <= 1
    same = not inflight or inflight == requested
    done = not completed or (bool(inflight) and PENDING_OF.get(inflight[0], inflight[0]) == completed[0])
    final = not completed or completed[0] not in PENDING_OF
    report.check(once and same and done and final, "timeline.triple", instant, states.actions)


def _check_times(table: Table, instants: dict[str, States], report: Report) -> None:
    active = table.timeline.completed
    listed = {entry.instant for entry in active}
    done = active + [entry for entry in table.timeline.archived if entry.instant not in listed]
    requested = {time for time in instants if time.isdigit()}
    requested |= {entry.instant for entry in done if entry.action != "savepoint"}
    times = Counter([*requested, *(entry.completion for entry in done)])
    for time, count in times.items():
        report.check(count == 1, "timeline.times", time, f"used {count} times")
    for entry in done:
        report.check(entry.completion > entry.instant, "timeline.order", entry.instant, f"completed {entry.completion}")


def _check_content(path: Path, action: str, state: str, report: Report) -> None:
    done = (METADATA_RECORD.get(action, EMPTY),)
    legal = done if state == "completed" else CONTENT.get((action, state), (EMPTY,))
    raw = path.read_bytes()
    if not raw:
        report.check(EMPTY in legal, "timeline.content", path.name, "is empty")
        return
    names = [name for name in legal if name]
    if not report.check(bool(names), "timeline.content", path.name, "is not empty"):
        return
    with report.guard("timeline.container", path.name):
        container = Container(raw)
        report.equal(sorted(container.metadata), ["avro.schema"], "timeline.container", path.name)
        report.equal(container.counts, [1], "timeline.container", path.name)
        writer = json.loads(container.metadata["avro.schema"])
        found = f"{writer.get('namespace')}.{writer.get('name')}"
        wanted = f"org.apache.hudi.avro.model.{names[0]}"
        report.equal(found, wanted, "timeline.container", path.name)
    with report.guard("timeline.record", path.name):
        record = read_record(raw, names[0])
        if names[0] == "HoodieCompactionPlan":
            _check_plan(path, record, report)


def _check_plan(path: Path, plan: dict[str, Any], report: Report) -> None:
    instant = path.name[:17]
    report.check(plan["version"] in (2, 3), "plan.version", path.name, plan["version"])
    kinds = {"log": 0, "deletes": 1, "cdc": 2}
    # A savepoint has the requested time of the write that it keeps.
    completed = (p.name for p in path.parent.glob("*_*") if p.suffix != ".savepoint")
    completions = {name[:17]: name[18:35] for name in completed}
    for operation in plan["operations"] or []:
        logs = [parse_name(Path(name), "") for name in operation["deltaFilePaths"] or []]
        named = [file for file in logs if file is not None and file.kind in kinds]
        if not report.equal(len(named), len(logs), "plan.names", path.name):
            continue
        order = [(file.instant, file.version, kinds[file.kind], file.token) for file in named]
        report.check(order == sorted(order), "plan.order", path.name, operation["fileId"])
        for file in named:
            report.equal(file.file_id, operation["fileId"], "plan.names", path.name)
            late = completions.get(file.instant, "") >= instant
            report.check(not late, "plan.late-log", path.name, file.name)


def _check_commit(where: str, metadata: dict[str, Any], states: States, report: Report) -> None:
    operation = metadata.get("operationType")
    report.check(operation in OPERATIONS, "commit.operation", where, operation)
    report.equal(bool(metadata.get("compacted")), operation in ("COMPACT", "LOG_COMPACT"), "commit.compacted", where)
    report.check(metadata.get("version") in (None, 1), "commit.version", where, metadata.get("version"))
    for pending in states.actions["requested"]:
        services = set(SERVICE.values())
        fits = operation == SERVICE[pending] if pending in SERVICE else operation not in services
        report.check(fits, "commit.operation", where, f"{operation} of a {pending}")
    text = (metadata.get("extraMetadata") or {}).get("schema")
    if report.check(bool(text), "commit.schema", where, "no schema in the extra metadata"):
        with report.guard("commit.schema", where):
            names = arrow_schema(json.loads(str(text))).names
            stray = {*META, OPERATION} & set(names)
            report.check(not stray, "commit.schema", where, f"meta columns {sorted(stray)}")


def _check_history(table: Table, report: Report) -> None:
    with report.guard("history.unreadable", "history"):
        folder = table.path / ".hoodie" / "timeline" / "history"
        for path in history_files(table.path):
            report.check(path.is_file(), "history.missing", path.name)
        for manifest in folder.glob("manifest_*"):
            for entry in json.loads(manifest.read_text("utf-8"))["files"]:
                path = folder / entry["fileName"]
                if path.is_file():
                    report.equal(entry["fileLen"], path.stat().st_size, "history.size", path.name)
                report.check(
                    bool(re.fullmatch(r"\d+_\d+_\d\.parquet", path.name)), "history.name", path.name, "no such name"
                )
        for entry in read_history(table.path):
            if entry.action in WRITES:
                with report.guard("history.record", entry.instant):
                    entry.metadata()
