"""A task that is late creates its file after its instant was committed, and deletes it when it finds that out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from streaming_lsm import LsmTable
from streaming_lsm.errors import Fenced
from streaming_lsm.format.table.file_names import WriteToken
from streaming_lsm.storage.base import Storage
from streaming_lsm.write.partition_writer import WriteResult, collect, write_collected
from tests.support.faulty_storage import FaultyStorage
from tests.support.service_tables import OPTIONS_OF_SERVICES
from tests.support.small_tables import create, rows, shown

T = TypeVar("T")


class Late(FaultyStorage):
    """The task is stopped before it creates its file, and again before it looks whether its instant is open."""

    def __init__(self, inner: Storage, commit: Callable[[], object], meanwhile: Callable[[], object]) -> None:
        super().__init__(inner)
        self._pauses = {"create": commit, "read": meanwhile}
        self._is_late = False

    def _call(self, name: str, path: str, effect: Callable[[], T]) -> T:
        if name == "create" or self._is_late:
            self._is_late = True
            self._pauses.pop(name, lambda: None)()
        return super()._call(name, path, effect)


def test_a_file_of_a_late_task_is_no_part_of_the_table(tmp_path: Path) -> None:
    table = create(tmp_path / "table", **OPTIONS_OF_SERVICES)
    another = LsmTable(tmp_path / "table", OPTIONS_OF_SERVICES)
    batch = rows(("a", "nl", 2, 3))
    with table.transaction() as tx:
        plan = table.plan(tx, "upsert")
        plan = plan.at(tx.begin(plan.action))
        tasks = table._collect(plan, batch)
        written = WriteResult.joined([write_collected(plan, *task) for task in tasks])
        storage = Late(
            table.storage,
            lambda: table.commit(tx, plan, written),
            lambda: another.upsert(rows(("b", "nl", 1, 2))),
        )
        late, token = replace(plan, storage=storage), WriteToken(0, 0, 1)
        with suppress(Fenced):
            write_collected(late, collect(late, batch.to_batches(), token), token)
    assert shown(LsmTable(tmp_path / "table", OPTIONS_OF_SERVICES)) == [("a", "nl", 2, 3), ("b", "nl", 1, 2)]
