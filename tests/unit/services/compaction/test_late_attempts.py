"""Attempts of tasks that end when the compaction is completed delete nothing that other attempts have made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import LsmError
from streaming_lsm.lock.heartbeat import check_still_inflight, heartbeat_path
from streaming_lsm.lock.markers import list_marked_files, marker_folder
from streaming_lsm.services.compaction import log_task, task
from streaming_lsm.services.compaction.runner import run_compaction, schedule_compaction
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import Instant, State
from tests.support.service_tables import OPTIONS_OF_SERVICES, Model, grow
from tests.support.small_tables import SCHEMA, rows, shown

T = TypeVar("T")
R = TypeVar("R")


class Repeating(LocalEngine):
    """Keeps what it runs, to run it once more."""

    def __init__(self) -> None:
        super().__init__(1)
        self.again: list[Callable[[], object]] = []

    def map(self, run: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        every = list(items)
        self.again = [lambda item=item: run(item) for item in every]  # type: ignore[misc]
        return super().map(run, every)


@pytest.mark.parametrize("storage", ["disk", "objects"])
@pytest.mark.parametrize("kind", ["full", "log", "log of version 9"])
def test_what_is_committed_stays(tmp_path: Path, memory_uri: str, storage: str, kind: str) -> None:
    uri = memory_uri if storage == "objects" else str(tmp_path / "table")
    version = {"hoodie.write.table.version": 9} if kind == "log of version 9" else {}
    table = LsmTable.create(uri, SCHEMA, {**OPTIONS_OF_SERVICES, **version})
    model: Model = {}
    for batch in range(4):
        grow(table, model, batch)
    table.delete(rows(*[(key, where, ts, 99) for key, where, ts, _ in list(model.values())[:3]]))
    before, engine = shown(table), Repeating()
    completed = table.services.compact(engine, log=kind != "full")[0]
    assert completed is not None
    assert engine.again
    for late in engine.again:
        with pytest.raises(LsmError):
            late()
    files = table.timeline.read_commit(completed).paths
    assert files
    assert [path for path in files if not table.storage.exists(path)] == []
    assert shown(LsmTable(uri, table.options)) == before
    # The next transaction deletes what the late attempts left, and nothing else.
    LsmTable(uri, OPTIONS_OF_SERVICES).upsert(rows(("after", "nl", 1, 1)))
    assert [path for path in files if not table.storage.exists(path)] == []


@pytest.mark.parametrize("storage", ["disk", "objects"])
@pytest.mark.parametrize("kind", ["full", "log"])
def test_an_attempt_of_an_earlier_run_deletes_nothing_of_a_later_one(
    tmp_path: Path, memory_uri: str, monkeypatch: pytest.MonkeyPatch, storage: str, kind: str
) -> None:
    """Another program undoes the first run, whose driver counts as dead, before the attempt ends."""
    uri = memory_uri if storage == "objects" else str(tmp_path / "table")
    table = LsmTable.create(uri, SCHEMA, OPTIONS_OF_SERVICES)
    model: Model = {}
    for batch in range(4):
        grow(table, model, batch)
    before = shown(table)
    planned, _ = schedule_compaction(table.services._context, log=kind == "log")
    assert planned is not None
    done: list[Instant | None] = []
    check = check_still_inflight

    def overtaken(storage: Storage, instant: str) -> None:
        if not done:
            done.append(None)
            for path in (
                *list_marked_files(storage, instant),
                planned.at(State.INFLIGHT).path,
                heartbeat_path(instant),
            ):
                storage.delete(path)
            storage.delete_folder(marker_folder(instant))
            done[:] = [run_compaction(LsmTable(uri, OPTIONS_OF_SERVICES).services._context, instant, LocalEngine(1))]
        check(storage, instant)

    for module in (task, log_task):
        monkeypatch.setattr(module, "check_still_inflight", overtaken)
    with pytest.raises(LsmError):
        run_compaction(table.services._context, planned.requested, LocalEngine(1))
    (completed,) = done
    assert completed is not None
    files = table.timeline.read_commit(completed).paths
    assert [path for path in files if not table.storage.exists(path)] == []
    assert shown(LsmTable(uri, OPTIONS_OF_SERVICES)) == before
