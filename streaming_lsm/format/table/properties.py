"""Parse and check the keys of ``hoodie.properties`` one by one, with a message for each unsupported value.

See docs/format/01-table.md, "hoodie.properties".
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.table.damaged_keys import is_damaged
from streaming_lsm.format.table.file_names import MAX_BUCKETS

CURRENT_VERSION = 10
READ_VERSIONS = (6, 8, 9, 10)
WRITE_VERSIONS = (8, 9, 10)
LSM_TREE = "lsm_tree"
DEFAULT_LAYOUT = "default"
TABLE_TYPES = ("MERGE_ON_READ", "COPY_ON_WRITE")
NUM_BUCKETS_KEY = "lsm.bucket.index.num.buckets"
HASH_FIELDS_KEY = "lsm.bucket.index.hash.field"
INDEX_TYPE_KEY = "lsm.index.type"
STRAY_ROWS_KEY = "lsm.partition.stray.rows"
"""Whether rows may be in another partition than their partition columns name."""
BUCKET_INDEX = "BUCKET"
RECORD_INDEXES = ("RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX", "RECORD_LEVEL_INDEX")
"""Types of index that ask the record index of the metadata table; the last one has it by partition."""
LOOKUP_INDEXES = ("SIMPLE", "GLOBAL_SIMPLE", "BLOOM", "GLOBAL_BLOOM", *RECORD_INDEXES)
"""Types of index that look keys up among those that are stored."""
GLOBAL_INDEXES = ("GLOBAL_SIMPLE", "GLOBAL_BLOOM", "RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX")
"""Those that look a key up in all partitions."""
BLOOM_INDEXES = ("BLOOM", "GLOBAL_BLOOM")
"""Those that leave out base files by their bloom filters."""
AMBIGUOUS_KEYS_KEY = "lsm.keys.ambiguous"
"""Set at creation by this package; a table without it was created by another program."""

KEY_GENERATORS = ("SIMPLE", "COMPLEX", "NON_PARTITION", "TIMESTAMP", "CUSTOM")
PARTITION_KINDS = ("SIMPLE", "TIMESTAMP")

STORAGE_LAYOUT_KEY = "hoodie.table.storage.layout"
CDC_KEY = "hoodie.table.cdc.enabled"
CDC_MODE_KEY = "hoodie.table.cdc.supplemental.logging.mode"
OP_KEY_ONLY, DATA_BEFORE, DATA_BEFORE_AFTER = CDC_MODES = ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER")
LAYOUT_VERSION_KEY = "hoodie.timeline.layout.version"
META_FIELDS_KEY = "hoodie.meta.fields.mode"
LOGICAL_TIMESTAMP_KEY = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"
_TIMESTAMP_PREFIXES = ("hoodie.deltastreamer.keygen.timebased.", "hoodie.keygen.timebased.")

# Key -> its only supported value, and the value that a missing key stands for.
SUPPORTED = {
    "hoodie.timeline.path": ("timeline", "timeline", "the timeline must be in .hoodie/timeline"),
    "hoodie.timeline.history.path": ("history", "history", "the archive must be in .hoodie/timeline/history"),
    "hoodie.table.format": ("native", "native", "only Hudi's native table format is supported"),
    "hoodie.table.base.file.format": ("PARQUET", "PARQUET", "only Parquet base files are supported"),
    META_FIELDS_KEY: ("ALL", "ALL", "tables without all meta columns are not supported"),
    "hoodie.populate.meta.fields": ("true", "true", "tables without meta columns are not supported"),
    "hoodie.datasource.write.drop.partition.columns": ("false", "false", "partition columns must be in the data files"),
    "hoodie.table.multiple.base.file.formats.enable": ("false", "false", "one base file format per table is supported"),
    "hoodie.partition.metafile.use.base.format": ("false", "false", "partition metadata must be properties text"),
}
# Keys of features that store rows outside of the file groups that this package reads.
_REFUSED = {
    "hoodie.bootstrap.base.path": "bootstrap tables, whose rows are in files outside of the table, are not supported",
}
_READ_KEYS = (
    AMBIGUOUS_KEYS_KEY,
    *SUPPORTED,
    *_REFUSED,
    CDC_KEY,
    CDC_MODE_KEY,
    HASH_FIELDS_KEY,
    INDEX_TYPE_KEY,
    LAYOUT_VERSION_KEY,
    LOGICAL_TIMESTAMP_KEY,
    NUM_BUCKETS_KEY,
    STORAGE_LAYOUT_KEY,
    "hoodie.compaction.payload.class",
    "hoodie.compaction.record.merger.strategy",
    "hoodie.database.name",
    "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.datasource.write.partitionpath.urlencode",
    "hoodie.record.merge.mode",
    "hoodie.record.merge.strategy.id",
    "hoodie.table.checksum",
    "hoodie.table.create.schema",
    "hoodie.table.initial.version",
    "hoodie.table.keygenerator.class",
    "hoodie.table.keygenerator.type",
    "hoodie.table.legacy.payload.class",
    "hoodie.table.metadata.partitions",
    "hoodie.table.name",
    "hoodie.table.ordering.fields",
    "hoodie.table.partial.update.mode",
    "hoodie.table.partition.fields",
    "hoodie.table.precombine.field",
    "hoodie.table.recordkey.fields",
    "hoodie.table.timeline.timezone",
    "hoodie.table.type",
    "hoodie.table.version",
)
# Keys of Hudi that do not change how this package reads a table.
_IGNORED_KEYS = (
    "hoodie.archivelog.folder",
    "hoodie.table.index.defs.path",
    "hoodie.table.log.file.format",
    "hoodie.table.metadata.partitions.inflight",
    "hoodie.table.partition_extractor_class",
)
_KNOWN_KEYS = frozenset((*_READ_KEYS, *_IGNORED_KEYS))
# Key generator classes, which tables before version 8 have instead of a type.
_GENERATOR_CLASSES = {
    "SimpleKeyGenerator": "SIMPLE",
    "ComplexKeyGenerator": "COMPLEX",
    "NonpartitionedKeyGenerator": "NON_PARTITION",
    "TimestampBasedKeyGenerator": "TIMESTAMP",
    "CustomKeyGenerator": "CUSTOM",
}


@dataclass(frozen=True, slots=True)
class PartitionField:
    """Partition column; its value is used in the path unchanged (``SIMPLE``) or by a date pattern (``TIMESTAMP``)."""

    name: str
    kind: str = "SIMPLE"


def table_checksum(database: str | None, name: str) -> str:
    """Compute the table checksum: CRC-32 of ``<database>.<table>``, or of ``.<table>`` without database, in decimal."""
    return str(zlib.crc32(f"{database or ''}.{name}".encode()))


class PropertiesReader:
    """Typed lookups in one properties file.

    Every method raises `UnsupportedTable` for a value that is not supported, and `CorruptFileError` for a value that is
    missing or malformed; the message names the file, the key and the value.
    """

    def __init__(self, properties: Mapping[str, str], source: str) -> None:
        self._properties = properties
        self._source = source

    def version(self) -> int:
        version = self._number("hoodie.table.version", self.needed("hoodie.table.version"))
        if version not in READ_VERSIONS:
            known = ", ".join(map(str, READ_VERSIONS))
            advice = "use a newer release" if version > CURRENT_VERSION else "upgrade it with Hudi first"
            raise self._unsupported("hoodie.table.version", f"tables of the versions {known} are read; {advice}")
        return version

    def check_supported(self) -> None:
        for key, (supported, missing, why) in SUPPORTED.items():
            if self._properties.get(key, missing).strip().lower() != supported.lower():
                raise self._unsupported(key, why)
        for key, why in _REFUSED.items():
            if self._properties.get(key):
                raise self._unsupported(key, why)

    def check_keys(self) -> None:
        """Reject a key that differs by one edit from a relevant key that is missing.

        Other unknown keys, such as keys of newer Hudi releases, are accepted. The cost grows with the number of keys.
        """
        missing = [key for key in _READ_KEYS if key not in self._properties]
        for key in sorted(self._properties.keys() - _KNOWN_KEYS):
            meant = next((known for known in missing if is_damaged(known, key, self._properties[key])), None)
            if meant is not None:
                raise self._corrupt(key, f"the key is damaged, {meant} is missing")

    def storage_layout(self, version: int) -> str:
        # Readers of older versions drop the key (docs/format/01-table.md, "hoodie.properties").
        if version < CURRENT_VERSION:
            return DEFAULT_LAYOUT
        found = self._properties.get(STORAGE_LAYOUT_KEY, DEFAULT_LAYOUT).strip().lower()
        if found not in (LSM_TREE, DEFAULT_LAYOUT):
            raise self._unsupported(STORAGE_LAYOUT_KEY, f"expected {LSM_TREE} or {DEFAULT_LAYOUT}")
        return found

    def timeline_layout(self, version: int) -> int:
        expected = 1 if version < 8 else 2
        if self._properties.get(LAYOUT_VERSION_KEY, str(expected)).strip() != str(expected):
            raise self._unsupported(LAYOUT_VERSION_KEY, f"tables of version {version} have layout {expected}")
        return expected

    def key_generator(self) -> str:
        key, older = "hoodie.table.keygenerator.type", "hoodie.table.keygenerator.class"
        # The Avro variants of the generators produce the same keys and paths.
        name = self._properties.get(older, "").rpartition(".")[2].replace("Avro", "")
        if not self._properties.get(key) and name:
            if name not in _GENERATOR_CLASSES:
                raise self._unsupported(older, f"expected one of {', '.join(_GENERATOR_CLASSES)}")
            return _GENERATOR_CLASSES[name]
        return self.choice(key, (*KEY_GENERATORS, *(f"{kind}_AVRO" for kind in KEY_GENERATORS))).removesuffix("_AVRO")

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

    def cdc_mode(self) -> str | None:
        """Return the supplemental logging mode; None without change data capture."""
        return self.choice(CDC_MODE_KEY, CDC_MODES, DATA_BEFORE_AFTER) if self.flag(CDC_KEY) else None

    def key_fields(self) -> tuple[str, ...]:
        keys = listed(self._properties.get("hoodie.table.recordkey.fields", ""))
        if not keys:
            raise self._unsupported("hoodie.table.recordkey.fields", "tables without record keys are not supported")
        return keys

    def partition_fields(self, key_generator: str) -> tuple[PartitionField, ...]:
        key = "hoodie.table.partition.fields"
        if key not in self._properties:
            # CREATE TABLE of Spark SQL leaves it out.
            if key_generator == "NON_PARTITION":
                return ()
            raise CorruptFileError(f"{self._source}: {key} is missing; restore the file from its backup")
        fields = listed(self._properties[key])
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
            return 0
        count = self._number(NUM_BUCKETS_KEY, text)
        if not 1 <= count <= MAX_BUCKETS:
            raise self._corrupt(NUM_BUCKETS_KEY, f"expected 1 to {MAX_BUCKETS}")
        return count

    def index_type(self) -> str:
        return self.choice(INDEX_TYPE_KEY, (BUCKET_INDEX, *LOOKUP_INDEXES), BUCKET_INDEX)

    def hash_fields(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        fields = listed(self._properties.get(HASH_FIELDS_KEY, ""))
        if not set(fields) <= set(keys):
            raise self._corrupt(HASH_FIELDS_KEY, f"expected some of the record key fields {','.join(keys)}")
        return fields

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


def ordering_fields(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the ordering fields; tables upgraded from version 8 or older may have them under the older key."""
    older = properties.get("hoodie.table.precombine.field", "")
    return listed(properties.get("hoodie.table.ordering.fields", older))


def timestamp_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the options of TIMESTAMP partition fields by their current keys, which win over the older keys."""
    old, new = _TIMESTAMP_PREFIXES
    found = {new + key.removeprefix(old): value for key, value in properties.items() if key.startswith(old)}
    return found | {key: value for key, value in properties.items() if key.startswith(new)}


def listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
