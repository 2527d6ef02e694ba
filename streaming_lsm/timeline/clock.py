"""Create and parse instant times: 17 digits, strictly ascending (docs/format/02-timeline.md, "Instant time")."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import TypeAlias

from streaming_lsm.errors import ConfigError

Clock: TypeAlias = Callable[[], int]
"""Returns milliseconds since the epoch."""

Sleep: TypeAlias = Callable[[float], None]
"""Waits for a number of seconds."""

DIGITS = 17
SHORT_DIGITS = 14
_MILLISECOND = timedelta(milliseconds=1)


def system_clock() -> int:
    """Return the machine's time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def instant_text(epoch_ms: int, zone: str) -> str:
    """Format a time as ``yyyyMMddHHmmssSSS``.

    Args:
        epoch_ms: milliseconds since the epoch.
        zone: ``UTC``, or ``LOCAL`` for the zone of this machine.
    """
    moment = datetime.fromtimestamp(epoch_ms // 1000, UTC if zone == "UTC" else None)
    return f"{moment:%Y%m%d%H%M%S}{epoch_ms % 1000:03d}"


def instant_ms(text: str, zone: str) -> int:
    """Parse an instant time into milliseconds since the epoch.

    Raises:
        ValueError: `text` is no date, such as the special instants of a table's initialisation.
    """
    moment = _naive(text).replace(tzinfo=UTC if zone == "UTC" else None)
    return int(moment.timestamp()) * 1000 + moment.microsecond // 1000


def full_digits(text: str) -> str:
    """Return an instant time with 17 digits: 14 digits mean the end of that second, further digits are dropped."""
    return text + "999" if len(text) == SHORT_DIGITS else text[:DIGITS]


def next_time(epoch_ms: int, last: str, zone: str) -> str:
    """Return the clock's time, or one millisecond after `last` if the clock is not later than `last`.

    Args:
        epoch_ms: time of the clock, milliseconds since the epoch.
        last: the largest time of the timeline, ``""`` for none.
        zone: ``UTC`` or ``LOCAL``. Adding to `last` ignores the zone, so that times ascend in the hour that a local
            zone repeats.
    """
    text = instant_text(epoch_ms, zone)
    return text if text > full_digits(last) else _print(_naive(last) + _MILLISECOND)


def instant_digits(value: object) -> str | None:
    """Return a user's instant time without the digits after the 17th; None if the value is no instant time."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) >= SHORT_DIGITS:
        return value[:DIGITS]
    return None


def moment_text(value: str | date, zone: str) -> str:
    """Convert a user's instant time or date into an instant time.

    Args:
        value: an instant time; or a date with or without time of day, as a Python object or as ISO text such as
            ``2026-11-20 10:00``. A date without a zone is in the table's zone.
        zone: ``UTC`` or ``LOCAL``, the table's zone.

    Raises:
        ConfigError: the value is neither an instant time nor a date.
    """
    digits = instant_digits(value)
    try:
        if digits is not None:
            datetime.strptime(digits[:8], "%Y%m%d")  # of the time of day there are times with more than 59 seconds
            return full_digits(digits)
        moment = datetime.fromisoformat(value.isoformat() if isinstance(value, date) else value)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC if zone == "UTC" else None)
    except (ValueError, OverflowError, TypeError):
        raise ConfigError(
            f"{value!r} is no point in time: give an instant such as 20261120100000000 or a date like 2026-11-20 10:00"
        ) from None
    return _print(moment)


class InstantSource:
    """Generate instant times of one table, whose lock the caller holds.

    Times ascend even if the clock goes back: max(clock, last + 1 ms). With a maximum clock skew each call waits for it,
    so that writers on machines whose clocks are behind generate later times.
    """

    def __init__(self, clock: Clock, sleep: Sleep, zone: str, skew_ms: int, last: str) -> None:
        """Generate times after `last`, the largest time of the timeline (``""`` for none)."""
        self._clock = clock
        self._sleep = sleep
        self._zone = zone
        self._skew_ms = skew_ms
        self._last = last

    def next(self) -> str:
        """Return a new time, greater than all before."""
        self._last = next_time(self._clock(), self._last, self._zone)
        if self._skew_ms:
            self._sleep(self._skew_ms / 1000)
        return self._last

    def now_ms(self) -> int:
        """Return the clock's time in milliseconds since the epoch; for durations, never for instants."""
        return self._clock()


def _naive(text: str) -> datetime:
    digits = full_digits(text)
    if instant_digits(digits) is None:
        raise ValueError(f"{text!r} is no instant time")
    # `strptime` takes as long as a read of a small file.
    ends = (0, 4, 6, 8, 10, 12, SHORT_DIGITS)
    moment = datetime(*(int(digits[begin:end]) for begin, end in pairwise(ends)))  # type: ignore[arg-type]
    return moment + timedelta(milliseconds=int(digits[SHORT_DIGITS:DIGITS]))


def _print(moment: datetime) -> str:
    return f"{moment.year:04d}{moment:%m%d%H%M%S}{moment.microsecond // 1000:03d}"
