"""``lsm cluster``: sort rows by columns into new file groups, which replace those that they were in."""

from __future__ import annotations

import argparse

from streaming_lsm.cli.arguments import json_argument, opened, service_arguments, write_lines, write_result
from streaming_lsm.cli.progress import ProgressLine, ShownEngine
from streaming_lsm.cli.text_table import TextTable
from streaming_lsm.cli.watching import watch
from streaming_lsm.service_job.command import watch_argument
from streaming_lsm.service_job.messages import clustered, clustering_scheduled
from streaming_lsm.services.clustering.planner import ClusteringSelection
from streaming_lsm.table import LsmTable
from streaming_lsm.txn.planned_actions import pending_clusterings


def cluster_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm cluster``."""
    service_arguments(verb)
    verb.add_argument("--schedule-only", action="store_true", help="write the plan; the next clustering runs it")
    watch_argument(verb)
    json_argument(verb, "one JSON document")
    verb.set_defaults(run=_cluster)


def _cluster(arguments: argparse.Namespace) -> None:
    if arguments.watch is not None:
        watch(arguments, lambda table, engine: table.services.clustering_worker(engine))
        return
    table = opened(arguments)
    if arguments.dry_run:
        _preview(table, arguments)
        return
    scheduled, completed = None, None
    if arguments.schedule_only:
        planned, selection = table.services.schedule_clustering()
        scheduled = planned.file_name if planned else None
        said = clustering_scheduled(planned, selection) if selection else "nothing to cluster"
    else:
        completed, said = _done(table)
    if arguments.json:
        write_result(table, arguments, said, completed, scheduled=scheduled)
    else:
        print(said)


def _done(table: LsmTable) -> tuple[str | None, str]:
    """Cluster, and return the completed instant and what is said of it."""
    with ProgressLine("groups of file slices clustered") as progress:
        completed, chosen = table.services.cluster(ShownEngine.of(table, progress))
    if completed is None:
        return None, f"nothing to cluster: {chosen.reasons if chosen else _left_to_others(table)}"
    return completed.file_name, clustered(completed, table.timeline.read_commit(completed))


def _left_to_others(table: LsmTable) -> str:
    pending = len(pending_clusterings(table.timeline))
    return f"other processes run what is pending ({pending})" if pending else "another writer has done it"


def _preview(table: LsmTable, arguments: argparse.Namespace) -> None:
    """Show what would be scheduled; nothing is changed."""
    planned = [pending.file_name for pending in pending_clusterings(table.timeline)]
    selection = table.services.preview_clustering()
    if arguments.json:
        write_result(table, arguments, str(selection), None, planned=planned, groups=_groups(selection))
    else:
        write_lines([*(f"planned: {name}" for name in planned), *_lines(selection)], None)


def _groups(selection: ClusteringSelection) -> list[dict[str, object]]:
    return [
        {
            "partition": group.slices[0].partition_path,
            "file_ids": [one.file_id for one in group.slices],
            "output_file_groups": group.outputs,
        }
        for group in selection.plan.groups
    ]


def _lines(selection: ClusteringSelection) -> list[str]:
    if not selection.plan.groups:
        return [f"nothing to cluster: {selection.reasons}"]
    numbers = ("file groups", "new file groups")
    shown = TextTable(("partition", *numbers), frozenset(numbers))
    for group in selection.plan.groups:
        shown.add(group.slices[0].partition_path, f"{len(group.slices):,}", f"{group.outputs:,}")
    return [*shown.lines(), str(selection)]
