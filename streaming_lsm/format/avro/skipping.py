"""Skip Avro values without decoding them, and find the items of arrays and maps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from streaming_lsm.arrow.columns import Int64s
from streaming_lsm.format.avro.cursor import Cursor, Faults
from streaming_lsm.format.avro.item_chains import follow
from streaming_lsm.format.avro.schema_tree import Node
from streaming_lsm.format.avro.walking import Misstep, Walker

# Following the chain of one datum's items costs about as much as skipping this many items in all datums.
_CHAIN_COST = 8
# Below so many datums walking through each costs less than steps through all of them.
_FEW = 32
_ROUNDS = 16
_MAX_NOTED = 16
# A step of a chain takes as long as a walk over about so many items.
_STEP_COST = 64
_FEWEST_STEPS = 128


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
        chain: whether nested items are known to be few, so that items are found as those of a chain.

    Returns:
        index of the cursor's datum for each item, int64 (items,), ascending; a cursor over the items in that order,
        each with its own end.

    Raises:
        CorruptFileError: an item is not of the node's type, or exceeds its datum.
    """
    datums = np.arange(len(cursor))
    cursor.at = cursor.at.copy()
    lanes, begins, ends = [datums[:0]], [cursor.at[:0]], [cursor.at[:0]]
    rounds = 0
    while len(datums) and (rounds < _ROUNDS or (len(datums) >= _FEW and not _guesses(cursor))):
        part = cursor.select(datums)
        counts, sizes = _block(node, part)
        if jump and (sizes > 0).any():
            part.at = part.at + sizes
            open_, counts = counts > 0, np.where(sizes > 0, 0, counts)
        else:
            open_ = counts > 0
        if counts.any():
            lane, begin, end = _items_of_block(node.children[0], part, counts, chain=chain)
            lanes.append(datums[lane])
            begins.append(begin)
            ends.append(end)
        cursor.at[datums] = part.at
        datums = datums[open_]
        rounds += 1
    if _guesses(cursor) and len(datums):
        wrong = np.zeros(len(cursor), np.bool_)
        wrong[datums] = True
        cursor.refuse(wrong, node.path, f"has more than {_ROUNDS} blocks of items")
        datums = datums[:0]
    for datum in datums.tolist():
        walker = Walker(cursor.stretch.data, int(cursor.at[datum]), int(cursor.end[datum]))
        with _reported(cursor, datum):
            walker.note_blocks(node, jump=jump)
        _note(walker, datum, cursor, lanes, begins, ends)
    lane = np.concatenate(lanes)
    order = np.argsort(lane, kind="stable")
    lane = lane[order]
    begin, end = np.concatenate(begins)[order], np.concatenate(ends)[order]
    inside = Cursor(
        stretch=cursor.stretch, at=begin, end=end, records=cursor.records[lane], source=cursor.source,
        faults=cursor.faults,
    )  # fmt: skip
    return lane, inside


def _guesses(cursor: Cursor) -> bool:
    return cursor.faults is not None and cursor.faults.of_guesses


@contextmanager
def _reported(cursor: Cursor, datum: int) -> Iterator[None]:
    """Report a misstep of a walk through a datum."""
    try:
        yield
    except Misstep as misstep:
        wrong = np.zeros(len(cursor), np.bool_)
        wrong[datum] = True
        cursor.refuse(wrong, misstep.path, misstep.why)


def _note(
    walker: Walker, datum: int, cursor: Cursor, lanes: list[Int64s], begins: list[Int64s], ends: list[Int64s]
) -> None:
    """Add the items that a walk through a datum found."""
    lanes.append(np.full(len(walker.begins), datum))
    begins.append(walker.begins)
    ends.append(walker.ends)
    cursor.at[datum] = walker.at


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
    if _guesses(cursor):
        wrong |= counts > _MAX_NOTED  # limits the work of a wrong guess
    if wrong.any():
        cursor.refuse(wrong, node.path, "has more items than bytes for them")
        counts[wrong] = 0
    return counts, sizes


def _items_of_block(item: Node, cursor: Cursor, counts: Int64s, *, chain: bool) -> tuple[Int64s, Int64s, Int64s]:
    """Skip `counts` items of each datum; return the datum, start and end of each item, int64 (items,) each."""
    if item.size is not None:
        lane = np.repeat(np.arange(len(counts)), counts)
        nth = np.arange(len(lane)) - np.repeat(np.cumsum(counts) - counts, counts)
        begin = cursor.at[lane] + nth * item.size
        cursor.move(cursor.at + counts * item.size, item.path)
        return lane, begin, begin + item.size
    lanes, begins, ends = [counts[:0]], [counts[:0]], [counts[:0]]
    alive, part = np.flatnonzero(counts), cursor.select(np.flatnonzero(counts))
    chain = chain or not item.repeats
    last = _last_step(counts) if chain else _last_step_of_many(counts)
    if _guesses(cursor):
        last = int(counts.max(initial=0))
    for done in range(1, last + 1):
        lanes.append(alive)
        begins.append(part.at)
        skip(item, part)
        ends.append(part.at)
        if not (more := counts[alive] > done).all():
            cursor.at[alive] = part.at
            alive, part = alive[more], part.select(np.flatnonzero(more))
    for place, datum in enumerate(alive.tolist()):
        left = int(counts[datum]) - last
        at, end = int(part.at[place]), int(cursor.end[datum])
        if chain:
            found = _chain(item, cursor, at, end, left)
            lanes.append(np.full(len(found) - 1, datum))
            begins.append(found[:-1])
            ends.append(found[1:])
            at, left = int(found[-1]), left + 1 - len(found)
        walker = Walker(cursor.stretch.data, at, end)
        with _reported(cursor, datum):
            walker.note_items(item, left)
        _note(walker, datum, cursor, lanes, begins, ends)
    lane = np.concatenate(lanes)
    order = np.argsort(lane, kind="stable")
    return lane[order], np.concatenate(begins)[order], np.concatenate(ends)[order]


def _last_step(counts: Int64s) -> int:
    """Return the number of items to skip in all datums at once; longer arrays are then followed as chains."""
    steps = np.unique(np.append(counts, 0))
    left = len(counts) - np.searchsorted(np.sort(counts), steps, "right")
    return int(steps[np.argmin(steps + _CHAIN_COST * left)])


def _last_step_of_many(counts: Int64s) -> int:
    """Return the number of items to skip while many datums have one; the longer arrays are then walked through."""
    return int(np.partition(counts, -_FEW)[-_FEW]) if len(counts) >= _FEW else 0


class _TooManySteps(Exception):
    """Reports a chain that takes more time to follow than a walk."""


def _chain(item: Node, cursor: Cursor, first: int, stop: int, count: int) -> Int64s:
    """Find the positions of items that lie end to end in one datum, from `first` to `stop`.

    Returns:
        int64, as from `follow`: fewer if an item is not valid, or if too few guesses lead to the right positions.
    """
    left = _FEWEST_STEPS + count // _STEP_COST

    def step(at: Int64s) -> Int64s:
        nonlocal left
        left -= 1
        if left < 0:
            raise _TooManySteps
        faults = Faults(np.zeros(len(at), np.bool_))
        end = np.full(len(at), stop)
        guesses = Cursor(
            stretch=cursor.stretch, at=at, end=end, records=np.arange(len(at)), source=cursor.source, faults=faults
        )
        skip(item, guesses)
        return np.where(faults.found, -1, guesses.at)

    try:
        return follow(step, first, stop, count)
    except _TooManySteps:
        return np.array([first])
