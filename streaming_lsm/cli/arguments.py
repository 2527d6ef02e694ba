"""Arguments that several verbs of ``lsm`` take, and what they make of them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

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


def json_line(document: object) -> str:
    """Render a document as one line of JSON."""
    return json.dumps(document, ensure_ascii=False)


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
    text = "".join(f"{line}\n" for line in lines)
    if output:
        with open(output, "w", encoding="utf-8") as file:
            file.write(text)
    else:
        sys.stdout.write(text)
