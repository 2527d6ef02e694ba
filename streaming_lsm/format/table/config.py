"""Convert ``hoodie.properties`` to a typed table configuration and back.

See docs/format/01-table.md, "hoodie.properties"; docs/format/10-rules.md, "Rule 31", "Rule 33".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.table.merge_mode import (
    COMMIT_TIME_ORDERING,
    DELETE_FIELD_KEY,
    DELETE_MARKER_KEY,
    FILL_UNAVAILABLE,
    PARTIAL_KEY,
    UNAVAILABLE_KEY,
    merge_keys,
    merge_settings,
)
from streaming_lsm.format.table.properties import (
    BUCKET_INDEX,
    CDC_KEY,
    CDC_MODE_KEY,
    CURRENT_VERSION,
    GLOBAL_INDEXES,
    HASH_FIELDS_KEY,
    INDEX_TYPE_KEY,
    LAYOUT_VERSION_KEY,
    LOGICAL_TIMESTAMP_KEY,
    LSM_TREE,
    META_FIELDS_KEY,
    NUM_BUCKETS_KEY,
    STORAGE_LAYOUT_KEY,
    SUPPORTED,
    TABLE_TYPES,
    WRITE_VERSIONS,
    PartitionField,
    PropertiesReader,
    listed,
    ordering_fields,
    table_checksum,
    timestamp_options,
)
from streaming_lsm.schema import IS_DELETED


@dataclass(frozen=True, slots=True)
class TableConfig:
    """Configuration of a table, fixed at its creation except for upgrades.

    Attributes:
        ordering_fields: columns whose values decide which of two records with the same key is newer; may be empty.
        num_buckets: buckets per partition; 0 if the properties have none. With a bucket index the table is read-only
            then.
        merge_mode: one of `merge_mode.MERGE_MODES`, or `merge_mode.CUSTOM`.
        merge_strategy: the id of the record merger, for CUSTOM; else empty.
        partial_mode: partial update mode, by which columns of the losing record fill those of the winner; None: not at
            all.
        unavailable: text that marks a value as not sent.
        key_generator: one of `KEY_GENERATORS`.
        timeline_zone: ``UTC`` or ``LOCAL``, the time zone of instants.
        hash_fields: record key fields that are hashed to the bucket; all of them if the properties have none.
        delete_field, delete_marker: column, and its value as text, that mark a row as a delete; both or neither.
        timestamp_options: the ``hoodie.keygen.timebased.*`` keys that are set.
        create_schema: Avro JSON of the schema at creation.
        table_type: one of `TABLE_TYPES`.
        version: one of `READ_VERSIONS`.
        storage_layout: ``lsm_tree``, where every file is sorted by record key, or ``default``.
        timeline_layout: 1 up to table version 6, 2 in later versions.
        index_type: ``BUCKET``, or one of `properties.LOOKUP_INDEXES`.
        cdc_mode: supplemental logging mode of change data capture, one of `properties.CDC_MODES`; None: not captured.
        properties: the raw properties; preserves unknown keys.
    """

    name: str
    record_key_fields: tuple[str, ...]
    num_buckets: int
    database: str | None = None
    partition_fields: tuple[PartitionField, ...] = ()
    ordering_fields: tuple[str, ...] = ()
    merge_mode: str = COMMIT_TIME_ORDERING
    key_generator: str = "NON_PARTITION"
    hive_style: bool = False
    url_encode: bool = False
    timeline_zone: str = "UTC"
    hash_fields: tuple[str, ...] = ()
    delete_field: str | None = None
    delete_marker: str | None = None
    timestamp_options: Mapping[str, str] = field(default_factory=dict)
    logical_timestamp: bool = False
    create_schema: str | None = None
    table_type: str = TABLE_TYPES[0]
    version: int = CURRENT_VERSION
    storage_layout: str = LSM_TREE
    timeline_layout: int = 2
    partial_mode: str | None = None
    unavailable: str = ""
    merge_strategy: str = ""
    cdc_mode: str | None = None
    index_type: str = BUCKET_INDEX
    properties: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.hash_fields:
            object.__setattr__(self, "hash_fields", self.record_key_fields)

    @property
    def is_copy_on_write(self) -> bool:
        """Whether every write creates new base files, and no logs."""
        return self.table_type == "COPY_ON_WRITE"

    @property
    def has_buckets(self) -> bool:
        """Whether the bucket of a key tells its file group; else its key is looked up."""
        return self.index_type == BUCKET_INDEX

    @property
    def has_global_index(self) -> bool:
        """Whether a record key is looked up in all partitions."""
        return self.index_type in GLOBAL_INDEXES

    @property
    def is_lsm_tree(self) -> bool:
        """Whether every file is sorted by record key."""
        return self.storage_layout == LSM_TREE

    @property
    def has_native_logs(self) -> bool:
        """Whether new logs are native logs and not inline logs.

        See docs/format/03-native-logs.md, "Version gating".
        """
        return self.version >= CURRENT_VERSION

    @property
    def named_columns(self) -> frozenset[str]:
        """The columns from which keys, partition paths, order and deletes are made, as the properties name them."""
        partition = (part.name for part in self.partition_fields)
        marks = (IS_DELETED, self.delete_field or IS_DELETED)
        return frozenset((*self.record_key_fields, *self.hash_fields, *partition, *self.ordering_fields, *marks))

    @property
    def folds_logs_first(self) -> bool:
        """Whether unsorted logs are folded before their outcome meets the base row, as in Hudi's releases.

        See docs/format/05-merge.md, "Pairwise rule".
        """
        return self.version < CURRENT_VERSION

    def check_changeable(self, source: str) -> None:
        """Check that this release can modify tables of this version.

        Raises:
            UnsupportedTable: tables of this version are read-only.
        """
        if self.version not in WRITE_VERSIONS:
            raise UnsupportedTable(
                f"{source}: tables of version {self.version} are only read; `lsm copy` makes a new one of it"
            )

    def check_writable(self, source: str) -> None:
        """Check that this release can write rows to this table, besides reading and compacting it.

        Raises:
            UnsupportedTable: rows cannot be written; the message says why.
        """
        self.check_changeable(source)
        if self.has_buckets and not self.num_buckets:
            raise UnsupportedTable(
                f"{source}: the table does not say where a key is stored: set hoodie.index.type to the type of its "
                "index (Hudi's default is SIMPLE in Spark), or, with the type BUCKET, hoodie.bucket.index.num.buckets "
                "to the number that it was written with (Hudi's default is 256)"
            )

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        """Available partitions of the metadata table; readers use them, so a writer must maintain or remove them."""
        return listed(self.properties.get("hoodie.table.metadata.partitions", ""))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], source: str) -> TableConfig:
        """Parse the properties, and check that this package can read the table.

        Args:
            properties: the parsed file.
            source: the file, for messages.

        Raises:
            UnsupportedTable: another version, layout, type or a feature that is not supported.
            CorruptFileError: a required key is missing, damaged or malformed, or the checksum does not match the name.
        """
        reader = PropertiesReader(properties, source)
        reader.check_keys()
        version = reader.version()
        reader.check_supported()
        reader.check_checksum()
        key_generator = reader.key_generator()
        merging = merge_settings(properties, version, source)
        keys = reader.key_fields()
        return cls(
            name=reader.needed("hoodie.table.name"),
            record_key_fields=keys,
            num_buckets=reader.num_buckets(),
            database=properties.get("hoodie.database.name") or None,
            partition_fields=reader.partition_fields(key_generator),
            ordering_fields=ordering_fields(properties),
            merge_mode=merging.mode,
            key_generator=key_generator,
            hive_style=reader.flag("hoodie.datasource.write.hive_style_partitioning"),
            url_encode=reader.flag("hoodie.datasource.write.partitionpath.urlencode"),
            timeline_zone=reader.choice("hoodie.table.timeline.timezone", ("UTC", "LOCAL"), "LOCAL"),
            hash_fields=reader.hash_fields(keys),
            delete_field=merging.delete_field,
            delete_marker=merging.delete_marker,
            timestamp_options=timestamp_options(properties),
            logical_timestamp=reader.flag(LOGICAL_TIMESTAMP_KEY),
            create_schema=properties.get("hoodie.table.create.schema") or None,
            table_type=reader.choice("hoodie.table.type", TABLE_TYPES),
            version=version,
            storage_layout=reader.storage_layout(version),
            timeline_layout=reader.timeline_layout(version),
            partial_mode=merging.partial,
            unavailable=merging.unavailable if merging.partial == FILL_UNAVAILABLE else "",
            merge_strategy=merging.strategy,
            cdc_mode=reader.cdc_mode(),
            index_type=reader.index_type(),
            properties=dict(properties),
        )

    def to_properties(self) -> dict[str, str]:
        """Print all keys of a table of this version, and the unknown keys of `properties`."""
        values: dict[str, str | None] = dict(self.properties)
        values |= {key: value for key, (value, _, _) in SUPPORTED.items()}
        values |= {
            "hoodie.table.name": self.name,
            "hoodie.table.type": self.table_type,
            "hoodie.table.version": str(self.version),
            STORAGE_LAYOUT_KEY: self.storage_layout if self.has_native_logs else None,
            META_FIELDS_KEY: "ALL" if self.has_native_logs else None,
            LAYOUT_VERSION_KEY: str(self.timeline_layout),
            "hoodie.table.initial.version": self.properties.get("hoodie.table.initial.version", str(self.version)),
            "hoodie.table.checksum": table_checksum(self.database, self.name),
            "hoodie.archivelog.folder": "history",
            "hoodie.table.recordkey.fields": ",".join(self.record_key_fields),
            "hoodie.table.partition.fields": self._printed_partition_fields(),
            "hoodie.table.partition_extractor_class": self._partition_extractor(),
            "hoodie.table.keygenerator.type": self.key_generator,
            "hoodie.datasource.write.hive_style_partitioning": _flag(self.hive_style),
            "hoodie.datasource.write.partitionpath.urlencode": _flag(self.url_encode),
            "hoodie.table.timeline.timezone": self.timeline_zone,
            CDC_KEY: _flag(self.cdc_mode is not None),
            NUM_BUCKETS_KEY: str(self.num_buckets) if self.has_buckets else None,
            HASH_FIELDS_KEY: ",".join(self.hash_fields) if self.has_buckets else None,
            INDEX_TYPE_KEY: None if self.has_buckets else self.index_type,
            **merge_keys(self.merge_mode, self.version, self.merge_strategy),
        }
        optional = {
            "hoodie.database.name": self.database,
            "hoodie.table.ordering.fields": ",".join(self.ordering_fields) or None,
            DELETE_FIELD_KEY: self.delete_field,
            DELETE_MARKER_KEY: self.delete_marker,
            "hoodie.table.create.schema": self.create_schema,
            LOGICAL_TIMESTAMP_KEY: "true" if self.logical_timestamp else None,
            CDC_MODE_KEY: self.cdc_mode,
            PARTIAL_KEY: self.partial_mode,
            UNAVAILABLE_KEY: self.unavailable or None,
        }
        values |= {key: value for key, value in optional.items() if value is not None}
        return {key: value for key, value in values.items() if value is not None} | dict(self.timestamp_options)

    def _printed_partition_fields(self) -> str:
        """Print the partition fields; only a CUSTOM key generator has the kind of each field."""
        if self.key_generator == "CUSTOM":
            return ",".join(f"{partition.name}:{partition.kind}" for partition in self.partition_fields)
        return ",".join(partition.name for partition in self.partition_fields)

    def _partition_extractor(self) -> str:
        """Return the class by which Hudi's catalog sync extracts partition values from paths."""
        if not self.partition_fields:
            extractor = "NonPartitionedExtractor"
        elif len(self.partition_fields) > 1:
            extractor = "MultiPartKeysValueExtractor"
        else:
            extractor = "HiveStylePartitionValueExtractor" if self.hive_style else "SinglePartPartitionValueExtractor"
        return f"org.apache.hudi.hive.{extractor}"


def _flag(value: bool) -> str:
    return "true" if value else "false"
