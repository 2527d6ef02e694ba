"""Create and replace single objects atomically, on the condition that they are absent or have not changed.

Each put has an id of its own, which the store keeps as metadata of the object. If the answer to a put is lost, or if
the client sent it twice and the second one met the first, the object is read: it is this put's if it has its id. So
neither equal content nor an empty object of another writer is taken for one's own.
"""

from __future__ import annotations

import errno
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import obstore

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.storage.objects.connection import Connection
from streaming_lsm.storage.objects.failures import CONFLICTS, STORE_ERRORS, failure
from streaming_lsm.storage.objects.tombstone import TOMBSTONE_BYTES, Tombstone

if TYPE_CHECKING:
    from obstore import PutMode, PutResult, UpdateVersion

_PUT_ID = "lsmput"
"""Key of the metadata; Azure takes names of programming languages only."""
_ATTEMPTS = 16
_KEPT, _KEPT_BYTES = 64, 4096


@dataclass(frozen=True, slots=True)
class Found:
    """Hold an object that was read.

    Attributes:
        data: its content.
        version: the store's identity of this content: a replacement with it fails if the object has changed.
        put_id: id of the put that made it; empty if another program did.
    """

    data: bytes
    version: UpdateVersion
    put_id: str

    @property
    def is_absent(self) -> bool:
        """Whether it is a tombstone."""
        return Tombstone.decode(self.data) is not None


class ConditionalObjects:
    """Create, replace and delete small objects of a container; each change is one request, if nobody interferes.

    The versions of small objects that were written here are kept, so that they are not read again before a change.
    """

    def __init__(self, connection: Connection, uri_of: Callable[[str], str]) -> None:
        """Use a container.

        Args:
            connection: its clients.
            uri_of: returns the URI of a key, for errors.
        """
        self._connection = connection
        self._uri_of = uri_of
        self._kept: OrderedDict[str, Found] = OrderedDict()
        self._tombstones: OrderedDict[str, str | None] = OrderedDict()
        self._guard = threading.Lock()

    def find(self, key: str, most: int | None = None) -> Found | None:
        """Read an object; return None if there is none.

        Args:
            key: its key.
            most: size limit in bytes; None for no limit.

        Raises:
            CorruptFileError: it is larger; it was not read.
        """
        try:
            answer = obstore.get(self._connection.store, key)
            size = answer.meta["size"]
            if most is not None and size > most:
                raise CorruptFileError(
                    f"{self._uri_of(key)}: {size} bytes, {most} at most are expected: restore the file from a copy"
                )
            data = bytes(answer.bytes())
            meta = answer.meta
        except STORE_ERRORS as error:
            found = failure(self._uri_of(key), error)
            if isinstance(found, FileNotFoundError):
                return None
            raise found from None
        version = _version(meta["e_tag"], meta["version"])
        return Found(data, version, answer.attributes.get(_PUT_ID, ""))

    def find_size(self, key: str) -> int | None:
        """Return the size of an object in bytes; None if there is none, or a tombstone."""
        try:
            size = obstore.head(self._connection.store, key)["size"]
        except STORE_ERRORS as error:
            found = failure(self._uri_of(key), error)
            if isinstance(found, FileNotFoundError):
                return None
            raise found from None
        return None if self.is_absent(key, size) else size

    def is_absent(self, key: str, size: int, e_tag: str | None = None) -> bool:
        """Return whether an object of a size is a tombstone, or was deleted.

        Args:
            key: its key.
            size: its size in bytes.
            e_tag: its version, by which it is remembered that it is a tombstone; listings would read it each time.
        """
        if size != TOMBSTONE_BYTES:
            return False
        if e_tag is not None and self._tombstones.get(key) == e_tag:
            return True
        found = self.find(key)
        if found is not None and found.is_absent:
            with self._guard:
                self._tombstones[key] = found.version.get("e_tag")
                if len(self._tombstones) > _KEPT:
                    self._tombstones.popitem(last=False)
        return found is None or found.is_absent

    def create(self, key: str, data: bytes) -> None:
        """Create an object if it is absent, or a vacant tombstone.

        Raises:
            FileExistsError: it exists, or is being deleted.
        """
        put_id = uuid.uuid4().hex
        kept = self._kept_of(key)
        if kept is not None and _is_vacant(kept) and self._replace(key, data, kept.version, put_id):
            return
        lost: Exception | None = None
        for _ in range(_ATTEMPTS):
            try:
                self._keep(key, data, put_id, self._put(key, data, "create", put_id))
                return
            except CONFLICTS:
                lost = None
            except STORE_ERRORS as error:
                lost = failure(self._uri_of(key), error)
                if not _may_have_effect(lost):
                    raise lost from None
            found = self.find(key)
            if found is None:
                continue
            if found.put_id == put_id:
                self._keep_found(key, found)
                return
            if not _is_vacant(found):
                self._keep_found(key, found)
                raise FileExistsError(errno.EEXIST, "the object exists", self._uri_of(key))
            if self._replace(key, data, found.version, put_id):
                return
        raise lost or self._unsettled(key)

    def replace(self, key: str, data: bytes, expected: bytes) -> bool:
        """Replace an object if its content is `expected`; return False if it differs or there is none."""
        return self._change(key, lambda found: data if found.data == expected else None)

    def renew(self, key: str) -> bool:
        """Write an object again with the content that it has; return False if there is none."""
        return self._change(key, lambda found: None if found.is_absent else found.data)

    def delete(self, key: str, expected: bytes, *, reused: bool) -> bytes | None:
        """Delete an object if its content is `expected`, by a tombstone (see `tombstone`).

        Returns:
            The tombstone, empty if the object was empty; None if the object differs or there is none.
        """
        if not expected:
            return b"" if self._delete_empty(key) else None
        tombstone = (Tombstone.VACANT if reused else Tombstone.DELETED).encode()
        if not self.replace(key, tombstone, expected):
            return None
        if not reused:
            self._forget(key)
            # Sent once: a repeated request could be executed later than the first one. If it fails, the tombstone
            # stays.
            with suppress(*STORE_ERRORS):
                obstore.delete(self._connection.once, key)
        return tombstone

    def overwrite(self, key: str, data: bytes) -> None:
        """Create or replace an object, whatever it contains."""
        put_id = uuid.uuid4().hex
        try:
            self._keep(key, data, put_id, self._put(key, data, "overwrite", put_id))
        except STORE_ERRORS as error:
            raise failure(self._uri_of(key), error) from None

    def remove(self, keys: list[str]) -> None:
        """Delete objects, whatever they contain; those that are missing are passed over."""
        for key in keys:
            self._forget(key)
        if keys and not self._remove(keys) and len(keys) > 1:
            # A store that takes one deletion at a time, as Google's, has stopped at the first that is missing.
            for key in keys:
                self._remove([key])

    def _remove(self, keys: list[str]) -> bool:
        """Delete objects; return False if one is missing."""
        try:
            obstore.delete(self._connection.store, keys if len(keys) > 1 else keys[0])
        except STORE_ERRORS as error:
            found = failure(self._uri_of(keys[0]), error)
            if not isinstance(found, FileNotFoundError):
                raise found from None
            return False
        return True

    def _change(self, key: str, new_of: Callable[[Found], bytes | None]) -> bool:
        """Replace an object by what a function makes of it; return False if that is None, or there is no object."""
        put_id = uuid.uuid4().hex
        found = self._kept_of(key)
        if found is None or new_of(found) is None:
            found = self.find(key)  # others may have changed what is kept
        for _ in range(_ATTEMPTS):
            new = None if found is None else new_of(found)
            if found is None or new is None:
                return False
            if self._replace(key, new, found.version, put_id):
                return True
            found = self.find(key)
        raise self._unsettled(key)

    def _replace(self, key: str, data: bytes, version: UpdateVersion, put_id: str) -> bool:
        """Replace a version; return False if the object has another one, or if that is not known."""
        lost: Exception | None = None
        for _ in range(2):
            try:
                self._keep(key, data, put_id, self._put(key, data, version, put_id))
                return True
            except (*CONFLICTS, FileNotFoundError):
                lost = None
            except STORE_ERRORS as error:
                lost = failure(self._uri_of(key), error)
                if not _may_have_effect(lost):
                    raise lost from None
            self._forget(key)
            found = self.find(key)
            if found is not None and found.put_id == put_id:
                self._keep_found(key, found)
                return True
            if found is None or found.version != version:
                return False
        if lost is not None:
            raise lost
        return False

    def _put(self, key: str, data: bytes, mode: PutMode, put_id: str) -> PutResult:
        store = self._connection.store
        return obstore.put(store, key, data, attributes={_PUT_ID: put_id}, mode=mode, use_multipart=False)

    def _delete_empty(self, key: str) -> bool:
        # Nothing with content is ever at this path, which a late deletion could take.
        found = self.find(key)
        if found is None or found.data:
            return False
        self.remove([key])
        return True

    def _unsettled(self, key: str) -> OSError:
        return OSError(errno.EAGAIN, "the object is changed by others all the time", self._uri_of(key))

    def _keep(self, key: str, data: bytes, put_id: str, result: PutResult) -> None:
        self._keep_found(key, Found(data, _version(result["e_tag"], result["version"]), put_id))

    def _keep_found(self, key: str, found: Found) -> None:
        self._forget(key)
        if len(found.data) <= _KEPT_BYTES and found.version:
            with self._guard:
                self._kept[key] = found
                if len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)

    def _kept_of(self, key: str) -> Found | None:
        with self._guard:
            return self._kept.get(key)

    def _forget(self, key: str) -> None:
        with self._guard:
            self._kept.pop(key, None)


def _version(e_tag: str | None, version: str | None) -> UpdateVersion:
    found: UpdateVersion = {}
    if e_tag is not None:
        found["e_tag"] = e_tag
    if version is not None:
        found["version"] = version
    return found


def _is_vacant(found: Found) -> bool:
    return Tombstone.decode(found.data) is Tombstone.VACANT


def _may_have_effect(error: Exception) -> bool:
    """Return whether a failed put may have taken effect: the store has not refused it."""
    return not isinstance(error, PermissionError | FileNotFoundError)
