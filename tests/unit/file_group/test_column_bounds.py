"""Statistics that are decoded from the bytes of footers."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.file_group.column_bounds import StoredBounds, read_bounds

ROWS = pa.table(
    {
        "number": pa.array([3, 1, None, 7, 9, 8], pa.int32()),
        "text": ["b", "a", None, None, None, None],
        "list": [[1, 2], [], None, [3], [None], [4]],
    }
)


def stored(**how: object) -> bytes:
    file = io.BytesIO()
    pq.write_table(ROWS, file, row_group_size=3, **how)  # type: ignore[arg-type]
    return file.getvalue()


def read(data: bytes) -> list[list[StoredBounds]]:
    return read_bounds(pa.BufferReader(data), "file")


def number(value: int, size: int = 4) -> bytes:
    return value.to_bytes(size, "little")


def test_bounds_are_those_that_were_written() -> None:
    first, second = read(stored())
    assert first[:2] == [StoredBounds(3, 1, number(1), number(3)), StoredBounds(3, 1, b"a", b"b")]
    assert second[:2] == [StoredBounds(3, 0, number(7), number(9)), StoredBounds(3, 3, None, None)]
    assert (first[2].low, first[2].high) == (number(1, 8), number(2, 8))


def test_a_file_without_statistics_has_no_bounds() -> None:
    assert read(stored(write_statistics=False))[0][0] == StoredBounds(3, None, None, None)


@pytest.mark.parametrize("flip", [0x01, 0x0F, 0x80, 0xFF])
def test_a_damaged_footer_is_an_error_or_gives_bounds_but_never_ends_the_process(flip: int) -> None:
    data = stored()
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    errors = 0
    for place in range(begin, len(data)):
        changed = bytearray(data)
        changed[place] ^= flip
        try:
            read(bytes(changed))
        except CorruptFileError:
            errors += 1
    assert errors > 20
