"""Merge order of logs, with log compactions in place of what they stand for (docs/format/10-rules.md, "Rule 3")."""

from __future__ import annotations

from streaming_lsm.file_group.file_system_view import LogFile
from streaming_lsm.file_group.log_order import logs_of_commits, merge_order
from streaming_lsm.format.table.file_names import LogFileName, LogKind, WriteToken

GROUP = "00000000-0000-0000-0000-000000000000-0"


def log(instant: int, version: int = 1, kind: LogKind = LogKind.DATA, task: int = 0) -> LogFile:
    name = LogFileName(GROUP, WriteToken(task, 0, 0), f"{instant:017d}", version, kind)
    return LogFile(str(name), name, 1)


def order(logs: list[LogFile], **compacted: list[int]) -> list[tuple[int, int, str]]:
    """The merge order as (instant, version, kind); `compacted` says by ``t<instant>`` what an instant's logs cover."""

    def said(found: LogFile) -> tuple[str, tuple[str, ...]]:
        covers = compacted.get(f"t{int(found.name.instant)}", [])
        return found.name.instant, tuple(f"{instant:017d}" for instant in covers)

    merged = merge_order(sorted(logs, key=lambda found: found.name.sort_key), said)
    names = [found.name for found in merged if isinstance(found.name, LogFileName)]
    return [(int(name.instant), name.version, str(name.kind)) for name in names]


def test_logs_go_by_instant_version_and_kind() -> None:
    logs = [log(2), log(1, 2), log(1, 1, LogKind.DELETES), log(1, 1), log(1, 10)]
    assert order(logs) == [(1, 1, "log"), (1, 1, "deletes"), (1, 2, "log"), (1, 10, "log"), (2, 1, "log")]


def test_a_compaction_takes_the_place_of_the_newest_it_stands_for() -> None:
    assert order([log(1), log(2), log(3), log(4), log(9)], t9=[1, 2, 3]) == [(9, 1, "log"), (4, 1, "log")]


def test_files_of_covered_instants_are_left_out_of_every_kind() -> None:
    logs = [log(1), log(1, 1, LogKind.DELETES), log(2), log(9), log(9, 2)]
    assert order(logs, t9=[1]) == [(9, 1, "log"), (9, 2, "log"), (2, 1, "log")]


def test_a_chain_is_resolved_down_to_uncompacted_instants() -> None:
    logs = [log(1), log(2), log(3), log(4), log(8), log(9)]
    assert order(logs, t8=[1, 2], t9=[3, 8]) == [(9, 1, "log"), (4, 1, "log")]


def test_a_chain_holds_when_the_covered_files_are_gone() -> None:
    assert order([log(4), log(9)], t9=[1, 3]) == [(9, 1, "log"), (4, 1, "log")]


def test_two_compactions_stand_each_in_its_place() -> None:
    logs = [log(1), log(2), log(3), log(4), log(8), log(9)]
    assert order(logs, t8=[3, 4], t9=[1, 2]) == [(9, 1, "log"), (8, 1, "log")]


def test_a_compaction_that_lists_itself_does_not_hang() -> None:
    assert order([log(1), log(2)], t2=[1, 2]) == []


def test_two_that_list_each_other_do_not_hang() -> None:
    assert order([log(1), log(2), log(3)], t1=[2], t2=[1]) == [(3, 1, "log")]


def test_no_logs_have_no_order() -> None:
    assert order([]) == []


def test_without_compactions_an_instant_stands_where_it_first_appears() -> None:
    """In tables up to version 6 the order of blocks is that of their files, whatever their instants say."""
    blocks = [("5", 1), ("3", 1), ("5", 2), ("4", 1)]
    assert merge_order(blocks, lambda block: (block[0], ())) == [("5", 1), ("5", 2), ("3", 1), ("4", 1)]


def test_an_incremental_read_takes_the_covered_files_while_they_are_there() -> None:
    logs = [("1", ()), ("2", ()), ("3", ()), ("9", ("1", "2"))]
    assert logs_of_commits(logs, lambda found: found, {"2", "9"}) == [("2", ())]
    assert logs_of_commits(logs[1:], lambda found: found, {"3"}) == [("3", ()), ("9", ("1", "2"))]
