"""Which actions are planned, and which are not run here."""

from __future__ import annotations

import pytest

from streaming_lsm.timeline.action_kind import OnFailure, kind_of, planned_kind
from streaming_lsm.timeline.instant import WRITE_ACTIONS


@pytest.mark.parametrize(
    ("action", "on_failure"),
    [("compaction", OnFailure.PUT_BACK), ("clustering", OnFailure.PUT_BACK), ("clean", OnFailure.KEEP)],
    ids=str,
)
def test_table_services_are_planned_and_their_instants_have_runs(action: str, on_failure: OnFailure) -> None:
    kind = planned_kind(action)
    assert (kind.action, kind.on_failure, kind.is_planned, kind.has_runs) == (action, on_failure, True, True)


@pytest.mark.parametrize("action", sorted(WRITE_ACTIONS))
def test_a_write_is_not_planned_and_has_one_run(action: str) -> None:
    assert not kind_of(action).has_runs
    with pytest.raises(ValueError, match=f"'{action}' is not planned first"):
        planned_kind(action)


@pytest.mark.parametrize("action", ["schemacommit", ""])
def test_an_action_of_another_release_is_refused_with_those_that_are_run(action: str) -> None:
    with pytest.raises(ValueError, match="is not run by this release: expected one of clean, clustering, commit"):
        planned_kind(action)
