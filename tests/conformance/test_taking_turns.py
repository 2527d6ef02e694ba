"""Hudi goes on with tables that this package has begun, and the other way round; both always see the same rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streaming_lsm import LsmTable
from tests.conformance.histories import HISTORIES, ORDERS, SIMPLE, History, all_types, composite, orders
from tests.conformance.judge import Hudi
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines

BY_NAME = {history.name: history for history in HISTORIES}
TURNS = "ours, hudi, ours"
METADATA = {"hoodie.metadata.enable": "true"}
NO_METADATA = {"hoodie.metadata.enable": "false"}


def _more(history: History, number: int) -> object:
    """Rows that fit a history's table."""
    rng = np.random.default_rng(1000 + number)
    if history.name == "all_types":
        return all_types(rng, 15, 50 + number)
    if history.name == "composite_keys":
        return composite(rng, 20, 50 + number)
    return orders(rng, 20, 300 + 10 * number)


@pytest.mark.parametrize("metadata", [METADATA, NO_METADATA], ids=["metadata_table", "no_metadata_table"])
@pytest.mark.parametrize("version", [9, 8])
@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
@pytest.mark.parametrize("name", ["event_time", "commit_time", "all_types", "composite_keys"])
def test_hudi_writes_compacts_and_cleans_after_us(
    hudi: Hudi, record: Record, tmp_path: Path, name: str, kind: str, version: int, metadata: dict[str, str]
) -> None:
    history = BY_NAME[name]
    path = tmp_path / name
    table = history.create(path, version, kind)
    history.play(table)
    options = {**history.hudi_options(table), **metadata}
    built = "with" if metadata is METADATA else "without"
    case = f"v{version} {kind} {name}, {built} metadata table"

    record(case, TURNS, "hudi upserts")
    hudi.write(path, "upsert", _more(history, 0), options)
    _agree(hudi, path)

    record(case, TURNS, "we upsert and delete")
    table = LsmTable(path)
    table.upsert(_more(history, 1))
    table.delete(_keys_of(table, _more(history, 0)))
    _agree(hudi, path)

    if kind == "MERGE_ON_READ":
        record(case, TURNS, "hudi compacts")
        hudi.write(path, "upsert", _more(history, 2), options)
        (compaction,) = hudi.compact(path, options)
        assert compaction["state"] == "COMPLETED"
        _agree(hudi, path)

        record(case, TURNS, "we compact")
        table = LsmTable(path)
        table.upsert(_more(history, 3))
        assert table.compact() is not None
        _agree(hudi, path)

    record(case, TURNS, "hudi cleans")
    hudi.write(path, "upsert", _more(history, 4), options)
    hudi.clean(path, options=options)
    _agree(hudi, path)

    record(case, TURNS, "we clean")
    table = LsmTable(path, {"hoodie.clean.commits.retained": 1})
    table.upsert(_more(history, 5))
    table.clean()
    _agree(hudi, path)


def _keys_of(table: LsmTable, rows: object) -> object:
    names = [*table.config.record_key_fields, *(part.name for part in table.config.partition_fields)]
    return rows.select(names).slice(0, 5)  # type: ignore[attr-defined]


def _agree(hudi: Hudi, path: Path) -> None:
    """Both read the same rows, which are some."""
    for query in ("snapshot", "read_optimized"):
        ours = to_lines(LsmTable(path).scan(meta=True, query_type=query).to_arrow())
        assert ours or query == "read_optimized"
        assert hudi.read(path, query) == ours, query


@pytest.mark.parametrize("metadata", [METADATA, NO_METADATA], ids=["metadata_table", "no_metadata_table"])
@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_twenty_commits_in_turn(
    hudi: Hudi, record: Record, tmp_path: Path, kind: str, metadata: dict[str, str]
) -> None:
    path = tmp_path / "turns"
    history = History("turns", ORDERS, SIMPLE, [])
    table = history.create(path, 9, kind)
    options = {**history.hudi_options(table), **metadata}
    built = "with" if metadata is METADATA else "without"
    for turn in range(20):
        record(f"v9 {kind} ping-pong {built} metadata table", TURNS, f"turn {turn + 1}")
        rows = orders(np.random.default_rng(turn), 25, 100 + 7 * turn)
        if turn % 2:
            hudi.write(path, "upsert", rows, options)
            if turn % 6 == 5:
                hudi.write(path, "delete", rows.slice(0, 5), options)
            if turn % 8 == 7 and kind == "MERGE_ON_READ":
                assert hudi.compact(path, options)
        else:
            ours = LsmTable(path, {"hoodie.clean.automatic": False})
            ours.upsert(rows)
            if turn % 6 == 4:
                ours.delete(rows.select(["id", "region"]).slice(0, 5))
            if turn % 10 == 8 and kind == "MERGE_ON_READ":
                assert ours.compact()
        _agree(hudi, path)


@pytest.mark.parametrize("version", [9, 8])
def test_hudi_rolls_back_and_archives_after_us(hudi: Hudi, record: Record, tmp_path: Path, version: int) -> None:
    history = BY_NAME["event_time"]
    path = tmp_path / history.name
    table = history.create(path, version, "MERGE_ON_READ")
    history.play(table)
    options = {**history.hudi_options(table), **NO_METADATA}
    case = f"v{version} MERGE_ON_READ event_time"

    record(case, TURNS, "hudi rolls our last write back")
    kept = to_lines(table.scan(meta=True).to_arrow())
    undone = table.upsert(orders(np.random.default_rng(77), 15, 900))
    assert undone is not None
    hudi.rollback(path, undone.requested, options)
    _agree(hudi, path)
    assert to_lines(LsmTable(path).scan(meta=True).to_arrow()) == kept

    record(case, TURNS, "hudi archives, we go on")
    assert LsmTable(path).compact()
    for number in range(3):
        hudi.write(path, "upsert", orders(np.random.default_rng(80 + number), 10, 1000 + number), options)
    before = len(LsmTable(path).timeline.instants)
    hudi.archive(path, 2, 3, metadata=False)
    assert len(LsmTable(path).timeline.instants) < before
    _agree(hudi, path)
    table = LsmTable(path)
    table.upsert(orders(np.random.default_rng(90), 20, 1100))
    assert table.compact()
    _agree(hudi, path)
