"""``lsm archive``: move old actions from the timeline into the history."""

from __future__ import annotations

import argparse

from streaming_lsm.cli.arguments import json_argument, json_line, opened, service_arguments, write_lines
from streaming_lsm.cli.progress import ProgressLine
from streaming_lsm.service_job.messages import counted


def archive_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm archive``."""
    service_arguments(verb)
    json_argument(verb, "one JSON document")
    verb.set_defaults(run=_archive)


def _archive(arguments: argparse.Namespace) -> None:
    table = opened(arguments)
    archived: list[str] = []
    if arguments.dry_run:
        selection = table.services.preview_archive()
        archived, said = [action.file_name for action in selection.every], str(selection)
    else:
        with ProgressLine("actions archived") as progress:
            due = len(table.services.preview_archive().every)
            while done := table.archive():  # a long timeline is archived in parts
                archived += [action.file_name for action in done]
                progress(len(archived), max(due, len(archived)))
        last = table.timeline.history.last
        said = (
            f"{counted(len(archived), 'action')} archived, up to {last}"
            if archived
            else str(table.services.preview_archive())
        )
    if arguments.json:
        write_lines([json_line({"dry_run": arguments.dry_run, "actions": archived, "said": said})], None)
    else:
        write_lines([*(archived if arguments.dry_run else ()), said], None)
