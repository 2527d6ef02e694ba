"""Acquire, verify, renew and release the table lock, which admits one writer at a time.

The *lock* is the file ``.hoodie/lock``, created if absent; its content names the *owner*. The *lease* is the time after
the last heartbeat during which the owner counts as alive on other machines. A *take-over* replaces the lock of a dead
owner by compare-and-swap (docs/layout.md, "The lock").

A writer that is stopped for longer than its lease loses the lock while it holds it, and may resume later. So it
verifies the lock before each change. A pause between verification and change is made safe by a decision record (see
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
    """Lock one table for one transaction.

    Attributes:
        owner: this transaction, as the lock file names it.
        taken_over: whether the lock was taken from an owner that counts as dead, but may only have been stopped.
    """

    def __init__(self, storage: Storage, writer_id: str, lease_ms: int, runtime: Runtime) -> None:
        """Prepare the lock without acquiring it.

        Args:
            writer_id: identity of the writer, kept in the lock file.
            lease_ms: milliseconds after the last heartbeat until writers on other machines may take the lock.
        """
        self._storage = storage
        self._runtime = runtime
        self.owner = Owner(runtime.process(), writer_id, runtime.new_token(), runtime.clock(), lease_ms)
        self.taken_over = False
        self._content = self.owner.encode()
        self._former = b""
        self._given_back = False

    def acquire(self) -> None:
        """Acquire the lock without waiting.

        Raises:
            CommitConflict: a living writer holds the lock; the message names the writer and when it began.
        """
        self._runtime.process_locks.acquire(self._storage.uri, self.owner)
        try:
            self._acquire_file()
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock if it is still this writer's.

        A failure is logged, not raised: a lock file that remains is taken over by the next writer.
        """
        try:
            if not self._given_back:
                self._storage.delete_if_unchanged(LOCK_FILE, self._content)
        except Exception:
            _LOG.warning("%s in %s could not be removed", LOCK_FILE, self._storage.uri, exc_info=True)
        finally:
            self._runtime.process_locks.release(self._storage.uri, self.owner)

    def give_back(self) -> None:
        """Undo a take-over: put the former owner's lock back, so that the next writer takes it over in its turn.

        Called if the take-over fails before the former owner is fenced. A failure is logged, not raised; the lock is
        not released then.
        """
        self._given_back = True
        try:
            self._storage.replace_if_unchanged(LOCK_FILE, self._former, self._content)
        except Exception:
            _LOG.warning("%s in %s could not be given back", LOCK_FILE, self._storage.uri, exc_info=True)

    def verify(self) -> None:
        """Verify that the lock is still this writer's.

        Raises:
            Fenced: the lock is gone, or another writer's.
        """
        try:
            content = self._storage.read(LOCK_FILE, _MAX_BYTES)
        except FileNotFoundError:
            raise Fenced(f"{LOCK_FILE} in {self._storage.uri} was removed while {self.owner} wrote: stop") from None
        if content != self._content:
            holder = Owner.decode(content) or "another program"
            raise Fenced(f"{LOCK_FILE} in {self._storage.uri} was taken from {self.owner} by {holder}: stop")

    def loss(self) -> Fenced | None:
        """Return the error of `verify`; None if the lock is held, was given back, or cannot be read."""
        if self._given_back:
            return None
        try:
            self.verify()
        except Fenced as fenced:
            return fenced
        except Exception:
            _LOG.warning("the lock of %s cannot be read", self._storage.uri, exc_info=True)
        return None

    def touch(self) -> None:
        """Renew the lease.

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
        raise CommitConflict(f"{LOCK_FILE} in {self._storage.uri} changes its owner all the time; retry")

    def _take_over(self) -> bool:
        """Take the lock over from a dead owner; return False if it changed in the meantime, and is to be read again.

        Raises:
            CommitConflict: the owner is alive, or is another program, whose state is unknown.
        """
        try:
            content = self._storage.read(LOCK_FILE, _MAX_BYTES)
        except FileNotFoundError:
            return False
        dead = self._dead_owner(content)
        if not self._storage.replace_if_unchanged(LOCK_FILE, self._content, content):
            return False
        _LOG.warning("took %s in %s over from %s, which is dead", LOCK_FILE, self._storage.uri, dead)
        self.taken_over, self._former = True, content
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
