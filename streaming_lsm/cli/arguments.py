"""Arguments that several verbs of ``lsm`` take, and what they make of them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from streaming_lsm.cli.output import text_output
from streaming_lsm.query.prune.explanation import Explanation
from streaming_lsm.scripts import key_values
from streaming_lsm.table import LsmTable


def service_arguments(service: argparse.ArgumentParser) -> None:
    """Add the arguments of a verb that changes a table."""
    service.add_argument("table", help="path of the table")
    option_arguments(service)
    dry_run_argument(service)


def dry_run_argument(service: argparse.ArgumentParser) -> None:
    """Add ``--dry-run``."""
    service.add_argument("--dry-run", action="store_true", help="print the plan and change nothing")


def json_argument(verb: argparse.ArgumentParser, what: str) -> None:
    """Add ``--json``.

    Args:
        what: what is printed, for the help.
    """
    verb.add_argument("--json", action="store_true", help=f"print {what}")


def columns_argument(verb: argparse.ArgumentParser) -> None:
    """Add ``--columns``, of which `chosen_columns` returns the names."""
    verb.add_argument("--columns", metavar="A,B", help="the columns to print, in this order")


def chosen_columns(arguments: argparse.Namespace) -> list[str] | None:
    """Return the names of ``--columns``; None without it."""
    return [name.strip() for name in arguments.columns.split(",")] if arguments.columns else None


def explain_argument(verb: argparse.ArgumentParser) -> None:
    """Add ``--explain``, which `explanation_lines` answers."""
    verb.add_argument("--explain", action="store_true", help="tell which files and row groups are read, and why not")


def explanation_lines(told: Explanation, *, as_json: bool) -> list[str]:
    """Return what a query reads and skips, as one JSON document or for people."""
    return [json_line(told.as_dict())] if as_json else [*told.lines()]


def json_line(document: object) -> str:
    """Render a document as one line of JSON."""
    return json.dumps(document, ensure_ascii=False)


def write_result(
    table: LsmTable,
    arguments: argparse.Namespace,
    said: str,
    completed: str | None,
    *,
    changes_nothing: bool | None = None,
    **parts: object,
) -> None:
    """Print what a verb did, or would do, as one JSON document.

    Args:
        said: what it says without ``--json``.
        completed: file name of the completed instant; None if there is none.
        changes_nothing: whether nothing was changed; by default ``--dry-run`` says.
        parts: the verb's own entries.
    """
    dry_run = bool(getattr(arguments, "dry_run", False)) if changes_nothing is None else changes_nothing
    head = {"path": table.path, "dry_run": dry_run, **parts}
    write_lines([json_line({**head, "completed": completed, "said": said})], None)


def option_arguments(service: argparse.ArgumentParser) -> None:
    """Add ``-o`` and ``--properties``."""
    service.add_argument(
        *("-o", "--option"),
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option as listed by `lsm options`; may be repeated",
    )
    service.add_argument("--properties", metavar="FILE", help="Java properties file with options")


def opened(arguments: argparse.Namespace) -> LsmTable:
    """Open the table of a verb with the options of the command line."""
    return LsmTable(arguments.table, given(arguments), properties=arguments.properties)


def given(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of the command line."""
    return key_values(arguments.option)


def write_lines(lines: Sequence[str], output: str | None) -> None:
    """Write lines to a file, or to standard output if there is none."""
    with text_output(output) as to:
        to.write("".join(f"{line}\n" for line in lines))
