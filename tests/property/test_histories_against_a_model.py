"""Random histories of random tables: every query shows the rows of an independent model, whatever it prunes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.crash_points import random_cases
from tests.support.histories_model.shrinking import run_history, shrink
from tests.support.histories_model.steps import DeletePartition, Drop, Rename, Service, Step, Way, Write, draw_history


@pytest.mark.parametrize("seed", range(random_cases(1000, 60)))
def test_every_query_shows_the_rows_of_the_model(seed: int, tmp_path: Path) -> None:
    failure = run_history(draw_history(seed), tmp_path / "table")
    if failure is not None:
        pytest.fail(str(shrink(failure)), pytrace=False)


def test_the_histories_have_every_step_and_every_kind_of_table() -> None:
    found: dict[tuple[int, bool, bool], set[object]] = {}
    captured: set[tuple[bool, object]] = set()
    for seed in range(200):
        history = draw_history(seed)
        kind = history.kind
        steps = found.setdefault((kind.version, kind.is_merge_on_read, kind.is_ordered), set())
        captured |= {(kind.is_merge_on_read, kind.logging_mode)} if kind.captures_changes else set()
        steps |= set(map(_what, history.steps))
    assert len(found) == 12
    assert len(captured) == 6
    assert {*Way, *Service, DeletePartition, Drop, Rename} <= set.union(*found.values())
    assert all(Way.UPSERT in steps for steps in found.values())


def _what(step: Step) -> object:
    return step.way if isinstance(step, Write) else step if isinstance(step, Service) else type(step)
