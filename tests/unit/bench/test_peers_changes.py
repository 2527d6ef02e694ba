"""The Debezium changes of the comparison with peers are what the page says, with one final state in every system."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from tests.bench.peers.changes import DELETES, LATE, Changes, changes, zipf
from tests.bench.peers.columns import CHANGE_COLUMNS, LSN
from tests.bench.peers.digest import digest
from tests.bench.workload import KEY

EVENTS, KEYS = 20_000, 8_000


@pytest.fixture(scope="module")
def made() -> Changes:
    """Some changes."""
    return changes(EVENTS, KEYS, seed=1)


def positions(made: Changes) -> np.ndarray:
    """Position in the database's log, by arrival."""
    return made.rows.column(LSN).to_numpy()


def test_the_same_seed_gives_the_same_changes_and_another_seed_others(made: Changes) -> None:
    again, other = changes(EVENTS, KEYS, seed=1), changes(EVENTS, KEYS, seed=2)
    assert again.rows.equals(made.rows)
    assert (again.operations == made.operations).all()
    assert not other.rows.equals(made.rows)


def test_one_in_ten_is_a_delete_and_one_in_twenty_late(made: Changes) -> None:
    assert np.mean(made.operations == "d") == pytest.approx(DELETES, rel=0.1)
    late = positions(made) < np.maximum.accumulate(positions(made))
    assert np.mean(late) == pytest.approx(LATE, rel=0.1)


def test_some_late_events_arrive_after_a_newer_one_of_their_key(made: Changes) -> None:
    newest: dict[int, int] = {}
    stale = 0
    for key, position in zip(made.keys.tolist(), positions(made).tolist(), strict=True):
        stale += position < newest.get(key, 0)
        newest[key] = max(position, newest.get(key, 0))
    assert stale > 50


def test_keys_are_drawn_by_their_rank_to_the_power_of_minus_0_99() -> None:
    drawn = np.sort(np.bincount(zipf(200_000, 1_000, np.random.default_rng(3)), minlength=1_000))[::-1]
    shares = np.arange(1, 1_001) ** -0.99 / np.sum(np.arange(1, 1_001) ** -0.99)
    assert drawn[0] / 200_000 == pytest.approx(shares[0], rel=0.05)
    assert drawn[9] / 200_000 == pytest.approx(shares[9], rel=0.1)
    assert drawn[:100].sum() / 200_000 == pytest.approx(shares[:100].sum(), rel=0.05)


def test_by_position_a_row_is_created_before_it_is_changed_and_after_it_was_deleted(made: Changes) -> None:
    order = np.argsort(positions(made))
    present: set[int] = set()
    for key, operation in zip(made.keys[order].tolist(), made.operations[order].tolist(), strict=True):
        assert (operation == "c") == (key not in present)
        present.discard(key) if operation == "d" else present.add(key)


def test_a_merge_without_tombstones_comes_to_the_final_state(made: Changes) -> None:
    table: dict[int, int] = {}
    for key, position, operation in zip(
        made.keys.tolist(), positions(made).tolist(), made.operations.tolist(), strict=True
    ):
        if position >= table.get(key, 0):
            table[key] = position
            if operation == "d":
                del table[key]
    assert sorted(table.values()) == sorted(made.final().column(LSN).to_pylist())
    assert 0 < len(table) < len(set(made.keys.tolist()))


def test_documents_are_envelopes_with_the_rows_and_positions(made: Changes) -> None:
    read = []
    for number, key, value in made.documents():
        document = json.loads(value)
        row = document["before"] if document["op"] == "d" else document["after"]
        assert row[KEY] == key.decode() == f"order{number:012d}"
        assert (document["before"] is None) == (document["op"] != "d")
        assert len(str(row["price"]).partition(".")[2]) <= 2
        read.append({**row, "price": str(row["price"]), LSN: document["source"]["lsn"]})
    columns = {name: pa.array([row[name] for row in read]) for name in CHANGE_COLUMNS.names}
    columns["price"] = columns["price"].cast(CHANGE_COLUMNS.arrow.field("price").type)
    assert digest(pa.table(columns), CHANGE_COLUMNS) == digest(made.rows, CHANGE_COLUMNS)
