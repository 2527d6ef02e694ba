"""Random writes with compactions planned and run, and cleans, between them: against a model of slices and the oracle.

The model of a key: what the last compaction left, and the events since its plan. A compaction forgets deletes, so an
event that is older than a deleted row brings the key back once the delete is merged (docs/format/05-merge.md).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming_lsm import LsmTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import ConfigError
from streaming_lsm.txn.planned_actions import pending_compactions
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.changes import SCHEMA, Event, batch, events, shown
from tests.support.crash_points import random_cases

Shown = dict[str, tuple[int | None, int]]
batches = st.lists(events(), min_size=1, max_size=6).map(lambda found: [event for part in found for event in part])
steps = st.lists(st.one_of(batches, batches, st.sampled_from(["schedule", "run", "compact", "clean"])), max_size=12)


@dataclass
class Model:
    """What a table holds."""

    event_time: bool
    base: dict[str, Event] = field(default_factory=dict)
    tail: list[Event] = field(default_factory=list)
    planned: int | None = None

    def fold(self, part: list[Event]) -> dict[str, Event]:
        """The base's rows and some events, by the pairwise rule."""
        state = dict(self.base)
        for new in part:
            old = state.get(new.key)
            ordered = self.event_time and old is not None and old.ts is not None and new.ts is not None
            if not (ordered and new.ts < old.ts):  # type: ignore[operator, union-attr]
                state[new.key] = new
        return {key: event for key, event in state.items() if not event.delete}

    def shown(self) -> Shown:
        """The snapshot."""
        return {key: (event.ts, event.value) for key, event in self.fold(self.tail).items()}

    def schedule(self) -> None:
        self.planned = len(self.tail)

    def run(self) -> None:
        if self.planned is not None:
            self.base, self.tail = self.fold(self.tail[: self.planned]), self.tail[self.planned :]
            self.planned = None


def create(folder: Path, *, event_time: bool) -> LsmTable:
    ordering = {"hoodie.table.ordering.fields": "ts"} if event_time else {}
    options = {
        "hoodie.table.name": "model",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.bucket.index.num.buckets": 2,
        "hoodie.parquet.bloom.filter.enabled": event_time,
        "hoodie.index.bloom.num_entries": 10,
        "hoodie.clean.automatic": False,
        "hoodie.clean.commits.retained": 2,
        "lsm.read.threads": 1,
        **ordering,
    }
    return LsmTable.create(folder / "table", SCHEMA, options)


def take(table: LsmTable, model: Model, step: str | list[Event]) -> None:
    """One step, of the table and of the model."""
    if isinstance(step, list):
        table.upsert(batch(step))
        model.tail += step
    elif step == "clean":
        table.clean()
    elif step == "schedule":
        if not pending_compactions(table.timeline) and table.services.schedule()[0]:
            model.schedule()
    elif step == "compact" or pending_compactions(table.timeline):
        if model.planned is None:
            model.schedule()
        table.services.compact(LocalEngine(1))
        model.run()


@pytest.mark.parametrize("event_time", [True, False], ids=["event-time", "commit-time"])
@settings(
    max_examples=random_cases(25, 9), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(course=steps)
def test_rows_are_the_models_whatever_is_compacted_and_cleaned_when(
    event_time: bool, course: list[str | list[Event]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "table")
        table, model = create(Path(folder), event_time=event_time), Model(event_time)
        states: dict[str, Shown] = {}
        for step in course:
            take(table, model, step)
            assert shown(table.scan().to_arrow()) == model.shown()
            if isinstance(step, list):
                states[table.timeline.completed_writes[-1].requested] = model.shown()
        assert validate(path) == []
        if states:
            assert shown(read_snapshot(path)) == model.shown()
        for time, state in states.items():
            check_time_travel(table, path, time, state)


def check_time_travel(table: LsmTable, path: str, time: str, state: Shown) -> None:
    """As of a write both readers agree, and see what was there then, or ours refuses what was cleaned."""
    try:
        found = shown(table.scan(as_of=time).to_arrow())
    except ConfigError:
        assert time < table.timeline.earliest_retained
        return
    assert found == shown(read_snapshot(path, as_of=time))
    # A compaction that was planned before the write and run after it counts as of the write, deletes forgotten.
    writes = table.timeline.completed_writes
    overtaken = any(w.action == "commit" and w.requested < time < (w.completed or "") for w in writes)
    assert overtaken or found == state
