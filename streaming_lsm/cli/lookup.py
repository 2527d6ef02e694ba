"""``lsm lookup``: the rows of some record keys."""

from __future__ import annotations

import argparse

from streaming_lsm.cli.arguments import (
    chosen_columns,
    columns_argument,
    explain_argument,
    explanation_lines,
    json_argument,
    opened,
    option_arguments,
    write_lines,
)
from streaming_lsm.cli.text_table import row_lines
from streaming_lsm.query.text.json_lines import json_lines


def lookup_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm lookup``."""
    verb.add_argument("table", help="path of the table")
    verb.add_argument("keys", nargs="+", metavar="key", help="a record key, as in _hoodie_record_key")
    verb.add_argument("--as-of", metavar="T", help="an instant, or a time such as '2026-11-20 10:00'; default now")
    columns_argument(verb)
    explain_argument(verb)
    json_argument(verb, "one JSON object per row")
    option_arguments(verb)
    verb.set_defaults(run=_lookup)


def _lookup(arguments: argparse.Namespace) -> None:
    table = opened(arguments)
    if arguments.explain:
        told = table.explain_lookup(arguments.keys, arguments.as_of)
        write_lines(explanation_lines(told, as_json=arguments.json), None)
        return
    rows = table.lookup(arguments.keys, chosen_columns(arguments), arguments.as_of)
    write_lines([*json_lines(rows, zone=True)] if arguments.json else row_lines(rows), None)
