"""Documents that are parsed many at a time: each is read as Python's parser reads it, or set aside."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm.decode.json import columns
from streaming_lsm.decode.json.columns import JsonColumns
from tests.support.crash_points import sample
from tests.support.json_fuzz import CHANGES, FORM, accepted, expected, mismatches

PLAIN = b'{"id":1,"name":"a","tags":[1,2],"place":{"lat":0.5,"words":["x"]}}'
OTHER = b'{"id":2,"ok":false}'
ROOT = Path(__file__).parents[4]


def nested(levels: int) -> bytes:
    """A document of so many objects and arrays, itself included."""
    return b'{"x":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def objects(levels: int) -> bytes:
    return b'{"x":' * levels + b"1" + b"}" * levels


def sized(size: int) -> bytes:
    """A document of so many bytes."""
    return b'{"id":3,"name":"' + b"n" * (size - 18) + b'"}'


NO_JSON = {
    "empty": b"",
    "blank": b"  ",
    "null": b"null",
    "number": b"5",
    "string": b'"{}"',
    "array": b"[{}]",
    "object-null-object": b"{}null{}",
    "null-object": b"null{}",
    "two": b"{}{}",
    "two-with-blank": b"{} {}",
    "two-with-line-break": b"{}\n{}",
    "two-with-carriage-return": b"{}\r{}",
    "two-with-comma": b"{},{}",
    "two-with-nul": b"{}\0{}",
    "two-with-values": b'{"id":1}{"id":2}',
    "NaN": b'{"ratio":NaN}',
    "Infinity": b'{"ratio":Infinity}',
    "-Infinity": b'{"ratio":-Infinity}',
    "Inf": b'{"ratio":Inf}',
    "NaN-not-read": b'{"x":NaN}',
    "nul-in-string": b'{"name":"a\0b"}',
    "nul-between": b'{"id":1\0}',
    "nul-before-end": b'{"id":1}\0}',
    "line-break-in-string": b'{"name":"a\nb"}',
    "line-break-in-string-not-read": b'{"x":"a\nb"}',
    "carriage-return-in-string": b'{"name":"a\rb"}',
    "tab-in-string": b'{"name":"a\tb"}',
    "line-break-in-name": b'{"i\nd":1}',
    "line-break-in-number": b'{"id":1\n2}',
    "line-break-in-word": b'{"ok":tr\nue}',
    "not-utf-8": b'{"name":"\xff"}',
    "not-utf-8-not-read": b'{"x":"\xc3"}',
    "not-utf-8-name": b'{"\xff":1}',
    "surrogate-in-utf-8": b'{"name":"\xed\xa0\x80"}',
    "overlong": b'{"name":"\xc0\xaf"}',
    "byte-order-mark": b'\xef\xbb\xbf{"id":1}',
    "byte-order-mark-inside": b'{\xef\xbb\xbf"id":1}',
    "trailing-comma": b'{"id":1,}',
    "trailing-comma-in-array": b'{"tags":[1,]}',
    "leading-comma": b'{,"id":1}',
    "no-colon": b'{"id" 1}',
    "no-value": b'{"id":}',
    "open": b'{"id":1',
    "open-inside": b'{"x":{"id":1}',
    "closed-twice": b'{"id":1}}',
    "closed-twice-with-array": b'{"id":1}]}',
    "text-behind": b'{"id":1} more}',
    "comment": b'{"id":1/**/}',
    "single-quotes": b"{'id':1}",
    "name-without-quotes": b"{id:1}",
    "leading-zero": b'{"id":01}',
    "plus": b'{"id":+1}',
    "no-digits-behind-point": b'{"ratio":1.}',
    "no-digits-before-point": b'{"ratio":.5}',
    "no-exponent": b'{"ratio":1e}',
    "hexadecimal": b'{"id":0x10}',
    "escape-unknown": b'{"name":"\\x41"}',
    "escape-cut": b'{"name":"\\u12"}',
    "form-feed-between": b'{"id":\x0c1}',
    "no-break-space-between": b'{"id":\xc2\xa01}',
    "true-in-capitals": b'{"ok":True}',
}
NOT_READ_HERE = {
    "deep": nested(1000),
    "deep-objects": objects(1000),
    "very-deep": nested(20_000),
    "digits": b'{"x":' + b"1" * 1001 + b"}",
    "digits-behind-point": b'{"x":0.' + b"1" * 1000 + b"}",
    "digits-in-exponent": b'{"x":1e' + b"1" * 1001 + b"}",
    "digits-of-a-decimal": b'{"price":' + b"1" * 1001 + b"}",
    "half-surrogate": b'{"name":"\\ud800"}',
    "second-half-surrogate": b'{"name":"\\udc00"}',
    "halves-in-wrong-order": b'{"name":"\\udc00\\ud800"}',
    "half-surrogate-and-letter": b'{"name":"\\ud83cx"}',
    "half-surrogate-inside": b'{"place":{"words":["\\ud800"]}}',
    "too-large": b'{"id":9223372036854775808}',
    "too-large-inside": b'{"tags":[2147483648]}',
    "fraction": b'{"id":1.0}',
    "exponent": b'{"id":1e2}',
    "text-of-a-number": b'{"id":"1"}',
    "number-of-a-text": b'{"name":1}',
    "object-of-an-array": b'{"tags":{}}',
    "no-null": b'{"schema":{}}',
}
EITHER = {
    "no-members": b"{}",
    "blanks-around": b'  {"id":1}\t',
    "line-break-around": b'\n{"id":1}\n',
    "carriage-return-around": b'{"id":1}\r',
    "line-break-between": b'{\n"id"\n:\n1\n,"name":"a"\n}',
    "carriage-return-between": b'{"id":\r1,\r\n"name":"a"\r}',
    "tab-between": b'{\t"id"\t:\t1\t}',
    "depth-998": nested(998),
    "depth-999": nested(999),
    "depth-999-objects": objects(999),
    "brackets-in-a-string": b'{"id":1,"x":"' + b"[{" * 2000 + b'"}',
    "brackets-in-a-string-few": b'{"id":1,"x":"' + b"[{" * 400 + b'"}',
    "digits-600": b'{"id":1,"x":' + b"1" * 600 + b"}",
    "digits-1000": b'{"id":1,"x":' + b"1" * 1000 + b"}",
    "digits-in-a-string": b'{"id":1,"name":"' + b"1" * 5000 + b'"}',
    "negative-zero": b'{"ratio":-0}',
    "negative-zero-inside": b'{"place":{"lat":-0}}',
    "negative-zero-with-blank": b'{"ratio":-0 ,"id":-0}',
    "negative-zero-with-line-break": b'{"ratio":-0\n}',
    "negative-zero-with-fraction": b'{"ratio":-0.0,"place":{"lat":-0e5}}',
    "negative-zero-whole": b'{"id":-0,"tags":[-0]}',
    "smallest": b'{"ratio":5e-324,"place":{"lat":1e-400}}',
    "largest": b'{"ratio":1.7976931348623157e308,"id":-9223372036854775808}',
    "infinite": b'{"ratio":1e999}',
    "infinite-below-the-next-power": b'{"ratio":-2e308,"place":{"lat":1.8e308}}',
    "seventeen-digits": b'{"ratio":0.30000000000000004,"place":{"lat":9007199254740993}}',
    "repeated": b'{"id":1,"id":2}',
    "repeated-null": b'{"id":1,"id":null}',
    "repeated-inside": b'{"place":{"lat":1,"lat":2}}',
    "repeated-object": b'{"place":{"lat":1},"place":{"words":[]}}',
    "repeated-not-read": b'{"x":1,"x":2,"id":3}',
    "repeated-by-escape": b'{"id":1,"\\u0069d":2}',
    "escaped-name": b'{"\\u0069d":2}',
    "escapes": b'{"name":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u017e\\ud83c\\udf81"}',
    "braces-in-a-string": b'{"name":"}{","id":1}',
    "words-in-a-string": b'{"name":"NaN Infinity null","ratio":1.5}',
    "words-in-a-name": b'{"deviceInfo":1,"NaN":2,"-0 ":3,"}{}":4,"id":5}',
    "document-in-a-string": b'{"name":"{\\"price\\": 1} {}null{}","id":7}',
    "negative-zero-in-a-string": b'{"name":"-0 -0, -0]","ratio":0.5}',
    "name-of-a-decimal-in-another": b'{"unit_price":123456789012345678,"price":1.5}',
    "backslash-at-the-end-of-a-string": b'{"name":"}x\\\\","id":1}',
    "longest": sized(32_768),
    "longer": sized(300_000),
    "much-longer": sized(5_000_000),
    "many-numbers": b'{"id":1,"x":[' + b"1,22,333," * 5_000 + b"4]}",
    "many-objects": b'{"id":1,"x":[' + b'{"y":[]},' * 5_000 + b"4]}",
    "letters": '{"name":"ž🎁\u2028\x7f"}'.encode(),
}
EVERY = {**NO_JSON, **NOT_READ_HERE, **EITHER}


@pytest.mark.parametrize("document", [*NO_JSON.values(), *NOT_READ_HERE.values()], ids=[*NO_JSON, *NOT_READ_HERE])
def test_document_that_is_no_row_of_the_form_is_set_aside(document: bytes) -> None:
    assert expected(document) is None
    assert accepted([document]) == []
    assert 1 not in accepted([PLAIN, document, OTHER])


@pytest.mark.parametrize("document", EVERY.values(), ids=EVERY)
def test_documents_beside_a_hostile_one_are_read_as_they_are(document: bytes) -> None:
    for batch in ([document], [document, PLAIN], [PLAIN, document], [PLAIN, document, OTHER, document], [document] * 3):
        assert mismatches(batch) == []


@pytest.mark.parametrize("document", NO_JSON.values(), ids=NO_JSON)
def test_one_hostile_document_does_not_keep_others_from_being_parsed(document: bytes) -> None:
    batch = [PLAIN] * 30 + [document] + [OTHER] * 30
    assert mismatches(batch) == []
    # A few more may be set aside, where the parser does not say which document it complains of.
    assert len(accepted(batch)) >= 45


def test_hostile_documents_side_by_side_are_set_aside_or_read_as_they_are() -> None:
    for form in (FORM, CHANGES):
        assert mismatches(list(EVERY.values()), form) == []
        for first in sample(list(EVERY.values()), 0, 4):
            assert mismatches([one for second in EVERY.values() for one in (first, second, PLAIN)][:60], form) == []


def test_blanks_and_line_breaks_between_tokens_are_accepted() -> None:
    between = [EITHER[name] for name in ("line-break-between", "carriage-return-between", "tab-between")]
    assert accepted(between) == [0, 1, 2]
    assert mismatches(between) == []


IN_STRINGS = (
    *("braces-in-a-string", "words-in-a-string", "words-in-a-name", "document-in-a-string"),
    *("negative-zero-in-a-string", "name-of-a-decimal-in-another", "backslash-at-the-end-of-a-string"),
)


@pytest.mark.parametrize("name", IN_STRINGS)
def test_what_would_be_set_aside_outside_of_strings_is_parsed_in_them(name: str) -> None:
    assert accepted([PLAIN, EVERY[name], b'{"x":"}', EVERY[name]]) == [0, 1, 3]
    assert mismatches([EVERY[name], b'{"x":"} {', b'"}', EVERY[name]]) == []


OUTSIDE = [b'{"name":"}x" NaN}', b'{"name":"Info","x":[-Inf]}', b'{"name":"} {","id":1}null{}',
           b'{"x":"-0 ","ratio":-0}', b'{"name":"}x}', b'{"name":"\\"}null{}']  # fmt: skip


@pytest.mark.parametrize("document", OUTSIDE)
def test_what_stands_outside_of_strings_is_set_aside_where_strings_have_it_too(document: bytes) -> None:
    assert accepted([PLAIN, document, OTHER]) == [0, 2]


@pytest.mark.parametrize("name", ["depth-998", "brackets-in-a-string-few", "digits-600", "longest", "escapes"])
def test_document_below_a_limit_is_parsed(name: str) -> None:
    assert accepted([EVERY[name]]) == [0]
    assert mismatches([EVERY[name]]) == []


@pytest.mark.parametrize("name", ["longer", "much-longer", "brackets-in-a-string", "many-numbers", "many-objects"])
def test_documents_are_parsed_however_long_they_are(name: str) -> None:
    assert accepted([PLAIN, EVERY[name], OTHER]) == [0, 1, 2]


CANCELLING = {
    "swallows-the-next": [b'{"id":1', b',"name":"b"}'],
    "swallows-the-next-object": [b'{"place":{"lat":1}', b',"id":2}'],
    "object-in-two-lines": [b'{"x":{}', b'"id":2}'],
    "array-in-two-lines": [b'{"x":[{}', b"{}]}"],
    "array-in-two-lines-with-comma": [b'{"x":[{}', b",{}]}"],
    "string-in-two-lines": [b'{"name":"}', b'{"}'],
    "escaped-line-break": [b'{"name":"\\}', b'{"}'],
    "two-in-a-line-and-one-in-two": [b'{"id":1}{"id":2}', b'{"x":{"id":3}', b"}"],
    "one-in-two-and-two-in-a-line": [b'{"x":{}', b'}', b'{"id":1} {"id":2}'],
    "two-in-a-line-and-one-in-two-braces": [b'{"id":1}{"id":2}', b'{"x":{}', b'{},"id":4}', PLAIN],
    "two-in-a-line-and-one-with-comma": [b'{"id":1},{"id":2}', b'{"x":[{"id":3}', b'{"id":4}]}'],
    "two-with-null-and-one-in-two": [b"{}null{}", b'{"x":{}', b'{}}'],
    "two-and-none": [b"{}{}", b""],
    "two-and-blank": [b"{} {}", b"  "],
    "none-and-two": [b"{", b"}{}"],
    "two-with-carriage-return-and-none": [b'{"id":1}\r{"id":2}', b""],
    "three-of-two": [b'{"id":1}\n{"id":2}', b'{"id":3}'],
    "line-breaks-only": [b"\n", b'{"id":1}\n{"id":2}'],
}  # fmt: skip


@pytest.mark.parametrize("documents", CANCELLING.values(), ids=CANCELLING)
def test_lines_that_begin_or_end_inside_a_document_are_set_aside(documents: list[bytes]) -> None:
    for batch in (documents, [PLAIN, *documents, OTHER], documents[::-1], documents * 20):
        assert mismatches(batch) == []
    assert set(accepted([*documents, PLAIN])) <= {
        place for place, one in enumerate([*documents, PLAIN]) if expected(one) is not None
    }


@pytest.mark.parametrize("seed", range(3))
def test_random_documents_are_read_as_pythons_parser_reads_them(seed: int) -> None:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.support.json_fuzz", str(seed), "150"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_documents_of_a_slice_are_read_from_where_it_begins() -> None:
    documents = pa.array([b"{", *[b'{"id":%d}' % number for number in range(600)], b"}"], pa.binary())
    (parsed,) = JsonColumns(FORM).parse(documents.slice(101, 300))
    assert parsed.places.tolist() == list(range(300))
    assert parsed.rows["id"].to_pylist() == list(range(100, 400))


def test_no_documents_are_no_rows() -> None:
    for documents in ([], [b""], [b"", b""]):
        assert list(JsonColumns(FORM).parse(pa.array(documents, pa.binary()))) == []


@pytest.mark.parametrize(
    "bad",
    [
        (b'{"id":',),
        (b'{"id":nul}',),
        (b'{"id":"x"}',),
        (b'{"id":1.5}',),
        pytest.param((b'{"id":1.' + b"5" * 900 + b"}",), id="long-value"),
        (b'{"id":', b'{"id":"x"}', b'{"id":1.5}', b'{"id":nul}'),
    ],
)
def test_a_few_bad_documents_cost_an_attempt_each_and_keep_no_other_from_being_parsed(
    bad: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, last = [b'{"id":%d}' % number for number in range(6000)], 5990
    places = [place for place in range(37, last, 71) if place % 5]
    for place in places:
        documents[place] = bad[place % len(bad)]
    attempts = attempted(monkeypatch)
    (parsed,) = JsonColumns(FORM).parse(pa.array(documents, pa.binary()))
    good = sorted(set(range(6000)) - set(places))
    assert parsed.places.tolist() == good
    assert parsed.rows["id"].to_pylist() == good
    windows = 6000 // columns._WINDOW + 1
    assert len(attempts) <= len(places) + windows + 2 * len(bad) + 1


def read_places(documents: list[bytes]) -> list[int]:
    """Positions of the documents that are read where other fields may be there."""
    parts = JsonColumns(FORM).parse(pa.array(documents, pa.binary()))
    return [place for part in parts for place in part.places.tolist()]


def attempted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of documents that each call of the parser parses: up to the row that it complains of."""
    attempts: list[int] = []
    read = columns._read

    def counted(lines: Any, *given: Any, **more: Any) -> Any:
        rows, complaint = read(lines, *given, **more)
        row = complaint.rpartition("in row ")[2]
        attempts.append(int(row) if row.isdigit() else len(lines.documents))
        return rows, complaint

    monkeypatch.setattr(columns, "_read", counted)
    return attempts


FAULTS = {
    "no-value": b'{"id":nul}',
    "closed-twice": b'{"id":1}}',
    "two-in-a-line": b'{"id":1},{"id":2}',
    "not-closed": b'{"x":{}',
    "brace-in-a-string": b'{"name":"}"}}',
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("every", [50, 1000])
def test_documents_that_are_no_json_are_searched_together(
    fault: bytes, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [fault if number % every == 7 else b'{"id":%d,"name":"}{"}' % number for number in range(8192)]
    attempts = attempted(monkeypatch)
    read = [place for part in JsonColumns(FORM).parse(pa.array(documents, pa.binary())) for place in part.places]
    assert read == [number for number in range(8192) if number % every != 7]
    faults = 8192 // every + 1
    assert len(attempts) <= 1 + faults + 2 + 8192 // columns._WINDOW
    assert sum(attempts) <= 3 * 8192, "once to search, and once to parse"


POISON: dict[str, Callable[[int], bytes]] = {
    "fractions": lambda number: b'{"id":%d.25}' % number,
    "fractions-in-an-array": lambda number: b'{"id":1,"tags":[%d.5]}' % number,
    "too-large": lambda number: b'{"id":%d}' % (2**63 + number),
    "texts": lambda number: b'{"id":"x%d"}' % number,
    "texts-of-decimals": lambda number: b'{"price":"x%d"}' % number,
    "broken": lambda number: b'{"id":%d,"name":nul}' % number,
    "closed-twice": lambda number: b'{"id":%d}}' % number,
}


@pytest.mark.parametrize("every", [1, 3, 20])
@pytest.mark.parametrize("name", POISON)
def test_misfits_of_many_values_are_parsed_a_few_times_at_most(
    name: str, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [POISON[name](number) if number % every == 0 else b'{"id":%d}' % number for number in range(8192)]
    attempts = attempted(monkeypatch)
    read = read_places(documents)
    assert not any(place % every == 0 for place in read)
    assert sum(attempts) <= 12 * len(documents)
    assert len(attempts) <= len(documents) // 7
    if name == "fractions":
        assert len(read) == len(documents) - len(range(0, len(documents), every))
        assert len(attempts) <= 5 * len(documents) // columns._WINDOW


def test_a_name_that_other_documents_have_elsewhere_costs_only_the_document_that_is_complained_of() -> None:
    documents = [b'{"id":%d,"x":{"name":7,"id":"a"}}' % number for number in range(2000)]
    documents[1000], documents[1500] = b'{"name":7}', b'{"id":"a"}'
    read = read_places(documents)
    assert read == [place for place in range(2000) if place not in (1000, 1500)]
