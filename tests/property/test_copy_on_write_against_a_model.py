"""Random events into a copy-on-write table: each batch is folded into what the batches before have left."""

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


def folded(state: dict[str, Event], part: list[Event], *, event_time: bool) -> dict[str, Event]:
    """The pairwise rule over one batch; a base file remembers no deletes."""
    state = dict(state)
    for new in part:
        old = state.get(new.key)
        if event_time and old is not None and old.ts is not None and new.ts is not None and new.ts < old.ts:
            continue
        state[new.key] = new
    return {key: event for key, event in state.items() if not event.delete}


def create(folder: Path, *, event_time: bool) -> LsmTable:
    ordering = {"hoodie.table.ordering.fields": "ts"} if event_time else {}
    options = {
        "hoodie.table.name": "model",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.bucket.index.num.buckets": 2,
        "hoodie.combine.before.insert": True,
        "lsm.read.threads": 1,
        **ordering,
    }
    return LsmTable.create(folder / "table", SCHEMA, options)


@pytest.mark.parametrize("event_time", [True, False], ids=["event-time", "commit-time"])
@settings(
    max_examples=random_cases(40, 12), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(stream=streams, places=cuts, ways=operations)
def test_each_batch_is_folded_into_new_base_files(
    event_time: bool, stream: list[Event], places: list[int], ways: list[str]
) -> None:
    state: dict[str, Event] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "table")
        table = create(Path(folder), event_time=event_time)
        for part, way in zip(cut(stream, places), ways, strict=False):
            before = state
            state = folded(state, part, event_time=event_time)
            instant = getattr(table, way)(batch(part))
            assert instant.action == "commit"
            stats = table.timeline.read_commit(instant).stats
            assert sum(stat.num_inserts for stat in stats) == len(state.keys() - before.keys())
            assert sum(stat.num_deletes for stat in stats) == len(before.keys() - state.keys())
        expected = {key: (event.ts, event.value) for key, event in state.items()}
        assert shown(table.scan().to_arrow()) == expected
        assert shown(read_snapshot(path)) == expected
        assert validate(path) == []
        assert not list(Path(path).rglob("*.log.parquet"))
        assert not list(Path(path).rglob("*.deletes.parquet"))
