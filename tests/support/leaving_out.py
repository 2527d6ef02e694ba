"""Leave out what a failure does not need (delta debugging)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def leave_out(items: Sequence[T], fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """Return the items without which nothing fails: halves are left out, quarters, … single ones.

    Args:
        fails: whether it fails with these items.
    """
    kept, length = tuple(items), max(1, len(items) // 2)
    while kept:
        place = 0
        while place < len(kept):
            fewer = kept[:place] + kept[place + length :]
            if fails(fewer):
                kept = fewer
            else:
                place += length
        if length == 1:
            break
        length //= 2
    return kept
