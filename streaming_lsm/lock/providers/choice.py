"""Choose the lock provider that the options name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import cast

from streaming_lsm.config import (
    FILE_LOCK_EXPIRE,
    FILE_LOCK_PATH,
    LOCK_PROVIDER,
    STORAGE_LOCK_RENEW,
    STORAGE_LOCK_VALIDITY,
    Option,
    Options,
)
from streaming_lsm.errors import ConfigError
from streaming_lsm.lock.owner import Owner
from streaming_lsm.lock.providers.base import LockProvider, NewLockProvider
from streaming_lsm.lock.providers.file_system import FileSystemBasedLockProvider, SharedLockFile
from streaming_lsm.lock.providers.outer_lock import OuterLock, naming_failures
from streaming_lsm.lock.providers.storage_based import StorageBasedLockProvider
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.lock_provider_names import FILE_SYSTEM, IN_PROCESS, STORAGE
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.uris import open_storage

_LEASE_FOLDER = ".hoodie"
_RENEWALS = 3
"""Renewals of a lock file in the time after which it expires."""
_OPTIONS_OF: dict[str, tuple[Option[int] | Option[str | None], ...]] = {
    FILE_SYSTEM: (FILE_LOCK_PATH, FILE_LOCK_EXPIRE),
    STORAGE: (STORAGE_LOCK_VALIDITY, STORAGE_LOCK_RENEW),
}
_NewProvider = Callable[[Owner], LockProvider]


@dataclass(frozen=True)
class ChosenProvider:
    """State how writers of other programs are excluded from a table.

    Attributes:
        name: as in the options.
        uri: URI of the table.
        new: makes the provider of a transaction; None if the lease's own file excludes them.
        shared: how a lock file of another program in the lease's place is treated; None if other programs do not use
            that place.
        renew_ms: milliseconds after which the lock is to be renewed; 0 if it does not expire soon.
    """

    name: str
    uri: str
    new: _NewProvider | None = None
    shared: SharedLockFile | None = None
    renew_ms: int = 0

    def outer_lock(self, owner: Owner) -> OuterLock | None:
        """Return the provider's lock for a transaction; None if there is none beside the lease.

        Raises:
            ConfigError: an implementation of the user's is incomplete.
            StorageError: it cannot be made.
        """
        if self.new is None:
            return None
        with naming_failures(self.name, self.uri):
            provider: object = self.new(owner)
        # Asked of the object: its methods may be those of another one, by `__getattr__`.
        methods = [name for name in vars(LockProvider) if not name.startswith("_")]
        missing = ", ".join(name for name in methods if not callable(getattr(provider, name, None)))
        if missing:
            raise ConfigError(f"{LOCK_PROVIDER.key}={self.name}: it has no {missing}; see streaming_lsm.LockProvider")
        return OuterLock(self.name, self.uri, cast(LockProvider, provider))


def choose_provider(storage: Storage, options: Options, runtime: Runtime) -> ChosenProvider | None:
    """Return the provider that the options name; None if other programs are not to be excluded.

    Raises:
        ConfigError: it cannot be used for this table, or an option of another provider is set.
    """
    name = options[LOCK_PROVIDER]
    _check_options(name, options)
    if name is None or name == IN_PROCESS:
        return None
    if name == FILE_SYSTEM:
        return _file_system(storage, options, runtime)
    if name == STORAGE:
        renew_ms = 1000 * options[STORAGE_LOCK_RENEW]
        new = partial(_storage_based, storage, options, runtime)
        return ChosenProvider(name, storage.uri, new, renew_ms=renew_ms)
    return ChosenProvider(name, storage.uri, partial(_own(name), storage, options))


def _storage_based(storage: Storage, options: Options, runtime: Runtime, owner: Owner) -> LockProvider:
    return StorageBasedLockProvider(storage, options, owner, runtime)


def _check_options(name: str | None, options: Options) -> None:
    for provider, belonging in _OPTIONS_OF.items():
        found = [option.key for option in belonging if options.is_set(option)]
        if found and name != provider:
            chosen = "not set" if name is None else name
            raise ConfigError(
                f"{found[0]} is an option of {provider}, but {LOCK_PROVIDER.key} is {chosen}: set that, too, or leave "
                f"{found[0]} out"
            )
    validity, renew = options[STORAGE_LOCK_VALIDITY], options[STORAGE_LOCK_RENEW]
    if validity < 10 * renew:
        raise ConfigError(
            f"{STORAGE_LOCK_VALIDITY.key}={validity} is less than ten times {STORAGE_LOCK_RENEW.key}={renew}: a lock "
            "that is renewed late would be lost; change one of them"
        )


def _file_system(storage: Storage, options: Options, runtime: Runtime) -> ChosenProvider:
    own = f"{storage.uri}/{_LEASE_FOLDER}"
    path = (options[FILE_LOCK_PATH] or "").strip() or None  # none where it is empty, as in Hudi
    folder = storage if path is None else open_storage(path)
    if not storage.is_file_system or not folder.is_file_system:
        where = FILE_LOCK_PATH.key + "=" + str(path) if storage.is_file_system else storage.uri
        raise ConfigError(
            f"{LOCK_PROVIDER.key}={FILE_SYSTEM}: {where} is in an object store, where Hudi's provider does not work: "
            f"set {STORAGE} for all writers of the table"
        )
    expire_ms = 60_000 * options[FILE_LOCK_EXPIRE]
    renew_ms = expire_ms // _RENEWALS  # Hudi deletes a lock of this package after that time, too
    if path is None or folder.uri == own:
        return ChosenProvider(FILE_SYSTEM, storage.uri, shared=SharedLockFile(expire_ms), renew_ms=renew_ms)

    def new(owner: Owner) -> LockProvider:
        return FileSystemBasedLockProvider(folder, storage.uri, owner, expire_ms, runtime)

    return ChosenProvider(FILE_SYSTEM, storage.uri, new, renew_ms=renew_ms)


def _own(name: str) -> NewLockProvider:
    """Import an implementation that is named as ``module:Class``."""
    module, _, attribute = name.partition(":")
    what = f"{LOCK_PROVIDER.key}={name}"
    try:
        found: object = import_module(module)
    except Exception as error:
        raise ConfigError(
            f"{what}: module {module!r} cannot be imported ({type(error).__name__}: {error}): install it where the "
            "driver runs, or correct the name"
        ) from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigError(f"{what}: module {module!r} has no class or function {attribute!r}")
    try:
        inspect.signature(found).bind(None, None, None)
    except TypeError as error:
        raise ConfigError(
            f"{what}: it is called with storage, options and owner ({error}); see streaming_lsm.LockProvider"
        ) from None
    except ValueError:
        pass  # a class without a signature, such as one of an extension module
    return cast(NewLockProvider, found)
