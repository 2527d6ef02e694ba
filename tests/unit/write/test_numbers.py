"""What tasks count and time, alone and together."""

from __future__ import annotations

import json
from collections.abc import Iterator

from streaming_lsm.write.numbers import OTHER_FIELDS, BatchNumbers, TaskNumbers, Timed, most_frequent


def test_counts_of_several_tasks_add_up_and_times_and_peaks_are_the_largest() -> None:
    one = TaskNumbers(
        rows_in=10,
        rows_kept=5,
        rows_deleted=2,
        rows_replaced=3,
        spilled_bytes=100,
        peak_bytes=50,
        dead_letters=4,
        unknown_fields={"b": 1, "a": 2},
        receive_ms=7,
        sort_ms=1,
        write_ms=9,
    )
    other = TaskNumbers(
        rows_in=1,
        rows_kept=1,
        rows_deleted=0,
        rows_replaced=0,
        spilled_bytes=0,
        peak_bytes=80,
        dead_letters=1,
        unknown_fields={"c": 3, "b": 5},
        receive_ms=2,
        sort_ms=4,
        write_ms=3,
    )
    assert TaskNumbers.joined([one, other]) == TaskNumbers(
        rows_in=11,
        rows_kept=6,
        rows_deleted=2,
        rows_replaced=3,
        spilled_bytes=100,
        peak_bytes=80,
        dead_letters=5,
        unknown_fields={"a": 2, "b": 6, "c": 3},
        receive_ms=7,
        sort_ms=4,
        write_ms=9,
    )
    assert TaskNumbers.joined([]) == TaskNumbers()


def test_the_most_frequent_fields_are_kept_by_name_and_the_others_as_one() -> None:
    counts = {"a": 1, "b": 5, OTHER_FIELDS: 50, "c": 5, "d": 2}
    assert list(most_frequent(counts, 2).items()) == [("b", 5), ("c", 5), (OTHER_FIELDS, 53)]
    assert list(most_frequent({"a": 1, "b": 2}, 2).items()) == [("b", 2), ("a", 1)]
    assert most_frequent({}) == {}


def test_a_commit_has_the_fields_that_its_table_has_not() -> None:
    numbers = BatchNumbers.of(TaskNumbers(rows_in=7, dead_letters=2, unknown_fields={"x": 3}), [], 0)
    assert json.loads(numbers.encode())["unknown_fields"] == {"x": 3}
    assert ", dead_letters=2, unknown_fields={'x': 3}" in numbers.line()
    assert "unknown_fields" not in BatchNumbers.of(TaskNumbers(), [], 0).line()


def test_the_time_that_an_item_takes_is_counted_and_the_consumers_is_not() -> None:
    clock = iter(range(0, 1000, 10))

    def items() -> Iterator[int]:
        for number in range(3):
            next(clock)
            yield number

    timed = Timed(items(), clock=lambda: next(clock))
    taken = []
    for number in timed:
        taken.append(number)
        next(clock)
    assert taken == [0, 1, 2]
    assert timed.seconds == 3 * 20 + 10


def test_what_tasks_did_not_sort_or_write_they_waited_for() -> None:
    numbers = TaskNumbers(receive_ms=5, sort_ms=30, write_ms=20)
    assert numbers.within(100) == TaskNumbers(receive_ms=50, sort_ms=30, write_ms=20)
    assert numbers.within(50) == numbers
