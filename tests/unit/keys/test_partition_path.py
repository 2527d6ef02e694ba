from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_lsm.keys.partition_path import escape_partition_value, path_fault, unescape_partition_value

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@settings(deadline=None)
@given(TEXTS)
def test_escaping_is_undone_by_unescaping(value: str) -> None:
    assert unescape_partition_value(escape_partition_value(value)) == value


@settings(deadline=None)
@given(TEXTS)
def test_escaped_text_holds_no_separator_and_no_control_character(value: str) -> None:
    escaped = escape_partition_value(value)
    assert not set(escaped) & {"/", "\\", ":", "=", "?", "*", "\0", "\n", "\x7f"}


def test_the_escaped_characters_are_those_of_hive() -> None:
    every = "".join(map(chr, range(0x80)))
    escaped = "".join(character for character in every if escape_partition_value(character) != character)
    assert escaped == "".join(map(chr, range(0x20))) + "\"#%'*/:=?[\\]^{\x7f"
    assert escape_partition_value("a/b é\n") == "a%2Fb é%0A"


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "a/../b",
        "../a",
        "a/..",
        "a\\..\\b",
        ".",
        "a/./b",
        "/a",
        "",
        "a//b",
        "a/",
        "a\0b",
        "a\nb",
        ".hoodie",
        "a/.hoodie",
        "x" * 256,
        "a/" + "é" * 128,
        "a/" * 1600 + "a",
    ],
)
def test_paths_that_leave_or_harm_the_table_have_a_fault(path: str) -> None:
    assert path_fault(path)


@pytest.mark.parametrize(
    "path",
    [
        "a",
        "2020/01/02",
        "a b",
        "a..b",
        "...",
        ".a",
        "x=..",
        "日本",
        ".hoodiex",
        "a\\b",
        "%2E",
        "x" * 255,
        "é" * 127 + "/b",
    ],
)
def test_paths_inside_the_table_have_no_fault(path: str) -> None:
    assert path_fault(path) is None
