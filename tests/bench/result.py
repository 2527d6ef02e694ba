"""What one benchmark measured: ours and the reference, taken in turns within one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

BYTES_READ = "bytes read"
"""Unit of results that are bytes in place of seconds."""


@dataclass(frozen=True)
class Result:
    """One comparison.

    Attributes:
        name: what is compared, such as ``sort 17-byte keys``.
        ours, reference: seconds of each run, or bytes if the unit is `BYTES_READ`; the two took turns.
        work: how much was done in one run, in `unit`.
        unit: such as ``rows`` or ``bytes``.
        target: the bound of `ratio`.
        speed: whether the target is a rate to reach (ratio = our rate / the reference's), else a time to keep
            (ratio = our time / the reference's).
        note: what the reference is, in a few words.
        timed: whether `ours` and `reference` are seconds, else a figure and its limit in `unit`.
    """

    name: str
    ours: tuple[float, ...]
    reference: tuple[float, ...]
    work: float
    unit: str
    target: float
    speed: bool
    note: str
    timed: bool = True

    @property
    def ratio(self) -> float:
        """Median against median, as the target is expressed."""
        ours, reference = median(self.ours), median(self.reference)
        return reference / ours if self.speed else ours / reference

    @property
    def reached(self) -> bool:
        """Whether the target holds."""
        return self.ratio >= self.target if self.speed else self.ratio <= self.target


def in_turns(
    ours: Callable[[], object], reference: Callable[[], object], runs: int = 5, warm_up: int = 1
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of `runs` calls of each, taken in turns; who begins alternates.

    Args:
        ours, reference: what to time.
        runs: timed calls of each.
        warm_up: calls of each before.
    """
    taken: dict[str, list[float]] = {"ours": [], "reference": []}
    calls = {"ours": ours, "reference": reference}
    for number in range(-warm_up, runs):
        for who in sorted(calls, reverse=bool(number % 2)):
            begun = time.perf_counter()
            calls[who]()
            if number >= 0:
                taken[who].append(time.perf_counter() - begun)
    return tuple(taken["ours"]), tuple(taken["reference"])
