"""``lsm verify``: check that the files of a table are there, readable, sorted, and those that were committed."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from streaming_lsm import config
from streaming_lsm.cli.arguments import json_argument, json_line, opened, option_arguments
from streaming_lsm.cli.progress import ProgressLine
from streaming_lsm.engine import LocalEngine
from streaming_lsm.inspection.table_check import TableCheck, check_table
from streaming_lsm.service_job.messages import counted

_UNSOUND = 1


def verify_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm verify``."""
    verb.add_argument("table", help="path of the table")
    verb.add_argument("--quick", action="store_true", help="read the footers of files, and no rows")
    json_argument(verb, "one JSON document")
    option_arguments(verb)
    verb.set_defaults(run=_verify)


def _verify(arguments: argparse.Namespace) -> int:
    table = opened(arguments)
    engine = LocalEngine(table.options[config.READ_THREADS])
    with ProgressLine("files checked") as progress:
        found = check_table(table, engine, progress, quick=arguments.quick)
    if arguments.json:
        print(json_line(_document(table.path, found)))
    else:
        for finding in found.findings:
            print(f"{finding.kind}: {finding.message}")
        print(_summary(found))
    return 0 if found.is_sound else _UNSOUND


def _summary(found: TableCheck) -> str:
    damage = sum(finding.is_damage for finding in found.findings)
    left = len(found.findings) - damage
    said = counted(damage, "fault") if damage else "no faults"
    also = f", {counted(left, 'file')} of no commit" if left else ""
    return f"{counted(found.files, 'live file')}, {counted(found.rows, 'stored row')}: {said}{also}"


def _document(path: str, found: TableCheck) -> dict[str, object]:
    return {
        "path": path,
        "is_sound": found.is_sound,
        "files": found.files,
        "rows": found.rows,
        "findings": [{**asdict(finding), "is_damage": finding.is_damage} for finding in found.findings],
    }
