"""Check the rows that `JsonColumns` reads against Python's parser, for chosen and for random documents.

As a program it reads random documents, which may end the process where the parser is at fault::

    python -m tests.support.json_fuzz SEED BATCHES
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, NoReturn

import pyarrow as pa

from streaming_lsm.decode.json.columns import JsonColumns
from streaming_lsm.decode.json.document import parse_document
from streaming_lsm.decode.json.expected_fields import ExpectedFields

MOST_DEPTH, MOST_DIGITS = 999, 1000
_FIELDS: list[tuple[str, pa.DataType]] = [
    ("id", pa.int64()),
    ("name", pa.string()),
    ("ok", pa.bool_()),
    ("ratio", pa.float64()),
    ("price", pa.decimal128(38, 30)),
    ("tags", pa.list_(pa.int32())),
    ("place", pa.struct([("lat", pa.float64()), ("words", pa.list_(pa.string()))])),
    ("schema", pa.null()),
]
FORM = pa.schema(_FIELDS)
"""Fields of all types that the parser is asked for."""
_ROW: list[tuple[str, pa.DataType]] = [("id", pa.int64()), ("name", pa.string()), ("ratio", pa.float64())]
CHANGES = pa.schema(
    [
        ("op", pa.string()),
        ("source", pa.struct([("lsn", pa.int64()), ("file", pa.string())])),
        ("before", pa.struct(_ROW[:1])),
        ("after", pa.struct([*_ROW, ("ok", pa.bool_()), ("tags", pa.list_(pa.struct([("id", pa.int32())])))])),
        ("ts_ms", pa.int64()),
        ("payload", pa.null()),
    ]
)
"""Fields of Debezium's changes."""
_SEEDS = (
    b'{"id":1,"name":"one","ok":true,"ratio":0.5,"price":12.50,"tags":[1,2],"place":{"lat":-1.5,"words":["a",null]}}',
    b'{"id":-9223372036854775808,"name":null,"ok":false,"ratio":-0.0,"price":-0.01,"tags":[],"place":null}',
    b'{"name":"\\u017e\\ud83c\\udf81 \\"}{\\" \\\\","ratio":1e-7,"unknown":{"id":[{"name":[]}]},"id":0}',
    '{"name":"ž🎁","na\\u006de2":1,"tags":[2147483647,-2147483648],"x":[[[]],{}],"schema":null}'.encode(),
    b'{ "id" : 7 ,\t"place" : { "lat" : 1E+2 , "words" : [ ] } , "ok" : null }',
    b'{"a":null,"b":[null,true,false,-1.5e3,"",{"":0}],"id":12345678901234567,"price":99999999}',
    b"{}",
    b'{"id":1}',
    b'{"name":"Hello {name}!","deviceInfo":"{\\"id\\": 1} {}","Inf":{"NaN":"-0 }null{"},"id":4,"y":"\\\\"}',
    b'{"before":null,"after":{"id":1,"name":"a","ratio":1.0,"ok":true,"tags":[{"id":1},null,{}]},"op":"c","ts_ms":5}',
    b'{"before":{"id":1,"name":"}","x":{}},"after":null,"source":{"lsn":70,"file":null,"y":[1]},"op":"d"}',
    b'{"op":"u","source":{},"before":{},"after":{"id":null,"tags":[]},"transaction":null,"payload":null}',
)
_SIDES = ("before", "after")
_INSERTED = (
    *b"{ } [ ] }{ {} } { },{ , : null true {}null{} // /**/ ' \" \\ - + 0 -0 . e NaN Infinity -Infinity".split(b" "),
    *(b"Inf", b'"}', b'"{'),
    *(b" ", b"\t", b"\n", b"\r", b"\r\n", b"\0", b"\x0b", b"\x7f", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf"),
    *(rb"\u0000", rb"\ud800", rb"\udc00", rb"\ud83c\udf81", rb"\u", rb"\x", rb"\/", b'"id":', b'"id":2,'),
    *(b'"schema":1', b"1e999", b"1e-999", b"123456789", b"0.1234567890123456789012345678901"),
    b"170141183460469231731687303715884105728",
)


class _Number(str):
    """The text of a number."""

    __slots__ = ()


class _Refused(ValueError):
    """Reports a document or value that no row may be made of."""


def mismatches(documents: Sequence[bytes], form: pa.Schema = FORM) -> list[str]:
    """Parse documents, and describe the rows that are not what Python's parser reads."""
    wrong, seen = [], []
    for part in JsonColumns(form, strict_form(form)).parse(pa.array(documents, pa.binary())):
        places, rows = part.places.tolist(), part.rows.to_pylist()
        seen += places
        if places != sorted(places) or len(rows) != len(places):
            wrong.append(f"{len(rows)} rows at {places} of {documents!r}")
        wrong += _wrong_rows(documents, form, zip(places, rows, strict=False))
    if len(seen) != len(set(seen)) or not set(seen) <= set(range(len(documents))):
        wrong.append(f"rows at {seen} of {documents!r}")
    return wrong


def strict_form(form: pa.Schema) -> pa.Schema:
    """Add the fields of some seeds to a form, so that other seeds have fields beyond it."""
    changes = "op" in form.names
    known = ExpectedFields(["id", "name", "ratio", "ok", "tags"] if changes else form.names, _SIDES if changes else ())
    for seed in _SEEDS[8:] if changes else (*_SEEDS[:3], _SEEDS[4]):
        known.learn(parse_document(seed.decode()))
    assert known.regular
    return known.extended(form)


def _wrong_rows(
    documents: Sequence[bytes], form: pa.Schema, rows: Iterable[tuple[int, dict[str, Any]]]
) -> Iterable[str]:
    for place, every in rows:
        row = _pruned(every, form)
        known = expected(documents[place], form)
        if known is None or not _same(row, known):
            yield f"{documents[place]!r} is {known!r}, was read as {row!r}, among {documents!r}"


def _pruned(row: dict[str, Any], fields: Iterable[Any]) -> dict[str, Any]:
    """Leave out what is in the strict form only."""
    found = {}
    for field in fields:
        value = row[field.name]
        inside = pa.types.is_struct(field.type) and value is not None
        found[field.name] = _pruned(value, field.type) if inside else value
    return found


def accepted(documents: Sequence[bytes], form: pa.Schema = FORM) -> list[int]:
    """Return the positions of the documents that are parsed."""
    parts = JsonColumns(form, strict_form(form)).parse(pa.array(documents, pa.binary()))
    return sorted(place for part in parts for place in part.places.tolist())


def expected(document: bytes, form: pa.Schema = FORM) -> dict[str, Any] | None:
    """Return the row of a document as Python's parser reads it; None if it may not become a row."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        token = json.loads(document.decode(), parse_constant=_refuse, parse_float=_number, parse_int=_number)
        if not isinstance(token, dict) or _depth(token) > MOST_DEPTH:
            return None
        return {field.name: _value(token.get(field.name), field.type) for field in form}
    except (ValueError, RecursionError):
        return None
    finally:
        sys.setrecursionlimit(before)


def _refuse(name: str) -> NoReturn:
    raise _Refused(name)


def _number(text: str) -> _Number:
    if sum(map(str.isdigit, text)) > MOST_DIGITS:
        raise _Refused("too many digits")
    return _Number(text)


def _depth(token: Any) -> int:
    depth, level = 0, [token]
    while level := [one for one in level if isinstance(one, (dict, list))]:
        depth += 1
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return depth


def _value(token: Any, kind: pa.DataType) -> Any:
    if token is None:
        return None
    if pa.types.is_list(kind) and isinstance(token, list):
        return [_value(one, kind.value_type) for one in token]
    if pa.types.is_struct(kind) and isinstance(token, dict):
        return {field.name: _value(token.get(field.name), field.type) for field in kind.fields}
    if pa.types.is_boolean(kind) and isinstance(token, bool):
        return token
    if pa.types.is_string(kind) and isinstance(token, str) and not isinstance(token, _Number):
        token.encode()  # half surrogate pairs are no text
        return token
    if isinstance(token, _Number):
        return _numeric(token, kind)
    raise _Refused(str(kind))


def _numeric(text: str, kind: pa.DataType) -> object:
    if pa.types.is_integer(kind) and text.lstrip("-").isdigit() and -(2 ** (kind.bit_width - 1)) <= int(text):
        value = int(text)
        if value < 2 ** (kind.bit_width - 1):
            return value
    if pa.types.is_float64(kind):
        return float(text)
    if pa.types.is_decimal(kind):
        number = Decimal(text)
        exponent = number.as_tuple().exponent
        if isinstance(exponent, int) and (not number or number.adjusted() < kind.precision):
            return number
    raise _Refused(text)


def _same(one: object, other: object) -> bool:
    """Compare values, and tell zeros of both signs apart."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and one == other and (not isinstance(one, float) or repr(one) == repr(other))


def random_documents(chance: random.Random) -> list[bytes]:
    """Make a batch of documents: mutated, cut in two, joined, and a few whole ones."""
    documents: list[bytes] = []
    for _ in range(chance.choice((1, 2, 3, 6, 12, 40))):
        document = chance.choice(_SEEDS)
        for _ in range(chance.choice((0, 1, 1, 1, 2, 4))):
            document = _mutated(document, chance)
        kind = chance.random()
        place = chance.randint(0, len(document))
        if kind < 0.1:
            documents += [document[:place], document[place:]]
        elif kind < 0.15:
            documents += [document[:place] + b"}", b"{" + document[place:]]
        elif kind < 0.2:
            documents.append(document + chance.choice((b"", b" ", b",", b"\n", b"\r")) + chance.choice(_SEEDS))
        else:
            documents.append(document)
    if chance.random() < 0.2:
        chance.shuffle(documents)
    return documents


def _mutated(document: bytes, chance: random.Random) -> bytes:
    # Most changes leave the braces at the ends, without which a document is not parsed at all.
    first = 1 if chance.random() < 0.9 and len(document) > 2 else 0
    last = len(document) - first
    begin, end = sorted((chance.randint(first, last), chance.randint(first, last)))
    kind = chance.randrange(8)
    if kind == 0 and document:
        at = min(begin, len(document) - 1)
        return document[:at] + bytes([document[at] ^ 1 << chance.randrange(8)]) + document[at + 1 :]
    if kind == 1:
        return document[:begin] + bytes([chance.randrange(256)]) + document[begin + 1 :]
    if kind == 2:
        return document[:begin] + document[min(end, begin + 6) :]
    if kind == 3:
        return document[:begin] + document[begin:end] * 2 + document[end:]
    if kind == 4:
        other = chance.choice(_SEEDS)
        return document[:begin] + other[chance.randint(0, len(other)) :]
    if kind == 5:
        return document[:begin] + chance.choice(_SEEDS) + document[begin:]
    return document[:begin] + chance.choice(_INSERTED) + document[begin:]


def fuzzed(seed: int, batches: int) -> Iterable[str]:
    """Yield descriptions of the wrong rows of random batches."""
    chance = random.Random(seed)
    for _ in range(batches):
        yield from mismatches(random_documents(chance), chance.choice((FORM, CHANGES)))


if __name__ == "__main__":
    wrong = 0
    for text in fuzzed(int(sys.argv[1]), int(sys.argv[2])):
        print(text)
        wrong += 1
    sys.exit(wrong > 0)
