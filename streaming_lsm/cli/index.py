"""``lsm index``: create, drop, show and verify the indexes of a table, the partitions of its metadata table."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from streaming_lsm import config
from streaming_lsm.cli.arguments import json_argument, json_line, opened, option_arguments, write_lines
from streaming_lsm.cli.text_table import TextTable
from streaming_lsm.config import Option
from streaming_lsm.errors import ConfigError
from streaming_lsm.service_job.messages import counted
from streaming_lsm.services.indexes.check import IndexCheck
from streaming_lsm.services.indexes.inventory import IndexState
from streaming_lsm.services.indexes.names import COLUMN_STATS, EXPRESSION, RECORD_INDEX, SECONDARY
from streaming_lsm.table import LsmTable

_UNSOUND = 1
_PARTITION = (
    "partition of the metadata table: files, column_stats, partition_stats, bloom_filters, record_index, "
    "secondary_index_NAME or expr_index_NAME"
)


def index_verb(verb: argparse.ArgumentParser) -> None:
    """Add the verbs of ``lsm index``."""
    verbs = verb.add_subparsers(title="commands", required=True, metavar="COMMAND")
    create = _arguments(verbs.add_parser("create", help="make an index of all rows and files, while writers go on"))
    create.add_argument("partition", metavar="PARTITION", help=_PARTITION)
    create.add_argument(
        "--columns",
        metavar="A,B",
        help="of column_stats, by default the first 32; of an index by value or of an expression",
    )
    create.add_argument("--function", metavar="NAME", help="of an expression index: year, month, day, hour or lower")
    create.add_argument("--by-partition", action="store_true", help="of record_index: file groups for each partition")
    create.set_defaults(run=_create)
    drop = _arguments(verbs.add_parser("drop", help="drop an index; files with all others"))
    drop.add_argument("partition", metavar="PARTITION", help=_PARTITION)
    drop.set_defaults(run=_drop)
    show = _arguments(verbs.add_parser("show", help="list the indexes that there are, and those that there could be"))
    show.add_argument("partition", nargs="?", metavar="PARTITION", help=_PARTITION)
    show.set_defaults(run=_show)
    verify = _arguments(verbs.add_parser("verify", help="compare indexes with the files of the table"))
    verify.add_argument("partition", nargs="?", metavar="PARTITION", help=_PARTITION)
    verify.add_argument("--repair", action="store_true", help="drop those that differ, and create them again")
    verify.set_defaults(run=_verify)


def _arguments(verb: argparse.ArgumentParser) -> argparse.ArgumentParser:
    verb.add_argument("table", help="path of the table")
    json_argument(verb, "one JSON document")
    option_arguments(verb)
    return verb


def _create(arguments: argparse.Namespace) -> None:
    _refuse_others(arguments)
    form = {}
    if arguments.columns:
        form[_columns_option(arguments.partition).key] = arguments.columns
    if arguments.function:
        form[config.EXPRESSION_FUNCTION.key] = arguments.function
    if arguments.by_partition:
        form[config.PARTITIONED_RECORD_INDEX.key] = "true"
    table, name = opened(arguments), arguments.partition
    _check_form(name, arguments, table)
    table.create_index(name, form)
    made = next(state for state in table.indexes() if state.name == name)
    said = f"created {name}: {counted(made.records, 'record')} in {counted(made.file_groups, 'file group')}"
    _tell(table, arguments, said, partition=name)


def _refuse_others(arguments: argparse.Namespace) -> None:
    """Refuse arguments that say nothing about the partition."""
    name: str = arguments.partition
    of_columns = name == COLUMN_STATS or name.startswith((SECONDARY, EXPRESSION))
    for flag, given, applies in (
        ("--columns", arguments.columns, of_columns),
        ("--function", arguments.function, name.startswith(EXPRESSION)),
        ("--by-partition", arguments.by_partition, name == RECORD_INDEX),
    ):
        if given and not applies:
            raise ConfigError(f"{flag} says nothing about {name}: leave it out, see lsm index create --help")


def _check_form(name: str, arguments: argparse.Namespace, table: LsmTable) -> None:
    """Check that the arguments, or the options in place of them, name what the index is of."""
    columns = None if arguments.columns is None else [part.strip() for part in arguments.columns.split(",")]
    if columns is not None and not all(columns):
        raise ConfigError(f"--columns {arguments.columns!r}: a name is empty; give names of columns, as in A,B")
    if not name.startswith((SECONDARY, EXPRESSION)):
        return
    if columns is None and not table.options.is_set(_columns_option(name)):
        raise ConfigError(f"{name} is an index of one column: name it by --columns")
    if columns is not None and len(columns) > 1:
        raise ConfigError(f"--columns {arguments.columns}: {name} is an index of one column")
    if name.startswith(EXPRESSION) and not (arguments.function or table.options.is_set(config.EXPRESSION_FUNCTION)):
        raise ConfigError(f"{name} is an index of an expression: name its function by --function, see --help")


def _columns_option(partition: str) -> Option[Any]:
    if partition.startswith(SECONDARY):
        return config.SECONDARY_INDEX_COLUMN
    return config.EXPRESSION_COLUMN if partition.startswith(EXPRESSION) else config.METADATA_RANGED_COLUMNS


def _drop(arguments: argparse.Namespace) -> None:
    table, name = opened(arguments), arguments.partition
    table.drop_index(name)
    _tell(table, arguments, f"dropped {name}", partition=name)


def _tell(table: LsmTable, arguments: argparse.Namespace, said: str, **parts: object) -> None:
    write_lines([json_line({"path": table.path, **parts, "said": said}) if arguments.json else said], None)


def _show(arguments: argparse.Namespace) -> None:
    table, name = opened(arguments), arguments.partition
    found = [state for state in table.indexes() if name in (None, state.name)]
    if not found:
        raise ConfigError(f"{table.path} has no index {name!r}, and it is not one that can be created")
    if arguments.json:
        document = {"path": table.path, "indexes": [{**asdict(one), "columns": list(one.columns)} for one in found]}
        write_lines([json_line(document)], None)
    else:
        write_lines([*_state_lines(found)], None)


def _state_lines(found: Sequence[IndexState]) -> Iterator[str]:
    numbers = ("file groups", "base files", "logs", "bytes", "records")
    shown = TextTable(
        ("index", "state", *numbers, "until", "columns"), frozenset(numbers), frozenset(("index", "until"))
    )
    for one in found:
        told = (one.file_groups, one.base_files, one.logs, one.bytes, one.records)
        cells = [f"{number:,}" if one.file_groups else "" for number in told]
        shown.add(one.name, one.state, *cells, one.until, ", ".join(one.columns))
    yield from shown.lines()
    yield from (f"{one.name}: {one.note}" for one in found if one.note)
    yield from (f"{one.name}: the next write drops it" for one in found if not (one.is_kept or one.note))


def _verify(arguments: argparse.Namespace) -> int:
    table = opened(arguments)
    found, rebuilt = table.check_indexes(arguments.partition), list[str]()
    if arguments.repair and not found.is_sound:
        rebuilt = table.rebuild_indexes(list(dict.fromkeys(one.index for one in found.findings)))
    after = table.check_indexes(arguments.partition) if rebuilt else found
    if arguments.json:
        write_lines([json_line(_document(table.path, found, rebuilt, after))], None)
    else:
        write_lines([*_check_lines(found, rebuilt, after)], None)
    return 0 if after.is_sound else _UNSOUND


def _document(path: str, found: IndexCheck, rebuilt: Sequence[str], after: IndexCheck) -> dict[str, object]:
    return {
        "path": path,
        "is_sound": after.is_sound,
        "records": dict(after.records),
        "findings": [asdict(one) for one in found.findings],
        "unchecked": dict(after.unchecked),
        "rebuilt": list(rebuilt),
    }


def _check_lines(found: IndexCheck, rebuilt: Sequence[str], after: IndexCheck) -> Iterator[str]:
    if found.findings:
        shown = TextTable(("index", "finding", "what"), whole=frozenset(("index",)))
        for one in found.findings:
            shown.add(one.index, one.kind, one.message)
        yield from shown.lines()
    if rebuilt:
        yield f"built again: {', '.join(rebuilt)}"
        yield from (f"still {one.kind} in {one.index}: {one.message}" for one in after.findings)
    yield from (f"not compared: {name}: {why}" for name, why in after.unchecked.items())
    told = ", ".join(f"{name} ({number:,})" for name, number in after.records.items()) or "no index"
    left = counted(len(after.findings), "finding") if after.findings else "no differences"
    yield f"compared {told}: {left}"
