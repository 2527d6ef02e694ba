"""Check once per process and root that a store can be written to, and honours the conditions of puts.

A store that ignores them would let two writers have the same lock. The *probe* is an object beside the table's files.
It is created if absent, and then must neither be created again nor be replaced by another version than it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import obstore

from streaming_lsm.errors import ConfigError
from streaming_lsm.storage.objects.connection import Connection
from streaming_lsm.storage.objects.failures import CONFLICTS, STORE_ERRORS, failure

if TYPE_CHECKING:
    from obstore import PutMode, UpdateVersion

PROBE_NAME = ".lsm-probe"

_CONTENT = b"Made by streaming_lsm, to see whether this store honours conditional puts.\n"
_NO_VERSION: UpdateVersion = {"e_tag": '"00000000000000000000000000000000"', "version": "1"}


def check_conditional_puts(connection: Connection, key: str, root: str) -> None:
    """Check a store before its first change by this process.

    Args:
        connection: clients of the container.
        key: key of the probe.
        root: URI of the root, for errors.

    Raises:
        ConfigError: the store ignores the conditions of puts.
        StorageError, PermissionError, OSError: it cannot be written to.
    """
    if key in connection.checked:
        return
    try:
        created = _is_accepted(connection, key, "create") and _is_accepted(connection, key, "create")
        if created or _is_accepted(connection, key, _NO_VERSION):
            raise ConfigError(
                f"{root}: this store ignores the conditions of puts (If-None-Match, If-Match), by which writers are "
                "kept apart: use a store or a release of it that honours them"
            )
    except STORE_ERRORS as error:
        raise failure(root, error) from None
    connection.checked.add(key)


def _is_accepted(connection: Connection, key: str, mode: PutMode) -> bool:
    try:
        obstore.put(connection.store, key, _CONTENT, mode=mode, use_multipart=False)
    except CONFLICTS:
        return False
    return True
