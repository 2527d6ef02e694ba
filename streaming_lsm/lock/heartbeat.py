"""Signs of life of a running write (docs/format/01-table.md, "Heartbeats").

The heartbeat file of an instant has a second meaning here: it is the permission to write files of that instant.
Whoever is about to decide which files belong to the instant, its own driver at the commit or another one in a
rollback, deletes the file first; a task that is still running finds it gone and stops.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from streaming_lsm.errors import Fenced
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.lock.owner import Owner
from streaming_lsm.storage.base import Storage

HEARTBEAT_FOLDER = ".hoodie/.heartbeat"

_LOG = logging.getLogger(__name__)


def heartbeat_path(instant: str) -> str:
    """The heartbeat file of an instant (its requested time)."""
    return f"{HEARTBEAT_FOLDER}/{instant}"


def create_heartbeat(storage: Storage, instant: str, owner: Owner) -> None:
    """Permit tasks to write files of an instant.

    Raises:
        Fenced: another writer has permitted it, for a run of its own.
    """
    try:
        storage.put_if_absent(heartbeat_path(instant), owner.encode())
    except FileExistsError:
        raise Fenced(f"{heartbeat_path(instant)} in {storage.uri} is another writer's: stop") from None


def delete_heartbeat(storage: Storage, instant: str, owner: Owner | None = None) -> None:
    """Forbid it: files whose task has not yet seen `check_still_inflight` succeed will not stay.

    Args:
        owner: forbid it only if this one permitted it; None for any.
    """
    if owner is None:
        storage.delete(heartbeat_path(instant))
    else:
        storage.delete_if_unchanged(heartbeat_path(instant), owner.encode())


def check_still_inflight(storage: Storage, instant: str) -> None:
    """On an executor, after a data file is closed and before its stat is returned.

    Raises:
        Fenced: the instant takes no more files; the caller deletes the file that it wrote.
    """
    if not storage.exists(heartbeat_path(instant)):
        raise Fenced(f"instant {instant} in {storage.uri} is committed or rolled back: this task's files are discarded")


class Heartbeat:
    """A thread that touches the lock and the heartbeat of the running instant at each interval."""

    def __init__(self, storage: Storage, lock: TableLock, interval_ms: int) -> None:
        self._storage = storage
        self._lock = lock
        self._interval_s = interval_ms / 1000
        self._instant: str | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lsm-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def follow(self, instant: str) -> None:
        """Touch this instant's heartbeat too, from now on."""
        self._instant = instant

    def stop(self) -> None:
        """Stop, and wait for a beat that is under way."""
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
