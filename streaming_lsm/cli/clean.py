"""``lsm clean``: delete file slices that no retained commit needs."""

from __future__ import annotations

import argparse

from streaming_lsm.cli.arguments import json_argument, opened, service_arguments, write_lines, write_result
from streaming_lsm.cli.progress import ProgressLine, ShownEngine
from streaming_lsm.cli.watching import watch
from streaming_lsm.format.actions.clean import CleanMetadata
from streaming_lsm.format.actions.commit import file_path
from streaming_lsm.service_job.command import watch_argument
from streaming_lsm.service_job.messages import counted
from streaming_lsm.table import LsmTable
from streaming_lsm.txn.planned_actions import pending_cleans


def clean_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm clean``."""
    service_arguments(verb)
    watch_argument(verb)
    json_argument(verb, "one JSON document")
    verb.set_defaults(run=_clean)


def _clean(arguments: argparse.Namespace) -> None:
    if arguments.watch is not None:
        watch(arguments, lambda table, engine: table.services.cleaning_worker(engine))
        return
    table = opened(arguments)
    planned: list[str] = []
    completed = None
    if arguments.dry_run:
        cleaning = table.services.preview_clean()
        files = [file_path(partition, name) for partition, names in cleaning.files.items() for name in names]
        planned = [pending.file_name for pending in pending_cleans(table.timeline)]
        said = str(cleaning)
    else:
        completed, files, said = _done(table)
    if arguments.json:
        write_result(table, arguments, said, completed, planned=planned, files=files)
    else:
        shown = [*(f"planned: {name}" for name in planned), *files] if arguments.dry_run else []
        write_lines([*shown, said], None)


def _done(table: LsmTable) -> tuple[str | None, list[str], str]:
    """Clean, and return the completed instant, the deleted files, and what is said of them."""
    with ProgressLine("files deleted") as progress:
        completed = table.services.clean(ShownEngine.of(table, progress))
    if completed is None:
        busy = pending_cleans(table.timeline)
        return None, [], "nothing to clean: another process cleans" if busy else str(table.services.preview_clean())
    cleaned = CleanMetadata.decode(table.storage.read(completed.path), completed.path)
    files = [file_path(path, name.rpartition("/")[2]) for path, names in cleaned.files.items() for name in names]
    return completed.file_name, files, f"{completed.file_name}: {counted(len(files), 'file')} deleted"
