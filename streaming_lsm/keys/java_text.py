"""Print key and partition values as Java's ``toString`` does.

See docs/format/01-table.md, "Record key string".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import pc
from streaming_lsm.errors import SchemaError

# 9999-12-31 in days since 1970; java.time prints a plus sign before longer years.
_LAST_FOUR_DIGIT_YEAR_DAY = 2_932_896
_REAL_PARTS = r"^(?P<sign>-?)(?P<whole>\d+)(?:\.(?P<part>\d+))?(?:e(?P<power>[+-]?\d+))?$"
_TIMESTAMP_UNITS = ("ms", "us")
# Arrow prints these as Java does.
_PLAIN = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_decimal,
)


def to_java_text(array: pa.Array[Any], *, logical_timestamp: bool = False) -> pa.StringArray:
    """Print every value of `array` as Hudi prints it in record keys and partition paths.

    Integers are decimal, dates ``YYYY-MM-DD``, timestamps the raw epoch number in their own unit,
    decimals ``BigDecimal.toString``, floats the shortest digits in ``Double.toString``'s layout.

    Args:
        array: one column, any length, slices and dictionary encoding included.
        logical_timestamp: print timestamps with a zone as ``java.sql.Timestamp`` in UTC,
            cut to milliseconds (``hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled``).

    Returns:
        Strings of the same length; null stays null.

    Raises:
        SchemaError: the type has no stable text (binary, nested, unsigned, time, s or ns timestamps).
    """
    kind = array.type
    text: pa.StringArray
    if pa.types.is_dictionary(kind):
        text = to_java_text(pc.cast(array, kind.value_type), logical_timestamp=logical_timestamp)
    elif any(is_plain(kind) for is_plain in _PLAIN):
        text = pc.cast(array, pa.string())
    elif pa.types.is_date(kind):
        text = _date_text(pc.cast(array, pa.date32()))
    elif pa.types.is_timestamp(kind) and kind.unit in _TIMESTAMP_UNITS:
        text = _timestamp_text(array, logical_timestamp)
    elif pa.types.is_float32(kind) or pa.types.is_float64(kind):
        text = _real_text(array)
    else:
        raise SchemaError(
            f"a column of type {kind} cannot be a record key or partition column; cast it to a string, an integer, "
            "a date, a decimal or a timestamp in microseconds first"
        )
    return text


def _date_text(dates: pa.Array[Any]) -> Any:
    text = _time_text(dates, "D")
    late = pc.greater(pc.cast(dates, pa.int32()), _LAST_FOUR_DIGIT_YEAR_DAY)
    if not pc.any(late).as_py():
        return text
    return pc.if_else(late, pc.binary_join_element_wise("+", text, ""), text)


def _timestamp_text(array: pa.Array[Any], logical: bool) -> Any:
    # A timestamp without zone is Avro's local-timestamp, which Hudi never converts to a Timestamp.
    if not logical or array.type.tz is None:
        return pc.cast(pc.cast(array, pa.int64()), pa.string())
    epoch = pc.cast(array, pa.int64())
    millis = epoch if array.type.unit == "ms" else pc.divide(epoch, 1000)
    text = _time_text(pc.cast(millis, pa.timestamp("ms")), "ms")
    return pc.replace_substring_regex(text, r"(\.\d+?)0+$", r"\1")


def _time_text(times: pa.Array[Any], unit: str) -> Any:
    """Print dates or times; numpy prints the years that Arrow calls out of range."""
    text = pc.cast(times, pa.string())
    far = pc.fill_null(pc.starts_with(text, "<"), False)
    if not pc.any(far).as_py():
        return text
    numbers = np.asarray(pc.cast(times.filter(far), pa.int32() if unit == "D" else pa.int64()), np.int64)
    printed = np.char.replace(np.datetime_as_string(numbers.view(f"M8[{unit}]")), "T", " ")
    return pc.replace_with_mask(text, far, pa.array(printed, pa.string()))


def _real_text(array: pa.Array[Any]) -> Any:
    digits = pc.cast(array, pa.string())
    size = pc.abs(pc.cast(array, pa.float64()))
    whole = pc.and_(pc.less(size, 1e7), pc.equal(pc.find_substring(digits, "."), -1))
    plain = pc.if_else(whole, pc.binary_join_element_wise(digits, ".0", ""), digits)
    zero_or_plain = pc.or_(pc.equal(size, 0.0), pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e7)))
    if pc.all(zero_or_plain).as_py() is not False:
        return plain
    special = pc.case_when(
        pc.make_struct(pc.is_nan(array), pc.equal(array, float("inf")), pc.equal(array, float("-inf"))),
        "NaN",
        "Infinity",
        "-Infinity",
        _scientific(_two_digits(array, size, digits)),
    )
    return pc.if_else(zero_or_plain, plain, special)


def _two_digits(array: pa.Array[Any], size: pa.Array[Any], digits: pa.Array[Any]) -> Any:
    """Replace the digits of subnormal values by Java's, which prints two digits where one is enough."""
    limit = 1e-43 if pa.types.is_float32(array.type) else 1e-321
    tiny = pc.and_(pc.less(size, limit), pc.match_substring_regex(digits, r"^-?\de"))
    if not pc.any(tiny).as_py():
        return digits
    # Only a few dozen distinct values are this small, so the loop is over values, not rows.
    encoded = array.dictionary_encode()
    printed = pa.array([None if value is None else f"{value:.1e}" for value in encoded.dictionary.to_pylist()])
    return pc.if_else(tiny, pc.take(printed, encoded.indices), digits)


def _scientific(digits: pa.Array[Any]) -> Any:
    """Convert ``123.4``, ``0.00012`` or ``1.5e-8`` to the form ``d.dddE±n``; other text becomes null."""
    parts = pc.extract_regex(digits, _REAL_PARTS)
    sign, whole, part, power = (pc.struct_field(parts, name) for name in ("sign", "whole", "part", "power"))
    every = pc.binary_join_element_wise(whole, part, "")
    significant = pc.utf8_ltrim(every, "0")
    leading = pc.subtract(pc.binary_length(every), pc.binary_length(significant))
    shift = pc.subtract(pc.subtract(pc.binary_length(whole), 1), leading)
    given = pc.cast(pc.if_else(pc.equal(power, ""), "0", pc.utf8_ltrim(power, "+")), pa.int32())
    exponent = pc.cast(pc.add(shift, given), pa.string())
    rest = pc.utf8_rtrim(pc.utf8_slice_codeunits(significant, 1), "0")
    rest = pc.if_else(pc.equal(rest, ""), "0", rest)
    head = pc.utf8_slice_codeunits(significant, 0, 1)
    return pc.binary_join_element_wise(sign, head, ".", rest, "E", exponent, "")
