"""Cells of data blocks: found where values look like cells, and refused where one is damaged."""

from __future__ import annotations

import io
import random

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.hfile.cells import KEY_TAIL, decode_cells, encode_cells
from streaming_lsm.format.hfile.reader import HFile
from tests.support.hfiles import Entry, entries_of, sought, written

SCHEMA = '{"type":"record","name":"Row","fields":[]}'


def _payload(entries: list[Entry]) -> bytes:
    keys, values = (pa.array([entry[place] for entry in entries], pa.binary()) for place in range(2))
    return b"".join(encode_cells(keys, values).to_pylist())


def _decoded(*payloads: bytes) -> list[Entry]:
    blocks = np.cumsum([0, *map(len, payloads)])[:-1]
    data = np.frombuffer(b"".join(payloads), np.uint8)
    found = decode_cells(data, blocks, 1000 + blocks, "f")
    return list(zip(found.keys.to_pylist(), found.values.to_pylist(), strict=True))


def test_a_cell_has_the_sizes_the_key_of_hbase_the_value_and_a_zero() -> None:
    assert _payload([(b"ab", b"xyz")]) == b"\0\0\0\x0e\0\0\0\x03\0\x02ab" + KEY_TAIL + b"xyz\0"


@pytest.mark.usefixtures("each_way")
def test_keys_without_the_suffix_of_hbase_are_read() -> None:
    assert _decoded(b"\0\0\0\x04\0\0\0\x01\0\x02abx\0" + _payload([(b"b", b"")])) == [(b"ab", b"x"), (b"b", b"")]


@pytest.mark.usefixtures("each_way")
def test_values_that_look_like_cells_are_values() -> None:
    inner = _payload([(b"k", b"v"), (b"l", b"w" * 30)])
    entries = [
        (b"a", inner),
        (b"b", inner[:-1]),
        (b"c", inner + inner),
        (b"d", b"\0" * 200),
        (b"e", _payload([(b"x", inner)])),
    ]
    assert _decoded(_payload(entries)) == entries
    assert _decoded(*[_payload([entry]) for entry in entries]) == entries


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.usefixtures("each_way")
def test_random_cells_among_zeros_and_cells_are_found(seed: int) -> None:
    draw = random.Random(seed)
    entries, pool = [], [b"", b"\0", b"\0\0\0\x0d\0\0\0\0\0\x01", KEY_TAIL]
    for number in range(200):
        value = b"".join(draw.choice(pool) for _ in range(draw.randrange(6)))
        entries.append((f"{number:03d}".encode() + b"\0" * draw.randrange(3), value))
        if number % 10 == 0:
            pool.append(_payload(entries[-1:]))
    cut = sorted(draw.sample(range(1, 200), 3))
    parts = [entries[begin:end] for begin, end in zip([0, *cut], [*cut, 200], strict=True)]
    assert _decoded(*map(_payload, parts)) == entries


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ((3, 0xFF), "passes its block"),
        ((7, 0x7F), "passes its block"),
        ((4, 0x80), "passes its block"),
        ((8, 0x80), "passes its block"),
        ((-1, 1), "has a family, a time, a type or a version that Hudi never writes"),
        ((12, 1), "has a family, a time, a type or a version that Hudi never writes"),
        ((21, 3), "has a family, a time, a type or a version that Hudi never writes"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("each_way")
def test_a_damaged_cell_is_refused_by_the_offset_of_its_block(change: tuple[int, int], why: str) -> None:
    sound = _payload([(b"a", b"x" * 20)])
    damaged = bytearray(_payload([(b"bc", b"y" * 20)]))
    damaged[change[0]] = change[1]
    with pytest.raises(CorruptFileError, match=f"f: HFile at offset {1000 + len(sound)}: a cell .*{why}"):
        _decoded(sound, bytes(damaged))
    with pytest.raises(CorruptFileError, match="f: HFile at offset 1000: "):
        _decoded(bytes(damaged) + sound)


@pytest.mark.usefixtures("each_way")
def test_a_block_that_ends_within_a_cell_is_refused() -> None:
    cell = _payload([(b"a", b"x" * 20)])
    with pytest.raises(CorruptFileError, match="offset 1000: a cell of 13 and 20 bytes passes its block"):
        _decoded(cell[:-5], cell[-5:])
    with pytest.raises(CorruptFileError, match=f"offset {1000 + len(cell)}: a data block ends within a cell, 5 bytes"):
        _decoded(cell, cell[:5])


def test_a_few_keys_are_sought_without_the_blocks_between_them() -> None:
    entries = [(f"{number:06d}".encode(), random.Random(number).randbytes(200)) for number in range(30_000)]
    data = written(entries, schema_json=SCHEMA, created_ms=0)
    file = _Counting(data)
    opened = HFile.open(pa.PythonFile(file, mode="r"), "f")
    before = file.counted
    wanted = [entries[17], entries[12_345], entries[29_999]]
    assert sought(opened, [key for key, _ in wanted]) == dict(wanted)
    assert file.counted - before < 4 * 64 * 1024 < len(data) / 20
    assert entries_of(opened) == entries


class _Counting(io.BytesIO):
    """Bytes of a file that count how many of them are read."""

    counted = 0

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        self.counted += len(found)
        return found


def test_a_seek_finds_each_key_once_whatever_characters_it_has() -> None:
    draw = random.Random(3)
    letters = ["a", "b", "\0", "\x7f", "\ue000", "\uffff", "\U0001f600", "é"]
    for block_bytes in (200, 1000):
        texts = {"".join(draw.choices(letters, k=draw.randrange(1, 5))) for _ in range(400)}
        absent = {text for text in texts if draw.random() < 0.2}
        entries = [(key, key * draw.randrange(4)) for key in sorted(text.encode() for text in texts - absent)]
        file = HFile.open(written(entries, schema_json=SCHEMA, created_ms=0, block_bytes=block_bytes), "f")
        for count in (1, 5, 40):
            asked = [text.encode() for text in draw.choices(sorted(texts), k=count)]
            cells = list(file.seek(pa.array([*asked, *asked], pa.binary())))
            found = [pair for one in cells for pair in zip(one.keys.to_pylist(), one.values.to_pylist(), strict=True)]
            assert found == [entry for entry in entries if entry[0] in asked]


def test_a_scan_finds_what_a_seek_finds() -> None:
    entries = [(f"{number:05d}".encode(), b"v" * (number % 60)) for number in range(0, 20_000, 2)]
    file = HFile.open(written(entries, schema_json=SCHEMA, created_ms=0, block_bytes=3000), "f")
    draw = random.Random(0)
    for count in (0, 1, 50, 9000):
        keys = pa.array([f"{number:05d}".encode() for number in draw.sample(range(20_000), count)], pa.binary())
        wanted = set(keys.to_pylist())
        expected = [entry for entry in entries if entry[0] in wanted]
        for found in (file.seek(keys), file.scan(keys)):
            assert [
                entry for cells in found for entry in zip(cells.keys.to_pylist(), cells.values.to_pylist(), strict=True)
            ] == expected
