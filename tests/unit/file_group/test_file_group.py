"""Which slice a file belongs to, and what a clean may take of it."""

from __future__ import annotations

from pathlib import Path

from streaming_lsm.file_group.file_group import FileGroup, SliceFiles, file_groups_in
from streaming_lsm.file_group.file_system_view import FileSystemView
from streaming_lsm.format.table.file_names import BaseFileName, LogFileName, LogKind, WriteToken
from streaming_lsm.services.cleaning.planner import RetainedFiles, Retention, deletable_files, select_clean_targets
from streaming_lsm.storage.base import FileEntry
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.timeline import Timeline

GROUP = "00000000-0000-0000-0000-000000000000-0"
TOKEN = WriteToken(0, 0, 0)
NOTHING = RetainedFiles({}, {})


def log(instant: str, kind: LogKind = LogKind.DATA) -> str:
    return str(LogFileName(GROUP, TOKEN, instant, 1, kind))


def base(instant: str) -> str:
    return str(BaseFileName(GROUP, str(TOKEN), instant))


def history(writes: dict[str, str], *names: str) -> FileGroup:
    """The one file group of these files; writes as requested and completion time, a compaction at 40."""
    instants = tuple(
        Instant(requested, "commit" if requested == "40" else "deltacommit", State.COMPLETED, completed)
        for requested, completed in sorted(writes.items())
    )
    storage = LocalStorage(Path("nowhere"))
    view = FileSystemView(storage, Timeline(storage, instants, instants[0].requested))
    (found,) = file_groups_in(view, "p", [FileEntry(f"p/{name}", 1, False, 0) for name in names])
    return found


def test_a_log_belongs_to_the_base_file_that_its_write_was_completed_after() -> None:
    # The write at 20 was under way while the compaction at 40 was planned, which so left its log out.
    late = history(
        {"10": "11", "20": "45", "40": "41", "50": "51"},
        *(log("10"), log("20"), base("40"), log("50"), log("50", LogKind.CDC)),
    )
    newest = SliceFiles("40", tuple(sorted((log("20"), base("40"), log("50"), log("50", LogKind.CDC)))))
    assert late.slices == (SliceFiles("10", (log("10"),)), newest)
    assert list(deletable_files([late], NOTHING)) == [("p", log("10"))]
    completed = {"10": "11", "40": "41", "50": "51"}.get
    assert select_clean_targets([late], Retention(), "50", NOTHING, completed).files == {"p": (log("10"),)}


def test_a_log_that_the_base_file_holds_is_of_the_slice_before() -> None:
    merged = history({"10": "11", "20": "39", "40": "41"}, log("10"), log("20"), base("40"))
    assert merged.slices == (SliceFiles("10", (log("10"), log("20"))), SliceFiles("40", (base("40"),)))
    assert [name for _, name in deletable_files([merged], NOTHING)] == [log("10"), log("20")]
