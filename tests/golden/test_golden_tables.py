"""Tables that the independent writer made from the format pages alone, read by this package."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from tests.oracle.reader import as_rows, read_snapshot
from tests.oracle.writer import GOLDEN


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_a_golden_table_shows_the_rows_it_was_made_to_show(name: str, tmp_path: Path) -> None:
    golden = GOLDEN[name](tmp_path)
    table = LsmTable(golden.path)
    assert _sorted(as_rows(table.scan().to_arrow())) == _sorted(golden.rows)
    for moment, rows in golden.as_of.items():
        assert _sorted(as_rows(table.scan(as_of=moment).to_arrow())) == _sorted(rows), moment


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_meta_columns_are_those_that_the_oracle_reads(name: str, tmp_path: Path) -> None:
    golden = GOLDEN[name](tmp_path)
    ours = LsmTable(golden.path).scan(meta=True).to_arrow()
    assert _sorted(as_rows(ours)) == _sorted(as_rows(read_snapshot(golden.path, with_meta=True)))


def _sorted(rows: list[dict[str, object]]) -> list[str]:
    return sorted(repr(sorted((name, _in_utc(value)) for name, value in row.items())) for row in rows)


def _in_utc(value: object) -> object:
    """Two readers' time zones of one moment print alike."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC)
    return value
