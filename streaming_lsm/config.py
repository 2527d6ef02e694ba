"""Define all options: key, type, default and meaning.

Validation and ``docs/configuration.md`` (``lsm options``) are generated from `OPTIONS`.
Options with the meaning of a Hudi option keep Hudi's key; the others begin with ``lsm.``.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar, overload

from streaming_lsm.errors import ConfigError, CorruptFileError
from streaming_lsm.hudi_options import PURPOSES, family_of
from streaming_lsm.java_properties import parse_properties
from streaming_lsm.lock_provider_names import LOCK_PROVIDERS, parse_lock_provider

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ENVIRONMENT_PREFIX = "LSM_CONF_"
FREE_PREFIXES = ("kafka.", "lsm.kafka.topic.")
_OWN_PREFIXES = ("hoodie.", "lsm.", "as.of.")
_NEAR = 0.85
"""Similarity from which on an unknown key is taken for a misspelt one."""
_ONLY_IN_FILES = (
    " (keys of the Kafka client and options of single topics are read from the properties file and from arguments, not "
    "from the environment)"
)
_LIST = "`lsm options` prints those there are (docs/configuration.md)"


@dataclass(frozen=True)
class Option(Generic[T_co]):
    """Definition of one option.

    Attributes:
        key: name of the option.
        default: value of an option that is not set; ``None`` means that there is none.
        parse: converts a text or Python value to the option's type; raises `ValueError` for any other value.
        kind: type as named in the documentation.
        group: heading in the documentation.
        doc: meaning, in one or two sentences.
        aliases: older or alternative Hudi keys of the same option.
    """

    key: str
    default: T_co
    parse: Callable[[object], T_co]
    kind: str
    group: str
    doc: str
    aliases: tuple[str, ...] = ()


OPTIONS: dict[str, Option[object]] = {}
_ALIASES: dict[str, str] = {}


def _register(option: Option[T]) -> Option[T]:
    OPTIONS[option.key] = option
    _ALIASES.update(dict.fromkeys(option.aliases, option.key))
    return option


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a text")
    return value


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    known = {"true": True, "false": False}
    if isinstance(value, str) and value.strip().lower() in known:
        return known[value.strip().lower()]
    raise ValueError("expected true or false")


def _integer(minimum: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError("expected a whole number")
        number = int(value)
        if number < minimum:
            raise ValueError(f"expected at least {minimum}")
        return number

    return parse


def _pattern(value: object) -> str:
    found = _text(value)
    try:
        re.compile(found)
    except re.error as error:
        raise ValueError(f"expected a regular expression: {error}") from None
    return found


def _ratio(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("expected a number above 0")
    number = float(value)
    if not 0.0 < number < float("inf"):
        raise ValueError("expected a number above 0")
    return number


def _fraction(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("expected a number between 0 and 1")
    number = float(value)
    if not 0.0 < number < 1.0:
        raise ValueError("expected a number between 0 and 1")
    return number


def _fields(value: object) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError("expected column names separated by commas")
    return tuple(name.strip() for name in names if name.strip())


def _choice(*allowed: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        for choice in allowed:
            if isinstance(value, str) and value.strip().lower() == choice.lower():
                return choice
        raise ValueError("expected one of " + ", ".join(allowed))

    return parse


def text(key: str, default: str | None, group: str, doc: str, *aliases: str) -> Option[str | None]:
    return _register(Option(key=key, default=default, parse=_text, kind="text", group=group, doc=doc, aliases=aliases))


def boolean(key: str, default: bool, group: str, doc: str, *aliases: str) -> Option[bool]:
    return _register(
        Option(key=key, default=default, parse=_boolean, kind="boolean", group=group, doc=doc, aliases=aliases)
    )


def optional_boolean(key: str, group: str, doc: str) -> Option[bool | None]:
    return _register(Option(key=key, default=None, parse=_boolean, kind="boolean", group=group, doc=doc))


def integer(key: str, default: int, group: str, doc: str, *aliases: str, minimum: int = 0) -> Option[int]:
    parse = _integer(minimum)
    return _register(
        Option(key=key, default=default, parse=parse, kind="integer", group=group, doc=doc, aliases=aliases)
    )


def layout(
    key: str, default: str, allowed: tuple[str, ...], refused: tuple[str, ...], group: str, doc: str
) -> Option[str]:
    """Define an option of a data layout, in Hudi's spellings of all releases: ``z-order`` is ``ZORDER``, too."""
    choose = _choice(*allowed)
    plain = {name.replace("-", ""): name for name in allowed}

    def parse(value: object) -> str:
        name = value.strip().lower() if isinstance(value, str) else value
        if name in refused:
            raise ValueError(f"{name} is not supported by this release: expected one of " + ", ".join(allowed))
        return choose(plain.get(name, name) if isinstance(name, str) else name)

    return _register(Option(key=key, default=default, parse=parse, kind=" \\| ".join(allowed), group=group, doc=doc))


def fraction(key: str, default: float, group: str, doc: str) -> Option[float]:
    return _register(Option(key=key, default=default, parse=_fraction, kind="number", group=group, doc=doc))


def ratio(key: str, default: float, group: str, doc: str) -> Option[float]:
    return _register(Option(key=key, default=default, parse=_ratio, kind="number", group=group, doc=doc))


def fields(key: str, group: str, doc: str, *aliases: str) -> Option[tuple[str, ...]]:
    return _register(
        Option(key=key, default=(), parse=_fields, kind="list of columns", group=group, doc=doc, aliases=aliases)
    )


def _strategy_names(*allowed: str) -> Callable[[object], str]:
    """Parse the name of a Hudi class, with or without its package."""
    choose = _choice(*allowed)
    return lambda value: choose(value.strip().rpartition(".")[2] if isinstance(value, str) else value)


def strategy(key: str, default: str, allowed: tuple[str, ...], group: str, doc: str) -> Option[str]:
    return _register(
        Option(
            key=key, default=default, parse=_strategy_names(*allowed), kind=" \\| ".join(allowed), group=group, doc=doc
        )
    )


def pattern(key: str, group: str, doc: str) -> Option[str | None]:
    return _register(Option(key=key, default=None, parse=_pattern, kind="regular expression", group=group, doc=doc))


def lock_provider(key: str, group: str, doc: str) -> Option[str | None]:
    kind = " \\| ".join((*LOCK_PROVIDERS, "module:Class"))
    return _register(Option(key=key, default=None, parse=parse_lock_provider, kind=kind, group=group, doc=doc))


def choice(
    key: str, default: str | None, allowed: tuple[str, ...], group: str, doc: str, *aliases: str
) -> Option[str | None]:
    kind = " \\| ".join(allowed)
    return _register(
        Option(key=key, default=default, parse=_choice(*allowed), kind=kind, group=group, doc=doc, aliases=aliases)
    )


# fmt: off
_TABLE = "Table (fixed at creation, kept in hoodie.properties)"
TABLE_NAME = text("hoodie.table.name", None, _TABLE, "Name of the table; required to create one.", "hoodie.datasource.write.table.name")
DATABASE_NAME = text("hoodie.database.name", None, _TABLE, "Database of the table; part of the properties' checksum.")
TABLE_TYPE = choice("hoodie.datasource.write.table.type", "MERGE_ON_READ", ("MERGE_ON_READ", "COPY_ON_WRITE"), _TABLE, "Table type. MERGE_ON_READ: a write adds log files, compaction merges them into base files. COPY_ON_WRITE: a write rewrites base files.", "hoodie.table.type")
TABLE_VERSION = integer("hoodie.write.table.version", 10, _TABLE, "Table version: 10, the first with native log files (Hudi 1.3), or 9 or 8, which Hudi 1.2 reads and writes.", minimum=1)
AUTO_UPGRADE = boolean("hoodie.write.auto.upgrade", False, _TABLE, "Upgrade a table of an earlier version to hoodie.write.table.version before the next write. Hudi's default is true.")
STORAGE_LAYOUT = choice("hoodie.table.storage.layout", None, ("lsm_tree", "default"), _TABLE, "Storage layout of the file slices. lsm_tree: every file is sorted by record key; requires table version 10, and is the default of new tables there.")
RECORD_KEY_FIELDS = fields("hoodie.datasource.write.recordkey.field", _TABLE, "Columns that form the record key.", "hoodie.table.recordkey.fields")
PARTITION_FIELDS = fields("hoodie.datasource.write.partitionpath.field", _TABLE, "Columns that form the partition path; none for an unpartitioned table. With the CUSTOM key generator each is `column:SIMPLE` or `column:TIMESTAMP`.", "hoodie.table.partition.fields")
ORDERING_FIELDS = fields("hoodie.table.ordering.fields", _TABLE, "Ordering fields: of two records with the same key, the one with the larger values wins. None: the record of the later commit wins.", "hoodie.datasource.write.precombine.field", "hoodie.table.precombine.field")
MERGE_MODE = choice("hoodie.record.merge.mode", None, ("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING", "CUSTOM"), _TABLE, "Merge mode of records with the same key. Not set: EVENT_TIME_ORDERING with ordering fields, else COMMIT_TIME_ORDERING. CUSTOM: by a record merger of another package (docs/writing.md).")
MERGE_STRATEGY = text("hoodie.record.merge.strategy.id", None, _TABLE, "Strategy id, a UUID, of the record merger of CUSTOM. Table version 9 or later.")
PARTIAL_MODE = choice("hoodie.table.partial.update.mode", None, ("IGNORE_DEFAULTS", "FILL_UNAVAILABLE"), _TABLE, "Partial updates: of two rows with the same key, the winning row takes from the other the values that it lacks: nulls (IGNORE_DEFAULTS), or texts and binaries equal to the unavailable value (FILL_UNAVAILABLE). Not set: the winning row is taken whole. Table version 9 or later.")
PARTIAL_UNAVAILABLE = text("hoodie.write.partial.update.unavailable.value", None, _TABLE, "Text that marks a value as not sent, for FILL_UNAVAILABLE; not set: `__debezium_unavailable_value`.")
KEY_GENERATOR = choice("hoodie.datasource.write.keygenerator.type", None, ("SIMPLE", "COMPLEX", "NON_PARTITION", "TIMESTAMP", "CUSTOM"), _TABLE, "Key generator. Not set: SIMPLE, COMPLEX or NON_PARTITION, depending on the number of key and partition columns.", "hoodie.table.keygenerator.type")
HIVE_STYLE = boolean("hoodie.datasource.write.hive_style_partitioning", False, _TABLE, "Name partition folders `column=value`.")
URL_ENCODE = boolean("hoodie.datasource.write.partitionpath.urlencode", False, _TABLE, "Escape special characters of partition values as %XX.")
LOGICAL_TIMESTAMP = boolean("hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled", False, _TABLE, "Write timestamps in keys as date and time, to the millisecond, instead of the epoch number.")
TIMESTAMP_TYPE = choice("hoodie.keygen.timebased.timestamp.type", None, ("UNIX_TIMESTAMP", "DATE_STRING", "MIXED", "EPOCHMILLISECONDS", "EPOCHMICROSECONDS", "SCALAR"), _TABLE, "Type of the values in a TIMESTAMP partition column.", "hoodie.deltastreamer.keygen.timebased.timestamp.type")
TIMESTAMP_UNIT = choice("hoodie.keygen.timebased.timestamp.scalar.time.unit", "SECONDS", ("NANOSECONDS", "MICROSECONDS", "MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS"), _TABLE, "Unit of a SCALAR timestamp.", "hoodie.deltastreamer.keygen.timebased.timestamp.scalar.time.unit")
TIMESTAMP_INPUT = text("hoodie.keygen.timebased.input.dateformat", None, _TABLE, "Joda-Time pattern of the texts in a DATE_STRING or MIXED column; several patterns are separated by the delimiter.", "hoodie.deltastreamer.keygen.timebased.input.dateformat")
TIMESTAMP_INPUT_DELIMITER = text("hoodie.keygen.timebased.input.dateformat.list.delimiter.regex", ",", _TABLE, "Regular expression that separates several input patterns.", "hoodie.deltastreamer.keygen.timebased.input.dateformat.list.delimiter.regex")
TIMESTAMP_OUTPUT = text("hoodie.keygen.timebased.output.dateformat", None, _TABLE, "Joda-Time pattern of the partition value of a TIMESTAMP column.", "hoodie.deltastreamer.keygen.timebased.output.dateformat")
TIMESTAMP_INPUT_ZONE = text("hoodie.keygen.timebased.input.timezone", None, _TABLE, "Time zone of the column; not set: `hoodie.keygen.timebased.timezone`, else UTC.", "hoodie.deltastreamer.keygen.timebased.input.timezone")
TIMESTAMP_OUTPUT_ZONE = text("hoodie.keygen.timebased.output.timezone", None, _TABLE, "Time zone of the partition value; not set: `hoodie.keygen.timebased.timezone`, else UTC.", "hoodie.deltastreamer.keygen.timebased.output.timezone")
TIMESTAMP_ZONE = text("hoodie.keygen.timebased.timezone", "UTC", _TABLE, "Time zone of column and partition value; excludes the two above.", "hoodie.deltastreamer.keygen.timebased.timezone")
DELETE_FIELD = text("hoodie.payload.delete.field", None, _TABLE, "Column that marks a row as a delete; set together with the marker.")
DELETE_MARKER = text("hoodie.payload.delete.marker", None, _TABLE, "Value of the delete column, as text, that marks a row as a delete.")
CDC_ENABLED = boolean("hoodie.table.cdc.enabled", False, _TABLE, "Change data capture: change logs record the changes from one base file to the next, by each write of a COPY_ON_WRITE table and by each compaction of a MERGE_ON_READ one (docs/writing.md).")
CDC_MODE = choice("hoodie.table.cdc.supplemental.logging.mode", "DATA_BEFORE_AFTER", ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER"), _TABLE, "Content of change logs besides the operation: the record key, the key and the row before, or the rows before and after.")
TIMELINE_ZONE = choice("hoodie.table.timeline.timezone", "UTC", ("UTC", "LOCAL"), _TABLE, "Time zone of instants. Hudi's default is LOCAL.")
INDEX_TYPE = choice("hoodie.index.type", "BUCKET", ("BUCKET", "SIMPLE", "GLOBAL_SIMPLE", "BLOOM", "GLOBAL_BLOOM", "RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX", "RECORD_LEVEL_INDEX"), _TABLE, "Index that maps a record key to its file group. BUCKET: by the hash of the key. The others look the keys of a batch up among those of the table (docs/indexes.md): SIMPLE, BLOOM and RECORD_LEVEL_INDEX in the partition of the row, GLOBAL_SIMPLE, GLOBAL_BLOOM and RECORD_INDEX (or GLOBAL_RECORD_LEVEL_INDEX) in all partitions. Stored in hoodie.properties as `lsm.index.type`, unless it is BUCKET. Hudi's default is SIMPLE in Spark.")
SIMPLE_MOVES_ROWS = boolean("hoodie.simple.index.update.partition.path", True, _TABLE, "GLOBAL_SIMPLE: a row whose partition changes is deleted in the old partition and inserted in the new one. false: it is updated in the old one.")
BLOOM_MOVES_ROWS = boolean("hoodie.bloom.index.update.partition.path", True, _TABLE, "GLOBAL_BLOOM: the same as hoodie.simple.index.update.partition.path.")
RECORD_MOVES_ROWS = boolean("hoodie.record.index.update.partition.path", False, _TABLE, "RECORD_INDEX: the same as hoodie.simple.index.update.partition.path.")
MOVES_ROWS = {
    "GLOBAL_SIMPLE": SIMPLE_MOVES_ROWS,
    "GLOBAL_BLOOM": BLOOM_MOVES_ROWS,
    "RECORD_INDEX": RECORD_MOVES_ROWS,
    "GLOBAL_RECORD_LEVEL_INDEX": RECORD_MOVES_ROWS,
}
"""Whether rows move, by the type of a global index."""
BUCKET_ENGINE = choice("hoodie.index.bucket.engine", "SIMPLE", ("SIMPLE",), _TABLE, "Bucket index engine. SIMPLE: a fixed number of buckets per partition.")
NUM_BUCKETS = integer("hoodie.bucket.index.num.buckets", 8, _TABLE, "Buckets per partition; each bucket has one file group. Hudi's default is 256. Stored in hoodie.properties as `lsm.bucket.index.num.buckets`.", minimum=1)
HASH_FIELDS = fields("hoodie.bucket.index.hash.field", _TABLE, "Record key columns that are hashed to the bucket; not set: all of them. Stored in hoodie.properties as `lsm.bucket.index.hash.field`.")

_WRITE = "Write"
SINGLE_WRITER, OPTIMISTIC, NON_BLOCKING = "SINGLE_WRITER", "OPTIMISTIC_CONCURRENCY_CONTROL", "NON_BLOCKING_CONCURRENCY_CONTROL"
OPERATION = choice("hoodie.datasource.write.operation", "upsert", ("upsert", "insert", "bulk_insert", "delete", "insert_overwrite", "insert_overwrite_table"), _WRITE, "Write operation of each batch. insert_overwrite: a batch replaces the partitions of its rows; insert_overwrite_table: the whole table, as a query in complete mode does. Both are refused for messages of Kafka.")
AMBIGUOUS_KEYS = choice("lsm.keys.ambiguous", None, ("refuse", "warn", "allow"), _WRITE, "Handling of ambiguous record keys, which different column values produce, such as `a:x,b:y,b:z`, or times of one millisecond as texts: refuse the row, warn, or allow it. Not set: the value at the table's creation (default: refuse); warn for tables that Hudi created.")
CREATE_OVER_FILES = boolean("lsm.create.over.files", False, _WRITE, "Create a table in a folder that has data files or partition metadata of an earlier table, whose rows become rows of the new table. false: refuse such a folder.")
COMBINE_UPSERT = boolean("hoodie.combine.before.upsert", True, _WRITE, "Deduplicate the records of a batch by key before an upsert.")
COMBINE_INSERT = boolean("hoodie.combine.before.insert", False, _WRITE, "Deduplicate the records of a batch by key before an insert, and up to table version 9 before a bulk_insert or overwrite. From version 10 on these always do.")
COMBINE_DELETE = boolean("hoodie.combine.before.delete", True, _WRITE, "Deduplicate the keys of a batch before a delete.")
CONCURRENCY_MODE = choice("hoodie.write.concurrency.mode", SINGLE_WRITER, (SINGLE_WRITER, OPTIMISTIC, NON_BLOCKING), _WRITE, "Concurrency mode of writes. SINGLE_WRITER: one write at a time. OPTIMISTIC_CONCURRENCY_CONTROL: several at a time; one that changed a file group which another has changed meanwhile is written again. NON_BLOCKING_CONCURRENCY_CONTROL: several append to the same file groups of a merge-on-read table. All writers of a table need the same mode.")
CONFLICT_RETRIES = integer("hoodie.write.num.retries.on.conflict.failures", 3, _WRITE, "Times that a batch is written again after a conflict with another write; from the second time on other writes wait for it. Hudi's default is 0.")
EARLY_CONFLICTS = boolean("hoodie.write.concurrency.early.conflict.detection.enable", False, _WRITE, "Detect conflicts between writes by their markers, before files are written, for one more listing per file.")
CLOCK_SKEW_MS = integer("hoodie.time.generator.max_expected_clock_skew_ms", 0, _WRITE, "Milliseconds to hold the lock after generating an instant time, for writers on machines with skewed clocks. Hudi's default is 200; a single writer needs no wait.")
HEARTBEAT_MS = integer("hoodie.client.heartbeat.interval_in_ms", 60000, _WRITE, "Milliseconds between heartbeats of a running write.", minimum=100)
LOCK_WAIT_MS = integer("hoodie.write.lock.wait_time_ms", 60000, _WRITE, "Milliseconds to wait for the table's lock, which other writers hold for milliseconds; a lock that nobody renews is waited for until its lease is over. 0: do not wait.")
LOCK_RETRIES = integer("hoodie.write.lock.num_retries", 0, _WRITE, "Looks at a held lock after the first; 0: as many as the wait allows. Hudi's default is 15, with pauses of seconds.")
LOCK_PAUSE_MS = integer("hoodie.write.lock.wait_time_ms_between_retry", 5, _WRITE, "Milliseconds between the first two looks at a held lock; each further pause is up to twice as long, at random. Hudi's default is 1000.", minimum=1)
LOCK_LONGEST_PAUSE_MS = integer("hoodie.write.lock.max_wait_time_ms_between_retry", 200, _WRITE, "Longest pause in milliseconds between two looks at a held lock. Hudi's default is 16000.", minimum=1)
LOCK_PROVIDER = lock_provider("hoodie.write.lock.provider", _WRITE, "Lock that this package's writers hold besides their own, so that writers of other programs are excluded, too: Hudi's class of that name, or an implementation of your own. Not set: writers of other programs are not excluded. InProcessLockProvider is the same as not set.")
FILE_LOCK_PATH = text("hoodie.write.lock.filesystem.path", None, _WRITE, "FileSystemBasedLockProvider: folder of the file `lock`. Not set: the table's folder `.hoodie`.")
FILE_LOCK_EXPIRE = integer("hoodie.write.lock.filesystem.expire", 0, _WRITE, "FileSystemBasedLockProvider: minutes since the last change of a lock file of another program after which it is deleted, by the clock of this machine. 0: never.")
STORAGE_LOCK_VALIDITY = integer("hoodie.write.lock.storage.validity.timeout.secs", 300, _WRITE, "StorageBasedLockProvider: seconds for which the lock is valid unless it is renewed.", minimum=10)
STORAGE_LOCK_RENEW = integer("hoodie.write.lock.storage.renew.interval.secs", 30, _WRITE, "StorageBasedLockProvider: seconds between renewals of the lock, a tenth of the validity at most.", "hoodie.write.lock.storage.heartbeat.poll.secs", minimum=1)
SINGLE_WRITER_WAIT_MS = integer("lsm.write.single.writer.wait.ms", 300000, _WRITE, "Milliseconds that a write waits while another writer writes to the table; compactions and cleans are not waited for. 0: refuse. To be completed, a write waits as long for the table's lock.")
HEARTBEAT_MISSES = integer("hoodie.client.heartbeat.tolerable.misses", 2, _WRITE, "Missed heartbeats after which a writer counts as dead.", minimum=1)
WRITER_ID = text("lsm.writer.id", None, _WRITE, "Writer id for exactly-once replay; not set: the id of the streaming query.")
WRITER_IDLE_DAYS = integer("lsm.writer.idle.days", 30, _WRITE, "Days without a commit after which a writer's last batch id is dropped, with a warning.", minimum=1)
WRITER_MAX = integer("lsm.writer.max.remembered", 1000, _WRITE, "Writers whose last batch id each commit carries forward.", minimum=1)
SCHEMA_EVOLUTION = choice("lsm.schema.evolution", "add", ("fail", "add", "ignore"), _WRITE, "Columns of a batch that the table does not have, and types that are wider than its. `add`: the table gets the columns, and the wider types; columns that get nulls become nullable. `ignore`: new columns are not stored; they are counted by name, and a warning names them. `fail`: the batch is refused. With `ignore`, too, a wider type is refused.")
NULL_FOR_MISSING = boolean("hoodie.write.set.null.for.missing.columns", False, _WRITE, "Fill columns that a batch lacks with nulls; not those of record key, partition and order. Not set: the batch is refused.")
ARRIVAL_FIELDS = fields("lsm.write.arrival.fields", _WRITE, "Columns that order the events of a batch (for Kafka: topic partition, offset). They are not stored unless the table has them. Not set: the order of the rows in Spark.")
SHUFFLE_PARTITIONS = integer("lsm.write.shuffle.partitions", 0, _WRITE, "Tasks that write one batch. 0: one per 50,000 rows or 16 MiB of the largest of the last four batches, limited by Spark's cores and, for an unpartitioned table, by the number of buckets. The first batch of a process uses that limit.")
EXCHANGE = choice("lsm.write.exchange", "auto", ("auto", "shuffle", "none", "whole_buckets"), _WRITE, "Way of a row to the task that writes it. `shuffle`: each file group has one task, which receives its rows through Spark's shuffle. `none`: each task that reads rows writes them, to a log of its own for each file group. `whole_buckets`: the same for a source of which each partition has all rows of its buckets; checked. `auto`: `none` where that makes at most 64 files, for tables with ordering fields and native logs.")
BUFFER_BYTES = integer("lsm.write.buffer.bytes", 268435456, _WRITE, "Memory limit of one task for a batch: rows, working memory of the sort, and open row groups. Beyond the limit sorted runs are spilled to a local disk.", minimum=1048576)
SPILL_FOLDER = text("lsm.write.spill.folder", None, _WRITE, "Folder on a local disk for spilled sorted runs; not set: the system's temporary folder. Spilled files are deleted when the task ends.")
DEAD_LETTER_PATH = text("lsm.dead.letter.path", None, _WRITE, "Folder for events that cannot be read, with topic, partition, offset and reason; required by `lsm.on.bad.event=dead_letter`.")
ON_BAD_EVENT = choice("lsm.on.bad.event", "fail", ("fail", "dead_letter"), _WRITE, "Handling of an event that cannot be read: fail the batch, or write the event to the dead-letter folder.")

_FILES = "Files"
COMPRESSION = choice("hoodie.parquet.compression.codec", "zstd", ("zstd", "snappy", "gzip", "lz4", "uncompressed"), _FILES, "Parquet codec. Hudi's default is gzip.")
ROW_GROUP_ROWS = integer("lsm.parquet.row.group.rows", 16384, _FILES, "Rows per Parquet row group; a look-up by key reads whole row groups.", minimum=1)
KEY_BLOOM = boolean("lsm.parquet.key.bloom.filter.enabled", True, _FILES, "Write Parquet's bloom filters of the record keys of each row group, about a byte per row, by which look-ups, and filters by `=` and `IN` on the key, leave out row groups. Needs PyArrow 24; without it none are written.")
LOG_KEYS = boolean("lsm.log.key.index.enabled", True, _FILES, "Write the range and a bloom filter of its record keys into the footer of each native log, some two bytes and a half per row, by which look-ups, and filters by `=` and `IN` on the key, leave out logs.")
LOG_KEYS_ACCUMULATED = optional_boolean("lsm.log.key.index.accumulated", _FILES, "Repeat the ranges and bloom filters of earlier logs of the file group in those of later ones, so that one footer tells of many logs: each is repeated once for each six-fold growth of their number. Not set: false with the bucket index, where a key is looked for in one file group only; else true.")
LOG_KEYS_FPP = fraction("lsm.log.key.index.fpp", 0.001, _FILES, "False positive probability of the bloom filter of a native log.")
LOG_KEYS_MAX_BYTES = integer("lsm.log.key.index.max.bytes", 65536, _FILES, "Most bytes that a bloom filter of a native log, or those repeated of earlier logs, take in its footer. A log of more keys, 27,000 by default, has their range and the filters of its row groups.")
PAGE_BYTES = integer("hoodie.parquet.page.size", 1048576, _FILES, "Uncompressed bytes of a Parquet page.", minimum=1024)
LOG_MAX_BYTES = integer("hoodie.logfile.max.size", 1073741824, _FILES, "Size in bytes at which a log file is closed and the next log version of the same instant begins.", minimum=1)
DATA_BLOCK_FORMAT = choice("hoodie.logfile.data.block.format", "avro", ("avro", "parquet"), _FILES, "Format of the data blocks in inline logs, which only tables before version 10 have.")
SMALL_FILE_BYTES = integer("hoodie.parquet.small.file.limit", 104857600, _FILES, "Size in bytes of a file slice below which its file group takes new rows; without a bucket index. 0: new rows go to new file groups.")
ROW_BYTES = integer("hoodie.copyonwrite.record.size.estimate", 1024, _FILES, "Estimate of the bytes of a row in a file, by which new rows are distributed to file groups until there is a commit to measure it; without a bucket index.", minimum=1)
BASE_MAX_BYTES = integer("hoodie.parquet.max.file.size", 125829120, _FILES, "Size in bytes of a base file above which a warning recommends more buckets; a simple bucket has one base file.", minimum=1)
BLOOM_ENABLED = boolean("hoodie.parquet.bloom.filter.enabled", False, _FILES, "Write a bloom filter over the record keys into the footer of each base file, which the indexes BLOOM and GLOBAL_BLOOM read, and always write. Hudi's default is true.")
BLOOM_TYPE = choice("hoodie.bloom.index.filter.type", "DYNAMIC_V0", ("DYNAMIC_V0", "SIMPLE"), _FILES, "Type of the bloom filters.")
BLOOMS_OF_METADATA = boolean("hoodie.bloom.index.use.metadata", False, _TABLE, "Index BLOOM: take the bloom filters of base files from the partition `bloom_filters` of the metadata table, if it has one, so that no file without a key of the batch is opened. Else each file of a partition that the batch has rows of is opened, and its own filter read.")
BLOOM_ENTRIES = integer("hoodie.index.bloom.num_entries", 60000, _FILES, "Number of keys that a SIMPLE filter, or a row of a dynamic one, is sized for at most. A file with fewer keys has a smaller filter.", minimum=1)
BLOOM_FPP = fraction("hoodie.index.bloom.fpp", 1e-9, _FILES, "False positive probability of a bloom filter with no more keys than it is sized for.")
BLOOM_MAX_ENTRIES = integer("hoodie.bloom.index.filter.dynamic.max.entries", 100000, _FILES, "Number of keys up to which a dynamic filter adds rows.", minimum=1)

_READ = "Read"
READ_THREADS = integer("lsm.read.threads", 0, _READ, "Threads that read file slices; 0: one per core.")
AS_OF = text("as.of.instant", None, _READ, "Read the snapshot as of this instant or time, unless the call passes another; not set: the latest snapshot.")
QUERY_TYPE = choice("hoodie.datasource.query.type", "snapshot", ("snapshot", "read_optimized", "incremental"), _READ, "Query type. snapshot: base and log files merged. read_optimized: base files only, without rows written after their compaction. incremental: what was written in a range of time.")
READ_BEGIN = text("hoodie.datasource.read.begin.instanttime", None, _READ, "Incremental queries: start of the range, excluded: a completion time, a date and time, or `000` for all writes.")
READ_END = text("hoodie.datasource.read.end.instanttime", None, _READ, "Incremental queries: end of the range, included; not set: the latest write.")
INCREMENTAL_FORMAT = choice("hoodie.datasource.query.incremental.format", "latest_state", ("latest_state", "cdc"), _READ, "Incremental queries: the newest row of each key (latest_state), or every change with the row before and after it (cdc).")
STREAM_START = text("hoodie.datasource.streaming.startOffset", "earliest", _READ, "Streaming reads: where a new query begins. `earliest`: with the first write. `latest`: with the next one. `snapshot`: with the rows that the table has then, for CDC as inserts. Or a completion time, or a date and time: after it.")
STREAM_COMMITS = integer("lsm.read.stream.max.commits", 0, _READ, "Streaming reads: most commits that one batch reads. 0: all that are there.")
READ_COLUMNS = fields("lsm.read.columns", _READ, "Columns to return, in this order; not set: all.")
READ_NATIVE = boolean("lsm.read.native", True, _READ, "`streaming_lsm.read`: let Spark's own Parquet reader read the file slices without logs. false: read all through the merge; each task reads whole file slices.")
DATA_SKIPPING = boolean("hoodie.enable.data.skipping", True, _READ, "Skip file slices without a row of the filter by the metadata table's partitions `column_stats`, `partition_stats`, `record_index`, secondary and expression indexes, as far as the table has them and `hoodie.metadata.enable` is true.")
READ_META = boolean("lsm.read.meta", False, _READ, "Return the five meta columns before the table's columns.")
READ_LEGACY_NAMES = boolean("lsm.read.rfc103.names", False, _READ, "Also read log files named as in the first version of RFC-103.")

_SERVICES = "Compaction and cleaning"
COMPACT_INLINE = boolean("hoodie.compact.inline", False, _SERVICES, "After a write, run pending compactions, and schedule and run a new one when it is due. A failed compaction never fails the write.")
COMPACT_SCHEDULE = boolean("hoodie.compact.schedule.inline", False, _SERVICES, "After a write, only schedule a compaction when it is due; `lsm compact` runs it.")
COMPACT_TRIGGER = choice("hoodie.compact.inline.trigger.strategy", "NUM_COMMITS", ("NUM_COMMITS", "NUM_COMMITS_AFTER_LAST_REQUEST", "TIME_ELAPSED", "NUM_AND_TIME", "NUM_OR_TIME"), _SERVICES, "Trigger of the next compaction: delta commits since the last completed (or last requested) compaction, elapsed time, or both.")
COMPACT_COMMITS = integer("hoodie.compact.inline.max.delta.commits", 5, _SERVICES, "Delta commits since the last compaction after which the next one is due.", minimum=1)
COMPACT_SECONDS = integer("hoodie.compact.inline.max.delta.seconds", 3600, _SERVICES, "Seconds since the last compaction after which the next one is due.", minimum=1)
COMPACT_LIMIT_MS = integer("lsm.compact.inline.max.ms", 0, _SERVICES, "Milliseconds that a batch waits for inline compactions. Plans are made small enough by the pace of the last ones; what does not fit stays planned for a later batch or another process. A file group alone may take longer. 0: no limit.")
COMPACTION_STRATEGY = strategy("hoodie.compaction.strategy", "LogFileSizeBasedCompactionStrategy", ("LogFileSizeBasedCompactionStrategy", "LogFileNumBasedCompactionStrategy", "BoundedIOCompactionStrategy", "UnBoundedCompactionStrategy", "DayBasedCompactionStrategy", "PartitionRegexBasedCompactionStrategy"), _SERVICES, "Strategy that selects and orders the file slices of a compaction. Hudi's full class names are accepted too.")
COMPACTION_LOG_BYTES = integer("hoodie.compaction.logfile.size.threshold", 0, _SERVICES, "LogFileSizeBased: skip file groups with fewer bytes of log files.")
COMPACTION_LOG_FILES = integer("hoodie.compaction.logfile.num.threshold", 0, _SERVICES, "LogFileNumBased: skip file groups with fewer log files.")
COMPACTION_IO_MB = integer("hoodie.compaction.target.io", 512000, _SERVICES, "Target in MiB read and written by one compaction: it takes no further file groups beyond it. UnBounded, DayBased and PartitionRegexBased ignore it.", minimum=1)
COMPACTION_DAYS = integer("hoodie.compaction.daybased.target.partitions", 10, _SERVICES, "DayBased: number of the newest days of which one compaction takes the file groups. Partition paths are days: `2026/11/23`, `2026-11-23`, `day=2026-11-23`.", minimum=1)
COMPACTION_PARTITIONS = pattern("hoodie.compaction.partition.path.regex", _SERVICES, "PartitionRegexBased: pattern of the whole partition path.")
COMPACTION_GENERATOR = strategy("hoodie.compaction.plan.generator", "HoodieCompactionPlanGenerator", ("HoodieCompactionPlanGenerator", "HybridCompactionPlanGenerator"), _SERVICES, "What a compaction does with a file group. HoodieCompactionPlanGenerator: merges its logs into the base file (FULL). HybridCompactionPlanGenerator: merges small logs into a larger one (LOG) as long as the base file is large and the logs are a small share of it.")
COMPACTION_SMALL_BASE = integer("lsm.compaction.small.base.bytes", 134217728, _SERVICES, "Hybrid: base files of fewer bytes are rewritten with their logs (FULL).")
COMPACTION_LOG_SHARE = ratio("lsm.compaction.log.share", 0.5, _SERVICES, "Hybrid: logs of more than this share of the base file's bytes are merged into it (FULL).")
COMPACTION_MAX_RUNS = integer("lsm.compaction.max.runs", 10, _SERVICES, "Hybrid: most sorted runs, each of one commit or of one log compaction, that a file group has when the next compaction is due.", minimum=2)
COMPACTION_MAX_FILES = integer("lsm.compaction.max.files", 300, _SERVICES, "Hybrid: most log files of a file group when it is compacted, those that log compactions replaced included; more are merged into the base file (FULL).", minimum=2)
TOMBSTONE_RETENTION = integer("lsm.compaction.tombstone.retention", 86400, _SERVICES, "Seconds for which a compaction, and in a COPY_ON_WRITE table a write, keeps deletes with an ordering value, so that rows that come late, with smaller ordering values, stay deleted; at most half as long again. Tables of version 10. 0: deletes are dropped.")
LOG_COMPACT_INLINE = boolean("hoodie.log.compaction.inline", False, _SERVICES, "After a write, run pending log compactions, and schedule and run a new one when as many delta commits as `hoodie.log.compaction.blocks.threshold` were completed since the last compaction or log compaction. It merges logs into a larger one by Hudi's action `logcompaction`; where both are due, the compaction runs first.")
LOG_COMPACTION_BLOCKS = integer("hoodie.log.compaction.blocks.threshold", 5, _SERVICES, "Fewest sorted runs of a file group that a log compaction merges.", minimum=2)
CLEAN_AUTOMATIC = boolean("hoodie.clean.automatic", True, _SERVICES, "After a write, delete file slices that no retained commit needs.")
CLEAN_POLICY = choice("hoodie.clean.policy", "KEEP_LATEST_COMMITS", ("KEEP_LATEST_COMMITS", "KEEP_LATEST_FILE_VERSIONS", "KEEP_LATEST_BY_HOURS"), _SERVICES, "Cleaning policy: retain the file slices that the last commits need, the last file slices of each file group, or the file slices that the last hours need.")
FAILED_WRITES = choice("hoodie.clean.failed.writes.policy", "EAGER", ("EAGER", "LAZY"), _SERVICES, "Roll the writes of dead writers back when the next write begins (EAGER), or in the next compaction or clean (LAZY). Those of living writers are never rolled back, in either.")
CLEAN_COMMITS = integer("hoodie.clean.commits.retained", 10, _SERVICES, "KEEP_LATEST_COMMITS: number of commits whose snapshots stay readable.", minimum=1)
CLEAN_VERSIONS = integer("hoodie.clean.fileversions.retained", 3, _SERVICES, "KEEP_LATEST_FILE_VERSIONS: number of file slices to retain per file group.", minimum=1)
CLEAN_HOURS = integer("hoodie.clean.hours.retained", 24, _SERVICES, "KEEP_LATEST_BY_HOURS: number of hours whose snapshots stay readable. Their writes are not archived.", minimum=1)
CLEAN_INCREMENTAL = boolean("hoodie.clean.incremental.enabled", True, _SERVICES, "By commits and hours: a clean examines only partitions that were written since the last clean. false: every partition.", "hoodie.cleaner.incremental.mode")
TTL_STRATEGIES = ("KEEP_BY_TIME", "KEEP_BY_CREATION_TIME")
TTL_INLINE = boolean("hoodie.partition.ttl.inline", False, _SERVICES, "After a write, delete the partitions that have expired.")
TTL_DAYS = integer("hoodie.partition.ttl.strategy.days.retain", -1, _SERVICES, "Days after which a partition expires; less than 1: never.", minimum=-1)
TTL_STRATEGY = choice("hoodie.partition.ttl.management.strategy.type", TTL_STRATEGIES[0], TTL_STRATEGIES, _SERVICES, "Since when the days count. KEEP_BY_TIME: the last write or compaction of the partition. KEEP_BY_CREATION_TIME: its first write, or its last overwrite or deletion.")
TTL_SELECTED = text("hoodie.partition.ttl.strategy.partition.selected", None, _SERVICES, "Paths of the partitions that expire, separated by commas. Not set: all.")
TTL_MOST = integer("hoodie.partition.ttl.strategy.max.delete.partitions", 1000, _SERVICES, "Most partitions that are deleted at a time, the oldest first.", minimum=1)
ARCHIVE_AUTOMATIC = boolean("hoodie.archive.automatic", True, _SERVICES, "After a write, move completed actions that nothing needs any more from the active timeline into the history.")
KEEP_MIN_COMMITS = integer("hoodie.keep.min.commits", 11, _SERVICES, "Commits that archiving leaves on the active timeline; more than `hoodie.clean.commits.retained`. Not set: at least one more than that. Hudi's default is 20.", minimum=1)
KEEP_MAX_COMMITS = integer("hoodie.keep.max.commits", 14, _SERVICES, "Commits on the active timeline beyond which archiving begins; more than `hoodie.keep.min.commits`. Not set: at least three more than that. Hudi's default is 30.", minimum=2)

_CLUSTERING = "Clustering"
CLUSTER_INLINE = boolean("hoodie.clustering.inline", False, _CLUSTERING, "After a write, run pending clusterings, and schedule and run a new one when it is due. For tables without buckets.", "hoodie.datasource.clustering.inline.enable")
CLUSTER_SCHEDULE = boolean("hoodie.clustering.schedule.inline", False, _CLUSTERING, "After a write, only schedule a clustering when it is due; `lsm cluster` or `jobs/cluster.py` runs it. Until then writes of its file groups are refused.")
CLUSTER_COMMITS = integer("hoodie.clustering.inline.max.commits", 4, _CLUSTERING, "Commits since the last clustering after which the next one is due.", "hoodie.clustering.async.max.commits", minimum=1)
CLUSTER_COLUMNS = fields("hoodie.clustering.plan.strategy.sort.columns", _CLUSTERING, "Columns by which a clustering sorts rows; not set: by record key. In the lsm_tree layout they decide which rows a file group has, and each file is sorted by record key.")
CLUSTER_LAYOUT = layout("hoodie.layout.optimize.strategy", "linear", ("linear", "z-order"), ("hilbert",), _CLUSTERING, "Order of rows by several columns. linear: by the first column, then the second. z-order: by all of them alike, along a space-filling curve over the ranks of their values.")
CLUSTER_TARGET_BYTES = integer("hoodie.clustering.plan.strategy.target.file.max.bytes", 1073741824, _CLUSTERING, "Size in bytes of the files that a clustering writes.", minimum=1)
CLUSTER_SMALL_BYTES = integer("hoodie.clustering.plan.strategy.small.file.limit", 314572800, _CLUSTERING, "File slices with a base file of this size in bytes or more are not clustered.", minimum=1)
CLUSTER_GROUP_BYTES = integer("hoodie.clustering.plan.strategy.max.bytes.per.group", 2147483648, _CLUSTERING, "Most bytes of files whose rows are sorted together, by one task.", minimum=1)
CLUSTER_GROUPS = integer("hoodie.clustering.plan.strategy.max.num.groups", 30, _CLUSTERING, "Most such groups of one clustering.", minimum=1)
CLUSTER_SINGLE = boolean("hoodie.clustering.plan.strategy.single.group.clustering.enabled", True, _CLUSTERING, "Cluster a file slice also if no other one of its partition is sorted together with it.")
CLUSTER_FILTER = choice("hoodie.clustering.plan.partition.filter.mode", "NONE", ("NONE", "RECENT_DAYS", "SELECTED_PARTITIONS"), _CLUSTERING, "Partitions that are clustered. NONE: all. RECENT_DAYS: the last ones by their paths. SELECTED_PARTITIONS: a range of paths.")
CLUSTER_RECENT = integer("hoodie.clustering.plan.strategy.daybased.lookback.partitions", 2, _CLUSTERING, "RECENT_DAYS: number of partitions that are clustered.", minimum=1)
CLUSTER_SKIPPED = integer("hoodie.clustering.plan.strategy.daybased.skipfromlatest.partitions", 0, _CLUSTERING, "RECENT_DAYS: number of the last partitions that are left out.")
CLUSTER_BEGIN = text("hoodie.clustering.plan.strategy.cluster.begin.partition", None, _CLUSTERING, "SELECTED_PARTITIONS: the first partition path.")
CLUSTER_END = text("hoodie.clustering.plan.strategy.cluster.end.partition", None, _CLUSTERING, "SELECTED_PARTITIONS: the last partition path.")
CLUSTER_PARTITIONS = pattern("hoodie.clustering.plan.strategy.partition.regex.pattern", _CLUSTERING, "Cluster only partitions whose whole path matches this pattern.")
CLUSTER_SELECTED = text("hoodie.clustering.plan.strategy.partition.selected", None, _CLUSTERING, "Paths of the partitions that are clustered, separated by commas. Not set: all.")

_METADATA = "Metadata table"
METADATA_ENABLE = boolean("hoodie.metadata.enable", False, _METADATA, "true: create a metadata table with the partition `files` if there is none, and read file listings from it. false, set by a writer: drop the metadata table. Not set: maintain the metadata table if there is one, and list folders, but in tables of the type RECORD_INDEX or RECORD_LEVEL_INDEX. Hudi's default is true.")
METADATA_COLUMN_STATS = boolean("hoodie.metadata.index.column.stats.enable", False, _METADATA, "true: add the partition `column_stats` to a metadata table, the ranges of columns in data files, by which readers skip file slices. false, set by a writer: drop it. Not set: maintain one that is there. Hudi's default is true.")
METADATA_RANGED_COLUMNS = fields("hoodie.metadata.index.column.stats.column.list", _METADATA, "Columns whose ranges a new partition `column_stats` has, beside three meta columns; not set: the first 32 that are not nested.")
RECORD_INDEX = boolean("hoodie.metadata.global.record.level.index.enable", False, _METADATA, "true: add the partition `record_index` to a metadata table, the file group of each record key, by which readers find keys in tables without buckets. false, set by a writer: drop it. Not set: maintain one that is there.", "hoodie.metadata.record.index.enable")
PARTITIONED_RECORD_INDEX = boolean("hoodie.metadata.record.level.index.enable", False, _METADATA, "As `hoodie.metadata.global.record.level.index.enable`, with file groups for each partition of the table: a record key may be in several partitions.")
RECORD_INDEX_MIN_GROUPS = integer("hoodie.metadata.global.record.level.index.min.filegroup.count", 10, _METADATA, "Minimum number of file groups of a new record index.", "hoodie.metadata.record.index.min.filegroup.count", minimum=1)
RECORD_INDEX_MAX_GROUPS = integer("hoodie.metadata.global.record.level.index.max.filegroup.count", 10_000, _METADATA, "Maximum number of file groups of a new record index.", "hoodie.metadata.record.index.max.filegroup.count", minimum=1)
PARTITIONED_MIN_GROUPS = integer("hoodie.metadata.record.level.index.min.filegroup.count", 1, _METADATA, "Minimum number of file groups for each partition in a new partitioned record index.", "hoodie.metadata.partitioned.record.index.min.filegroup.count", minimum=1)
PARTITIONED_MAX_GROUPS = integer("hoodie.metadata.record.level.index.max.filegroup.count", 10, _METADATA, "Maximum number of file groups for each partition in a new partitioned record index.", "hoodie.metadata.partitioned.record.index.max.filegroup.count", minimum=1)
RECORD_INDEX_GROWTH = ratio("hoodie.metadata.record.index.growth.factor", 2.0, _METADATA, "Factor by which the keys are expected to become more than those for which a record index is created.")
RECORD_INDEX_GROUP_BYTES = integer("hoodie.metadata.record.index.max.filegroup.size", 1 << 30, _METADATA, "Size in bytes for which the number of file groups of a new record index is chosen, at 48 bytes a key.", minimum=48)
RECORD_INDEX_SCAN_SHARE = fraction("lsm.metadata.record.index.scan.share", 0.3, _METADATA, "Share of a file's keys from which a look-up in the record index reads the whole file, in place of the blocks that may have one of them.")
METADATA_PARTITION_STATS = boolean("hoodie.metadata.index.partition.stats.enable", False, _METADATA, "true: add the partition `partition_stats` to a metadata table that has `column_stats`, the ranges of columns in partitions, by which readers skip partitions. false, set by a writer: drop it. Not set: maintain one that is there. Hudi's default is true.")
METADATA_BLOOM_FILTERS = boolean("hoodie.metadata.index.bloom.filter.enable", False, _METADATA, "true: add the partition `bloom_filters` to a metadata table, the bloom filters of base files. false, set by a writer: drop it. Not set: maintain one that is there. It has those of base files that have one, see `hoodie.parquet.bloom.filter.enabled`.")
SECONDARY_INDEX_COLUMN = text("hoodie.metadata.index.secondary.column", None, _METADATA, "Add the partition `secondary_index_<column>` to a metadata table that has a `record_index` over all partitions: the record keys of each value of the column, a text or a whole number, by which readers find rows in tables without buckets. Not set: maintain those that are there. `hoodie.metadata.index.secondary.enable` of Hudi is not known.")
EXPRESSION_COLUMN = text("hoodie.metadata.index.expression.column", None, _METADATA, "Column of an expression index that `create_index` makes, or `lsm index create`. A write makes none; it maintains those that are there.")
EXPRESSION_FUNCTION = text("hoodie.expression.index.function", None, _METADATA, "Function of an expression index that is made: year, month, day or hour of a date or timestamp, lower of a text. Of a timestamp with a zone the ranges hold in every zone.")
METADATA_COMPACT_COMMITS = integer("hoodie.metadata.compact.max.delta.commits", 7, _METADATA, "Delta commits of the metadata table since its last compaction after which the next one is due. Hudi's default is 10.", minimum=1)

_KAFKA = "Kafka job"
KAFKA_SERVERS = text("kafka.bootstrap.servers", None, _KAFKA, "Brokers, `host:port` separated by commas. Every other key under `kafka.` is passed to the Kafka client unchanged.")
KAFKA_TOPICS = text("subscribe", None, _KAFKA, "Topics, separated by commas. Several need a table each: see `lsm.table.path`.")
KAFKA_PATTERN = text("subscribePattern", None, _KAFKA, "Pattern of topics (of Java), instead of `subscribe`; topics that are created later are read, too.")
SHARE_TABLES = boolean("lsm.kafka.topics.share.table", False, _KAFKA, "Accept several topics with one table: the rows of all are of one kind, and a row of one topic may replace that of another.")
KAFKA_STARTING_OFFSETS = text("startingOffsets", "earliest", _KAFKA, "Starting offsets of a new query: earliest, latest, or Spark's JSON of offsets.")
KAFKA_MAX_OFFSETS = integer("maxOffsetsPerTrigger", 0, _KAFKA, "Maximum number of events per batch; 0: no limit.")
KAFKA_FAIL_ON_LOSS = boolean("failOnDataLoss", True, _KAFKA, "Stop the query when events were deleted on the brokers before they were read, or a topic was deleted and created again.")
KAFKA_MIN_PARTITIONS = integer("minPartitions", 0, _KAFKA, "Minimum number of tasks that read a batch; 0: one per topic partition.")
KAFKA_FORMAT = choice("lsm.kafka.format", "json", ("json", "debezium-json", "avro", "debezium-avro"), _KAFKA, "Format of event values: the row or a Debezium envelope, as JSON or as Avro with the id of its schema in front (Confluent's frame).")
KAFKA_SCHEMA = text("lsm.kafka.schema", None, _KAFKA, "Columns of the rows, as Spark DDL: `order_id STRING, qty INT`; other fields are counted and not stored. With Avro it may be left out: the columns then follow the schemas of the messages, by `lsm.schema.evolution`. `TIMESTAMP COMMENT 'millis'` (or micros, nanos) sets the unit of integers; ISO text is always accepted.")
SCHEMA_REGISTRY_URL = text("lsm.kafka.schema.registry.url", None, _KAFKA, "URL of the schema registry of Avro messages, such as `http://host:8081`; several of one registry are separated by commas.")
SCHEMA_REGISTRY_USER = text("lsm.kafka.schema.registry.basic.auth.user.info", None, _KAFKA, "`user:password` for the schema registry. It is not printed; the environment variable keeps it out of files and process lists.")
SCHEMA_SUBJECT = text("lsm.kafka.schema.subject", None, _KAFKA, "Subject in the schema registry whose newest schema gives a new table its columns, where `lsm.kafka.schema` is not set. Not set: `{topic}-value`.")
SCHEMA_FOLDER = text("lsm.kafka.schema.folder", None, _KAFKA, "Folder with the schemas of Avro messages as `<id>.avsc`, which every executor can read: instead of a schema registry, or asked before it.")
UNAVAILABLE = text("lsm.kafka.debezium.unavailable.value", "__debezium_unavailable_value", _KAFKA, "What Debezium sends for a large value that an update did not change: `unavailable.value.placeholder` of the connector, also as `hex:…`. An event with it is bad, unless the table fills it (FILL_UNAVAILABLE).")
CHECKPOINT = text("checkpointLocation", None, _KAFKA, "Folder of the query's checkpoint.")
TRIGGER = text("lsm.trigger", "availableNow", _KAFKA, "Trigger of the query: `availableNow` reads all available events and stops; an interval such as `10 seconds` runs until it is stopped.")
TABLE_PATH = text("lsm.table.path", None, _KAFKA, "Path of the table. In this and every other text of the Kafka job's options `{topic}` stands for the topic; `lsm.kafka.topic.<topic>.<option>` (without `lsm.`: `lsm.kafka.topic.orders.table.path`) is an option for one topic.")
# fmt: on


class Options(Mapping[str, object]):
    """Typed values of all options; an option that is not set has its default.

    ``options[TABLE_NAME]`` takes an `Option` and returns a value of its type. Iteration yields the keys that are set.
    """

    def __init__(self, values: Mapping[str, object] | None = None, source: str = "options") -> None:
        """Check every key and value.

        Raises:
            ConfigError: an unknown key (the message suggests the nearest key, or says that it is an option of Hudi), a
                malformed value, or one option set under two keys with different values.
        """
        self._values: dict[str, object] = {}
        spellings: dict[str, str] = {}
        for key, value in (values or {}).items():
            option = _known(key, source)
            parsed = _parse(option, value, source)
            other = spellings.setdefault(option.key, key)
            if self._values.setdefault(option.key, parsed) != parsed:
                raise ConfigError(f"{source}: {other!r} and {key!r} are one option with two values; leave one out")

    @overload
    def __getitem__(self, option: Option[T]) -> T: ...

    @overload
    def __getitem__(self, option: str) -> object: ...

    def __getitem__(self, option: Option[T] | str) -> object:
        known = _known(option, "options") if isinstance(option, str) else option
        return self._values.get(known.key, known.default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def is_set(self, option: Option[T]) -> bool:
        """Return whether this option has been set explicitly."""
        return option.key in self._values

    def merged(self, other: Options) -> Options:
        """Return these options, overridden by those set in `other`."""
        merged = Options()
        merged._values = {**self._values, **other._values}
        return merged

    def without(self, *options: Option[int] | Option[str | None]) -> Options:
        """Return these options with the given ones reset to their defaults."""
        left = Options()
        left._values = {key: value for key, value in self._values.items() if key not in {o.key for o in options}}
        return left


def resolve(
    arguments: Mapping[str, object] | None = None,
    properties: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Options:
    """Merge options by precedence: properties file < environment < arguments.

    Args:
        arguments: keys and values as passed by the caller.
        properties: path of a Java properties file.
        environment: environment variables, by default those of the process. The variable of a key
            is ``LSM_CONF_`` and the key in capitals, with every character but letters and digits as ``_``.

    Raises:
        ConfigError: unknown key, malformed value, or an unreadable properties file.
    """
    variables = os.environ if environment is None else environment
    options = Options()
    if properties is not None:
        options = Options(read_properties(Path(properties)), source=str(properties))
    options = options.merged(Options(_from_environment(variables), source="environment"))
    return options.merged(Options(arguments, source="arguments"))


def read_properties(path: Path) -> dict[str, str]:
    """Read the keys and values of a Java properties file, without checking them against the options.

    Raises:
        ConfigError: the file cannot be read; the message names it.
    """
    try:
        return parse_properties(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(f"properties file {path} cannot be read: {error.strerror}") from error
    except CorruptFileError as error:
        raise ConfigError(str(error)) from error


def environment_name(key: str) -> str:
    """Return the name of the environment variable of a key."""
    return ENVIRONMENT_PREFIX + "".join(c if c.isalnum() else "_" for c in key).upper()


def _from_environment(variables: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for variable in sorted(name for name in variables if name.startswith(ENVIRONMENT_PREFIX)):
        names = {environment_name(key): key for key in (*OPTIONS, *_ALIASES)}
        if variable not in names:
            families = {environment_name(prefix): purpose for prefix, purpose in PURPOSES.items()}
            advice = _advice(variable, names, families)
            if variable.startswith(tuple(map(environment_name, FREE_PREFIXES))):
                advice = f"{_ONLY_IN_FILES}{advice}"
            raise ConfigError(f"environment variable {variable} names no option{advice}")
        found[names[variable]] = variables[variable]
    return found


def with_own_case(key: str) -> str:
    """Return the key of the option that differs in case only, if there is one: Spark writes all keys in lower case."""
    return next((known for known in (*OPTIONS, *_ALIASES) if known.lower() == key.lower()), key)


def is_meant_for_option(key: str) -> bool:
    """Return whether a key is that of an option, or is like one: by its prefix, or near the name of one."""
    names = [known.lower() for known in (*OPTIONS, *_ALIASES)]
    like = key.lower()
    return like.startswith(_OWN_PREFIXES) or bool(difflib.get_close_matches(like, names, n=1, cutoff=_NEAR))


def _known(key: str, source: str) -> Option[object]:
    option = OPTIONS.get(_ALIASES.get(key, key))
    if option is None:
        raise ConfigError(f"{source}: unknown option {key!r}{_advice(key, (*OPTIONS, *_ALIASES), PURPOSES)}")
    return option


def _advice(key: str, known: Iterable[str], families: Mapping[str, str]) -> str:
    """Build the advice for an unknown key: suggest a similar key, or name the family of Hudi's options."""
    names, family = list(known), family_of(key, families)
    # Keys of one family often differ in a single word, so a suggestion there must be more similar.
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.94 if family else _NEAR)
    if close:
        return f"; did you mean {close[0]!r}?"
    if family is None:
        of_hudi = key.startswith(("hoodie.", environment_name("hoodie.")))
        return f": not an option of this release; {_LIST}" if of_hudi else f"; {_LIST}"
    if any(name.startswith(family) for name in names):
        return f": this release does not have this option for {families[family]}; {_LIST}"
    return f": an option of Hudi for {families[family]}, which this release does not have: leave it out"


def _parse(option: Option[T], value: object, source: str) -> T:
    try:
        return option.parse(value)
    except ValueError as error:
        raise ConfigError(f"{source}: {option.key}={value!r}: {error}") from None
