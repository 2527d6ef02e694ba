"""Times that only grow, whatever the clock does (reliability trial 11)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from itertools import pairwise

import pytest

from streaming_lsm.errors import ConfigError
from streaming_lsm.timeline.clock import InstantSource, instant_ms, instant_text, moment_text, next_time, system_clock
from tests.support.writers import NOON_MS


def source(clock: Iterator[int], last: str = "", skew_ms: int = 0, slept: list[float] | None = None) -> InstantSource:
    waits = [] if slept is None else slept
    return InstantSource(lambda: next(clock), waits.append, "UTC", skew_ms, last)


def test_the_same_millisecond_a_thousand_times_gives_a_thousand_growing_times() -> None:
    times = source(iter([NOON_MS] * 1000))
    taken = [times.next() for _ in range(1000)]
    assert all(earlier < later for earlier, later in pairwise(taken))
    assert taken[0] == "20261121120000000"
    assert taken[-1] == "20261121120000999"


def test_times_grow_through_a_clock_that_jumps_back_ten_seconds() -> None:
    times = source(iter([NOON_MS, NOON_MS + 1, NOON_MS - 9_999, NOON_MS - 5_000, NOON_MS + 2, NOON_MS + 7]))
    taken = [times.next() for _ in range(6)]
    assert [time[-4:] for time in taken] == ["0000", "0001", "0002", "0003", "0004", "0007"]


def test_times_follow_the_timeline_of_a_writer_whose_clock_was_an_hour_ahead() -> None:
    assert source(iter([NOON_MS]), last="20261121130000000").next() == "20261121130000001"


@pytest.mark.parametrize(
    ("last", "following"),
    [
        ("20261231235959999", "20270101000000000"),
        ("20280228235959999", "20280229000000000"),
        ("20991121120000", "20991121120001000"),
        ("20991121120000000123", "20991121120000001"),
    ],
)
def test_counting_on_carries_over_and_takes_other_lengths(last: str, following: str) -> None:
    assert next_time(NOON_MS, last, "UTC") == following


@pytest.mark.parametrize("last", ["", "00000000000000000", "00000000000002"])
def test_the_special_times_of_initialisation_come_before_every_clock(last: str) -> None:
    assert next_time(NOON_MS, last, "UTC") == "20261121120000000"


def test_local_times_grow_through_the_hour_that_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    import time

    time.tzset()
    try:
        before = instant_ms("20261025023000000", "LOCAL")
        first = instant_text(before, "LOCAL")
        again = next_time(before + 3_600_000 - 1, first, "LOCAL")
        assert first == "20261025023000000"
        assert again > first
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_skew_wait_sleeps_after_each_time_and_only_then() -> None:
    slept: list[float] = []
    times = source(iter([NOON_MS, NOON_MS]), skew_ms=200, slept=slept)
    times.next()
    times.next()
    assert slept == [0.2, 0.2]
    source(iter([NOON_MS]), slept=slept).next()
    assert len(slept) == 2


@pytest.mark.parametrize("zone", ["UTC", "LOCAL"])
def test_text_and_milliseconds_are_inverse(zone: str) -> None:
    for moment in (NOON_MS, NOON_MS + 999, 0, 951_782_399_999):
        assert instant_ms(instant_text(moment, zone), zone) == moment


def test_fourteen_digits_mean_the_end_of_their_second() -> None:
    assert instant_ms("20261121120000", "UTC") == NOON_MS + 999


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("20261121120000123", "20261121120000123"),
        ("20261121120000", "20261121120000999"),
        ("2026-11-20", "20261120000000000"),
        ("2026-11-20 10:00", "20261120100000000"),
        ("2026-11-20T10:00:01.5", "20261120100001500"),
        ("2026-11-20 10:00+02:00", "20261120080000000"),
        ("20261121120000123456", "20261121120000123"),
        (datetime(2026, 11, 20, 10, 0, 1, 500_000), "20261120100001500"),
        (datetime(2026, 11, 20, 10, tzinfo=timezone(timedelta(hours=2))), "20261120080000000"),
        (date(2026, 11, 20), "20261120000000000"),
        ("0999-01-01", "09990101000000000"),
    ],
)
def test_users_may_give_instants_or_dates(value: str | date, expected: str) -> None:
    assert moment_text(value, "UTC") == expected


FULL_WIDTH = "".join(chr(0xFF10 + int(digit)) for digit in "20261121120000123")


@pytest.mark.parametrize(
    "value", ["yesterday", "", "2026-13-01", "123", FULL_WIDTH, "0001-01-01T00:00+05:00", 20261121120000123, None]
)
def test_a_value_that_is_no_time_is_named(value: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(value))):
        moment_text(value, "UTC")


def test_the_system_clock_counts_milliseconds_since_the_epoch() -> None:
    assert 1_700_000_000_000 < system_clock() < 10_000_000_000_000
