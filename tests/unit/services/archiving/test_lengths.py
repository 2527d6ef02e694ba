"""How many files the timelines have at any time, with the default options."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import TIMELINE_FOLDER
from tests.support.crash_points import random_cases, sample
from tests.support.service_tables import assert_sound
from tests.support.small_tables import create, rows, shown

MOST = 60
COPY_ON_WRITE = {"hoodie.datasource.write.table.type": "COPY_ON_WRITE"}
COMPACTED = {"hoodie.compact.inline": True}
WITH_METADATA = {"hoodie.metadata.enable": True}

KINDS: dict[str, dict[str, object]] = {"logs": {}, "compacted": COMPACTED, "copy on write": COPY_ON_WRITE}
# Each second one: of each kind one with failures, and one with a metadata table.
CASES = [
    pytest.param(kind, metadata, failures, id=f"{name}-{'metadata table' if metadata else ''}-{failures}")
    for name, kind in KINDS.items()
    for metadata, failures in (({}, 0), ({}, 4), (WITH_METADATA, 4), (WITH_METADATA, 0))
]


class Lengths:
    """The most files of each timeline, counted whenever one was created."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most: dict[str, int] = {}
        put = LocalStorage.put_if_absent

        def counted(storage: LocalStorage, path: str, data: bytes) -> None:
            put(storage, path, data)
            folder = path.rpartition("/")[0]
            if folder.endswith(TIMELINE_FOLDER):
                files = [name for name in storage.names(folder) if "." in name]
                self.most[folder] = max(self.most.get(folder, 0), len(files))

        monkeypatch.setattr(LocalStorage, "put_if_absent", counted)
        # Processes die in these tests, machines do not.
        monkeypatch.setattr("os.fsync", lambda descriptor: None)


def fail(table: LsmTable) -> None:
    """A write that is rolled back."""
    with suppress(KeyboardInterrupt), table.transaction() as tx:
        table.plan(tx, "upsert")
        tx.begin()
        raise KeyboardInterrupt


@pytest.mark.parametrize(("kind", "metadata", "failures"), sample(CASES, 1, 6))
def test_a_timeline_has_at_most_60_files(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: dict[str, object],
    metadata: dict[str, object],
    failures: int,
) -> None:
    lengths = Lengths(monkeypatch)
    table = create(tmp_path, **kind, **metadata)
    for number in range(random_cases(45, 31)):
        for _ in range(failures if number % 3 == 0 else 0):
            fail(table)
        table.upsert(rows((f"k{number % 7}", "nl", number, number)))
    assert max(lengths.most.values()) <= MOST, lengths.most
    assert len(lengths.most) == 1 + bool(metadata)
    assert_sound(LsmTable(table.path), {row[0]: row for row in shown(table)})
    assert len(shown(table)) == 7


def test_writers_that_die_again_and_again_leave_at_most_60_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = Lengths(monkeypatch)
    table = create(tmp_path)
    table.upsert(rows(("a", "nl", 1, 1)))
    for _ in range(40):
        opened = LsmTable(table.path, table.options)
        opened.prepare_write()
        fail(opened)
    assert max(lengths.most.values()) <= MOST, lengths.most
    # A process that is not ended by it, too.
    for _ in range(40):
        table.prepare_write()
        fail(table)
    assert max(lengths.most.values()) <= MOST, lengths.most
    assert shown(LsmTable(table.path)) == [("a", "nl", 1, 1)]


def test_a_late_file_of_a_first_write_whose_rollback_is_archived_is_not_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is older than all that the history has."""
    Lengths(monkeypatch)
    table = create(tmp_path)
    with suppress(KeyboardInterrupt), table.transaction() as tx:
        dead = tx.begin()
        raise KeyboardInterrupt
    for _ in range(5):
        fail(table)
    table.prepare_write()
    table.upsert(rows(("a", "nl", 1, 1)))
    history = table.timeline.history
    assert dead < history.manifest.files[0].first < table.timeline.first
    assert table.timeline.completion_time(dead) is None
    assert table.timeline.completion_time("20200101000000000") == "20200101000000000"
