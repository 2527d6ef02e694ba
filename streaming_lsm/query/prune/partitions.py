"""Bound the partition columns of each partition by its path.

The rows of a file group have one partition path, whatever their versions, so that a partition is skipped or read as a
whole. The value of a SIMPLE partition column follows from the path. That of a TIMESTAMP column does not, as the path
holds a part of it only: its comparisons are translated to comparisons of the path, by the rules of the key generator.
See docs/format/01-table.md, "Partition path".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import flags, pc
from streaming_lsm.errors import LsmError
from streaming_lsm.keys.generator import KeyGenerator
from streaming_lsm.keys.java_text import to_java_text
from streaming_lsm.keys.partition_path import DEFAULT_PARTITION, unescape_partition_value
from streaming_lsm.query.default_partition import is_null_there
from streaming_lsm.query.prune.bounds import UNKNOWN, Bounds
from streaming_lsm.query.prune.predicate import (
    EQUAL,
    GREATER,
    GREATER_EQUAL,
    LESS,
    LESS_EQUAL,
    Comparison,
    Every,
    Implied,
    Membership,
    Negation,
    Predicate,
    Some,
)
from streaming_lsm.schema import PARTITION_PATH

_LEVEL = "_lsm_partition_level_"
"""Column of the texts of one level of the partition paths; no column of a table may begin with ``_lsm_``."""
_OLD_DEFAULT = "default"
"""The folder of null in tables of Hudi before 0.12; now that of the text."""
Texts: TypeAlias = "pa.Array[Any]"

_NOT_STRICT = {
    EQUAL: EQUAL,
    LESS: LESS_EQUAL,
    LESS_EQUAL: LESS_EQUAL,
    GREATER: GREATER_EQUAL,
    GREATER_EQUAL: GREATER_EQUAL,
}
"""The comparison of two folders that follows from one of two times: different times may have one folder."""


@dataclass(frozen=True)
class PartitionColumns:
    """Knows the partition columns of a table.

    Attributes:
        generator: the table's key generator.
        schema: the table's columns.
        follows: whether the path of each row is that which its partition columns name.
    """

    generator: KeyGenerator
    schema: pa.Schema
    follows: bool = True

    def bounds(self, paths: Sequence[str], names: frozenset[str]) -> dict[str, Bounds]:
        """Bound the partition columns in each partition, and the levels of the paths.

        Args:
            paths: the partition paths, one for each unit.
            names: the columns of the predicate; bounds of others are left out.
        """
        found = {PARTITION_PATH: _exact(pa.array(paths, pa.string()))}
        if not self.follows:
            return found
        levels: list[list[str] | None] = []
        for number, (name, kind) in enumerate(self.generator.partition_fields):
            column = f"{_LEVEL}{number}" if kind == "TIMESTAMP" else name
            if column not in names or name not in self.schema.names:
                continue
            levels = levels or [self._levels(path) for path in paths]
            texts: Texts = pa.array([None if level is None else level[number] for level in levels], pa.string())
            found[column] = _exact(texts) if kind == "TIMESTAMP" else self._simple(name, texts)
        return found

    def with_levels(self, predicate: Predicate) -> Predicate:
        """Add to each condition on a TIMESTAMP column the one on its level of the path that follows from it."""
        if not self.follows:
            return predicate
        if isinstance(predicate, Every | Some):
            return replace(predicate, parts=tuple(self.with_levels(part) for part in predicate.parts))
        if isinstance(predicate, Negation):
            return Negation(self.with_levels(predicate.part))
        if not isinstance(predicate, Comparison | Membership):
            return predicate
        for number, (name, kind) in enumerate(self.generator.partition_fields):
            if kind == "TIMESTAMP" and name == predicate.column and name in self.schema.names:
                level = self._of_level(predicate, number)
                return predicate if level is None else Every((predicate, Implied(level)))
        return predicate

    def _levels(self, path: str) -> list[str] | None:
        """Split a path into the texts of its levels; None if a value holds slashes, so that it cannot be split."""
        parts = path.split("/")
        depths = [self._depth(kind) for _, kind in self.generator.partition_fields]
        if len(depths) == 1:
            return [path]
        if sum(depths) != len(parts):
            return None
        ends = [sum(depths[: number + 1]) for number in range(len(depths))]
        return ["/".join(parts[end - depth : end]) for end, depth in zip(ends, depths, strict=True)]

    def _depth(self, kind: str) -> int:
        """Return the number of folders of a level."""
        timestamp = self.generator.timestamp
        if kind != "TIMESTAMP" or timestamp is None:
            return 1
        separators = [token.literal.count("/") for token in timestamp.output.tokens if not token.letter]
        return 1 + (0 if self.generator.url_encode else sum(separators))

    def _simple(self, name: str, folders: Texts) -> Bounds:
        """Bound a SIMPLE column by the folders of its level."""
        kind: pa.DataType = self.schema.field(name).type
        texts = pa.array([self._value(name, one) for one in folders.to_pylist()], pa.string())
        is_default = pc.fill_null(pc.equal(texts, DEFAULT_PARTITION), False)
        if pa.types.is_floating(kind):
            # One text stands for a float and for another double, and a column may have been widened.
            texts = pa.nulls(len(texts), pa.string())
        texts = pc.if_else(pc.equal(texts, _OLD_DEFAULT), None, texts)
        values = _parsed(pc.if_else(is_default, None, texts), kind, logical=self.generator.logical_timestamp)
        low = high = values
        is_shared = pa.types.is_string(kind) and not is_null_there(self.generator, self.schema, name)
        if is_shared:
            # The empty text and the name itself share the folder, which is not read as null here.
            low = pc.if_else(is_default, "", values)
            high = pc.if_else(is_default, DEFAULT_PARTITION, values)
        of_default = UNKNOWN if is_shared else 1
        # A folder whose value is not known may be that of null.
        nulls = np.where(flags(is_default), of_default, np.where(flags(pc.is_valid(values)), 0, UNKNOWN))
        return Bounds(low, high, nulls, np.ones(len(texts), np.int64))

    def _value(self, name: str, folder: str | None) -> str | None:
        """Return the value's text in a folder name; None if it has another form."""
        if folder is None:
            return None
        if self.generator.hive_style:
            mark = f"{name}="
            if not folder.startswith(mark):
                return None
            folder = folder.removeprefix(mark)
        return unescape_partition_value(folder) if self.generator.url_encode else folder

    def _of_level(self, predicate: Comparison | Membership, number: int) -> Predicate | None:
        """Translate a condition on a TIMESTAMP column to one on the folders of its level; None if there is none."""
        level = f"{_LEVEL}{number}"
        if isinstance(predicate, Membership):
            folders = None if predicate.nulls else self._folders(predicate.values, number)
            return None if folders is None else Membership(level, folders)
        operator = _NOT_STRICT.get(predicate.operator)
        folders = self._folders(pa.array([predicate.value]), number)
        if operator is None or folders is None or (operator != EQUAL and not self._ascends):
            return None
        return Comparison(level, operator, folders[0])

    def _folders(self, values: pa.Array[Any], number: int) -> Texts | None:
        """Return the folders of the values of a TIMESTAMP column; None if one is not a time."""
        name, _ = field = self.generator.partition_fields[number]
        one_level = replace(self.generator, kind="CUSTOM", partition_fields=(field,))
        try:
            column = values.cast(self.schema.field(name).type)
            paths = one_level.partition_paths(pa.RecordBatch.from_arrays([column], names=[name]))
        except (LsmError, pa.ArrowException):
            return None
        folders: Texts = pc.cast(paths, pa.string())
        return folders

    @property
    def _ascends(self) -> bool:
        """Whether later times have folders that are not smaller, as texts.

        That takes numbers in fixed widths from years down to smaller units, and a zone without changes of its offset.
        """
        timestamp = self.generator.timestamp
        if timestamp is None or timestamp.unit is None or timestamp.output_zone not in (None, "UTC"):
            return False
        return timestamp.output.ascends and not self.generator.url_encode


def _exact(texts: Texts) -> Bounds:
    return Bounds(texts, texts, np.zeros(len(texts), np.int64), np.ones(len(texts), np.int64))


def _parsed(texts: Texts, kind: pa.DataType, *, logical: bool) -> pa.Array[Any]:
    """Parse the texts of partition values; null where the value would not be printed as the same text."""
    try:
        values = _read(texts, kind)
    except (pa.ArrowException, LsmError):
        if len(texts) == 1:
            return pa.array([None], kind)
        half = len(texts) // 2
        parts = [_parsed(part, kind, logical=logical) for part in (texts.slice(0, half), texts.slice(half))]
        return pa.concat_arrays(parts)
    try:
        printed = to_java_text(values, logical_timestamp=logical)
    except LsmError:
        return pa.array([None] * len(texts), kind)
    known: pa.Array[Any] = pc.if_else(pc.equal(printed, texts), values, pa.scalar(None, kind))
    return known


def _read(texts: Texts, kind: pa.DataType) -> pa.Array[Any]:
    numbers = pc.cast(texts, pa.int64()) if pa.types.is_timestamp(kind) else texts
    values: pa.Array[Any] = pc.cast(numbers, kind)
    return values
