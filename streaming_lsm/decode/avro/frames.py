"""Split messages into schema id and datum.

*Frame*: the five bytes before an Avro datum in a message: the magic byte 0 and the id of its schema, big-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, UInt8s

FRAME_BYTES = 5
MAGIC = 0
"""First byte of a frame."""


@dataclass(frozen=True)
class Datums:
    """Locates Avro datums of one schema.

    Attributes:
        data: bytes that they lie in.
        starts: start of each datum, int64 (n,).
        ends: end of each datum, int64 (n,).
    """

    data: UInt8s
    starts: Int64s
    ends: Int64s

    @classmethod
    def of(cls, messages: pa.BinaryArray) -> Datums:
        """Locate the datums behind the frames of messages, none of which is null."""
        _, offsets, data = messages.buffers()
        assert offsets is not None
        bounds = np.frombuffer(memoryview(offsets), np.int32, len(messages) + 1, messages.offset * 4).astype(np.int64)
        every = np.zeros(0, np.uint8) if data is None else np.frombuffer(memoryview(data), np.uint8)
        return cls(every, bounds[:-1] + FRAME_BYTES, bounds[1:])

    def __len__(self) -> int:
        return len(self.starts)

    def select(self, places: Int64s | slice) -> Datums:
        """Return some of the datums."""
        return Datums(self.data, self.starts[places], self.ends[places])


@dataclass(frozen=True)
class Frames:
    """Holds messages split into frame and datum.

    Attributes:
        framed: whether a message has a frame, bool (n,).
        ids: id of the schema, int64 (n,); 0 without a frame.
        messages: the messages.
    """

    framed: Flags
    ids: Int64s
    messages: pa.BinaryArray

    @classmethod
    def of(cls, messages: pa.BinaryArray) -> Frames:
        """Split messages, none of which is null."""
        datums = Datums.of(messages)
        every, begins = datums.data, datums.starts - FRAME_BYTES
        framed: Flags = datums.starts <= datums.ends
        ids = np.zeros(len(messages), np.int64)
        if framed.any():
            head = np.where(framed, begins, begins[np.argmax(framed)])
            framed &= every[head] == MAGIC
            words: npt.NDArray[np.uint32] = np.ndarray((len(every) - 3,), ">u4", every, 0, (1,))  # item i: i to i + 3
            ids = np.where(framed, words[head + 1].astype(np.int64), 0)
        return cls(framed, ids, messages)

    def by_schema(self) -> Iterator[tuple[int, Int64s, Datums]]:
        """Yield the id of each schema, the messages that have it, ascending, and their datums.

        Messages of several schemas are copied once, by schema: a reader copies the bytes from the first to the last of
        its datums.
        """
        order = np.flatnonzero(self.framed)
        ids = self.ids[order]
        if not len(ids) or (ids == ids[0]).all():
            datums = Datums.of(self.messages).select(order)
        else:
            by_id = np.argsort(ids, kind="stable")
            order, ids = order[by_id], ids[by_id]
            datums = Datums.of(self.messages.take(pa.array(order, pa.int64())))
        begins = np.flatnonzero(np.diff(ids, prepend=-1)).tolist()
        for begin, end in pairwise([*begins, len(ids)]):
            yield int(ids[begin]), order[begin:end], datums.select(slice(begin, end))


def frame_reason(message: bytes, what: str) -> str:
    """Return why a message has no frame; `what` is the part of the message."""
    if not message:
        return f"the {what} is empty"
    if message[0] != MAGIC:
        return f"the {what} begins with 0x{message[0]:02x}, not with the magic byte 0x00 of Avro with a schema registry"
    return f"the {what} has {len(message)} bytes, fewer than magic byte and schema id"
