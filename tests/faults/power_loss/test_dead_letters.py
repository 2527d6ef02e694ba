"""Dead letters are in files beside the table: a power loss leaves each of them whole, or none."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from streaming_lsm.format.table.file_names import WriteToken
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.write.intake.dead_letters import DeadLetterBox, batch_folder, count_letters
from streaming_lsm.write.plan import DeadLetters
from tests.faults.power_loss.disk import write_tree
from tests.faults.power_loss.losses import losses
from tests.faults.power_loss.operations import SyncFolder
from tests.faults.power_loss.recorder import Recorder
from tests.support.plans import SCHEMA, make_plan, open_instant

COUNT = 3


def post(letters: Path) -> int:
    """What a task does with unreadable events."""
    target = DeadLetters(LocalStorage(letters), batch_folder("query", 7))
    plan = open_instant(make_plan(letters.parent / "table", dead_letters=target))
    box = DeadLetterBox(plan, WriteToken(0, 0, 0))
    unread = pa.RecordBatch.from_pylist([{}] * COUNT, schema=SCHEMA)
    unread = unread.append_column("_lsm_bad", pa.array(["not JSON"] * COUNT))
    unread = unread.append_column("_lsm_payload", pa.array([b"{"] * COUNT))
    assert box.divert(unread).num_rows == 0
    return box.post()


def count(letters: Path) -> int:
    return count_letters(DeadLetters(LocalStorage(letters), batch_folder("query", 7)))


def test_dead_letters_are_there_when_they_are_posted_and_before_that_whole_or_absent(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    recorder = Recorder(tmp_path / "letters")
    with recorder.running():
        recorder.returned(post(tmp_path / "letters"))
    seen = set()
    for number, loss in enumerate(losses(recorder.recording)):
        left = tmp_path / str(number) / "letters"
        left.parent.mkdir()
        write_tree(left, loss.tree)
        seen.add(count(left))
        assert count(left) in ([COUNT] if loss.returned else [0, COUNT]), loss.what
        assert post(left) == count(left) == COUNT, loss.what
    assert seen == {0, COUNT}


def test_letters_whose_folder_is_not_written_to_disk_are_lost(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    recorder = Recorder(tmp_path / "letters")
    with recorder.running():
        recorder.returned(post(tmp_path / "letters"))
    forgetful = recorder.recording.without(lambda operation: isinstance(operation, SyncFolder))
    *_, least = (loss for loss in losses(forgetful) if loss.returned and not loss.tree)
    write_tree(tmp_path / "left", least.tree)
    assert count(tmp_path / "left") == 0
