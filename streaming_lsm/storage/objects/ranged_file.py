"""Read ranges of an object as a file.

Opening fetches the last bytes, in which Parquet has its footer, and learns the size: a small object is there as a whole
after one request. Other ranges are fetched when they are read; short ones in *blocks* of which the last few are kept.
"""

from __future__ import annotations

import io
from collections import OrderedDict

import obstore
from obstore.exceptions import NotSupportedError

from streaming_lsm.errors import StorageError
from streaming_lsm.storage.objects.connection import Connection
from streaming_lsm.storage.objects.failures import STORE_ERRORS, failure

TAIL_BYTES = 256 << 10
BLOCK_BYTES = 1 << 20
ALONE_BYTES = 128 << 10
"""Longer ranges are fetched as they are: Arrow reads each column of a large file in pieces that it buffers itself."""
_BLOCKS = 8


def _has_no_suffix(error: BaseException) -> bool:
    """Return whether a store refuses to read the last bytes of an object: Azure of any, S3 of an empty one."""
    return isinstance(error, NotSupportedError) or "range" in str(error).partition("\n")[0].lower()


class RangedFile(io.RawIOBase):
    """Read an object at any position; an object that was replaced since it was opened is an error."""

    def __init__(self, connection: Connection, key: str, uri: str) -> None:
        """Open an object.

        Args:
            connection: clients of its container.
            key: its key.
            uri: its URI, for errors.

        Raises:
            FileNotFoundError: there is no such object.
        """
        super().__init__()
        self._connection, self._key, self._uri = connection, key, uri
        self._position = 0
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        try:
            self._tail, self._size, self._e_tag = self._open()
        except STORE_ERRORS as error:
            raise failure(uri, error) from None

    def _open(self) -> tuple[bytes, int, str | None]:
        try:
            answer = obstore.get(self._connection.store, self._key, options={"range": {"suffix": TAIL_BYTES}})
            return bytes(answer.bytes()), answer.meta["size"], answer.meta["e_tag"]
        except STORE_ERRORS as error:
            if not _has_no_suffix(error):
                raise
        meta = obstore.head(self._connection.store, self._key)
        self._size, self._e_tag = meta["size"], meta["e_tag"]
        count = min(self._size, TAIL_BYTES)
        return self._fetch(self._size - count, count) if count else b"", self._size, self._e_tag

    @property
    def whole(self) -> bytes | None:
        """The content of an object that was fetched as a whole; else None."""
        return self._tail if len(self._tail) == self._size else None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        """Return the size in bytes."""
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"{self._uri}: position {base + offset} is before the first byte")
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        rest = max(0, self._size - self._position)
        count = rest if size is None or size < 0 else min(size, rest)
        data = self._range(self._position, count) if count else b""
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def _range(self, start: int, count: int) -> bytes:
        tail = self._size - len(self._tail)
        if start >= tail:
            return self._tail[start - tail : start - tail + count]
        if count > ALONE_BYTES:
            return self._fetch(start, count)
        first, last = start // BLOCK_BYTES, (start + count - 1) // BLOCK_BYTES
        data = b"".join(self._block(number) for number in range(first, last + 1))
        begin = start - first * BLOCK_BYTES
        return data[begin : begin + count]

    def _block(self, number: int) -> bytes:
        found = self._blocks.pop(number, None)
        if found is None:
            start = number * BLOCK_BYTES
            found = self._fetch(start, min(BLOCK_BYTES, self._size - start))
        self._blocks[number] = found
        if len(self._blocks) > _BLOCKS:
            self._blocks.popitem(last=False)
        return found

    def _fetch(self, start: int, count: int) -> bytes:
        try:
            answer = obstore.get(self._connection.store, self._key, options={"range": (start, start + count)})
            data, e_tag = bytes(answer.bytes()), answer.meta["e_tag"]
        except STORE_ERRORS as error:
            raise failure(self._uri, error) from None
        if e_tag != self._e_tag or len(data) != count:
            raise StorageError(f"{self._uri}: the object was replaced while it was read: read again")
        return data
