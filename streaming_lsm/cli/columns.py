"""``lsm drop-columns``, ``lsm rename-columns``: change columns of a table, or fields inside columns."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from streaming_lsm.cli.arguments import json_argument, opened, service_arguments, write_lines, write_result
from streaming_lsm.errors import ConfigError
from streaming_lsm.table import LsmTable


def drop_columns_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm drop-columns``."""
    service_arguments(verb)
    verb.add_argument(
        "columns", nargs="+", metavar="COLUMN", help="a column, or a field inside it: items.element.price for a list"
    )
    json_argument(verb, "one JSON document")
    verb.set_defaults(run=_drop_columns)


def rename_columns_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm rename-columns``."""
    service_arguments(verb)
    verb.add_argument(
        "names",
        nargs="+",
        metavar="COLUMN=NAME",
        help="a column, or a field inside it, and its new name: note=remark, items.element.price=amount",
    )
    json_argument(verb, "one JSON document")
    verb.set_defaults(run=_rename_columns)


def _drop_columns(arguments: argparse.Namespace) -> None:
    table, dropped = opened(arguments), list(dict.fromkeys(arguments.columns))
    told = ", ".join(dropped)
    if arguments.dry_run:
        table.plan_drop_columns(dropped)
        _tell(table, arguments, f"{told} would be dropped", None, columns=dropped)
        return
    completed = table.drop_columns(dropped).file_name
    said = f"{completed}: {told} dropped, files keep the values until they are written anew"
    _tell(table, arguments, said, completed, columns=dropped)


def _rename_columns(arguments: argparse.Namespace) -> None:
    table, names = opened(arguments), _new_names(arguments.names)
    told = ", ".join(f"{old} to {new}" for old, new in names.items())
    if arguments.dry_run:
        table.plan_rename_columns(names)
        _tell(table, arguments, f"{told} would be renamed", None, names=names)
        return
    completed = table.rename_columns(names).file_name
    said = f"{completed}: {told} renamed; Hudi's readers need hoodie.schema.on.read.enable=true from now on"
    _tell(table, arguments, said, completed, names=names)


def _tell(table: LsmTable, arguments: argparse.Namespace, said: str, completed: str | None, **parts: Any) -> None:
    if arguments.json:
        write_result(table, arguments, said, completed, **parts)
    else:
        write_lines([said], None)


def _new_names(pairs: Sequence[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for pair in pairs:
        old, sign, new = pair.partition("=")
        if not (old and sign and new):
            raise ConfigError(f"{pair!r}: expected COLUMN=NAME, such as note=remark")
        if names.setdefault(old, new) != new:
            raise ConfigError(f"{pair!r}: column {old!r} has another new name, {names[old]!r}, already")
    return names
