"""Name the parts of expression indexes, partitions of the metadata table, and bound their expressions.

See docs/format/07-index-and-metadata.md, "Expression index". An *expression* is a function of one column. Bounds of a
function of time follow from bounds of the column: they may be wider than its values, never narrower.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, flags, pc
from streaming_lsm.format.metadata.column_stats import range_key
from streaming_lsm.format.metadata.hashes import column_hash, partition_hash

PREFIX = "expr_index_"
"""Prefix of the names of these partitions."""
INDEX_TYPE = "column_stats"
"""The type of an index, in its definition, whose records are ranges; others, of bloom filters, are not kept."""
LOWER = "lower"
TIME_FUNCTIONS = ("year", "month", "day", "hour")
FUNCTIONS = (*TIME_FUNCTIONS, LOWER)
"""Functions as Spark has them: ``day`` is the day of the month."""

_OF_PARTITIONS = "__partition_stat__"
_FILE_KEY_BYTES = len(range_key("", "", ""))
_LARGEST_TEXT = "\U0010ffff"
_ZONES = np.timedelta64(15 * 3600, "s")
"""Largest offset of a time zone from UTC: Hudi computes the expression in the time zone of its session."""
_WIDEST: Mapping[str, tuple[int, int]] = {
    "year": (-(2**31), 2**31 - 1),
    "month": (1, 12),
    "day": (1, 31),
    "hour": (0, 23),
}
_OUTER = {"month": "Y", "day": "M", "hour": "D"}
"""The unit within which a function does not decrease."""

Time: TypeAlias = "np.datetime64"


def partition_range_key(column: str, partition: str) -> str:
    """Return the key of the range of a column's expression in a partition of the table."""
    return column_hash(column) + partition_hash(_OF_PARTITIONS) + partition_hash(partition)


def are_of_files(keys: pa.BinaryArray) -> Flags:
    """Flag the keys of ranges in files, bool (n,); others are of partitions."""
    return flags(pc.equal(pc.binary_length(keys), _FILE_KEY_BYTES))


def time_bounds(function: str, low: Time | None, high: Time | None, *, zoned: bool) -> tuple[int, int]:
    """Bound a function of time between two times; None is no bound.

    Args:
        function: one of `TIME_FUNCTIONS`.
        low, high: bounds of the time.
        zoned: whether it is a moment, whose date depends on a time zone that is not known.
    """
    widest = _WIDEST[function]
    ends: list[Any] = [None if end is None else end.astype("datetime64[s]") for end in (low, high)]
    if zoned:
        ends = [None if end is None else end + sign * _ZONES for end, sign in zip(ends, (-1, 1), strict=True)]
    if function == "year":
        years = [None if end is None else _VALUE["year"](end) for end in ends]
        return tuple(most if year is None else year for year, most in zip(years, widest, strict=True))  # type: ignore[return-value]
    if None in ends or len({end.astype(f"datetime64[{_OUTER[function]}]") for end in ends}) > 1:
        return widest
    return _VALUE[function](ends[0]), _VALUE[function](ends[1])


def text_bounds(values: pa.StringArray) -> tuple[Any, Any]:
    """Bound the lower case of texts; the widest where a text has letters that programs may change otherwise.

    Returns:
        Smallest and largest text; null without a value.
    """
    if not pc.all(pc.string_is_ascii(pc.drop_null(values))).as_py():
        return pa.scalar(""), pa.scalar(_LARGEST_TEXT)
    found = pc.min_max(pc.ascii_lower(values))
    return found["min"], found["max"]


def is_widest(text: str | None) -> bool:
    """Return whether the largest text is that of `text_bounds` for texts that are not compared."""
    return text == _LARGEST_TEXT


def lowered(text: str) -> str | None:
    """Return the lower case of a text; None where programs may differ in it."""
    return text.lower() if text.isascii() else None


def _unit(time: Time, unit: str) -> Any:
    return time.astype(f"datetime64[{unit}]")


_VALUE: Mapping[str, Callable[[Any], int]] = {
    "year": lambda time: int(_unit(time, "Y").astype(np.int64)) + 1970,
    "month": lambda time: int(_unit(time, "M").astype(np.int64)) % 12 + 1,
    "day": lambda time: int((_unit(time, "D") - _unit(_unit(time, "M"), "D")).astype(np.int64)) + 1,
    "hour": lambda time: int((_unit(time, "h") - _unit(_unit(time, "D"), "h")).astype(np.int64)),
}
