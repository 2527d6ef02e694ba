"""The oracle's reader against the golden tables and against a plain fold."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ..golden import at
from ..reader import Unsupported, as_rows, instant_of, read_snapshot
from ..table import META, parse_properties
from ..writer import GOLDEN, Layout, TableBuilder


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_reader_returns_the_rows_written_down(name: str, tmp_path: Path) -> None:
    table = GOLDEN[name](tmp_path)
    assert as_rows(read_snapshot(table.path)) == table.rows


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_reader_returns_the_rows_of_each_instant(name: str, tmp_path: Path) -> None:
    table = GOLDEN[name](tmp_path)
    for instant, rows in table.as_of.items():
        assert as_rows(read_snapshot(table.path, as_of=instant)) == rows, instant


def test_schema_is_the_newest_commits(tmp_path: Path) -> None:
    table = GOLDEN["evolved"](tmp_path)
    assert read_snapshot(table.path).schema.field("qty").type == pa.int64()
    assert read_snapshot(table.path, as_of=at(1)).schema.field("qty").type == pa.int32()


def test_types_are_those_of_the_table(tmp_path: Path) -> None:
    schema = read_snapshot(GOLDEN["all_types"](tmp_path).path).schema
    assert schema.field("f_ts").type == pa.timestamp("us", tz="UTC")
    assert schema.field("f_ntz").type == pa.timestamp("us")
    assert schema.field("f_decimal").type == pa.decimal128(20, 4)
    assert schema.field("f_list").type == pa.list_(pa.field("element", pa.int32()))


def test_meta_columns_are_those_of_the_winning_rows(tmp_path: Path) -> None:
    table = GOLDEN["compacted"](tmp_path)
    found = read_snapshot(table.path, with_meta=True)
    assert tuple(found.column_names[:5]) == META
    assert found.column("_hoodie_commit_time").to_pylist() == [at(2), at(4), at(4)]
    assert found.column("_hoodie_record_key").to_pylist() == ["a", "b", "c"]


def test_files_older_than_the_active_timeline_count_without_a_history(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path / "t", Layout([("id", "string"), ("ts", "long")]))
    for second in (1, 2, 3):
        with table.deltacommit(at(second), at(second, 500)) as write:
            write.log([{"id": f"k{second}", "ts": 1}])
    table.archive([at(1)])
    for path in (table.timeline / "history").iterdir():
        path.unlink()
    assert read_snapshot(table.path).column("id").to_pylist() == ["k1", "k2", "k3"]
    assert read_snapshot(table.path, as_of=at(2)).column("id").to_pylist() == ["k1", "k2"]


def test_a_table_without_commits_has_no_rows(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path / "t", Layout([("id", "string"), ("ts", "long")]))
    assert read_snapshot(table.path).num_rows == 0


@pytest.mark.parametrize(
    "extra",
    [
        {"hoodie.table.version": "9"},
        {"hoodie.table.storage.layout": "another"},
        {"hoodie.record.merge.mode": "CUSTOM"},
        {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
    ],
)
def test_other_tables_are_refused(tmp_path: Path, extra: dict[str, str]) -> None:
    table = TableBuilder(tmp_path / "t", Layout([("id", "string"), ("ts", "long")], extra=extra))
    with pytest.raises(Unsupported):
        read_snapshot(table.path)


def test_time_travel_values() -> None:
    assert instant_of("20261120100002500", "UTC") == ("20261120100002500", False)
    assert instant_of("20261120100002", "UTC") == ("20261120100002999", False)
    assert instant_of("2026-11-20 10:00", "UTC") == ("20261120100000000", True)
    assert instant_of("2026-11-20T10:00:02.5-02:00", "UTC") == ("20261120120002500", True)


def test_properties_are_read_as_java_writes_them() -> None:
    text = b"# c\n! c\n a = 1\nb:2\nc 3\nd\\:\\ e=\\u6771\\=x\\\n   y\nempty=\nlone\nbs=a\\\\\n"
    expected = {"a": "1", "b": "2", "c": "3", "d: e": "\u6771=xy", "empty": "", "lone": "", "bs": "a\\"}
    assert parse_properties(text) == expected


# ---------------------------------------------------------------- the window against the fold, record by record

Event = tuple[str, int | None, str | None, bool]


def fold(old: Event, new: Event, int_column: bool) -> Event:
    """The pairwise rule of docs/format/05-merge.md; an event is key, ordering value, payload, is a delete."""
    for event in (old, new):
        _, ts, _, deleted = event
        if deleted and (ts is None or (int_column and ts == 0)):
            return new
    return new if (new[1] or 0) >= (old[1] or 0) else old


def live(events: list[Event], int_column: bool) -> list[dict[str, Any]]:
    keys: dict[str, list[Event]] = {}
    for event in events:
        keys.setdefault(event[0], []).append(event)
    won = (reduce(lambda old, new: fold(old, new, int_column), members) for _, members in sorted(keys.items()))
    return [{"id": key, "name": name, "ts": ts} for key, ts, name, deleted in won if not deleted]


KEYS = st.sampled_from(["a", "b"])
TIMES = st.integers(-1, 3)
UPSERTS = st.lists(st.tuples(KEYS, TIMES, st.text("xyz", max_size=2), st.just(False)), max_size=5)
DELETES = st.lists(st.tuples(KEYS, st.none() | TIMES, st.none(), st.just(True)), max_size=3)


@settings(max_examples=60, deadline=None)
@given(batches=st.lists(st.tuples(UPSERTS, DELETES), min_size=1, max_size=5), base=UPSERTS, int_column=st.booleans())
def test_the_windows_equal_the_pairwise_fold(
    batches: list[tuple[list[Event], list[Event]]], base: list[Event], int_column: bool
) -> None:
    fields = [("id", "string"), ("name", ["null", "string"]), ("ts", "int" if int_column else "long")]
    events = list(base)
    with TemporaryDirectory() as folder:
        table = TableBuilder(Path(folder) / "t", Layout(fields))
        with table.deltacommit(at(1), at(1, 500)) as write:
            write.base([{"id": key, "ts": ts, "name": name} for key, ts, name, _ in base])
        for number, (upserts, deletes) in enumerate(batches, start=2):
            with table.deltacommit(at(number), at(number, 500)) as write:
                write.log([{"id": key, "ts": ts, "name": name} for key, ts, name, _ in upserts])
                write.deletes([{"id": key, "ts": ts} for key, ts, _, _ in deletes])
            events += upserts + deletes
        assert as_rows(read_snapshot(table.path)) == live(events, int_column)
