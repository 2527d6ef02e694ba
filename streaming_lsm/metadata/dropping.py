"""Drop a metadata table, or some of its partitions, so that no reader and no program uses what is not kept up to date.

What is dropped is removed from the table's properties first; leftovers of an interrupted call are deleted by the next
transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from streaming_lsm.format.metadata.files_partition import PARTITION
from streaming_lsm.format.table.properties import listed
from streaming_lsm.metadata.creation import DEFINITIONS_KEY, INFLIGHT_KEY, PARTITIONS_KEY
from streaming_lsm.metadata.file_slices import METADATA_TABLE
from streaming_lsm.metadata.index_definitions import INDEX_DEFINITIONS, keep_definitions
from streaming_lsm.metadata.partitions.base import KeptPartition
from streaming_lsm.metadata.partitions.registry import is_known
from streaming_lsm.metadata.removal import remove_folder
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import FLAT_FOLDER
from streaming_lsm.timeline.properties_file import load_properties, update_properties

_LOG = logging.getLogger(__name__)


def drop_metadata_table(storage: Storage, why: str, verify: Callable[[], None] = lambda: None) -> None:
    """Delete the metadata table, if there is one.

    It is removed from the properties first, so that readers list folders. Hudi creates a new one with its next write,
    unless ``hoodie.metadata.enable`` is false there.

    Args:
        why: reason, for the log.
        verify: raises `Fenced` if the caller does not hold the table's lock any more; by default nothing is verified,
            for tables without other writers.

    Raises:
        Fenced: another writer took the lock; a metadata table that it may have created was not deleted.
    """
    if not partition_names(load_properties(storage)):
        return
    update_properties(storage, dict.fromkeys([PARTITIONS_KEY, INFLIGHT_KEY, DEFINITIONS_KEY]), verify)
    _remove_table(storage, verify)
    remove_folder(storage, INDEX_DEFINITIONS, verify)
    _LOG.warning("dropped the metadata table of %s: %s", storage.uri, why)


def drop_others(
    storage: Storage,
    properties: Mapping[str, str],
    kept: Sequence[KeptPartition],
    verify: Callable[[], None],
    why: str = "not kept up to date",
    built: Collection[str] = (),
) -> None:
    """Drop all partitions that are not kept, and delete leftovers of partitions dropped before.

    Args:
        storage: the table.
        properties: its properties.
        kept: the partitions that are kept.
        verify: see `drop_metadata_table`.
        why: reason, for the log.
        built: partitions that living processes build, which are left to them.

    Raises:
        Fenced: another writer took the lock.
    """
    names = [one.name for one in kept]
    others = {name for name in partition_names(properties) if name not in (*names, *built)}
    definitions = {one.definition for one in kept} - {None}
    if others:
        announced = [name for name in listed(properties.get(INFLIGHT_KEY, "")) if name in built]
        changes = {PARTITIONS_KEY: ",".join(names), INFLIGHT_KEY: ",".join(announced)}
        update_properties(storage, changes if definitions else {**changes, DEFINITIONS_KEY: None}, verify)
        dropped = ", ".join(sorted(others))
        _LOG.warning("dropped %s from the metadata table of %s: %s", dropped, storage.uri, why)
    _remove_partitions(storage, verify, (*names, *built))
    if definitions:
        keep_definitions(storage, properties, definitions, verify)
    elif others or DEFINITIONS_KEY not in properties:
        _remove_definitions(storage, verify)


def remove_leftovers(storage: Storage, properties: Mapping[str, str], verify: Callable[[], None]) -> None:
    """Delete leftovers of a dropped metadata table; index definitions that the properties name are kept.

    Raises:
        Fenced: another writer took the lock.
    """
    if DEFINITIONS_KEY not in properties:
        _remove_definitions(storage, verify)
    if storage.exists(METADATA_TABLE):
        _remove_table(storage, verify)


def partition_names(properties: Mapping[str, str]) -> list[str]:
    """Return the names of the partitions that exist or are being built."""
    return [name for key in (PARTITIONS_KEY, INFLIGHT_KEY) for name in listed(properties.get(key, ""))]


def _remove_definitions(storage: Storage, verify: Callable[[], None]) -> None:
    if storage.exists(INDEX_DEFINITIONS):
        remove_folder(storage, INDEX_DEFINITIONS, verify)


def _remove_table(storage: Storage, verify: Callable[[], None]) -> None:
    with suppress(NotADirectoryError):
        _remove_partitions(storage, verify)
    remove_folder(storage, METADATA_TABLE, verify)


def _remove_partitions(storage: Storage, verify: Callable[[], None], kept: Collection[str] = (PARTITION,)) -> None:
    """Delete all partitions that are not kept: the folders of a metadata table in which this package never writes."""
    for name in storage.names(METADATA_TABLE):
        if name not in (*kept, FLAT_FOLDER):
            remove_folder(storage, f"{METADATA_TABLE}/{name}", verify, foreign=not is_known(name))
