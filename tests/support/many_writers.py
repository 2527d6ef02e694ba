"""A process that writes numbered batches to a table that others write, too, or serves it; it says how each one ended.

Run as a script with the role (``write``, ``compact`` or ``clean``), the table's root, the number of the process, the
first batch and the number of batches, and the options. It counts as a process of another machine: the others know by
its lease alone whether it lives. A service runs until its input ends.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from pathlib import Path

from streaming_lsm import LsmTable
from streaming_lsm.config import WRITER_ID
from streaming_lsm.errors import CommitConflict, CommitUnknown, Fenced
from tests.support.small_tables import Row, rows
from tests.support.stopped_driver import open_elsewhere

WRITERS = 4
OWN_KEYS = 3
"""Of each batch, which no other batch writes."""
SHARED_KEYS = 6
"""Written by every batch; the one last in order wins."""
PARTITIONS = ("nl", "de")
PAUSE_S = 0.2
NAMED = (Fenced, CommitUnknown, CommitConflict)


def name_of(number: int) -> str:
    """Writer id, and name of the machine, of a process."""
    return f"writer-{number}"


def rows_of(number: int, batch: int) -> list[Row]:
    """Rows of one batch; the order of a shared key is unique to the batch."""
    order = batch * WRITERS + number
    own: list[Row] = [(f"own-{number}-{batch}-{n}", PARTITIONS[n % 2], order, n) for n in range(OWN_KEYS)]
    return [*own, *((f"shared-{n}", PARTITIONS[n % 2], order, order) for n in range(SHARED_KEYS))]


def write(table: LsmTable, number: int, first: int, count: int) -> None:
    """Write each batch until it is acknowledged."""
    for batch in range(first, first + count):
        data = rows(*rows_of(number, batch))
        while not _attempt(table, batch, data):
            time.sleep(0.02)


def _attempt(table: LsmTable, batch: int, data: object) -> bool:
    begun = time.perf_counter()
    try:
        completed = table.upsert(data, batch_id=batch)  # type: ignore[arg-type]
    except NAMED as error:
        _say(batch=batch, told=type(error).__name__, error=str(error))
        return False
    except Exception as error:
        _say(batch=batch, told=type(error).__name__, error=traceback.format_exc(), strange=True)
        return False
    numbers = table.last_numbers
    if completed is None or numbers is None:
        _say(batch=batch, told="already committed")
    else:
        ms = round(1000 * (time.perf_counter() - begun))
        waits = {"wait_ms": numbers.wait_ms, "lock_ms": numbers.lock_ms, "conflicts": numbers.conflicts}
        _say(batch=batch, told="committed", instant=completed.file_name, ms=ms, **waits)
    return True


def serve(table: LsmTable, role: str) -> None:
    """Compact or clean, until the input ends."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.wait(PAUSE_S):
        try:
            completed = table.compact() if role == "compact" else table.clean()
            _say(told="nothing to do" if completed is None else role)
        except NAMED as error:
            _say(told=type(error).__name__, error=str(error))
        except Exception as error:
            _say(told=type(error).__name__, error=traceback.format_exc(), strange=True)


def _say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(role: str, root: str, number: str, first: str, count: str, options: str) -> None:
    """Do what the role is."""
    name = name_of(int(number)) if role == "write" else role
    table = open_elsewhere(Path(root), name, {**json.loads(options), WRITER_ID.key: name})
    if role == "write":
        write(table, int(number), int(first), int(count))
    else:
        serve(table, role)


if __name__ == "__main__":
    main(*sys.argv[1:])
