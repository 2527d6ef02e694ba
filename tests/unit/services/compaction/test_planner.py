"""What a compaction takes, and in which order."""

from __future__ import annotations

import pytest

from streaming_lsm.file_group.file_system_view import BaseFile, FileSlice, LogFile
from streaming_lsm.format.table.file_names import BaseFileName, LogFileName, LogKind, WriteToken
from streaming_lsm.services.compaction.planner import (
    BOUNDED,
    BY_LOG_NUMBER,
    BY_LOG_SIZE,
    UNBOUNDED,
    CompactionSelection,
    CompactionStrategy,
    select_slices,
)

INSTANT = "20261121120000500"
MB = 1 << 20


def group(number: int) -> str:
    return f"{number:08d}-0000-0000-0000-000000000000-0"


def log(number: int, time: str, size: int = 10, version: int = 1, kind: LogKind = LogKind.DATA) -> LogFile:
    name = LogFileName(group(number), WriteToken(0, 0, 0), time, version, kind)
    return LogFile(f"nl/{name}", name, size)


def file_slice(number: int, *logs: LogFile, base: int | None = None) -> FileSlice:
    name = BaseFileName(group(number), "0-0-0", "20261121110000000")
    return FileSlice("nl", group(number), None if base is None else BaseFile(f"nl/{name}", name, base), logs)


def select(
    *slices: FileSlice, busy: set[int] | None = None, strategy: CompactionStrategy | None = None, instant: str = INSTANT
) -> CompactionSelection:
    taken = {("nl", group(number)) for number in busy or ()}
    return select_slices(slices, taken, lambda time: time, instant, strategy or CompactionStrategy())


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
