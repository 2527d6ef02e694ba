"""Kinds of tables: columns, options, and the record key, partition path and bucket of a row.

The latter are written from the pages, see docs/format/01-table.md, "Record key string"; docs/format/01-table.md,
"Partition path".
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tests.oracle.hashing import bucket_of
from tests.support.histories_model.columns import KEYS, ORDERINGS, PARTITIONS, VALUES, Column, Row
from tests.support.mixing_merger import STRATEGY

HIVE_STYLE = "hoodie.datasource.write.hive_style_partitioning"
ENCODED = "hoodie.datasource.write.partitionpath.urlencode"
_DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_GENERATOR = "hoodie.table.keygenerator.type"
_TIMESTAMP: Mapping[str, object] = {
    _GENERATOR: "TIMESTAMP",
    "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
}
_MODE, _STRATEGY = "hoodie.record.merge.mode", "hoodie.record.merge.strategy.id"
_PARTIAL = "hoodie.table.partial.update.mode"
_UNAVAILABLE = "hoodie.write.partial.update.unavailable.value"
_RETENTION = "lsm.compaction.tombstone.retention"
_CAPTURES = "hoodie.table.cdc.enabled"
_LOGGING = "hoodie.table.cdc.supplemental.logging.mode"
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^")
_COMMON: Mapping[str, object] = {
    "hoodie.table.name": "history",
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.clean.commits.retained": 2,
    "hoodie.keep.min.commits": 3,
    "hoodie.keep.max.commits": 4,
    "hoodie.log.compaction.blocks.threshold": 2,
    "hoodie.parquet.compression.codec": "uncompressed",
    "hoodie.index.bloom.num_entries": 10,
    "lsm.read.threads": 1,
    "lsm.parquet.row.group.rows": 3,
}
UNAVAILABLE = "ab"
"""The text that marks a value as not sent."""
RETAINED = 2
"""Commits whose states a clean keeps."""


@dataclass(frozen=True)
class TableKind:
    """How a table is laid out, and which row is where.

    Attributes:
        columns: all columns, those of `later` at the end.
        later: names of the columns that the table does not have at first, in the order in which they come.
        keys, partitions, ordering: names of columns; no `ordering` means COMMIT_TIME_ORDERING.
        version: the table version.
        is_merge_on_read: else copy on write.
        buckets: of each partition.
        options: all other options.
    """

    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    partitions: tuple[str, ...]
    ordering: tuple[str, ...]
    version: int
    is_merge_on_read: bool
    buckets: int
    options: Mapping[str, object] = field(default_factory=dict)
    later: tuple[str, ...] = ()

    @property
    def first_schema(self) -> pa.Schema:
        """The columns with which the table is created."""
        return pa.schema([column.field for column in self.columns if column.name not in self.later])

    @property
    def schema(self) -> pa.Schema:
        """The columns in Arrow's types."""
        return pa.schema([column.field for column in self.columns])

    @property
    def values(self) -> tuple[str, ...]:
        """Names of the columns of which keys, partition paths and order are not made."""
        return tuple(column.name for column in self.columns[len(self.keys + self.partitions + self.ordering) :])

    @property
    def is_ordered(self) -> bool:
        """Whether ordering values decide, as in EVENT_TIME_ORDERING."""
        return bool(self.ordering)

    @property
    def has_native_logs(self) -> bool:
        """Whether logs are files of their own, folded from left to right with the base file."""
        return self.version >= 10

    @property
    def keeps_deletes(self) -> bool:
        """Whether base files have the deletes with ordering values beside them."""
        return self.has_native_logs and self.options.get(_RETENTION) != 0

    @property
    def partial(self) -> str | None:
        """The partial update mode."""
        found = self.options.get(_PARTIAL)
        return None if found is None else str(found)

    @property
    def has_merger(self) -> bool:
        """Whether a record merger makes rows of pairs."""
        return _STRATEGY in self.options

    @property
    def takes_winner(self) -> bool:
        """Whether each row is one that was written."""
        return self.partial is None and not self.has_merger

    @property
    def folds_in_order(self) -> bool:
        """Whether the records of a slice are folded from left to right, the base row first.

        See docs/format/05-merge.md, "Pairwise rule".
        """
        may_bracket = self.has_merger or (self.partial is not None and self.is_ordered)
        brackets = may_bracket and self.is_merge_on_read and not self.is_lsm_tree
        return self.has_native_logs and not brackets

    @property
    def is_lsm_tree(self) -> bool:
        return self.options["hoodie.table.storage.layout"] == "lsm_tree"

    def is_sent(self, name: str, value: object) -> bool:
        """Whether a value counts as sent."""
        if self.partial == "FILL_UNAVAILABLE":
            return value not in (UNAVAILABLE, UNAVAILABLE.encode())
        return self.partial is None or value is not None

    @property
    def captures_changes(self) -> bool:
        """Whether base files have change logs beside them."""
        return self.logging_mode is not None

    @property
    def logging_mode(self) -> object:
        """What the change logs hold; None without them."""
        return self.options.get(_LOGGING)

    @property
    def all_options(self) -> dict[str, object]:
        """The options with which the table is created."""
        found = {
            **_COMMON,
            "hoodie.datasource.write.recordkey.field": ",".join(self.keys),
            "hoodie.table.type": "MERGE_ON_READ" if self.is_merge_on_read else "COPY_ON_WRITE",
            "hoodie.bucket.index.num.buckets": self.buckets,
            "hoodie.write.table.version": self.version,
            **self.options,
        }
        if self.partitions:
            kinds = {"at": ":TIMESTAMP"} if self._generator == "CUSTOM" else {}
            other = ":SIMPLE" if kinds else ""
            found["hoodie.datasource.write.partitionpath.field"] = ",".join(
                name + kinds.get(name, other) for name in self.partitions
            )
        if self.ordering:
            found["hoodie.table.ordering.fields"] = ",".join(self.ordering)
        return found

    @property
    def _generator(self) -> object:
        return self.options.get(_GENERATOR)

    def key_of(self, row: Row) -> str:
        """Return the record key; the generator is COMPLEX with several partition columns, too, unless it is CUSTOM."""
        if len(self.keys) == 1 and (len(self.partitions) < 2 or self._generator == "CUSTOM"):
            return _text(row[self.keys[0]])
        return ",".join(f"{name}:{_text(row[name])}" for name in self.keys)

    def bucket_of(self, key: str) -> int:
        """Return the bucket of a record key."""
        return bucket_of(key, self.keys, self.keys, self.buckets)

    def partition_of(self, row: Row) -> str:
        """Return the partition path."""
        return "/".join(self._folder(name, row[name]) for name in self.partitions)

    def _folder(self, name: str, value: object) -> str:
        if name == "at":
            assert isinstance(value, int)
            return datetime.datetime.fromtimestamp(value, datetime.UTC).strftime("%Y/%m/%d")
        text = _DEFAULT_PARTITION if value is None or value == "" else _text(value)
        if self.options.get(ENCODED):
            text = "".join(f"%{ord(sign):02X}" if sign in _ESCAPED or ord(sign) < 32 else sign for sign in text)
        return f"{name}={text}" if self.options.get(HIVE_STYLE) else text

    def __str__(self) -> str:
        options = {name.removeprefix("hoodie."): value for name, value in self.options.items()}
        return (
            f"version {self.version}, {'merge on read' if self.is_merge_on_read else 'copy on write'}, "
            f"keys {self.keys}, partitions {self.partitions}, ordering {self.ordering}, {self.buckets} buckets, "
            f"later columns {self.later}, {options}"
        )


def _text(value: object) -> str:
    return str(value)  # integers, dates and texts: as Java writes them


_PARTITIONING: tuple[tuple[tuple[str, ...], Mapping[str, object]], ...] = (
    ((), {}),
    (("part",), {}),
    (("day",), {HIVE_STYLE: True}),
    (("code",), {ENCODED: True}),
    (("code",), {ENCODED: True, HIVE_STYLE: True}),
    (("part", "day"), {}),
    (("at",), _TIMESTAMP),
    (("part", "at"), {**_TIMESTAMP, _GENERATOR: "CUSTOM"}),
    # Beside a time no value is of the path, so that the texts of the default partition are what was written.
    (("city", "at"), {**_TIMESTAMP, _GENERATOR: "CUSTOM"}),
)
_ORDERING: tuple[tuple[str, ...], ...] = (
    ("ts",), ("ts",), ("small_ts",), ("text_ts",), ("time_ts",), ("ts", "minor_ts"), (), ()
)  # fmt: skip
_LAYOUTS = ((10, "lsm_tree"), (10, "lsm_tree"), (10, "lsm_tree"), (10, "default"), (9, "default"), (8, "default"))


def draw_kind(chance: random.Random) -> TableKind:
    """Draw a kind of table."""
    version, layout = chance.choice(_LAYOUTS)
    keys = chance.choice([("id",), ("id",), ("number",), ("number", "id"), ("day_key", "number")])
    partitions, options = chance.choice(_PARTITIONING)
    if options.get(_GENERATOR) == "TIMESTAMP":
        keys = keys[:1]
    ordering = chance.choice(_ORDERING)
    values = chance.sample(sorted(VALUES), chance.randint(2, 5))
    later = values[chance.randint(1, len(values)) :] if chance.random() < 0.4 else []
    named = {**KEYS, **PARTITIONS, **ORDERINGS, **VALUES}
    chosen = {
        **options,
        "hoodie.table.storage.layout": layout,
        "hoodie.metadata.enable": chance.random() < 0.2,
        "hoodie.parquet.bloom.filter.enabled": chance.random() < 0.3,
        "hoodie.combine.before.upsert": chance.random() < 0.8,
        "lsm.parquet.row.group.rows": chance.choice([1, 2, 4, 4, 100]),
    }
    if chance.random() < 0.2:
        chosen[_RETENTION] = 0
    if chance.random() < 0.3:
        chosen |= {_CAPTURES: True, _LOGGING: chance.choice(["OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER"])}
    if version < 10:
        chosen["hoodie.logfile.data.block.format"] = chance.choice(["avro", "parquet"])
    if version >= 9 and chance.random() < 0.3:
        chosen[_PARTIAL] = chance.choice(["IGNORE_DEFAULTS", "FILL_UNAVAILABLE"])
        if chosen[_PARTIAL] == "FILL_UNAVAILABLE":
            chosen[_UNAVAILABLE] = UNAVAILABLE
    elif version >= 9 and chance.random() < 0.15:
        ordering = ()
        chosen |= {_MODE: "CUSTOM", _STRATEGY: STRATEGY}
    return TableKind(
        columns=tuple(named[name] for name in (*keys, *partitions, *ordering, *values)),
        keys=keys,
        partitions=partitions,
        ordering=ordering,
        version=version,
        is_merge_on_read=chance.random() < 0.75,
        buckets=chance.choice([1, 1, 2, 3]),
        options=chosen,
        later=tuple(later),
    )
