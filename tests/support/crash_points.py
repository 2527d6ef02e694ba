"""The storage calls at which a process dies or fails, and other cases that are many: some of them in ``make test``.

``make faults`` tries all.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")

EVERY_CALL = bool(os.environ.get("LSM_ALL_FAULTS"))
"""Whether each call is tried, as in ``make faults``."""


def sample(points: Sequence[T], offset: int, step: int = 16) -> Sequence[T]:
    """One in `step` of the points; all of them with LSM_ALL_FAULTS=1.

    Args:
        points: numbers of calls, or other places of faults.
        offset: which of the first `step` points comes first. Cases of one test take different ones, so that together
            they try more points, with `step` cases every one.
        step: the distance between two points.
    """
    return points if EVERY_CALL else points[offset % min(step, len(points)) :: step]


def combined(offset: int, *values: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
    """All combinations with LSM_ALL_FAULTS=1, else as few as the longest sequence has values: each value is in one.

    Args:
        offset: how far later sequences are moved against the first one. Tests of the same values take different ones.
        values: the values of each parameter.
    """
    if EVERY_CALL:
        return list(itertools.product(*values))
    number = max(map(len, values))
    return [
        tuple(found[(case + place * offset) % len(found)] for place, found in enumerate(values))
        for case in range(number)
    ]


def random_cases(every: int, few: int) -> int:
    """How many cases are drawn: `every` with LSM_ALL_FAULTS=1, else `few`."""
    return every if EVERY_CALL else few
