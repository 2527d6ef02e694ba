"""The judge returns the stored rows of every fixture: it judges rightly, and the JSON form is the agreed one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.fixtures import Read, all_reads, unpack
from tests.conformance.judge import Hudi
from tests.conformance.results import Record

READS = all_reads()


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fixtures")


@pytest.mark.parametrize("read", READS, ids=lambda read: f"{read.table}-{read.label}")
def test_the_judge_returns_the_stored_rows(read: Read, unpacked: Path, hudi: Hudi, record: Record) -> None:
    record(read.table, "hudi reads hudi", read.label)
    table = unpack(read.table, unpacked)
    assert hudi.read(table, read.query, **read.how) == read.lines()
