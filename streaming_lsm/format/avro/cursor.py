"""Cursors over many Avro datums at once: one position per datum, moved on together, value by value.

Nothing is taken from bytes before it is known to lie inside the datum, so work and memory are bounded by the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streaming_lsm.arrow.columns import Flags, Int64s, UInt8s
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.avro.schema_tree import Node
from streaming_lsm.format.avro.varints import Stretch, read_varints

_INT_BYTES = 5
_INTS = np.iinfo(np.int32)


@dataclass(slots=True)
class Cursor:
    """Where n datums, or values inside them, are being read.

    Attributes:
        stretch: the bytes.
        at: the byte that is next, int64 (n,).
        end: where the datum that each belongs to ends, int64 (n,).
        records: which datum each belongs to, int64 (n,).
        source: the file, for messages.
        dead: None, and then corrupt bytes raise an error; or bool by `records`, where they are noted instead, for
            reading at places where possibly no value begins.
    """

    stretch: Stretch
    at: Int64s
    end: Int64s
    records: Int64s
    source: str
    dead: Flags | None = None

    def __len__(self) -> int:
        return len(self.at)

    def select(self, places: Int64s) -> Cursor:
        """A cursor over some of the datums, which moves on its own."""
        at, end, records = self.at[places], self.end[places], self.records[places]
        return Cursor(self.stretch, at, end, records, self.source, self.dead)

    def refuse(self, wrong: Flags, path: str, why: str) -> None:
        """Say that the values at `wrong`, bool (n,), some of them True, are corrupt.

        Raises:
            CorruptFileError: unless the cursor only notes it.
        """
        if self.dead is None:
            record = int(self.records[np.argmax(wrong)])
            raise CorruptFileError(f"{self.source}: column {path!r} of record {record} {why}; restore the file")
        self.dead[self.records[wrong]] = True

    def move(self, to: Int64s, path: str) -> None:
        """Go on at the bytes `to`, int64 (n,), which are none before the present ones.

        Raises:
            CorruptFileError: past the end of a datum.
        """
        past = to > self.end
        if past.any():
            self.refuse(past, path, "reaches past the record's end")
            to = np.minimum(to, self.end)
        self.at = to

    def byte(self, path: str) -> UInt8s:
        """The next byte of each, uint8 (n,)."""
        found = self.stretch.data[self.at]
        self.move(self.at + 1, path)
        return found

    def branches(self, union: Node) -> UInt8s:
        """Which branch of a union comes next, uint8 (n,)."""
        found = self.byte(union.path)
        if len(found) and ((found & 1).any() or found.max() >= 2 * len(union.children)):
            wrong = ((found & 1) != 0) | (found >= 2 * len(union.children))
            self.refuse(wrong, union.path, f"is of none of the {len(union.children)} types of its union")
            found[wrong] = 0
        found >>= 1
        return found

    def longs(self, path: str) -> Int64s:
        """The next number of each, int64 (n,)."""
        values, to, wrong = read_varints(self.stretch, self.at)
        if wrong is not None:
            self.refuse(wrong, path, "has a number of more than 64 bits")
        self.move(to, path)
        return values

    def ints(self, path: str) -> Int64s:
        """The next number of 32 bits of each, int64 (n,)."""
        before = self.at
        values = self.longs(path)
        if len(values) and (
            values.min() < _INTS.min or values.max() > _INTS.max or (self.at - before).max() > _INT_BYTES
        ):
            wrong = (values < _INTS.min) | (values > _INTS.max) | (self.at - before > _INT_BYTES)
            self.refuse(wrong, path, "has a number of more than 32 bits")
            values[wrong] = 0
        return values

    def lengths(self, path: str) -> Int64s:
        """The length that comes next, int64 (n,): of bytes that all lie inside the datum."""
        found = self.longs(path)
        wrong = found.view(np.uint64) > (self.end - self.at).view(np.uint64)  # a negative one is a large one
        if wrong.any():
            self.refuse(wrong, path, "has a length that is negative or past the record's end")
            found[wrong] = 0
        return found
