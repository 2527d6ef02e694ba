import json

import pytest

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.log.native_footer import CHAIN_KEY, FOOTER_KEY, LogHeader
from streaming_lsm.format.table.file_names import LogFileName, LogKind, WriteToken

SCHEMA = json.dumps({"type": "record", "name": "r", "fields": [{"name": "größe", "type": "int"}]}, ensure_ascii=False)
NAME = LogFileName("00000003-f-0", WriteToken(0, 1, 2), "20261121040120865", 1, LogKind.DATA)
ENTRIES: dict[str, object] = {"VERSION": "2", "INSTANT_TIME": NAME.instant, "SCHEMA": SCHEMA}


def _read(entries: object) -> LogHeader:
    return LogHeader.from_footer({FOOTER_KEY: json.dumps(entries).encode()}, NAME, "south/x.log.parquet")


@pytest.mark.parametrize(
    "header",
    [
        LogHeader(NAME.instant, SCHEMA),
        LogHeader(NAME.instant, SCHEMA, is_partial=True),
        LogHeader(NAME.instant, SCHEMA, compacted=("20261121030000000", "20261121030000001")),
        LogHeader(NAME.instant, SCHEMA, compacted=("20261121030000000",), chain={}),
        LogHeader(NAME.instant, SCHEMA, compacted=("3", "4"), chain={"3": ("1", "2"), "2": ("0",)}),
    ],
)
def test_a_header_reads_back_from_its_footer(header: LogHeader) -> None:
    assert LogHeader.from_footer(header.to_footer(), NAME, "x") == header


def test_the_footer_is_one_entry_of_texts_with_the_version_first() -> None:
    footer = LogHeader(NAME.instant, SCHEMA, compacted=("2", "1")).to_footer()
    assert list(footer) == [b"hudi.log.format.metadata"]
    values = json.loads(footer[FOOTER_KEY])
    assert list(values)[0] == "VERSION"  # noqa: RUF015 - the order is the point
    assert values == ENTRIES | {"COMPACTED_BLOCK_TIMES": "1,2"}


def test_absent_and_null_entries_take_their_defaults_and_unknown_ones_are_ignored() -> None:
    entries = {"SCHEMA": SCHEMA, "IS_PARTIAL": None, "BLOCK_IDENTIFIER": "7"}
    assert _read(entries) == LogHeader(NAME.instant, SCHEMA)


def test_one_footer_key_per_entry_is_read_too() -> None:
    footer = {f"hudi.log.format.{key}".encode(): str(value).encode() for key, value in ENTRIES.items()}
    assert LogHeader.from_footer(footer | {b"other": b"\xff"}, NAME, "x") == LogHeader(NAME.instant, SCHEMA)


@pytest.mark.parametrize("chain", [b"", b"[]", b'{"3": 1}', b'{"3": ["1"]}', b"null", b"[" * 100_000])
def test_a_malformed_chain_is_reported_by_file(chain: bytes) -> None:
    footer = {FOOTER_KEY: json.dumps(ENTRIES).encode(), CHAIN_KEY.encode(): chain}
    with pytest.raises(CorruptFileError, match=r"south/x\.log\.parquet: footer lsm\.compacted\.chain"):
        LogHeader.from_footer(footer, NAME, "south/x.log.parquet")


@pytest.mark.parametrize("version", ["", "two", "2.0", "-1", "0", "٢", "9" * 5000, " 2"])
def test_a_malformed_version_is_reported_by_file(version: str) -> None:
    with pytest.raises(CorruptFileError, match=r"south/x\.log\.parquet: footer VERSION"):
        _read(ENTRIES | {"VERSION": version})


def test_a_newer_log_format_is_refused_by_version() -> None:
    with pytest.raises(UnsupportedTable, match=r"south/x\.log\.parquet: log format version 3"):
        _read(ENTRIES | {"VERSION": "3"})


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        (ENTRIES | {"INSTANT_TIME": "20261121040120866"}, "INSTANT_TIME='20261121040120866'"),
        (ENTRIES | {"INSTANT_TIME": ""}, "INSTANT_TIME=''"),
        ({"VERSION": "2"}, "no SCHEMA"),
        (ENTRIES | {"SCHEMA": None}, "no SCHEMA"),
        (ENTRIES | {"SCHEMA": "{"}, "SCHEMA is not"),
        (ENTRIES | {"SCHEMA": '"string"'}, "SCHEMA is not"),
        (ENTRIES | {"SCHEMA": "[" * 100_000}, "SCHEMA is not"),
        (ENTRIES | {"SCHEMA": '{"type":"record"}'}, "SCHEMA is not"),
        (ENTRIES | {"VERSION": 2}, "'VERSION' is not a text"),
        ([], "not a JSON object"),
    ],
)
def test_a_malformed_footer_is_reported_by_file(entries: object, why: str) -> None:
    with pytest.raises(CorruptFileError, match=why) as raised:
        _read(entries)
    assert str(raised.value).startswith("south/x.log.parquet")


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000, b'{"VERSION":' + b"9" * 5000 + b"}"])
def test_a_footer_that_is_not_json_is_reported_by_file(text: bytes) -> None:
    with pytest.raises(CorruptFileError, match=r"x\.log\.parquet: footer"):
        LogHeader.from_footer({FOOTER_KEY: text}, NAME, "x.log.parquet")


@pytest.mark.parametrize("metadata", [None, {}, {b"hudi.log.format.SCHEMA": b"\xff"}])
def test_a_file_without_footer_entry_is_reported_by_file(metadata: dict[bytes, bytes] | None) -> None:
    with pytest.raises(CorruptFileError, match=r"x\.log\.parquet: footer"):
        LogHeader.from_footer(metadata, NAME, "x.log.parquet")


def test_a_change_log_need_not_have_a_header() -> None:
    name = LogFileName("00000003-f-0", WriteToken(0, 1, 2), "20261121040120865", 1, LogKind.CDC)
    with pytest.raises(ValueError, match="need not have a footer entry"):
        LogHeader.from_footer({}, name, "x.cdc.parquet")
