"""Count through ranges of places, all at once."""

from __future__ import annotations

import numpy as np

from streaming_lsm.arrow.columns import Int64s


def places_in(begins: Int64s, counts: Int64s) -> Int64s:
    """Return the places in ranges, end to end.

    Args:
        begins: int64 (ranges,), where each range begins.
        counts: int64 (ranges,), how many places each has.
    """
    ends = np.cumsum(counts)
    found: Int64s = np.repeat(begins - (ends - counts), counts) + np.arange(counts.sum())
    return found
