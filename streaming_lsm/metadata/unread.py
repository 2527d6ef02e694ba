"""Warn of an index of the metadata table that cannot be read; what asked it goes on without it."""

from __future__ import annotations

import logging
import shlex

from streaming_lsm.metadata.file_slices import METADATA_TABLE
from streaming_lsm.storage.base import Storage

_LOG = logging.getLogger(__name__)


def warn_unread(storage: Storage, what: str, effect: str, error: Exception) -> None:
    """Warn that an index is not read, and tell how it is built again.

    Args:
        storage: the table.
        what: the partition of the metadata table, or the file, below its folder.
        effect: what is done without it.
        error: why it is not read.
    """
    where = f"{storage.uri}/{METADATA_TABLE}/{what}"
    command = f"lsm index verify {shlex.quote(storage.uri)} --repair"
    _LOG.warning("%s is not read, %s: %s; %s builds it again", where, effect, error, command)
