"""Base files that outgrow their limit are reported once an action, with a command that makes smaller ones."""

from __future__ import annotations

import logging
import re
import shlex
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.cli.commands import main
from streaming_lsm.write.large_base_files import enough_buckets
from tests.support.small_tables import create, rows, shown

LIMIT = "hoodie.parquet.max.file.size"
SOME = rows(*[(f"k{number}", "nl", 1, number) for number in range(20_000)])
LOGGER = "streaming_lsm.write.large_base_files"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_the_command_of_the_warning_makes_a_table_without_large_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    caplog.set_level(logging.WARNING)
    table = create(tmp_path / "orders", **{LIMIT: 24_000, "hoodie.table.type": kind})
    table.upsert(SOME)
    table.compact() if kind == "MERGE_ON_READ" else None
    (said,) = warnings(caplog)
    assert re.match(
        rf"2 base files of \S+/orders have more than {LIMIT}=24000 bytes, the largest, nl/\S+, has \d", said
    )
    command = shlex.split(re.sub(r".*: lsm (.*)", r"\1", said).replace("NEW", str(tmp_path / "new")))
    caplog.clear()
    assert main([*command, "-o", f"{LIMIT}=24000"]) == 0
    assert warnings(caplog) == []
    copied = LsmTable(tmp_path / "new")
    assert copied.config.num_buckets > table.config.num_buckets
    assert shown(copied) == shown(table)


def test_a_writer_goes_on_in_the_copy_with_its_next_batch(tmp_path: Path) -> None:
    writer: dict[str, object] = {"lsm.writer.id": "query"}
    table = create(tmp_path / "orders", **writer)
    table.upsert(rows(("a", "nl", 1, 1), ("b", "nl", 1, 1)), batch_id=6)
    assert (
        main(["copy", str(tmp_path / "orders"), str(tmp_path / "new"), "-o", "hoodie.bucket.index.num.buckets=16"]) == 0
    )
    copied = LsmTable(tmp_path / "new", writer)
    for _ in range(2):
        copied.upsert(rows(("b", "nl", 2, 2), ("c", "nl", 2, 2)), batch_id=7)
    assert shown(copied) == [("a", "nl", 1, 1), ("b", "nl", 2, 2), ("c", "nl", 2, 2)]
    assert len(copied.timeline.completed_writes) == 2
    assert copied.config.num_buckets == 16


def test_no_warning_comes_for_files_within_the_limit_nor_for_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    create(tmp_path / "logs", **{LIMIT: 1}).upsert(SOME)
    table = create(tmp_path / "fitting")
    table.upsert(SOME)
    table.compact()
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("buckets", "largest", "enough"),
    [(8, 121, 32), (8, 120, 16), (2, 1000, 64), (0, 500, 16), (1, 121, 4), (3, 121, 8)],
)
def test_half_full_files_of_a_power_of_two_of_buckets_are_proposed(buckets: int, largest: int, enough: int) -> None:
    assert enough_buckets(buckets, largest, 120) == enough
