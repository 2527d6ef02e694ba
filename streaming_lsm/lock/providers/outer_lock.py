"""Wait for the lock of a provider, and verify, renew and release it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from streaming_lsm.config import LOCK_PROVIDER
from streaming_lsm.errors import LockLost, LockTimeout, LsmError, StorageError
from streaming_lsm.lock.providers.base import LockProvider

_RELEASES = 2
"""Attempts to release the lock, before the last one."""

_LOG = logging.getLogger(__name__)


class Waiting(Protocol):
    """Pauses between attempts, limited by the options; see `streaming_lsm.lock.lock.Pauses`."""

    @property
    def spent(self) -> str:
        """Say how long was waited, and by which option."""
        ...

    def are_used_up(self, seen: object) -> bool:
        """Return whether the retries, or the time to wait, are used up."""
        ...

    def pause(self) -> None:
        """Wait for a while."""
        ...


class OuterLock:
    """The lock of a provider around the critical sections of one transaction."""

    def __init__(self, name: str, uri: str, provider: LockProvider) -> None:
        """Prepare the lock without acquiring it.

        Args:
            name: the provider's name, as in the options.
            uri: URI of the table.
        """
        self._name, self._uri = name, uri
        self._what = _described(name, uri)
        self._provider = provider
        self._may_be_held = False

    def acquire(self, pauses: Waiting, keep: Callable[[], None]) -> None:
        """Acquire the lock; wait for other programs.

        Args:
            keep: called after each pause, renews what the transaction holds meanwhile.

        Raises:
            LockTimeout: others held the lock for all the time that the options say to wait.
            StorageError: the provider failed.
        """
        self._may_be_held = True
        with naming_failures(self._name, self._uri):
            while not self._provider.try_acquire():
                if pauses.are_used_up(None):
                    raise LockTimeout(
                        f"{self._what} was held {pauses.spent} by {self._provider.holder()}; retry when it is done"
                    )
                pauses.pause()
                keep()

    def verify(self) -> None:
        """Verify that the lock is held.

        Raises:
            LockLost: it is not.
            StorageError: the provider failed.
        """
        with naming_failures(self._name, self._uri):
            if not self._provider.is_held():
                raise LockLost(
                    f"{self._what} was lost while it was held: another program deleted it, or took it over after it "
                    "had expired. Nothing was published; write the batch again"
                )

    def renew(self) -> None:
        """Extend the lock, if it is held."""
        if self._may_be_held:
            with naming_failures(self._name, self._uri):
                self._provider.renew()

    def release(self) -> None:
        """Release the lock, if it may be held; a failure is logged, not raised."""
        if not self._may_be_held:
            return
        self._may_be_held = False
        for _ in range(_RELEASES):
            with suppress(Exception):
                self._provider.release()
                return
        try:
            self._provider.release()
        except Exception:
            _LOG.warning("%s could not be released: other programs wait until it expires", self._what, exc_info=True)


@contextmanager
def naming_failures(name: str, uri: str) -> Iterator[None]:
    """Name the provider in the errors of its implementation; an error of a file names that.

    Raises:
        StorageError: for any other error, as of a lock service that cannot be reached.
    """
    try:
        yield
    except LsmError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        kind = type(error).__name__
        raise StorageError(f"{_described(name, uri)} failed ({LOCK_PROVIDER.key}): {kind}: {error}; retry") from error


def _described(name: str, uri: str) -> str:
    return f"the lock of {name} for {uri}"
