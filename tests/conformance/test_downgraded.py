"""Version 10, which no released Hudi reads, judged through a downgrade: the rows are the same, and Hudi reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from tests.conformance.histories import HISTORIES, History
from tests.conformance.judge import Hudi
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines

DIRECTION = "hudi reads ours, downgraded"
FILE_NAME = "_hoodie_file_name"
CASES = [
    pytest.param(history, kind, layout, id=f"{history.name}-{kind[:5].lower()}-{layout}")
    for history in HISTORIES
    for kind in history.types
    for layout in ("lsm_tree", "default")
    if history.name != "parquet_blocks"
]


@pytest.mark.parametrize(("history", "kind", "layout"), CASES)
def test_a_downgraded_table_has_the_same_rows_for_hudi(
    hudi: Hudi, record: Record, tmp_path: Path, history: History, kind: str, layout: str
) -> None:
    path = tmp_path / history.name
    table = history.create(path, 10, kind, {"hoodie.table.storage.layout": layout})
    history.play(table)
    before = _lines(table)

    for version in history.versions:
        record(f"v10 {layout} {kind} {history.name}", DIRECTION, f"snapshot as version {version}")
        table = table.change_version(version)
        assert _lines(table) == before
        read = to_lines(table.scan(meta=True).to_arrow())
        assert hudi.read(path) == read
        assert read

    if 8 not in history.versions:
        return
    record(f"v10 {layout} {kind} {history.name}", DIRECTION, "hudi's own upgrade to 9")
    hudi.call("upgrade_table", path, {"hoodie.metadata.enable": "false"}, to_version="NINE")
    assert LsmTable(path).config.version == 9
    assert _lines(LsmTable(path)) == before


def _lines(table: LsmTable) -> list[str]:
    """All but the file names, which a compaction rewrites."""
    return to_lines(table.scan(meta=True).to_arrow().drop_columns([FILE_NAME]))
