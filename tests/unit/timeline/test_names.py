"""Names of a timeline's folder: a listing that is compared with the one before gives what a fresh one gives."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, Instant
from streaming_lsm.timeline.names import TimelineNames
from streaming_lsm.timeline.timeline import Timeline


def at(second: int) -> str:
    return f"202611211200{second:02d}000"


def names_of(second: int, chance: random.Random) -> list[str]:
    """Some or all names of an action, as if it had come so far, or files of it were gone."""
    time, later = at(second), at(second + 30)
    kinds = {
        "deltacommit": [f"{time}.deltacommit.requested", f"{time}.deltacommit.inflight", f"{time}_{later}.deltacommit"],
        "commit": [f"{time}.commit.requested", f"{time}.inflight", f"{time}.commit.inflight", f"{time}_{later}.commit"],
        "compaction": [f"{time}.compaction.requested", f"{time}.compaction.inflight", f"{time}_{later}.commit"],
        "clean": [f"{time}.clean.requested", f"{time}.clean.inflight", f"{time}_{later}.clean"],
        "other": [f".{time}.clean.requested.crc", "history", f"{time}.rollback.requested"],
    }
    found = kinds[chance.choice(sorted(kinds))]
    return chance.sample(found, chance.randint(1, len(found)))


@pytest.mark.parametrize("seed", range(20))
def test_updates_give_what_the_last_listing_alone_gives(seed: int) -> None:
    chance = random.Random(seed)
    known = TimelineNames()
    names: set[str] = set()
    for _ in range(60):
        for _ in range(chance.choice([0, 1, 2, 30])):
            # One clean and one write may share their requested time.
            names.update(names_of(chance.randrange(30), chance))
        names.difference_update(chance.sample(sorted(names), len(names) // chance.choice([2, 10, 1000])))
        fresh = TimelineNames().updated(sorted(names), 2)
        known = known.updated(sorted(names), 2)
        assert known.instants == fresh.instants
        assert known.parsed == fresh.parsed
        assert known.states.keys() == fresh.states.keys()


def test_a_name_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = Instant.parse

    def noting(name: str, layout: int = 2) -> Instant | None:
        parsed.append(name)
        return parse(name, layout)

    monkeypatch.setattr(Instant, "parse", noting)
    many = [f"20261121{second:09d}.deltacommit.requested" for second in range(1000)]
    before = TimelineNames().updated(many, 2)
    parsed.clear()
    after = before.updated([*many[1:], f"{at(1)}.clean.requested"], 2)
    assert parsed == [f"{at(1)}.clean.requested"]
    assert len(after.instants) == 1000
    assert after.instants[5] is before.instants[6]
    assert len(before.instants) == 1000
    assert before.instants[0].requested not in {instant.requested for instant in after.instants}


def test_an_action_that_is_completed_twice_is_found_by_an_update() -> None:
    before = TimelineNames().updated([f"{at(1)}_{at(2)}.commit"], 2)
    with pytest.raises(CorruptFileError, match="complete one action twice"):
        before.updated([f"{at(1)}_{at(2)}.commit", f"{at(1)}_{at(3)}.commit"], 2)


def test_an_inflight_commit_that_loses_one_of_its_two_names_is_still_inflight() -> None:
    both = [f"{at(1)}.inflight", f"{at(1)}.commit.inflight"]
    before = TimelineNames().updated(both, 2)
    assert before.updated(both[:1], 2).instants == before.instants
    assert before.updated([], 2).instants == ()


def test_a_loaded_timeline_stays_as_it_is_when_a_later_one_is_loaded_from_it(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.put_if_absent(f"{TIMELINE_FOLDER}/{at(1)}.deltacommit.requested", b"")
    first = Timeline.load(storage)
    storage.put_if_absent(f"{TIMELINE_FOLDER}/{at(1)}_{at(2)}.deltacommit", b"")
    second = Timeline.load(storage, previous=first)
    storage.delete_folder(TIMELINE_FOLDER)
    third = Timeline.load(storage, previous=second)
    assert [len(timeline.pending) for timeline in (first, second, third)] == [1, 0, 0]
    assert [len(timeline.completed_writes) for timeline in (first, second, third)] == [0, 1, 0]
    assert [timeline.first for timeline in (first, second, third)] == [at(1), at(1), ""]


def test_the_contents_of_a_table_made_anew_at_the_same_path_are_read_anew(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    path = f"{TIMELINE_FOLDER}/{at(1)}_{at(2)}.deltacommit"
    storage.put_if_absent(path, CommitMetadata((), "UPSERT", {"schema": '{"doc": "1"}'}).encode())
    first = Timeline.load(storage)
    assert first.table_schema() == '{"doc": "1"}'
    storage.delete_folder(TIMELINE_FOLDER)
    storage.put_if_absent(path, CommitMetadata((), "UPSERT", {"schema": '{"doc": "2"}'}).encode())
    assert Timeline.load(storage, previous=first).table_schema() == '{"doc": "2"}'
