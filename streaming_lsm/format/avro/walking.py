"""Skip the values of one Avro datum, one after the other.

A step of `skipping` skips one value of each datum, and costs the same for few datums as for many. Where few are left,
walking through their bytes is faster, and its cost grows with the bytes alone.
"""

from __future__ import annotations

from array import array

import numpy as np

from streaming_lsm.arrow.columns import Int64s, UInt8s
from streaming_lsm.format.avro.schema_tree import Node

_LONGEST = 10
_MORE = 0x80
_BITS = 64


class Misstep(Exception):
    """Reports bytes that do not follow the schema.

    Attributes:
        path: path of the value in the schema.
        why: what is wrong.
    """

    def __init__(self, path: str, why: str) -> None:
        """Report a value."""
        super().__init__(f"{path} {why}")
        self.path, self.why = path, why


class Walker:
    """Walks through one datum.

    Attributes:
        at: position of the next byte.
        begins: begin of each item that was noted.
        ends: end of each item that was noted.
    """

    def __init__(self, data: UInt8s, at: int, end: int) -> None:
        """Begin at a position.

        Args:
            data: the bytes, with at least `_LONGEST` more behind the datum.
            at: the position.
            end: end of the datum.
        """
        self._data, self._end = memoryview(data), end  # type: ignore[arg-type]  # arrays have buffers
        self.at = at
        self._begins, self._ends = array("q"), array("q")

    @property
    def begins(self) -> Int64s:
        """Begin of each noted item, int64."""
        return np.frombuffer(self._begins, np.int64) if self._begins else np.zeros(0, np.int64)

    @property
    def ends(self) -> Int64s:
        """End of each noted item, int64."""
        return np.frombuffer(self._ends, np.int64) if self._ends else np.zeros(0, np.int64)

    def note_items(self, item: Node, count: int) -> None:
        """Skip items, and note where they are.

        Raises:
            Misstep: an item is not of its type, or exceeds the datum.
        """
        for _ in range(count):
            begin = self.at
            self._skip(item)
            self._begins.append(begin)
            self._ends.append(self.at)

    def note_blocks(self, node: Node, *, jump: bool) -> None:
        """Skip the blocks of an array or map up to its end, and note where the items are.

        Args:
            node: the array or map.
            jump: whether blocks with a size in bytes may be skipped without noting their items.

        Raises:
            Misstep: an item is not of its type, or exceeds the datum.
        """
        item = node.children[0]
        while count := self._block(node, jump=jump):
            self.note_items(item, max(count, 0))

    def _skip(self, node: Node) -> None:
        if node.size is not None:
            self._move(self.at + node.size, node.path)
        elif node.kind == "record":
            for child in node.children:
                self._skip(child)
        elif node.kind == "union":
            self._skip(node.children[self._branch(node)])
        elif node.kind in ("array", "map"):
            item = node.children[0]
            while count := self._block(node, jump=True):
                for _ in range(count):
                    self._skip(item)
        elif node.kind in ("string", "bytes"):
            length = self._length(node.path)
            self.at += length
        else:
            self._long(node.path)

    def _move(self, to: int, path: str) -> None:
        if to > self._end:
            raise Misstep(path, "reaches past the record's end")
        self.at = to

    def _branch(self, node: Node) -> int:
        branch = self._data[self.at]
        self._move(self.at + 1, node.path)
        if branch & 1 or branch >= 2 * len(node.children):
            raise Misstep(node.path, f"has a branch index beyond the {len(node.children)} types of its union")
        return branch >> 1

    def _block(self, node: Node, *, jump: bool) -> int:
        """Read the head of a block; returns its number of items, -1 if it was jumped over."""
        count = self._long(node.path)
        if count < 0:
            size, count = self._length(node.path), -count
            if jump and size:
                self.at += size
                return -1
        if count > (self._end - self.at) // node.children[0].least:
            raise Misstep(node.path, "has more items than bytes for them")
        return count

    def _length(self, path: str) -> int:
        length = self._long(path)
        if not 0 <= length <= self._end - self.at:
            raise Misstep(path, "has a length that is negative or past the record's end")
        return length

    def _long(self, path: str) -> int:
        data, at = self._data, self.at
        value = data[at]
        if value >= _MORE:
            value &= _MORE - 1
            for place in range(1, _LONGEST):
                byte = data[at + place]
                value |= (byte & (_MORE - 1)) << (7 * place)
                if byte < _MORE:
                    at += place
                    break
            else:
                value = 1 << _BITS
            if value >> _BITS:
                raise Misstep(path, "has a number of more than 64 bits")
        self._move(at + 1, path)
        return (value >> 1) ^ -(value & 1)
