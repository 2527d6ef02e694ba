"""Names of instants, read and printed."""

from __future__ import annotations

import pytest

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.timeline.instant import Instant, State

T, C = "20261121120000000", "20261121120000007"


@pytest.mark.parametrize(
    ("name", "instant"),
    [
        (f"{T}.deltacommit.requested", Instant(T, "deltacommit", State.REQUESTED)),
        (f"{T}.deltacommit.inflight", Instant(T, "deltacommit", State.INFLIGHT)),
        (f"{T}_{C}.deltacommit", Instant(T, "deltacommit", State.COMPLETED, C)),
        (f"{T}.inflight", Instant(T, "commit", State.INFLIGHT)),
        (f"{T}.compaction.requested", Instant(T, "compaction", State.REQUESTED)),
        (f"{T}_{C}.commit", Instant(T, "commit", State.COMPLETED, C)),
        (f"{T}.rollback.inflight", Instant(T, "rollback", State.INFLIGHT)),
        (f"{T}_{C}.savepoint", Instant(T, "savepoint", State.COMPLETED, C)),
        (f"00000000000000000_{C}.deltacommit", Instant("00000000000000000", "deltacommit", State.COMPLETED, C)),
    ],
)
def test_names_are_read_and_printed_back(name: str, instant: Instant) -> None:
    assert Instant.parse(name) == instant
    assert instant.file_name == name
    assert instant.path == f".hoodie/timeline/{name}"


def test_the_longer_name_of_an_inflight_commit_is_read_too() -> None:
    assert Instant.parse(f"{T}.commit.inflight") == Instant(T, "commit", State.INFLIGHT)


@pytest.mark.parametrize(
    "name",
    ["history", f".{T}.deltacommit.requested.crc", "x.deltacommit", f"{T}.deltacommit.requested.tmp", "", f"{T}"],
)
def test_other_files_are_no_instants(name: str) -> None:
    assert Instant.parse(name) is None


@pytest.mark.parametrize("name", [f"{T}_{C}.vacuum", f"{T}.vacuum.requested"])
def test_an_unknown_action_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedTable, match="'vacuum'"):
        Instant.parse(name)


@pytest.mark.parametrize("name", [f"{T}.deltacommit", f"{T}_{C}.deltacommit.inflight"])
def test_names_of_another_timeline_layout_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedTable, match="layout 2"):
        Instant.parse(name)


@pytest.mark.parametrize(
    ("pending", "completed"),
    [("compaction", "commit"), ("logcompaction", "deltacommit"), ("clustering", "replacecommit"), ("clean", "clean")],
)
def test_services_complete_under_the_action_they_amount_to(pending: str, completed: str) -> None:
    instant = Instant(T, pending, State.INFLIGHT).completed_at(C)
    assert (instant.action, instant.state, instant.completed) == (completed, State.COMPLETED, C)
    assert instant.is_write is (completed != "clean")


def test_the_files_of_a_pending_commit_include_both_inflight_names() -> None:
    names = [path.rpartition("/")[2] for path in Instant(T, "commit", State.REQUESTED).pending_paths()]
    assert names == [f"{T}.inflight", f"{T}.commit.inflight", f"{T}.commit.requested"]
