"""Files of a slice that a read opens: those that no log compaction replaced, in merge order."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.file_group import slice_files
from streaming_lsm.file_group.data_file import DataFile, open_log
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.log_order import logs_of_commits, merge_order
from streaming_lsm.file_group.slice_files import open_slice
from streaming_lsm.storage.local import LocalStorage
from tests.support.crash_points import random_cases
from tests.support.log_compaction import compact_logs
from tests.support.small_tables import create, rows

ONE_GROUP = {"hoodie.bucket.index.num.buckets": 1, "hoodie.clean.automatic": False, "lsm.read.threads": 1}


class CountingStorage(LocalStorage):
    """Keeps the paths of the files that are opened."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.opened: list[str] = []

    def open_input(self, path: str) -> pa.NativeFile:
        self.opened.append(path)
        return super().open_input(path)


def gone(key: str, ts: int) -> pa.Table:
    return pa.table({"id": [key], "country": ["nl"], "ts": [ts]})


def by_all_footers(table: LsmTable, found: FileSlice, commits: frozenset[str] | None) -> list[str]:
    """The logs that take part, in merge order, as the footers of all logs say."""
    with ExitStack() as files:
        headers = {log.path: open_log(table.storage, log, table.rule, files)[1] for log in found.logs}
    said = {log.path: (log.name.instant, headers[log.path].compacted) for log in found.logs}
    logs = list(found.logs)
    if commits is not None:
        logs = logs_of_commits(logs, lambda log: said[log.path], commits, found.base_instant)
    return [log.path for log in merge_order(logs, lambda log: said[log.path], found.base_instant)]


def opened(
    table: LsmTable, found: FileSlice, commits: frozenset[str] | None = None
) -> tuple[list[DataFile], list[str]]:
    """What `open_slice` returns, and the paths that were opened for it."""
    storage = CountingStorage(Path(table.path.removeprefix("file://")))
    with ExitStack() as files:
        return open_slice(storage, found, table.rule, files, commits=commits), storage.opened


def written(root: Path, chance: random.Random, *, always_chained: bool) -> LsmTable:
    """A slice with logs of writes, and of log compactions of random adjacent ones: their places are not their times.

    Args:
        always_chained: whether each log compaction says what those that it replaced had replaced.
    """

    def adjacent(instants: list[str]) -> list[str]:
        begin = chance.randrange(max(1, len(instants) - 1))
        return instants[begin : begin + chance.randrange(2, 5)]

    table = create(root, **ONE_GROUP)
    table.upsert(rows(*((f"k{n}", "nl", 1, n) for n in range(8))))
    table.delete(gone("k9", 5))
    table.compact()
    for step in range(chance.randrange(8, 16)):
        table.upsert(rows((f"k{step % 5}", "nl", step, step)))
        if chance.random() < 0.3:
            table.delete(gone(f"k{step % 7}", step))
        if chance.random() < 0.4:
            with mock.patch("streaming_lsm.services.compaction.plan_check.chain_of", wraps=slice_chain) as chain:
                if not always_chained and chance.random() < 0.5:
                    chain.side_effect = lambda instants, covers: None
                compact_logs(table, adjacent)
    return table


def slice_chain(instants: set[str], covers: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Resolve a chain by recursion."""
    found: dict[str, tuple[str, ...]] = {}
    for instant in instants:
        if instant in covers:
            found |= {instant: covers[instant], **slice_chain(set(covers[instant]), covers)}
    return found


@pytest.mark.parametrize("always_chained", [True, False], ids=["chained", "of-another-program"])
def test_the_files_and_their_order_are_those_that_all_footers_say(tmp_path: Path, always_chained: bool) -> None:
    for seed in range(random_cases(40, 2)):
        chance = random.Random(seed)
        table = written(tmp_path / str(seed), chance, always_chained=always_chained)
        (found,) = table.file_slices()
        assert found.base is not None
        instants = sorted({log.name.instant for log in found.logs})
        picked = [frozenset(chance.sample(instants, chance.randrange(len(instants)))) for _ in range(4)]
        for commits in (None, frozenset(instants), *picked):
            files, paths = opened(table, found, commits)
            assert [file.path for file in files[1:]] == by_all_footers(table, found, commits)
            assert all(file.opened is not None for file in files)
            assert len(paths) == len(set(paths))
            if always_chained and commits is None:
                assert sorted(paths) == sorted(file.path for file in files)


def test_logs_that_were_replaced_do_not_count_as_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(tmp_path, **ONE_GROUP)
    table.bulk_insert(rows(("k0", "nl", 0, 0)))
    monkeypatch.setattr(slice_files, "MAX_OPEN_FILES", 4)
    for count in range(3):
        for step in range(3):
            table.upsert(rows(("k0", "nl", count, step)))
        compact_logs(table)
    (found,) = table.file_slices()
    assert len(found.paths) == 13
    files, _ = opened(table, found)
    assert [file.opened is not None for file in files] == [True, True]
    for step in range(3):
        table.upsert(rows(("k0", "nl", 9, step)))
    (found,) = table.file_slices()
    files, _ = opened(table, found)
    assert [file.opened is not None for file in files] == [False] * 5
    assert {file.batch_rows for file in files[1:]} == {1 << 17}
