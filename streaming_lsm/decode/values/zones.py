"""Read names of time zones as Spark does, and tell how far a zone is ahead of UTC.

*Offset*: a fixed number of hours, minutes and seconds, such as ``+08:00``, ``GMT+8``, ``UTC-0330`` or ``Z``. *Short
name*: a name of ``java.time.ZoneId.SHORT_IDS``, such as ``PST``. Other names are those of the tz database.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from zoneinfo import ZoneInfo

import pyarrow as pa

from streaming_lsm.arrow.columns import pc
from streaming_lsm.errors import ConfigError

_SHORT_NAMES = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
    "EST": "-05:00", "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT|(?=[+-]))(?:(?P<sign>[+-])"
    r"(?:(?P<h>\d{1,2})(?::(?P<m>\d{1,2})|:(?P<m2>\d\d):(?P<s>\d\d))?|(?P<h2>\d\d)(?P<m3>\d\d)(?P<s2>\d\d)?))?\Z",
    re.ASCII,
)
_ALWAYS_UTC = frozenset((
    "UCT", "Universal", "Zulu", "Greenwich", "GMT0", "Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "Etc/Greenwich",
    "Etc/GMT", "Etc/GMT0", "Etc/GMT+0", "Etc/GMT-0",
))  # fmt: skip
_DAY_OF_YEAR_1 = 719_162
"""Days from 0001-01-01 to 1970-01-01."""
_CYCLE_DAYS = 146_097
"""Days of the 400 years after which the calendar repeats."""


@cache
def session_zone(name: str) -> str:
    """Return the name of a zone that Arrow and Python read, for one that Spark accepts.

    Args:
        name: the session's zone.

    Returns:
        ``UTC``, an offset as ``+HH:MM`` or ``+HH:MM:SS``, or a name of the tz database.

    Raises:
        ConfigError: Spark does not know the zone, or this machine does not.
    """
    known = _SHORT_NAMES.get(name, name)
    ahead = 0 if known in _ALWAYS_UTC else fixed_offset(known)
    if ahead is not None:
        return "UTC" if not ahead else _printed(ahead)
    if _region(known) is None or not _is_read_by_arrow(known):
        raise ConfigError(
            f"time zone {name!r} is not known on this machine: set spark.sql.session.timeZone to a name of the tz "
            "database such as 'Europe/Berlin', which must be installed (package tzdata), or to an offset such as "
            "'+02:00'"
        )
    return known


def _printed(seconds: int) -> str:
    minute, second = divmod(abs(seconds), 60)
    text = f"{'-' if seconds < 0 else '+'}{minute // 60:02}:{minute % 60:02}"
    return f"{text}:{second:02}" if second else text


def _is_read_by_arrow(name: str) -> bool:
    try:
        pc.assume_timezone(pa.scalar(datetime(2000, 1, 1), pa.timestamp("us")), name)
    except pa.ArrowInvalid:
        return False
    return True


def utc_offset(zone: str, day: int, second: int) -> int | None:
    """Return the seconds that a zone is ahead of UTC at a local time; None for an unknown zone.

    Args:
        zone: name of the zone, as Spark accepts it.
        day: days since 1970-01-01.
        second: second of the day.
    """
    zone = _SHORT_NAMES.get(zone, zone)
    ahead = fixed_offset(zone)
    if ahead is not None:
        return ahead
    known = _region(zone)
    if known is None:
        return None
    # A local time that a change of the clocks skips is moved behind it; one that comes twice is the earlier one.
    cycles, within = divmod(day + _DAY_OF_YEAR_1, _CYCLE_DAYS)
    shift = 0 if 0 <= cycles <= 24 else cycles
    local = datetime(1, 1, 1) + timedelta(days=within + (cycles - shift) * _CYCLE_DAYS, seconds=second)
    offset = local.replace(tzinfo=known).utcoffset()
    return None if offset is None else round(offset.total_seconds())


def fixed_offset(zone: str) -> int | None:
    """Return the seconds that an offset is ahead of UTC; None if the text is no offset, or one beyond 18 hours."""
    if zone == "Z":
        return 0
    found = _OFFSET.match(zone)
    if not found:
        return None
    part = found.groupdict()
    h, m, s = (int(part[a] or part[b] or 0) for a, b in (("h", "h2"), ("m", "m2"), ("s", "s2")))
    m = m or int(part["m3"] or 0)
    size = h * 3600 + m * 60 + s
    if m > 59 or s > 59 or size > 18 * 3600:
        return None
    return -size if part["sign"] == "-" else size


@cache
def _region(name: str) -> tzinfo | None:
    if name in ("UTC", "Etc/UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return None
