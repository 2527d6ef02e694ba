"""``lsm timeline``: the actions of a table that are not archived, with what the completed ones wrote or deleted."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass

from streaming_lsm.cli.arguments import json_argument, json_line, opened, option_arguments, write_lines
from streaming_lsm.cli.text_table import TextTable
from streaming_lsm.format.actions.clean import CleanMetadata
from streaming_lsm.format.actions.commit import count_deletes
from streaming_lsm.service_job.messages import counted
from streaming_lsm.timeline.action_kind import CLEAN
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline

_TIMES = ("requested", "completed")


@dataclass(frozen=True, slots=True)
class Written:
    """What an action did; None where its kind has no such number, or it is pending.

    Attributes:
        operation: Hudi's name of the write operation, or the policy of a clean.
        files: files that were written, or deleted by a clean.
        rows, deletes, bytes: sums of the write stats.
    """

    operation: str | None = None
    files: int | None = None
    rows: int | None = None
    deletes: int | None = None
    bytes: int | None = None

    def __str__(self) -> str:
        numbers = zip(("file", "row", "delete", "byte"), (self.files, self.rows, self.deletes, self.bytes), strict=True)
        said = [self.operation, *(None if number is None else counted(number, noun) for noun, number in numbers)]
        return ", ".join(filter(None, said))


def timeline_verb(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lsm timeline``."""
    verb.add_argument("table", help="path of the table")
    option_arguments(verb)
    json_argument(verb, "one JSON object per action")
    verb.set_defaults(run=_timeline)


def _timeline(arguments: argparse.Namespace) -> None:
    timeline = opened(arguments).timeline
    actions = [(instant, _written(timeline, instant)) for instant in timeline.instants]
    if arguments.json:
        write_lines([json_line({**_names(instant), **asdict(written)}) for instant, written in actions], None)
        return
    shown = TextTable((*_TIMES, "action", "what it did"), whole=frozenset((*_TIMES, "action")))
    for instant, written in actions:
        # Of an action that is pending, its state stands in place of the time.
        shown.add(instant.requested, instant.completed or str(instant.state), instant.action, str(written))
    write_lines(shown.lines(), None)


def _names(instant: Instant) -> dict[str, str | None]:
    return {
        "requested": instant.requested,
        "completed": instant.completed,
        "action": instant.action,
        "state": str(instant.state),
    }


def _written(timeline: Timeline, instant: Instant) -> Written:
    if instant.action == CLEAN and instant.is_completed:
        cleaned = CleanMetadata.decode(timeline.storage.read(instant.path), instant.path)
        return Written(cleaned.policy, sum(map(len, cleaned.files.values())))
    if not (instant.is_write and instant.is_completed):
        return Written()
    commit = timeline.read_commit(instant)
    return Written(
        commit.operation_type,
        len(commit.stats),
        sum(stat.num_writes for stat in commit.stats),
        count_deletes(commit.stats),
        sum(stat.total_bytes for stat in commit.stats),
    )
