"""Plans and records of Hudi's compactions and cleans decode to what they say and encode to the bytes it wrote."""

from pathlib import Path

import pytest

from streaming_lsm.format.actions.clean import CleanMetadata, CleanPlan, RetainedInstant
from streaming_lsm.format.actions.commit import CommitMetadata, base_file_stat
from streaming_lsm.format.actions.compaction_plan import CompactionPlan
from streaming_lsm.format.actions.savepoint import SavepointMetadata
from streaming_lsm.format.table.file_names import BaseFileName, parse_file_name

TIMELINE = Path(__file__).parent / "data" / "format" / "timeline"
COMPACTION = TIMELINE / "v9_mor_compaction"
CLEAN_PLANS = sorted(TIMELINE.glob("*/*.clean.requested"))
CLEANS = sorted(TIMELINE.glob("*/*_*.clean"))
SAVEPOINTS = sorted(TIMELINE.glob("*/*_*.savepoint"))
GROUP = "00000000-7985-483a-ae7d-239220efbb3e-0"
SYNC = 16


def _record(container: bytes) -> bytes:
    """The encoded record: Hudi's schemas of plans hold comments, so the headers differ."""
    return container.split(container[-SYNC:])[1]


def test_a_compaction_plan_of_hudi_encodes_to_its_own_bytes() -> None:
    path = COMPACTION / "20261121034519231.compaction.requested"
    data = path.read_bytes()
    plan = CompactionPlan.decode(data, path.name)
    assert _record(plan.encode()) == _record(data)
    operation = plan.operations[0]
    assert (operation.partition_path, operation.file_id, operation.base_instant) == (
        "north",
        GROUP,
        "20261121034513735",
    )
    assert operation.files == (
        f"{GROUP}_3-523-1280_20261121034513735.parquet",
        f".{GROUP}_20261121034515785.log.1_2-539-1300",
        f".{GROUP}_20261121034517812.log.1_2-553-1320",
    )
    assert operation.metrics["TOTAL_LOG_FILES_SIZE"] == 4063.0


def test_the_commit_of_a_compaction_says_what_was_merged() -> None:
    path = COMPACTION / "20261121034519231_20261121034520302.commit"
    commit = CommitMetadata.decode(path.read_bytes(), path.name)
    assert (commit.operation_type, commit.compacted) == ("COMPACT", True)
    (stat,) = (stat for stat in commit.stats if stat.file_id == GROUP)
    name, previous = parse_file_name(stat.file_name), parse_file_name(stat.prev_base_file or "")
    assert isinstance(name, BaseFileName)
    assert isinstance(previous, BaseFileName)
    ours = base_file_stat(
        "north",
        name,
        total_bytes=stat.total_bytes,
        num_writes=15,
        num_inserts=1,
        num_updates=13,
        num_deletes=3,
        previous=previous,
    )
    merged = {"log_records": 25, "log_blocks": 2, "updated_records_compacted": 17, "log_files_compacted": 2}
    assert {name: getattr(stat, name) for name in merged} == merged
    same = ("prev_commit", "prev_base_file", "num_writes", "num_inserts", "num_updates", "num_deletes", "log_version")
    assert [getattr(ours, name) for name in same] == [getattr(stat, name) for name in same]


@pytest.mark.parametrize("path", CLEAN_PLANS, ids=lambda path: path.name)
def test_a_clean_plan_of_hudi_encodes_to_its_own_bytes(path: Path) -> None:
    data = path.read_bytes()
    assert _record(CleanPlan.decode(data, path.name).encode()) == _record(data)


@pytest.mark.parametrize("path", CLEANS, ids=lambda path: path.name)
def test_a_clean_of_hudi_encodes_to_its_own_bytes(path: Path) -> None:
    data = path.read_bytes()
    assert _record(CleanMetadata.decode(data, path.name).encode()) == _record(data)


def test_a_clean_plan_tells_what_stays_and_what_goes() -> None:
    path = TIMELINE / "v9_cow_savepoint_overwrite" / "20261121033153971.clean.requested"
    plan = CleanPlan.decode(path.read_bytes(), path.name)
    assert plan.earliest == RetainedInstant("20261121033153641", "replacecommit", "COMPLETED")
    assert plan.savepoints == ("20261121033146117",)
    assert [partition for partition, _ in plan.spelt_files()] == ["west", "north"]


@pytest.mark.parametrize("path", SAVEPOINTS, ids=lambda path: path.name)
def test_a_savepoint_of_hudi_encodes_to_its_own_bytes(path: Path) -> None:
    data = path.read_bytes()
    assert _record(SavepointMetadata.decode(data, path.name).encode()) == _record(data)


def test_a_savepoint_names_the_files_it_keeps() -> None:
    path = TIMELINE / "v9_cow_savepoint_overwrite" / "20261121033146117_20261121033148475.savepoint"
    kept = SavepointMetadata.decode(path.read_bytes(), path.name).files
    assert sorted(kept) == ["east", "north", "west"]
    assert kept["north"] == ("b1f46806-12c6-45da-b944-22da63a6d3e5-0_1-546-922_20261121033146117.parquet",)
