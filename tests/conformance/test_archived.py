"""Hudi reads tables whose timeline we have archived, as of archived times, too, and archives them on; so do we."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.timeline.archive import History
from streaming_lsm.timeline.instant import Action
from tests.conformance.histories import ORDERS, SIMPLE, orders
from tests.conformance.histories import History as Table
from tests.conformance.judge import Hudi
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines

KEEP: dict[str, object] = {
    "hoodie.archive.automatic": True,
    "hoodie.clean.automatic": False,
    "hoodie.clean.commits.retained": 2,
    "hoodie.keep.min.commits": 3,
    "hoodie.keep.max.commits": 4,
}


@pytest.mark.parametrize("metadata", [True, False], ids=["metadata_table", "no_metadata_table"])
@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_hudi_goes_on_with_a_table_that_we_archive(
    hudi: Hudi, record: Record, tmp_path: Path, kind: str, metadata: bool
) -> None:
    case, turns = f"v9 {kind}, archived, {'with' if metadata else 'without'} metadata table", "ours, hudi, ours"
    made = Table("archived", ORDERS, SIMPLE, [])
    path = tmp_path / "archived"
    made.create(path, 9, kind)
    ours = {
        **KEEP,
        **({"hoodie.metadata.enable": True, "hoodie.metadata.compact.max.delta.commits": 3} if metadata else {}),
    }
    by_hudi = {**made.hudi_options(LsmTable(path)), "hoodie.metadata.enable": str(metadata).lower()}

    record(case, turns, "we archive, hudi reads")
    every: set[Action] = set()
    _write(path, ours, 0, 30, kind)
    table = LsmTable(path)
    levels = {file.level for file in History(table.storage).manifest.files}
    assert metadata or levels == {0, 1}
    every = _checked(hudi, path, every)
    old = sorted(table.timeline.history.writes().values(), key=lambda write: write.requested)
    deltas = [write for write in old if write.requested not in _compactions(table)]
    assert len(old) > 15

    record(case, turns, "time travel to archived writes")
    for write in (deltas[1], deltas[len(deltas) // 2], deltas[-1]):
        expected = to_lines(table.scan(meta=True, as_of=write.requested).to_arrow())
        assert hudi.read(path, "time_travel", as_of=write.requested) == expected, write

    record(case, turns, "incremental over archived writes")
    begin, end = deltas[1].completed, deltas[5].completed
    # Hudi filters the rows of the table by their commit times where the begin is archived; we merge what was written.
    times = {json.loads(row)["_hoodie_commit_time"] for row in hudi.read(path, "incremental", begin=begin, end=end)}
    assert times <= {write.requested for write in deltas[2:6]}
    begin = table.timeline.completed_writes[0].completed
    expected = to_lines(table.incremental(begin, meta=True).to_arrow())
    assert hudi.read(path, "incremental", begin=begin) == expected

    record(case, turns, "hudi writes, cleans and archives on")
    for number in range(30, 36):
        hudi.write(path, "upsert", orders(np.random.default_rng(number), 10, 100 + number), by_hudi)
    if kind == "MERGE_ON_READ":
        assert hudi.compact(path, by_hudi)
    every = _checked(hudi, path, every)
    hudi.clean(path, options=by_hudi)
    before = len(LsmTable(path).timeline.instants)
    hudi.archive(path, 2, 3, metadata=metadata)
    archived = len(LsmTable(path).timeline.instants) < before
    assert archived or metadata
    every = _checked(hudi, path, every)

    record(case, turns, "we write and archive on")
    _write(path, ours, 40, 52, kind)
    every = _checked(hudi, path, every)

    record(case, turns, "hudi archives after us again")
    for number in range(60, 64):
        hudi.write(path, "upsert", orders(np.random.default_rng(number), 10, 100 + number), by_hudi)
    hudi.archive(path, 2, 3, metadata=metadata)
    _checked(hudi, path, every)


def _write(path: Path, options: dict[str, object], begin: int, end: int, kind: str) -> None:
    table = LsmTable(path, options)
    for number in range(begin, end):
        table.upsert(orders(np.random.default_rng(number), 10, 100 + number))
        if kind == "MERGE_ON_READ" and number % 10 == 7:
            assert table.compact() is not None


def _compactions(table: LsmTable) -> set[str]:
    if table.config.is_copy_on_write:
        return set()
    return {write.requested for write in table.timeline.every_write if write.action == "commit"}


def _checked(hudi: Hudi, path: Path, before: set[Action]) -> set[Action]:
    """Compare the rows, and return the actions of timeline and history, which has lost none."""
    table = LsmTable(path)
    for query in ("snapshot", "read_optimized"):
        assert hudi.read(path, query) == to_lines(table.scan(meta=True, query_type=query).to_arrow()), query
    history = table.timeline.history
    now = {action.of_action for action in table.timeline.instants if action.is_completed}
    now |= {(action.requested, action.action) for action in history.instants(history.manifest.files)}
    assert before <= now
    return now
