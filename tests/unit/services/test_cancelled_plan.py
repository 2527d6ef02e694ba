"""A plan is cancelled between the load of the timeline and the read of the plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import CommitConflict
from streaming_lsm.services.cleaning.runner import Cleaner
from streaming_lsm.services.compaction.runner import run_compaction, schedule_compaction
from streaming_lsm.services.context import ServiceContext
from streaming_lsm.storage.base import METADATA_BYTES, Storage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from streaming_lsm.txn.plan_record import cancel_plan, plan_record_path
from tests.support.faulty_storage import FaultyStorage
from tests.support.service_tables import assert_sound, grow, grown


class CancelledBeforeRead(FaultyStorage):
    """The writer of a plan cancels it before this process reads it."""

    def __init__(self, inner: Storage, plan: Instant) -> None:
        super().__init__(inner)
        self._storage, self._plan = inner, plan

    def read(self, path: str, most: int | None = METADATA_BYTES) -> bytes:
        if path == self._plan.path and self._storage.exists(path):
            cancel_plan(
                self._storage, plan_record_path(DECISION_FOLDER, self._plan), self._storage.read(self._plan.path)
            )
        return super().read(path, most)


def schedule_clean(table: LsmTable) -> Instant:
    with table.transaction() as tx:
        return tx.schedule("clean", tx.new_time(), b"plan")


def schedule_compaction_of(table: LsmTable) -> Instant:
    planned, _ = table.services.schedule()
    assert planned is not None
    return planned


def beside_a_cancelling_writer(table: LsmTable, planned: Instant) -> ServiceContext:
    storage = CancelledBeforeRead(table.storage, planned)
    return ServiceContext(
        storage, table.config, table.options, table.rule, lambda beside: table.transaction(beside=beside)
    )


def test_a_plan_that_is_cancelled_while_another_is_made_is_a_conflict(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    planned = schedule_compaction_of(table)
    with pytest.raises(CommitConflict, match=r"was cancelled.*try again"):
        schedule_compaction(beside_a_cancelling_writer(table, planned))
    grow(table, model, 3)
    assert table.compact() is not None
    assert_sound(table, model)


def test_a_plan_that_is_cancelled_before_it_is_read_is_not_run(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    planned = schedule_compaction_of(table)
    context = beside_a_cancelling_writer(table, planned)
    assert run_compaction(context, planned.requested, LocalEngine()) is None
    cleaning = schedule_clean(table)
    assert Cleaner(beside_a_cancelling_writer(table, cleaning)).clean() is None
    grow(table, model, 3)
    assert table.compact() is not None
    assert_sound(table, model)
