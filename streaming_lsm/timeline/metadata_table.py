"""Dropping a metadata table: a writer that cannot keep it up to date must remove it (format 07, Metadata table)."""

from __future__ import annotations

import logging

from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.properties_file import load_properties, update_properties

METADATA_TABLE = ".hoodie/metadata"
INDEX_DEFINITIONS = ".hoodie/.index_defs"
_PARTITIONS = ("hoodie.table.metadata.partitions", "hoodie.table.metadata.partitions.inflight")
_DEFINITIONS = "hoodie.table.index.defs.path"

_LOG = logging.getLogger(__name__)


def drop_metadata_table(storage: Storage) -> None:
    """Remove the metadata table, if there is one; the table's lock must be held.

    The properties go first: readers then list folders, as they do in tables without a metadata table. Hudi builds it
    anew with its next write, unless ``hoodie.metadata.enable`` is false there.
    """
    properties = load_properties(storage)
    if not any(properties.get(key, "").strip() for key in _PARTITIONS):
        return
    update_properties(storage, dict.fromkeys([*_PARTITIONS, _DEFINITIONS]))
    storage.delete_folder(METADATA_TABLE)
    storage.delete_folder(INDEX_DEFINITIONS)
    _LOG.warning("dropped the metadata table of %s, which this release cannot keep up to date", storage.uri)
