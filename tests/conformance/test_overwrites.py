"""Overwrites and deleted partitions by either program: the other one reads the table after them, and goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streaming_lsm import LsmTable
from tests.conformance.histories import ORDERS, SIMPLE, History, orders
from tests.conformance.judge import Hudi
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines

TURNS = "ours, hudi, ours"


@pytest.mark.parametrize("metadata", ["true", "false"], ids=["metadata_table", "no_metadata_table"])
@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_both_go_on_after_overwrites_of_either(
    hudi: Hudi, record: Record, tmp_path: Path, kind: str, metadata: str
) -> None:
    path = tmp_path / "overwrites"
    history = History("overwrites", ORDERS, SIMPLE, [])
    options = {**history.hudi_options(history.create(path, 9, kind)), "hoodie.metadata.enable": metadata}
    case = f"v9 {kind} overwrites, {'with' if metadata == 'true' else 'without'} metadata table"

    def rows(number: int, region: str | None = None) -> object:
        made = orders(np.random.default_rng(number), 20, 100 + number)
        if region is None:
            return made
        return made.filter(np.array([value == region for value in made["region"].to_pylist()]))

    def table() -> LsmTable:
        return LsmTable(path, {"hoodie.metadata.enable": metadata})

    def agree() -> None:
        ours = to_lines(table().scan(meta=True).to_arrow())
        assert ours
        assert hudi.read(path, "snapshot") == ours

    record(case, TURNS, "we overwrite partitions")
    table().upsert(rows(1))
    table().insert_overwrite(rows(2, "north"))
    agree()
    record(case, TURNS, "hudi upserts")
    hudi.write(path, "upsert", rows(3), options)
    agree()
    record(case, TURNS, "we delete a partition")
    table().delete_partitions(["south"])
    agree()
    record(case, TURNS, "hudi upserts into it")
    hudi.write(path, "upsert", rows(4), options)
    agree()
    record(case, TURNS, "hudi overwrites partitions")
    hudi.write(path, "insert_overwrite", rows(5, "north"), options)
    agree()
    record(case, TURNS, "we overwrite the table")
    table().insert_overwrite_table(rows(6))
    agree()
    record(case, TURNS, "we upsert, hudi cleans")
    table().upsert(rows(7))
    hudi.write(path, "upsert", rows(8), options)
    hudi.clean(path, options=options)
    agree()
