"""Is a table at rest valid? Every rule that is broken gives one line."""

from __future__ import annotations

import os

from .check_files import FileChecks
from .check_stats import check_stats, collect
from .check_table import check_folders, check_names, check_partitions, check_properties
from .check_timeline import check_timeline
from .report import Report
from .table import Table, open_table

UNDONE = {"rollback": "commitsRollback", "restore": "hoodieRestoreMetadata"}
"""The field whose values, or keys, are the instants that an action has undone."""


def validate(table_path: str | os.PathLike[str]) -> list[str]:
    """Check a table that nobody is writing to; pending instants may be on its timeline.

    Returns:
        Violations as ``code: where: what``; an empty list for a valid table.
    """
    report = Report()
    table: Table | None = None
    with report.guard("table.unreadable", os.fspath(table_path)):
        table = open_table(table_path)
    if table is None:
        return report.lines
    check_properties(table, report)
    with report.guard("timeline.unreadable", ".hoodie/timeline"):
        check_timeline(table, report)
    check_folders(table, report)
    check_names(table, report)
    files = table.data_files()
    listed = collect(table, report)
    live = check_stats(table, files, listed, report)
    check_partitions(table, live, _known_instants(table, report), report)
    FileChecks(table, listed, report).run(live)
    return report.lines


def codes(violations: list[str]) -> set[str]:
    """Return the codes of violations."""
    return {line.split(":", 1)[0] for line in violations}


def _known_instants(table: Table, report: Report) -> set[str]:
    """Instants on the timeline, in the history, or rolled back."""
    timeline = table.timeline
    done = timeline.archived + timeline.completed
    known = {entry.instant for entry in done} | set(timeline.pending)
    for entry in done:
        if entry.action in UNDONE and entry.raw:
            with report.guard("timeline.record", entry.instant):
                known |= set(entry.metadata()[UNDONE[entry.action]])
    return known
