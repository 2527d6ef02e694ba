"""Derive from a filter which record keys and which buckets it may select.

Rows of one key are merged, so that conditions on the key may leave out files and row groups where conditions on other
columns may not: all versions of a row have one key. See docs/format/01-table.md, "Record key string";
docs/format/07-index-and-metadata.md, "Simple bucket index".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any, TypeAlias

import pyarrow as pa

from streaming_lsm.arrow.columns import strings
from streaming_lsm.errors import LsmError
from streaming_lsm.file_group.key_filters import WantedKeys
from streaming_lsm.keys.bucket import bucket_ids
from streaming_lsm.keys.generator import KeyGenerator
from streaming_lsm.query.prune.predicate import (
    EQUAL,
    NOT_EQUAL,
    Comparison,
    Every,
    Implied,
    Membership,
    Negation,
    Predicate,
    Some,
    StartsWith,
    possible_values,
)
from streaming_lsm.query.wanted_keys import ascending_keys
from streaming_lsm.schema import RECORD_KEY

_MOST_KEYS = 10_000
"""Maximum combinations of values of key columns that are looked at."""
_MOST_WANTED = 1_000
"""Maximum keys that are looked for in bloom filters; of more, most row groups have one."""
_MOST_PREFIXES = 100
_ANY = "-"
"""The value of a key column that the hash does not count."""

Values: TypeAlias = "Mapping[str, Sequence[pa.Scalar[Any]]]"


@dataclass(frozen=True)
class KeyColumns:
    """Knows the columns of a table's record key.

    Attributes:
        generator: the table's key generator.
        schema: the table's columns.
        hash_fields: the key columns that are hashed to the bucket.
        num_buckets: buckets per partition; 0 if it is not known.
    """

    generator: KeyGenerator
    schema: pa.Schema
    hash_fields: tuple[str, ...]
    num_buckets: int

    @property
    def names(self) -> frozenset[str]:
        """The columns of which all versions of a row have the same value.

        The columns of a composite key are none, as another row may have the same text of the key. So may other values
        of floating-point columns, which may have been widened, and of times whose text ends at milliseconds.
        """
        fields = () if self.generator.composite else self.generator.record_key_fields
        return frozenset((RECORD_KEY, *(field for field in fields if self._is_told(field))))

    def with_record_key(self, predicate: Predicate) -> Predicate:
        """Add the conditions on the record key that follow from those on its columns."""
        if self.generator.composite:
            whole = self._composite(predicate)
            return predicate if whole is None else Every((predicate, Implied(whole)))
        return self._simple(predicate)

    def buckets(self, predicate: Predicate) -> frozenset[int] | None:
        """Return the buckets in which the predicate may be true; None for all.

        Args:
            predicate: as `with_record_key` returns it.
        """
        if not self.num_buckets:
            return None
        keys = possible_values(predicate, RECORD_KEY)
        texts = None if keys is None or len(keys) > _MOST_KEYS else _texts(keys)
        if texts is None and self.generator.composite:
            texts = self._keys(predicate, self.hash_fields)
        if texts is None:
            return None
        found = bucket_ids(texts, self.generator.record_key_fields, self.hash_fields, self.num_buckets)
        return frozenset(found.tolist())

    def _simple(self, predicate: Predicate) -> Predicate:
        """Add conditions to each of those on the only column of the key."""
        if isinstance(predicate, Every | Some):
            return replace(predicate, parts=tuple(self._simple(part) for part in predicate.parts))
        if isinstance(predicate, Negation):
            return Negation(self._simple(predicate.part))
        (field,) = self.generator.record_key_fields
        if not isinstance(predicate, Comparison | Membership | StartsWith) or predicate.column != field:
            return predicate
        implied = self._of_record_key(predicate)
        return predicate if implied is None else Every((predicate, Implied(implied)))

    def _of_record_key(self, predicate: Comparison | Membership | StartsWith) -> Predicate | None:
        """Translate a condition on the only column of the key; only texts have the order of their key."""
        if isinstance(predicate, StartsWith):
            return replace(predicate, column=RECORD_KEY) if self._is_text(predicate.column) else None
        if isinstance(predicate, Comparison) and predicate.operator not in (EQUAL, NOT_EQUAL):
            of_texts = self._is_text(predicate.column) and pa.types.is_string(predicate.value.type)
            return replace(predicate, column=RECORD_KEY) if of_texts else None
        keys = self._keys(predicate, self.generator.record_key_fields)
        return None if keys is None else Membership(RECORD_KEY, keys)

    def _composite(self, predicate: Predicate) -> Predicate | None:
        """Derive the whole keys, or else their beginnings, from the values that a predicate allows."""
        fields = self.generator.record_key_fields
        keys = self._keys(predicate, fields)
        if keys is not None:
            return Membership(RECORD_KEY, keys)
        for count in range(len(fields) - 1, 0, -1):
            keys = self._keys(predicate, fields[:count])
            if keys is not None and len(keys) <= _MOST_PREFIXES:
                rest = "".join(f",{field}:{_ANY}" for field in fields[count:])
                heads = [str(key).removesuffix(rest) for key in keys.to_pylist()]
                return Some(tuple(StartsWith(RECORD_KEY, f"{head},{fields[count]}:") for head in heads))
        return None

    def _keys(self, predicate: Predicate, fields: Sequence[str]) -> pa.StringArray | None:
        """Build the keys with each combination of the values of `fields` that a predicate allows.

        Returns:
            The keys, with `_ANY` in all other fields; None if a field may have any value, or too many.
        """
        allowed: dict[str, Sequence[pa.Scalar[Any]]] = {}
        for field in fields:
            values = possible_values(predicate, field)
            if values is None or not self._is_plain(field):
                return None
            allowed[field] = values
        if prod(len(values) for values in allowed.values()) > _MOST_KEYS:
            return None
        return self._generated(allowed)

    def _generated(self, allowed: Values) -> pa.StringArray | None:
        fields = self.generator.record_key_fields
        places = {field: place for place, field in enumerate(allowed)}
        try:
            # Python's times end with year 9999.
            rows = list(product(*([value.as_py() for value in values] for values in allowed.values())))
            columns = [
                pa.array([row[places[field]] for row in rows], self._type(field))
                if field in places
                else pa.array([_ANY] * len(rows), pa.string())
                for field in fields
            ]
            batch = pa.RecordBatch.from_arrays(columns, names=list(fields))
            keys = replace(self.generator, ambiguous="allow").record_keys(batch)
        except (LsmError, pa.ArrowException, TypeError, ValueError, OverflowError):
            return None
        if self.generator.kind == "COMPLEX" and len(fields) == 1:
            # Hudi's releases differ in whether the name of the only column is written.
            return strings(pa.chunked_array([keys, columns[0].cast(pa.string())]))
        return keys

    def _type(self, field: str) -> pa.DataType:
        kind: pa.DataType = self.schema.field(field).type
        return kind

    def _is_text(self, field: str) -> bool:
        return field in self.schema.names and pa.types.is_string(self._type(field))

    def _is_told(self, field: str) -> bool:
        """Whether the key's text of a column tells its value."""
        kind = self._type(field) if field in self.schema.names else pa.null()
        if pa.types.is_timestamp(kind):
            return not self.generator.logical_timestamp
        return any(
            of(kind)
            for of in (
                pa.types.is_string,
                pa.types.is_integer,
                pa.types.is_boolean,
                pa.types.is_date,
                pa.types.is_decimal,
            )
        )

    def _is_plain(self, field: str) -> bool:
        """Whether the key's text of a column is the same in all releases of Hudi."""
        return field in self.schema.names and (self._is_text(field) or pa.types.is_integer(self._type(field)))


def wanted_keys(predicate: Predicate) -> WantedKeys | None:
    """Return the record keys that the rows of a predicate may have; None if they are not known, or too many.

    Args:
        predicate: as `KeyColumns.with_record_key` returns it.
    """
    keys = possible_keys(predicate, _MOST_WANTED)
    return None if keys is None else WantedKeys.of(keys)


def possible_keys(predicate: Predicate, most: int = _MOST_KEYS) -> pa.StringArray | None:
    """Return the record keys that the rows of a predicate may have, ascending; None if unknown, or more than `most`."""
    keys = possible_values(predicate, RECORD_KEY)
    texts = None if keys is None or len(keys) > most else _texts(keys)
    return None if texts is None else ascending_keys(texts)


def _texts(keys: Sequence[pa.Scalar[Any]]) -> pa.StringArray | None:
    if not all(pa.types.is_string(key.type) and key.is_valid for key in keys):
        return None
    return pa.array([key.as_py() for key in keys], pa.string())
