"""Long histories made cheaply: completed actions of the past that changed no file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from streaming_lsm import LsmTable
from streaming_lsm.format.actions.clean import CleanMetadata, CleanPlan
from streaming_lsm.format.actions.rollback import RollbackMetadata, RollbackPlan
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, Instant, State

_YEAR = "2020"


def past_time(number: int, month: int = 1) -> str:
    """The `number`-th instant of a past month."""
    seconds, ms = divmod(number, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{_YEAR}{month:02d}01{hour:02d}{minute:02d}{second:02d}{ms:03d}"


def add_past(table: LsmTable, count: int, actions: Sequence[str] = ("deltacommit",)) -> None:
    """Put `count` completed instants before those of a table, of `actions` in turns; the files are not made durable.

    Commits are copies of the table's last one and name its files; rollbacks undid writes that are gone; cleans deleted
    nothing.
    """
    newest = table.timeline.completed_writes[-1]
    commit = table.storage.read(newest.path)
    folder = Path(unquote(urlsplit(table.path).path)) / TIMELINE_FOLDER
    for number in range(count):
        action = actions[number % len(actions)]
        requested, completed = past_time(number), past_time(number, month=2)
        waiting = Instant(requested, action, State.REQUESTED)
        plan, done = _content(action, requested, commit)
        (folder / waiting.file_name).write_bytes(plan)
        (folder / waiting.at(State.INFLIGHT).file_name).write_bytes(b"")
        (folder / waiting.completed_at(completed).file_name).write_bytes(done)


def _content(action: str, requested: str, commit: bytes) -> tuple[bytes, bytes]:
    """Of the requested and of the completed file."""
    if action == "clean":
        policy = "KEEP_LATEST_COMMITS"
        plan = CleanPlan(None, requested, policy, {})
        return plan.encode(), CleanMetadata(requested, 1, "", requested, policy, {}).encode()
    if action == "rollback":
        gone = f"{int(requested) - 1}"
        done = RollbackMetadata(requested, 1, gone, "deltacommit", ())
        return RollbackPlan(gone, "deltacommit", ()).encode(), done.encode()
    return b"", commit
