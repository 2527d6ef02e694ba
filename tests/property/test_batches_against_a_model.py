"""Random events, cut into batches at random, against a dict: what a key's fold says is what a snapshot shows."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from streaming_lsm import LsmTable
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.changes import SCHEMA, Event, batch, cut, cuts, operations, shown, streams
from tests.support.crash_points import random_cases


def fold(stream: list[Event], *, event_time: bool) -> dict[str, tuple[int | None, int]]:
    """The pairwise rule, event by event."""
    state: dict[str, Event] = {}
    for new in stream:
        old = state.get(new.key)
        if event_time and old is not None and old.ts is not None and new.ts is not None and new.ts < old.ts:
            continue
        state[new.key] = new
    return {key: (event.ts, event.value) for key, event in state.items() if not event.delete}


def create(folder: Path, *, event_time: bool, combine: bool, buckets: int = 3) -> LsmTable:
    ordering = {"hoodie.table.ordering.fields": "ts"} if event_time else {}
    options = {
        "hoodie.table.name": "model",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.bucket.index.num.buckets": buckets,
        "hoodie.combine.before.upsert": combine,
        "hoodie.combine.before.insert": combine,
        "lsm.read.threads": 1,
        **ordering,
    }
    return LsmTable.create(folder / "table", SCHEMA, options)


@pytest.mark.parametrize("event_time", [True, False], ids=["event-time", "commit-time"])
@pytest.mark.parametrize("combine", [True, False], ids=["combined", "repeated-keys"])
@settings(
    max_examples=random_cases(40, 8), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(stream=streams, places=cuts, ways=operations)
def test_a_snapshot_is_the_fold_of_all_events_however_they_are_cut(
    event_time: bool, combine: bool, stream: list[Event], places: list[int], ways: list[str]
) -> None:
    expected = fold(stream, event_time=event_time)
    with tempfile.TemporaryDirectory() as folder:
        table = create(Path(folder), event_time=event_time, combine=combine)
        for part, way in zip(cut(stream, places), ways, strict=False):
            getattr(table, way)(batch(part))
        assert shown(table.scan().to_arrow()) == expected
        path = str(Path(folder) / "table")
        assert shown(read_snapshot(path)) == expected
        assert validate(path) == []
