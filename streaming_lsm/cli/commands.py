"""Parse and run the verbs of ``lsm``: read a table, compact, clean, archive, copy, upgrade it.

Those that look at a table, and those that keep or undo states, are in modules of their own.

*Verb*: a subcommand; each parses its arguments, calls `LsmTable` and prints the result. ``read`` and the service verbs
take options by ``-o`` and ``--properties``. *Service verb*: a verb that changes a table; it takes ``--dry-run``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from streaming_lsm import __version__
from streaming_lsm.cli.archive import archive_verb
from streaming_lsm.cli.arguments import (
    dry_run_argument,
    given,
    opened,
    option_arguments,
    service_arguments,
    write_lines,
)
from streaming_lsm.cli.clean import clean_verb
from streaming_lsm.cli.compact import compact_verb
from streaming_lsm.cli.files import files_verb
from streaming_lsm.cli.history import history_verb
from streaming_lsm.cli.options_page import options_page
from streaming_lsm.cli.partitions import delete_partitions_verb, expire_partitions_verb
from streaming_lsm.cli.repair import repair_verb
from streaming_lsm.cli.show import show_verb
from streaming_lsm.cli.states import restore_verb, rollback_verb, savepoint_verb
from streaming_lsm.cli.text_table import TextTable
from streaming_lsm.cli.timeline import timeline_verb
from streaming_lsm.cli.verify import verify_verb
from streaming_lsm.errors import ConfigError, LsmError
from streaming_lsm.format.table.properties import CURRENT_VERSION, DEFAULT_LAYOUT, LSM_TREE, WRITE_VERSIONS
from streaming_lsm.read.queries import CDC, INCREMENTAL, QUERY_TYPES, SNAPSHOT
from streaming_lsm.read.scan import Scan
from streaming_lsm.read.text.change_lines import change_lines
from streaming_lsm.read.text.json_lines import json_lines
from streaming_lsm.read.text.where import parse_where
from streaming_lsm.schema import META_COLUMNS, PARTITION_PATH, RECORD_KEY, with_meta
from streaming_lsm.scripts import INTERRUPTED, fail
from streaming_lsm.service_job.messages import counted
from streaming_lsm.table import LsmTable
from streaming_lsm.table_copy import plan_copy

FORMATS = ("table", "jsonl", "csv", "parquet")
_SHOWN_ROWS = 50


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb.

    Returns:
        The exit status: 0 on success, 1 if ``lsm verify`` found faults, 2 after an error, which is printed as one line,
        130 after Ctrl-C.
    """
    parsed = _parser().parse_args(arguments)
    status: int | None = 0
    try:
        status = parsed.run(parsed)
        sys.stdout.flush()
    except LsmError as error:
        return fail("lsm", error, 2)
    except KeyboardInterrupt:
        return fail("lsm", "interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of the pipe, such as head, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        return fail("lsm", f"{error.filename or 'input or output'}: {error.strerror or error}", 2)
    except pa.ArrowInvalid as error:
        return fail("lsm", f"the rows cannot be written in this format: {error}; use jsonl or parquet", 2)
    return status or 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lsm", description="Read, compact, clean, copy and upgrade Hudi tables.")
    parser.add_argument("--version", action="version", version=f"lsm {__version__}")
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _read_arguments(verbs.add_parser("read", help="print the rows or the changes of a table"))
    show_verb(verbs.add_parser("show", help="show the settings of a table, and which services are due and why not"))
    files_verb(verbs.add_parser("files", help="list the file groups of a table, their slices, files and sorted runs"))
    verify_verb(verbs.add_parser("verify", help="check that all files are there, readable, sorted and as committed"))
    history_verb(verbs.add_parser("history", help="list the versions of a record key in the files"))
    timeline_verb(verbs.add_parser("timeline", help="list the table's actions"))
    compact_verb(verbs.add_parser("compact", help="merge log files into base files"))
    clean_verb(verbs.add_parser("clean", help="delete file slices that no retained commit needs"))
    archive_verb(verbs.add_parser("archive", help="move old actions from the timeline into the history"))
    savepoint_verb(verbs.add_parser("savepoint", help="keep the table as of a write, or list what is kept"))
    restore_verb(verbs.add_parser("restore", help="return to a savepoint: undo all that was done after it"))
    rollback_verb(verbs.add_parser("rollback", help="undo the last completed write"))
    delete_partitions_verb(verbs.add_parser("delete-partitions", help="delete all rows of some partitions"))
    expire_partitions_verb(verbs.add_parser("expire-partitions", help="delete the partitions that have expired"))
    repair_verb(verbs.add_parser("repair", help="rebuild a lost timeline from data files: proposal first"))
    upgrade = verbs.add_parser("upgrade", help="raise the version of a table, or change its storage layout")
    service_arguments(upgrade)
    upgrade.add_argument(
        "--to",
        type=int,
        choices=WRITE_VERSIONS,
        metavar="VERSION",
        help="9 or 10, default 10; with --storage-layout alone the version stays",
    )
    upgrade.add_argument("--storage-layout", choices=(DEFAULT_LAYOUT, LSM_TREE), help="stays as it is if left out")
    upgrade.set_defaults(run=_upgrade)
    downgrade = verbs.add_parser("downgrade", help="lower the version of a table, for older readers")
    service_arguments(downgrade)
    older = [version for version in WRITE_VERSIONS if version < CURRENT_VERSION]
    downgrade.add_argument(
        "--to", type=int, choices=older, metavar="VERSION", default=max(older), help="9 or 8, default 9"
    )
    downgrade.set_defaults(run=_downgrade)
    copy = verbs.add_parser("copy", help="write the rows of a table to a new one")
    copy.add_argument("table", help="path of the table to copy, of any readable version")
    copy.add_argument("target", help="path of the new table, or of the target of an interrupted copy")
    option_arguments(copy)
    dry_run_argument(copy)
    copy.set_defaults(run=_copy)
    options = verbs.add_parser("options", help="print all options with their defaults as Markdown")
    options.set_defaults(run=lambda _: print(options_page(), end=""))
    return parser


def _read_arguments(read: argparse.ArgumentParser) -> None:
    read.add_argument("table", help="path of the table")
    read.add_argument("--as-of", metavar="T", help="an instant, or a time such as '2026-11-20 10:00'; default now")
    read.add_argument("--query-type", choices=QUERY_TYPES, default=SNAPSHOT, help="default snapshot")
    read.add_argument("--begin", metavar="T", help="incremental and cdc: writes completed after T; 000 for all")
    read.add_argument("--end", metavar="T", help="incremental and cdc: writes completed at T or before; default all")
    read.add_argument("--columns", metavar="A,B", help="the columns to print, in this order")
    read.add_argument("--where", metavar="FILTER", help="for example: qty > 5 and country in ('DE', 'FR')")
    read.add_argument("--meta", action="store_true", help="add the five _hoodie_ columns")
    read.add_argument("--format", choices=FORMATS, default="table", help=f"default table: the first {_SHOWN_ROWS} rows")
    read.add_argument("--explain", action="store_true", help="tell which files and row groups are read, and why not")
    read.add_argument("--output", metavar="FILE", help="write to FILE instead of standard output; required for parquet")
    option_arguments(read)
    read.set_defaults(run=_read)


def _read(arguments: argparse.Namespace) -> None:
    _check_read(arguments)
    table = opened(arguments)
    if arguments.query_type == CDC:
        _read_changes(table, arguments)
        return
    if arguments.explain:
        _explain(_scan(table, arguments), arguments)
        return
    if arguments.format == "jsonl":
        write_lines(_sorted_lines(table, arguments), arguments.output)
        return
    _show(_scan(table, arguments).to_arrow(), arguments)


def _check_read(arguments: argparse.Namespace) -> None:
    """Refuse options that the query type does not take."""
    query = arguments.query_type
    by_time = query in (INCREMENTAL, CDC)
    if by_time and not arguments.begin:
        raise ConfigError(f"--query-type {query} needs --begin, for example --begin 000 for all writes")
    unused = ["as_of"] if by_time else ["begin", "end"]
    if query == CDC:
        unused += ["columns", "where", "meta", "explain"]
    extra = [f"--{name.replace('_', '-')}" for name in unused if getattr(arguments, name)]
    if extra:
        raise ConfigError(f"--query-type {query} does not take {', '.join(extra)}: leave it out")


def _scan(table: LsmTable, arguments: argparse.Namespace, columns: Sequence[str] | None = None) -> Scan:
    """Describe the scan of the arguments; `columns` replaces those of ``--columns``."""
    where = parse_where(arguments.where, with_meta(table.schema)) if arguments.where else None
    if columns is None and arguments.columns:
        columns = [name.strip() for name in arguments.columns.split(",")]
    if arguments.query_type == INCREMENTAL:
        return table.incremental(arguments.begin, arguments.end, columns, where, meta=arguments.meta)
    return table.scan(columns, where, arguments.as_of, meta=arguments.meta, query_type=arguments.query_type)


def _explain(scan: Scan, arguments: argparse.Namespace) -> None:
    told = scan.explain()
    write_lines([json.dumps(told.as_dict())] if arguments.format == "jsonl" else [*told.lines()], arguments.output)


def _read_changes(table: LsmTable, arguments: argparse.Namespace) -> None:
    changes = table.changes(arguments.begin, arguments.end).to_arrow()
    if arguments.format == "jsonl":
        write_lines(sorted(change_lines(changes)), arguments.output)
    else:
        _show(changes, arguments)


def _show(rows: pa.Table, arguments: argparse.Namespace) -> None:
    if arguments.format == "parquet":
        if not arguments.output:
            raise ConfigError("--format parquet needs --output FILE")
        with open(arguments.output, "wb") as file:
            pq.write_table(rows, file)
    elif arguments.format == "csv":
        _write_csv(rows, arguments.output)
    else:
        write_lines(_table_lines(rows), arguments.output)


def _write_csv(rows: pa.Table, output: str | None) -> None:
    nested = [field for field in rows.schema if pa.types.is_nested(field.type)]
    if nested:
        raise ConfigError(f"column {nested[0].name!r} has type {nested[0].type}, which CSV cannot hold: use jsonl")
    if output:
        # Opened here, as Arrow's own errors do not have the file name where `main` looks for it.
        with open(output, "wb") as file:
            pa.csv.write_csv(rows, file)
    else:
        pa.csv.write_csv(rows, sys.stdout.buffer)


def _sorted_lines(table: LsmTable, arguments: argparse.Namespace) -> list[str]:
    """Sort rows by partition path, record key and text, so that the outputs of two readers are comparable files."""
    shown = _scan(table, arguments)
    keyed = _scan(table, arguments, [*dict.fromkeys([*shown.columns, PARTITION_PATH, RECORD_KEY])]).to_arrow()
    paths, keys = keyed.column(PARTITION_PATH).to_pylist(), keyed.column(RECORD_KEY).to_pylist()
    lines = json_lines(keyed.select(list(shown.columns)))
    return [line for *_, line in sorted(zip(paths, keys, lines, strict=True))]


def _table_lines(rows: pa.Table) -> list[str]:
    shown = TextTable(rows.schema.names)
    for row in rows.slice(0, _SHOWN_ROWS).to_pylist():
        shown.add(*map(_cell, row.values()))
    lines = shown.lines()
    hidden = rows.num_rows - _SHOWN_ROWS
    return [*lines, f"… and {counted(hidden, 'more row')}; --format jsonl prints all"] if hidden > 0 else lines


def _cell(value: object) -> str:
    """Format a value; the images of a change are shown without meta columns, as rows are."""
    if isinstance(value, dict):
        value = {name: each for name, each in value.items() if name not in META_COLUMNS}
    return "" if value is None else str(value)


def _upgrade(arguments: argparse.Namespace) -> None:
    target = CURRENT_VERSION if arguments.to is None and arguments.storage_layout is None else arguments.to
    _change_version(arguments, target, arguments.storage_layout, up=True)


def _downgrade(arguments: argparse.Namespace) -> None:
    _change_version(arguments, arguments.to, None, up=False)


def _change_version(arguments: argparse.Namespace, target: int | None, layout: str | None, *, up: bool) -> None:
    table = opened(arguments)
    if target is not None and (target < table.config.version if up else target > table.config.version):
        other = "downgrade" if up else "upgrade"
        raise ConfigError(f"the table has version {table.config.version}: use lsm {other} --to {target}")
    if arguments.dry_run:
        write_lines([*table.plan_version(target, layout).lines()] or ["nothing to do"], None)
        return
    changed = table.change_version(target, layout)
    print(f"{changed.path} has version {changed.config.version}, storage layout {changed.config.storage_layout}")


def _copy(arguments: argparse.Namespace) -> None:
    copy = plan_copy(LsmTable(arguments.table), arguments.target, given(arguments), arguments.properties)
    if arguments.dry_run:
        write_lines([*copy.lines()], None)
        return
    target = copy.run()
    left_out = f", without {', '.join(copy.dropped)}" if copy.dropped else ""
    print(f"{counted(copy.row_count, 'row')} copied to {target.path}, version {target.config.version}{left_out}")
