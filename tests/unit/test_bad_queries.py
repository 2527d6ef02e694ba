"""What is wrong with the times of a query is said by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.cli.commands import main
from streaming_lsm.errors import ConfigError, ReadOvertaken
from tests.support.small_tables import create, rows

RANGES: list[Callable[[LsmTable, str, str], object]] = [
    lambda table, begin, end: table.incremental(begin, end),
    lambda table, begin, end: table.changes(begin, end),
]


@pytest.mark.parametrize("ask", RANGES, ids=["incremental", "changes"])
def test_a_range_that_ends_before_it_begins_is_refused(
    tmp_path: Path, ask: Callable[[LsmTable, str, str], object]
) -> None:
    table = create(tmp_path)
    table.upsert(rows(("a", "DE", 1, 1)))
    last = table.timeline.completed_writes[-1].completed or ""
    for begin, end in (("2029-01-01", "2028-01-01"), (last, "000")):
        with pytest.raises(ConfigError, match=f"begins at {begin} .* after its end {end} .* completed at {last}"):
            ask(table, begin, end)
    ask(table, last, last)


def test_the_command_line_refuses_such_a_range(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create(tmp_path).upsert(rows(("a", "DE", 1, 1)))
    asked = ["--query-type", "incremental", "--begin", "2029-01-01", "--end", "2028-01-01"]
    assert main(["read", str(tmp_path), *asked]) == 2
    assert "begins at 2029-01-01" in capsys.readouterr().err


@pytest.mark.parametrize("moment", ["20261399000000000", "20260230", "2026-13-01"])
def test_digits_that_are_no_date_are_refused(tmp_path: Path, moment: str) -> None:
    table = create(tmp_path)
    table.upsert(rows(("a", "DE", 1, 1)))
    with pytest.raises(ConfigError, match=f"'{moment}' is no point in time"):
        table.scan(as_of=moment)


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
@pytest.mark.parametrize("captured", [{}, {"hoodie.table.cdc.enabled": True}], ids=["without logs", "with change logs"])
def test_changes_whose_files_a_clean_deletes_after_they_were_planned_are_overtaken(
    tmp_path: Path, kind: str, captured: dict[str, object]
) -> None:
    options = {"hoodie.datasource.write.table.type": kind, "hoodie.clean.automatic": False, **captured}
    table = create(tmp_path, **options, **{"hoodie.clean.commits.retained": 1})
    for ts in range(5):
        table.upsert(rows(("a", "DE", ts, ts)))
        table.compact()
    planned = table.changes("000")
    assert table.clean() is not None
    with pytest.raises(ReadOvertaken, match=r"plan them again, .*hoodie\.clean\.commits\.retained"):
        planned.to_arrow()
