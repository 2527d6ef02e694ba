"""Timeline records of real tables decode to what they say and encode to the bytes that Hudi wrote."""

from pathlib import Path

import pytest

from streaming_lsm.format.actions.commit import NO_COMMIT, CommitMetadata, base_file_stat, log_file_stat
from streaming_lsm.format.actions.rollback import RollbackMetadata, RollbackPlan
from streaming_lsm.format.table.file_names import BaseFileName, InlineLogName, LogFileName, LogKind, parse_file_name

TIMELINE = Path(__file__).parent / "data" / "format" / "timeline"
COMMITS = sorted(path for path in TIMELINE.glob("*/*") if path.name.endswith("commit"))
SYNC = 16


def _without_sync(container: bytes) -> bytes:
    return container.replace(container[-SYNC:], b"")


def _read(table: str, name: str) -> CommitMetadata:
    path = TIMELINE / table / name
    return CommitMetadata.decode(path.read_bytes(), path.name)


@pytest.mark.parametrize("path", COMMITS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_commit_of_hudi_encodes_to_its_own_bytes_but_for_the_sync_marker(path: Path) -> None:
    data = path.read_bytes()
    assert _without_sync(CommitMetadata.decode(data, path.name).encode()) == _without_sync(data)


def test_a_first_deltacommit_lists_base_files_without_predecessor() -> None:
    commit = _read("v9_mor_avro", "20261121040120865_20261121040132282.deltacommit")
    assert [(stat.partition_path, stat.num_writes, stat.num_inserts, stat.prev_commit) for stat in commit.stats] == [
        ("south", 20, 20, NO_COMMIT),
        ("south", 20, 20, NO_COMMIT),
        ("north", 20, 20, NO_COMMIT),
        ("north", 20, 20, NO_COMMIT),
    ]
    assert commit.operation_type == "UPSERT"
    assert commit.replaced is None
    assert (commit.schema or "").startswith('{"type":"record","name":"v9_mor_avro_record"')


def test_our_base_file_stat_is_filled_like_hudis() -> None:
    theirs = _read("v9_mor_avro", "20261121040120865_20261121040132282.deltacommit").stats[0]
    name = parse_file_name(theirs.file_name)
    assert isinstance(name, BaseFileName)
    ours = base_file_stat(
        "south", name, total_bytes=theirs.total_bytes, num_writes=20, num_inserts=20, create_ms=theirs.create_ms
    )
    assert ours == theirs


def test_our_log_file_stat_is_filled_like_hudis_but_for_the_native_name() -> None:
    theirs = _read("v9_mor_avro", "20261121040134339_20261121040139849.deltacommit").stats[0]
    inline = parse_file_name(theirs.file_name)
    assert isinstance(inline, InlineLogName)
    assert inline.token is not None
    native = LogFileName(inline.file_id, inline.token, inline.instant, inline.version, LogKind.DATA)
    ours = log_file_stat(
        "south", native, total_bytes=theirs.total_bytes, num_updates=8, upsert_ms=theirs.upsert_ms
    ).to_avro()
    expected = theirs.to_avro()
    assert ours.pop("path") == f"south/{native}"
    assert ours.pop("logFiles") == [str(native)]
    del expected["path"], expected["logFiles"]
    assert ours == expected


def test_a_compaction_names_the_base_file_that_it_replaces_and_its_change_log() -> None:
    commit = _read("v9_mor_cdc", "20261121033300443_20261121033301559.commit")
    stat = commit.stats[0]
    assert commit.compacted
    assert (stat.num_writes, stat.num_updates, stat.num_inserts, stat.num_deletes) == (13, 2, 4, 1)
    assert stat.prev_commit == "20261121033255948"
    assert stat.prev_base_file == "00000000-bf7d-4bac-b1aa-e4a86f393f47-0_0-950-1698_20261121033255948.parquet"
    assert stat.cdc_files == (
        ("south/.00000000-bf7d-4bac-b1aa-e4a86f393f47-0_20261121033300443.log.1_0-970-1733.cdc", 336),
    )


def test_a_replacecommit_names_the_file_groups_that_it_hides() -> None:
    commit = _read("v9_cow_savepoint_overwrite", "20261121033153641_20261121033153830.replacecommit")
    assert commit.stats == ()
    assert commit.operation_type == "DELETE_PARTITION"
    assert commit.replaced == {"east": ("2d565655-229a-43ee-b7ec-8187be8b5465-0",)}


def test_a_rollback_plan_of_hudi_is_read_through_its_own_schema() -> None:
    path = TIMELINE / "v9_mor_rollback" / "20261121033718476.rollback.requested"
    plan = RollbackPlan.decode(path.read_bytes(), path.name)
    assert (plan.instant, plan.action, len(plan.requests)) == ("20261121033703765", "deltacommit", 4)
    assert plan.requests[0].partition_path == "north"
    assert plan.requests[0].latest_base_instant == plan.instant
    assert (
        plan.requests[0]
        .files[0]
        .endswith("/north/.00000001-0d4c-4af6-b76d-d3d144ba042d-0_20261121033703765.log.1_3-12-22")
    )
    assert RollbackPlan.decode(plan.encode(), "ours") == plan


def test_a_completed_rollback_of_hudi_encodes_to_its_own_bytes_but_for_the_sync_marker() -> None:
    path = TIMELINE / "v9_mor_rollback" / "20261121033718476_20261121033720139.rollback"
    rollback = RollbackMetadata.decode(path.read_bytes(), path.name)
    assert rollback.instant == "20261121033703765"
    assert {part.partition_path: len(part.deleted) for part in rollback.partitions} == {"south": 2, "north": 2}
    assert _without_sync(rollback.encode()) == _without_sync(path.read_bytes())
