"""Tasks on threads: results in order, errors out, not more in flight than asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from streaming_lsm.engine import LocalEngine


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_results_come_in_the_order_of_the_items(threads: int) -> None:
    gates = [threading.Event() for _ in range(threads)]

    def task(item: int) -> int:
        if item < threads:  # the first ones finish in reverse
            if item + 1 < threads:
                assert gates[item + 1].wait(10)
            gates[item].set()
        return item * item

    assert list(LocalEngine(threads).map(task, range(20))) == [item * item for item in range(20)]


def test_an_error_of_a_task_is_raised_where_its_result_would_be() -> None:
    def task(item: int) -> int:
        if item == 2:
            raise ValueError("item 2")
        return item

    results = LocalEngine(2).map(task, range(5))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="item 2"):
        next(results)


def test_items_are_taken_as_results_are() -> None:
    taken = []

    def items() -> Iterator[int]:
        for item in range(100):
            taken.append(item)
            yield item

    results = LocalEngine(2).map(lambda item: item, items())
    assert next(results) == 0
    assert len(taken) <= 4
    results.close()  # type: ignore[attr-defined]


def test_a_single_item_needs_no_other_thread() -> None:
    assert list(LocalEngine(4).map(lambda item: (item, threading.get_ident()), [7])) == [(7, threading.get_ident())]
    assert list(LocalEngine(4).map(lambda item: threading.get_ident(), range(3))) != [threading.get_ident()] * 3


def test_no_items_give_no_results() -> None:
    assert list(LocalEngine(3).map(lambda item: item, [])) == []


def test_the_width_is_what_was_asked_for_or_the_machines() -> None:
    assert LocalEngine(3).width == 3
    assert LocalEngine().width >= 1
