"""``lsm``: look at a table from the command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from streaming_lsm.errors import ConfigError, LsmError
from streaming_lsm.format.commit import CommitMetadata
from streaming_lsm.options_page import options_page
from streaming_lsm.read.json_lines import json_lines
from streaming_lsm.read.where import parse_where
from streaming_lsm.schema import PARTITION_PATH, RECORD_KEY, with_meta
from streaming_lsm.table import LsmTable
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline

FORMATS = ("table", "jsonl", "csv", "parquet")
_SHOWN_ROWS = 50


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it worked, 2 when the user can mend what is wrong."""
    parsed = _parser().parse_args(arguments)
    try:
        parsed.run(parsed)
        sys.stdout.flush()
    except LsmError as error:
        print(f"lsm: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"lsm: {error.filename or 'input or output'}: {error.strerror or error}", file=sys.stderr)
        return 2
    except pa.ArrowInvalid as error:
        print(f"lsm: the rows cannot be written in this format: {error}; use jsonl or parquet", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lsm", description="Look at a table. Nothing here changes it.")
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _read_arguments(verbs.add_parser("read", help="print the rows of a snapshot"))
    timeline = verbs.add_parser("timeline", help="list the table's actions")
    timeline.add_argument("table", help="path of the table")
    timeline.set_defaults(run=_timeline)
    options = verbs.add_parser("options", help="print all options with their defaults as Markdown")
    options.set_defaults(run=lambda _: print(options_page(), end=""))
    return parser


def _read_arguments(read: argparse.ArgumentParser) -> None:
    read.add_argument("table", help="path of the table")
    read.add_argument("--as-of", metavar="T", help="an instant, or a time such as '2026-11-20 10:00'; now if left out")
    read.add_argument("--columns", metavar="A,B", help="the columns to print, in this order")
    read.add_argument("--where", metavar="FILTER", help="for example: qty > 5 and country in ('DE', 'FR')")
    read.add_argument("--meta", action="store_true", help="also the five _hoodie_ columns")
    read.add_argument("--format", choices=FORMATS, default="table", help=f"table shows the first {_SHOWN_ROWS} rows")
    read.add_argument("--output", metavar="FILE", help="write there instead of to the screen; needed for parquet")
    read.set_defaults(run=_read)


def _read(arguments: argparse.Namespace) -> None:
    columns = [name.strip() for name in arguments.columns.split(",")] if arguments.columns else None
    table = LsmTable(arguments.table)
    where = parse_where(arguments.where, with_meta(table.schema)) if arguments.where else None
    if arguments.format == "jsonl":
        _write_lines(_sorted_lines(table, columns, where, arguments), arguments.output)
        return
    rows = table.scan(columns, where, arguments.as_of, meta=arguments.meta).to_arrow()
    if arguments.format == "parquet":
        if not arguments.output:
            raise ConfigError("--format parquet needs --output FILE")
        pq.write_table(rows, arguments.output)
    elif arguments.format == "csv":
        _write_csv(rows, arguments.output)
    else:
        _write_lines(_table_lines(rows), arguments.output)


def _write_csv(rows: pa.Table, output: str | None) -> None:
    nested = [field for field in rows.schema if pa.types.is_nested(field.type)]
    if nested:
        raise ConfigError(f"column {nested[0].name!r} has type {nested[0].type}, which CSV cannot hold: use jsonl")
    pa.csv.write_csv(rows, output or sys.stdout.buffer)


def _sorted_lines(
    table: LsmTable, columns: list[str] | None, where: pa.compute.Expression | None, arguments: argparse.Namespace
) -> list[str]:
    """Rows by partition path, record key and text, so that two readers' outputs can be compared as files."""
    shown = table.scan(columns, where, arguments.as_of, meta=arguments.meta)
    keyed = table.scan(
        [*dict.fromkeys([*shown.columns, PARTITION_PATH, RECORD_KEY])], where, arguments.as_of
    ).to_arrow()
    paths, keys = keyed.column(PARTITION_PATH).to_pylist(), keyed.column(RECORD_KEY).to_pylist()
    lines = json_lines(keyed.select(list(shown.columns)))
    return [line for *_, line in sorted(zip(paths, keys, lines, strict=True))]


def _write_lines(lines: Sequence[str], output: str | None) -> None:
    text = "".join(f"{line}\n" for line in lines)
    if output:
        with open(output, "w", encoding="utf-8") as file:
            file.write(text)
    else:
        sys.stdout.write(text)


def _table_lines(rows: pa.Table) -> list[str]:
    shown = Table(box=None, pad_edge=False)
    for name in rows.schema.names:
        shown.add_column(name, overflow="fold")
    for row in rows.slice(0, _SHOWN_ROWS).to_pylist():
        shown.add_row(*("" if value is None else str(value) for value in row.values()))
    lines = _rendered(shown)
    hidden = rows.num_rows - _SHOWN_ROWS
    return [*lines, f"… and {hidden} more rows; --format jsonl prints all"] if hidden > 0 else lines


def _timeline(arguments: argparse.Namespace) -> None:
    timeline = LsmTable(arguments.table).timeline
    shown = Table(box=None, pad_edge=False)
    for heading in ("requested", "completed", "action", "state", "operation"):
        shown.add_column(heading)
    for heading in ("files", "rows", "deletes", "bytes"):
        shown.add_column(heading, justify="right")
    for instant in timeline.instants:
        numbers = _numbers(timeline, instant)
        shown.add_row(instant.requested, instant.completed or "", instant.action, str(instant.state), *numbers)
    _write_lines(_rendered(shown), None)


def _numbers(timeline: Timeline, instant: Instant) -> tuple[str, ...]:
    if not (instant.is_write and instant.is_completed):
        return ("", "", "", "", "")
    commit: CommitMetadata = timeline.read_commit(instant)
    stats = commit.stats
    sums = (
        len(stats),
        sum(stat.num_writes for stat in stats),
        sum(stat.num_deletes for stat in stats),
        sum(stat.total_bytes for stat in stats),
    )
    return (commit.operation_type, *(f"{number:,}" for number in sums))


def _rendered(shown: Table) -> list[str]:
    width = None if sys.stdout.isatty() else 1000
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(shown)
    return [line.rstrip() for line in capture.get().splitlines()]
