"""Fold the records of each key into the winning record, for all keys at once with numpy.

Records are positions in an array sorted by key and then in merge order. An unordered delete is a delete without an
ordering value; the rank of a record is an integer that compares as its ordering value does.
"""

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
        winner: int64, position of the winning record.
        unordered_delete: int64, position of the newest unordered delete before the winner, which still deletes older
            records; -1 when there is none.
    """

    winner: Positions
    unordered_delete: Positions


def fold(starts: Positions, unordered_deletes: Flags, ranks: Int64s | None) -> Folded:
    """Fold the records of each key from left to right (docs/format/05-merge.md, "Pairwise rule").

    An unordered delete removes all records before it; among those after it the largest rank wins, the later one on
    ties. If none follows, the delete itself is the winner.

    Args:
        starts: int64 (keys,), position of each key's first record; records are in merge order.
        unordered_deletes: bool (records,).
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
    """Mark the records of a sorted run that can still win after a merge with other runs.

    These are a key's last unordered delete and, after it, every record whose rank is larger than those of all later
    records. The others lose to a record of their own run wherever records of other runs are inserted, so that folding
    the survivors of several runs equals folding the runs.

    Args:
        starts, unordered_deletes, ranks: one sorted run, as for `fold`.

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
    """Mark the records whose rank is larger than those of all later records of their key; `key` ascends."""
    larger = np.ones(len(key), np.bool_)
    shared = np.zeros(len(key), np.bool_)
    shared[1:] = key[1:] == key[:-1]
    shared[:-1] |= shared[1:]
    dense = np.unique(ranks[shared], return_inverse=True)[1]
    # From the end, each key's heights lie above those of all keys before, so that one running maximum serves all keys.
    height = ((len(key) - key[shared]) * (len(dense) + 1) + dense)[::-1]
    met = np.maximum.accumulate(height)
    of_shared = np.ones(len(height), np.bool_)
    of_shared[1:] = height[1:] > met[:-1]
    larger[shared] = of_shared[::-1]
    return larger


def last_marked(starts: Positions, marked: Flags) -> Positions:
    """Find the position of the last marked record of each key, -1 without one."""
    position = np.where(marked, np.arange(len(marked), dtype=np.int64), _NONE)
    return np.maximum.reduceat(position, starts)
