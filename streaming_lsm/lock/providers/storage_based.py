"""Honour the lock object of Hudi's `StorageBasedLockProvider`, ``.hoodie/.locks/table_lock.json``.

The lock is a *lease* with an end by the clock, in JSON: ``expired``, ``validUntil`` in milliseconds since the epoch,
and ``owner``. Each change is conditional on the version that was read. A released lock stays, with ``expired``. This
package adds the transaction as ``writer``, and an *epoch*, which grows with each acquisition, so that no two have equal
content; Hudi ignores both.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from threading import Lock

from streaming_lsm.config import STORAGE_LOCK_RENEW, STORAGE_LOCK_VALIDITY, Options
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.lock.lease import Renewal, is_certainly_over
from streaming_lsm.lock.owner import Owner
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.base import Storage

LOCK_PATH = ".hoodie/.locks/table_lock.json"
_MAX_BYTES = 1 << 20
_DRIFT_MS = 500
"""Difference between clocks that Hudi expects."""
_WATCHES = 1.5
"""Intervals of renewal for which a lock that seems over is watched: the clock of its holder may be behind."""
_MARGIN = 0.1
"""Part of the validity before whose end a lock does not count as held any more."""


@dataclass(frozen=True, slots=True)
class LockData:
    """Content of the lock file.

    Attributes:
        expired: whether the lock was released.
        valid_until_ms: end of the lease unless it is renewed, milliseconds since the epoch.
        owner: identity of the holder.
        epoch: number of the acquisition among those of this package; 0 in files of Hudi.
        writer: the transaction of this package that holds the lock; None in files of Hudi.
    """

    expired: bool
    valid_until_ms: int
    owner: str
    epoch: int = 0
    writer: Owner | None = None

    def __str__(self) -> str:
        end = datetime.fromtimestamp(self.valid_until_ms / 1000, UTC).isoformat(timespec="milliseconds")
        return f"{self.writer or f'owner {self.owner!r} of another program'} ({LOCK_PATH}, valid until {end})"

    def encode(self) -> bytes:
        fields: dict[str, object] = {
            "expired": self.expired,
            "validUntil": self.valid_until_ms,
            "owner": self.owner,
            "epoch": self.epoch,
        }
        if self.writer is not None:
            fields["writer"] = asdict(self.writer)
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> LockData:
        """Decode the file; raises `CorruptFileError` if it is not of this form."""
        try:
            fields = json.loads(data)
            expired, until, owner, epoch = (fields.get(key) for key in ("expired", "validUntil", "owner", "epoch"))
            if type(expired) is bool and type(until) is int and isinstance(owner, str) and 0 <= until < 1 << 47:
                writer = Owner.decode(json.dumps(fields.get("writer")).encode())
                return cls(expired, until, owner, epoch if type(epoch) is int else 0, writer)
        except (ValueError, AttributeError, RecursionError):
            pass
        raise CorruptFileError(
            f"{path} is not the lock of a StorageBasedLockProvider ({data[:60]!r}): delete the file if no program that "
            "made it writes to the table, and retry"
        )


class StorageBasedLockProvider:
    """Hold the lease in ``.hoodie/.locks/table_lock.json``."""

    def __init__(self, storage: Storage, options: Options, owner: Owner, runtime: Runtime) -> None:
        """Prepare the lock."""
        self._storage = storage
        self._owner = owner
        self._runtime = runtime
        self._validity_ms = 1000 * options[STORAGE_LOCK_VALIDITY]
        self._watch_ms = _WATCHES * 1000 * options[STORAGE_LOCK_RENEW]
        self._epoch = 0
        self._data: LockData | None = None
        self._until_s = 0.0
        self._holder = ""
        self._guard = Lock()

    def try_acquire(self) -> bool:
        """Create or replace the lock file, if it is absent, expired, over, or left by a dead writer of this package."""
        content = self._read()
        found = None if content is None else LockData.decode(content, self._path)
        if content is not None and found is not None and not self._is_free(found, content):
            self._holder = str(found)
            return False
        self._epoch = max(self._epoch, found.epoch if found else 0) + 1
        begun_s = self._runtime.elapsed()
        # Kept before the call: the file may be written although the call fails.
        data = self._data = self._new_data()
        if self._write(data, content):
            self._until_s = begun_s + self._validity_ms / 1000
            return True
        self._data = None
        self._holder = "another writer, which was faster"
        return False

    def is_held(self) -> bool:
        """Return whether the file is as this transaction wrote it, and its end is not near."""
        with self._guard:
            if self._data is None or self._read() != self._data.encode():
                return False
            return self._runtime.elapsed() < self._until_s - _MARGIN * self._validity_ms / 1000

    def renew(self) -> None:
        """Put the end of the lease off, if the file is as this transaction wrote it."""
        with self._guard:
            if self._data is None:
                return
            begun_s, renewed = self._runtime.elapsed(), self._new_data()
            if self._storage.replace_if_unchanged(LOCK_PATH, renewed.encode(), self._data.encode()):
                self._data, self._until_s = renewed, begun_s + self._validity_ms / 1000

    def release(self) -> None:
        """Mark the lock as expired, if the file is as this transaction wrote it."""
        with self._guard:
            if self._data is not None:
                data = self._data
                freed = LockData(True, data.valid_until_ms, data.owner, data.epoch, data.writer)
                self._storage.replace_if_unchanged(LOCK_PATH, freed.encode(), data.encode())
            self._data = None

    def holder(self) -> str:
        """Describe the holder."""
        return self._holder

    def _new_data(self) -> LockData:
        until_ms = self._runtime.clock() + self._validity_ms
        return LockData(False, until_ms, self._owner.token, self._epoch, self._owner)

    def _read(self) -> bytes | None:
        try:
            return self._storage.read(LOCK_PATH, _MAX_BYTES)
        except FileNotFoundError:
            return None

    def _write(self, data: LockData, content: bytes | None) -> bool:
        if content is not None:
            return self._storage.replace_if_unchanged(LOCK_PATH, data.encode(), content)
        try:
            self._storage.put_if_absent(LOCK_PATH, data.encode())
        except FileExistsError:
            return False
        return True

    def _is_free(self, found: LockData, content: bytes) -> bool:
        """Return whether the lock was released, or its holder is dead.

        A holder of this package is: one that lives would hold the lease in ``.hoodie/lock``, as this one does. Another
        one is when the lock is over by the clock of this machine, and was not renewed while it was watched.
        """
        if found.expired or found.writer is not None:
            return True
        now_ms, seen = self._runtime.clock(), Renewal(content, found.valid_until_ms)
        unrenewed_s = self._runtime.leases.unrenewed_s(self._path, seen, self._runtime.elapsed())
        if now_ms <= found.valid_until_ms + _DRIFT_MS:
            return False
        return unrenewed_s * 1000 >= self._watch_ms or is_certainly_over(found.valid_until_ms, now_ms, 0)

    @property
    def _path(self) -> str:
        return f"{self._storage.uri}/{LOCK_PATH}"
