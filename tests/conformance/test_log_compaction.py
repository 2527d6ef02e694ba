"""Hudi reads tables whose logs we have compacted into larger logs, and goes on with them; so do we after Hudi."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.format.actions.compaction_plan import CompactionPlan
from streaming_lsm.timeline.instant import Instant, State
from tests.conformance.histories import ORDERS, SIMPLE, orders
from tests.conformance.histories import History as Table
from tests.conformance.judge import Hudi
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines

OPTIONS: dict[str, object] = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.log.compaction.blocks.threshold": 2,
    "hoodie.compaction.plan.generator": "HybridCompactionPlanGenerator",
    "lsm.compaction.small.base.bytes": 0,
    "lsm.compaction.log.share": 50,
    "lsm.compaction.max.runs": 2,
    "hoodie.compact.inline.max.delta.commits": 1,
}


class Played:
    """A merge-on-read table of version 9 that both programs change."""

    def __init__(self, hudi: Hudi, path: Path, *, metadata: bool) -> None:
        made = Table("logs", ORDERS, SIMPLE, [])
        made.create(path, 9, "MERGE_ON_READ")
        self._hudi, self.path, self._number = hudi, path, 0
        self.options = {**OPTIONS, **({"hoodie.metadata.enable": True} if metadata else {})}
        self.by_hudi = {**made.hudi_options(LsmTable(path)), "hoodie.metadata.enable": str(metadata).lower()}

    @property
    def table(self) -> LsmTable:
        return LsmTable(self.path, self.options)

    def ours(self, batches: int) -> None:
        for _ in range(batches):
            self.table.upsert(self._rows())
        rows = self.table.scan(["id", "region"]).to_arrow()
        self.table.delete(rows.take(pa.array([1, 5, 7])))

    def theirs(self, batches: int) -> None:
        for _ in range(batches):
            self._hudi.write(self.path, "upsert", self._rows(), self.by_hudi)

    def _rows(self) -> pa.Table:
        self._number += 1
        return orders(np.random.default_rng(self._number), 10, 100 + self._number)

    def compact_logs(self) -> Instant:
        done, selection = self.table.services.compact(LocalEngine(1), log=True)
        assert done is not None, selection
        assert self.table.timeline.read_commit(done).operation_type == "LOG_COMPACT"
        return done

    def lines(self) -> Sequence[str]:
        """The rows, of which both programs are of one opinion."""
        listed = {"options": {"hoodie.metadata.enable": self.by_hudi["hoodie.metadata.enable"]}}
        found = to_lines(self.table.scan(meta=True).to_arrow())
        assert self._hudi.read(self.path, "snapshot", **listed) == found
        optimised = to_lines(self.table.scan(meta=True, query_type="read_optimized").to_arrow())
        assert self._hudi.read(self.path, "read_optimized", **listed) == optimised
        return found


@pytest.mark.parametrize("metadata", [True, False], ids=["metadata_table", "no_metadata_table"])
def test_hudi_goes_on_with_a_table_whose_logs_we_compact(
    hudi: Hudi, record: Record, tmp_path: Path, metadata: bool
) -> None:
    case, turns = f"v9, log compactions, {'with' if metadata else 'without'} metadata table", "ours, hudi, ours"
    played = Played(hudi, tmp_path / "logs", metadata=metadata)
    played.ours(1)
    assert LsmTable(played.path).compact() is not None
    played.ours(3)
    before = played.lines()

    record(case, turns, "we compact logs by Hudi's own action, hudi reads")
    played.compact_logs()
    assert played.lines() == before

    record(case, turns, "hudi writes on, we compact its logs with ours")
    played.theirs(2)
    before = played.lines()
    done = played.compact_logs()
    assert played.lines() == before

    record(case, turns, "time travel to before and after a log compaction")
    for write in played.table.timeline.completed_writes[-4:]:
        expected = to_lines(played.table.scan(meta=True, as_of=write.requested).to_arrow())
        assert hudi.read(played.path, "time_travel", as_of=write.requested) == expected, (write, done)

    record(case, turns, "we run a hybrid plan, hudi reads its commit of logs")
    played.ours(3)
    before = played.lines()
    completed = played.table.compact()
    assert completed is not None
    plan = Instant(completed.requested, "compaction", State.REQUESTED).path
    operations = CompactionPlan.decode(played.table.storage.read(plan), plan).operations
    assert {operation.type for operation in operations} == {"LOG"}
    assert played.lines() == before

    record(case, turns, "hudi writes and compacts on")
    played.theirs(2)
    played.lines()
    assert hudi.compact(played.path, played.by_hudi)
    before = played.lines()

    record(case, turns, "we write, compact logs and everything on, hudi cleans and archives")
    played.ours(4)
    played.compact_logs()
    assert played.lines() != before
    played.ours(1)
    assert LsmTable(played.path, {"hoodie.archive.automatic": False}).compact() is not None
    before = played.lines()
    hudi.clean(played.path, options=played.by_hudi)
    hudi.archive(played.path, 2, 3, metadata=metadata)
    assert played.lines() == before
