"""The verbs of ``lsm`` that keep a state of a table, or return to one: savepoint."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from streaming_lsm.cli.arguments import opened, option_arguments, write_lines
from streaming_lsm.cli.text_table import TextTable
from streaming_lsm.errors import ConfigError
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
    shown = TextTable(("instant", "made", "user", "comment", "files"), frozenset(("files",)))
    for found in table.savepoints:
        made = datetime.fromtimestamp(found.saved_ms / 1000, UTC).isoformat(" ", "seconds")
        shown.add(found.instant.requested, made, found.user, found.comment, f"{sum(map(len, found.files.values())):,}")
    return shown.lines()
