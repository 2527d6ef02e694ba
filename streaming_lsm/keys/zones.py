"""Convert columns of milliseconds between UTC and a time zone, with Java's zone names."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, pc
from streaming_lsm.errors import ConfigError

_JAVA_OFFSET = re.compile(r"GMT([+-])(\d{1,2})(?::?(\d{2}))?")


def check_zone(zone: str, key: str) -> None:
    """Raise ConfigError, naming the option `key`, unless `zone` is an offset or in the zone database."""
    if fixed_offset(zone) is not None:
        return
    if not zone[0].isalpha():
        raise ConfigError(f"{key}={zone!r}: Java reads this as GMT; write GMT{zone}")
    try:
        pc.local_timestamp(pa.array([0], pa.timestamp("ms", zone)))
    except pa.ArrowInvalid as error:
        raise ConfigError(f"{key}={zone!r} is not a time zone; use one like Europe/Paris or GMT+8:00") from error


def fixed_offset(zone: str) -> int | None:
    """Return the offset from UTC in milliseconds of ``UTC``, ``GMT+8:00``, ``GMT-0330``; ``None`` for named zones."""
    if zone in ("UTC", "GMT", "Z"):
        return 0
    match = _JAVA_OFFSET.fullmatch(zone)
    if match is None or int(match[2]) > 23 or int(match[3] or 0) > 59:
        return None
    minutes = int(match[2]) * 60 + int(match[3] or 0)
    return (-minutes if match[1] == "-" else minutes) * 60_000


def offsets_of(millis: Int64s, zone: str) -> Int64s:
    """Return the offset of `zone` from UTC in milliseconds at each point in time."""
    fixed = fixed_offset(zone)
    if fixed is not None:
        return np.full(len(millis), fixed, np.int64)
    local = pc.local_timestamp(pa.array(millis).cast(pa.timestamp("ms", zone)))
    return np.asarray(local.cast(pa.int64())) - millis


def to_utc(local: Int64s, zone: str) -> tuple[Int64s, Flags]:
    """Convert local times to points in time (the earlier of two), and flag those that a clock change skips."""
    fixed = fixed_offset(zone)
    if fixed is not None:
        return local - fixed, np.zeros(len(local), np.bool_)
    naive = pa.array(local).cast(pa.timestamp("ms"))
    zoned = pc.assume_timezone(naive, zone, ambiguous="earliest", nonexistent="earliest")
    millis = np.asarray(zoned.cast(pa.int64()))
    return millis, millis + offsets_of(millis, zone) != local
