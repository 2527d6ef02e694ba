"""Random entries through the HFile writer and back, for any block size, and lookups of keys there and not there."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_lsm.format.bloom import BloomFilter
from streaming_lsm.format.hfile import cells, reader, writer
from streaming_lsm.format.hfile.block import DATA, FILE_INFO, ROOT_INDEX
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.hfile.trailer import TRAILER_BYTES
from tests.support.hfiles import entries_of, sought, written

SCHEMA = '{"type":"record","name":"Row","fields":[]}'
_CELL_OVERHEAD = 21
keys = st.one_of(st.text(min_size=1, max_size=8).map(str.encode), st.binary(min_size=1, max_size=200))
entries = st.dictionaries(keys, st.binary(max_size=300), max_size=60).map(lambda found: sorted(found.items()))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    entries=entries,
    probes=st.lists(keys, max_size=10),
    block_bytes=st.integers(0, 3000),
    compression=st.sampled_from(["gzip", "none"]),
    with_bloom=st.booleans(),
    few=st.sampled_from([-1, 256]),
)
def test_entries_and_lookups_survive_writing(
    entries: list[tuple[bytes, bytes]],
    probes: list[bytes],
    block_bytes: int,
    compression: str,
    with_bloom: bool,
    few: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((cells, "_FEW_BYTES"), (reader, "_FEW_CELLS"), (writer, "_FEW_CELLS")):
            patch.setattr(module, name, few)
        bloom = BloomFilter.build([key for key, _ in entries], 10, 0.01, 100) if with_bloom else None
        arguments = {"schema_json": SCHEMA, "created_ms": 1, "block_bytes": block_bytes, "compression": compression}
        data = written(entries, bloom=bloom, **arguments)
        assert written(entries, bloom=bloom, **arguments) == data
        file = HFile.open(data, "f")
        assert entries_of(file) == entries
        wanted = [*probes, *(key for key, _ in entries[::3]), *(key + b"\x00" for key, _ in entries[::5])]
        assert sought(file, wanted) == {key: value for key, value in entries if key in wanted}
        assert file.meta("bloomFilter") == (bloom.encode().encode() if bloom else None)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(entries=entries, block_bytes=st.integers(0, 3000))
def test_blocks_fill_the_file_and_hold_what_fits(entries: list[tuple[bytes, bytes]], block_bytes: int) -> None:
    data = written(entries, schema_json=SCHEMA, created_ms=1, block_bytes=block_bytes, compression="none")
    at, kinds, sizes = 0, [], []
    while at < len(data) - TRAILER_BYTES:
        magic, rest, size = struct.unpack_from(">8sii", data, at)
        kinds.append(magic)
        sizes.append(size)
        at += 33 + rest
    assert at == len(data) - TRAILER_BYTES
    blocks = kinds.count(DATA)
    assert kinds == [DATA] * blocks + [ROOT_INDEX, ROOT_INDEX, FILE_INFO]
    expected: list[int] = []
    for key, value in entries:
        cell = len(key) + len(value) + _CELL_OVERHEAD
        if expected and expected[-1] + cell <= block_bytes:
            expected[-1] += cell
        else:
            expected.append(cell)
    assert sizes[:blocks] == expected
