"""Compare two calls by the processor time that they take in turns."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from tests.bench.check.cases import Pair

_FEWEST, _MOST, _WARM_UP = 11, 400, 3


@dataclass(frozen=True)
class Measured:
    """What was measured: seconds of processor time of each call; the two took turns.

    Processor time of all threads, because a machine that others use as well gives each call another share of its time.
    """

    ours: tuple[float, ...]
    reference: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Median of our time / the reference's time of each turn, as both calls of a turn meet the same conditions."""
        return median(ours / reference for ours, reference in zip(self.ours, self.reference, strict=True))


def measure(pair: Pair, seconds: float, clock: Callable[[], float] = time.process_time) -> Measured:
    """Call both in turns, each turn the other way round, until they have taken `seconds` of the clock together.

    Garbage of cycles is collected between the turns, so that it is not counted for the call that happens to pay for it.
    """
    for _ in range(_WARM_UP):
        pair.ours()
        pair.reference()
    ours: list[float] = []
    reference: list[float] = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        while len(ours) < _FEWEST or (len(ours) < _MOST and sum(ours) + sum(reference) < seconds):
            turn = [(pair.ours, ours), (pair.reference, reference)]
            for call, taken in turn if len(ours) % 2 else reversed(turn):
                begun = clock()
                call()
                taken.append(clock() - begun)
            if len(ours) % _FEWEST == 0:
                gc.collect()
    finally:
        if collecting:
            gc.enable()
    return Measured(tuple(ours), tuple(reference))
