"""Build the config of a new table from options, and check options against the config of an existing table.

The settings in a table's config, stored in `hoodie.properties`, are fixed when the table is created.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pyarrow as pa

from streaming_lsm import config
from streaming_lsm.config import Option, Options
from streaming_lsm.errors import CommitConflict, ConfigError, SchemaError
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import MAX_BUCKETS
from streaming_lsm.format.table.key_generation import key_generator
from streaming_lsm.format.table.merge_mode import (
    COMMIT_TIME_ORDERING,
    CUSTOM,
    EVENT_TIME_ORDERING,
    FILL_UNAVAILABLE,
    STRATEGY_KEY,
    UNAVAILABLE,
    custom_strategy,
)
from streaming_lsm.format.table.properties import (
    AMBIGUOUS_KEYS_KEY,
    BUCKET_INDEX,
    CURRENT_VERSION,
    DEFAULT_LAYOUT,
    LSM_TREE,
    PARTITION_KINDS,
    RECORD_INDEXES,
    TABLE_TYPES,
    WRITE_VERSIONS,
    PartitionField,
)
from streaming_lsm.keys.generator import AMBIGUOUS, REFUSE, WARN
from streaming_lsm.lock.providers.choice import choose_provider
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.merge.record_merger import find_merger
from streaming_lsm.merge.rule import check_delete_marks
from streaming_lsm.schema import from_avro, to_avro
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH, create_table_files
from streaming_lsm.timeline.table_place import check_place
from streaming_lsm.write.intake.control_columns import CONTROL_PREFIX

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PARTIAL_VERSION = 9
"""First table version with a partial update mode; before, a payload class has its effect."""
_TIMESTAMP_OPTIONS = (
    config.TIMESTAMP_TYPE,
    config.TIMESTAMP_UNIT,
    config.TIMESTAMP_INPUT,
    config.TIMESTAMP_INPUT_DELIMITER,
    config.TIMESTAMP_OUTPUT,
    config.TIMESTAMP_INPUT_ZONE,
    config.TIMESTAMP_OUTPUT_ZONE,
    config.TIMESTAMP_ZONE,
)


def create_table(storage: Storage, options: Options, schema: pa.Schema) -> None:
    """Create an empty table in a folder.

    Args:
        schema: the columns, in the types that a table stores.

    Raises:
        ConfigError: options are missing or contradict each other; there is a table already, or another process creates
            it at the same time; or see `check_place`.
        SchemaError: a column name is reserved, or a type is nested too deeply to be read back.
    """
    new = new_table_config(options, schema)
    if TableConfig.from_properties(new.to_properties(), "new table") != new:
        raise ConfigError(
            f"the settings of table {new.name!r} change when they are stored in {PROPERTIES_PATH}; use names without "
            "special characters"
        )
    # What could not be opened is refused before the table is created.
    index_options(new, options)
    key_generator(new)
    from_avro(new.create_schema or "", f"table {new.name!r}")  # refuses a schema that readers could not decode
    choose_provider(storage, options, Runtime())  # refuses one that cannot be used
    over_files = options[config.CREATE_OVER_FILES]
    check_place(storage, over_files=over_files)
    ambiguous = options[config.AMBIGUOUS_KEYS] or REFUSE
    properties = {**new.to_properties(), AMBIGUOUS_KEYS_KEY: ambiguous}
    try:
        # Checked before anything is created, and again when another creation can see this one.
        create_table_files(storage, properties, verify=lambda: check_place(storage, over_files=over_files))
    except CommitConflict as error:
        raise ConfigError(str(error)) from None


def new_table_config(options: Options, schema: pa.Schema) -> TableConfig:
    """Build the config of a new table.

    Args:
        options: must set at least the table's name and record key fields.
        schema: the table's columns, without meta columns.

    Raises:
        ConfigError: an option is missing, or two contradict each other.
        SchemaError: an option names a column that the schema lacks.
    """
    name, keys = options[config.TABLE_NAME], options[config.RECORD_KEY_FIELDS]
    if not name or not name.strip():
        raise ConfigError("hoodie.table.name is not set; a new table needs a name")
    if not keys:
        raise ConfigError("hoodie.datasource.write.recordkey.field is not set; a new table needs a record key")
    reserved = [column for column in schema.names if column.startswith(CONTROL_PREFIX)]
    if reserved:
        raise SchemaError(f"column {reserved[0]!r} has the reserved prefix {CONTROL_PREFIX!r}; rename it")
    check_delete_marks(schema)
    partitions = partition_fields(options)
    ordering = options[config.ORDERING_FIELDS]
    _check_columns(schema, config.RECORD_KEY_FIELDS, keys)
    _check_columns(schema, config.PARTITION_FIELDS, tuple(part.name for part in partitions))
    _check_ordering(schema, ordering)
    delete_field, delete_marker = _delete_marking(options)
    if delete_field is not None:
        _check_columns(schema, config.DELETE_FIELD, (delete_field,))
    _check_version(options)
    _check_numbers(options)
    index_type = _index_type(options)
    return TableConfig(
        name=name,
        record_key_fields=keys,
        num_buckets=options[config.NUM_BUCKETS] if index_type == BUCKET_INDEX else 0,
        database=options[config.DATABASE_NAME],
        partition_fields=partitions,
        ordering_fields=ordering,
        merge_mode=_merge_mode(options, ordering),
        key_generator=_key_generator(options, keys, partitions),
        hive_style=options[config.HIVE_STYLE],
        url_encode=options[config.URL_ENCODE],
        timeline_zone=options[config.TIMELINE_ZONE] or "UTC",
        hash_fields=_hash_fields(options, keys),
        delete_field=delete_field,
        delete_marker=delete_marker,
        timestamp_options={o.key: str(options[o]) for o in _TIMESTAMP_OPTIONS if options.is_set(o)},
        logical_timestamp=options[config.LOGICAL_TIMESTAMP],
        create_schema=to_avro(schema, name),
        table_type=options[config.TABLE_TYPE] or TABLE_TYPES[0],
        version=options[config.TABLE_VERSION],
        storage_layout=_storage_layout(options),
        merge_strategy=_merge_strategy(options),
        partial_mode=_partial_mode(options),
        unavailable=_unavailable(options),
        cdc_mode=_cdc_mode(options),
        index_type=index_type,
    )


def _index_type(options: Options) -> str:
    """Return the type of the index; options of the bucket index that are set with another one are refused."""
    chosen = options[config.INDEX_TYPE] or BUCKET_INDEX
    for option in (config.NUM_BUCKETS, config.HASH_FIELDS, config.BUCKET_ENGINE):
        if chosen != BUCKET_INDEX and options.is_set(option):
            raise ConfigError(f"{option.key} is set with {config.INDEX_TYPE.key}={chosen}, which has no buckets")
    return chosen


def _partial_mode(options: Options) -> str | None:
    mode, version = options[config.PARTIAL_MODE], options[config.TABLE_VERSION]
    if mode is not None and version < _PARTIAL_VERSION:
        raise ConfigError(
            f"{config.PARTIAL_MODE.key}={mode} needs {config.TABLE_VERSION.key}={_PARTIAL_VERSION} or later, not "
            f"{version}"
        )
    return mode


def _unavailable(options: Options) -> str:
    """Return the text that marks a value as not sent; empty unless the table is to have FILL_UNAVAILABLE."""
    if options[config.PARTIAL_MODE] == FILL_UNAVAILABLE:
        return options[config.PARTIAL_UNAVAILABLE] or UNAVAILABLE
    if options.is_set(config.PARTIAL_UNAVAILABLE):
        raise ConfigError(
            f"{config.PARTIAL_UNAVAILABLE.key} is set without {config.PARTIAL_MODE.key}={FILL_UNAVAILABLE}"
        )
    return ""


def _cdc_mode(options: Options) -> str | None:
    """Return the supplemental logging mode; None without change data capture."""
    if not options[config.CDC_ENABLED]:
        if options.is_set(config.CDC_MODE):
            raise ConfigError(f"{config.CDC_MODE.key} is set without {config.CDC_ENABLED.key}=true: set both or none")
        return None
    return options[config.CDC_MODE]


def _storage_layout(options: Options) -> str:
    """Return the layout from the options, by default ``lsm_tree`` if the version has it."""
    version = options[config.TABLE_VERSION]
    chosen = options[config.STORAGE_LAYOUT] or (LSM_TREE if version >= CURRENT_VERSION else DEFAULT_LAYOUT)
    if chosen == LSM_TREE and version < CURRENT_VERSION:
        raise ConfigError(
            f"{config.STORAGE_LAYOUT.key}={LSM_TREE} needs {config.TABLE_VERSION.key}={CURRENT_VERSION}, not {version}"
        )
    return chosen


def with_index(table: TableConfig, options: Options) -> TableConfig:
    """Complete the config of a table that stores no bucket index with the index of the options, if they set one.

    Types of index that look keys up may take turns, but a table that was created with one gets no buckets.

    Raises:
        ConfigError: a hash field is not a record key field, or there are too many buckets.
    """
    asked = options[config.INDEX_TYPE] or BUCKET_INDEX
    if options.is_set(config.INDEX_TYPE) and asked != BUCKET_INDEX:
        return replace(table, index_type=asked)
    if not (options.is_set(config.NUM_BUCKETS) and table.has_buckets):
        return table
    _check_numbers(options)
    fields = _hash_fields(options, table.record_key_fields)
    return replace(table, num_buckets=options[config.NUM_BUCKETS], hash_fields=fields)


def index_options(table: TableConfig, given: Options) -> dict[str, object]:
    """List the options that follow from the index of a table, unless others are set.

    Args:
        table: the table.
        given: the options with which it is opened.

    Raises:
        ConfigError: these ask for a record index of another form than that of the table's type.
    """
    if table.has_buckets:
        return {}
    _check_record_index(given, table)
    options: dict[str, object] = {config.INDEX_TYPE.key: table.index_type}
    if table.index_type in RECORD_INDEXES:
        by_partition = not table.has_global_index
        option = config.PARTITIONED_RECORD_INDEX if by_partition else config.RECORD_INDEX
        options |= {config.METADATA_ENABLE.key: True, option.key: True}
    return options


def _check_record_index(options: Options, table: TableConfig) -> None:
    if table.index_type not in RECORD_INDEXES or not table.has_global_index:
        return
    if options[config.PARTITIONED_RECORD_INDEX]:
        raise ConfigError(
            f"{config.PARTITIONED_RECORD_INDEX.key}=true makes a record index of each partition, and "
            f"{config.INDEX_TYPE.key}={table.index_type} looks keys up in one of all: leave the first out, or choose "
            "RECORD_LEVEL_INDEX"
        )


def copied_options(table: TableConfig) -> dict[str, object]:
    """List the options that give a new table the settings of another one, except its version and layout."""
    left: tuple[Option[object], ...] = (config.TABLE_VERSION, config.STORAGE_LAYOUT)
    found = {option: value for option, value in _fixed(table).items() if option not in left}
    buckets = {} if table.num_buckets else {config.NUM_BUCKETS: None, config.HASH_FIELDS: None}
    return {option.key: value for option, value in {**found, **buckets}.items() if value not in (None, ())}


def partition_fields(options: Options) -> tuple[PartitionField, ...]:
    """Parse the partition columns and their kinds from ``column``, ``column:SIMPLE`` or ``column:TIMESTAMP``."""
    found = []
    for text in options[config.PARTITION_FIELDS]:
        name, colon, kind = text.partition(":")
        if colon and kind.upper() not in PARTITION_KINDS:
            kinds = ", ".join(PARTITION_KINDS)
            raise ConfigError(f"{config.PARTITION_FIELDS.key}={text!r}: the kind is one of {kinds}")
        found.append(PartitionField(name, kind.upper() if colon else _default_kind(options)))
    return tuple(found)


def _default_kind(options: Options) -> str:
    return "TIMESTAMP" if options[config.KEY_GENERATOR] == "TIMESTAMP" else "SIMPLE"


def _key_generator(options: Options, keys: tuple[str, ...], partitions: tuple[PartitionField, ...]) -> str:
    """Return the key generator from the options, by default the one that Hudi infers from the columns."""
    typed = any(":" in text for text in options[config.PARTITION_FIELDS])
    inferred = "SIMPLE" if len(keys) == len(partitions) == 1 else "COMPLEX"
    if not partitions:
        inferred = "NON_PARTITION"
    elif typed:
        inferred = "CUSTOM"
    chosen = options[config.KEY_GENERATOR] or inferred
    wrong = {
        "SIMPLE": len(keys) != 1 or len(partitions) != 1,
        "TIMESTAMP": len(keys) != 1 or len(partitions) != 1,
        "NON_PARTITION": bool(partitions),
        "COMPLEX": typed,
        "CUSTOM": bool(partitions) and not typed,
    }[chosen]
    if wrong:
        raise ConfigError(
            f"key generator {chosen} does not fit record key {','.join(keys)!r} with partition "
            f"{','.join(options[config.PARTITION_FIELDS])!r}; leave {config.KEY_GENERATOR.key} out to have it inferred"
        )
    return chosen


def _merge_mode(options: Options, ordering: tuple[str, ...]) -> str:
    mode = options[config.MERGE_MODE] or (EVENT_TIME_ORDERING if ordering else COMMIT_TIME_ORDERING)
    if mode == EVENT_TIME_ORDERING and not ordering:
        raise ConfigError(f"{config.MERGE_MODE.key}={EVENT_TIME_ORDERING} needs {config.ORDERING_FIELDS.key}")
    strategy = options[config.MERGE_STRATEGY]
    if (mode == CUSTOM) != (strategy is not None):
        raise ConfigError(
            f"{config.MERGE_MODE.key}={CUSTOM} and {config.MERGE_STRATEGY.key} go together; set both or neither"
        )
    if mode == CUSTOM and (options[config.PARTIAL_MODE] or options[config.TABLE_VERSION] < _PARTIAL_VERSION):
        raise ConfigError(
            f"{config.MERGE_MODE.key}={CUSTOM} needs {config.TABLE_VERSION.key}={_PARTIAL_VERSION} or later, and no "
            f"{config.PARTIAL_MODE.key}"
        )
    return mode


def _merge_strategy(options: Options) -> str:
    """Return the id of a record merger that is installed; empty for the other merge modes.

    Raises:
        ConfigError: it is no UUID, or one of Hudi's.
        UnsupportedTable: no installed package offers it.
    """
    strategy = _strategy_id(options)
    if strategy:
        if not _UUID.fullmatch(strategy):
            raise ConfigError(f"{config.MERGE_STRATEGY.key}={strategy!r}: expected a UUID, the id of a record merger")
        if not custom_strategy({STRATEGY_KEY: strategy}):
            raise ConfigError(f"{config.MERGE_STRATEGY.key}={strategy}: an id of Hudi's; give that of a record merger")
        find_merger(strategy, "new table")
    return strategy


def _strategy_id(options: Options) -> str:
    """Return the id as a table has it; empty if none is given."""
    return (options[config.MERGE_STRATEGY] or "").strip().lower()


def _hash_fields(options: Options, keys: tuple[str, ...]) -> tuple[str, ...]:
    fields = options[config.HASH_FIELDS] or keys
    strangers = [name for name in fields if name not in keys]
    if strangers:
        raise ConfigError(f"{config.HASH_FIELDS.key}: {strangers[0]!r} is not a record key field")
    return fields


def _delete_marking(options: Options) -> tuple[str | None, str | None]:
    field, marker = options[config.DELETE_FIELD], options[config.DELETE_MARKER]
    if (field is None) != (marker is None):
        raise ConfigError(f"{config.DELETE_FIELD.key} and {config.DELETE_MARKER.key} go together; set both or neither")
    return field, marker


def _check_version(options: Options) -> None:
    if options[config.TABLE_VERSION] not in WRITE_VERSIONS:
        versions = ", ".join(map(str, WRITE_VERSIONS))
        raise ConfigError(
            f"{config.TABLE_VERSION.key}={options[config.TABLE_VERSION]}: choose one of the versions {versions}"
        )


def _check_numbers(options: Options) -> None:
    if options[config.NUM_BUCKETS] > MAX_BUCKETS:
        raise ConfigError(f"{config.NUM_BUCKETS.key}={options[config.NUM_BUCKETS]}: the maximum is {MAX_BUCKETS}")


def _check_ordering(schema: pa.Schema, names: tuple[str, ...]) -> None:
    _check_columns(schema, config.ORDERING_FIELDS, names)
    for name in names:
        if name not in schema.names:
            raise SchemaError(
                f"{config.ORDERING_FIELDS.key}: no column {name!r}; the columns are {', '.join(schema.names)}"
            )
        if pa.types.is_nested(schema.field(name).type):
            raise SchemaError(
                f"{config.ORDERING_FIELDS.key}: column {name!r} has type {schema.field(name).type}, "
                "whose values have no order; choose another column"
            )


def _check_columns(schema: pa.Schema, option: Option[Any], names: tuple[str, ...]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ConfigError(f"{option.key}: column {repeated[0]!r} appears more than once; name it once")
    for name in names:
        if name not in schema.names and name.partition(".")[0] not in schema.names:
            raise SchemaError(f"{option.key}: no column {name!r}; the columns are {', '.join(schema.names)}")


def ambiguous_keys(options: Options, table: TableConfig) -> str:
    """Return the handling of ambiguous record keys: from the options, else from the table, by default a warning."""
    stored = table.properties.get(AMBIGUOUS_KEYS_KEY, WARN)
    return options[config.AMBIGUOUS_KEYS] or (stored if stored in AMBIGUOUS else WARN)


def check_options(options: Options, table: TableConfig, path: str) -> None:
    """Check options against the config of the table they are used with.

    Raises:
        ConfigError: an option differs from the table's setting; the message names both values.
    """
    upgrades = options[config.AUTO_UPGRADE] and options[config.TABLE_VERSION] > table.version
    for option, stored in _fixed(table).items():
        if option is config.TABLE_VERSION and upgrades:
            continue
        if options.is_set(option) and stored != _asked(option, options, table):
            created = "without it" if stored is None or stored == () else f"with {_shown(stored)}"
            raise ConfigError(
                f"{option.key}={_shown(options[option])} but the table at {path} was created {created}; leave the "
                "option out or write to another table"
            )


def _asked(option: Option[object], options: Options, table: TableConfig) -> object:
    """Return the value of an option as a table has it: partition columns with their kinds, ids in lower case."""
    if option is config.MERGE_STRATEGY:
        return _strategy_id(options) or None
    if option is not config.PARTITION_FIELDS:
        return options[option]
    asked = [text.partition(":") for text in options[config.PARTITION_FIELDS]]
    usual = "TIMESTAMP" if table.key_generator == "TIMESTAMP" else "SIMPLE"
    typed = table.key_generator == "CUSTOM"
    return tuple(
        f"{name}:{(kind or usual).upper()}" if typed or (kind or usual).upper() != usual else name
        for name, _, kind in asked
    )


def _fixed(table: TableConfig) -> dict[Option[object], object]:
    """Map each fixed option to the table's setting."""
    typed = table.key_generator == "CUSTOM"
    partitions = tuple(f"{p.name}:{p.kind}" if typed else p.name for p in table.partition_fields)
    return {
        config.TABLE_NAME: table.name,
        config.DATABASE_NAME: table.database,
        config.TABLE_TYPE: table.table_type,
        config.TABLE_VERSION: table.version,
        config.STORAGE_LAYOUT: table.storage_layout,
        config.RECORD_KEY_FIELDS: table.record_key_fields,
        config.PARTITION_FIELDS: partitions,
        config.ORDERING_FIELDS: table.ordering_fields,
        config.MERGE_MODE: table.merge_mode,
        config.KEY_GENERATOR: table.key_generator,
        config.HIVE_STYLE: table.hive_style,
        config.URL_ENCODE: table.url_encode,
        config.INDEX_TYPE: table.index_type,
        config.NUM_BUCKETS: table.num_buckets,
        config.HASH_FIELDS: table.hash_fields,
        config.DELETE_FIELD: table.delete_field,
        config.DELETE_MARKER: table.delete_marker,
        config.MERGE_STRATEGY: table.merge_strategy or None,
        config.PARTIAL_MODE: table.partial_mode,
        config.PARTIAL_UNAVAILABLE: table.unavailable or None,
        config.TIMELINE_ZONE: table.timeline_zone,
        config.CDC_ENABLED: table.cdc_mode is not None,
        config.CDC_MODE: table.cdc_mode,
        config.LOGICAL_TIMESTAMP: table.logical_timestamp,
        **{option: table.timestamp_options.get(option.key, option.default) for option in _TIMESTAMP_OPTIONS},
    }


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
