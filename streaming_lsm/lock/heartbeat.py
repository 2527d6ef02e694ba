"""Create, touch and delete heartbeat files (docs/format/01-table.md, "Heartbeats").

The *heartbeat* of an instant is a file whose modification time shows that its writer is alive. Here it is also the
permission for tasks to write files of the instant: before the files of an instant are determined, by its driver at the
commit or by another driver in a rollback, the heartbeat is sealed or deleted, and a task that is still running is
fenced. Its first line names the owner as the lock does; a line ``alone`` asks other
writes to wait, and a line ``sealed`` ends a sealed one.
"""

from __future__ import annotations

import logging
import socket
from contextlib import suppress

from streaming_lsm.errors import Fenced, TableNotFound
from streaming_lsm.lock.background import Background, BackgroundThread, NewBackground
from streaming_lsm.lock.lock import Held, TableLock
from streaming_lsm.lock.owner import Owner
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH

HEARTBEAT_FOLDER = ".hoodie/.heartbeat"
_ALONE = b"\nalone"
_SEAL = b"\nsealed"

_LOG = logging.getLogger(__name__)


def waiting_path(instant: str) -> str:
    """Return the path of the file by which others tell the writer of an instant that they wait for it."""
    return heartbeat_path(instant) + ".waiting"


def heartbeat_path(instant: str) -> str:
    """Return the path of the heartbeat file of an instant, given by its requested time."""
    return f"{HEARTBEAT_FOLDER}/{instant}"


class Claim:
    """The heartbeat of an instant that this transaction writes: created, renewed, sealed and deleted by it alone.

    While it is open, tasks may write files of the instant. Sealed, it still shows that the writer is alive.

    Attributes:
        path: path of the heartbeat file.
        is_deleted: whether this transaction has deleted it.
    """

    def __init__(self, storage: Storage, instant: str, owner: Owner, *, alone: bool = False) -> None:
        """Claim an instant, which permits tasks to write files of it.

        Args:
            alone: whether other writes that have not begun are to wait until this one is completed.

        Raises:
            Fenced: another writer has claimed the instant, for a run of its own.
        """
        self._storage = storage
        self.path = heartbeat_path(instant)
        self._open = owner.encode() + (_ALONE if alone else b"")
        self._sealed = self._open + _SEAL
        self.is_deleted = False
        try:
            storage.put_if_absent(self.path, self._open)
        except FileExistsError:
            raise Fenced(f"{self.path} in {storage.uri} is another writer's: stop") from None

    def verify(self) -> None:
        """Verify that the instant is still this writer's.

        Raises:
            Fenced: another writer took this one for dead, and has undone its instant or will.
        """
        try:
            content = self._storage.read(self.path)
        except FileNotFoundError:
            content = b""
        if content not in (self._open, self._sealed):
            raise Fenced(
                f"{self.path} in {self._storage.uri} was taken by another writer, as it was not renewed for longer "
                "than its lease: stop"
            )

    def renew(self) -> None:
        """Renew the lease; raises `Fenced` as `verify`."""
        self.verify()
        with suppress(FileNotFoundError):
            self._storage.touch(self.path)

    def seal(self) -> None:
        """Fence the tasks: those that have not passed `check_still_inflight` yet discard their files.

        Raises:
            Fenced: as in `verify`.
        """
        if not self._storage.replace_if_unchanged(self.path, self._sealed, self._open):
            self.verify()

    def delete(self, *, runs_again: bool = False) -> None:
        """Delete the heartbeat, if it is still this writer's.

        Args:
            runs_again: whether another run of the instant may claim it.
        """
        contents = () if self.is_deleted else (self._sealed, self._open)
        self.is_deleted = any(
            self._storage.delete_if_unchanged(self.path, content, reused=runs_again) for content in contents
        )


def is_alone(content: bytes) -> bool:
    """Return whether the heartbeat with this content asks other writes to wait."""
    return _ALONE in content


def revoke_heartbeat(storage: Storage, held: Held, instant: str, *, runs_again: bool = False) -> None:
    """Delete the heartbeat of an instant, of any owner: its tasks and its writer are fenced.

    The heartbeat is read before the lock is verified, and deleted only if it is unchanged: a later holder of the lock
    may create a heartbeat of its own for another run of the instant.

    Args:
        runs_again: whether another run of the instant may claim it.

    Raises:
        Fenced: the lock is not held any more.
    """
    path = heartbeat_path(instant)
    try:
        content = storage.read(path)
    except FileNotFoundError:
        content = None
    held.verify()
    if content is not None:
        storage.delete_if_unchanged(path, content, reused=runs_again)


def check_still_inflight(storage: Storage, instant: str) -> None:
    """Check that an instant accepts files; called by a task between closing a data file and returning its stat.

    Raises:
        Fenced: the instant accepts no more files; the caller deletes the file that it wrote.
        TableNotFound: this process does not see the driver's table, or it was removed.
    """
    try:
        if not storage.read(heartbeat_path(instant)).endswith(_SEAL):
            return
    except FileNotFoundError:
        if not storage.exists(PROPERTIES_PATH):
            raise TableNotFound(
                f"{storage.uri} on host {socket.gethostname()} is not the table that the driver writes: it has no "
                f"{PROPERTIES_PATH}. Driver and executors need the same files under this path, as on a network file "
                "system"
            ) from None
    raise Fenced(f"instant {instant} in {storage.uri} is committed or rolled back: this task's files are discarded")


class Heartbeat:
    """Renew the lock, while it is held, and the claim of the running instant, at a fixed interval, in a thread."""

    def __init__(
        self, storage: Storage, lock: TableLock, interval_ms: int, background: NewBackground = BackgroundThread
    ) -> None:
        self._storage = storage
        self._lock = lock
        self._interval_s = interval_ms / 1000
        self._claim: Claim | None = None
        self._background = background("lsm-heartbeat", self._run)

    def start(self) -> None:
        """Start the thread."""
        self._background.start()

    def follow(self, claim: Claim) -> None:
        """Renew this claim, too, from now on."""
        self._claim = claim

    def stop(self) -> None:
        """Stop the thread, and wait for a beat in progress."""
        self._background.stop()

    def beat(self) -> None:
        """Renew once.

        Raises:
            Fenced: another writer took the lock, or the instant.
        """
        if self._claim is not None:
            self._claim.renew()
        held = self._lock.acquisitions
        if self._lock.is_held:
            try:
                self._lock.touch()
            except Fenced:
                if self._lock.is_held and self._lock.acquisitions == held:  # else it was released meanwhile
                    raise

    def _run(self, background: Background) -> None:
        while not background.wait(self._interval_s):
            try:
                self.beat()
            except Fenced as error:
                _LOG.warning("heartbeat stops: %s", error)
                return
            except Exception:
                _LOG.warning("a heartbeat in %s failed; the next one may succeed", self._storage.uri, exc_info=True)
