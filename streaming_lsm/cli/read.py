"""``lsm read``: print the rows or the changes of a table, or what a filter skips."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from streaming_lsm.cli.arguments import opened, option_arguments, write_lines
from streaming_lsm.cli.text_table import TextTable
from streaming_lsm.errors import ConfigError
from streaming_lsm.query.queries import CDC, INCREMENTAL, QUERY_TYPES, SNAPSHOT
from streaming_lsm.query.scan import Scan
from streaming_lsm.query.text.change_lines import change_lines
from streaming_lsm.query.text.json_lines import json_lines
from streaming_lsm.query.text.where import parse_where
from streaming_lsm.schema import META_COLUMNS, PARTITION_PATH, RECORD_KEY, with_meta
from streaming_lsm.service_job.messages import counted
from streaming_lsm.table import LsmTable

FORMATS = ("table", "jsonl", "csv", "parquet")
_SHOWN_ROWS = 50


def read_verb(read: argparse.ArgumentParser) -> None:
    """Describe and run ``lsm read``."""
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
