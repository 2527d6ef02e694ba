"""``lsm read``: print the rows or the changes of a table, or what a filter skips."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from streaming_lsm.cli.arguments import (
    chosen_columns,
    columns_argument,
    explain_argument,
    explanation_lines,
    opened,
    option_arguments,
    write_lines,
)
from streaming_lsm.cli.text_table import row_lines
from streaming_lsm.errors import ConfigError
from streaming_lsm.query.queries import CDC, INCREMENTAL, QUERY_TYPES, SNAPSHOT
from streaming_lsm.query.scan import Scan
from streaming_lsm.query.text.change_lines import change_lines
from streaming_lsm.query.text.json_lines import json_text
from streaming_lsm.service_job.messages import counted
from streaming_lsm.table import LsmTable

FORMATS = ("table", "jsonl", "csv", "parquet")
_SHOWN_ROWS = 50
_WRITTEN_ROWS = 16_384


def read_verb(read: argparse.ArgumentParser) -> None:
    """Describe and run ``lsm read``."""
    read.add_argument("table", help="path of the table")
    read.add_argument("--as-of", metavar="T", help="an instant, or a time such as '2026-11-20 10:00'; default now")
    read.add_argument("--query-type", choices=QUERY_TYPES, default=SNAPSHOT, help="default snapshot")
    read.add_argument("--begin", metavar="T", help="incremental and cdc: writes completed after T; 000 for all")
    read.add_argument("--end", metavar="T", help="incremental and cdc: writes completed at T or before; default all")
    columns_argument(read)
    read.add_argument("--where", metavar="FILTER", help="SQL, for example: qty > 5 AND country IN ('DE', 'FR')")
    read.add_argument("--limit", metavar="N", type=int, help="print so many rows at most")
    read.add_argument("--meta", action="store_true", help="add the five _hoodie_ columns")
    read.add_argument("--format", choices=FORMATS, default="table", help=f"default table: the first {_SHOWN_ROWS} rows")
    explain_argument(read)
    read.add_argument("--output", metavar="FILE", help="write to FILE instead of standard output; required for parquet")
    option_arguments(read)
    read.set_defaults(run=_read)


def _read(arguments: argparse.Namespace) -> None:
    _check_read(arguments)
    table = opened(arguments)
    if arguments.query_type == CDC:
        _read_changes(table, arguments)
        return
    scan = _scan(table, arguments)
    if arguments.explain:
        write_lines(explanation_lines(scan.explain(), as_json=arguments.format == "jsonl"), arguments.output)
        return
    if arguments.format == "table":
        shown = scan.limit(_SHOWN_ROWS).to_arrow()
        hidden = scan.count() - _SHOWN_ROWS if shown.num_rows == _SHOWN_ROWS else 0
        write_lines([*row_lines(shown), *_hidden_line(hidden)], arguments.output)
        return
    _write(scan.schema, scan.to_batches(), arguments)


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


def _scan(table: LsmTable, arguments: argparse.Namespace) -> Scan:
    """Describe the scan of the arguments."""
    columns = chosen_columns(arguments)
    if arguments.query_type == INCREMENTAL:
        scan = table.incremental(arguments.begin, arguments.end, columns, arguments.where, meta=arguments.meta)
    else:
        scan = table.scan(
            columns, arguments.where, arguments.as_of, meta=arguments.meta, query_type=arguments.query_type
        )
    return scan if arguments.limit is None else scan.limit(arguments.limit)


def _read_changes(table: LsmTable, arguments: argparse.Namespace) -> None:
    changes = table.changes(arguments.begin, arguments.end)
    if arguments.format == "jsonl":
        write_lines(sorted(change_lines(changes.to_arrow())), arguments.output)
    elif arguments.format == "table":
        rows = changes.to_arrow()
        shown = row_lines(rows.slice(0, _SHOWN_ROWS))
        write_lines([*shown, *_hidden_line(rows.num_rows - _SHOWN_ROWS)], arguments.output)
    else:
        _write(changes.schema, changes.to_batches(), arguments)


def _write(schema: pa.Schema, batches: Iterator[pa.RecordBatch], arguments: argparse.Namespace) -> None:
    """Write rows batch by batch, as they are read."""
    if arguments.format == "parquet" and not arguments.output:
        raise ConfigError("--format parquet needs --output FILE")
    nested = [field for field in schema if pa.types.is_nested(field.type)]
    if arguments.format == "csv" and nested:
        raise ConfigError(f"column {nested[0].name!r} has type {nested[0].type}, which CSV cannot hold: use jsonl")
    with ExitStack() as files:
        # Opened here, as Arrow's own errors do not have the file name where `main` looks for it.
        output = arguments.output
        to: BinaryIO = files.enter_context(open(output, "wb")) if output else sys.stdout.buffer
        if arguments.format == "jsonl":
            for batch in batches:
                for part in range(0, batch.num_rows, _WRITTEN_ROWS):
                    to.write(json_text(batch.slice(part, _WRITTEN_ROWS), zone=True))
            return
        writer = pq.ParquetWriter(to, schema) if arguments.format == "parquet" else pa.csv.CSVWriter(to, schema)
        files.enter_context(writer)
        for batch in batches:
            writer.write_batch(batch)


def _hidden_line(hidden: int) -> list[str]:
    return [f"… and {counted(hidden, 'more row')}; --format jsonl prints all"] if hidden > 0 else []
