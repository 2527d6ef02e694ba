"""Leases are measured by who watches; threads of one process enter a table in turn."""

from __future__ import annotations

import threading

import pytest

from streaming_lsm.errors import CommitConflict
from streaming_lsm.lock.lease import LeaseWatch, Renewal, is_certainly_over
from streaming_lsm.lock.owner import Owner, this_process
from streaming_lsm.lock.runtime import ProcessLocks

HOUR_MS = 3_600_000


def test_time_counts_from_the_first_look_at_a_renewal() -> None:
    watch = LeaseWatch()
    first, renewed = Renewal(b"owner", 5), Renewal(b"owner", 6)
    assert watch.unrenewed_s("f", first, 100.0) == 0
    assert watch.unrenewed_s("f", first, 107.5) == 7.5
    assert watch.unrenewed_s("f", renewed, 108.0) == 0
    assert watch.unrenewed_s("other", first, 109.0) == 0
    assert watch.unrenewed_s("f", renewed, 110.0) == 2


def test_another_owner_with_the_same_time_is_another_renewal() -> None:
    watch = LeaseWatch()
    watch.unrenewed_s("f", Renewal(b"one", 5), 0.0)
    assert watch.unrenewed_s("f", Renewal(b"two", 5), 9.0) == 0


def test_of_ten_thousand_files_those_looked_at_last_are_remembered() -> None:
    watch = LeaseWatch()
    for number in range(10_000):
        watch.unrenewed_s("kept", Renewal(b"", 1), float(number))
        watch.unrenewed_s(f"f{number}", Renewal(b"", 1), float(number))
    assert watch.unrenewed_s("kept", Renewal(b"", 1), 10_000.0) == 10_000
    assert watch.unrenewed_s("f9999", Renewal(b"", 1), 10_000.0) == 1
    assert watch.unrenewed_s("f0", Renewal(b"", 1), 10_000.0) == 0


@pytest.mark.parametrize(("age_ms", "over"), [(-HOUR_MS, False), (HOUR_MS + 1000, False), (HOUR_MS + 1001, True)])
def test_an_hour_more_than_the_lease_is_certain(age_ms: int, over: bool) -> None:
    assert is_certainly_over(10**12, 10**12 + age_ms, 1000) is over


def test_a_forked_child_does_not_wait_for_what_a_thread_of_its_parent_looks_at() -> None:
    watch = LeaseWatch()
    with watch._guard:
        watch.forget()
        assert watch.unrenewed_s("file", Renewal(b"", 0), 1.0) == 0


def owner(token: str) -> Owner:
    return Owner(this_process(), "query", token, 0, 1000)


def test_threads_enter_in_the_order_in_which_they_came() -> None:
    locks, entered = ProcessLocks(), list[str]()
    locks.acquire("t", owner("holder"))
    threads = []
    for name in "abc":
        waiting = threading.Event()

        def enter(name: str = name, waiting: threading.Event = waiting) -> None:
            waiting.set()
            locks.acquire("t", owner(name), 60)
            entered.append(name)
            locks.release("t", owner(name))

        threads.append(threading.Thread(target=enter))
        threads[-1].start()
        assert waiting.wait(60)
        while len(locks._waiting.get("t", ())) < len(threads):  # it stands in the queue
            threading.Event().wait(0.001)
    locks.release("t", owner("holder"))
    for thread in threads:
        thread.join(60)
    assert entered == ["a", "b", "c"]


def test_a_thread_that_may_not_wait_is_refused_and_leaves_the_queue() -> None:
    locks = ProcessLocks()
    locks.acquire("t", owner("holder"))
    for wait_s in (0, 0.01):
        with pytest.raises(CommitConflict, match=r"by this process: writer 'query'"):
            locks.acquire("t", owner("second"), wait_s)
    locks.acquire("another table", owner("second"))
    locks.release("t", owner("holder"))
    locks.acquire("t", owner("third"))


def test_who_was_waited_for_lets_others_go_first_once() -> None:
    locks, waited = ProcessLocks(), list[float]()
    locks.give_way("table", 10.0)
    assert locks.let_others_go_first("other", lambda: 9.5, waited.append) == 0
    assert [locks.let_others_go_first("table", lambda: 9.5, waited.append) for _ in range(2)] == [0.5, 0]
    locks.give_way("table", 10.0)
    assert locks.let_others_go_first("table", lambda: 11.0, waited.append) == 0
    assert waited == [0.5]


def test_a_transaction_runs_from_its_begin_to_its_end() -> None:
    locks = ProcessLocks()
    assert not locks.is_running(owner("x"))
    locks.begin(owner("x"))
    assert locks.is_running(owner("x"))
    assert not locks.is_running(owner("y"))
    locks.end(owner("x"))
    assert not locks.is_running(owner("x"))
