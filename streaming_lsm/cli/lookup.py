"""``lsm lookup``: the rows of some record keys."""

from __future__ import annotations

import argparse
import json

from streaming_lsm.cli.arguments import json_argument, opened, option_arguments, write_lines
from streaming_lsm.cli.text_table import TextTable
from streaming_lsm.query.text.json_lines import json_texts


def lookup_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm lookup``."""
    verb.add_argument("table", help="path of the table")
    verb.add_argument("keys", nargs="+", metavar="key", help="a record key, as in _hoodie_record_key")
    verb.add_argument("--as-of", metavar="T", help="an instant, or a time such as '2026-11-20 10:00'; default now")
    verb.add_argument("--columns", metavar="A,B", help="the columns to print, in this order")
    verb.add_argument("--explain", action="store_true", help="tell which files and row groups are read, and why not")
    json_argument(verb, "one JSON object per row")
    option_arguments(verb)
    verb.set_defaults(run=_lookup)


def _lookup(arguments: argparse.Namespace) -> None:
    table = opened(arguments)
    columns = [name.strip() for name in arguments.columns.split(",")] if arguments.columns else None
    if arguments.explain:
        told = table.explain_lookup(arguments.keys, arguments.as_of)
        write_lines([json.dumps(told.as_dict())] if arguments.json else [*told.lines()], None)
        return
    rows = table.lookup(arguments.keys, columns, arguments.as_of)
    if arguments.json:
        lines = [str(line) for batch in rows.to_batches() for line in json_texts(batch, zone=True).to_pylist()]
        write_lines(lines, None)
        return
    shown = TextTable(rows.schema.names)
    for row in rows.to_pylist():
        shown.add(*("" if value is None else str(value) for value in row.values()))
    write_lines(shown.lines(), None)
