"""``hoodie.properties`` as a typed view (format 01, hoodie.properties; format 10, rules 31 and 33)."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.names import MAX_BUCKETS

TABLE_VERSION = 10
STORAGE_LAYOUT = "lsm_tree"
TABLE_TYPES = ("MERGE_ON_READ", "COPY_ON_WRITE")
NUM_BUCKETS_KEY = "lsm.bucket.index.num.buckets"
HASH_FIELDS_KEY = "lsm.bucket.index.hash.field"

KEY_GENERATORS = ("SIMPLE", "COMPLEX", "NON_PARTITION", "TIMESTAMP", "CUSTOM")
MERGE_MODES = ("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING")
PARTITION_KINDS = ("SIMPLE", "TIMESTAMP")

_MERGE_PROPERTY = "hoodie.record.merge.property."
_DELETE_FIELD = _MERGE_PROPERTY + "hoodie.payload.delete.field"
_DELETE_MARKER = _MERGE_PROPERTY + "hoodie.payload.delete.marker"
_LOGICAL_TIMESTAMP = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"
_TIMESTAMP_PREFIXES = ("hoodie.deltastreamer.keygen.timebased.", "hoodie.keygen.timebased.")

# Keys whose only supported value is the first one; a missing key counts as the second.
_SUPPORTED = {
    "hoodie.table.storage.layout": (STORAGE_LAYOUT, "default", "only the lsm_tree layout is supported"),
    "hoodie.timeline.layout.version": ("2", "2", "only timeline layout 2 is supported"),
    "hoodie.timeline.path": ("timeline", "timeline", "the timeline must be in .hoodie/timeline"),
    "hoodie.timeline.history.path": ("history", "history", "the archive must be in .hoodie/timeline/history"),
    "hoodie.table.format": ("native", "native", "only Hudi's native table format is supported"),
    "hoodie.table.base.file.format": ("PARQUET", "PARQUET", "only Parquet base files are supported"),
    "hoodie.meta.fields.mode": ("ALL", "ALL", "tables without all meta columns are not supported"),
    "hoodie.populate.meta.fields": ("true", "true", "tables without meta columns are not supported"),
    "hoodie.datasource.write.drop.partition.columns": ("false", "false", "partition columns must be in the data files"),
    "hoodie.table.multiple.base.file.formats.enable": ("false", "false", "one base file format per table is supported"),
    "hoodie.partition.metafile.use.base.format": ("false", "false", "partition metadata must be properties text"),
}
# Keys that change what a merge yields in ways that this package does not do.
_REFUSED = {
    "hoodie.table.partial.update.mode": "partial updates are not supported",
    "hoodie.compaction.payload.class": "payload classes are not supported, use a record merge mode",
}


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A partition column; its value becomes a path as it is (``SIMPLE``) or by a date pattern (``TIMESTAMP``)."""

    name: str
    kind: str = "SIMPLE"


@dataclass(frozen=True, slots=True)
class TableConfig:
    """What is fixed for the life of a table.

    Attributes:
        ordering_fields: columns that say which of two rows of a key is newer; may be empty.
        merge_mode: one of `MERGE_MODES`.
        key_generator: one of `KEY_GENERATORS`.
        timeline_zone: ``UTC`` or ``LOCAL``, the zone of instants.
        hash_fields: record key fields that choose the bucket; all of them when the table names none.
        delete_field, delete_marker: column, and its value as text, that mark a row as a delete; both or neither.
        timestamp_options: the ``hoodie.keygen.timebased.*`` keys that are set.
        create_schema: Avro JSON given at creation.
        table_type: one of `TABLE_TYPES`.
        properties: the raw map that this was read from; keys not known here survive in it.
    """

    name: str
    record_key_fields: tuple[str, ...]
    num_buckets: int
    database: str | None = None
    partition_fields: tuple[PartitionField, ...] = ()
    ordering_fields: tuple[str, ...] = ()
    merge_mode: str = "COMMIT_TIME_ORDERING"
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
    version: int = TABLE_VERSION
    storage_layout: str = STORAGE_LAYOUT
    properties: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.hash_fields:
            object.__setattr__(self, "hash_fields", self.record_key_fields)

    @property
    def is_copy_on_write(self) -> bool:
        """Whether every write makes new base files, and no logs."""
        return self.table_type == "COPY_ON_WRITE"

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        """Partitions of the metadata table that other readers rely on; a writer must maintain or remove them."""
        return _list(self.properties.get("hoodie.table.metadata.partitions", ""))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], source: str) -> TableConfig:
        """Check that this package can read and write the table, and say what is in it.

        Args:
            properties: the parsed file.
            source: the file, for messages.

        Raises:
            UnsupportedTable: another version, layout, type or a feature that is not supported.
            CorruptFileError: a needed key is missing or malformed, or the checksum does not fit the name.
        """
        reader = _Reader(properties, source)
        reader.check_supported()
        reader.check_checksum()
        key_generator = reader.choice("hoodie.table.keygenerator.type", KEY_GENERATORS)
        delete_field, delete_marker = reader.delete_marking()
        keys = reader.key_fields()
        return cls(
            name=reader.needed("hoodie.table.name"),
            record_key_fields=keys,
            num_buckets=reader.num_buckets(),
            database=properties.get("hoodie.database.name") or None,
            partition_fields=reader.partition_fields(key_generator),
            ordering_fields=_ordering_fields(properties),
            merge_mode=reader.choice("hoodie.record.merge.mode", MERGE_MODES),
            key_generator=key_generator,
            hive_style=reader.flag("hoodie.datasource.write.hive_style_partitioning"),
            url_encode=reader.flag("hoodie.datasource.write.partitionpath.urlencode"),
            timeline_zone=reader.choice("hoodie.table.timeline.timezone", ("UTC", "LOCAL"), "LOCAL"),
            hash_fields=reader.hash_fields(keys),
            delete_field=delete_field,
            delete_marker=delete_marker,
            timestamp_options=_timestamp_options(properties),
            logical_timestamp=reader.flag(_LOGICAL_TIMESTAMP),
            create_schema=properties.get("hoodie.table.create.schema") or None,
            table_type=reader.choice("hoodie.table.type", TABLE_TYPES),
            properties=dict(properties),
        )

    def to_properties(self) -> dict[str, str]:
        """Every key that a table of version 10 needs, over the keys that `properties` has besides."""
        values = dict(self.properties) | {key: value for key, (value, _, _) in _SUPPORTED.items()}
        values |= {
            "hoodie.table.name": self.name,
            "hoodie.table.type": self.table_type,
            "hoodie.table.version": str(self.version),
            "hoodie.table.initial.version": self.properties.get("hoodie.table.initial.version", str(self.version)),
            "hoodie.table.checksum": table_checksum(self.database, self.name),
            "hoodie.archivelog.folder": "history",
            "hoodie.table.recordkey.fields": ",".join(self.record_key_fields),
            "hoodie.table.partition.fields": self._printed_partition_fields(),
            "hoodie.table.partition_extractor_class": self._partition_extractor(),
            "hoodie.table.keygenerator.type": self.key_generator,
            "hoodie.record.merge.mode": self.merge_mode,
            "hoodie.datasource.write.hive_style_partitioning": _flag(self.hive_style),
            "hoodie.datasource.write.partitionpath.urlencode": _flag(self.url_encode),
            "hoodie.table.timeline.timezone": self.timeline_zone,
            "hoodie.table.cdc.enabled": self.properties.get("hoodie.table.cdc.enabled", "false"),
            NUM_BUCKETS_KEY: str(self.num_buckets),
            HASH_FIELDS_KEY: ",".join(self.hash_fields),
        }
        optional = {
            "hoodie.database.name": self.database,
            "hoodie.table.ordering.fields": ",".join(self.ordering_fields) or None,
            _DELETE_FIELD: self.delete_field,
            _DELETE_MARKER: self.delete_marker,
            "hoodie.table.create.schema": self.create_schema,
            _LOGICAL_TIMESTAMP: "true" if self.logical_timestamp else None,
        }
        values |= {key: value for key, value in optional.items() if value is not None}
        return values | dict(self.timestamp_options)

    def _printed_partition_fields(self) -> str:
        """Only a CUSTOM key generator says the kind of each field."""
        if self.key_generator == "CUSTOM":
            return ",".join(f"{partition.name}:{partition.kind}" for partition in self.partition_fields)
        return ",".join(partition.name for partition in self.partition_fields)

    def _partition_extractor(self) -> str:
        """The class with which Hudi's catalog sync takes partition values out of paths."""
        if not self.partition_fields:
            extractor = "NonPartitionedExtractor"
        elif len(self.partition_fields) > 1:
            extractor = "MultiPartKeysValueExtractor"
        else:
            extractor = "HiveStylePartitionValueExtractor" if self.hive_style else "SinglePartPartitionValueExtractor"
        return f"org.apache.hudi.hive.{extractor}"


def table_checksum(database: str | None, name: str) -> str:
    """CRC-32 of ``<database>.<table>`` in decimal; without a database of ``.<table>``."""
    return str(zlib.crc32(f"{database or ''}.{name}".encode()))


class _Reader:
    """Looks up keys of one properties file and words the refusals."""

    def __init__(self, properties: Mapping[str, str], source: str) -> None:
        self._properties = properties
        self._source = source

    def check_supported(self) -> None:
        version = self._number("hoodie.table.version", self.needed("hoodie.table.version"))
        if version != TABLE_VERSION:
            advice = "upgrade the table first" if version < TABLE_VERSION else "use a newer release"
            raise self._unsupported("hoodie.table.version", f"only version {TABLE_VERSION} is supported; {advice}")
        for key, (supported, missing, why) in _SUPPORTED.items():
            if self._properties.get(key, missing).strip().lower() != supported.lower():
                raise self._unsupported(key, why)
        for key, why in _REFUSED.items():
            if self._properties.get(key):
                raise self._unsupported(key, why)

    def check_checksum(self) -> None:
        name, found = self.needed("hoodie.table.name"), self.needed("hoodie.table.checksum")
        expected = table_checksum(self._properties.get("hoodie.database.name"), name)
        if found.strip() != expected:
            raise self._corrupt("hoodie.table.checksum", f"expected {expected} for table {name!r}")

    def needed(self, key: str) -> str:
        value = self._properties.get(key, "")
        if not value.strip():
            raise CorruptFileError(f"{self._source}: {key} is missing; restore the file from its backup")
        return value

    def choice(self, key: str, allowed: tuple[str, ...], default: str | None = None) -> str:
        value = (self.needed(key) if default is None else self._properties.get(key, default)).strip().upper()
        if value not in allowed:
            raise self._unsupported(key, f"expected one of {', '.join(allowed)}")
        return value

    def flag(self, key: str) -> bool:
        value = self._properties.get(key, "false").strip().lower()
        if value not in ("true", "false"):
            raise self._corrupt(key, "expected true or false")
        return value == "true"

    def key_fields(self) -> tuple[str, ...]:
        keys = _list(self._properties.get("hoodie.table.recordkey.fields", ""))
        if not keys:
            raise self._unsupported("hoodie.table.recordkey.fields", "tables without record keys are not supported")
        return keys

    def partition_fields(self, key_generator: str) -> tuple[PartitionField, ...]:
        key = "hoodie.table.partition.fields"
        if key not in self._properties:
            raise CorruptFileError(f"{self._source}: {key} is missing; restore the file from its backup")
        fields = _list(self._properties[key])
        if key_generator != "CUSTOM":
            kind = "TIMESTAMP" if key_generator == "TIMESTAMP" else "SIMPLE"
            return tuple(PartitionField(name, kind) for name in fields)
        pairs = [name.rpartition(":") for name in fields]
        if any(not name or kind.upper() not in PARTITION_KINDS for name, _, kind in pairs):
            raise self._unsupported(key, "a CUSTOM key generator needs <column>:SIMPLE or <column>:TIMESTAMP each")
        return tuple(PartitionField(name, kind.upper()) for name, _, kind in pairs)

    def num_buckets(self) -> int:
        text = self._properties.get(NUM_BUCKETS_KEY, "").strip()
        if not text:
            raise self._unsupported(NUM_BUCKETS_KEY, "needed to find a key's bucket; add the count in use")
        count = self._number(NUM_BUCKETS_KEY, text)
        if not 1 <= count <= MAX_BUCKETS:
            raise self._corrupt(NUM_BUCKETS_KEY, f"expected 1 to {MAX_BUCKETS}")
        return count

    def hash_fields(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        fields = _list(self._properties.get(HASH_FIELDS_KEY, ""))
        if not set(fields) <= set(keys):
            raise self._corrupt(HASH_FIELDS_KEY, f"expected some of the record key fields {','.join(keys)}")
        return fields

    def delete_marking(self) -> tuple[str | None, str | None]:
        column, marker = self._properties.get(_DELETE_FIELD) or None, self._properties.get(_DELETE_MARKER)
        if (column is None) != (marker is None):
            raise self._corrupt(_DELETE_FIELD if column else _DELETE_MARKER, "delete field and marker go together")
        return column, marker

    def _number(self, key: str, text: str) -> int:
        text = text.strip()
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise self._corrupt(key, "expected a number")
        return int(text)

    def _unsupported(self, key: str, why: str) -> UnsupportedTable:
        return UnsupportedTable(self._message(key, why))

    def _corrupt(self, key: str, why: str) -> CorruptFileError:
        return CorruptFileError(self._message(key, why) + "; restore the file from its backup")

    def _message(self, key: str, why: str) -> str:
        value = self._properties.get(key)
        found = f"{key} is not set" if value is None else f"{key}={value:.80}"
        return f"{self._source}: {found}: {why}"


def _ordering_fields(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The ordering fields; tables that were upgraded from version 8 or older may have them under the older key."""
    older = properties.get("hoodie.table.precombine.field", "")
    return _list(properties.get("hoodie.table.ordering.fields", older))


def _timestamp_options(properties: Mapping[str, str]) -> dict[str, str]:
    """The options of TIMESTAMP partition fields under their current spelling, which wins over the older one."""
    old, new = _TIMESTAMP_PREFIXES
    found = {new + key.removeprefix(old): value for key, value in properties.items() if key.startswith(old)}
    return found | {key: value for key, value in properties.items() if key.startswith(new)}


def _list(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _flag(value: bool) -> str:
    return "true" if value else "false"
