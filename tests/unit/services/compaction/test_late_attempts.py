"""An attempt of a task that begins when the compaction is completed deletes nothing that another attempt has made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import LsmError
from tests.support.service_tables import OPTIONS_OF_SERVICES, Model, grow
from tests.support.small_tables import SCHEMA, rows, shown

T = TypeVar("T")
R = TypeVar("R")


class Repeating(LocalEngine):
    """Keeps what it runs, to run it once more."""

    def __init__(self) -> None:
        super().__init__(1)
        self.again: list[Callable[[], object]] = []

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        every = list(items)
        self.again = [lambda item=item: task(item) for item in every]  # type: ignore[misc]
        return super().map(task, every)


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
