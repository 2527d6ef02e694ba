"""Read many Avro datums at once with one cursor.

A *datum* is the Avro encoding of one record. A *cursor* has one position per datum; each read decodes the next value of
all datums and advances all positions. Every range is checked against the end of its datum before it is read, so work
and memory are bounded by the number of bytes.
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


@dataclass(frozen=True, slots=True)
class Faults:
    """Collects the datums that do not match the schema, so that the others can be read with them.

    Attributes:
        found: whether a datum does not match, bool by record.
        reasons: path and reason of the first mismatch, by record; None for guesses at positions, whose work is limited.
    """

    found: Flags
    reasons: dict[int, tuple[str, str]] | None = None

    @property
    def of_guesses(self) -> bool:
        """Whether positions are guessed."""
        return self.reasons is None

    def add(self, records: Int64s, path: str, why: str) -> None:
        """Add the mismatch of `records`, int64 (n,); the first one of a record is kept."""
        if self.reasons is not None:
            for record in np.unique(records[~self.found[records]]).tolist():
                self.reasons[record] = (path, why)
        self.found[records] = True


@dataclass(slots=True)
class Cursor:
    """Read positions in n datums, or in values inside datums.

    Attributes:
        stretch: the bytes.
        at: position of the next byte, int64 (n,).
        end: end of the datum of each position, int64 (n,).
        records: index of the datum of each position, int64 (n,).
        source: the file, for messages.
        faults: gets the corrupt datums; None: corrupt bytes raise an error.
    """

    stretch: Stretch
    at: Int64s
    end: Int64s
    records: Int64s
    source: str
    faults: Faults | None = None

    def __len__(self) -> int:
        return len(self.at)

    def select(self, places: Int64s) -> Cursor:
        """Return an independent cursor over some of the datums."""
        at, end, records = self.at[places], self.end[places], self.records[places]
        return Cursor(stretch=self.stretch, at=at, end=end, records=records, source=self.source, faults=self.faults)

    def refuse(self, wrong: Flags, path: str, why: str) -> None:
        """Report the values at `wrong`, bool (n,), with at least one True, as corrupt.

        Raises:
            CorruptFileError: unless there are `faults`, which get them instead.
        """
        if self.faults is None:
            record = int(self.records[np.argmax(wrong)])
            raise CorruptFileError(f"{self.source}: column {path!r} of record {record} {why}; restore the file")
        self.faults.add(self.records[wrong], path, why)

    def move(self, to: Int64s, path: str) -> None:
        """Advance to the positions `to`, int64 (n,), none of which is before the current one.

        Raises:
            CorruptFileError: a position is past the end of its datum.
        """
        past = to > self.end
        if past.any():
            self.refuse(past, path, "reaches past the record's end")
            to = np.minimum(to, self.end)
        self.at = to

    def byte(self, path: str) -> UInt8s:
        """Read the next byte of each datum, uint8 (n,)."""
        found = self.stretch.data[self.at]
        self.move(self.at + 1, path)
        return found

    def branches(self, union: Node) -> UInt8s:
        """Read the index of a union branch of each datum, uint8 (n,)."""
        found = self.byte(union.path)
        if len(found) and ((found & 1).any() or found.max() >= 2 * len(union.children)):
            wrong = ((found & 1) != 0) | (found >= 2 * len(union.children))
            self.refuse(wrong, union.path, f"has a branch index beyond the {len(union.children)} types of its union")
            found[wrong] = 0
        found >>= 1
        return found

    def longs(self, path: str) -> Int64s:
        """Read the next long of each datum, int64 (n,)."""
        values, to, wrong = read_varints(self.stretch, self.at)
        if wrong is not None:
            self.refuse(wrong, path, "has a number of more than 64 bits")
        self.move(to, path)
        return values

    def ints(self, path: str) -> Int64s:
        """Read the next int of each datum, int64 (n,)."""
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
        """Read the next length in bytes of each datum, int64 (n,), checked against the end of the datum."""
        found = self.longs(path)
        wrong = found.view(np.uint64) > (self.end - self.at).view(
            np.uint64
        )  # as unsigned, a negative length is a large one
        if wrong.any():
            self.refuse(wrong, path, "has a length that is negative or past the record's end")
            found[wrong] = 0
        return found
