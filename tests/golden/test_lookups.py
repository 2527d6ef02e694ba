"""Look-ups in real Hudi tables: the bloom filters that Hudi writes into base files leave out files, and no row."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from tests.support import hudi_tables

NAMES = ["r015_cow_archived", "v6_cow_overwrite", "v9_cow_cdc", "v9_cow_clustering", "v9_cow_hive_mdt"]


@pytest.mark.parametrize("name", NAMES)
def test_each_key_is_found_and_files_without_it_are_left_out(tmp_path: Path, name: str) -> None:
    hudi_tables.unpacked(name, tmp_path)
    table = LsmTable(tmp_path / name)
    whole = table.scan(meta=True).to_arrow().sort_by("_hoodie_record_key")
    keys = pc.unique(whole["_hoodie_record_key"]).to_pylist()
    assert table.lookup(keys, meta=True)["_hoodie_record_key"].to_pylist() == whole["_hoodie_record_key"].to_pylist()
    skipped = 0
    for key in keys[:6]:
        rows = whole.filter(pc.equal(whole["_hoodie_record_key"], key))
        assert sorted(map(repr, table.lookup([key], meta=True).to_pylist())) == sorted(map(repr, rows.to_pylist()))
        skipped += table.explain_lookup([f"{key}~"]).counts.files_skipped
    assert skipped
