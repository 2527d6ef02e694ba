"""Lock providers as a user would write them, named by the option as ``tests.support.lock_providers:…``."""

from __future__ import annotations

from typing import ClassVar

from streaming_lsm.config import Options
from streaming_lsm.lock.owner import Owner
from streaming_lsm.storage.base import Storage


class Remembering:
    """A lock in memory, shared by all transactions of the process.

    Attributes:
        holders: tokens of the transactions that hold the lock of each table; tests change it.
        calls: what was called so far.
    """

    holders: ClassVar[dict[str, str]] = {}
    calls: ClassVar[list[str]] = []

    def __init__(self, storage: Storage, options: Options, owner: Owner) -> None:
        self._table = storage.uri
        self._token = owner.token
        self._name = options["hoodie.write.lock.provider"]

    @classmethod
    def forget(cls) -> None:
        """Begin anew, for a test."""
        cls.holders.clear()
        cls.calls.clear()

    def try_acquire(self) -> bool:
        self.calls.append("try_acquire")
        return self.holders.setdefault(self._table, self._token) == self._token

    def is_held(self) -> bool:
        self.calls.append("is_held")
        return self.holders.get(self._table) == self._token

    def renew(self) -> None:
        self.calls.append("renew")

    def release(self) -> None:
        self.calls.append("release")
        if self.holders.get(self._table) == self._token:
            del self.holders[self._table]

    def holder(self) -> str:
        return f"somebody else, {self.holders.get(self._table)}"


class Failing(Remembering):
    """A lock whose service is out of reach."""

    def try_acquire(self) -> bool:
        raise RuntimeError("no route to the lock service")


class Refused(Remembering):
    """A lock whose service refuses the connection."""

    def try_acquire(self) -> bool:
        raise ConnectionRefusedError(111, "Connection refused")


class Unmade(Remembering):
    """A lock that connects to its service at once, which is out of reach."""

    def __init__(self, storage: Storage, options: Options, owner: Owner) -> None:
        raise RuntimeError("no route to the lock service")


class Wrapped:
    """A lock whose methods are those of another object."""

    def __init__(self, storage: Storage, options: Options, owner: Owner) -> None:
        self._lock = Remembering(storage, options, owner)

    def __getattr__(self, name: str) -> object:
        return getattr(self._lock, name)


class Interrupted(Remembering):
    """A lock at whose release Ctrl-C is pressed once."""

    presses: ClassVar[list[str]] = []

    def release(self) -> None:
        super().release()
        if self.presses:
            raise KeyboardInterrupt(self.presses.pop())


class Incomplete:
    """No lock provider."""

    def __init__(self, storage: Storage, options: Options, owner: Owner) -> None:
        pass

    def try_acquire(self) -> bool:
        return True


def takes_nothing() -> None:
    """No lock provider, and not callable as one."""


NO_CLASS = 1
