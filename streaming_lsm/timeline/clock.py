"""Times of the timeline: 17 digits that only ever grow (docs/format/02-timeline.md, "Instant time")."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import TypeAlias

from streaming_lsm.errors import ConfigError

Clock: TypeAlias = Callable[[], int]
"""Milliseconds since the epoch."""

Sleep: TypeAlias = Callable[[float], None]
"""Waits for so many seconds."""

DIGITS = 17
SHORT_DIGITS = 14
_MILLISECOND = timedelta(milliseconds=1)


def system_clock() -> int:
    """The machine's clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def instant_text(epoch_ms: int, zone: str) -> str:
    """A moment as ``yyyyMMddHHmmssSSS``.

    Args:
        epoch_ms: milliseconds since the epoch.
        zone: ``UTC``, or ``LOCAL`` for the zone of this machine.
    """
    moment = datetime.fromtimestamp(epoch_ms // 1000, UTC if zone == "UTC" else None)
    return f"{moment:%Y%m%d%H%M%S}{epoch_ms % 1000:03d}"


def instant_ms(text: str, zone: str) -> int:
    """The moment of an instant time, in milliseconds since the epoch.

    Raises:
        ValueError: `text` is no date, as for the special times of a table's initialisation.
    """
    moment = _naive(text).replace(tzinfo=UTC if zone == "UTC" else None)
    return int(moment.timestamp()) * 1000 + moment.microsecond // 1000


def full_digits(text: str) -> str:
    """An instant time with 17 digits: 14 digits mean the end of that second, further digits are dropped."""
    return text + "999" if len(text) == SHORT_DIGITS else text[:DIGITS]


def next_time(epoch_ms: int, last: str, zone: str) -> str:
    """The clock's time, or one millisecond after `last` when the clock is not past it.

    Args:
        epoch_ms: what the clock says.
        last: the largest time the timeline holds, ``""`` for none.
        zone: ``UTC`` or ``LOCAL``. Counting on from `last` ignores it, so that times grow through the hour
            that a local zone repeats.
    """
    text = instant_text(epoch_ms, zone)
    return text if text > full_digits(last) else _print(_naive(last) + _MILLISECOND)


def instant_digits(value: object) -> str | None:
    """An instant time as a user writes it, without the digits beyond the 17th; None when it is something else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) >= SHORT_DIGITS:
        return value[:DIGITS]
    return None


def moment_text(value: str | date, zone: str) -> str:
    """The instant time that a user means.

    Args:
        value: an instant time, or a date with or without time, as Python's or as ISO text such as
            ``2026-11-20 10:00``. A date without a zone is in the table's zone.
        zone: ``UTC`` or ``LOCAL``, the table's zone.

    Raises:
        ConfigError: the value is neither.
    """
    digits = instant_digits(value)
    if digits is not None:
        return full_digits(digits)
    try:
        moment = datetime.fromisoformat(value.isoformat() if isinstance(value, date) else value)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC if zone == "UTC" else None)
    except (ValueError, OverflowError, TypeError):
        raise ConfigError(
            f"{value!r} is no point in time: give an instant such as 20261120100000000 or a date like 2026-11-20 10:00"
        ) from None
    return _print(moment)


class InstantSource:
    """Takes new times for one table. The table's lock must be held.

    Every time is greater than all before it, whatever the clock does: max(clock, last + 1 ms). A wait after each
    one, for tables shared with writers on other machines, keeps a skewed clock from falling behind it.
    """

    def __init__(self, clock: Clock, sleep: Sleep, zone: str, skew_ms: int, last: str) -> None:
        """Begin after `last`, the largest time of the timeline (``""``: none)."""
        self._clock = clock
        self._sleep = sleep
        self._zone = zone
        self._skew_ms = skew_ms
        self._last = last

    def next(self) -> str:
        """A new time."""
        self._last = next_time(self._clock(), self._last, self._zone)
        if self._skew_ms:
            self._sleep(self._skew_ms / 1000)
        return self._last

    def now_ms(self) -> int:
        """The clock as it is, milliseconds since the epoch; for durations, never for instants."""
        return self._clock()


def _naive(text: str) -> datetime:
    digits = full_digits(text)
    moment = datetime.strptime(digits[:SHORT_DIGITS], "%Y%m%d%H%M%S")
    return moment + timedelta(milliseconds=int(digits[SHORT_DIGITS:DIGITS]))


def _print(moment: datetime) -> str:
    return f"{moment.year:04d}{moment:%m%d%H%M%S}{moment.microsecond // 1000:03d}"
