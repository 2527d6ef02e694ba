"""A writer killed, or failed, at every storage call, with a metadata table: it never says what the folders do not.

One call in 29 here, others for each kind of fault; with LSM_ALL_FAULTS=1 every call.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from streaming_lsm.errors import LsmError
from streaming_lsm.lock.markers import marker_folder
from streaming_lsm.metadata.file_slices import METADATA_TABLE
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.properties_file import update_properties
from streaming_lsm.timeline.timeline import Timeline
from tests.support.crash_points import sample
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.metadata_tables import (
    ENABLED,
    PARTITIONS,
    assert_agrees,
    assert_settled,
    delta_commits,
    has_metadata_table,
    metadata_timeline,
)
from tests.unit.metadata.test_table import make, write

Action = Callable[[Storage], object]
FAULTS = tuple(Fault)
EVERY_THIRD = {**ENABLED, "hoodie.metadata.compact.max.delta.commits": 3}


class Trials:
    """Copies of one table, on each of which an action meets a fault at another call."""

    def __init__(self, template: Path, copies: Path, action: Action) -> None:
        self._template = template
        self._copies = copies
        self._action = action
        counted = FaultyStorage(self._copy("unharmed"))
        action(counted)
        self.calls = counted.calls

    def points(self, fault: Fault) -> Sequence[int]:
        """The calls at which a kind of fault is tried."""
        return sample(range(len(self.calls)), FAULTS.index(fault) * 6, 61)

    def _copy(self, name: str) -> LocalStorage:
        shutil.copytree(self._template, self._copies / name)
        return LocalStorage(self._copies / name)

    def meet(self, call: int, fault: Fault) -> Path:
        """The folder of a copy after the action has met its fate."""
        storage = self._copy(f"{fault.name}-{call}")
        with suppress(Killed, OSError, LsmError):
            self._action(FaultyStorage(storage, {call: fault}))
        return self._copies / f"{fault.name}-{call}"


def grown(root: Path, batches: int, options: Mapping[str, object]) -> Path:
    storage = make(root)
    for batch in range(batches):
        write(storage, batch, options)
    return root


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_write_and_its_compaction_of_the_metadata_table(tmp_path: Path, fault: Fault) -> None:
    # The next one comes upon three delta commits since the last compaction, and three slices when they are merged.
    template = grown(tmp_path / "template", 8, EVERY_THIRD)
    trials = Trials(template, tmp_path, lambda storage: write(storage, 8, EVERY_THIRD))
    touched = {path.removeprefix(f"{METADATA_TABLE}/").rpartition(".")[2] for _, path in trials.calls}
    assert {"commit", "clean", "deltacommit", "hfile"} <= touched
    for call in trials.points(fault):
        root = trials.meet(call, fault)
        assert_agrees(root)
        write(LocalStorage(root), 8, EVERY_THIRD)
        assert_settled(root)
        assert len(Timeline.load(LocalStorage(root)).completed_writes) == 9
        write(LocalStorage(root), 9, EVERY_THIRD)
        assert_settled(root)
        shutil.rmtree(root)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_making_of_one(tmp_path: Path, fault: Fault) -> None:
    template = grown(tmp_path / "template", 2, {})
    trials = Trials(template, tmp_path, lambda storage: write(storage, 2))
    for call in trials.points(fault):
        root = trials.meet(call, fault)
        assert_agrees(root)
        write(LocalStorage(root), 2)
        write(LocalStorage(root), 3)
        assert_settled(root)
        shutil.rmtree(root)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_dropping_of_one_and_of_other_partitions(tmp_path: Path, fault: Fault) -> None:
    template = grown(tmp_path / "template", 2, ENABLED)
    LocalStorage(template).put_if_absent(f"{METADATA_TABLE}/column_stats/x.hfile", b"x")
    LocalStorage(template).put_if_absent(".hoodie/.index_defs/index.json", b"{}")
    definitions = {"hoodie.table.index.defs.path": ".hoodie/.index_defs/index.json"}
    update_properties(LocalStorage(template), {PARTITIONS: "column_stats,files", **definitions})
    dropped = Trials(template, tmp_path / "all", lambda storage: write(storage, 2, {"hoodie.metadata.enable": False}))
    others = Trials(template, tmp_path / "others", lambda storage: write(storage, 2, {}))
    for trials, keeps in ((dropped, False), (others, True)):
        for call in trials.points(fault):
            root = trials.meet(call, fault)
            assert_agrees(root)
            write(LocalStorage(root), 2, {} if keeps else {"hoodie.metadata.enable": False})
            write(LocalStorage(root), 3, {} if keeps else {"hoodie.metadata.enable": False})
            assert has_metadata_table(root) is keeps
            assert not (root / ".hoodie/.index_defs").exists()
            assert (root / METADATA_TABLE).exists() is keeps
            if keeps:
                assert_settled(root)
                names = sorted(path.name for path in (root / METADATA_TABLE).iterdir())
                assert names == [".hoodie", "files"]
            shutil.rmtree(root)


@pytest.mark.parametrize("fault", [Fault.KILL_BEFORE, Fault.KILL_AFTER], ids=lambda fault: fault.name)
def test_a_recovery_that_is_killed_again_and_again(tmp_path: Path, fault: Fault) -> None:
    template = grown(tmp_path / "template", 3, EVERY_THIRD)
    storage = LocalStorage(template)
    newest = Timeline.load(storage).completed_writes[-1]
    storage.delete(newest.path)
    storage.make_folder(marker_folder(newest.requested))  # as a driver leaves it that dies before completion
    trials = Trials(template, tmp_path, lambda storage: write(storage, 2, EVERY_THIRD))
    calls = len(trials.calls)
    for call in trials.points(fault):
        root = trials.meet(call, fault)
        for depth in ((call + 7) % calls, call // 2, (call + 13) % calls):
            with suppress(Killed):
                write(FaultyStorage(LocalStorage(root), {depth: fault}), 2, EVERY_THIRD)
            assert_agrees(root)
        write(LocalStorage(root), 2, EVERY_THIRD)
        assert_settled(root)
        assert newest.requested not in [write.requested for write in delta_commits(metadata_timeline(root))]
        shutil.rmtree(root)
