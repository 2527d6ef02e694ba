"""``lsm history``: the versions of one record key in the latest file slices."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pyarrow as pa

from streaming_lsm.cli.arguments import json_argument, opened, option_arguments
from streaming_lsm.cli.text_table import TextTable, cell_text
from streaming_lsm.query.history import DELETED, FILE
from streaming_lsm.query.text.json_lines import json_lines
from streaming_lsm.schema import COMMIT_TIME, META_COLUMNS, PARTITION_PATH


def history_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm history``."""
    verb.add_argument("table", help="path of the table")
    verb.add_argument("key", help="the record key, as in _hoodie_record_key")
    json_argument(verb, "one JSON object per version")
    option_arguments(verb)
    verb.set_defaults(run=_history)


def _history(arguments: argparse.Namespace) -> None:
    versions = opened(arguments).history(arguments.key)
    for line in json_lines(versions, zone=True) if arguments.json else _lines(versions, arguments.key):
        print(line)


def _lines(versions: pa.Table, key: str) -> Iterator[str]:
    if not versions.num_rows:
        yield f"no version of key {key!r} in the latest file slices: it was never written, or was deleted and compacted"
        return
    columns = [name for name in versions.schema.names if name not in (*META_COLUMNS, FILE, DELETED)]
    headings = ("commit time", "partition", "deleted", *columns, "file")
    shown = TextTable(headings, whole=frozenset(("commit time",)))
    for row in versions.to_pylist():
        values = [cell_text(row[name]) for name in columns]
        deleted = "yes" if row[DELETED] else ""
        shown.add(row[COMMIT_TIME] or "", row[PARTITION_PATH] or "", deleted, *values, row[FILE])
    yield from shown.lines()
