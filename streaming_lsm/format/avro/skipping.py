"""Skip Avro values without decoding them, and find the items of arrays and maps."""

from __future__ import annotations

import numpy as np

from streaming_lsm.arrow.columns import Int64s
from streaming_lsm.format.avro.cursor import Cursor, Faults
from streaming_lsm.format.avro.item_chains import Step, follow
from streaming_lsm.format.avro.schema_tree import Node

_MAX_BLOCKS = 10_000
# Of a datum that is not from a file: encoders write one block, or one for some KiB, and each takes a step.
_MAX_BLOCKS_BESIDE_FAULTS = 500
_MAX_NOTED = 16
# Following the chain of one datum's items costs about as much as skipping this many items in all datums. It may fail
# and cost more for nested items, because speculative reads reject large item counts.
_CHAIN_COST = 8
_DOUBTFUL_CHAIN_COST = 500


def skip(node: Node, cursor: Cursor) -> None:
    """Skip one value of each datum.

    Raises:
        CorruptFileError: a value is not of the node's type, or exceeds its datum.
    """
    if node.size is not None:
        cursor.move(cursor.at + node.size, node.path)
    elif node.kind == "record":
        for child in node.children:
            skip(child, cursor)
    elif node.kind == "union":
        _skip_union(node, cursor)
    elif node.kind in ("array", "map"):
        items(node, cursor, jump=True)
    elif node.kind in ("string", "bytes"):
        lengths = cursor.lengths(node.path)
        cursor.at = cursor.at + lengths
    else:
        cursor.longs(node.path)


def _skip_union(node: Node, cursor: Cursor) -> None:
    branches = cursor.branches(node)
    for branch in np.flatnonzero(np.bincount(branches)):
        child = node.children[branch]
        if child.size == 0:
            continue
        places = np.flatnonzero(branches == branch)
        if len(places) == len(branches):
            skip(child, cursor)
        else:
            part = cursor.select(places)
            skip(child, part)
            cursor.at[places] = part.at


def items(node: Node, cursor: Cursor, *, jump: bool = False, chain: bool = False) -> tuple[Int64s, Cursor]:
    """Skip an array or map of each datum, and find its items.

    Args:
        node: the array or map.
        cursor: the datums.
        jump: whether blocks with a size in bytes may be skipped without returning their items.
        chain: whether nested items are known to be few.

    Returns:
        index of the cursor's datum for each item, int64 (items,), ascending; a cursor over the items in that order,
        each with its own end.

    Raises:
        CorruptFileError: an item is not of the node's type, or exceeds its datum.
    """
    item = node.children[0]
    cost = _CHAIN_COST if chain or not item.repeats else _DOUBTFUL_CHAIN_COST
    datums = np.arange(len(cursor))
    cursor.at = cursor.at.copy()
    guessed = cursor.faults is not None and cursor.faults.of_guesses
    most_blocks = _MAX_NOTED if guessed else _MAX_BLOCKS if cursor.faults is None else _MAX_BLOCKS_BESIDE_FAULTS
    lanes, begins, ends = [datums[:0]], [cursor.at[:0]], [cursor.at[:0]]
    for _ in range(most_blocks):
        part = cursor.select(datums)
        counts, sizes = _block(node, part)
        if jump and (sizes > 0).any():
            part.at = part.at + sizes
            open_, counts = counts > 0, np.where(sizes > 0, 0, counts)
        else:
            open_ = counts > 0
        if counts.any():
            lane, begin, end = _items_of_block(item, part, counts, cost)
            lanes.append(datums[lane])
            begins.append(begin)
            ends.append(end)
        cursor.at[datums] = part.at
        datums = datums[open_]
        if not len(datums):
            break
    else:
        wrong = np.zeros(len(cursor), np.bool_)
        wrong[datums] = True
        cursor.refuse(wrong, node.path, f"has more than {most_blocks} blocks of items")
    lane = np.concatenate(lanes)
    order = np.argsort(lane, kind="stable")
    lane = lane[order]
    begin, end = np.concatenate(begins)[order], np.concatenate(ends)[order]
    inside = Cursor(
        stretch=cursor.stretch, at=begin, end=end, records=cursor.records[lane], source=cursor.source,
        faults=cursor.faults,
    )  # fmt: skip
    return lane, inside


def _block(node: Node, cursor: Cursor) -> tuple[Int64s, Int64s]:
    """Read the head of a block: its number of items, and its size in bytes, or 0 if not given, int64 (n,) each."""
    counts, sizes = cursor.longs(node.path), np.zeros(len(cursor), np.int64)
    if len(counts) and counts.min() < 0:
        places = np.flatnonzero(counts < 0)
        part = cursor.select(places)
        sizes[places] = part.lengths(node.path)
        cursor.at[places] = part.at
        counts = np.abs(counts)
    room = (cursor.end - cursor.at) // node.children[0].least
    wrong = (counts < 0) | (counts > room)
    if cursor.faults is not None and cursor.faults.of_guesses:
        wrong |= counts > _MAX_NOTED  # limits the work of a wrong guess
    if wrong.any():
        cursor.refuse(wrong, node.path, "has more items than bytes for them")
        counts[wrong] = 0
    return counts, sizes


def _items_of_block(item: Node, cursor: Cursor, counts: Int64s, cost: int) -> tuple[Int64s, Int64s, Int64s]:
    """Skip `counts` items of each datum; return the datum, start and end of each item, int64 (items,) each."""
    if item.size is not None:
        lane = np.repeat(np.arange(len(counts)), counts)
        nth = np.arange(len(lane)) - np.repeat(np.cumsum(counts) - counts, counts)
        begin = cursor.at[lane] + nth * item.size
        cursor.move(cursor.at + counts * item.size, item.path)
        return lane, begin, begin + item.size
    lanes, begins, ends = [counts[:0]], [counts[:0]], [counts[:0]]
    alive, part = np.flatnonzero(counts), cursor.select(np.flatnonzero(counts))
    guessed = cursor.faults is not None and cursor.faults.of_guesses
    last = int(counts.max(initial=0)) if guessed else _last_step(counts, cost)
    for done in range(1, last + 1):
        lanes.append(alive)
        begins.append(part.at)
        skip(item, part)
        ends.append(part.at)
        if not (more := counts[alive] > done).all():
            cursor.at[alive] = part.at
            alive, part = alive[more], part.select(np.flatnonzero(more))
    for place, datum in enumerate(alive):
        places = item_places(item, part.select(np.array([place])), int(counts[datum]) - last)
        lanes.append(np.full(len(places) - 1, datum))
        begins.append(places[:-1])
        ends.append(places[1:])
        cursor.at[datum] = places[-1]
    lane = np.concatenate(lanes)
    order = np.argsort(lane, kind="stable")
    return lane[order], np.concatenate(begins)[order], np.concatenate(ends)[order]


def _last_step(counts: Int64s, cost: int) -> int:
    """Return the number of items to skip in all datums at once; longer arrays are then followed as chains."""
    steps = np.unique(np.append(counts, 0))
    left = len(counts) - np.searchsorted(np.sort(counts), steps, "right")
    return int(steps[np.argmin(steps + cost * left)])


def item_places(item: Node, cursor: Cursor, count: int) -> Int64s:
    """Find the positions of `count` items that lie end to end, and the end of the last one.

    Args:
        item: their type.
        cursor: over one datum, at the first item.
        count: at least 1.

    Returns:
        int64 (count + 1,); fewer if the cursor collects faults and the datum is one.

    Raises:
        CorruptFileError: an item is not of that type, or exceeds the datum.
    """
    step, stop = _steps(item, cursor), int(cursor.end[0])
    found = follow(step, int(cursor.at[0]), stop, count)
    singly = 1
    while len(found) <= count:  # a corrupt item, which the next step reports, or a count above the limit of guesses
        walked = [found]
        for _ in range(min(singly, count + 1 - len(found))):
            cursor.at = walked[-1][-1:].copy()
            skip(item, cursor)
            if cursor.faults is not None and cursor.faults.found[cursor.records[0]]:
                return np.concatenate(walked)
            walked.append(cursor.at)
        found, singly = np.concatenate(walked), 2 * singly
        found = np.append(found, follow(step, int(found[-1]), stop, count + 1 - len(found))[1:])
    return found


def _steps(item: Node, cursor: Cursor) -> Step:
    def step(at: Int64s) -> Int64s:
        faults = Faults(np.zeros(len(at), np.bool_))
        end = np.full(len(at), cursor.end[0])
        guesses = Cursor(
            stretch=cursor.stretch, at=at, end=end, records=np.arange(len(at)), source=cursor.source, faults=faults
        )
        skip(item, guesses)
        return np.where(faults.found, -1, guesses.at)

    return step
