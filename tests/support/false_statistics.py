"""Parquet files whose statistics of the record key do not hold, as a defective writer may leave them."""

from __future__ import annotations

from pathlib import Path

from streaming_lsm.format.parquet_row_groups import StoredFooter
from streaming_lsm.format.parquet_thrift import Field, Struct, inner, list_of, structs
from streaming_lsm.schema import RECORD_KEY

_COLUMNS, _META, _PATH, _STATISTICS = 1, 3, 3, 12
_MAX, _MIN = (1, 5), (2, 6)


def set_key_range(path: Path, group: int, low: str | None = None, high: str | None = None) -> None:
    """Overwrite the smallest or largest record key of a row group in the footer of a file."""
    content = path.read_bytes()
    footer = StoredFooter.read(lambda offset, size: content[offset : offset + size], len(content))
    count = len(structs(footer.metadata, 4))
    groups = [footer.group(number) for number in range(count)]
    columns = [_changed(column, low, high) for column in structs(groups[group], _COLUMNS)]
    groups[group] = {**groups[group], _COLUMNS: list_of(columns)}
    end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    path.chmod(0o644)
    path.write_bytes(content[:end] + footer.with_groups([dict(one) for one in groups]))


def _changed(column: Struct, low: str | None, high: str | None) -> Struct:
    meta = dict(inner(column, _META))
    names = meta[_PATH].value
    if names != [RECORD_KEY.encode()]:
        return column
    statistics = dict(inner(meta, _STATISTICS))
    for numbers, text in ((_MIN, low), (_MAX, high)):
        for number in numbers:
            if text is not None and number in statistics:
                statistics[number] = Field(statistics[number].kind, text.encode())
    return {
        **column,
        _META: Field(column[_META].kind, {**meta, _STATISTICS: Field(meta[_STATISTICS].kind, statistics)}),
    }
