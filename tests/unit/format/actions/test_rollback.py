import pytest

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.actions.rollback import RollbackMetadata, RollbackPlan, RollbackRequest, RolledBackPartition
from streaming_lsm.format.avro.container import decode_record, encode_record


def test_a_plan_reads_back() -> None:
    request = RollbackRequest("south", "f-0", "20261121040120865", ("file:/t/south/a", "file:/t/south/b"))
    plan = RollbackPlan("20261121040120865", "deltacommit", (request,))
    assert RollbackPlan.decode(plan.encode(), "plan") == plan


def test_a_plan_never_appends_to_logs() -> None:
    plan = RollbackPlan("1", "deltacommit", (RollbackRequest("", "f-0", "1", ()),))
    requests = decode_record("HoodieRollbackPlan", plan.encode(), "plan")["RollbackRequests"]
    assert requests == [
        {
            "partitionPath": "",
            "fileId": "f-0",
            "latestBaseInstant": "1",
            "filesToBeDeleted": [],
            "logBlocksToBeDeleted": {},
        }
    ]


def test_a_completed_rollback_reads_back_and_counts_its_files() -> None:
    partitions = (RolledBackPartition("south", ("a", "b")), RolledBackPartition("north", ("c",), ("d",)))
    rollback = RollbackMetadata("2", 15, "1", "deltacommit", partitions)
    assert RollbackMetadata.decode(rollback.encode(), "rollback") == rollback
    assert decode_record("HoodieRollbackMetadata", rollback.encode(), "rollback")["totalFilesDeleted"] == 3


def test_a_rollback_of_nothing_is_reported_by_name() -> None:
    with pytest.raises(CorruptFileError, match=r"t\.rollback\.requested: the plan names no instant"):
        RollbackPlan.decode(encode_record("HoodieRollbackPlan", {}), "t.rollback.requested")
    empty = {
        "startRollbackTime": "2",
        "timeTakenInMillis": 1,
        "totalFilesDeleted": 0,
        "commitsRollback": [],
        "partitionMetadata": {},
    }
    with pytest.raises(CorruptFileError, match=r"t\.rollback: names no instant"):
        RollbackMetadata.decode(encode_record("HoodieRollbackMetadata", empty), "t.rollback")
