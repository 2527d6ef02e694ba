"""Savepoints, rollbacks and restores by either program: the other one reads the table after them, and goes on."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.storage.local import LocalStorage
from tests.conformance.histories import ORDERS, SIMPLE, orders
from tests.conformance.histories import History as Table
from tests.conformance.judge import Hudi
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines
from tests.support.faulty_storage import Fault, FaultyStorage, Killed

KINDS = ("MERGE_ON_READ", "COPY_ON_WRITE")
CLEANING = {"hoodie.clean.commits.retained": 1}


class Played:
    """A table of version 9 that both programs change."""

    def __init__(self, hudi: Hudi, path: Path, kind: str, *, metadata: bool) -> None:
        made = Table("states", ORDERS, SIMPLE, [])
        made.create(path, 9, kind)
        self._hudi, self.path, self._number = hudi, path, 0
        self.options: dict[str, object] = {"hoodie.clean.automatic": False}
        self.options |= {"hoodie.metadata.enable": True} if metadata else {}
        self.by_hudi = {**made.hudi_options(LsmTable(path)), "hoodie.metadata.enable": str(metadata).lower()}
        # We drop other partitions of a metadata table, which Hudi's restore expects to be whole.
        self.by_hudi |= {f"hoodie.metadata.index.{index}.stats.enable": "false" for index in ("column", "partition")}
        self.is_merged = kind == "MERGE_ON_READ"

    @property
    def table(self) -> LsmTable:
        return LsmTable(self.path, self.options)

    def ours(self, batches: int = 1) -> None:
        for _ in range(batches):
            self._number += 1
            self.table.upsert(orders(np.random.default_rng(self._number), 10, 100 + self._number))

    def theirs(self, batches: int = 1) -> None:
        for _ in range(batches):
            self._number += 1
            rows = orders(np.random.default_rng(self._number), 10, 100 + self._number)
            self._hudi.write(self.path, "upsert", rows, self.by_hudi)

    def restore(self, savepoint: str) -> None:
        """Restore by us; a new metadata table has the file names of the old one, of which Hudi caches blocks."""
        self.table.restore(savepoint)
        if "hoodie.metadata.enable" in self.options:
            self._hudi.restart()

    def last(self) -> str:
        return max(self.table.timeline.completed_writes, key=lambda write: write.completed or "").requested

    def lines(self, as_of: str | None = None) -> Sequence[str]:
        """The rows, of which both programs and their metadata tables are of one opinion.

        Hudi refuses time travel to a savepoint that is older than what its last clean retained.
        """
        if as_of is not None:
            return to_lines(self.table.scan(meta=True, as_of=as_of).to_arrow())
        found = to_lines(self.table.scan(meta=True).to_arrow())
        assert to_lines(LsmTable(self.path).scan(meta=True).to_arrow()) == found
        listed = {"options": {"hoodie.metadata.enable": self.by_hudi["hoodie.metadata.enable"]}}
        assert self._hudi.read(self.path, "snapshot", **listed) == found
        return found


@pytest.mark.parametrize("metadata", [True, False], ids=["metadata_table", "no_metadata_table"])
@pytest.mark.parametrize("kind", KINDS)
def test_either_program_keeps_and_restores_the_savepoints_of_the_other(
    hudi: Hudi, record: Record, tmp_path: Path, kind: str, metadata: bool
) -> None:
    case = f"v9 {kind}, {'with' if metadata else 'without'} metadata table"
    played = Played(hudi, tmp_path / "states", kind, metadata=metadata)

    record(case, "ours, hudi", "savepoint of ours, hudi writes and cleans")
    played.ours(3)
    kept = played.lines()
    saved = played.table.savepoint(user="ann", comment="ours").requested
    for _ in range(2):
        played.theirs(2)
        if played.is_merged:
            hudi.compact(played.path, played.by_hudi)
    hudi.clean(played.path, options=played.by_hudi)
    assert played.lines(as_of=saved) == kept
    assert [row["savepoint_time"] for row in hudi.call("show_savepoints", played.path)] == [saved]

    record(case, "ours, hudi, ours", "hudi restores a savepoint of ours")
    hudi.restore(played.path, saved, played.by_hudi)
    assert played.lines() == kept
    played.ours()
    played.theirs()
    played.lines()

    record(case, "hudi, ours", "savepoint of hudi, we compact and clean")
    time = played.last()
    kept = played.lines()
    hudi.savepoint(played.path, time, played.by_hudi)
    for _ in range(2):
        played.ours(2)
        played.table.compact()
    LsmTable(played.path, {**played.options, **CLEANING}).clean()
    assert played.lines(as_of=time) == kept
    played.table.delete_savepoint(time)
    played.table.delete_savepoint(saved)
    assert hudi.call("show_savepoints", played.path) == []
    played.theirs()
    kept = played.lines()

    record(case, "ours, hudi", "we restore, hudi goes on")
    saved = played.table.savepoint().requested
    played.ours(2)
    played.theirs()
    if played.is_merged:
        assert hudi.compact(played.path, played.by_hudi)
        played.theirs()
    played.restore(saved)
    assert played.lines() == kept
    played.theirs(2)
    played.lines()
    if played.is_merged:
        assert hudi.compact(played.path, played.by_hudi)
        played.lines()
    hudi.clean(played.path, options=played.by_hudi)
    hudi.archive(played.path, 2, 3, metadata=metadata)
    played.lines()

    record(case, "hudi, ours", "we restore a savepoint of hudi")
    played.restore(saved)
    assert played.lines() == kept
    played.table.delete_savepoint(saved)
    # Hudi refuses the restored state itself: its last clean retained a write that was undone.
    played.theirs()
    kept, saved = played.lines(), played.last()
    hudi.savepoint(played.path, saved, played.by_hudi)
    played.ours()
    played.theirs()
    played.restore(saved)
    assert played.lines() == kept
    played.ours(2)
    played.theirs(2)
    played.lines()


@pytest.mark.parametrize("metadata", [True, False], ids=["metadata_table", "no_metadata_table"])
@pytest.mark.parametrize("kind", KINDS)
def test_either_program_goes_on_after_a_rollback_by_the_other(
    hudi: Hudi, record: Record, tmp_path: Path, kind: str, metadata: bool
) -> None:
    case = f"v9 {kind}, {'with' if metadata else 'without'} metadata table"
    played = Played(hudi, tmp_path / "states", kind, metadata=metadata)

    record(case, "ours, hudi", "we roll back our write, hudi goes on")
    played.ours(2)
    before = played.lines()
    played.ours()
    played.table.rollback()
    assert played.lines() == before
    played.theirs()
    before = played.lines()

    record(case, "hudi, ours", "we roll back hudi's write")
    played.theirs()
    played.table.rollback()
    assert played.lines() == before

    record(case, "ours, hudi, ours", "hudi rolls back our write")
    played.ours()
    hudi.rollback(played.path, played.last(), played.by_hudi)
    assert played.lines() == before
    played.ours()
    before = played.lines()

    if played.is_merged:
        record(case, "ours, hudi", "we roll back compactions")
        assert played.table.compact() is not None
        played.table.rollback()
        assert played.lines() == before
        assert hudi.compact(played.path, played.by_hudi)
        played.table.rollback()
        assert played.lines() == before
        assert hudi.compact(played.path, played.by_hudi)
        assert played.lines()
        played.ours()
        played.lines()


@pytest.mark.parametrize("kind", KINDS)
def test_hudi_finishes_a_rollback_that_we_have_begun(hudi: Hudi, record: Record, tmp_path: Path, kind: str) -> None:
    played = Played(hudi, tmp_path / "states", kind, metadata=False)
    played.ours(2)
    record(f"v9 {kind}", "ours, hudi, ours", "hudi finishes a rollback of ours")
    for point in ("delete .hoodie/timeline/", "delete_files "):
        before = played.lines()
        played.ours()
        undone = played.last()
        counting = FaultyStorage(LocalStorage(_copied(played.path, tmp_path / f"copy{len(point)}")))
        counted = LsmTable(tmp_path / f"copy{len(point)}", played.options)
        counted.storage = counting
        counted.rollback()
        calls = [f"{name} {path}" for name, path in counting.calls]
        call = next(n for n, text in enumerate(calls) if text.startswith(point) and _is_of(text, undone, point))
        dying = played.table
        dying.storage = FaultyStorage(LocalStorage(played.path), {call: Fault.KILL_AFTER})
        with pytest.raises(Killed):
            dying.rollback()
        played.theirs()
        table = played.table
        assert not any(write.requested == undone for write in table.timeline.completed_writes)
        assert played.lines() != before
        table.rollback()
        assert played.lines() == before


def _is_of(call: str, undone: str, point: str) -> bool:
    """Whether a call deletes the completed file of a write, or one of its data files."""
    is_instant = ".hoodie/" in call
    return undone in call and is_instant == ("timeline" in point)


def _copied(path: Path, to: Path) -> Path:
    return Path(shutil.copytree(path, to))
