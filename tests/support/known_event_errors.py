"""Tell the known errors of the oracle for events from differences to it that matter; each has an exact condition."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Context, Decimal, InvalidOperation
from enum import StrEnum
from typing import Any

from streaming_lsm.decode.column_types import is_nested
from streaming_lsm.decode.envelope import Envelope, EventFormat
from streaming_lsm.decode.json.document import Members, NotJson, Number, parse_document, text_of
from tests.support.event_columns import Message

Row = Mapping[str, Any]

EXACT_DIGITS = 15
"""Digits that a double holds of any decimal."""
_NUMBER = re.compile(r"(-?[0-9]+\.[0-9]+(?:E-?[0-9]+)?)")
_CUT_NUMBER = re.compile(r"-?[0-9]+\.([0-9]+)")
_INFINITY = re.compile('"(-?Infinity)"')
_NO_DECIMAL = re.compile(r"which is not DECIMAL\(([0-9]+),([0-9]+)\)\Z")
_NO_DOCUMENT = ("the value is not a JSON object", "the key is not a JSON object")


class KnownError(StrEnum):
    """Names what the oracle does wrong."""

    TAIL = "text behind a document is accepted"
    ROUNDED = "decimals of a wrapped document are rounded to doubles"
    INFINITE = "numbers out of range are printed without quotes"
    LONG = "decimals of more than 38 digits are rounded"
    DIGITS = "doubles are printed with more digits than they need"
    NOT_UTF8 = "keys that are not UTF-8 are read"
    LOST = "a text that is no base64 inside a nested column loses the row"
    REPEATED = "of a repeated row the first one is shown in reasons"
    AFTER = "a tombstone follows one of these"


def known_errors(
    envelope: Envelope,
    message: Message,
    expected: Row | None,
    found: Row | None,
    rounded: Row,
    *,
    after_error: bool,
) -> set[KnownError]:
    """Return the errors of the oracle that explain a difference; none if it is not explained.

    Args:
        envelope: the format of messages.
        message: key and value.
        expected: the oracle's row; None of a dropped tombstone.
        found: the decoder's row; None of a dropped tombstone.
        rounded: the decoder's row of the `reprinted` message.
        after_error: whether the message before was read in another way because of an error.
    """
    value = message[1]
    said = (found and found["_lsm_bad"]) or ""
    if said.startswith(_NO_DOCUMENT) and _has_no_document(message[said.startswith(_NO_DOCUMENT[0])]):
        return {KnownError.TAIL}
    if value is None and said == "the key is not UTF-8" and not _is_utf8(message[0]):
        return {KnownError.NOT_UTF8}
    if expected is None or found is None:
        return {KnownError.AFTER} if after_error and value is None else set()
    if _has_long_decimal(said, message):
        return {KnownError.LONG}
    if expected["_lsm_bad"] and found["_lsm_bad"]:
        if _is_lost(envelope, value, expected["_lsm_bad"]):
            return {KnownError.LOST}
        if _has_repeated_row(envelope, value):
            return {KnownError.REPEATED}
    in_texts = _errors_in_texts(dict(expected), dict(found))
    if in_texts is not None:
        return in_texts if KnownError.INFINITE not in in_texts or any(map(_has_infinite, message)) else set()
    if not _has_rounded(envelope, value):
        return set()
    for one in (rounded, found):
        in_texts = _errors_in_texts(_as_doubles(expected), _as_doubles(one))
        if in_texts is not None:
            return {KnownError.ROUNDED, *in_texts}
    return set()


def _as_doubles(row: Row) -> dict[str, Any]:
    """Return a row with its decimals as doubles, and without its payload."""
    doubles = {name: float(value) if isinstance(value, Decimal) else value for name, value in row.items()}
    return {**doubles, "_lsm_payload": None}


def _has_long_decimal(said: str, message: Message) -> bool:
    """Tell whether a reason is about a DECIMAL, and a value has more digits behind the point than 38 leave for it."""
    kind = _NO_DECIMAL.search(said)
    if kind is None:
        return False
    kept = 38 - (int(kind[1]) - int(kind[2]))
    return any(_decimal_places(text) > kept for text in _texts([_token(message[0]), _token(message[1])]))


def _decimal_places(text: str) -> int:
    try:
        exponent = Decimal(text.replace(",", "")).normalize(Context(prec=2000)).as_tuple().exponent
    except InvalidOperation:
        return 0
    return -exponent if isinstance(exponent, int) else 0


def _texts(token: Any) -> Iterator[str]:
    if isinstance(token, str):
        yield token
    elif isinstance(token, Members | list):
        for one in [value for _, value in token.every] if isinstance(token, Members) else token:
            yield from _texts(one)


def reprinted(envelope: Envelope, message: Message) -> Message:
    """Return a message with the numbers of its document as doubles print them, if the oracle rounds them."""
    key, value = message
    return (key, str(text_of(_token(value))).encode()) if _has_rounded(envelope, value) else message


def _has_rounded(envelope: Envelope, value: bytes | None) -> bool:
    """Tell whether a wrapper of a flat document holds a number that is another one as double."""
    token = _token(value)
    if envelope.format is not EventFormat.JSON or not isinstance(token, Members) or token.get("schema") is None:
        return False
    row = token.get("payload")
    return isinstance(row, Members) and any(map(_is_rounded, _numbers(row)))


def _is_lost(envelope: Envelope, value: bytes | None, reason: str) -> bool:
    """Tell whether a document of an object is said to be null, where bytes inside nested columns are read."""
    nested = any(is_nested(column.type) and "binary" in str(column.type) for column in envelope.columns)
    return nested and reason == "the value is the JSON null" and isinstance(_token(value), Members)


def _has_repeated_row(envelope: Envelope, value: bytes | None) -> bool:
    """Tell whether a Debezium envelope has the row before or after the change more than once."""
    document = _token(value)
    if envelope.format is not EventFormat.DEBEZIUM or not isinstance(document, Members):
        return False
    change = document.get("payload") or document
    names = [name for name, _ in change.every] if isinstance(change, Members) else []
    return names.count("before") > 1 or names.count("after") > 1


def _is_rounded(number: Number) -> bool:
    digits = sum(map(str.isdigit, number))
    return not number.is_whole and (digits > EXACT_DIGITS or abs(float(number)) == float("inf"))


def _errors_in_texts(expected: Any, found: Any) -> set[KnownError] | None:
    """Return the errors in texts that make two values differ; None if they differ otherwise."""
    if repr(expected) == repr(found):
        return set()
    if isinstance(expected, str) and isinstance(found, str):
        return _errors_in_text(expected, found)
    if (
        type(expected) is not type(found)
        or not isinstance(expected, dict | list | tuple)
        or len(expected) != len(found)
    ):
        return None
    if isinstance(expected, dict):
        if list(expected) != list(found):
            return None
        expected, found = list(expected.values()), list(found.values())
    errors = set()
    for one, other in zip(expected, found, strict=True):
        inside = _errors_in_texts(one, other)
        if inside is None:
            return None
        errors |= inside
    return errors


def _errors_in_text(expected: str, found: str) -> set[KnownError] | None:
    errors = _errors_in_numbers(expected, found)
    if errors is None:
        errors = _errors_in_numbers(_INFINITY.sub(r"\1", expected), _INFINITY.sub(r"\1", found))
        return None if errors is None else {KnownError.INFINITE, *errors}
    return errors


def _errors_in_numbers(expected: str, found: str) -> set[KnownError] | None:
    theirs, ours = _NUMBER.split(expected), _NUMBER.split(found)
    errors: set[KnownError] = set()
    for place, (other, one) in enumerate(zip(theirs, ours, strict=False)):
        if one == other:
            continue
        if place % 2 and repr(float(one)) == repr(float(other)) and len(one) <= len(other):
            errors = {KnownError.DIGITS}
        else:
            return {KnownError.DIGITS} if _is_cut_sooner("".join(theirs[place:]), "".join(ours[place:])) else None
    return errors if len(theirs) == len(ours) else None


def _is_cut_sooner(expected: str, found: str) -> bool:
    """Tell whether two ends of texts differ only since a text with longer numbers is cut sooner."""
    begin, mark, end = expected.partition("…")
    if not mark or not found.endswith(end):
        return False
    rest = found.removesuffix(end).removesuffix(mark)
    if rest.startswith(begin):
        return True
    number, other = _CUT_NUMBER.fullmatch(begin), _CUT_NUMBER.match(rest)
    if not number or not other:
        return False
    return abs(float(number[0]) - float(other[0])) <= 1.1 * 10.0 ** -len(number[1])


def _has_infinite(value: bytes | None) -> bool:
    return any(abs(float(number)) == float("inf") for number in _numbers(_token(value)))


def _numbers(token: Any) -> Iterator[Number]:
    if isinstance(token, Number):
        yield token
    elif isinstance(token, Members | list):
        for one in [value for _, value in token.every] if isinstance(token, Members) else token:
            yield from _numbers(one)


def _has_no_document(text: bytes | None) -> bool:
    """Tell whether a text is not JSON, or the string that is the payload in its wrapper is not."""
    token = _token(text)
    payload = token.get("payload") if isinstance(token, Members) else None
    return not _is_json(text) or (isinstance(payload, str) and not _is_json(payload.encode(errors="replace")))


def _is_utf8(text: bytes | None) -> bool:
    return text is not None and "\ufffd" not in text.decode(errors="replace")


def _is_json(text: bytes | None) -> bool:
    if text is None:
        return False
    try:
        parse_document(text.decode())
    except (NotJson, UnicodeDecodeError):
        return False
    return True


def _token(text: bytes | None) -> Any:
    return parse_document(text.decode()) if text is not None and _is_json(text) else None
