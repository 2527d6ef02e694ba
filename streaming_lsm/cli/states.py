"""The verbs of ``lsm`` that keep a state of a table, or undo a write: savepoint, restore, rollback."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from streaming_lsm.cli.arguments import (
    dry_run_argument,
    json_argument,
    opened,
    option_arguments,
    write_lines,
    write_result,
)
from streaming_lsm.cli.text_table import TextTable
from streaming_lsm.errors import ConfigError
from streaming_lsm.format.actions.commit import file_path
from streaming_lsm.format.actions.restore import RestoreMetadata
from streaming_lsm.format.actions.rollback import RollbackMetadata
from streaming_lsm.service_job.messages import counted
from streaming_lsm.services.savepoints import Savepoint, savepoint_to_delete
from streaming_lsm.table import LsmTable


def savepoint_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm savepoint``."""
    verb.add_argument("table", help="path of the table")
    verb.add_argument("instant", nargs="?", help="requested time of a completed write; default the last one")
    verb.add_argument("--delete", action="store_true", help="delete the savepoint of INSTANT")
    verb.add_argument("--list", action="store_true", help="list the savepoints, and change nothing")
    verb.add_argument("--user", default="", help="who makes it, for the list")
    verb.add_argument("--comment", default="", help="why it is made, for the list")
    option_arguments(verb)
    dry_run_argument(verb)
    json_argument(verb, "one JSON document")
    verb.set_defaults(run=_savepoint)


def rollback_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm rollback``."""
    verb.add_argument("table", help="path of the table")
    verb.add_argument("instant", nargs="?", help="requested time of the last completed write, to be sure of it")
    option_arguments(verb)
    dry_run_argument(verb)
    json_argument(verb, "one JSON document")
    verb.set_defaults(run=_rollback)


def _rollback(arguments: argparse.Namespace) -> None:
    table = opened(arguments)
    completed = None
    if arguments.dry_run:
        found = table.plan_rollback(arguments.instant)
        undone, files = found.write.file_name, list(found.files)
        said = f"{undone} would be rolled back: {len(files)} files"
    else:
        done = table.rollback(arguments.instant)
        completed = done.file_name
        content = RollbackMetadata.decode(table.storage.read(done.path), done.path)
        undone = f"{content.instant}.{content.action}"
        files = [
            file_path(partition.partition_path, path.rpartition("/")[2])
            for partition in content.partitions
            for path in partition.deleted
        ]
        said = f"{completed}: {undone} is rolled back, {counted(len(files), 'file')} deleted"
    if arguments.json:
        write_result(table, arguments, said, completed, undone=undone, files=files)
    else:
        write_lines([*(files if arguments.dry_run else ()), said], None)


def restore_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm restore``."""
    verb.add_argument("table", help="path of the table")
    verb.add_argument("instant", help="the savepoint, as `lsm savepoint --list` shows it")
    option_arguments(verb)
    dry_run_argument(verb)
    json_argument(verb, "one JSON document")
    verb.set_defaults(run=_restore)


def _restore(arguments: argparse.Namespace) -> None:
    table = opened(arguments)
    completed = None
    if arguments.dry_run:
        undone = [action.file_name for action in table.plan_restore(arguments.instant).undone]
        said = f"{counted(len(undone), 'action')} would be undone"
    else:
        done = table.restore(arguments.instant)
        completed = done.file_name
        content = RestoreMetadata.decode(table.storage.read(done.path), done.path)
        undone = [f"{requested}.{action}" for requested, action in content.undone]
        said = f"{completed}: {counted(len(undone), 'action')} undone, the table is as of {arguments.instant}"
    if arguments.json:
        write_result(table, arguments, said, completed, savepoint=arguments.instant, undone=undone)
    else:
        write_lines([*(undone if arguments.dry_run else ()), said], None)


def _savepoint(arguments: argparse.Namespace) -> None:
    if arguments.delete and (arguments.list or not arguments.instant):
        raise ConfigError("--delete needs the INSTANT of a savepoint, and does not take --list")
    table = opened(arguments)
    completed, said = None, ""
    if arguments.dry_run and not arguments.list:
        said = _preview(table, arguments)
    elif arguments.delete:
        table.delete_savepoint(arguments.instant)
        said = f"deleted the savepoint of {arguments.instant}: its files are cleaned as any other"
    elif not arguments.list:
        made = table.savepoint(arguments.instant, user=arguments.user, comment=arguments.comment)
        completed = made.file_name
        said = f"{completed}: the table as of {made.requested} is kept"
    if arguments.json:
        kept = [_document(found) for found in table.savepoints]
        nothing = arguments.list or arguments.dry_run
        write_result(table, arguments, said, completed, changes_nothing=nothing, savepoints=kept)
    else:
        write_lines(_savepoint_lines(table) if arguments.list else [said], None)


def _preview(table: LsmTable, arguments: argparse.Namespace) -> str:
    if arguments.delete:
        found = savepoint_to_delete(table.timeline, arguments.instant, table.path)
        return f"the savepoint of {found.requested} would be deleted"
    write, files = table.plan_savepoint(arguments.instant)
    return f"the table as of {write.requested} would be kept: {counted(sum(map(len, files.values())), 'file')}"


def _document(found: Savepoint) -> dict[str, object]:
    return {
        "instant": found.instant.requested,
        "made_ms": found.saved_ms,
        "user": found.user,
        "comment": found.comment,
        "files": {path: list(names) for path, names in found.files.items()},
    }


def _savepoint_lines(table: LsmTable) -> list[str]:
    headings = ("instant", "made", "user", "comment", "files")
    shown = TextTable(headings, frozenset(("files",)), frozenset(("instant", "made")))
    for found in table.savepoints:
        made = datetime.fromtimestamp(found.saved_ms / 1000, UTC).isoformat(" ", "seconds")
        shown.add(found.instant.requested, made, found.user, found.comment, f"{sum(map(len, found.files.values())):,}")
    return shown.lines()
