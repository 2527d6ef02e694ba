"""What a commit reads does not grow with the history of its table: counted, not timed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.file_group.file_system_view import FileSystemView
from streaming_lsm.format.actions import file_state
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, Instant, State
from streaming_lsm.timeline.instant_facts import InstantFacts
from tests.support.faulty_storage import FaultyStorage
from tests.support.histories import add_past
from tests.support.small_tables import create, rows

UNARCHIVED = {"hoodie.archive.automatic": False}
BATCH = rows(("a", "nl", 1, 1), ("b", "de", 1, 2))


def counted_upsert(table: LsmTable) -> Counter[str]:
    """How often each method of the storage is called in one upsert."""
    inner = table.storage
    counting = FaultyStorage(inner)
    table.storage = counting
    table.__dict__.pop("services", None)
    try:
        table.upsert(BATCH)
    finally:
        table.storage = inner
        table.__dict__.pop("services", None)
    # The heartbeat's thread may come in between.
    return Counter(name for name, path in counting.calls if "heartbeat" not in path and not path.endswith("/lock"))


@pytest.mark.parametrize("parts", [("deltacommit",), ("deltacommit", "rollback", "clean")], ids=["commits", "services"])
def test_an_upsert_at_400_instants_reads_as_many_files_as_at_20(tmp_path: Path, parts: tuple[str, ...]) -> None:
    counts = []
    for instants in (20, 400):
        root = tmp_path / str(instants)
        table = create(root, **UNARCHIVED)
        table.upsert(BATCH)
        add_past(table, instants, parts)
        table.upsert(BATCH)
        counts.append(counted_upsert(table))
    assert counts[0] == counts[1]


def test_an_upsert_parses_only_the_names_that_are_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(tmp_path / "t", **UNARCHIVED)
    table.upsert(BATCH)
    add_past(table, 400, ("deltacommit", "rollback", "clean"))
    table.upsert(BATCH)
    parsed: list[str] = []
    parse = Instant.parse

    def noting(name: str, layout: int = 2) -> Instant | None:
        parsed.append(name)
        return parse(name, layout)

    monkeypatch.setattr(Instant, "parse", noting)
    table.upsert(BATCH)
    own = {path.name for path in (tmp_path / "t" / TIMELINE_FOLDER).iterdir()}
    # Those of the upsert before: each name of it is parsed once.
    assert len(parsed) == 3
    assert own.issuperset(parsed)


def test_an_upsert_hashes_only_the_paths_of_its_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(tmp_path / "t")
    for _ in range(20):
        table.upsert(BATCH)
    hashed: list[str] = []
    monkeypatch.setattr(file_state, "_hash", lambda path: hashed.append(path) or 0)
    table.upsert(BATCH)
    (newest,) = table.timeline.completed_writes[-1:]
    # As recorded in this commit; and, of the upsert before, as added to the known file groups.
    assert len(hashed) == 2 * len(table.timeline.read_commit(newest).stats)


def test_a_table_opened_anew_reads_no_more_files_of_a_long_history(tmp_path: Path) -> None:
    counts = []
    for instants in (20, 400):
        table = create(tmp_path / str(instants), **UNARCHIVED)
        table.upsert(BATCH)
        add_past(table, instants, ("deltacommit", "rollback", "clean"))
        counts.append(counted_upsert(LsmTable(tmp_path / str(instants), table.options)))
    assert counts[0] == counts[1]


def test_a_commit_and_a_read_cost_as_much_after_4500_archived_actions_as_after_90(tmp_path: Path) -> None:
    commits, reads, active = [], [], []
    for instants in (90, 4500):
        table = create(tmp_path / str(instants))
        table.upsert(BATCH)
        add_past(table, instants, ("deltacommit", "rollback", "clean"))
        while table.archive():
            pass
        active.append(len(table.timeline.instants))
        table = LsmTable(tmp_path / str(instants), table.options)
        table.upsert(BATCH)
        commits.append(counted_upsert(table))
        reader = LsmTable(tmp_path / str(instants))
        reader.storage = counting = FaultyStorage(reader.storage)
        reader.scan().to_arrow()
        reads.append(Counter(name for name, _ in counting.calls))
        assert len(reader.timeline.history.writes()) + len(reader.timeline.completed_writes) == instants // 3 + 3
    assert commits[0] == commits[1]
    assert reads[0] == reads[1]
    assert active[0] == active[1] < 40


@pytest.mark.parametrize("action", ["rollback", "replacecommit"])
def test_rollbacks_and_replacecommits_are_read_once_for_all_loads(tmp_path: Path, action: str) -> None:
    table = create(tmp_path)
    table.upsert(BATCH)
    add_past(table, 40, (action,))
    storage, cache = FaultyStorage(table.storage), TimelineCache()
    reads = []
    for _ in range(3):
        storage.calls.clear()
        timeline = cache.load(storage)
        # A file of an archived write; of a write that is not on the timeline; of a file group.
        for found in (timeline, timeline.completed_by("3" * 17)):
            assert found.completion_time("1" * 17) is not None
            assert "1" * 17 in found.visible()
            assert not FileSystemView(storage, found).is_replaced("nl", "another")
        reads.append(sum(name == "read" and path.endswith(f".{action}") for name, path in storage.calls))
        table.upsert(BATCH)
    assert reads == [40, 0, 0]


def test_facts_of_archived_instants_are_dropped() -> None:
    past = [Instant(f"{number}", "rollback", State.COMPLETED, f"{number}9") for number in range(100, 200)]
    facts = InstantFacts({instant: "1" for instant in past})
    assert facts.of_timeline(past[40:]) is facts
    assert list(facts.of_timeline(past[60:]).undone) == past[60:]


def test_an_old_commit_that_was_taken_away_is_noticed_by_the_next_write(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    table.upsert(BATCH)
    taken = table.upsert(rows(("c", "nl", 1, 1)))
    table.upsert(rows(("d", "nl", 1, 1)))
    assert taken is not None
    for path in (taken.path, *taken.pending_paths()):
        table.storage.delete(path)
    assert taken not in table.timeline.instants
    with pytest.raises(CorruptFileError, match=f"write at {taken.requested}, which is not on the timeline"):
        table.upsert(rows(("e", "nl", 1, 1)))


def test_a_write_after_the_first_of_an_opened_table_looks_for_no_temporary_files(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.upsert(rows(("a", "nl", 1, 1)))
    table.storage = counting = FaultyStorage(table.storage)
    table.upsert(rows(("b", "nl", 1, 1)))
    assert [call for call in counting.calls if call[0] == "sweep"] == []
    opened = LsmTable(tmp_path, table.options)
    opened.storage = counting = FaultyStorage(opened.storage)
    opened.upsert(rows(("c", "nl", 1, 1)))
    assert {path for name, path in counting.calls if name == "sweep"} >= {".hoodie", ".hoodie/timeline"}
