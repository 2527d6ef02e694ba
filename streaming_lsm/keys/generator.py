"""Generate the record key and partition path of every row of a batch.

See docs/format/01-table.md, "Record columns". A key is *composite* if it has the form ``f1:v1,f2:v2``, and *ambiguous*
if other values of the key columns produce the same text.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import pc, text_bytes
from streaming_lsm.errors import ConfigError, RecordError, SchemaError
from streaming_lsm.keys.dictionaries import codes_of, pair_codes, texts_of, unique
from streaming_lsm.keys.java_text import to_java_text
from streaming_lsm.keys.partition_path import DEFAULT_PARTITION, escape_partition_value, path_fault
from streaming_lsm.keys.timestamps import TimestampFormat

KINDS = ("SIMPLE", "COMPLEX", "NON_PARTITION", "TIMESTAMP", "CUSTOM")
NULL_PART = "__null__"
EMPTY_PART = "__empty__"
REFUSE, WARN, ALLOW = AMBIGUOUS = ("refuse", "warn", "allow")
"""Handling of ambiguous composite keys; see `KeyGenerator.ambiguous`."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeyGenerator:
    """Generates record keys and partition paths like the Hudi key generator of the same kind.

    Attributes:
        kind: one of `KINDS`.
        record_key_fields: key columns in table order; a dotted name is a field of a struct.
        partition_fields: (column, ``SIMPLE`` or ``TIMESTAMP``) per level of the partition path.
        hive_style: folders are named ``column=value``.
        url_encode: special characters of values are written as ``%XX``.
        timestamp: format of TIMESTAMP columns; required if there is one.
        logical_timestamp: print timestamps with a zone as date and time.
        ambiguous: handling of ambiguous keys, one of `AMBIGUOUS`: ``a:x,b:y,b:z`` is the key of ``x`` with ``y,b:z``
            and of ``x,b:y`` with ``z``; ``__null__`` and ``__empty__`` stand for null and the empty text; with
            `logical_timestamp`, times of one millisecond have one text.
    """

    kind: str
    record_key_fields: tuple[str, ...]
    partition_fields: tuple[tuple[str, str], ...] = ()
    hive_style: bool = False
    url_encode: bool = False
    timestamp: TimestampFormat | None = None
    logical_timestamp: bool = False
    ambiguous: str = ALLOW

    def __post_init__(self) -> None:
        """Reject settings that are invalid for Hudi's generator of this kind (ConfigError)."""
        fault = _fault(self)
        if fault:
            raise ConfigError(f"key generator {self.kind}: {fault}")

    @classmethod
    def from_config(
        cls,
        kind: str,
        record_key_fields: Sequence[str],
        partition_fields: Sequence[tuple[str, str]],
        *,
        hive_style: bool = False,
        url_encode: bool = False,
        timestamp_options: Mapping[str, str] | None = None,
        logical_timestamp: bool = False,
        ambiguous: str = ALLOW,
    ) -> KeyGenerator:
        """Build a generator from the table's settings.

        Args:
            kind: one of `KINDS`.
            record_key_fields: key columns in table order.
            partition_fields: (column, kind) pairs; the kinds are used by CUSTOM only.
            hive_style: ``hoodie.datasource.write.hive_style_partitioning``.
            url_encode: ``hoodie.datasource.write.partitionpath.urlencode``.
            timestamp_options: the ``hoodie.keygen.timebased.*`` options that were set, under their full keys.
            logical_timestamp: print timestamps with a zone as date and time.
            ambiguous: one of `AMBIGUOUS`.

        Raises:
            ConfigError: settings are missing, unknown or contradict each other.
        """
        forced = {"TIMESTAMP": "TIMESTAMP", "CUSTOM": None}.get(kind, "SIMPLE")
        parts = tuple((name, forced or part.upper()) for name, part in partition_fields)
        timestamp = None
        if any(part == "TIMESTAMP" for _, part in parts):
            timestamp = TimestampFormat.from_options(timestamp_options or {}, logical_timestamp=logical_timestamp)
        keys = tuple(record_key_fields)
        return cls(
            kind=kind,
            record_key_fields=keys,
            partition_fields=parts,
            hive_style=hive_style,
            url_encode=url_encode,
            timestamp=timestamp,
            logical_timestamp=logical_timestamp,
            ambiguous=ambiguous,
        )

    @property
    def composite(self) -> bool:
        """Whether keys have the form ``f1:v1,f2:v2``: several key columns, or the COMPLEX generator with one."""
        return self.kind == "COMPLEX" or len(self.record_key_fields) > 1

    def record_keys(self, batch: pa.RecordBatch) -> pa.StringArray:
        """Compute the record key of every row, without nulls.

        Raises:
            RecordError: a key, or every part of a composite key, is null or empty; or a key is ambiguous and
                `ambiguous` is ``refuse``.
            SchemaError: a key column is missing or has a type that cannot be a key.
        """
        texts = [self._text(batch, field) for field in self.record_key_fields]
        if self.logical_timestamp and self.ambiguous != ALLOW:
            columns = [key_column(batch, field) for field in self.record_key_fields]
            self._report(_cut_times(self.record_key_fields, columns, texts))
        if self.composite:
            keys = _composite_keys(self.record_key_fields, texts)
            if len(texts) > 1 and self.ambiguous != ALLOW:
                self._check_ambiguous(batch, keys, texts)
            return keys
        (text,) = texts
        _refuse_missing(pc.fill_null(pc.equal(text, ""), True), text, f"column {self.record_key_fields[0]!r}")
        return text

    def partition_paths(self, batch: pa.RecordBatch) -> pa.DictionaryArray[Any, Any]:
        """Compute the partition path of every row, relative to the table and without nulls.

        Returns:
            Dictionary (int32 to string) with each path once; the only path of an unpartitioned table is ``""``.

        Raises:
            RecordError: a path would be outside of the table's folder, or a TIMESTAMP value is not a time.
            SchemaError: a partition column is missing or has a type that cannot be a partition path.
        """
        paths = unique(np.zeros(batch.num_rows, np.int32), [""])
        for level, (name, kind) in enumerate(self.partition_fields):
            values = self._timestamp_values(batch, name) if kind == "TIMESTAMP" else self._simple_values(batch, name)
            folders = unique(codes_of(values), [self._folder(name, value) for value in texts_of(values)])
            _refuse_faults(folders, values, name)
            paths = _join(paths, folders) if level else folders
        return paths

    def _text(self, batch: pa.RecordBatch, name: str) -> pa.StringArray:
        return _java_text(_checked_text(key_column(batch, name), name), name, self.logical_timestamp)

    def _check_ambiguous(self, batch: pa.RecordBatch, keys: pa.StringArray, texts: Sequence[pa.StringArray]) -> None:
        """Reject or log the first value that makes a key ambiguous."""
        free = [_is_text(key_column(batch, field).type) for field in self.record_key_fields]
        self._report(_ambiguities(self.record_key_fields, keys, texts, free))

    def _report(self, faults: Iterator[str]) -> None:
        """Reject or log the first of the rows whose key other values make, too."""
        for fault in faults:
            if self.ambiguous == REFUSE:
                raise RecordError(fault)
            _LOG.warning("%s", fault)
            return

    def _simple_values(self, batch: pa.RecordBatch, name: str) -> pa.DictionaryArray[Any, Any]:
        column = _checked_text(key_column(batch, name), name)
        if pa.types.is_dictionary(column.type):
            column = pc.cast(column, column.type.value_type)
        if pa.types.is_floating(column.type):
            # Hash tables treat 0.0 and -0.0 as equal, but their texts differ.
            column = _java_text(column, name, self.logical_timestamp)
        distinct = pc.dictionary_encode(column, null_encoding="encode")
        texts = _java_text(distinct.dictionary, name, self.logical_timestamp)
        filled = pc.if_else(pc.fill_null(pc.equal(texts, ""), True), DEFAULT_PARTITION, texts)
        return unique(codes_of(distinct), filled.to_pylist())

    def _timestamp_values(self, batch: pa.RecordBatch, name: str) -> pa.DictionaryArray[Any, Any]:
        assert self.timestamp is not None  # checked by __post_init__
        return self.timestamp.partition_values(key_column(batch, name), name)

    def _folder(self, name: str, value: str) -> str:
        text = escape_partition_value(value) if self.url_encode else value
        return f"{name}={text}" if self.hive_style else text


def _fault(generator: KeyGenerator) -> str | None:
    keys, parts = len(generator.record_key_fields), len(generator.partition_fields)
    kinds = {part for _, part in generator.partition_fields}
    if generator.kind not in KINDS:
        return f"not supported; use one of {', '.join(KINDS)}"
    if keys == 0:
        return "no record key columns; set hoodie.datasource.write.recordkey.field"
    if generator.kind in ("SIMPLE", "TIMESTAMP") and (keys != 1 or parts != 1):
        return f"needs one key and one partition column, not {keys} and {parts}; use COMPLEX, CUSTOM or NON_PARTITION"
    if generator.kind == "NON_PARTITION" and parts:
        return f"takes no partition columns, but {generator.partition_fields[0][0]!r} is set"
    if not kinds <= {"SIMPLE", "TIMESTAMP"}:
        return f"partition columns are `name:SIMPLE` or `name:TIMESTAMP`, not {sorted(kinds)}"
    if "TIMESTAMP" in kinds and generator.timestamp is None:
        return "a TIMESTAMP partition column needs the hoodie.keygen.timebased options"
    return None


def _checked_text(column: pa.Array[Any], name: str) -> pa.Array[Any]:
    """Check that a string column is valid UTF-8, and return it; Spark accepts any bytes in a string."""
    if pa.types.is_string(column.type):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            raise RecordError(f"column {name!r} holds bytes that are not UTF-8; decode it first") from None
    return column


def key_column(batch: pa.RecordBatch, name: str) -> pa.Array[Any]:
    """Return column `name`, or the nested field of a dotted `name`.

    Raises:
        SchemaError: there is no such column, or more than one.
    """
    whole = batch.schema.get_all_field_indices(name)
    first, *rest = [name] if whole else name.split(".")
    places = batch.schema.get_all_field_indices(first)
    if len(places) != 1:
        found = "is missing" if not places else "appears more than once"
        raise SchemaError(f"column {name!r} {found}; the batch has {', '.join(batch.schema.names)}")
    column = batch.column(places[0])
    for step in rest:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(step) < 0:
            raise SchemaError(f"column {name!r}: there is no field {step!r} in {column.type}")
        column = pc.struct_field(column, step)
    return column


def _java_text(column: pa.Array[Any], name: str, logical_timestamp: bool) -> pa.StringArray:
    try:
        return to_java_text(column, logical_timestamp=logical_timestamp)
    except SchemaError as error:
        raise SchemaError(f"column {name!r}: {error}") from error


def _composite_keys(fields: Sequence[str], texts: Sequence[pa.StringArray]) -> pa.StringArray:
    pieces: list[object] = []
    missing: pa.BooleanArray = pc.fill_null(pc.equal(texts[0], ""), True)
    for field, text in zip(fields, texts, strict=True):
        empty = pc.equal(text, "")
        missing = pc.and_(missing, pc.fill_null(empty, True))
        value = pc.fill_null(pc.if_else(empty, EMPTY_PART, text), NULL_PART)
        pieces += [f"{',' if pieces else ''}{field}:", value]
    _refuse_missing(missing, texts[0], f"every one of the columns {', '.join(fields)}")
    keys: pa.StringArray = pc.binary_join_element_wise(*pieces, "")
    return keys


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()


def _ambiguities(
    fields: Sequence[str], keys: pa.StringArray, texts: Sequence[pa.StringArray], free: Sequence[bool]
) -> Iterator[str]:
    """Yield a message for the first ambiguous value of each key column.

    A key has a second reading if a value contains ``,<field>:`` of its own column with text after it, or of the next
    column with text before it. A reading moves text between two columns that can hold any text; columns between them,
    such as numbers, may have other values in it.
    """
    found = {place: _is_placeholder(texts[place]) for place, text in enumerate(free) if text}
    # Fast path for nearly all batches: if the keys have only the commas between columns, no value has one.
    if sum(free) > 1 and np.count_nonzero(text_bytes(keys)[1] == ord(",")) != len(keys) * (len(fields) - 1):
        for place, text in enumerate(texts):
            for pattern in _other_readings(fields, free, place):
                found[place] = pc.or_(found[place], pc.fill_null(pc.match_substring_regex(text, pattern), False))
    for place, wrong in found.items():
        row = _first(wrong)
        if row >= 0:
            yield (
                f"row {row}, key column {fields[place]!r}: {texts[place][row].as_py()!r} makes the record key "
                f"{keys[row].as_py()!r}, which other values of {', '.join(fields)} make, too: change the value, or set "
                "lsm.keys.ambiguous=allow to merge such rows"
            )


def _cut_times(
    fields: Sequence[str], columns: Sequence[pa.Array[Any]], texts: Sequence[pa.StringArray]
) -> Iterator[str]:
    """Yield a message for the first time of each key column that is not a whole millisecond, as its text is."""
    for field, column, text in zip(fields, columns, texts, strict=True):
        kind = column.type
        if not (pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None):
            continue
        micros = pc.cast(column, pa.int64())
        row = _first(pc.fill_null(pc.not_equal(pc.multiply(pc.divide(micros, 1000), 1000), micros), False))
        if row >= 0:
            yield (
                f"row {row}, key column {field!r}: {micros[row].as_py()} microseconds since 1970 are cut to "
                f"{text[row].as_py()!r}, which other values of the millisecond are, too: round the value, or set "
                "lsm.keys.ambiguous=allow to merge such rows"
            )


def _first(wrong: pa.BooleanArray) -> int:
    """Return the first row that is flagged; -1 if none is."""
    row: int = pc.index(wrong, True).as_py()
    return row


def _is_placeholder(text: pa.StringArray) -> pa.BooleanArray:
    either: pa.BooleanArray = pc.fill_null(pc.or_(pc.equal(text, NULL_PART), pc.equal(text, EMPTY_PART)), False)
    return either


def _other_readings(fields: Sequence[str], free: Sequence[bool], place: int) -> Iterator[str]:
    """Yield patterns of the values of a key column that give a key a second reading."""
    if not free[place]:
        return
    if any(free[:place]):
        yield f"(?s),{re.escape(fields[place])}:."
    if any(free[place + 1 :]):
        yield f"(?s).,{re.escape(fields[place + 1])}:"


def _refuse_missing(missing: pa.BooleanArray, values: pa.StringArray, where: str) -> None:
    row = _first(missing)
    if row >= 0:
        raise RecordError(
            f"row {row} has no record key: {where} is {values[row].as_py()!r}; a key must not be null or empty"
        )


def _refuse_faults(folders: pa.DictionaryArray[Any, Any], values: pa.DictionaryArray[Any, Any], name: str) -> None:
    for place, folder in enumerate(texts_of(folders)):
        fault = path_fault(folder)
        if fault:
            row = int(np.argmax(codes_of(folders) == place))
            raise RecordError(
                f"row {row}, partition column {name!r}: {values[row].as_py()!r} cannot be a partition path: {fault}; "
                "change the value (hoodie.datasource.write.partitionpath.urlencode=true allows special characters)"
            )


def _join(left: pa.DictionaryArray[Any, Any], right: pa.DictionaryArray[Any, Any]) -> pa.DictionaryArray[Any, Any]:
    parents, children = texts_of(left), texts_of(right)
    codes, pairs = pair_codes(left, right)
    return unique(codes, [f"{parents[parent]}/{children[child]}" for parent, child in pairs])
