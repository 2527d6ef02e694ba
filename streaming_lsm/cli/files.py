"""``lsm files``: the file groups of a table, their slices, files and sorted runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from streaming_lsm import config
from streaming_lsm.cli.arguments import json_argument, json_line, opened, option_arguments
from streaming_lsm.cli.text_table import TextTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import ConfigError
from streaming_lsm.inspection.file_groups import FooterReader, GroupFacts, SliceFacts, all_groups, live_groups
from streaming_lsm.service_job.messages import counted
from streaming_lsm.table import LsmTable

_NUMBERS = ("files", "bytes", "rows", "runs")
_MOST_KEY = 20


def files_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm files``."""
    verb.add_argument("table", help="path of the table")
    verb.add_argument("--partition", metavar="P", help="path of the one partition to list; '' for the table's folder")
    verb.add_argument("--all", action="store_true", help="add slices that no query reads, and replaced file groups")
    json_argument(verb, "one JSON object per file group")
    option_arguments(verb)
    verb.set_defaults(run=_files)


def _files(arguments: argparse.Namespace) -> None:
    table = opened(arguments)
    groups = file_groups(table, arguments.partition, every=arguments.all)
    for line in map(_json, groups) if arguments.json else _lines(groups):
        print(line)


def file_groups(table: LsmTable, partition: str | None, *, every: bool) -> Iterator[GroupFacts]:
    """Read the file groups of a table, by partition and file id.

    Args:
        partition: the one partition to list; None for all.
        every: whether slices that no query reads, and replaced file groups, are listed too.

    Raises:
        ConfigError: there is no such partition.
    """
    slices = [found for found in table.file_slices() if partition in (None, found.partition_path)]
    reader, engine = FooterReader(table.storage, table.rule), LocalEngine(table.options[config.READ_THREADS])
    view = table.file_system_view()
    if partition is not None and not slices and partition not in view.partitions():
        raise ConfigError(f"{table.path} has no partition {partition!r}: `lsm files` without --partition lists all")
    if every:
        return all_groups(view, slices, reader, engine, partition)
    return live_groups(slices, reader, engine)


def _lines(groups: Iterable[GroupFacts]) -> Iterator[str]:
    headings = ("partition", "file group", "slice", *_NUMBERS, "keys", "state")
    shown = TextTable(headings, frozenset(_NUMBERS), frozenset(("slice",)))
    count = files = size = 0
    for group in groups:
        count += 1
        for found in group.slices:
            files, size = files + len(found.files), size + found.size
            shown.add(group.partition_path, group.file_id, *_cells(group, found))
    yield from shown.lines()
    yield f"{counted(count, 'file group')}, {counted(files, 'file')}, {counted(size, 'byte')}"


def _cells(group: GroupFacts, found: SliceFacts) -> tuple[str, ...]:
    rows = "" if found.rows is None else f"{found.rows:,}"
    keys = "" if found.key_range is None else " … ".join(map(_short, found.key_range))
    runs = f"{len(found.runs):,}" if found.is_latest else ""
    state = f"replaced by {group.replaced}" if group.replaced else "" if found.is_latest else "old"
    return found.instant, f"{len(found.files):,}", f"{found.size:,}", rows, runs, keys, state


def _short(key: str) -> str:
    return key if len(key) <= _MOST_KEY else f"{key[: _MOST_KEY - 1]}…"


def _json(group: GroupFacts) -> str:
    return json_line(
        {
            "partition": group.partition_path,
            "file_id": group.file_id,
            "replaced": group.replaced,
            "slices": [_slice(found) for found in group.slices],
        }
    )


def _slice(found: SliceFacts) -> dict[str, object]:
    return {
        "instant": found.instant,
        "is_latest": found.is_latest,
        "bytes": found.size,
        "rows": found.rows,
        "key_range": found.key_range,
        "files": [
            {"path": file.path, "bytes": file.size, "rows": file.rows, "key_range": file.key_range}
            for file in found.files
        ],
        "runs": [{"instant": run.instant, "files": run.names, "bytes": run.size} for run in found.runs],
    }
