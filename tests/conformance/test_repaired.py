"""Timelines that we rebuilt from data files: Hudi reads the same rows as before, and goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conformance.judge import Hudi
from tests.conformance.results import Record
from tests.conformance.test_states import KINDS, Played


@pytest.mark.parametrize("kind", KINDS)
def test_hudi_reads_and_writes_a_table_whose_timeline_was_rebuilt(
    hudi: Hudi, record: Record, tmp_path: Path, kind: str
) -> None:
    played = Played(hudi, tmp_path / "states", kind, metadata=False)
    record(f"v9 {kind}, without metadata table", "ours, hudi", "a lost timeline is rebuilt, hudi goes on")
    played.ours(2)
    played.theirs()
    if played.is_merged:
        assert played.table.compact() is not None
    played.ours()
    played.theirs()
    kept = played.lines()
    shutil.rmtree(played.path / ".hoodie/timeline")
    plan, count = played.table.repair()
    assert plan.instants
    assert count == len(kept)
    assert played.lines() == kept
    played.theirs(2)
    played.ours(2)
    played.lines()
    if played.is_merged:
        assert hudi.compact(played.path, played.by_hudi)
        played.lines()
    hudi.clean(played.path, options=played.by_hudi)
    played.lines()
