"""Names of time zones that Spark accepts as the session's and that the tz database does not have, or has as UTC."""

from __future__ import annotations

UTC_NAMES = (
    "UTC", "GMT", "UT", "Z", "Zulu", "GMT0", "Etc/UTC", "Etc/GMT", "Etc/GMT0", "Universal", "Greenwich", "+00:00",
    "-00:00", "UTC+0", "GMT-0", "GMT+00:00",
)  # fmt: skip
FIXED = {
    "+8": 28_800, "+08": 28_800, "+8:00": 28_800, "+08:00": 28_800, "+0800": 28_800, "+08:00:00": 28_800,
    "+080000": 28_800, "UTC+8": 28_800, "UTC+08": 28_800, "UTC+08:00": 28_800, "UTC+0800": 28_800, "UTC+8:00": 28_800,
    "GMT+8": 28_800, "GMT+08:00": 28_800, "GMT+8:00": 28_800, "UT+8": 28_800, "UT+08:00": 28_800,
    "-3:30": -12_600, "-03:30": -12_600, "GMT-03:30": -12_600, "UTC-0330": -12_600, "+05:3": 18_180,
    "+01:30:15": 5_415, "-013015": -5_415, "UTC+01:30:15": 5_415, "+18": 64_800, "+18:00": 64_800, "-18:00": -64_800,
    "-00:00:01": -1,
}  # fmt: skip
"""Offsets in their spellings, and their seconds ahead of UTC."""
