"""Create, drop and rebuild indexes; all but ``files`` are built while other writers go on.

An index is registered in the table's properties last, and removed from there first: a process that dies in between
leaves a table without it, whose readers read more files.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.errors import ConfigError, CorruptFileError, UnsupportedTable
from streaming_lsm.format.metadata.record_index import parse_shard
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.format.table.properties import listed
from streaming_lsm.metadata.creation import PARTITIONS_KEY
from streaming_lsm.metadata.dropping import partition_names
from streaming_lsm.metadata.file_slices import METADATA_TABLE
from streaming_lsm.metadata.followed_columns import flat_columns
from streaming_lsm.metadata.index_definitions import read_definitions
from streaming_lsm.metadata.partitions.registry import is_known
from streaming_lsm.services.context import ServiceContext
from streaming_lsm.services.indexes.names import (
    COLUMN_STATS,
    EXPRESSION,
    FILES,
    OPTIONS,
    RECORD_INDEX,
    SECONDARY,
    in_order,
    is_refused,
    with_dependents,
)
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.locked_table import Beside

_LOG = logging.getLogger(__name__)


def create_index(context: ServiceContext, name: str, form: Options) -> None:
    """Create an index of all rows and files that the table has, while other writers go on.

    Args:
        context: the table; its options tell the form of the index, as they do for one that a write creates.
        name: a partition of the metadata table; ``files`` for the metadata table itself.
        form: options of the index, beside those of the table.

    Raises:
        ConfigError: there is one, its name is not known, the options refuse it, or there is no metadata table.
        UnsupportedTable: it cannot be made for this table.
        CommitConflict: other writers held the lock for longer than the options say to wait, or are completing an
            action; another process builds the index; the columns of the table changed meanwhile; or a pending clean
            deletes files that the index is made of.
        Fenced: another writer took this one for dead.
    """
    context.config.check_changeable(context.storage.uri)
    _check_known(name)
    if is_refused(name, context.options):
        raise ConfigError(f"the options say that {context.storage.uri} is to have no {name}: leave them out")
    registered = _registered(context.storage)
    if name in registered:
        raise ConfigError(f"{context.storage.uri} has {name} already: drop it first, or verify it with --repair")
    if name != FILES and FILES not in registered:
        raise ConfigError(f"{context.storage.uri} has no metadata table: create the index {FILES!r} first")
    context.timelines.known = None
    try:
        _make(context, name, form)
    except UnsupportedTable as error:
        raise UnsupportedTable(f"{name} cannot be created in {context.storage.uri}: {error}") from None


def drop_index(context: ServiceContext, name: str) -> None:
    """Drop an index; ``files`` with all others.

    Args:
        context: the table.
        name: a partition of the metadata table, also one that this package does not keep up to date.

    Raises:
        ConfigError: there is no such index.
        CommitConflict, Fenced: see `create_index`.
    """
    context.config.check_changeable(context.storage.uri)
    found = partition_names(load_properties(context.storage))
    if name not in found:
        there = ", ".join(found) or "none"
        raise ConfigError(f"{context.storage.uri} has no index {name!r}; it has {there}")
    context.timelines.known = None
    with context.new_transaction(Beside.ALL) as tx:
        tx.drop_indexes([name], "dropped on request")


def rebuild_indexes(context: ServiceContext, names: Sequence[str]) -> list[str]:
    """Drop indexes and create them again, in the form that they have, with those that need one of them.

    Args:
        context: the table.
        names: indexes that the table has.

    Returns:
        The indexes that were created.

    Raises:
        ConfigError: there is no such index, or the options refuse it; nothing was changed.
        UnsupportedTable, CommitConflict, Fenced: see `create_index`; an index that was not created is dropped.
    """
    context.config.check_changeable(context.storage.uri)
    registered = [name for name in _registered(context.storage) if is_known(name)]
    for name in names:
        _check_known(name)
        if name not in registered or is_refused(name, context.options):
            raise ConfigError(f"{context.storage.uri} has no index {name!r}, or the options refuse it")
    kept = [name for name in registered if not is_refused(name, context.options)]
    made = in_order(with_dependents(names, kept))
    forms = _forms(context.storage, context.load_timeline(), context.options)
    context.timelines.known = None
    with context.new_transaction(Beside.ALL) as tx:
        tx.drop_indexes(made, "built again on request")
    for name in made:
        _make(context, name, forms.get(name, Options()))
    _LOG.info("built %s of %s again", ", ".join(made), context.storage.uri)
    return made


def _make(context: ServiceContext, name: str, form: Options) -> None:
    with context.new_transaction(Beside.ALL) as tx:
        if name == FILES:
            tx.add_index(name, form)
        else:
            tx.build_index(name, form)


def _check_known(name: str) -> None:
    if not is_known(name):
        expected = f"{', '.join(OPTIONS)}, {SECONDARY}<name> and {EXPRESSION}<name>"
        raise ConfigError(f"there is no index {name!r} that can be created: expected one of {expected}")


def _registered(storage: Storage) -> list[str]:
    return list(listed(load_properties(storage).get(PARTITIONS_KEY, "")))


def _forms(storage: Storage, data: Timeline, given: Options) -> Mapping[str, Options]:
    """Return the options that make indexes as they are now, before a transaction drops damaged ones.

    What the options of the table say themselves stays.
    """
    found: Mapping[str, Mapping[str, Any]] = {}
    properties = load_properties(storage)
    with suppress(CorruptFileError, UnsupportedTable):
        found = read_definitions(storage, properties)
    avro = data.table_schema() or properties.get("hoodie.table.create.schema")
    flat = flat_columns(avro) if avro else {}
    columns = found.get(COLUMN_STATS, {}).get("sourceFields")
    own = [column for column in columns if column in flat] if isinstance(columns, list) else []
    is_said = given.is_set(config.RECORD_INDEX) or given.is_set(config.PARTITIONED_RECORD_INDEX)
    by_path = None if is_said else _is_by_partition(storage, found.get(RECORD_INDEX, {}))
    ranged = own if not given[config.METADATA_RANGED_COLUMNS] else []
    columns_of = {name: definition.get("sourceFields") for name, definition in found.items()}
    return {
        **{
            name: Options({config.SECONDARY_INDEX_COLUMN.key: columns[0]})
            for name, columns in columns_of.items()
            if name.startswith(SECONDARY) and isinstance(columns, list) and columns
        },
        **{
            name: Options(
                {
                    config.EXPRESSION_COLUMN.key: columns[0],
                    config.EXPRESSION_FUNCTION.key: found[name].get("indexFunction"),
                }
            )
            for name, columns in columns_of.items()
            if name.startswith(EXPRESSION) and isinstance(columns, list) and columns
        },
        COLUMN_STATS: Options({config.METADATA_RANGED_COLUMNS.key: ranged} if ranged else {}),
        RECORD_INDEX: Options({config.PARTITIONED_RECORD_INDEX.key: by_path} if by_path is not None else {}),
    }


def _is_by_partition(storage: Storage, definition: Mapping[str, Any]) -> bool | None:
    """Return whether the record index has file groups for each partition of the table; None if that is not known."""
    told = definition.get("indexOptions")
    if isinstance(told, dict) and isinstance(told.get("isPartitioned"), str):
        return str(told["isPartitioned"]).lower() == "true"
    parsed = (parse_file_name(name) for name in storage.names(f"{METADATA_TABLE}/{RECORD_INDEX}"))
    shards = [shard for name in parsed if name is not None and (shard := parse_shard(name.file_id)) is not None]
    return shards[0][0] is not None if shards else None
