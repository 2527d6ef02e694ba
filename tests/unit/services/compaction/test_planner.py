"""What a compaction takes, and in which order."""

from __future__ import annotations

import pytest

from streaming_lsm.errors import ConfigError
from streaming_lsm.file_group.file_system_view import BaseFile, FileSlice, LogFile
from streaming_lsm.file_group.log_facts import LogFacts
from streaming_lsm.format.table.file_names import BaseFileName, LogFileName, LogKind, WriteToken
from streaming_lsm.services.compaction.operation_choice import HybridRules
from streaming_lsm.services.compaction.planner import CompactionSelection, SliceRules, select_slices
from streaming_lsm.services.compaction.strategy import (
    BOUNDED,
    BY_DAY,
    BY_LOG_NUMBER,
    BY_LOG_SIZE,
    BY_REGEX,
    UNBOUNDED,
    CompactionStrategy,
)

INSTANT = "20261121120000500"
MB = 1 << 20


def group(number: int) -> str:
    return f"{number:08d}-0000-0000-0000-000000000000-0"


def log(number: int, time: str, size: int = 10, version: int = 1, kind: LogKind = LogKind.DATA) -> LogFile:
    name = LogFileName(group(number), WriteToken(0, 0, 0), time, version, kind)
    return LogFile(f"nl/{name}", name, size)


def file_slice(number: int, *logs: LogFile, base: int | None = None, partition: str = "nl") -> FileSlice:
    name = BaseFileName(group(number), "0-0-0", "20261121110000000")
    return FileSlice(partition, group(number), None if base is None else BaseFile(f"nl/{name}", name, base), logs)


def select(
    *slices: FileSlice,
    busy: set[int] | None = None,
    strategy: CompactionStrategy | None = None,
    instant: str = INSTANT,
    rules: SliceRules | None = None,
) -> CompactionSelection:
    taken = {("nl", group(number)) for number in busy or ()}
    rules = rules or SliceRules(strategy or CompactionStrategy())
    return select_slices(slices, taken, lambda time: time, instant, rules)


def numbers(selection: CompactionSelection) -> list[int]:
    return [int(operation.file_id[:8]) for operation in selection.operations]


def test_an_operation_names_base_and_all_logs_ascending() -> None:
    early, late = "20261121120000100", "20261121120000200"
    logs = [log(1, late), log(1, early, version=2), log(1, early, kind=LogKind.DELETES), log(1, early)]
    (operation,) = select(file_slice(1, *logs, base=5)).operations
    assert operation.base_instant == "20261121110000000"
    assert operation.base_file == f"{group(1)}_0-0-0_20261121110000000.parquet"
    assert operation.logs == (
        f"{group(1)}_0-0-0_{early}_1.log.parquet",
        f"{group(1)}_0-0-0_{early}_1.deletes.parquet",
        f"{group(1)}_0-0-0_{early}_2.log.parquet",
        f"{group(1)}_0-0-0_{late}_1.log.parquet",
    )


def test_a_slice_without_base_is_keyed_by_its_oldest_log() -> None:
    (operation,) = select(file_slice(1, log(1, "20261121120000100"), log(1, "20261121120000200"))).operations
    assert (operation.base_file, operation.base_instant) == (None, "20261121120000100")


def test_metrics_are_whole_mebibytes_as_hudi_reckons_them() -> None:
    (operation,) = select(file_slice(1, log(1, "20261121120000100", size=3 * MB), base=2 * MB + 5)).operations
    assert operation.metrics == {
        "TOTAL_LOG_FILES": 1.0,
        "TOTAL_LOG_FILES_SIZE": 3.0 * MB,
        "TOTAL_IO_READ_MB": 5.0,
        "TOTAL_IO_WRITE_MB": 2.0,
        "TOTAL_IO_MB": 7.0,
    }


def test_logs_completed_at_or_after_the_instant_are_left_to_the_next_slice() -> None:
    found = file_slice(1, log(1, "20261121120000100"), log(1, INSTANT), log(1, "20261121120000900"))
    (operation,) = select(found).operations
    assert operation.logs == (f"{group(1)}_0-0-0_20261121120000100_1.log.parquet",)
    assert not select(found, instant="20261121120000100").operations


def test_groups_without_logs_and_groups_in_a_pending_service_are_left_out_and_counted() -> None:
    slices = [file_slice(1, base=5), file_slice(2, log(2, "20261121120000100")), file_slice(3, log(3, "2"))]
    selection = select(*slices, busy={2})
    assert numbers(selection) == [3]
    assert (selection.groups, selection.without_logs, selection.busy, selection.unchosen) == (3, 1, 1, 0)
    assert "1 have no log files, 1 have a pending plan" in selection.reasons


SIZES = [3 * MB, 9 * MB, 6 * MB]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (CompactionStrategy(BY_LOG_SIZE), [1, 2, 0]),
        (CompactionStrategy(BY_LOG_SIZE, min_log_bytes=6 * MB), [1, 2]),
        (CompactionStrategy(BY_LOG_SIZE, io_mb=18), [1]),
        (CompactionStrategy(BY_LOG_SIZE, io_mb=19), [1, 2]),
        (CompactionStrategy(BY_LOG_NUMBER), [2, 0, 1]),
        (CompactionStrategy(BY_LOG_NUMBER, min_log_files=2), [2, 0]),
        (CompactionStrategy(BOUNDED, io_mb=7), [0, 1]),
        (CompactionStrategy(UNBOUNDED, min_log_bytes=6 * MB, io_mb=1), [0, 1, 2]),
    ],
)
def test_strategies_rank_and_bound_as_hudis(strategy: CompactionStrategy, expected: list[int]) -> None:
    counts = [2, 1, 3]
    slices = [
        file_slice(number, *(log(number, f"2026112112000010{n}", size // count) for n in range(count)))
        for number, (size, count) in enumerate(zip(SIZES, counts, strict=True))
    ]
    selection = select(*slices, strategy=strategy)
    assert numbers(selection) == expected
    assert selection.unchosen == 3 - len(expected)


def test_what_a_strategy_without_limit_selects_is_cut_into_plans_of_its_limit() -> None:
    strategy = CompactionStrategy(BY_LOG_SIZE, io_mb=10)
    slices = [
        file_slice(number, log(number, "20261121110000001", size * MB)) for number, size in enumerate((1, 5, 2, 3))
    ]
    chosen = select(*slices, strategy=strategy.without_limit)
    assert numbers(chosen) == [1, 3, 2, 0]
    # Each is read and written; the operation that reaches the limit is the last of its plan.
    cut = [[int(operation.file_id[:8]) for operation in plan] for plan in strategy.cut(chosen.operations)]
    assert cut == [[1], [3, 2], [0]]
    assert strategy.cut(()) == []
    unbounded = CompactionStrategy(UNBOUNDED, io_mb=1)
    assert unbounded.cut(chosen.operations) == [chosen.operations]


def test_the_newest_days_that_have_logs_are_taken_by_day() -> None:
    days = ["2026/11/20", "dt=2026-11-23", "2026-11-21", "year=2026/month=11/day=22"]
    slices = [file_slice(number, log(number, "20261121110000001"), partition=day) for number, day in enumerate(days)]
    selection = select(*slices, strategy=CompactionStrategy(BY_DAY, days=3, io_mb=0))
    assert numbers(selection) == [1, 3, 2]
    with pytest.raises(ConfigError, match="2026/11/23, but the table has 'nl'"):
        select(file_slice(1, log(1, "20261121110000001")), strategy=CompactionStrategy(BY_DAY))


def test_partitions_are_taken_by_a_pattern_of_the_whole_path() -> None:
    slices = [
        file_slice(number, log(number, "20261121110000001"), partition=path)
        for number, path in enumerate(["nl", "nl/2026", "be", "xnl"])
    ]
    assert numbers(select(*slices, strategy=CompactionStrategy(BY_REGEX, partitions="nl(/.*)?"))) == [0, 1]


def test_a_hybrid_plan_has_both_types_and_says_why_each_group_is_in_it_or_not() -> None:
    times = [f"2026112111000010{place}" for place in range(6)]
    rules = HybridRules(10 * MB, 0.5, 3, 4, 0, 300, INSTANT)
    slices = [
        file_slice(1, log(1, times[0])),
        file_slice(2, *(log(2, time, MB) for time in times), base=100 * MB),
        file_slice(3, log(3, times[0], MB), base=100 * MB),
        file_slice(4, log(4, times[0], 60 * MB), base=100 * MB),
        file_slice(5, base=5),
        file_slice(6, log(6, times[0])),
    ]
    chosen = SliceRules(CompactionStrategy(), rules, lambda logs: [LogFacts()] * len(logs), version=3)
    selection = select(*slices, busy={6}, rules=chosen)
    assert {(int(found.file_id[:8]), found.type) for found in selection.operations} == {
        (1, "FULL"),
        (2, "LOG"),
        (4, "FULL"),
    }
    assert [(found.type, found.reason) for found in selection.decisions] == [
        ("FULL", "no base file"),
        ("LOG", "the newest 6 of 6 sorted runs into one"),
        (None, "1 sorted run, 1% of the base file: nothing is due"),
        ("FULL", "logs of 60% of the base file, more than 50%"),
        (None, "no log files"),
        (None, "a pending plan already"),
    ]
    assert str(selection).startswith("3 file groups to compact (2 FULL, 1 LOG); of 6 file groups 1 have no log files")
    assert selection.plan.version == 3


def test_a_log_operation_leaves_out_what_was_replaced_and_the_base_file_of_its_metrics() -> None:
    covered, output, later = "20261121110000101", "20261121110000200", "20261121110000300"
    logs = [log(1, covered, 5 * MB), log(1, output, 4 * MB), log(1, later, 4 * MB)]
    facts = {covered: LogFacts(), output: LogFacts((covered,)), later: LogFacts()}
    rules = SliceRules(
        CompactionStrategy(),
        HybridRules(1, 0.5, 2, 2, 1, 300, INSTANT),
        lambda found: [facts[one.name.instant] for one in found],
        version=3,
    )
    (operation,) = select(file_slice(1, *logs, base=100 * MB), rules=rules).operations
    assert [name.split("_")[2] for name in operation.logs] == [output, later]
    assert operation.metrics["TOTAL_IO_MB"] == 16.0
    assert operation.metrics["TOTAL_LOG_FILES_SIZE"] == 8.0 * MB
