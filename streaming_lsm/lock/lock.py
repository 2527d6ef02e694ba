"""Acquire, verify, renew and release the table lock, which admits one change of the timeline at a time.

The *lock* is the file ``.hoodie/lock``, created if absent; its content names the *owner*. A transaction holds it while
it begins and while it completes, not while its data is written. The *lease* is the time without a renewal after which
the owner counts as dead (see `streaming_lsm.lock.lease`). A *take-over* replaces the lock of a dead owner by
compare-and-swap (docs/layout.md, "The lock").

A writer that is stopped for longer than its lease loses the lock while it holds it, and may resume later. So it
verifies the lock before each change. A pause between verification and change is made safe by a decision record (see
`streaming_lsm.txn.decision`) or by a conditional call of the storage.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from streaming_lsm.config import (
    FILE_LOCK_EXPIRE,
    LOCK_LONGEST_PAUSE_MS,
    LOCK_PAUSE_MS,
    LOCK_RETRIES,
    LOCK_WAIT_MS,
    Options,
)
from streaming_lsm.errors import Fenced, LockLost, LockTimeout
from streaming_lsm.lock.lease import Renewal
from streaming_lsm.lock.owner import Owner
from streaming_lsm.lock.providers.choice import ChosenProvider
from streaming_lsm.lock.providers.file_system import SETTLE_S
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.base import Storage

LOCK_FILE = ".hoodie/lock"
_ATTEMPTS = 16
_RELEASES = 2
"""Attempts to release the lock, before the last one. Who takes over a lock that is left undoes its owner's instant."""
_MAX_BYTES = 1 << 20

_LOG = logging.getLogger(__name__)


class Held(Protocol):
    """Something that this transaction holds: the lock, or the heartbeat of its instant."""

    def verify(self) -> None:
        """Raise `Fenced` if it is not held any more."""
        ...


@dataclass(frozen=True, slots=True)
class LockWait:
    """State how long to wait for a lock that another writer holds.

    Attributes:
        wait_ms: milliseconds to wait at most; with 0 the lock is looked at once. A lock that nobody renews is waited
            for until its lease is over, which may be later.
        pause_ms: milliseconds between the first two looks; each further pause is up to twice as long.
        longest_ms: limit of a pause.
        retries: limit of looks after the first; 0 for none.
        option: key of the option that `wait_ms` is of, for messages.
    """

    wait_ms: int = 0
    pause_ms: int = 5
    longest_ms: int = 200
    retries: int = 0
    option: str = LOCK_WAIT_MS.key

    @classmethod
    def of(cls, options: Options) -> LockWait:
        """Return what the options say."""
        return cls(options[LOCK_WAIT_MS], options[LOCK_PAUSE_MS], options[LOCK_LONGEST_PAUSE_MS], options[LOCK_RETRIES])


class Pauses:
    """Wait between attempts, at random and longer each time, so that many writers do not meet again."""

    def __init__(self, wait: LockWait, runtime: Runtime, waited_s: float = 0.0) -> None:
        """Begin to wait; `waited_s` seconds of the time have passed."""
        self._wait = wait
        self._runtime = runtime
        self._next_s = wait.pause_ms / 1000
        self._count = 0
        self._seen: object = None
        self.waited_s = waited_s

    def are_used_up(self, seen: object) -> bool:
        """Return whether the retries, or the time to wait, are used up; called at each look.

        What was not renewed since the last look is waited for beyond that, until its lease is over.

        Args:
            seen: what is waited for, and when it was renewed; None for what has no lease.
        """
        is_renewed, self._seen = seen is None or seen != self._seen, seen
        if self.waited_s * 1000 < self._wait.wait_ms and not 0 < self._wait.retries <= self._count:
            return False
        return not self._wait.wait_ms or is_renewed

    @property
    def spent(self) -> str:
        """Say how long was waited, and by which option."""
        if 0 < self._wait.retries <= self._count and self.waited_s * 1000 < self._wait.wait_ms:
            return f"for all of {self._count + 1} looks in {self.waited_s:.1f} s ({LOCK_RETRIES.key})"
        return f"for all of {self.waited_s:.1f} s ({self._wait.option})" if self._wait.wait_ms else "now"

    def pause(self) -> None:
        """Wait for a while."""
        self._count += 1
        seconds = self._next_s * (1 + self._runtime.random()) / 2
        self._next_s = min(2 * self._next_s, self._wait.longest_ms / 1000)
        begun = self._runtime.elapsed()
        self._runtime.sleep(seconds)
        self.waited_s += max(seconds, self._runtime.elapsed() - begun)


class TableLock:
    """Lock one table, for one transaction; it is acquired and released for each change of the timeline.

    Attributes:
        owner: this transaction, as the lock file names it.
        formers: tokens of the owners from which the lock was taken when it was last acquired. They count as dead, but
            may only have been stopped. Several, if one was a taker itself and died with the lock.
        is_held: whether the lock was acquired and not released.
        trace: what the last release left at the lock's path; empty if nothing shows whether others held the lock since.
        is_unchanged: whether nobody has held the lock since the release whose trace was given to `acquire`.
        acquisitions: how often it was acquired.
        waited_s: seconds spent to acquire it, in all.
        held_s: seconds for which it was held, in all.
    """

    def __init__(
        self,
        storage: Storage,
        writer_id: str,
        lease_ms: int,
        runtime: Runtime,
        wait: LockWait | None = None,
        provider: ChosenProvider | None = None,
    ) -> None:
        """Prepare the lock without acquiring it.

        Args:
            writer_id: identity of the writer, kept in the lock file.
            lease_ms: milliseconds without a renewal after which other writers may take the lock.
            wait: how long to wait for another writer; by default not at all.
            provider: the lock that excludes other programs; None if they are not excluded.

        Raises:
            ConfigError: the provider is an implementation of the user's, and incomplete.
        """
        self._storage = storage
        self._runtime = runtime
        self._wait = wait or LockWait()
        self.owner = Owner(runtime.process(), writer_id, runtime.new_token(), runtime.clock(), lease_ms)
        self.formers: frozenset[str] = frozenset()
        self.is_held = self.is_unchanged = False
        self.trace = b""
        self.acquisitions = self._attempts = 0
        self.waited_s = self.held_s = 0.0
        self._acquired_s = 0.0
        self._content = self.owner.encode()
        self._former = b""
        self._given_back = False
        # Other programs may delete the file, or create theirs, if it is the lock file of Hudi's provider, too.
        self._shared = provider.shared if provider is not None else None
        self._outer = provider.outer_lock(self.owner) if provider is not None else None
        self._kept_s = 0.0

    def acquire(self, wait: LockWait | None = None, since: bytes = b"") -> None:
        """Acquire the lock; wait for another writer.

        Args:
            wait: how long to wait; by default as the lock was prepared.
            since: trace of a release of this process, see `is_unchanged`.

        Raises:
            LockTimeout: another writer held the lock for all of that time; the message names it.
        """
        wait, begun = wait or self._wait, self._runtime.elapsed()
        # Each attempt has a content of its own: a request of an earlier one that a store carries out late, or twice,
        # changes nothing of this one.
        self._attempts += 1
        self.formers, self._content, self._given_back = frozenset(), self._new_content(frozenset()), False
        waited_s = self._runtime.process_locks.acquire(self._storage.uri, self.owner, wait.wait_ms / 1000)
        try:
            self.is_unchanged = bool(since) and self._storage.replace_if_unchanged(LOCK_FILE, self._content, since)
            if not self.is_unchanged:
                self._acquire_file(wait, waited_s)
            if self._outer is not None:
                self._kept_s = self._runtime.elapsed()
                self._outer.acquire(Pauses(wait, self._runtime, self._kept_s - begun), self._keep)
            self.is_held = True
        except BaseException:
            if self.formers:
                self.give_back()
            self.release()
            raise
        self.acquisitions += 1
        self._acquired_s = self._runtime.elapsed()
        self.waited_s += self._acquired_s - begun

    def release(self) -> bool:
        """Release the lock if it is still this writer's.

        A failure is logged, not raised: a lock file that remains is taken over by the next writer.

        Returns:
            Whether it was still this writer's; False if that is not known.
        """
        if self.is_held:
            self.held_s += self._runtime.elapsed() - self._acquired_s
        self.is_held = False
        self.trace, trace = b"", None
        # Ctrl-C in one step leaves out none of the others: this process could not acquire the lock any more.
        try:
            if self._outer is not None:
                self._outer.release()
        finally:
            try:
                trace = None if self._given_back else self._delete()
            except Exception:
                _LOG.warning("%s in %s could not be removed", LOCK_FILE, self._storage.uri, exc_info=True)
            finally:
                self._runtime.process_locks.release(self._storage.uri, self.owner)
        self.trace = trace or b""
        return trace is not None

    def _delete(self) -> bytes | None:
        for _ in range(_RELEASES):
            with suppress(OSError):
                return self._storage.vacate(LOCK_FILE, self._content)
            self._runtime.sleep(self._wait.longest_ms / 1000)
        return self._storage.vacate(LOCK_FILE, self._content)

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
            LockLost: another program deleted it, or the lock of the provider.
        """
        self._verify_file()
        if self._outer is not None:
            self._outer.verify()

    def _verify_file(self) -> None:
        try:
            content = self._storage.read(LOCK_FILE, _MAX_BYTES)
        except FileNotFoundError:
            raise self.lost(f"was removed while {self.owner} wrote") from None
        if content != self._content:
            holder = Owner.decode(content) or "another program"
            raise self.lost(f"was taken from {self.owner} by {holder}", content)

    def lost(self, how: str, content: bytes = b"") -> Fenced:
        """Return the error of a lock that is lost: only a writer of this package that took it over fences this one.

        Args:
            how: how it was lost, for the message.
            content: of the lock file, as far as it is known.
        """
        what = f"{LOCK_FILE} in {self._storage.uri} {how}"
        if self._shared is None or self.owner.token in _formers(content):
            return Fenced(f"{what}: stop")
        return LockLost(f"{what}, after another program deleted it; nothing was published: write the batch again")

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
        self._verify_file()
        self._storage.touch(LOCK_FILE)
        if self._outer is not None:
            self._outer.renew()

    def _keep(self) -> None:
        """Renew the lease now and then, while the provider's lock is waited for."""
        now_s = self._runtime.elapsed()
        if (now_s - self._kept_s) * 4000 >= self.owner.lease_ms:
            self._verify_file()
            self._storage.touch(LOCK_FILE)
            self._kept_s = now_s

    def _acquire_file(self, wait: LockWait, waited_s: float) -> None:
        pauses, changes, after_other = Pauses(wait, self._runtime, waited_s), 0, False
        while changes < _ATTEMPTS:
            if after_other and not self._storage.exists(LOCK_FILE):
                # Hudi deletes the file a second time, right after it released the lock.
                self._runtime.sleep(SETTLE_S)
            try:
                self._storage.put_if_absent(LOCK_FILE, self._content)
                return
            except FileExistsError:
                seen = self._look()
            if seen is None:
                changes += 1
                continue
            owner = Owner.decode(seen.content)
            if owner is not None and not self._runtime.holds_lock(owner, self._file, seen):
                if self._take_over(owner, seen.content):
                    return
                changes += 1
                continue
            changes = 0
            after_other = owner is None and self._shared is not None
            if after_other and self._delete_expired(seen):
                after_other = False
                continue
            if pauses.are_used_up(None if owner is None else seen):
                raise LockTimeout(self._refusal(owner, pauses.spent))
            pauses.pause()
        raise LockTimeout(f"{LOCK_FILE} in {self._storage.uri} changes its owner all the time; retry")

    @property
    def _file(self) -> str:
        return f"{self._storage.uri}/{LOCK_FILE}"

    def _look(self) -> Renewal | None:
        """Return the lock as it is now; None if it was released meanwhile."""
        try:
            # The time is read first: a lock that is renewed in between counts as renewed at the next look.
            modified_ms = {entry.path: entry.modified_ms for entry in self._storage.list(".hoodie")}.get(LOCK_FILE)
            content = self._storage.read(LOCK_FILE, _MAX_BYTES)
        except FileNotFoundError:
            return None
        return None if modified_ms is None else Renewal(content, modified_ms)

    def _delete_expired(self, seen: Renewal) -> bool:
        now_ms = self._runtime.clock()
        return self._shared is not None and self._shared.delete_expired(
            self._storage, LOCK_FILE, seen.modified_ms, now_ms
        )

    def _take_over(self, dead: Owner, content: bytes) -> bool:
        """Take the lock over from a dead owner; return False if it changed in the meantime.

        The lock names the former owners, for the case that this one dies, too, before it has settled their actions.
        """
        formers = _formers(content) | {dead.token}
        taken = self._new_content(formers)
        if not self._storage.replace_if_unchanged(LOCK_FILE, taken, content):
            return False
        _LOG.warning("took %s in %s over from %s, which is dead", LOCK_FILE, self._storage.uri, dead)
        self.formers, self._content, self._former = formers, taken, content
        return True

    def _new_content(self, formers: frozenset[str]) -> bytes:
        lines = [self.owner.encode()]
        earlier = self._attempts - 1
        if formers or earlier:
            lines.append(json.dumps(sorted(formers)).encode())
        if earlier:
            lines.append(str(earlier).encode())
        return b"\n".join(lines)

    def _refusal(self, owner: Owner | None, waited: str) -> str:
        if owner is None:
            advice = "" if self._shared is None else f", or set {FILE_LOCK_EXPIRE.key}"
            return (
                f"{LOCK_FILE} in {self._storage.uri} was made by another program, which may be writing, and was there "
                f"{waited}; if that program is not running, delete the file and retry{advice}"
            )
        return f"{LOCK_FILE} in {self._storage.uri} was held {waited} by {owner}; retry when it is done"


def _formers(content: bytes) -> frozenset[str]:
    """Return the tokens of the former owners that a lock names in its second line."""
    try:
        return frozenset(map(str, json.loads(content.split(b"\n")[1])))
    except (ValueError, TypeError, IndexError, RecursionError):
        return frozenset()
