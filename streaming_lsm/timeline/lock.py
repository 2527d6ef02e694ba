"""The table's lock: one writer at a time, taken over only from the dead.

The file ``.hoodie/lock`` is created if absent and names its owner. A writer that finds a dead owner there first
creates, if absent, a claim named after the dead owner's token; only the winner replaces the lock. When the winner
dies as well, the next one claims the claim, and so on: at every moment one living process at most may replace.
"""

from __future__ import annotations

import logging

from streaming_lsm.errors import CommitConflict, Fenced
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.owner import Owner
from streaming_lsm.timeline.runtime import Runtime

LOCK_FILE = ".hoodie/lock"
_CLAIM = ".claim"
_ATTEMPTS = 16
_MAX_CLAIMS = 1000

_LOG = logging.getLogger(__name__)


class TableLock:
    """A lock on one table for one transaction."""

    def __init__(self, storage: Storage, writer_id: str, lease_ms: int, runtime: Runtime) -> None:
        """Prepare; nothing is locked yet.

        Args:
            writer_id: named to others who find the lock.
            lease_ms: others, on other machines, may take the lock so long after the last heartbeat.
        """
        self._storage = storage
        self._runtime = runtime
        self._claim_path: str | None = None
        self.owner = Owner(runtime.process(), writer_id, runtime.new_token(), runtime.clock(), lease_ms)

    def acquire(self) -> None:
        """Take the lock without waiting.

        Raises:
            CommitConflict: a living writer holds it; the message names the writer and since when.
        """
        self._runtime.process_locks.acquire(self._storage.uri, self.owner)
        try:
            self._acquire_file()
            self._clear_claims()
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give the lock back, if it is still this writer's. Never fails: at worst the file waits for a taker."""
        try:
            if self._current_holder() == self.owner:
                self._storage.delete(LOCK_FILE)
            if self._claim_path is not None:
                self._storage.delete(self._claim_path)
        except Exception:
            _LOG.warning("%s in %s could not be removed", LOCK_FILE, self._storage.uri, exc_info=True)
        finally:
            self._runtime.process_locks.release(self._storage.uri, self.owner)

    def verify(self) -> None:
        """Make sure that nobody took the lock.

        Raises:
            Fenced: it is gone or another writer's.
        """
        try:
            holder = self._holder(LOCK_FILE)
        except FileNotFoundError:
            raise Fenced(f"{LOCK_FILE} in {self._storage.uri} was removed while {self.owner} wrote: stop") from None
        if holder != self.owner:
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
                self._storage.put_if_absent(LOCK_FILE, self.owner.encode())
                return
            except FileExistsError:
                if self._take_over():
                    return
        raise CommitConflict(f"{LOCK_FILE} in {self._storage.uri} changes hands all the time; retry")

    def _take_over(self) -> bool:
        """Take the lock from a dead owner; False when it changed in the meantime and all is to be looked at anew."""
        try:
            dead = self._dead_owner(LOCK_FILE)
            self._claim_path = self._claim(dead)
        except FileNotFoundError:
            return False
        # A claim made late, after another taker was done, must not touch that one's lock.
        if self._current_holder() != dead:
            self._storage.delete(self._claim_path)
            return False
        _LOG.warning("taking %s in %s over from %s, which is dead", LOCK_FILE, self._storage.uri, dead)
        self._storage.replace(LOCK_FILE, self.owner.encode())
        return True

    def _claim(self, dead: Owner) -> str:
        """Create the claim at the end of the chain of dead claimants, and return its path."""
        for _ in range(_MAX_CLAIMS):
            path = f"{LOCK_FILE}.{dead.token}{_CLAIM}"
            try:
                self._storage.put_if_absent(path, self.owner.encode())
                return path
            except FileExistsError:
                dead = self._dead_owner(path)
        raise CommitConflict(f"{self._storage.uri}: too many files {LOCK_FILE}.*{_CLAIM}; delete them and retry")

    def _dead_owner(self, path: str) -> Owner:
        """The owner in a file.

        Raises:
            CommitConflict: it lives, or is a program that says nothing about itself.
            FileNotFoundError: the file is gone.
        """
        modified_ms = {entry.path: entry.modified_ms for entry in self._storage.list(".hoodie")}.get(path)
        owner = self._holder(path)
        if owner is None:
            raise CommitConflict(
                f"{path} in {self._storage.uri} was made by another program, which may be writing; "
                "if it is not, delete the file and retry"
            )
        if modified_ms is None or self._runtime.is_alive(owner, modified_ms):
            raise CommitConflict(f"{self._storage.uri} is being written by {owner}; retry when it is done")
        return owner

    def _clear_claims(self) -> None:
        mine = f"{LOCK_FILE}.{self.owner.token}{_CLAIM}"
        for entry in self._storage.list(".hoodie"):
            if entry.path.startswith(LOCK_FILE + ".") and entry.path.endswith(_CLAIM) and entry.path != mine:
                self._storage.delete(entry.path)

    def _current_holder(self) -> Owner | None:
        try:
            return self._holder(LOCK_FILE)
        except FileNotFoundError:
            return None

    def _holder(self, path: str) -> Owner | None:
        return Owner.decode(self._storage.read(path))
