"""Convert texts that an input pattern has split into fields to points in time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, pc
from streaming_lsm.keys.joda import MONTHS, WEEKDAYS, InputPattern
from streaming_lsm.keys.zones import offsets_of, to_utc

# Local times from 0001-01-02 to 9999-12-30, so that every zone's offset stays within Python's datetime.
FIRST_MS = -62_135_510_400_000
LAST_MS = 253_402_214_399_999


def points_in_time(pattern: InputPattern, parts: pa.StructArray, zone: str | None) -> tuple[Int64s, Int64s, Flags]:
    """Compute points in time from the groups of `pattern`'s regular expression.

    Args:
        pattern: the pattern that matched.
        parts: struct of strings without nulls, one field per letter.
        zone: zone of texts without an offset, and of the result; ``None``: UTC, and the text's own offset.

    Returns:
        Epoch milliseconds; milliseconds between UTC and the zone; flags of the rows that are not valid times: a day
        or hour that does not exist, a wrong weekday, a time that a clock change skips.
    """
    number = {letter: _part_numbers(parts, letter) for letter in pattern.letters - set("EMaSZ")}
    month = _names(parts, "M", MONTHS) if "M" in pattern.letters else np.ones(len(parts), np.int64)
    day = number.get("d", np.ones(len(parts), np.int64))
    year = number["y"]
    bad = (year < 1) | (year > 9999) | (month < 1) | (month > 12)
    months = np.where(bad, 0, (year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (day - 1)
    bad |= days.astype("datetime64[M]") != months
    weekday = (days.astype(np.int64) + 3) % 7 + 1
    if "E" in pattern.letters:
        bad |= _names(parts, "E", WEEKDAYS) != weekday
    local = days.astype(np.int64) * 86_400_000 + _time_of_day(pattern, parts, number, bad)
    bad |= (local < FIRST_MS) | (local > LAST_MS)
    local[bad] = 0
    if "Z" in pattern.letters:
        offsets = _part_offsets(parts)
        millis = local - offsets
        bad |= np.abs(offsets) >= 86_400_000
    else:
        millis, skipped = to_utc(local, zone or "UTC")
        bad |= skipped
        offsets = local - millis
    if zone is not None:
        offsets = offsets_of(millis, zone)
    return millis, offsets, bad


def _time_of_day(pattern: InputPattern, parts: pa.StructArray, number: Mapping[str, Int64s], bad: Flags) -> Int64s:
    """Compute milliseconds since midnight, and flag rows out of range in `bad`."""
    ranges = {"H": (0, 23), "k": (1, 24), "h": (1, 12), "K": (0, 11), "m": (0, 59), "s": (0, 59)}
    total = np.zeros(len(parts), np.int64)
    for letter, (low, high) in ranges.items():
        if letter not in number:
            continue
        value = number[letter]
        bad |= (value < low) | (value > high)
        if letter in "kh":
            value = value % (24 if letter == "k" else 12)
        total += value * {"m": 60_000, "s": 1000}.get(letter, 3_600_000)
    if "a" in pattern.letters:
        total += np.where(np.asarray(pc.equal(pc.utf8_lower(parts.field("a")), "pm")), 12 * 3_600_000, 0)
    if "S" in pattern.letters:
        fraction = pc.utf8_slice_codeunits(pc.utf8_rpad(parts.field("S"), 3, "0"), 0, 3)
        total += np.asarray(pc.cast(fraction, pa.int64()))
    return total


def _part_numbers(parts: pa.StructArray, letter: str) -> Int64s:
    return np.asarray(pc.cast(pc.utf8_ltrim(parts.field(letter), "+"), pa.int64()))


def _names(parts: pa.StructArray, letter: str, names: tuple[str, ...]) -> Int64s:
    """Convert the name or digits of a month or weekday to its number, from 1."""
    texts = pc.utf8_slice_codeunits(pc.utf8_lower(parts.field(letter)), 0, 3)
    place = pc.index_in(texts, pa.array([name[:3].lower() for name in names]))
    digits = pc.if_else(pc.is_valid(place), "0", texts)
    return np.asarray(pc.coalesce(pc.cast(pc.add(place, 1), pa.int64()), pc.cast(digits, pa.int64())))


def _part_offsets(parts: pa.StructArray) -> Int64s:
    texts = pc.replace_substring(parts.field("Z"), ":", "")
    texts = pc.utf8_rpad(pc.replace_substring_regex(texts, "^[zZ]$", "+0000"), 5, "0")
    hours = np.asarray(pc.cast(pc.utf8_slice_codeunits(texts, 1, 3), pa.int64()))
    minutes = np.asarray(pc.cast(pc.utf8_slice_codeunits(texts, 3, 5), pa.int64()))
    sign = np.where(np.asarray(pc.starts_with(texts, "-")), -1, 1)
    return np.asarray(sign * (hours * 60 + minutes) * 60_000, np.int64)
