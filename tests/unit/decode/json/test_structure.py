"""Names, levels and depth that are found by a scan are those that Python's parser finds."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import numpy as np
import pytest

from streaming_lsm.decode.json import structure as json_structure
from streaming_lsm.decode.json.structure import Strings, deepest, fields_of, longest_number, unclosed, written_name

NAMES = ("a", "b", 'c"', "d\\", "é🎁", "{x", "[n:", "after", "\x01", "")
TEXTS = ("a", 'x"y', "back\\", "\\\\", "{[", "]}:", "n", "\n\t", '":', "é🎁", "", ",", "null")


def data_of(text: bytes) -> Any:
    return np.frombuffer(text, np.uint8)


def value(chance: random.Random, level: int) -> Any:
    kind = chance.randrange(8)
    if kind == 0:
        return None
    if kind == 1:
        return chance.choice(TEXTS)
    if kind == 2 and level < 5:
        return {chance.choice(NAMES): value(chance, level + 1) for _ in range(chance.randrange(4))}
    if kind == 3 and level < 5:
        return [value(chance, level + 1) for _ in range(chance.randrange(4))]
    return chance.choice([True, False, 1.5, 10, -3])


def document(chance: random.Random) -> tuple[dict[str, Any], bytes]:
    row = {chance.choice(NAMES): value(chance, 1) for _ in range(chance.randrange(6))}
    separators = chance.choice([None, (",", ":"), (" ,\n", "\t:\r\n ")])
    indent = chance.choice([None, None, 1])
    return row, json.dumps(row, ensure_ascii=chance.random() < 0.5, indent=indent, separators=separators).encode()


def fields(token: Any, level: int = 0) -> list[tuple[str, int, bool]]:
    """Name, level, and whether there is a value, of the fields in a token."""
    found = []
    if isinstance(token, dict):
        for name, inside in token.items():
            found += [(name, level + 1, inside is not None), *fields(inside, level + 1)]
    elif isinstance(token, list):
        for inside in token:
            found += fields(inside, level + 1)
    return found


def depth(token: Any) -> int:
    if not isinstance(token, dict | list):
        return 0
    return 1 + max(map(depth, token.values() if isinstance(token, dict) else token), default=0)


def test_fields_of_random_documents_are_found() -> None:
    chance = random.Random(1)
    rows, texts = zip(*(document(chance) for _ in range(2000)), strict=True)
    data = data_of(b"".join(texts))
    found = fields_of(data)
    names = map(written_name, found.names(data).to_pylist())
    expected = [field for row in rows for field in fields(row)]
    assert list(zip(names, found.level.tolist(), found.has_value.tolist(), strict=True)) == expected
    assert len(expected) > 5000


STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


def test_places_in_strings_and_names_of_random_documents_are_found() -> None:
    chance = random.Random(4)
    texts = [document(chance)[1] for _ in range(500)]
    texts[100], texts[300] = b'{"a":"}', b'{"b\\":{}}'
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    strings = Strings(data_of(b"".join(texts)), ends)
    for nth, text in enumerate(texts):
        places = np.arange(ends[nth], ends[nth + 1])
        at = np.full(len(places), nth)
        inside, named = np.zeros((2, len(text)), np.bool_)
        for found in STRING.finditer(text):
            inside[found.start() + 1 : found.end()] = True
            named[found.start() + 1 : found.end()] = text[found.end() :].lstrip().startswith(b":")
        if nth in (100, 300):
            inside[:], named[:] = False, True
        assert strings.outside(places, at).tolist() == (~inside).tolist(), text
        inner = inside | (nth in (100, 300))
        assert (strings.in_names(places, at) & inner).tolist() == named.tolist(), text


@pytest.mark.parametrize("chunk", [7, 64, 1 << 20])
def test_depth_of_random_documents_is_found_in_chunks_of_any_size(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_structure, "_CHUNK", chunk)
    chance = random.Random(2)
    for _ in range(300):
        row, text = document(chance)
        assert deepest(data_of(text)) == depth(row), text


@pytest.mark.parametrize("chunk", [5, 1 << 20])
def test_the_longest_number_is_found_in_chunks_of_any_size(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_structure, "_CHUNK", chunk)
    chance = random.Random(3)
    for _ in range(300):
        text = "".join(chance.choice("1234567890.eE+-1111,[]x ") for _ in range(chance.randrange(40)))
        assert longest_number(data_of(text.encode())) == max(map(len, re.findall(r"[0-9.eE+-]*", text))), text


def test_documents_whose_brackets_do_not_close_at_their_end_are_found() -> None:
    documents = {
        b"{}": False,
        b'{"x":{"y":[{}]}}': False,
        b'{"x":"}{]["}': False,
        b'{"x":"\\"}"}': False,
        b"{}}": True,
        b'{"x":{}': True,
        b'{"x":1},{"x":2}': True,
        b'{"x":"}"}}': True,
    }
    offsets = np.cumsum([0, *map(len, documents)]).astype(np.int32)
    data = np.frombuffer(b"".join(documents), np.uint8)
    assert unclosed(data, offsets).tolist() == list(documents.values())
