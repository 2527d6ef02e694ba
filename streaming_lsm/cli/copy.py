"""``lsm copy``: write the rows of a table to a new one."""

from __future__ import annotations

import argparse

from streaming_lsm.cli.arguments import dry_run_argument, given, option_arguments, write_lines
from streaming_lsm.cli.progress import ProgressLine, ShownEngine
from streaming_lsm.service_job.messages import counted
from streaming_lsm.table import LsmTable
from streaming_lsm.table_copy import plan_copy


def copy_verb(copy: argparse.ArgumentParser) -> None:
    """Describe and run ``lsm copy``."""
    copy.add_argument("table", help="path of the table to copy, of any readable version")
    copy.add_argument("target", help="path of the new table, or of the target of an interrupted copy")
    option_arguments(copy)
    dry_run_argument(copy)
    copy.set_defaults(run=_copy)


def _copy(arguments: argparse.Namespace) -> None:
    table = LsmTable(arguments.table)
    with ProgressLine("file groups read") as progress:  # once to check them, once to write their rows
        read = ShownEngine.of(table, progress).map
        plan = plan_copy(table, arguments.target, given(arguments), arguments.properties, read)
        target = None if arguments.dry_run else plan.run()
    if target is None:
        write_lines([*plan.lines()], None)
        return
    left_out = f", without {', '.join(plan.dropped)}" if plan.dropped else ""
    print(f"{counted(plan.row_count, 'row')} copied to {target.path}, version {target.config.version}{left_out}")
