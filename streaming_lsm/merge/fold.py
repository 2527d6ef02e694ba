"""Who wins among the records of each key, decided for all keys at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streaming_lsm.columns import Flags, Int64s

Positions = Int64s

_NONE = np.int64(-1)


@dataclass(frozen=True)
class Folded:
    """The outcome per key, in key order.

    Attributes:
        winner: int64, position of the record that stands at the end.
        wipe: int64, position of the newest delete without ordering that stands before the winner
            and still acts on older records; -1 when there is none.
    """

    winner: Positions
    wipe: Positions


def fold(starts: Positions, wipes: Flags, ranks: Int64s | None) -> Folded:
    """Fold the records of each key from left to right (format 05, Pairwise rule).

    A delete without ordering (`wipes`) ends the say of all before it; among those after it the
    largest rank wins, the later one on ties. With none after it, it is the winner itself.

    Args:
        starts: int64 (keys,), where each key's records begin; records lie in merge order.
        wipes: bool (records,).
        ranks: int64 (records,) ordering values as numbers; None when the latest record wins.
    """
    count = len(wipes)
    if len(starts) == count:
        return Folded(starts, np.full(count, _NONE))
    ends = np.append(starts[1:], count)
    last = ends - 1
    if ranks is None:
        return Folded(last, np.full(len(starts), _NONE))
    wipe = _last_marked(starts, wipes)
    position = np.arange(count, dtype=np.int64)
    counted = position > np.repeat(wipe, ends - starts)
    lowest = np.iinfo(np.int64).min
    best = np.maximum.reduceat(np.where(counted, ranks, lowest), starts)
    winner = _last_marked(starts, counted & (ranks == np.repeat(best, ends - starts)))
    ended = wipe == last
    return Folded(np.where(ended, wipe, winner), np.where(ended, _NONE, wipe))


def _last_marked(starts: Positions, marked: Flags) -> Positions:
    """Position of the last marked record of each key, -1 where none is."""
    position = np.where(marked, np.arange(len(marked), dtype=np.int64), _NONE)
    return np.maximum.reduceat(position, starts)
