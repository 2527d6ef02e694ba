"""``lsm copy`` of tables that real Hudi wrote: all rows or no table, and a copy that dies is gone on with.

The process dies before storage calls that change something, every 7th of them here; with LSM_ALL_FAULTS=1 all of them.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from streaming_lsm import LsmTable, readable_table, table
from streaming_lsm.cli.commands import main
from streaming_lsm.config import resolve
from streaming_lsm.errors import TableNotFound
from streaming_lsm.java_properties import parse_properties, print_properties
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.uris import open_storage
from streaming_lsm.table_options import copied_options, create_table
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.hudi_tables import unpacked

STEP = 1 if os.environ.get("LSM_ALL_FAULTS") else 7
LOOKING = {"read", "exists", "list", "walk", "open_input"}
"""Storage calls that change nothing: dying before them is dying before the next one that does."""
BUCKETS = "hoodie.bucket.index.num.buckets"


def rows(path: Path) -> list[str]:
    return sorted(map(str, LsmTable(path).scan().to_arrow().to_pylist()))


def copy(source: Path, target: Path, *more: str) -> int:
    return main(["copy", str(source), str(target), "-o", f"{BUCKETS}=2", *more])


def set_property(table: Path, key: str, value: str) -> None:
    file = table / ".hoodie/hoodie.properties"
    file.write_bytes(print_properties({**parse_properties(file.read_bytes(), ""), key: value}, []))


def in_target(monkeypatch: pytest.MonkeyPatch, target: Path, faulty: FaultyStorage | None) -> None:
    """The storage of one table fails; None for a new process, in which none does."""

    def opened(path: str | os.PathLike[str]) -> Storage:
        return faulty if faulty is not None and os.fspath(path) == str(target) else open_storage(path)

    for module in (readable_table, table):
        monkeypatch.setattr(module, "open_storage", opened)


def test_a_copy_that_dies_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = unpacked("v6_mor_avro", tmp_path), tmp_path / "copied"
    before = rows(source)
    counting = FaultyStorage(open_storage(target))
    in_target(monkeypatch, target, counting)
    assert copy(source, target) == 0
    changing = [number for number, (name, _) in enumerate(counting.calls) if name not in LOOKING]
    assert len(changing) > 20
    deaths = [(call, Fault.KILL_BEFORE) for call in changing[::STEP]]
    for call, fault in [*deaths, (changing[-1], Fault.KILL_AFTER)]:
        shutil.rmtree(target)
        in_target(monkeypatch, target, FaultyStorage(open_storage(target), {call: fault}))
        with suppress(Killed):
            copy(source, target)
        in_target(monkeypatch, target, None)
        done = False
        with suppress(TableNotFound):
            done = bool(LsmTable(target).timeline.completed_writes)
        assert copy(source, target) == (2 if done else 0), counting.calls[call]
        assert rows(target) == before, counting.calls[call]
        assert len(LsmTable(target).timeline.completed_writes) == 1


def test_a_damaged_source_leaves_no_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = unpacked("v6_mor_avro", tmp_path), tmp_path / "copied"
    log = max(log for log in source.rglob(".*.log.*") if ".hoodie" not in log.parts and log.suffix != ".crc")
    whole = log.read_bytes()
    log.write_bytes(b"X" + whole[1:])
    assert copy(source, target) == 2
    assert log.name in capsys.readouterr().err
    assert not target.exists()
    log.write_bytes(whole)
    assert copy(source, target) == 0
    assert rows(target) == rows(source)


def test_a_table_that_is_no_unfinished_copy_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = unpacked("v6_mor_avro", tmp_path), tmp_path / "copied"
    assert copy(source, target) == 0
    assert copy(source, target) == 2
    assert "is a table at" in capsys.readouterr().err
    other, found = tmp_path / "other", LsmTable(target)
    fewer = found.schema.remove(found.schema.get_field_index("price"))
    create_table(open_storage(other), resolve(copied_options(found.config)), fewer)
    assert copy(source, other) == 2
    assert not LsmTable(other).timeline.completed_writes


def test_a_setting_that_cannot_be_carried_over_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = unpacked("v6_mor_avro", tmp_path), tmp_path / "copied"
    set_property(source, "hoodie.table.cdc.enabled", "true")
    assert copy(source, tmp_path / "captured") == 0
    assert "without" not in capsys.readouterr().out
    assert LsmTable(tmp_path / "captured").config.cdc_mode == "DATA_BEFORE_AFTER"
    assert copy(source, target, "-o", "hoodie.table.cdc.enabled=false") == 0
    assert "without hoodie.table.cdc.enabled=true" in capsys.readouterr().out
    partial = "org.apache.hudi.common.model.PartialUpdateAvroPayload"
    set_property(source, "hoodie.compaction.payload.class", partial)
    assert copy(source, tmp_path / "partial") == 0
    assert LsmTable(tmp_path / "partial").config.partial_mode == "IGNORE_DEFAULTS"


def test_a_dry_run_reads_the_source_and_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = unpacked("v6_mor_avro", tmp_path), tmp_path / "copied"
    assert copy(source, target, "--dry-run") == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [f"create {target}: version 10, layout lsm_tree, 2 buckets", "write 85 rows in one commit"]
    assert not target.exists()


def test_rows_are_written_in_one_commit_through_a_small_buffer(tmp_path: Path) -> None:
    source, target = unpacked("v6_mor_avro", tmp_path), tmp_path / "copied"
    assert copy(source, target, "-o", "lsm.write.buffer.bytes=1048576") == 0
    assert rows(target) == rows(source)
    (written,) = LsmTable(target).timeline.completed_writes
    assert sum(stat.num_writes for stat in LsmTable(target).timeline.read_commit(written).stats) == 85


def test_a_copy_may_have_other_partitions_and_another_type(tmp_path: Path) -> None:
    source, target = unpacked("v6_mor_avro", tmp_path), tmp_path / "copied"
    column = next(
        name for name in LsmTable(source).schema.names if name not in LsmTable(source).config.record_key_fields
    )
    options = {"hoodie.table.type": "COPY_ON_WRITE", "hoodie.datasource.write.partitionpath.field": column}
    assert copy(source, target, *(text for key, value in options.items() for text in ("-o", f"{key}={value}"))) == 0
    made = LsmTable(target).config
    assert (made.is_copy_on_write, [field.name for field in made.partition_fields]) == (True, [column])
    assert rows(target) == rows(source)
