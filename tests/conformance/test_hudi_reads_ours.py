"""What this package writes, real Hudi and hudi-rs read to the same rows, by every query type they have."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from tests.conformance.histories import HISTORIES, History
from tests.conformance.judge import Hudi, HudiRs
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines
from tests.conformance.worker import Refused

CASES = [
    pytest.param(history, version, kind, id=f"{history.name}-v{version}-{kind[:5].lower()}")
    for history in HISTORIES
    for version in history.versions
    for kind in history.types
]
HUDI, HUDI_RS = "hudi reads ours", "hudi-rs reads ours"


@pytest.mark.parametrize(("history", "version", "kind"), CASES)
def test_hudi_reads_what_we_write(
    hudi: Hudi, hudi_rs: HudiRs, record: Record, tmp_path: Path, history: History, version: int, kind: str
) -> None:
    path = tmp_path / history.name
    table = history.create(path, version, kind)
    history.play(table)
    case = f"v{version} {kind} {history.name}"

    record(case, HUDI, "snapshot")
    ours = _lines(table)
    assert ours
    assert hudi.read(path) == ours

    record(case, HUDI, "read_optimized")
    assert hudi.read(path, "read_optimized") == to_lines(table.scan(meta=True, query_type="read_optimized").to_arrow())

    record(case, HUDI, "time_travel")
    writes = table.timeline.completed_writes
    for write in writes:
        moment = write.completed or ""
        assert hudi.read(path, "time_travel", as_of=moment) == _lines(table, moment), moment

    record(case, HUDI, "incremental")
    times = ["000", *sorted(write.completed or "" for write in writes)]
    spans = [(times[0], times[-1]), *itertools.pairwise(times)]
    for begin, end in spans:
        expected = to_lines(table.incremental(begin, end, meta=True).to_arrow())
        assert hudi.read(path, "incremental", begin=begin, end=end) == expected, (begin, end)

    line = record(case, HUDI_RS, "snapshot")
    try:
        found = to_lines(hudi_rs.read(path))
    except Refused as refused:
        line.refuse(str(refused)[:60])
        assert history.name == "all_types"
    else:
        assert found == ours


def _lines(table: LsmTable, moment: str | None = None) -> list[str]:
    return to_lines(table.scan(as_of=moment, meta=True).to_arrow())
