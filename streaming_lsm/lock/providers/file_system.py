"""Honour the lock file of Hudi's `FileSystemBasedLockProvider` (docs/format/06-services.md, "Concurrency").

Its default is the file of this package's lease, ``.hoodie/lock``: then the lease itself excludes Hudi, and there is no
second file (`SharedLockFile`). In another folder it is a file of its own (`FileSystemBasedLockProvider`).

Hudi deletes the file when it releases the lock, and once more when it closes the provider, right after that or after
it has waited in vain, whatever the file is by then. So a writer that has seen Hudi's file waits for a moment before it
creates its own, and verifies it before each decision.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from threading import Lock

from streaming_lsm.config import FILE_LOCK_EXPIRE
from streaming_lsm.errors import StorageError
from streaming_lsm.lock.lease import Renewal
from streaming_lsm.lock.owner import Owner
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.base import Storage

SETTLE_S = 0.05
"""Seconds between a deletion of Hudi's lock file and the next creation."""
_FILE = "lock"
_MAX_BYTES = 1 << 20
_STACK = "lockStacksInfo"


@dataclass(frozen=True, slots=True)
class SharedLockFile:
    """Say how the lease treats the lock file of another program that is in its place.

    Attributes:
        expire_ms: age in milliseconds at which the file is deleted; 0 for never.
    """

    expire_ms: int

    def delete_expired(self, storage: Storage, path: str, modified_ms: int, now_ms: int) -> bool:
        """Delete a lock file of another program that has expired; return whether this process deleted it.

        Args:
            modified_ms: when the file was modified, as it was seen.
        """
        if not self.expire_ms or now_ms - modified_ms <= self.expire_ms:
            return False
        return storage.delete_if_unmodified(path, modified_ms)


@dataclass(frozen=True, slots=True)
class _Content:
    """Encode and decode what a lock file of this package says, inside the JSON that Hudi writes.

    Attributes:
        table: URI of the table, as several tables can have one folder for their locks.
        owner: the transaction that holds the lock.
        number: counts its acquisitions, so that the content differs each time.
    """

    table: str
    owner: Owner
    number: int

    def encode(self, now_ms: int) -> bytes:
        created = datetime.fromtimestamp(now_ms / 1000).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        mine = {"table": self.table, "number": self.number, "owner": asdict(self.owner)}
        info = {"lockCreateTime": created, "lockThreadName": str(self.owner), _STACK: [json.dumps(mine)]}
        return json.dumps(info, indent=2, separators=(",", " : ")).encode()

    @classmethod
    def decode(cls, data: bytes) -> _Content | None:
        """Decode the file; None if another program wrote it."""
        try:
            fields = json.loads(json.loads(data)[_STACK][0])
            owner = Owner.decode(json.dumps(fields["owner"]).encode())
            return None if owner is None else cls(str(fields["table"]), owner, int(fields["number"]))
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            return None


class FileSystemBasedLockProvider:
    """Hold the file ``lock`` of a folder that is not the table's ``.hoodie``."""

    def __init__(self, folder: Storage, table: str, owner: Owner, expire_ms: int, runtime: Runtime) -> None:
        """Prepare the lock.

        Args:
            folder: the folder of the lock file.
            table: URI of the table.
            expire_ms: age in milliseconds at which a lock file of another program is deleted; 0 for never.
        """
        self._folder = folder
        self._table = table
        self._owner = owner
        self._shared = SharedLockFile(expire_ms)
        self._runtime = runtime
        self._number = 0
        self._content: bytes | None = None
        self._is_foreign = False
        self._holder = ""
        self._guard = Lock()

    def try_acquire(self) -> bool:
        """Create the lock file if it is absent, expired, or left by a dead writer of this package."""
        self._number += 1
        seen = self._look()
        leftover = seen.content if seen is not None and self._is_left(seen) else None
        if seen is not None and leftover is None and not self._delete_expired(seen):
            return False
        if seen is None and self._is_foreign:
            self._runtime.sleep(SETTLE_S)
        self._is_foreign = False
        # Kept before the call: the file may be created although the call fails.
        content = self._content = _Content(self._table, self._owner, self._number).encode(self._runtime.clock())
        if self._create(content, leftover):
            return True
        self._content = None
        self._holder = "another writer, which was faster"
        return False

    def is_held(self) -> bool:
        """Return whether the file is as this transaction created it."""
        with self._guard:
            return self._is_mine()

    def renew(self) -> None:
        """Set the file's modification time, so that Hudi does not take it for expired."""
        with self._guard:
            if self._content is not None and self._is_mine():
                self._folder.touch(_FILE)

    def release(self) -> None:
        """Delete the file if this transaction created it."""
        with self._guard:
            if self._content is not None:
                self._folder.delete_if_unchanged(_FILE, self._content, reused=True)
            self._content = None

    def holder(self) -> str:
        """Describe the holder."""
        return self._holder

    def _create(self, content: bytes, leftover: bytes | None) -> bool:
        if leftover is not None:
            return self._folder.replace_if_unchanged(_FILE, content, leftover)
        try:
            self._folder.put_if_absent(_FILE, content)
        except FileExistsError:
            return False
        return True

    def _is_mine(self) -> bool:
        try:
            return self._content is not None and self._folder.read(_FILE, _MAX_BYTES) == self._content
        except FileNotFoundError:
            return False

    def _look(self) -> Renewal | None:
        """Return the file as it is; None if there is none."""
        try:
            # The time is read first: a file that replaces this one in between has another, and is not deleted.
            entry = {entry.path: entry for entry in self._folder.list("")}.get(_FILE)
            if entry is None:
                return None
            if entry.is_dir or entry.special:
                raise StorageError(
                    f"{self._path} is no file, but the lock file has this name: remove it, or set another"
                )
            return Renewal(self._folder.read(_FILE, _MAX_BYTES), entry.modified_ms)
        except FileNotFoundError:
            return None

    def _is_left(self, seen: Renewal) -> bool:
        """Return whether a writer of this package left the file: one of this table would hold the lease otherwise."""
        content = _Content.decode(seen.content)
        self._is_foreign = content is None
        if content is None:
            age_s = (self._runtime.clock() - seen.modified_ms) / 1000
            self._holder = f"another program ({self._path}, modified {age_s:.0f} s ago; {FILE_LOCK_EXPIRE.key})"
            return False
        self._holder = f"{content.owner}, which writes {content.table} ({self._path})"
        return content.table == self._table or not self._runtime.is_writing(content.owner, self._path, seen)

    def _delete_expired(self, seen: Renewal) -> bool:
        if not self._is_foreign:
            return False
        now_ms = self._runtime.clock()
        return self._shared.delete_expired(self._folder, _FILE, seen.modified_ms, now_ms)

    @property
    def _path(self) -> str:
        return f"{self._folder.uri}/{_FILE}"
