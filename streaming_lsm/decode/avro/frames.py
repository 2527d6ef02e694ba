"""Split messages into schema id and datum.

*Frame*: the five bytes before an Avro datum in a message: the magic byte 0 and the id of its schema, big-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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

    def __len__(self) -> int:
        return len(self.starts)

    def select(self, places: Int64s) -> Datums:
        """Return some of the datums."""
        return Datums(self.data, self.starts[places], self.ends[places])


@dataclass(frozen=True)
class Frames:
    """Holds messages split into frame and datum.

    Attributes:
        framed: whether a message has a frame, bool (n,).
        ids: id of the schema, int64 (n,); 0 without a frame.
        datums: the bytes behind each frame; where there is none, they are not defined.
    """

    framed: Flags
    ids: Int64s
    datums: Datums

    @classmethod
    def of(cls, messages: pa.BinaryArray) -> Frames:
        """Split messages, none of which is null."""
        _, ends, data = messages.buffers()
        assert ends is not None
        bounds = np.frombuffer(memoryview(ends), np.int32, len(messages) + 1, messages.offset * 4).astype(np.int64)
        every = np.zeros(0, np.uint8) if data is None else np.frombuffer(memoryview(data), np.uint8)
        begins, sizes = bounds[:-1], np.diff(bounds)
        framed: Flags = sizes >= FRAME_BYTES
        ids = np.zeros(len(messages), np.int64)
        if framed.any():
            head = np.where(framed, begins, begins[np.argmax(framed)])
            framed &= every[head] == MAGIC
            words: npt.NDArray[np.uint32] = np.ndarray((len(every) - 3,), ">u4", every, 0, (1,))  # item i: i to i + 3
            ids = np.where(framed, words[head + 1].astype(np.int64), 0)
        return cls(framed, ids, Datums(every, begins + FRAME_BYTES, bounds[1:]))

    def by_schema(self) -> Iterator[tuple[int, Int64s]]:
        """Yield the id of each schema, and the messages that have it, ascending."""
        for schema_id in np.unique(self.ids[self.framed]).tolist():
            yield schema_id, np.flatnonzero(self.framed & (self.ids == schema_id))


def frame_reason(message: bytes, what: str) -> str:
    """Return why a message has no frame; `what` is the part of the message."""
    if not message:
        return f"the {what} is empty"
    if message[0] != MAGIC:
        return f"the {what} begins with 0x{message[0]:02x}, not with the magic byte 0x00 of Avro with a schema registry"
    return f"the {what} has {len(message)} bytes, fewer than magic byte and schema id"
