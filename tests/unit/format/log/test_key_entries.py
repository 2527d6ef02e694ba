"""Key entries of logs: text and back, and what is left out because it is damaged."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streaming_lsm.format.base_file_footer import BLOOM_KEY, MAX_KEY, MIN_KEY, bloom_of_footer
from streaming_lsm.format.bloom import BloomFilter
from streaming_lsm.format.log.key_entries import (
    ACCUMULATED_KEY,
    OWN_KEY,
    CoveredLog,
    KeyEntry,
    accumulated_text,
    covered_bytes,
    covered_logs,
    own_entry,
    own_footer,
)
from tests.oracle.hashing import decode_bloom

KEYS = [f"größe-{number}" for number in range(300)]
ENTRY = KeyEntry(300, (min(KEYS), max(KEYS)), BloomFilter.build(pa.array(KEYS), 300, 0.001, 300, "SIMPLE"))
RANGE, EMPTY = KeyEntry(9, ('a"\\', "z\n"), None), KeyEntry(0, None, None)
LOGS = [CoveredLog("one.log.parquet", 17, ENTRY), CoveredLog("two", 2**40, RANGE), CoveredLog("three", 1, EMPTY)]


def encoded(footer: dict[str, str]) -> dict[bytes, bytes]:
    return {key.encode(): value.encode() for key, value in footer.items()}


@pytest.mark.parametrize("entry", [ENTRY, RANGE, EMPTY], ids=["filter", "range", "empty"])
def test_an_own_entry_reads_back(entry: KeyEntry) -> None:
    assert own_entry(encoded(own_footer(entry)), entry.keys) == entry


def test_an_own_entry_has_hudis_entries_of_base_files() -> None:
    footer = own_footer(ENTRY)
    assert set(footer) == {BLOOM_KEY, MIN_KEY, MAX_KEY, OWN_KEY}
    bloom = decode_bloom(footer[BLOOM_KEY], dynamic=False)
    assert all(bloom.might_contain(key) for key in KEYS)
    assert sum(bloom.might_contain(f"stranger {number}") for number in range(2000)) < 12
    assert bloom_of_footer(encoded(footer), "x") == ENTRY.bloom


@pytest.mark.parametrize(
    "changed",
    [
        {OWN_KEY: '{"keys":299,"crc32":1}'},
        {OWN_KEY: "[]"},
        {OWN_KEY: "{"},
        {OWN_KEY: "{}"},
        {MIN_KEY: "größe-1"},
        {BLOOM_KEY: own_footer(ENTRY)[BLOOM_KEY][:-8] + "AAAAAAA="},
        {BLOOM_KEY: "?"},
    ],
    ids=str,
)
def test_a_damaged_own_entry_is_none(changed: dict[str, str]) -> None:
    assert own_entry(encoded(own_footer(ENTRY) | changed), ENTRY.keys) is None


def test_an_own_entry_of_other_rows_is_none() -> None:
    assert own_entry(encoded(own_footer(ENTRY)), 301) is None


def test_of_another_writers_entry_the_filter_counts_and_not_the_range() -> None:
    footer = encoded(own_footer(ENTRY))
    del footer[OWN_KEY.encode()]
    assert own_entry(footer, 300) == KeyEntry(300, None, ENTRY.bloom)
    assert own_entry({}, 300) is None
    assert own_entry(None, 300) is None


def test_an_accumulated_entry_reads_back() -> None:
    assert list(covered_logs(encoded({ACCUMULATED_KEY: accumulated_text(LOGS)}))) == LOGS


@pytest.mark.parametrize("log", LOGS, ids=["filter", "range", "empty"])
def test_the_bytes_of_a_covered_log_are_estimated(log: CoveredLog) -> None:
    taken = len(accumulated_text([*LOGS, log]).encode()) - len(accumulated_text(LOGS).encode())
    assert abs(covered_bytes(log) - taken) < 100


def test_no_changed_byte_of_an_accumulated_entry_goes_unnoticed() -> None:
    data = accumulated_text(LOGS).encode()
    for place in range(len(data)):
        damaged = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        assert covered_logs({ACCUMULATED_KEY.encode(): damaged}) == ()
    for end in (0, 7, 8, len(data) - 1):
        assert covered_logs({ACCUMULATED_KEY.encode(): data[:end]}) == ()
