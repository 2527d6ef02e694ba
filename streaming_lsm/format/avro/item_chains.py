"""Items that lie end to end, where only an item itself tells where the next one begins.

Following such a chain is one dependent step per item. Here many places are stepped from at once, at first by guess:
chains that begin at a wrong place soon fall in with the true one. Nothing is believed for that: a place is returned
only if a step from the place before it leads there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streaming_lsm.arrow.columns import Int64s

Step = Callable[[Int64s], Int64s]
"""From places where items may begin, int64 (n,), to those behind them; -1 where no item can be."""

_SMALL = 1 << 14
_HOPS = 4
_WIDEST = 4096
# A step costs about as much for one place as for this many: what an even split between guessing and walking needs.
_PLACES_PER_STEP = 400


def follow(step: Step, first: int, stop: int, count: int) -> Int64s:
    """Where the items of a chain begin, and where the last one ends.

    Args:
        step: moves over one item.
        first: where the first item begins.
        stop: a place that no item may reach beyond.
        count: how many items to find.

    Returns:
        int64 (count + 1,); fewer if no item can be read at the last place returned.
    """
    if stop - first <= _SMALL:
        return _by_table(step, first, stop, count)
    return _by_trails(step, first, stop, count)


def _by_table(step: Step, first: int, stop: int, count: int) -> Int64s:
    """Step from every place, then take 1, 2, 4, … steps at once."""
    dead = stop - first + 1
    jump = np.full(dead + 1, dead, np.int64)
    behind = step(np.arange(first, stop, dtype=np.int64))
    jump[: stop - first] = np.where((behind < 0) | (behind > stop), dead, behind - first)
    path = np.zeros(1, np.int64)
    while len(path) <= count and path[-1] != dead:
        path = np.concatenate((path, jump[path]))
        jump = jump[jump]
    path = path[: count + 1]
    found: Int64s = path[path != dead] + first
    return found


def _by_trails(step: Step, first: int, stop: int, count: int) -> Int64s:
    heads = np.append(_heads(step, first, stop, count), stop)
    trails, landings = _trails(step, heads)
    found, length, at = [], 1, first
    for trail, landing, limit in zip(trails, landings, heads[1:], strict=True):
        while 0 <= at < limit and length <= count:
            place = int(np.searchsorted(trail, at))
            if place < len(trail) and trail[place] == at:
                piece, at = trail[place:], int(landing)
            else:
                piece = np.array([at], np.int64)
                at = int(step(piece)[0])
            found.append(piece)
            length += len(piece)
    found.append(np.array([at] if 0 <= at <= stop else [], np.int64))
    return np.concatenate(found)[: count + 1]


def _heads(step: Step, first: int, stop: int, count: int) -> Int64s:
    """The first place, and guesses at further ones that items begin at, spread out evenly."""
    width = min(2 * (stop - first) // max(count, 1) + 16, _WIDEST)
    lanes = max(1, min(int((_PLACES_PER_STEP * count / width) ** 0.5), count // 16, (stop - first) // width))
    begins = np.linspace(first, stop, lanes + 1).astype(np.int64)
    lane = np.repeat(np.arange(1, lanes), width)
    at = (begins[1:-1, None] + np.arange(width)).ravel()
    alive = at < begins[lane + 1]
    for _ in range(_HOPS):
        lane, at = lane[alive], step(at[alive])
        alive = (at >= 0) & (at < begins[lane + 1])  # a guess that jumps far is a bad one
    # Most chains of a window have met by now: the place where they did is the guess.
    meetings, counts = np.unique(lane[alive] * (stop + 1) + at[alive], return_counts=True)
    lane, at = np.divmod(meetings, stop + 1)
    order = np.lexsort((-at, counts, lane))
    busiest = order[np.flatnonzero(np.diff(lane[order], append=-1))]
    return np.unique(np.append(at[busiest], first))


def _trails(step: Step, heads: Int64s) -> tuple[list[Int64s], Int64s]:
    """Places from each head up to the next, ascending, and where the step after them leads; the last head has none."""
    lanes = np.arange(len(heads) - 1)
    landings = np.empty(len(lanes), np.int64)
    at, limit = heads[:-1], heads[1:]
    passed: list[tuple[Int64s, Int64s]] = []
    while len(lanes):
        passed.append((lanes, at))
        at = step(at)
        going = (at >= 0) & (at < limit)
        if not going.all():
            landings[lanes] = at  # the last one that is written stays
            lanes, at, limit = lanes[going], at[going], limit[going]
    lane = np.concatenate([lanes for lanes, _ in passed])
    order = np.argsort(lane, kind="stable")
    places = np.concatenate([at for _, at in passed])[order]
    return np.split(places, np.searchsorted(lane[order], np.arange(1, len(heads) - 1))), landings
