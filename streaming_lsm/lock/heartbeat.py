"""Create, touch and delete heartbeat files (docs/format/01-table.md, "Heartbeats").

The *heartbeat* of an instant is a file whose modification time shows that its writer is alive. Here it is also the
permission for tasks to write files of the instant: before the files of an instant are determined, by its driver at the
commit or by another driver in a rollback, the heartbeat is deleted, and a task that is still running is fenced.
"""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import suppress

from streaming_lsm.errors import Fenced, TableNotFound
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.lock.owner import Owner
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH

HEARTBEAT_FOLDER = ".hoodie/.heartbeat"

_LOG = logging.getLogger(__name__)


def heartbeat_path(instant: str) -> str:
    """Return the path of the heartbeat file of an instant, given by its requested time."""
    return f"{HEARTBEAT_FOLDER}/{instant}"


def create_heartbeat(storage: Storage, instant: str, owner: Owner) -> None:
    """Create the heartbeat of an instant, which permits tasks to write files of it.

    Raises:
        Fenced: another writer has created the heartbeat, for a run of its own.
    """
    try:
        storage.put_if_absent(heartbeat_path(instant), owner.encode())
    except FileExistsError:
        raise Fenced(f"{heartbeat_path(instant)} in {storage.uri} is another writer's: stop") from None


def delete_heartbeat(storage: Storage, instant: str, owner: Owner) -> None:
    """Delete the heartbeat of an instant if it is this owner's.

    Tasks that have not passed `check_still_inflight` yet discard their files.
    """
    storage.delete_if_unchanged(heartbeat_path(instant), owner.encode())


def revoke_heartbeat(storage: Storage, lock: TableLock, instant: str) -> None:
    """Delete the heartbeat of an instant, of any owner, as `delete_heartbeat` does.

    The heartbeat is read before the lock is verified, and deleted only if it is unchanged: a later holder of the lock
    may create a heartbeat of its own for another run of the instant.

    Raises:
        Fenced: another writer took the lock.
    """
    path = heartbeat_path(instant)
    try:
        content = storage.read(path)
    except FileNotFoundError:
        content = None
    lock.verify()
    if content is not None:
        storage.delete_if_unchanged(path, content)


def check_still_inflight(storage: Storage, instant: str) -> None:
    """Check that an instant accepts files; called by a task between closing a data file and returning its stat.

    Raises:
        Fenced: the instant accepts no more files; the caller deletes the file that it wrote.
        TableNotFound: this process does not see the driver's table, or it was removed.
    """
    if storage.exists(heartbeat_path(instant)):
        return
    if not storage.exists(PROPERTIES_PATH):
        raise TableNotFound(
            f"{storage.uri} on host {socket.gethostname()} is not the table that the driver writes: it has no "
            f"{PROPERTIES_PATH}. Driver and executors need the same files under this path, as on a network file system"
        )
    raise Fenced(f"instant {instant} in {storage.uri} is committed or rolled back: this task's files are discarded")


class Heartbeat:
    """Touch the lock and the heartbeat of the running instant at a fixed interval, in a thread."""

    def __init__(self, storage: Storage, lock: TableLock, interval_ms: int) -> None:
        self._storage = storage
        self._lock = lock
        self._interval_s = interval_ms / 1000
        self._instant: str | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lsm-heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def follow(self, instant: str) -> None:
        """Touch the heartbeat of this instant, too, from now on."""
        self._instant = instant

    def stop(self) -> None:
        """Stop the thread, and wait for a beat in progress."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def beat(self) -> None:
        """Touch the files once.

        Raises:
            Fenced: the lock was taken by another writer.
        """
        self._lock.touch()
        if self._instant is not None:
            with suppress(FileNotFoundError):
                self._storage.touch(heartbeat_path(self._instant))

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                self.beat()
            except Fenced as error:
                _LOG.warning("heartbeat stops: %s", error)
                return
            except Exception:
                _LOG.warning("a heartbeat in %s failed; the next one may succeed", self._storage.uri, exc_info=True)
