"""``lsm read``: print the rows or the changes of a table, or what a filter skips."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack

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
from streaming_lsm.cli.output import binary_output, text_output
from streaming_lsm.cli.text_table import row_lines
from streaming_lsm.errors import ConfigError
from streaming_lsm.query.queries import CDC, INCREMENTAL, QUERY_TYPES, SNAPSHOT
from streaming_lsm.query.scan import Scan
from streaming_lsm.query.text.change_images import without_meta_columns
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
    read.add_argument("--limit", metavar="N", type=int, help="print so many rows or changes at most")
    read.add_argument("--meta", action="store_true", help="add the five _hoodie_ columns")
    read.add_argument(
        "--format", choices=FORMATS, default="table", help=f"default table: {_SHOWN_ROWS} rows without --limit"
    )
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
    if arguments.format != "table":
        _write(scan.schema, scan.to_batches(), arguments)
        return
    shown = (scan if arguments.limit is not None else scan.limit(_SHOWN_ROWS)).to_arrow()
    is_cut = arguments.limit is None and shown.num_rows == _SHOWN_ROWS
    _write_table(shown, lambda: scan.count() - _SHOWN_ROWS if is_cut else 0, arguments.output)


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
    """Print changes in the order of the writes, as they are read; in texts the images have no meta columns."""
    changes, limit = table.changes(arguments.begin, arguments.end), arguments.limit
    if limit is not None and limit < 0:
        raise ConfigError(f"--limit {limit}: the number of rows is negative")
    batches = changes.to_batches() if limit is None else _first_rows(changes.to_batches(), limit)
    if arguments.format == "parquet":
        _write(changes.schema, batches, arguments)
        return
    plain = map(without_meta_columns, batches)
    nothing = without_meta_columns(pa.RecordBatch.from_pylist([], changes.schema))
    if arguments.format != "table":
        _write(nothing.schema, plain, arguments)
        return
    read, rows = [nothing], 0
    while (limit is not None or rows < _SHOWN_ROWS) and (batch := next(plain, None)) is not None:
        read.append(batch)
        rows += batch.num_rows
    shown = pa.Table.from_batches(read).slice(0, _SHOWN_ROWS if limit is None else limit)
    hidden = rows - shown.num_rows
    _write_table(shown, lambda: hidden + sum(batch.num_rows for batch in plain), arguments.output)


def _first_rows(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield so many rows at most, and read no batch beyond them."""
    while rows > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, rows)
        rows -= batch.num_rows


def _write_table(shown: pa.Table, hidden: Callable[[], int], output: str | None) -> None:
    """Write rows as a table, and only then count those that are not shown."""
    with text_output(output) as to:
        to.writelines(f"{line}\n" for line in row_lines(shown))
        to.flush()
        to.writelines(f"{line}\n" for line in _hidden_line(hidden()))


def _write(schema: pa.Schema, batches: Iterator[pa.RecordBatch], arguments: argparse.Namespace) -> None:
    """Write rows batch by batch, as they are read."""
    if arguments.format == "parquet" and not arguments.output:
        raise ConfigError("--format parquet needs --output FILE")
    nested = [field for field in schema if pa.types.is_nested(field.type)]
    if arguments.format == "csv" and nested:
        raise ConfigError(f"column {nested[0].name!r} has type {nested[0].type}, which CSV cannot hold: use jsonl")
    with ExitStack() as files:
        # Opened here, as Arrow's own errors do not have the file name where `main` looks for it.
        to = files.enter_context(binary_output(arguments.output))
        if arguments.format == "jsonl":
            for batch in batches:
                for part in range(0, batch.num_rows, _WRITTEN_ROWS):
                    to.write(json_text(batch.slice(part, _WRITTEN_ROWS), zone=True))
                to.flush()
            return
        writer = pq.ParquetWriter(to, schema) if arguments.format == "parquet" else pa.csv.CSVWriter(to, schema)
        files.enter_context(writer)
        for batch in batches:
            writer.write_batch(batch)
            to.flush()


def _hidden_line(hidden: int) -> list[str]:
    return [f"… and {counted(hidden, 'more row')}; --format jsonl prints all"] if hidden > 0 else []
