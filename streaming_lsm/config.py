"""The one table of options: key, type, default and meaning.

Validation, ``--help`` and the configuration page in ``docs/`` are all made from `OPTIONS`.
Keys that mean what they mean in Hudi keep Hudi's spelling; our own begin with ``lsm.``.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar, overload

from streaming_lsm.errors import ConfigError, CorruptFileError
from streaming_lsm.hudi_options import PURPOSES, family_of
from streaming_lsm.java_properties import parse_properties

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ENVIRONMENT_PREFIX = "LSM_CONF_"
_PAGE = "docs/configuration.md"


@dataclass(frozen=True)
class Option(Generic[T_co]):
    """One option.

    Attributes:
        key: the spelling users type.
        default: value when nobody sets it; ``None`` means "not set".
        parse: turns a text or Python value into the option's type, raising `ValueError` otherwise.
        kind: the type as the documentation names it.
        group: heading under which the documentation lists it.
        doc: one or two sentences.
        aliases: older Hudi spellings that are read as this key.
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


def integer(key: str, default: int, group: str, doc: str, minimum: int = 0) -> Option[int]:
    return _register(Option(key, default, _integer(minimum), "integer", group, doc))


def fraction(key: str, default: float, group: str, doc: str) -> Option[float]:
    return _register(Option(key, default, _fraction, "number", group, doc))


def fields(key: str, group: str, doc: str, *aliases: str) -> Option[tuple[str, ...]]:
    return _register(
        Option(key=key, default=(), parse=_fields, kind="list of columns", group=group, doc=doc, aliases=aliases)
    )


def _strategy_names(*allowed: str) -> Callable[[object], str]:
    """Names of Hudi's classes, with or without their package."""
    choose = _choice(*allowed)
    return lambda value: choose(value.strip().rpartition(".")[2] if isinstance(value, str) else value)


def strategy(key: str, default: str, allowed: tuple[str, ...], group: str, doc: str) -> Option[str]:
    return _register(Option(key, default, _strategy_names(*allowed), " \\| ".join(allowed), group, doc))


def choice(
    key: str, default: str | None, allowed: tuple[str, ...], group: str, doc: str, *aliases: str
) -> Option[str | None]:
    kind = " \\| ".join(allowed)
    return _register(
        Option(key=key, default=default, parse=_choice(*allowed), kind=kind, group=group, doc=doc, aliases=aliases)
    )


# fmt: off
_TABLE = "Table (fixed at creation, kept in hoodie.properties)"
TABLE_NAME = text("hoodie.table.name", None, _TABLE, "Name of the table; needed to create one.", "hoodie.datasource.write.table.name")
DATABASE_NAME = text("hoodie.database.name", None, _TABLE, "Database of the table; part of the properties' checksum.")
TABLE_TYPE = choice("hoodie.datasource.write.table.type", "MERGE_ON_READ", ("MERGE_ON_READ", "COPY_ON_WRITE"), _TABLE, "Kind of table. MERGE_ON_READ: a write adds log files, and compaction makes base files. COPY_ON_WRITE: a write makes new base files.", "hoodie.table.type")
TABLE_VERSION = integer("hoodie.write.table.version", 10, _TABLE, "Table version: 10, the first with native log files (Hudi 1.3), or 9 or 8, which Hudi 1.2 reads and writes.", minimum=1)
AUTO_UPGRADE = boolean("hoodie.write.auto.upgrade", False, _TABLE, "With hoodie.write.table.version: a table of an earlier version is upgraded before the next write. Hudi's default is true.")
STORAGE_LAYOUT = choice("hoodie.table.storage.layout", None, ("lsm_tree", "default"), _TABLE, "Layout of the file slices. lsm_tree: every file sorted by record key; needs version 10, where it is what a new table gets.")
RECORD_KEY_FIELDS = fields("hoodie.datasource.write.recordkey.field", _TABLE, "Columns that make the record key.", "hoodie.table.recordkey.fields")
PARTITION_FIELDS = fields("hoodie.datasource.write.partitionpath.field", _TABLE, "Columns that make the partition path; none for an unpartitioned table. With the CUSTOM key generator each is `column:SIMPLE` or `column:TIMESTAMP`.", "hoodie.table.partition.fields")
ORDERING_FIELDS = fields("hoodie.table.ordering.fields", _TABLE, "Columns that say which of two rows of a key is newer. None: the later commit wins.", "hoodie.datasource.write.precombine.field", "hoodie.table.precombine.field")
MERGE_MODE = choice("hoodie.record.merge.mode", None, ("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"), _TABLE, "How rows of one key merge. Not set: event time when there are ordering fields, else commit time.")
KEY_GENERATOR = choice("hoodie.datasource.write.keygenerator.type", None, ("SIMPLE", "COMPLEX", "NON_PARTITION", "TIMESTAMP", "CUSTOM"), _TABLE, "Key generator. Not set: SIMPLE, COMPLEX or NON_PARTITION by the number of key and partition columns.", "hoodie.table.keygenerator.type")
HIVE_STYLE = boolean("hoodie.datasource.write.hive_style_partitioning", False, _TABLE, "Partition folders are named `column=value`.")
URL_ENCODE = boolean("hoodie.datasource.write.partitionpath.urlencode", False, _TABLE, "Escape special characters of partition values as %XX.")
LOGICAL_TIMESTAMP = boolean("hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled", False, _TABLE, "Timestamps in keys are written as date and time instead of the raw epoch number.")
TIMESTAMP_TYPE = choice("hoodie.keygen.timebased.timestamp.type", None, ("UNIX_TIMESTAMP", "DATE_STRING", "MIXED", "EPOCHMILLISECONDS", "EPOCHMICROSECONDS", "SCALAR"), _TABLE, "What the column of a TIMESTAMP key generator holds.", "hoodie.deltastreamer.keygen.timebased.timestamp.type")
TIMESTAMP_UNIT = choice("hoodie.keygen.timebased.timestamp.scalar.time.unit", "SECONDS", ("NANOSECONDS", "MICROSECONDS", "MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS"), _TABLE, "Unit of a SCALAR timestamp.", "hoodie.deltastreamer.keygen.timebased.timestamp.scalar.time.unit")
TIMESTAMP_INPUT = text("hoodie.keygen.timebased.input.dateformat", None, _TABLE, "Pattern (Joda-Time) in which a DATE_STRING or MIXED column is written; several are separated by the delimiter.", "hoodie.deltastreamer.keygen.timebased.input.dateformat")
TIMESTAMP_INPUT_DELIMITER = text("hoodie.keygen.timebased.input.dateformat.list.delimiter.regex", ",", _TABLE, "Separates several input patterns.", "hoodie.deltastreamer.keygen.timebased.input.dateformat.list.delimiter.regex")
TIMESTAMP_OUTPUT = text("hoodie.keygen.timebased.output.dateformat", None, _TABLE, "Pattern (Joda-Time) of the partition value that a TIMESTAMP column becomes.", "hoodie.deltastreamer.keygen.timebased.output.dateformat")
TIMESTAMP_INPUT_ZONE = text("hoodie.keygen.timebased.input.timezone", None, _TABLE, "Time zone of the column; not set: `hoodie.keygen.timebased.timezone`, else UTC.", "hoodie.deltastreamer.keygen.timebased.input.timezone")
TIMESTAMP_OUTPUT_ZONE = text("hoodie.keygen.timebased.output.timezone", None, _TABLE, "Time zone of the partition value; not set: `hoodie.keygen.timebased.timezone`, else UTC.", "hoodie.deltastreamer.keygen.timebased.output.timezone")
TIMESTAMP_ZONE = text("hoodie.keygen.timebased.timezone", "UTC", _TABLE, "Time zone of column and partition value; excludes the two above.", "hoodie.deltastreamer.keygen.timebased.timezone")
DELETE_FIELD = text("hoodie.payload.delete.field", None, _TABLE, "Column that marks deletes, together with the marker.")
DELETE_MARKER = text("hoodie.payload.delete.marker", None, _TABLE, "Value of the delete column, as text, that makes a row a delete.")
TIMELINE_ZONE = choice("hoodie.table.timeline.timezone", "UTC", ("UTC", "LOCAL"), _TABLE, "Time zone of instants. Hudi's own default is LOCAL; ours is UTC.")
INDEX_TYPE = choice("hoodie.index.type", "BUCKET", ("BUCKET",), _TABLE, "How the file group of a key is found.")
BUCKET_ENGINE = choice("hoodie.index.bucket.engine", "SIMPLE", ("SIMPLE",), _TABLE, "Kind of bucket index.")
NUM_BUCKETS = integer("hoodie.bucket.index.num.buckets", 256, _TABLE, "Buckets, and so file groups, per partition. Kept under `lsm.bucket.index.num.buckets`.", minimum=1)
HASH_FIELDS = fields("hoodie.bucket.index.hash.field", _TABLE, "Key columns that choose the bucket; not set: all of them. Kept under `lsm.bucket.index.hash.field`.")

_WRITE = "Write"
OPERATION = choice("hoodie.datasource.write.operation", "upsert", ("upsert", "insert", "bulk_insert", "delete"), _WRITE, "What a batch does to the table.")
AMBIGUOUS_KEYS = choice("lsm.keys.ambiguous", None, ("refuse", "warn", "allow"), _WRITE, "Composite record keys that other values make, too, such as `a:x,b:y,b:z`: refuse the row, warn, or allow it. Not set: what the table was created with, which is refuse unless the option said otherwise, and warn for a table that Hudi created.")
CREATE_OVER_FILES = boolean("lsm.create.over.files", False, _WRITE, "Create a table in a folder that has data files or partition metadata of an earlier table: their rows become rows of the new one. Otherwise such a folder is refused.")
COMBINE_UPSERT = boolean("hoodie.combine.before.upsert", True, _WRITE, "Reduce rows of one key to the winner before an upsert is written.")
COMBINE_INSERT = boolean("hoodie.combine.before.insert", False, _WRITE, "The same for insert and bulk_insert.")
COMBINE_DELETE = boolean("hoodie.combine.before.delete", True, _WRITE, "The same for delete.")
CONCURRENCY_MODE = choice("hoodie.write.concurrency.mode", "SINGLE_WRITER", ("SINGLE_WRITER",), _WRITE, "How writers share the table: one at a time.")
CLOCK_SKEW_MS = integer("hoodie.time.generator.max_expected_clock_skew_ms", 0, _WRITE, "How long to hold the lock after taking a time, for tables shared with writers on machines with skewed clocks. Hudi's default is 200; ours is 0, as a single writer needs no wait.")
HEARTBEAT_MS = integer("hoodie.client.heartbeat.interval_in_ms", 60000, _WRITE, "Interval of the heartbeat of a running write.", minimum=100)
HEARTBEAT_MISSES = integer("hoodie.client.heartbeat.tolerable.misses", 2, _WRITE, "Missed heartbeats after which a writer on another machine counts as dead.", minimum=1)
WRITER_ID = text("lsm.writer.id", None, _WRITE, "Identity of the writer for exactly-once replay; not set: the id of the streaming query.")
WRITER_IDLE_DAYS = integer("lsm.writer.idle.days", 30, _WRITE, "Days without a commit after which a writer's last batch id is forgotten, with a warning.", minimum=1)
WRITER_MAX = integer("lsm.writer.max.remembered", 1000, _WRITE, "Writers whose last batch id each commit carries forward.", minimum=1)
ARRIVAL_FIELDS = fields("lsm.write.arrival.fields", _WRITE, "Columns that order the events of a batch (for Kafka: topic partition, offset). They are not stored unless the table has them. Not set: the order of the rows in Spark.")
SHUFFLE_PARTITIONS = integer("lsm.write.shuffle.partitions", 0, _WRITE, "Tasks that write one batch; 0: one for each 50,000 rows or 16 MiB that the largest of the last four batches had, at most as many as Spark has cores, and for an unpartitioned table as it has buckets. The first batch of a process gets as many as there may be.")
BUFFER_BYTES = integer("lsm.write.buffer.bytes", 268435456, _WRITE, "Memory that one task may hold of a batch: rows, what sorting them takes, and open row groups. Beyond it sorted runs go to a local disk.", minimum=1048576)
SPILL_FOLDER = text("lsm.write.spill.folder", None, _WRITE, "Folder on a local disk for the sorted runs that do not fit into memory; not set: the system's folder for temporary files. Nothing in it outlives the task.")
DEAD_LETTER_PATH = text("lsm.dead.letter.path", None, _WRITE, "Folder for events that could not be read, with topic, partition, offset and reason; needed for `lsm.on.bad.event=dead_letter`.")
ON_BAD_EVENT = choice("lsm.on.bad.event", "fail", ("fail", "dead_letter"), _WRITE, "An event that cannot be read fails the batch, or goes to the dead-letter folder.")

_FILES = "Files"
COMPRESSION = choice("hoodie.parquet.compression.codec", "zstd", ("zstd", "snappy", "gzip", "lz4", "uncompressed"), _FILES, "Parquet codec. Hudi's default is gzip.")
ROW_GROUP_ROWS = integer("lsm.parquet.row.group.rows", 131072, _FILES, "Rows per Parquet row group.", minimum=1)
PAGE_BYTES = integer("hoodie.parquet.page.size", 1048576, _FILES, "Uncompressed bytes of a Parquet page.", minimum=1024)
LOG_MAX_BYTES = integer("hoodie.logfile.max.size", 1073741824, _FILES, "Bytes at which a log file ends and the next version of its instant begins.", minimum=1)
DATA_BLOCK_FORMAT = choice("hoodie.logfile.data.block.format", "avro", ("avro", "parquet"), _FILES, "What the data blocks of inline logs hold. Only tables before version 10 have such logs.")
BASE_MAX_BYTES = integer("hoodie.parquet.max.file.size", 125829120, _FILES, "Bytes of a base file above which a warning asks for more buckets: a simple bucket has one base file.", minimum=1)
BLOOM_TYPE = choice("hoodie.bloom.index.filter.type", "DYNAMIC_V0", ("DYNAMIC_V0", "SIMPLE"), _FILES, "Kind of the bloom filter in base file footers.")
BLOOM_ENTRIES = integer("hoodie.index.bloom.num_entries", 60000, _FILES, "Keys for which a bloom filter is sized.", minimum=1)
BLOOM_FPP = fraction("hoodie.index.bloom.fpp", 1e-9, _FILES, "Probability of a false positive of a bloom filter.")
BLOOM_MAX_ENTRIES = integer("hoodie.bloom.index.filter.dynamic.max.entries", 100000, _FILES, "Keys up to which a dynamic bloom filter grows.", minimum=1)

_READ = "Read"
READ_THREADS = integer("lsm.read.threads", 0, _READ, "Threads that read file slices; 0: one per core.")
AS_OF = text("as.of.instant", None, _READ, "Read the snapshot as of this instant or time, unless the call names another; now when not set.")
QUERY_TYPE = choice("hoodie.datasource.query.type", "snapshot", ("snapshot", "read_optimized"), _READ, "Which state of the table is read. read_optimized: base files alone, without what was written since their compaction.")
READ_META = boolean("lsm.read.meta", False, _READ, "Put the five meta columns first.")
READ_LEGACY_NAMES = boolean("lsm.read.rfc103.names", False, _READ, "Also read log files under the names of RFC-103's first text.")

_SERVICES = "Compaction and cleaning"
COMPACT_INLINE = boolean("hoodie.compact.inline", False, _SERVICES, "After a write, run the compactions that wait, and schedule and run one when the trigger says so. A compaction that fails never fails the write.")
COMPACT_SCHEDULE = boolean("hoodie.compact.schedule.inline", False, _SERVICES, "After a write, only schedule a compaction when the trigger says so; `lsm compact` runs it.")
COMPACT_TRIGGER = choice("hoodie.compact.inline.trigger.strategy", "NUM_COMMITS", ("NUM_COMMITS", "NUM_COMMITS_AFTER_LAST_REQUEST", "TIME_ELAPSED", "NUM_AND_TIME", "NUM_OR_TIME"), _SERVICES, "When the next compaction is due: by delta commits since the last completed (or last requested) one, by time, or by both.")
COMPACT_COMMITS = integer("hoodie.compact.inline.max.delta.commits", 5, _SERVICES, "Delta commits since the last compaction that make the next one due.", minimum=1)
COMPACT_SECONDS = integer("hoodie.compact.inline.max.delta.seconds", 3600, _SERVICES, "Seconds since the last compaction that make the next one due.", minimum=1)
COMPACTION_STRATEGY = strategy("hoodie.compaction.strategy", "LogFileSizeBasedCompactionStrategy", ("LogFileSizeBasedCompactionStrategy", "LogFileNumBasedCompactionStrategy", "BoundedIOCompactionStrategy", "UnBoundedCompactionStrategy"), _SERVICES, "Which file groups a compaction takes first. Hudi's full class names are read too.")
COMPACTION_LOG_BYTES = integer("hoodie.compaction.logfile.size.threshold", 0, _SERVICES, "LogFileSizeBased: bytes of log files below which a file group is left alone.")
COMPACTION_LOG_FILES = integer("hoodie.compaction.logfile.num.threshold", 0, _SERVICES, "LogFileNumBased: log files below which a file group is left alone.")
COMPACTION_IO_MB = integer("hoodie.compaction.target.io", 512000, _SERVICES, "MiB to read and write at which a compaction is large enough; UnBounded takes all.", minimum=1)
CLEAN_AUTOMATIC = boolean("hoodie.clean.automatic", True, _SERVICES, "After a write, delete file slices that no retained commit needs.")
CLEAN_POLICY = choice("hoodie.clean.policy", "KEEP_LATEST_COMMITS", ("KEEP_LATEST_COMMITS", "KEEP_LATEST_FILE_VERSIONS"), _SERVICES, "Keep what reading as of the last commits needs, or the last slices of each file group.")
CLEAN_COMMITS = integer("hoodie.clean.commits.retained", 10, _SERVICES, "KEEP_LATEST_COMMITS: commits whose state stays readable.", minimum=1)
CLEAN_VERSIONS = integer("hoodie.clean.fileversions.retained", 3, _SERVICES, "KEEP_LATEST_FILE_VERSIONS: slices of each file group that stay.", minimum=1)

_METADATA = "Metadata table"
METADATA_ENABLE = boolean("hoodie.metadata.enable", False, _METADATA, "true: make a metadata table with the partition `files` where there is none, and ask it for the files that reads need. false, given by somebody who writes: drop it. Not set: keep the partition `files` of one that is there, and list folders. Hudi's default is true.")
METADATA_COMPACT_COMMITS = integer("hoodie.metadata.compact.max.delta.commits", 10, _METADATA, "Delta commits of the metadata table since its last compaction that make the next one due.", minimum=1)

_KAFKA = "Kafka job"
KAFKA_SERVERS = text("kafka.bootstrap.servers", None, _KAFKA, "Brokers, `host:port` separated by commas. Every other key under `kafka.` goes to the Kafka client as it is.")
KAFKA_TOPICS = text("subscribe", None, _KAFKA, "Topics, separated by commas.")
KAFKA_STARTING_OFFSETS = text("startingOffsets", "earliest", _KAFKA, "Where a new query begins: earliest, latest, or Spark's JSON of offsets.")
KAFKA_MAX_OFFSETS = integer("maxOffsetsPerTrigger", 0, _KAFKA, "Events per batch at most; 0: no bound.")
KAFKA_FAIL_ON_LOSS = boolean("failOnDataLoss", True, _KAFKA, "Stop when events were deleted on the brokers before they were read.")
KAFKA_MIN_PARTITIONS = integer("minPartitions", 0, _KAFKA, "Tasks that read a batch at least; 0: one per topic partition.")
KAFKA_FORMAT = choice("lsm.kafka.format", "json", ("json", "debezium-json"), _KAFKA, "What the value of an event holds: the row as JSON, or a Debezium envelope.")
KAFKA_SCHEMA = text("lsm.kafka.schema", None, _KAFKA, "Columns of the rows, as Spark DDL: `order_id STRING, qty INT`. `TIMESTAMP COMMENT 'millis'` (or micros, nanos) names the unit of whole numbers; ISO text is always read.")
CHECKPOINT = text("checkpointLocation", None, _KAFKA, "Folder of the query's checkpoint.")
TRIGGER = text("lsm.trigger", "availableNow", _KAFKA, "When batches run: `availableNow` reads what is there and ends; an interval such as `10 seconds` goes on for ever.")
TABLE_PATH = text("lsm.table.path", None, _KAFKA, "Where the table lies.")
# fmt: on


class Options(Mapping[str, object]):
    """Typed values of all options; missing ones read as their default.

    ``options[QTY]`` takes an `Option` and returns its type. Iteration yields the keys that were set.
    """

    def __init__(self, values: Mapping[str, object] | None = None, source: str = "options") -> None:
        """Check every key and value.

        Raises:
            ConfigError: unknown key (the message says which one is near, or that it is Hudi's), malformed value, or one
                option given twice, under two spellings, with different values.
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
        """Whether somebody gave this option a value."""
        return option.key in self._values

    def merged(self, other: Options) -> Options:
        """These options, overridden by those set in `other`."""
        merged = Options()
        merged._values = {**self._values, **other._values}
        return merged

    def without(self, *options: Option[int] | Option[str | None]) -> Options:
        """These options, without what was set for some."""
        left = Options()
        left._values = {key: value for key, value in self._values.items() if key not in {o.key for o in options}}
        return left


def resolve(
    arguments: Mapping[str, object] | None = None,
    properties: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Options:
    """Options by precedence: properties file < environment < arguments.

    Args:
        arguments: keys and values as passed by the caller.
        properties: path of a Java properties file.
        environment: variables to look at; the process's own when not given. The variable of a key
            is ``LSM_CONF_`` and the key in capitals with every other character as ``_``.

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
    """Keys and values of a Java properties file, not checked against the options.

    Raises:
        ConfigError: it cannot be read; the file is named.
    """
    try:
        return parse_properties(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(f"properties file {path} cannot be read: {error.strerror}") from error
    except CorruptFileError as error:
        raise ConfigError(str(error)) from error


def environment_name(key: str) -> str:
    """The environment variable of a key."""
    return ENVIRONMENT_PREFIX + "".join(c if c.isalnum() else "_" for c in key).upper()


def _from_environment(variables: Mapping[str, str]) -> dict[str, str]:
    names = {environment_name(key): key for key in (*OPTIONS, *_ALIASES)}
    found = {}
    for variable in sorted(variables):
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        if variable not in names:
            families = {environment_name(prefix): purpose for prefix, purpose in PURPOSES.items()}
            raise ConfigError(f"environment variable {variable} names no option{_advice(variable, names, families)}")
        found[names[variable]] = variables[variable]
    return found


def _known(key: str, source: str) -> Option[object]:
    option = OPTIONS.get(_ALIASES.get(key, key))
    if option is None:
        raise ConfigError(f"{source}: unknown option {key!r}{_advice(key, (*OPTIONS, *_ALIASES), PURPOSES)}")
    return option


def _advice(key: str, known: Iterable[str], families: Mapping[str, str]) -> str:
    """Say what an unknown key may be: the nearest known one when it is near, else an option of Hudi."""
    names, family = list(known), family_of(key, families)
    # Keys of one family differ in a word: what is near there has to be nearer.
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.94 if family else 0.85)
    if close:
        return f"; did you mean {close[0]!r}?"
    if family is None:
        return f"; see {_PAGE} for all options"
    if any(name.startswith(family) for name in names):
        return f": not one of Hudi's options for {families[family]} that are built here, see {_PAGE}"
    return f": an option of Hudi for {families[family]}, not built here: leave it out"


def _parse(option: Option[T], value: object, source: str) -> T:
    try:
        return option.parse(value)
    except ValueError as error:
        raise ConfigError(f"{source}: {option.key}={value!r}: {error}") from None
