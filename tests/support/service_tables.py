"""Tables that have something to compact and to clean, with the rows that they hold."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from streaming_lsm import LsmTable
from streaming_lsm.format.avro.container import encode_record
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import Instant, State
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.small_tables import OPTIONS, Row, create, rows, shown
from tests.support.writers import NO_WAIT

OPTIONS_OF_SERVICES: dict[str, object] = {
    **OPTIONS,
    "lsm.read.threads": 1,
    "hoodie.clean.automatic": False,
    **NO_WAIT,
}
Model = dict[str, Row]


def grown(root: Path, batches: int = 3, **options: object) -> tuple[LsmTable, Model]:
    """A table with log files in two file groups, updates and deletes among them, and its rows by key."""
    table = create(root, **{**OPTIONS_OF_SERVICES, **options})
    model: Model = {}
    for batch in range(batches):
        grow(table, model, batch)
    return table, model


def grow(table: LsmTable, model: Model, batch: int) -> None:
    """One batch: eight keys written, from the third batch on one of them deleted again."""
    changed: list[Row] = [(f"k{batch + n}", "nl", batch, batch * 100 + n) for n in range(8)]
    table.upsert(rows(*changed))
    model.update({row[0]: row for row in changed})
    if batch >= 2:
        key = f"k{batch + 1}"
        table.delete(pa.table({"id": [key], "country": ["nl"]}))
        del model[key]


def reopened(table: LsmTable, storage: Storage | None = None, **options: object) -> LsmTable:
    """The table as a new process opens it, on a storage of its own."""
    values = {**OPTIONS_OF_SERVICES, **options}
    opened = LsmTable(table.path, {key: value for key, value in values.items() if value is not None})
    opened.storage = storage or LocalStorage(table.path.removeprefix("file://"))
    return opened


def assert_sound(table: LsmTable, model: Mapping[str, Row]) -> None:
    """The table's rows are the model's for both readers, and no file is there that should not be."""
    path = table.path.removeprefix("file://")
    expected = sorted(model.values())
    for found in (shown(table), sorted(tuple(row.values()) for row in read_snapshot(path).to_pylist())):
        assert found == expected, (found, expected)
    violations = validate(path)
    assert violations == [], violations


def compactions(table: LsmTable) -> list[Instant]:
    """Completed compactions."""
    return [write for write in table.timeline.every_write if write.action == "commit"]


def cleans(table: LsmTable) -> list[Instant]:
    """Completed cleans, with those that are archived."""
    history = table.timeline.history
    archived = [found for found in history.instants(history.manifest.files) if found.action == "clean"]
    known = [Instant(found.requested, "clean", State.COMPLETED, found.completed) for found in archived]
    return list(dict.fromkeys([*known, *table.timeline.completed_cleans]))


def ledger(table: LsmTable, instant: Instant) -> object:
    """What a commit remembers of the writers."""
    return json.loads(table.timeline.read_commit(instant).extra.get("lsm.writers", "null"))


@contextmanager
def storage_of(table: LsmTable, storage: Storage) -> Iterator[LsmTable]:
    """The table on another storage for a while."""
    before, table.storage = table.storage, storage
    try:
        yield table
    finally:
        table.storage = before


def most_logs(table: LsmTable) -> int:
    """Log files of the slice that has most of them."""
    return max(len(found.logs) for found in table.file_slices())


def put_savepoint(table: LsmTable, time: str, files: list[str]) -> None:
    """A savepoint of a write that keeps files of the partition nl."""
    kept = {"partitionPath": "nl", "savepointDataFile": files}
    fields = {"savepointedBy": "", "savepointedAt": 1, "comments": "", "partitionMetadata": {"nl": kept}, "version": 1}
    data = encode_record("HoodieSavepointMetadata", fields)
    table.storage.put_if_absent(f".hoodie/timeline/{time}.savepoint.inflight", b"")
    table.storage.put_if_absent(f".hoodie/timeline/{time}_20991231000000000.savepoint", data)
