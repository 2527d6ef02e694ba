"""Write an object of any size, which is visible as a whole or not at all.

A small object is put in one request, if it is absent. A larger one is a multipart upload: parts are sent while the
caller writes, and the upload is completed at the end. An upload whose writer fails is aborted; those of killed
processes are invisible, and are removed by a lifecycle rule of the bucket.
"""

from __future__ import annotations

import errno
import io
from contextlib import ExitStack
from typing import TYPE_CHECKING

import obstore

from streaming_lsm.storage.objects.conditional import ConditionalObjects
from streaming_lsm.storage.objects.connection import Connection
from streaming_lsm.storage.objects.failures import STORE_ERRORS, failure

if TYPE_CHECKING:
    from types import TracebackType

    from _typeshed import ReadableBuffer
    from obstore import WritableFile

PART_BYTES = 8 << 20
_PARTS_AT_ONCE = 4


class Upload(io.RawIOBase):
    """Receive the content of one object; `finish` or `abort` ends it. A close by the caller ends nothing."""

    def __init__(self, connection: Connection, objects: ConditionalObjects, key: str, uri: str) -> None:
        super().__init__()
        self._connection, self._objects, self._key, self._uri = connection, objects, key, uri
        self._first = bytearray()
        self._count = 0
        self._ends = ExitStack()
        self._parts: WritableFile | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._count

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        if self._parts is None and self._count + len(view) <= PART_BYTES:
            self._first += view
        else:
            self._send(view)
        self._count += len(view)
        return len(view)

    def _send(self, view: memoryview) -> None:
        if self._parts is None:
            self._refuse_existing()
        try:
            if self._parts is None:
                self._parts = self._start()
                self._parts.write(bytes(self._first))
                self._first.clear()
            self._parts.write(bytes(view))
        except STORE_ERRORS as error:
            raise failure(self._uri, error) from None

    def _refuse_existing(self) -> None:
        # A multipart upload has no condition. The names of data files contain the attempt, and each has a marker that
        # was created if absent, so that no other task makes the same file.
        if self._objects.find_size(self._key) is not None:
            raise FileExistsError(errno.EEXIST, "the object exists", self._uri)

    def _start(self) -> WritableFile:
        store = self._connection.store
        parts = obstore.open_writer(store, self._key, buffer_size=PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
        self._ends.enter_context(parts)
        return parts

    def finish(self) -> None:
        """Make the object visible.

        Raises:
            FileExistsError: there is an object already; it was not changed.
        """
        if self._parts is None:
            self._objects.create(self._key, bytes(self._first))
            return
        try:
            self._ends.close()
        except STORE_ERRORS as error:
            raise failure(self._uri, error) from None

    def abort(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Drop what was sent; nothing becomes visible. A failure is passed over: the upload is invisible anyway."""
        try:
            self._ends.__exit__(kind, error, trace)
        except STORE_ERRORS:
            return
