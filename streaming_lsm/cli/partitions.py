"""``lsm delete-partitions`` and ``lsm expire-partitions``: delete all rows of some partitions."""

from __future__ import annotations

import argparse

from streaming_lsm.cli.arguments import json_argument, opened, service_arguments, write_lines, write_result
from streaming_lsm.cli.text_table import TextTable
from streaming_lsm.errors import ConfigError
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.service_job.messages import counted
from streaming_lsm.table import LsmTable


def delete_partitions_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm delete-partitions``."""
    service_arguments(verb)
    verb.add_argument("partitions", nargs="+", metavar="PARTITION", help="a partition path, as its folder is named")
    json_argument(verb, "one JSON document")
    verb.set_defaults(run=_delete_partitions)


def _delete_partitions(arguments: argparse.Namespace) -> None:
    table, partitions = opened(arguments), list(dict.fromkeys(arguments.partitions))
    completed = None
    if arguments.dry_run:
        deleted = _live_groups(table, partitions)
    else:
        completed = table.delete_partitions(partitions)
        deleted = {}
        if completed is not None:
            content = table.timeline.read_content(completed)
            replaced = CommitMetadata.decode(content, completed.path).replaced or {}
            deleted = {path: list(ids) for path, ids in replaced.items()}
    said = _said(deleted, None if completed is None else completed.file_name)
    if arguments.json:
        name = None if completed is None else completed.file_name
        write_result(table, arguments, said, name, partitions=deleted)
        return
    rows = TextTable(("partition", "file groups"), frozenset(("file groups",)))
    for path, ids in deleted.items():
        rows.add(path, f"{len(ids):,}")
    write_lines([*rows.lines(), said], None)


def expire_partitions_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm expire-partitions``."""
    service_arguments(verb)
    json_argument(verb, "one JSON document")
    verb.set_defaults(run=_expire_partitions)


def _expire_partitions(arguments: argparse.Namespace) -> None:
    table = opened(arguments)
    expired = table.expired_partitions()
    completed = None if arguments.dry_run else table.expire_partitions()
    found = dict(expired.since)
    said = str(expired)
    if completed is not None:
        replaced = CommitMetadata.decode(table.timeline.read_content(completed), completed.path).replaced or {}
        found = {path: since for path, since in found.items() if path in replaced}
        said = f"{completed.file_name}: {counted(len(replaced), 'partition')} deleted, a clean deletes the files"
    if arguments.json:
        name = None if completed is None else completed.file_name
        write_result(table, arguments, said, name, partitions=found)
        return
    rows = TextTable(("partition", "since"), frozenset(), frozenset(("since",)))
    for path, since in found.items():
        rows.add(path, since)
    write_lines([*(rows.lines() if found else ()), said], None)


def _live_groups(table: LsmTable, partitions: list[str]) -> dict[str, list[str]]:
    """Return the file groups of partitions, or refuse one that has none, as the deletion does."""
    found: dict[str, list[str]] = {partition: [] for partition in partitions}
    for group in table.file_slices():
        if group.partition_path in found:
            found[group.partition_path].append(group.file_id)
    for partition, ids in found.items():
        if not ids:
            raise ConfigError(
                f"partition {partition!r} of {table.path} has no file groups: give the paths of partitions as "
                "`lsm files` lists them; nothing was deleted"
            )
    return found


def _said(deleted: dict[str, list[str]], completed: str | None) -> str:
    groups = counted(sum(map(len, deleted.values())), "file group")
    what = f"{groups} of {counted(len(deleted), 'partition')}"
    return (
        f"{what} would be deleted" if completed is None else f"{completed}: {what} deleted, a clean deletes the files"
    )
