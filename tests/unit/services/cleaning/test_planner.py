"""Which slices a clean deletes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from streaming_lsm.file_group.file_group import FileGroup, SliceFiles
from streaming_lsm.services.cleaning.planner import (
    KEEP_HOURS,
    KEEP_VERSIONS,
    CleanTargets,
    RetainedFiles,
    Retention,
    deletable_files,
    select_clean_targets,
)
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.clock import instant_ms
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.timeline import Timeline

NOTHING = RetainedFiles({}, {})


def group(*keys: str, file_id: str = "g", replaced: str | None = None) -> FileGroup:
    slices = tuple(SliceFiles(key, (f"{file_id}-{key}-base", f"{file_id}-{key}-log")) for key in keys)
    return FileGroup("p", file_id, slices, replaced)


def at_once(requested: str) -> str:
    return requested


def doomed(
    *groups: FileGroup,
    earliest: str,
    kept: RetainedFiles = NOTHING,
    retention: Retention | None = None,
    completion_time: Callable[[str], str | None] = at_once,
) -> set[str]:
    found = select_clean_targets(groups, retention or Retention(), earliest, kept, completion_time)
    return {name for name in found.files.get("p", ()) if name.endswith("base")}


@pytest.mark.parametrize(
    ("keys", "earliest", "expected"),
    [
        ("1357", "8", ["1", "3", "5"]),
        ("1357", "7", ["1", "3"]),
        ("1357", "6", ["1", "3"]),
        ("1357", "5", ["1"]),
        ("1357", "3", []),
        ("1357", "", []),
        ("1", "8", []),
        ("13", "8", ["1"]),
    ],
)
def test_the_newest_slice_before_the_earliest_write_and_all_later_ones_stay(
    keys: str, earliest: str, expected: Sequence[str]
) -> None:
    assert doomed(group(*keys), earliest=earliest) == {f"g-{key}-base" for key in expected}


def test_a_slice_goes_with_all_its_files() -> None:
    found = select_clean_targets([group("1", "3")], Retention(), "8", NOTHING, at_once)
    assert found == CleanTargets({"p": ("g-1-base", "g-1-log")}, "3")


def test_a_slice_stays_while_the_one_after_it_was_completed_after_the_earliest_retained_write() -> None:
    completed = {"5": "9"}.get
    assert doomed(group("1", "3", "5"), earliest="8") == {"g-1-base", "g-3-base"}
    assert doomed(group("1", "3", "5"), earliest="8", completion_time=lambda key: completed(key, key)) == {"g-1-base"}
    gone = group("1", replaced="5")
    assert doomed(gone, earliest="8", completion_time=lambda key: completed(key, key)) == set()


def test_slices_of_a_pending_compaction_stay() -> None:
    kept = RetainedFiles({("p", "g"): ("g-1-log",)}, {})
    assert doomed(group("1", "3", "5"), group("1", "3", "5", file_id="h"), earliest="8", kept=kept) == {
        "g-3-base",
        "h-1-base",
        "h-3-base",
    }


def test_savepointed_slices_stay() -> None:
    kept = RetainedFiles({}, {"p": ("g-3-base",), "q": ("g-1-base",)})
    assert doomed(group("1", "3", "5"), earliest="8", kept=kept) == {"g-1-base"}


def test_a_replaced_group_goes_whole_once_its_replacement_is_older_than_the_earliest_write() -> None:
    gone = group("1", "3", replaced="5")
    assert doomed(gone, earliest="6") == {"g-1-base", "g-3-base"}
    assert doomed(gone, earliest="5") == {"g-1-base"}
    assert select_clean_targets([gone], Retention(), "6", NOTHING, at_once).superseded_by == "5"


@pytest.mark.parametrize(("versions", "expected"), [(1, ["1", "3", "5"]), (2, ["1", "3"]), (4, [])])
def test_by_versions_the_last_slices_stay(versions: int, expected: Sequence[str]) -> None:
    retention = Retention(KEEP_VERSIONS, versions=versions)
    assert doomed(group(*"1357"), earliest="", retention=retention) == {f"g-{key}-base" for key in expected}


def test_by_versions_a_pending_compaction_is_counted_as_a_slice() -> None:
    retention, kept = Retention(KEEP_VERSIONS, versions=2), RetainedFiles({("p", "g"): ("g-7-log",)}, {})
    assert doomed(group(*"1357"), earliest="", retention=retention, kept=kept) == {"g-1-base", "g-3-base", "g-5-base"}
    one = Retention(KEEP_VERSIONS, versions=1)
    assert doomed(group(*"1357"), earliest="", retention=one, kept=kept) == {"g-1-base", "g-3-base", "g-5-base"}


def test_by_versions_a_replaced_group_goes_at_once() -> None:
    retention = Retention(KEEP_VERSIONS, versions=3)
    assert doomed(group("1", "3", replaced="5"), earliest="", retention=retention) == {"g-1-base", "g-3-base"}


def test_what_a_clean_may_delete_is_what_no_reader_of_now_needs() -> None:
    kept = RetainedFiles({("p", "g"): ("g-3-base", "g-3-log")}, {"p": ("h-2-log",)})
    names = {name for _, name in deletable_files([group("1", "3", "5"), group("2", file_id="h", replaced="9")], kept)}
    assert names == {"g-1-base", "g-1-log", "h-2-base"}


def timeline(*pending: Instant, writes: int = 5) -> Timeline:
    done = [Instant(str(n), "deltacommit", State.COMPLETED, f"{n}5") for n in range(1, writes + 1)]
    instants = sorted([*done, *pending], key=lambda instant: instant.requested)
    return Timeline(LocalStorage(Path("nowhere")), tuple(instants), instants[0].requested)


def test_the_earliest_write_is_the_nth_last_completed_one() -> None:
    earliest = Retention(commits=3).earliest(timeline(), "")
    assert earliest is not None
    assert (earliest.requested, earliest.action, earliest.state) == ("3", "deltacommit", "COMPLETED")
    assert Retention(commits=5).earliest(timeline(), "") is None


def test_an_older_pending_write_holds_cleaning_up_and_a_pending_compaction_does_not() -> None:
    clustering, compaction = (Instant("2", action, State.INFLIGHT) for action in ("clustering", "compaction"))
    held = Retention(commits=2).earliest(timeline(clustering), "")
    free = Retention(commits=2).earliest(timeline(compaction), "")
    assert held is not None
    assert free is not None
    assert (held.requested, held.action, held.state) == ("2", "clustering", "INFLIGHT")
    assert free.requested == "4"


def test_by_versions_no_write_is_counted() -> None:
    assert Retention(KEEP_VERSIONS).earliest(timeline(writes=40), "") is None


def hourly(*pending: Instant, count: int = 6) -> Timeline:
    """Writes at 01:00, 02:00, ..., completed half an hour later."""
    done = [Instant(at(n), "deltacommit", State.COMPLETED, at(n, 30)) for n in range(1, count + 1)]
    instants = sorted([*done, *pending], key=lambda instant: instant.requested)
    return Timeline(LocalStorage(Path("nowhere")), tuple(instants), instants[0].requested)


def at(hour: int, minute: int = 0) -> str:
    return f"20261122{hour:02}{minute:02}00000"


BY_HOURS = Retention(KEEP_HOURS, hours=3)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (at(6, 30), at(3)),
        (at(6, 31), at(4)),
        (at(9, 30), at(6)),
        (at(9, 31), None),
        (at(2), at(1)),  # the clock was set back
    ],
)
def test_by_hours_the_earliest_write_is_the_first_one_completed_in_them(now: str, expected: str | None) -> None:
    earliest = BY_HOURS.earliest(hourly(), BY_HOURS.since(instant_ms(now, "UTC"), "UTC"))
    assert (earliest.requested if earliest else None) == expected


def test_by_hours_a_pending_write_and_a_long_one_are_retained() -> None:
    since = BY_HOURS.since(instant_ms(at(6, 31), "UTC"), "UTC")
    held = BY_HOURS.earliest(hourly(Instant(at(2, 5), "deltacommit", State.INFLIGHT)), since)
    assert held is not None
    assert held.requested == at(2, 5)
    long = BY_HOURS.earliest(hourly(Instant(at(1, 5), "commit", State.COMPLETED, at(5))), since)
    assert long is not None
    assert long.requested == at(1, 5)


def test_in_a_local_zone_an_hour_more_is_retained() -> None:
    now = 1_700_000_000_000
    local = instant_ms(BY_HOURS.since(now, "LOCAL"), "LOCAL")
    assert local == instant_ms(BY_HOURS.since(now, "UTC"), "UTC") - 3_600_000


def test_by_hours_archiving_leaves_what_was_completed_in_the_hours_before_the_last_time() -> None:
    assert BY_HOURS.needs_since(hourly(), "UTC") == at(3)
    assert Retention(KEEP_HOURS).needs_since(hourly(), "UTC") == at(1)
    assert Retention(commits=2).needs_since(hourly(), "UTC") == at(5)
    assert Retention(KEEP_VERSIONS).needs_since(hourly(), "UTC") is None


def test_slices_are_deleted_by_hours_as_by_commits() -> None:
    assert doomed(group("1", "3", "5", "7"), earliest="6", retention=BY_HOURS) == {"g-1-base", "g-3-base"}
    gone = group("1", "3", file_id="h", replaced="4")
    assert doomed(gone, earliest="6", retention=BY_HOURS) == {"h-1-base", "h-3-base"}
    kept = group("3", file_id="h", replaced="4")
    assert doomed(kept, earliest="4", retention=BY_HOURS) == set()
