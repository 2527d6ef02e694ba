"""A driver process that writes batches to one table, and says of each attempt how it ended.

Run as a script it takes the table's root, the writer's id and the options; each line of its input is a range of batch
ids to be written, ``3 5`` for batches 3 and 4. It counts as a process of another machine: the others know by its lease
alone whether it lives.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from streaming_lsm import LsmTable
from streaming_lsm.config import WRITER_ID
from streaming_lsm.errors import CommitConflict, CommitUnknown, Fenced
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER
from streaming_lsm.lock.markers import TEMP_FOLDER
from streaming_lsm.lock.owner import this_process
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from streaming_lsm.txn.planned_actions import pending_cleans
from tests.support.small_tables import Row, rows

WRITERS = ("left", "right")
COMMITTED, ALREADY, DONE = "committed", "already committed", "done"
CONTENDED = "contended"
NAMED = (Fenced, CommitUnknown, CommitConflict)
"""What an attempt may raise; the batch is then written again under the same id."""

_ROWS = 6
_PATIENCE_S = 60


def open_elsewhere(root: Path, machine: str, options: dict[str, object]) -> LsmTable:
    """The table as a process of another machine has it."""
    process = replace(this_process(), host=machine, machine=machine)
    table = LsmTable(root, options)
    table.runtime = Runtime(process=lambda: process)
    return table


def settled(root: Path, options: dict[str, object]) -> LsmTable:
    """The table after the last transaction, of a process that takes over what is left."""
    table = open_elsewhere(root, "judge", options)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            with table.transaction():
                pass
            if pending_cleans(table.timeline):
                table.clean()
            return table
        except CommitConflict:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def left_behind(table: LsmTable) -> Iterator[str]:
    """Files of the transactions of actions that are not pending."""
    pending = {instant.requested for instant in table.timeline.pending}
    for folder in (DECISION_FOLDER, HEARTBEAT_FOLDER, TEMP_FOLDER):
        left = {name.partition(".")[0] for name in table.storage.names(folder)} - pending
        yield from (f"left behind: {folder}/{name}" for name in sorted(left))


def rows_of(writer: str, batch: int) -> list[Row]:
    """Keys of this batch alone, and one that all batches write: the last in order wins."""
    order = batch * len(WRITERS) + WRITERS.index(writer)
    own: list[Row] = [(f"{writer}-{batch}-{n}", ("nl", "de")[n % 2], order, n) for n in range(_ROWS)]
    return [*own, (CONTENDED, "nl", order, order)]


def write(table: LsmTable, writer: str, batch: int) -> None:
    """Try until the batch is acknowledged."""
    data, deadline = rows(*rows_of(writer, batch)), time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        told = _attempt(table, batch, data)
        _say(batch=batch, **told)
        if told["told"] in (COMMITTED, ALREADY):
            return
        time.sleep(0.02)


def _attempt(table: LsmTable, batch: int, data: pa.Table) -> dict[str, str]:
    try:
        completed = table.upsert(data, batch_id=batch)
    except NAMED as error:
        return {"told": type(error).__name__, "error": str(error)}
    except Exception as error:
        return {"told": type(error).__name__, "strange": traceback.format_exc()}
    return {"told": ALREADY} if completed is None else {"told": COMMITTED, "instant": completed.file_name}


def _say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(root: str, writer: str, options: str) -> None:
    """Write the batches that the input asks for."""
    table = open_elsewhere(Path(root), writer, {**json.loads(options), WRITER_ID.key: writer})
    _say(told=DONE)
    for line in sys.stdin:
        first, end = map(int, line.split())
        for batch in range(first, end):
            write(table, writer, batch)
        _say(told=DONE)


if __name__ == "__main__":
    main(*sys.argv[1:])
