"""``lsm show``: the settings of a table, its timeline in short, and what is due and why not."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from streaming_lsm.cli.arguments import json_argument, json_line, opened, option_arguments, write_lines
from streaming_lsm.cli.text_table import TextTable
from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.table import LsmTable
from streaming_lsm.timeline.instant import FLAT
from streaming_lsm.timeline.timeline import Timeline


def show_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm show``."""
    verb.add_argument("table", help="path of the table")
    json_argument(verb, "one JSON document")
    option_arguments(verb)
    verb.set_defaults(run=_show)


def _show(arguments: argparse.Namespace) -> None:
    shown = description(opened(arguments))
    write_lines([json_line(shown)] if arguments.json else [*_lines(shown)], None)


def description(table: LsmTable) -> dict[str, object]:
    """Describe a table, as ``lsm show --json`` prints it; the table is listed, and nothing is changed."""
    services: list[dict[str, object]] = []
    read_only = None
    try:
        services = [asdict(found) for found in table.services.due()]
    except UnsupportedTable as error:
        read_only = str(error)
    return {
        "path": table.path,
        "settings": _settings(table),
        "timeline": _timeline(table.timeline),
        "services": services,
        "without_services": read_only,
    }


def _settings(table: LsmTable) -> dict[str, object]:
    found = table.config
    return {
        "name": found.name,
        "version": found.version,
        "type": found.table_type,
        "storage layout": found.storage_layout,
        "record key": list(found.record_key_fields),
        "partition fields": [field.name for field in found.partition_fields],
        "ordering fields": list(found.ordering_fields),
        "merge mode": found.merge_mode,
        "partial update mode": found.partial_mode,
        "buckets": found.num_buckets or None,
        "bucket hash fields": list(found.hash_fields) if found.num_buckets else [],
        "timeline zone": found.timeline_zone,
        "metadata table": list(found.metadata_partitions),
    }


def _timeline(timeline: Timeline) -> dict[str, object]:
    last = next(timeline.newest_first(), None)
    return {
        "actions": len(timeline.instants),
        "completed writes": len(timeline.completed_writes),
        "first": timeline.first or None,
        "last write": None if last is None else last.file_name,
        "archived up to": (timeline.history.last or None) if timeline.layout != FLAT else None,
        "pending": [action.file_name for action in timeline.pending],
    }


def _lines(shown: Mapping[str, object]) -> Iterator[str]:
    yield str(shown["path"])
    for part in ("settings", "timeline"):
        yield ""
        values = shown[part]
        assert isinstance(values, dict)
        found = TextTable((part, ""), whole=frozenset((part,)))
        for name, value in values.items():
            found.add(name, _text(value))
        yield from found.lines()
    yield ""
    if shown["without_services"]:
        yield f"no services: {shown['without_services']}"
        return
    services = shown["services"]
    assert isinstance(services, list)
    for due in services:
        runs = "writers run it after their batches" if due["is_inline"] else "left to a job or the command line"
        yield f"{due['service']}: {'due' if due['is_due'] else 'not due'}; {runs}"
        yield f"  found: {due['found']}"
        yield f"  rule: {due['rule']}"
        if due["pending"]:
            yield f"  planned: {', '.join(due['pending'])}"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
