"""Write and read HFiles as lists of entries, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.hfile.writer import write_hfile

Entry = tuple[bytes, bytes]


def written(entries: Iterable[Entry], **arguments: Any) -> bytes:
    """Write an HFile; see `write_hfile` for the arguments."""
    listed = list(entries)
    keys, values = (pa.array([entry[place] for entry in listed], pa.binary()) for place in range(2))
    return write_hfile(keys, values, **arguments)


def entries_of(file: HFile) -> list[Entry]:
    """Read the keys and values of a file."""
    return [
        entry for cells in file.cells() for entry in zip(cells.keys.to_pylist(), cells.values.to_pylist(), strict=True)
    ]


def sought(file: HFile, keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """Look up the values of keys."""
    return {
        key: value
        for cells in file.seek(pa.array(list(keys), pa.binary()))
        for key, value in zip(cells.keys.to_pylist(), cells.values.to_pylist(), strict=True)
    }
