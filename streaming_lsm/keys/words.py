"""Sort record keys by their unsigned UTF-8 bytes (docs/format/03-native-logs.md, "Sort order").

A *word* is 8 bytes of a key as a big-endian number; a key is a sequence of words, padded with zeros. Keys with equal
words differ at most in length, so the length is compared as the last word. *Tied* rows are equal in all words that have
been compared so far.

The sort packs the bits in which keys differ, starting at the first word, and the row number into one integer per row,
and sorts these integers: bits that all keys share are left out, rows of one key stay in row order, and one pass sorts
most keys. Rows that are still tied are sorted by their next bits in another pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, UInt8s, pc, text_bytes

Rows = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_WORD = 8
_BITS = 64
_ALL = (1 << _BITS) - 1
_FEW_BITS = 8
_MANY_WORDS = 32
_DENSE = 3
_BLOCK = 32768
_KEPT = np.array([(1 << _BITS) - (1 << _BITS - _WORD * kept) for kept in range(_WORD + 1)], np.uint64)


@dataclass(frozen=True)
class KeyWords:
    """Array of keys with access to each of their words.

    Attributes:
        texts: the keys; no nulls.
    """

    texts: pa.StringArray

    @staticmethod
    def of(keys: pa.StringArray) -> KeyWords:
        """Wrap `keys`, which must not have nulls."""
        return KeyWords(keys)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def count(self) -> int:
        """Number of words of the longest key."""
        return -(-int(self.lengths.max(initial=0)) // _WORD)

    @cached_property
    def same_length(self) -> bool:
        """Whether all keys have the same number of bytes."""
        return len(self) == 0 or int(self.lengths.min()) == int(self.lengths.max())

    @cached_property
    def lengths(self) -> Rows:
        """Number of bytes of each key, int64 (rows,)."""
        return np.diff(self._text[0])

    @cached_property
    def _text(self) -> tuple[Rows, UInt8s]:
        """Offsets of the keys, and their bytes, padded to at least one word."""
        offsets, data = text_bytes(self.texts)
        return offsets, data if len(data) >= _WORD else np.append(data, np.zeros(_WORD, np.uint8))

    def word(self, number: int, rows: Rows | None = None) -> Words:
        """Return word `number` of the given rows, by default of all rows, uint64."""
        if rows is not None and len(rows) * _DENSE > len(self):
            return self.word(number)[rows]  # one sequential scan and one gather are faster than random access
        word = np.empty(len(self) if rows is None else len(rows), np.uint64)
        fill = self._fill_same_length if self.same_length and self.lengths[0] >= _WORD else self._fill
        for begin in range(0, len(word), _BLOCK):  # temporary arrays stay in the CPU cache
            block = slice(begin, begin + _BLOCK)
            fill(number, block if rows is None else rows[block], word[block])
        return word

    def _fill_same_length(self, number: int, rows: Rows | slice, word: Words) -> None:
        """Fill `word` like `_fill`, for keys of equal length of at least one word."""
        width = int(self.lengths[0])
        begin = min(number * _WORD, width - _WORD)
        column: Words = np.ndarray(len(self), ">u8", self._text[1], begin, (width,))
        word[:] = column[rows]
        if begin < number * _WORD:
            word <<= np.uint64(_WORD * (number * _WORD - begin))

    def _fill(self, number: int, rows: Rows | slice, word: Words) -> None:
        """Fill `word` with word `number` of the rows."""
        offsets, data = self._text
        windows: Words = np.ndarray(len(data) - _WORD + 1, ">u8", data, strides=(1,))
        begins = offsets[:-1][rows] + number * _WORD
        beyond = begins[-1] >= len(windows) if isinstance(rows, slice) else begins.max() >= len(windows)
        word[:] = windows[np.minimum(begins, len(windows) - 1) if beyond else begins]
        if beyond:
            late = np.flatnonzero(begins >= len(windows))
            word[late] <<= (np.minimum(begins[late] - len(windows) + 1, _WORD - 1) * _WORD).astype(np.uint64)
        kept = self.lengths[rows] - number * _WORD
        if kept.min() < _WORD:
            word &= _KEPT[np.maximum(np.minimum(kept, _WORD), 0)]


@dataclass(frozen=True)
class SortedKeys:
    """Sorted order of an array of keys.

    Attributes:
        order: int64, row numbers by ascending key; rows of one key by the tie breakers, then by row number.
        starts: int64, positions in `order` at which a new key begins.
    """

    order: Rows
    starts: Rows


def sort_keys(keys: KeyWords, ties: Sequence[npt.NDArray[np.generic]] = (), *, runs: bool = False) -> SortedKeys:
    """Sort keys by their bytes.

    Args:
        keys: the keys.
        ties: tie breakers, arrays that order the rows of one key, the most significant first.
        runs: whether the rows are a few concatenated sorted runs, or one run has most of the rows: a sort that
            detects runs is faster then.
    """
    order = np.arange(len(keys), dtype=np.int64)
    differs = _ascending(keys.texts)
    if differs is not None and differs.all():
        order.setflags(write=False)  # the array is returned twice
        return SortedKeys(order, order)
    if differs is None:
        differs = np.zeros(len(keys), np.bool_)
        differs[0] = True
        _sort(keys, order, differs, runs=runs)
    if ties:
        _order_ties(order, differs, ties)
    return SortedKeys(order, np.flatnonzero(differs))


def _ascending(texts: pa.StringArray) -> Flags | None:
    """Flag the keys that differ from the key before, if all keys ascend; return None if they do not."""
    differs = np.ones(len(texts), np.bool_)
    for begin in range(0, len(texts) - 1, _BLOCK):
        earlier, later = (texts.slice(begin + step, min(_BLOCK, len(texts) - 1 - begin)) for step in (0, 1))
        greater = pc.greater(later, earlier)
        if pc.all(greater).as_py():
            continue
        if pc.any(pc.less(later, earlier)).as_py():
            return None
        differs[begin + 1 : begin + 1 + len(later)] = greater.to_numpy(zero_copy_only=False)
    return differs


def _sort(keys: KeyWords, order: Rows, differs: Flags, *, runs: bool) -> None:
    """Sort `order` in place, and flag in `differs` where a new key begins.

    Each pass sorts the tied rows by their group of ties, as many of their next bits as fit, and their position; the
    position keeps the sort stable.
    """
    bits, begins = _KeyBits(keys), differs.copy()
    positions: Rows | None = None
    while True:
        rows = None if positions is None else order[positions]
        place_bits = (len(begins) - 1).bit_length()
        packed = bits.next(rows, begins, _BITS - place_bits)
        if packed is None:
            return
        packed <<= np.uint64(place_bits)
        packed |= np.arange(len(begins), dtype=np.uint64)
        packed.sort(kind="stable" if runs and rows is None else "quicksort")
        place = (packed & np.uint64((1 << place_bits) - 1)).view(np.int64)
        packed >>= np.uint64(place_bits)
        np.logical_or(begins[1:], packed[1:] != packed[:-1], out=begins[1:])
        if positions is None or rows is None:
            order[:], differs[:] = place, begins
            positions = _tied(begins)
        else:
            order[positions], differs[positions] = rows[place], begins
            positions = positions[_tied(begins)]
        positions = _undecided(keys, bits, order, differs, positions)
        if len(positions) == 0:
            return
        begins = differs[positions]


class _KeyBits:
    """Iterator over the distinguishing bits of keys, from the first word to the last, then of the length."""

    def __init__(self, keys: KeyWords) -> None:
        self._keys = keys
        self._number = 0
        self._unread = _ALL
        self._end = keys.count + (not keys.same_length)
        self._begun: Words | None = None

    @property
    def words_left(self) -> int:
        """Number of words of the longest key that have not been consumed."""
        return self._keys.count - self._number

    def next(self, rows: Rows | None, begins: Flags, room: int) -> Words | None:
        """Return the group of each row in the high bits, its next distinguishing bits, at most `room`, in the low bits.

        Args:
            rows: the rows to read, adjacent by group; None for all rows in order, as one group.
            begins: flags of the rows at which a group begins.

        Returns:
            uint64 (rows,); None if no two rows of a group differ in the remaining bits.
        """
        groups = int(np.count_nonzero(begins))
        head = np.zeros(len(begins), np.uint64) if groups == 1 else np.cumsum(begins).astype(np.uint64) - np.uint64(1)
        room -= (groups - 1).bit_length()
        taken = 0
        # Reading another word for the last few bits does not pay off; but each pass must consume some bits.
        while self._number < self._end and (room >= _FEW_BITS or not taken):
            word = self._word(rows)
            varying = _varying(word, begins) & self._unread
            chosen = _highest_bits(varying, room)
            if chosen:
                taken += chosen.bit_count()
                room -= chosen.bit_count()
                _append_bits(head, word, chosen)
            self._advance(varying, chosen)
            self._begun = word if rows is None and self._unread != _ALL else None
        return head if taken else None

    def _word(self, rows: Rows | None) -> Words:
        if self._begun is not None and rows is not None:
            return self._begun[rows]
        if self._number < self._keys.count:
            return self._keys.word(self._number, rows)
        lengths = self._keys.lengths if rows is None else self._keys.lengths[rows]
        return lengths.astype(np.uint64)

    def _advance(self, varying: int, chosen: int) -> None:
        if chosen != varying:
            self._unread = (chosen & -chosen) - 1
            return
        self._unread = _ALL
        self._number += 1
        if self._number == 1 and not varying and not self._keys.same_length:
            self._number = max(1, _shared_prefix(self._keys.texts) // _WORD)


def _varying(word: Words, begins: Flags) -> int:
    """Compute the mask of the bits in which any row differs from the row before it in its group."""
    varying = 0
    for begin in range(1, len(word), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        changes = word[block] ^ word[begin - 1 : begin - 1 + len(word[block])]
        changes[begins[block]] = 0
        varying |= int(np.bitwise_or.reduce(changes))
    return varying


def _highest_bits(mask: int, count: int) -> int:
    """Return the `count` highest set bits of `mask`."""
    while mask.bit_count() > count:
        mask &= mask - 1
    return mask


def _append_bits(head: Words, word: Words, mask: int) -> None:
    """Shift `head` to the left and append the bits of `word` that are set in `mask`, compressed without gaps.

    Gaps are closed in steps of 1, 2, 4 ... positions, each for all bits that move that far
    (Warren, Hacker's Delight, Generalized Extract).
    """
    steps = list(_closing_steps(mask))
    for begin in range(0, len(word), _BLOCK):
        bits = word[begin : begin + _BLOCK] & np.uint64(mask)
        moving = np.empty_like(bits)
        for moves, places in steps:
            np.bitwise_and(bits, moves, out=moving)
            bits ^= moving
            moving >>= places
            bits |= moving
        block = head[begin : begin + _BLOCK]
        block <<= np.uint64(mask.bit_count())
        block |= bits


def _closing_steps(mask: int) -> Iterator[tuple[np.uint64, np.uint64]]:
    """Yield the steps of the compression: the mask of the bits that move right, and by how many positions."""
    gaps = ~mask << 1 & _ALL
    for step in range(6):
        odd = gaps
        for distance in (1, 2, 4, 8, 16, 32):
            odd ^= odd << distance & _ALL
        moves = odd & mask
        if moves:
            yield np.uint64(moves), np.uint64(1 << step)
        mask = mask ^ moves | moves >> (1 << step)
        gaps &= ~odd


def _shared_prefix(texts: pa.StringArray) -> int:
    """Return the length in bytes of the common prefix of all texts."""
    extremes = pc.min_max(texts)
    smallest, largest = (str(extremes[end].as_py()).encode() for end in ("min", "max"))
    pairs = enumerate(zip(smallest, largest, strict=False))
    return next((place for place, (one, other) in pairs if one != other), len(smallest))


def _tied(differs: Flags) -> Rows:
    """Return the positions that are tied with a neighbour."""
    alone = differs.copy()
    alone[:-1] &= differs[1:]
    return np.flatnonzero(~alone)


def _undecided(keys: KeyWords, bits: _KeyBits, order: Rows, differs: Flags, positions: Rows) -> Rows:
    """Drop groups of equal keys from the tied positions, if comparing whole texts is cheaper than further words."""
    if len(positions) == 0 or bits.words_left <= _MANY_WORDS:
        return positions
    begins = differs[positions]
    texts = keys.texts.take(pa.array(order[positions], pa.int64()))
    unequal = ~np.asarray(pc.equal(texts[1:], texts[:-1])) & ~begins[1:]
    group = np.cumsum(begins) - 1
    open_groups = np.zeros(group[-1] + 1, np.bool_)
    open_groups[group[1:][unequal]] = True
    undecided: Rows = positions[open_groups[group]]
    return undecided


def _order_ties(order: Rows, differs: Flags, ties: Sequence[npt.NDArray[np.generic]]) -> None:
    positions = _tied(differs)
    rows = order[positions]
    group = np.cumsum(differs)[positions]
    order[positions] = rows[np.lexsort((rows, *(tie[rows] for tie in reversed(ties)), group))]
