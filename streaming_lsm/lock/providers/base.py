"""Define the interface of a lock provider.

A *lock provider* makes a lock that writers of other programs honour, too. A writer of this package acquires it after
its own lock, the lease in ``.hoodie/lock``, for each change of the timeline, and releases it before that. So of all
writers of this package at most one at a time asks the provider.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, runtime_checkable

from streaming_lsm.config import Options
from streaming_lsm.lock.owner import Owner
from streaming_lsm.storage.base import Storage


@runtime_checkable
class LockProvider(Protocol):
    """A lock that one transaction acquires and releases, several times.

    An implementation of your own is named by the option ``hoodie.write.lock.provider`` as ``module:Class``, and is
    called with the table's storage, the options and the owner (see `NewLockProvider`). Waiting, retries and back-off
    (``hoodie.write.lock.*``) are not its task. All methods but `renew` are called by one thread; `renew` is called by
    another one, at any time.
    """

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free; return whether this transaction holds it.

        An exception ends the transaction, after a call of `release`: the lock may have been acquired.
        """
        ...

    def is_held(self) -> bool:
        """Ask the lock's service, not the memory, whether this transaction still holds the lock.

        Called right before each decision: after False nothing is published.
        """
        ...

    def renew(self) -> None:
        """Extend the lock, if it is held and can expire; called at the interval of heartbeats while it is held."""
        ...

    def release(self) -> None:
        """Release the lock if this transaction holds it, and never another one's; called at least once."""
        ...

    def holder(self) -> str:
        """Describe what held the lock when `try_acquire` returned False, for messages."""
        ...


NewLockProvider: TypeAlias = Callable[[Storage, Options, Owner], LockProvider]
"""Makes the provider of one transaction, from the table's storage, the options, and the transaction as owner."""
