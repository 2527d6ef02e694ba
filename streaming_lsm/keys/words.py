"""Record keys as big-endian machine words, and the sort that works on them.

The order is that of the unsigned UTF-8 bytes (format 03, Sort order). A key becomes 8-byte words,
taken after the bytes that all keys share and padded with zeros; two keys whose words are all equal
differ at most in length, so the length decides last. Words are made when they are needed and only
for rows that are still tied, so no key is too long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.columns import text_bytes

Rows = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_WORD = 8
_LONGEST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class KeyWords:
    """Keys of one array, ready to give any of their words.

    Attributes:
        offsets: int64, where each key's distinguishing bytes begin in `windows`.
        lengths: int64, how many of them each key has.
        windows: every 8-byte window of the text, read as one big-endian number.
    """

    offsets: Rows
    lengths: Rows
    windows: npt.NDArray[np.uint64]

    @staticmethod
    def of(keys: pa.StringArray) -> KeyWords:
        """Words of `keys`, which must not hold nulls."""
        offsets, data = text_bytes(keys)
        text = np.zeros(len(data) + _WORD, np.uint8)
        text[:-_WORD] = data
        shared = _shared_prefix(keys)
        windows: npt.NDArray[np.uint64] = np.ndarray(len(text) - _WORD + 1, ">u8", text.data, strides=(1,))
        return KeyWords(offsets[:-1] + shared, np.diff(offsets) - shared, windows)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def count(self) -> int:
        """How many words the longest key has."""
        return -(-int(self.lengths.max(initial=0)) // _WORD)

    @property
    def same_length(self) -> bool:
        """Whether all keys have the same number of bytes."""
        return int(self.lengths.min(initial=_LONGEST)) == int(self.lengths.max(initial=0))

    def word(self, number: int, rows: Rows | None = None) -> Words:
        """Word `number` of the given rows (all when none are given), uint64."""
        offsets = self.offsets if rows is None else self.offsets[rows]
        lengths = self.lengths if rows is None else self.lengths[rows]
        missing = np.clip((number + 1) * _WORD - lengths, 0, _WORD).astype(np.uint64)
        at = np.minimum(offsets + number * _WORD, len(self.windows) - 1)
        word = self.windows[at].astype(np.uint64)
        bits = missing * np.uint64(8)
        kept = np.where(missing == _WORD, np.uint64(0), ~np.uint64(0) << (bits & np.uint64(63)))
        return word & kept


def _shared_prefix(keys: pa.StringArray) -> int:
    if len(keys) == 0:
        return 0
    extremes = pc.min_max(keys)
    smallest, largest = (str(extremes[end].as_py()).encode() for end in ("min", "max"))
    return _common_prefix(smallest, largest)


def _common_prefix(left: bytes, right: bytes) -> int:
    """How many bytes both begin with."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(left), len(right)))


@dataclass(frozen=True)
class SortedKeys:
    """The order of an array of keys.

    Attributes:
        order: int64, row numbers by ascending key; rows of one key by the tie breakers, then by row number.
        starts: int64, positions in `order` at which another key begins.
    """

    order: Rows
    starts: Rows


def sort_keys(keys: KeyWords, ties: Sequence[npt.NDArray[np.generic]] = (), *, runs: bool = False) -> SortedKeys:
    """Sort keys by their bytes.

    Args:
        keys: the keys.
        ties: arrays that order the rows of one key, the most significant first.
        runs: whether the rows are a few sorted runs one after the other, which a stable sort exploits.
    """
    if len(keys) == 0:
        return SortedKeys(np.zeros(0, np.int64), np.zeros(0, np.int64))
    word = keys.word(0)
    order = np.argsort(word, kind="stable" if runs else "quicksort")
    word = word[order]
    differs = np.empty(len(order), np.bool_)
    differs[0] = True
    np.not_equal(word[1:], word[:-1], out=differs[1:])
    for number in range(1, keys.count + (not keys.same_length)):
        positions = _tied(differs)
        if len(positions) == 0:
            break
        rows = order[positions]
        _split_ties(order, differs, positions, keys.word(number, rows) if number < keys.count else keys.lengths[rows])
    if ties or not runs:
        _order_ties(order, differs, ties)
    return SortedKeys(order, np.flatnonzero(differs))


def _tied(differs: npt.NDArray[np.bool_]) -> Rows:
    """Positions whose key equals that of a neighbour, as far as is known."""
    alone = differs.copy()
    alone[:-1] &= differs[1:]
    return np.flatnonzero(~alone)


def _split_ties(order: Rows, differs: npt.NDArray[np.bool_], positions: Rows, values: npt.NDArray[np.generic]) -> None:
    group = np.cumsum(differs)[positions]
    by_value = np.lexsort((values, group))
    order[positions] = order[positions][by_value]
    values = values[by_value]
    differs[positions[1:]] |= values[1:] != values[:-1]


def _order_ties(order: Rows, differs: npt.NDArray[np.bool_], ties: Sequence[npt.NDArray[np.generic]]) -> None:
    positions = _tied(differs)
    rows = order[positions]
    group = np.cumsum(differs)[positions]
    if ties:
        order[positions] = rows[np.lexsort((rows, *(tie[rows] for tie in reversed(ties)), group))]
    else:  # group and row fit one number, and sorting numbers is faster than sorting positions
        order[positions] = np.sort(group * len(order) + rows) % len(order)
