"""Column chunks of a footer: as pyarrow shows them, and a named error for every damage."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.file_group.column_chunks import ColumnChunk, DictionaryPage, read_column_chunks, read_dictionary_page

TEXTS = [f"text {number % 20}" for number in range(300)]


def write(path: Path, **settings: object) -> bytes:
    lists = [[number, None] for number in range(300)]
    table = pa.table({"text": TEXTS, "number": range(300), "list": lists})
    pq.write_table(table, path, row_group_size=100, **settings)
    return path.read_bytes()


def read(data: bytes) -> list[list[ColumnChunk]]:
    return read_column_chunks(pa.BufferReader(data), "file")


@pytest.mark.parametrize("version", ["1.0", "2.6"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_column_chunks_are_those_that_pyarrow_shows(tmp_path: Path, version: str, dictionary: bool) -> None:
    data = write(tmp_path / "file", use_dictionary=dictionary, version=version)
    metadata = pq.read_metadata(pa.BufferReader(data))
    for number, chunks in enumerate(read(data)):
        for place, chunk in enumerate(chunks):
            shown = metadata.row_group(number).column(place)
            assert chunk.begin == (shown.dictionary_page_offset if dictionary else shown.data_page_offset)
            assert (chunk.values, chunk.stored) == (shown.num_values, shown.total_uncompressed_size)
        assert chunks[0].decoded == sum(map(len, TEXTS[number * 100 : (number + 1) * 100]))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_header_of_a_dictionary_page_has_its_uncompressed_size(tmp_path: Path, codec: str) -> None:
    data = write(tmp_path / "file", compression=codec)
    source = pa.BufferReader(data)
    size = sum(4 + len(text) for text in set(TEXTS))
    assert read_dictionary_page(source, read(data)[0][0], "file") == DictionaryPage(20, size)


def test_a_column_chunk_without_a_dictionary_has_no_dictionary_page(tmp_path: Path) -> None:
    data = write(tmp_path / "file", use_dictionary=False)
    assert read_dictionary_page(pa.BufferReader(data), read(data)[0][0], "file") is None


def test_altered_bytes_give_sizes_or_a_named_error(tmp_path: Path) -> None:
    data = write(tmp_path / "file")
    random = np.random.default_rng(5)
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    refused = 0
    for _ in range(3000):
        altered = bytearray(data)
        for place in random.integers(begin, len(data), random.integers(1, 4)):
            altered[place] = random.integers(256)
        try:
            chunks = read(bytes(altered))
        except CorruptFileError:
            refused += 1
            continue
        for chunk in chunks[0] if chunks else ():
            with suppress(CorruptFileError):
                read_dictionary_page(pa.BufferReader(data), chunk, "file")
    assert refused > 500


@pytest.mark.parametrize("offset", [-1, 0, 4, 50, 1 << 40])
def test_an_offset_without_a_page_header_is_a_named_error_or_no_dictionary(tmp_path: Path, offset: int) -> None:
    data = write(tmp_path / "file", use_dictionary=False)
    with suppress(CorruptFileError):
        assert read_dictionary_page(pa.BufferReader(data), ColumnChunk(offset, 1, 1, None), "file") is None


def footer_only(footer: bytes) -> bytes:
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


@pytest.mark.parametrize(
    "footer",
    [
        b"",
        b"\x00",
        b"\x1c" * 1_000,
        b"\x19" * 1_000,
        b"\x49\xfc" + b"\xff" * 9,
        b"\x15" + b"\xff" * 1_000,
        b"\x49\x1c\x00\x00",
        b"\x48" + b"\xff" * 8 + b"\x7f",
        b"\x49" + b"\x19" * 2_000,
        b"\x49\x1c\x19" + b"\x19" * 2_000,
        b"\x49\x1c\x19\x1c\x39" + b"\x19" * 2_000,
        b"\x49\x1c\x19\x1c\x3c\x09\x20" + b"\x19" * 2_000,
    ],
)
def test_a_malformed_footer_is_a_named_error(footer: bytes) -> None:
    with pytest.raises(CorruptFileError, match=r"^file: damaged: the footer is malformed"):
        read(footer_only(footer))


def test_of_a_repeated_field_the_last_one_counts_as_in_arrow() -> None:
    empty = b"\x19\x0c\x00"  # a row group without columns
    assert read(footer_only(b"\x49\x1c" + empty + b"\x09\x08\x2c" + empty + empty + b"\x00")) == [[], []]
