"""The verbs of ``lsm`` that keep a state of a table, or undo a write: savepoint, restore, rollback."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from streaming_lsm.cli.arguments import dry_run_argument, opened, option_arguments, write_lines
from streaming_lsm.cli.text_table import TextTable
from streaming_lsm.errors import ConfigError
from streaming_lsm.format.actions.restore import RestoreMetadata
from streaming_lsm.format.actions.rollback import RollbackMetadata
from streaming_lsm.service_job.messages import counted
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
    verb.set_defaults(run=_savepoint)


def rollback_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm rollback``."""
    verb.add_argument("table", help="path of the table")
    verb.add_argument("instant", nargs="?", help="requested time of the last completed write, to be sure of it")
    option_arguments(verb)
    dry_run_argument(verb)
    verb.set_defaults(run=_rollback)


def _rollback(arguments: argparse.Namespace) -> None:
    table = opened(arguments)
    if arguments.dry_run:
        found = table.plan_rollback(arguments.instant)
        write_lines([*found.files, f"{found.write.file_name} would be rolled back: {len(found.files)} files"], None)
        return
    done = table.rollback(arguments.instant)
    undone = RollbackMetadata.decode(table.storage.read(done.path), done.path)
    count = sum(len(partition.deleted) for partition in undone.partitions)
    print(f"{done.file_name}: {undone.instant}.{undone.action} is rolled back, {counted(count, 'file')} deleted")


def restore_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm restore``."""
    verb.add_argument("table", help="path of the table")
    verb.add_argument("instant", help="the savepoint, as `lsm savepoint --list` shows it")
    option_arguments(verb)
    dry_run_argument(verb)
    verb.set_defaults(run=_restore)


def _restore(arguments: argparse.Namespace) -> None:
    table = opened(arguments)
    if arguments.dry_run:
        undone = table.plan_restore(arguments.instant).undone
        write_lines(
            [*(action.file_name for action in undone), f"{counted(len(undone), 'action')} would be undone"], None
        )
        return
    done = table.restore(arguments.instant)
    undone_actions = RestoreMetadata.decode(table.storage.read(done.path), done.path).undone
    print(f"{done.file_name}: {counted(len(undone_actions), 'action')} undone, the table is as of {arguments.instant}")


def _savepoint(arguments: argparse.Namespace) -> None:
    if arguments.delete and (arguments.list or not arguments.instant):
        raise ConfigError("--delete needs the INSTANT of a savepoint, and does not take --list")
    table = opened(arguments)
    if arguments.list:
        write_lines(_savepoint_lines(table), None)
    elif arguments.delete:
        table.delete_savepoint(arguments.instant)
        print(f"deleted the savepoint of {arguments.instant}: its files are cleaned as any other")
    else:
        made = table.savepoint(arguments.instant, user=arguments.user, comment=arguments.comment)
        print(f"{made.file_name}: the table as of {made.requested} is kept")


def _savepoint_lines(table: LsmTable) -> list[str]:
    headings = ("instant", "made", "user", "comment", "files")
    shown = TextTable(headings, frozenset(("files",)), frozenset(("instant", "made")))
    for found in table.savepoints:
        made = datetime.fromtimestamp(found.saved_ms / 1000, UTC).isoformat(" ", "seconds")
        shown.add(found.instant.requested, made, found.user, found.comment, f"{sum(map(len, found.files.values())):,}")
    return shown.lines()
