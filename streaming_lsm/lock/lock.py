"""The table's lock: one writer at a time, taken over only from the dead.

The file ``.hoodie/lock`` is created if absent and names its owner. A dead owner's is replaced if it is still the same,
a living one's is respected. A writer that is stopped for longer than its lease may be taken for dead and wake up later.
It looks at the lock before each change; a pause between the look and the change is made harmless by a decision (see
`streaming_lsm.txn.decision`) or by a conditional call of the storage.
"""

from __future__ import annotations

import logging

from streaming_lsm.errors import CommitConflict, Fenced
from streaming_lsm.lock.owner import Owner
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.base import Storage

LOCK_FILE = ".hoodie/lock"
_ATTEMPTS = 16
_MAX_BYTES = 1 << 20

_LOG = logging.getLogger(__name__)


class TableLock:
    """A lock on one table for one transaction.

    Attributes:
        owner: this transaction, as others find it in the lock.
        taken_over: whether the lock was taken from a dead owner, which may turn out to have been stopped only.
    """

    def __init__(self, storage: Storage, writer_id: str, lease_ms: int, runtime: Runtime) -> None:
        """Prepare; nothing is locked yet.

        Args:
            writer_id: named to others who find the lock.
            lease_ms: others, on other machines, may take the lock so long after the last heartbeat.
        """
        self._storage = storage
        self._runtime = runtime
        self.owner = Owner(runtime.process(), writer_id, runtime.new_token(), runtime.clock(), lease_ms)
        self.taken_over = False
        self._content = self.owner.encode()

    def acquire(self) -> None:
        """Take the lock without waiting.

        Raises:
            CommitConflict: a living writer holds it; the message names the writer and since when.
        """
        self._runtime.process_locks.acquire(self._storage.uri, self.owner)
        try:
            self._acquire_file()
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give the lock back, if it is still this writer's. Never fails: at worst the file waits for a taker."""
        try:
            self._storage.delete_if_unchanged(LOCK_FILE, self._content)
        except Exception:
            _LOG.warning("%s in %s could not be removed", LOCK_FILE, self._storage.uri, exc_info=True)
        finally:
            self._runtime.process_locks.release(self._storage.uri, self.owner)

    def verify(self) -> None:
        """Make sure that no other writer took the lock.

        Raises:
            Fenced: it is gone or another writer's.
        """
        try:
            content = self._storage.read(LOCK_FILE, _MAX_BYTES)
        except FileNotFoundError:
            raise Fenced(f"{LOCK_FILE} in {self._storage.uri} was removed while {self.owner} wrote: stop") from None
        if content != self._content:
            holder = Owner.decode(content) or "another program"
            raise Fenced(f"{LOCK_FILE} in {self._storage.uri} was taken from {self.owner} by {holder}: stop")

    def touch(self) -> None:
        """Prolong the lease.

        Raises:
            Fenced: the lock is no longer this writer's.
        """
        self.verify()
        self._storage.touch(LOCK_FILE)

    def _acquire_file(self) -> None:
        for _ in range(_ATTEMPTS):
            try:
                self._storage.put_if_absent(LOCK_FILE, self._content)
                return
            except FileExistsError:
                if self._take_over():
                    return
        raise CommitConflict(f"{LOCK_FILE} in {self._storage.uri} changes hands all the time; retry")

    def _take_over(self) -> bool:
        """Take the lock from a dead owner; False when it changed in the meantime and all is to be looked at anew.

        Raises:
            CommitConflict: the owner lives, or is a program that says nothing about itself.
        """
        try:
            content = self._storage.read(LOCK_FILE, _MAX_BYTES)
        except FileNotFoundError:
            return False
        dead = self._dead_owner(content)
        if not self._storage.replace_if_unchanged(LOCK_FILE, self._content, content):
            return False
        _LOG.warning("took %s in %s over from %s, which is dead", LOCK_FILE, self._storage.uri, dead)
        self.taken_over = True
        return True

    def _dead_owner(self, content: bytes) -> Owner:
        modified_ms = {entry.path: entry.modified_ms for entry in self._storage.list(".hoodie")}.get(LOCK_FILE)
        owner = Owner.decode(content)
        if owner is None:
            raise CommitConflict(
                f"{LOCK_FILE} in {self._storage.uri} was made by another program, which may be writing; "
                "if it is not, delete the file and retry"
            )
        if modified_ms is not None and self._runtime.is_alive(owner, modified_ms):
            raise CommitConflict(f"{self._storage.uri} is being written by {owner}; retry when it is done")
        return owner
