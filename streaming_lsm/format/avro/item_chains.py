"""Find the positions of variable-length items that lie end to end.

A *chain* is a sequence of items without an index: the position of an item is known only after a *step* over the item
before it. Following it takes one dependent step per item. To vectorise this, steps are taken from many positions at
once; most of these are guesses, as chains from wrong positions soon merge with the right one. Guesses are verified: a
position is returned only if the step from the position before it leads there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streaming_lsm.arrow.columns import Int64s

Step = Callable[[Int64s], Int64s]
"""Maps positions of items, int64 (n,), to the positions after them; -1 where there is no valid item."""

_SMALL = 1 << 14
_HOPS = 4
_WIDEST = 4096
# A vectorised step has the fixed cost of about this many positions; it balances guessing against following.
_PLACES_PER_STEP = 400


def follow(step: Step, first: int, stop: int, count: int) -> Int64s:
    """Return the positions of the items of a chain, and the end of the last one.

    Args:
        step: steps over one item.
        first: position of the first item.
        stop: position that no item may exceed.
        count: number of items.

    Returns:
        int64 (count + 1,); fewer if there is no valid item at the last position.
    """
    if stop - first <= _SMALL:
        return _by_table(step, first, stop, count)
    return _by_trails(step, first, stop, count)


def _by_table(step: Step, first: int, stop: int, count: int) -> Int64s:
    """Follow the chain by pointer doubling: step from every position, then take 1, 2, 4, … steps at once."""
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
    """Return the first position, and evenly spaced guesses of further item positions."""
    width = min(2 * (stop - first) // max(count, 1) + 16, _WIDEST)
    lanes = max(1, min(int((_PLACES_PER_STEP * count / width) ** 0.5), count // 16, (stop - first) // width))
    begins = np.linspace(first, stop, lanes + 1).astype(np.int64)
    lane = np.repeat(np.arange(1, lanes), width)
    at = (begins[1:-1, None] + np.arange(width)).ravel()
    alive = at < begins[lane + 1]
    for _ in range(_HOPS):
        lane, at = lane[alive], step(at[alive])
        alive = (at >= 0) & (at < begins[lane + 1])  # a step beyond the window indicates a wrong guess
    # Most chains of a window have merged by now: the position where most of them are is the guess.
    meetings, counts = np.unique(lane[alive] * (stop + 1) + at[alive], return_counts=True)
    lane, at = np.divmod(meetings, stop + 1)
    order = np.lexsort((-at, counts, lane))
    busiest = order[np.flatnonzero(np.diff(lane[order], append=-1))]
    return np.unique(np.append(at[busiest], first))


def _trails(step: Step, heads: Int64s) -> tuple[list[Int64s], Int64s]:
    """Follow each head but the last up to the next head: the positions, ascending, and the position after them."""
    lanes = np.arange(len(heads) - 1)
    landings = np.empty(len(lanes), np.int64)
    at, limit = heads[:-1], heads[1:]
    passed: list[tuple[Int64s, Int64s]] = []
    while len(lanes):
        passed.append((lanes, at))
        at = step(at)
        going = (at >= 0) & (at < limit)
        if not going.all():
            landings[lanes] = at  # later rounds overwrite earlier ones
            lanes, at, limit = lanes[going], at[going], limit[going]
    lane = np.concatenate([lanes for lanes, _ in passed])
    order = np.argsort(lane, kind="stable")
    places = np.concatenate([at for _, at in passed])[order]
    return np.split(places, np.searchsorted(lane[order], np.arange(1, len(heads) - 1))), landings
