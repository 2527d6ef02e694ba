"""Compute partition values of the TIMESTAMP key generator, like Hudi's ``TimestampBasedAvroKeyGenerator``.

A column is converted to epoch milliseconds, then to local time in the output zone. Only the distinct *granules* of the
output pattern (days, hours, ...) are printed. The options are Hudi's ``hoodie.keygen.timebased.*``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, pc
from streaming_lsm.errors import ConfigError, RecordError, SchemaError
from streaming_lsm.keys.date_texts import FIRST_MS, LAST_MS, points_in_time
from streaming_lsm.keys.dictionaries import pair_codes, unique
from streaming_lsm.keys.joda import InputPattern, OutputPattern
from streaming_lsm.keys.zones import check_zone, offsets_of

_PREFIX = "hoodie.keygen.timebased."
TYPE = _PREFIX + "timestamp.type"
UNIT = _PREFIX + "timestamp.scalar.time.unit"
INPUT = _PREFIX + "input.dateformat"
DELIMITER = _PREFIX + "input.dateformat.list.delimiter.regex"
OUTPUT = _PREFIX + "output.dateformat"
ZONE = _PREFIX + "timezone"
INPUT_ZONE = _PREFIX + "input.timezone"
OUTPUT_ZONE = _PREFIX + "output.timezone"

# Milliseconds per unit; negative: units per millisecond.
_UNITS = {
    "NANOSECONDS": -1_000_000,
    "MICROSECONDS": -1000,
    "MILLISECONDS": 1,
    "SECONDS": 1000,
    "MINUTES": 60_000,
    "HOURS": 3_600_000,
    "DAYS": 86_400_000,
}
_TYPE_UNITS = {"UNIX_TIMESTAMP": "SECONDS", "EPOCHMILLISECONDS": "MILLISECONDS", "EPOCHMICROSECONDS": "MICROSECONDS"}
_TEXT_TYPES = ("DATE_STRING", "MIXED")
# Types that are integers, or cast to integers by truncation.
_WHOLE = (pa.types.is_integer, pa.types.is_date, pa.types.is_decimal, pa.types.is_timestamp)
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class TimestampFormat:
    """Input format of a TIMESTAMP column and output format of its partition value.

    Attributes:
        unit: unit of a numeric column; ``None`` for texts.
        inputs: patterns of a text column, tried in this order.
        output: pattern of the partition value.
        input_zone: zone of texts without offset; ``None``: UTC, and an offset in the text is kept for printing.
        output_zone: zone of the partition value; ``None``: the zone of the text, UTC for numbers.
        logical_timestamp: timestamp columns with a zone are points in time, not numbers of `unit`.
    """

    unit: str | None
    inputs: tuple[InputPattern, ...]
    output: OutputPattern
    input_zone: str | None = None
    output_zone: str | None = None
    logical_timestamp: bool = False

    @classmethod
    def from_options(cls, options: Mapping[str, str], *, logical_timestamp: bool = False) -> TimestampFormat:
        """Read the ``hoodie.keygen.timebased.*`` options that were set.

        Raises:
            ConfigError: a needed option is missing, a pattern or zone is not supported, or zones contradict.
        """
        kind = _required(options, TYPE).strip().upper()
        unit = _TYPE_UNITS.get(kind)
        if kind == "SCALAR":
            unit = options.get(UNIT, "SECONDS").strip().upper()
            if unit not in _UNITS:
                raise ConfigError(f"{UNIT}={unit!r} is not a unit; use one of {', '.join(_UNITS)}")
        elif unit is None and kind not in _TEXT_TYPES:
            known = ", ".join((*_TYPE_UNITS, "SCALAR", *_TEXT_TYPES))
            raise ConfigError(f"{TYPE}={kind!r} is not known; use one of {known}")
        return cls(
            unit=unit,
            inputs=_input_patterns(options) if unit is None else (),
            output=OutputPattern.of(_required(options, OUTPUT), OUTPUT),
            input_zone=_zone_option(options, INPUT_ZONE),
            output_zone=_zone_option(options, OUTPUT_ZONE),
            logical_timestamp=logical_timestamp,
        )

    def partition_values(self, column: pa.Array[Any], name: str) -> pa.DictionaryArray[Any, Any]:
        """Print every value of `column`; null becomes the text of 1 (of the unit, or ms) after the epoch.

        Args:
            column: integers, floats, decimals, dates, timestamps, or strings where there are input patterns.
            name: the column's name, for messages.

        Returns:
            Dictionary (int32 to string) without nulls, one entry per distinct text.

        Raises:
            RecordError: a text that no pattern reads, or a time outside the years 1 to 9999.
            SchemaError: a type that does not fit the timestamp type.
        """
        if pa.types.is_dictionary(column.type):
            column = pc.cast(column, column.type.value_type)
        shift: Int64s | None = None
        if _is_text(column.type):
            millis, shift = self._from_texts(column, name)
        else:
            millis = self._from_numbers(column, name)
        if self.output_zone is not None:
            shift = offsets_of(millis, self.output_zone)
        elif shift is None:
            shift = np.zeros(len(millis), np.int64)
        return self._print(millis + shift, shift)

    def _from_numbers(self, column: pa.Array[Any], name: str) -> Int64s:
        unit, fallback = self.unit, 1
        if self.logical_timestamp and pa.types.is_timestamp(column.type) and column.type.tz is not None:
            # The column is a point in time; a null is still 1 of the configured unit, as in Hudi.
            fallback = _default_number(unit, column.type.unit)
            unit = {"us": "MICROSECONDS", "ms": "MILLISECONDS"}.get(column.type.unit)
        if unit is None:
            raise SchemaError(
                f"column {name!r} of type {column.type} does not fit the text type of {TYPE}; "
                "use SCALAR, UNIX_TIMESTAMP, EPOCHMILLISECONDS or EPOCHMICROSECONDS, or a string column"
            )
        numbers = _whole_numbers(column, name, fallback)
        scale = _UNITS[unit]
        per_ms, ms_per = max(-scale, 1), max(scale, 1)
        bad = (numbers < FIRST_MS * per_ms // ms_per + 1) | (numbers > LAST_MS * per_ms // ms_per)
        reason = f"is no time between the years 1 and 9999 in {unit.lower()}; check {TYPE} and {UNIT}"
        _refuse(bad, column, name, reason)
        # TimeUnit.convert truncates towards zero.
        return np.asarray(np.sign(numbers) * (np.abs(numbers) // per_ms) * ms_per, np.int64)

    def _from_texts(self, column: pa.Array[Any], name: str) -> tuple[Int64s, Int64s]:
        if not self.inputs:
            raise SchemaError(
                f"column {name!r} holds texts, but {TYPE} says numbers; use DATE_STRING or MIXED with {INPUT}"
            )
        null_text = self._null_text()
        texts = pc.fill_null(pc.cast(column, pa.string()), null_text)
        millis, shift = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64)
        waiting = np.ones(len(texts), np.bool_)
        for pattern in self.inputs:
            rows = np.flatnonzero(waiting)
            parts = pc.extract_regex(texts.take(pa.array(rows)), pattern.regex)
            matched = np.asarray(pc.is_valid(parts))
            rows, parts = rows[matched], parts.filter(pa.array(matched))
            times, offsets, bad = points_in_time(pattern, parts, self.input_zone)
            faults = np.zeros(len(texts), np.bool_)
            faults[rows[bad]] = True
            _refuse(faults, column, name, f"is no valid time in the pattern {pattern.pattern!r}")
            millis[rows], shift[rows], waiting[rows] = times, offsets, False
        known = ", ".join(pattern.pattern for pattern in self.inputs)
        _refuse(waiting, column, name, f"fits none of the patterns {known} of {INPUT}")
        return millis, shift

    def _null_text(self) -> str:
        zone = self.input_zone or self.output_zone or "UTC"
        offset = int(offsets_of(np.array([1], np.int64), zone)[0])
        return self.inputs[0].render(_EPOCH + timedelta(milliseconds=1 + offset), offset)

    def _print(self, local: Int64s, shift: Int64s) -> pa.DictionaryArray[Any, Any]:
        granule = self.output.granule_ms
        granules = pc.dictionary_encode(pa.array(local // granule))
        # The text depends on the offset only if the pattern prints it.
        shifts = pc.dictionary_encode(pa.array(shift if self.output.prints_offset else np.zeros_like(shift)))
        starts, offsets = granules.dictionary.to_pylist(), shifts.dictionary.to_pylist()
        codes, pairs = pair_codes(granules, shifts)
        times = [(_EPOCH + timedelta(milliseconds=starts[left] * granule), offsets[right]) for left, right in pairs]
        return unique(codes, [self.output.render(time, offset) for time, offset in times])


def _required(options: Mapping[str, str], key: str) -> str:
    value = options.get(key, "")
    if not value.strip():
        raise ConfigError(f"{key} is not set; the TIMESTAMP key generator needs it")
    return value


def _input_patterns(options: Mapping[str, str]) -> tuple[InputPattern, ...]:
    delimiter = options.get(DELIMITER, "").strip() or ","
    try:
        patterns = re.split(delimiter, _required(options, INPUT))
    except re.error as error:
        raise ConfigError(f"{DELIMITER}={delimiter!r} is not a regular expression: {error}") from error
    return tuple(InputPattern.of(pattern.strip(), INPUT) for pattern in patterns if pattern.strip())


def _zone_option(options: Mapping[str, str], key: str) -> str | None:
    """Return the zone of input or output. The common option wins, as in Hudi; if both are set they must agree."""
    own, common = options.get(key, "").strip(), options.get(ZONE, "").strip()
    if own and common and own != common:
        raise ConfigError(f"{key}={own!r} contradicts {ZONE}={common!r}, which Hudi prefers; set one of them")
    name = common or own
    if not name:
        return None
    check_zone(name, key if own else ZONE)
    return name


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _default_number(unit: str | None, column_unit: str) -> int:
    scale = _UNITS[unit or "MILLISECONDS"]
    millis = 0 if scale < 0 else scale
    return millis * (1000 if column_unit == "us" else 1)


def _whole_numbers(column: pa.Array[Any], name: str, fallback: int) -> Int64s:
    """Convert a column to integers like Java's ``longValue``: truncated towards zero, NaN to 0."""
    kind = column.type
    if pa.types.is_date(kind):
        column = pc.cast(pc.cast(column, pa.date32()), pa.int32())
    if pa.types.is_floating(kind):
        bound = float(1 << 62)
        real = np.asarray(pc.fill_null(pc.cast(column, pa.float64()), float(fallback)))
        return np.asarray(np.clip(np.nan_to_num(real, nan=0.0), -bound, bound), np.int64)
    if not any(is_whole(kind) for is_whole in _WHOLE):
        raise SchemaError(f"column {name!r} of type {kind} cannot be a TIMESTAMP partition column; cast it to long")
    try:
        numbers = pc.cast(column, options=pc.CastOptions(pa.int64(), allow_decimal_truncate=True))
    except pa.ArrowInvalid as error:
        raise RecordError(f"column {name!r} holds a number too large for a time ({error})") from error
    return np.asarray(pc.fill_null(numbers, fallback))


def _refuse(bad: Flags, column: pa.Array[Any], name: str, reason: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise RecordError(f"column {name!r}, row {row}: {column[row].as_py()!r} {reason}")
