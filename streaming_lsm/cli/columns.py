"""``lsm drop-columns``: drop columns of a table, or fields inside columns."""

from __future__ import annotations

import argparse

from streaming_lsm.cli.arguments import json_argument, opened, service_arguments, write_lines, write_result


def drop_columns_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm drop-columns``."""
    service_arguments(verb)
    verb.add_argument(
        "columns", nargs="+", metavar="COLUMN", help="a column, or a field inside it: items.element.price for a list"
    )
    json_argument(verb, "one JSON document")
    verb.set_defaults(run=_drop_columns)


def _drop_columns(arguments: argparse.Namespace) -> None:
    table, dropped = opened(arguments), list(dict.fromkeys(arguments.columns))
    completed = None
    if arguments.dry_run:
        table.plan_drop_columns(dropped)
        said = f"{', '.join(dropped)} would be dropped"
    else:
        completed = table.drop_columns(dropped).file_name
        said = f"{completed}: {', '.join(dropped)} dropped, files keep the values until they are written anew"
    if arguments.json:
        write_result(table, arguments, said, completed, columns=dropped)
        return
    write_lines([said], None)
