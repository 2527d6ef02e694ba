"""Who wins among the records of each key, decided for all keys at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streaming_lsm.arrow.columns import Flags, Int64s

Positions = Int64s

_NONE = np.int64(-1)


@dataclass(frozen=True)
class Folded:
    """The outcome per key, in key order.

    Attributes:
        winner: int64, position of the record that stands at the end.
        unordered delete: int64, position of the newest delete without ordering that stands before the winner
            and still acts on older records; -1 when there is none.
    """

    winner: Positions
    unordered_delete: Positions


def fold(starts: Positions, unordered_deletes: Flags, ranks: Int64s | None) -> Folded:
    """Fold the records of each key from left to right (docs/format/05-merge.md, "Pairwise rule").

    A delete without ordering (`unordered_deletes`) ends the say of all before it; among those after it the
    largest rank wins, the later one on ties. With none after it, it is the winner itself.

    Args:
        starts: int64 (keys,), where each key's records begin; records lie in merge order.
        unordered deletes: bool (records,).
        ranks: int64 (records,) ordering values as numbers; None when the latest record wins.
    """
    count = len(unordered_deletes)
    if len(starts) == count:
        return Folded(starts, np.full(count, _NONE))
    ends = np.append(starts[1:], count)
    last = ends - 1
    if ranks is None:
        return Folded(last, np.full(len(starts), _NONE))
    unordered_delete = last_marked(starts, unordered_deletes)
    position = np.arange(count, dtype=np.int64)
    counted = position > np.repeat(unordered_delete, ends - starts)
    lowest = np.iinfo(np.int64).min
    best = np.maximum.reduceat(np.where(counted, ranks, lowest), starts)
    winner = last_marked(starts, counted & (ranks == np.repeat(best, ends - starts)))
    ended = unordered_delete == last
    return Folded(np.where(ended, unordered_delete, winner), np.where(ended, _NONE, unordered_delete))


def survivors(starts: Positions, unordered_deletes: Flags, ranks: Int64s | None) -> Flags:
    """Which records may still decide the fold of their key after records of other runs were put between them.

    Those are a key's last unordered delete and, after it, every record whose rank is larger than that of all later
    ones. The others lose to a record of their own run wherever others fall, so that folding what survives of several
    runs is folding the runs.

    Args:
        starts, unordered deletes, ranks: one sorted run, as for `fold`.

    Returns:
        bool (records,).
    """
    count = len(unordered_deletes)
    if len(starts) == count:
        return np.ones(count, np.bool_)
    lengths = np.diff(np.append(starts, count))
    last = starts + lengths - 1
    if ranks is None:
        stays = np.zeros(count, np.bool_)
        stays[last] = True
        return stays
    position = np.arange(count, dtype=np.int64)
    unordered_delete = np.repeat(last_marked(starts, unordered_deletes), lengths)
    stays = (position > unordered_delete) & _larger_than_later(np.repeat(np.arange(len(starts)), lengths), ranks)
    stays |= position == unordered_delete
    return stays


def _larger_than_later(key: Int64s, ranks: Int64s) -> Flags:
    """Whether a record's rank is larger than those of all later records of its key; `key` ascends."""
    larger = np.ones(len(key), np.bool_)
    shared = np.zeros(len(key), np.bool_)
    shared[1:] = key[1:] == key[:-1]
    shared[:-1] |= shared[1:]
    dense = np.unique(ranks[shared], return_inverse=True)[1]
    # Seen from the end, every key begins above all that was seen before it, so that one running maximum serves all.
    height = ((len(key) - key[shared]) * (len(dense) + 1) + dense)[::-1]
    met = np.maximum.accumulate(height)
    of_shared = np.ones(len(height), np.bool_)
    of_shared[1:] = height[1:] > met[:-1]
    larger[shared] = of_shared[::-1]
    return larger


def last_marked(starts: Positions, marked: Flags) -> Positions:
    """Position of the last marked record of each key, -1 where none is."""
    position = np.where(marked, np.arange(len(marked), dtype=np.int64), _NONE)
    return np.maximum.reduceat(position, starts)
