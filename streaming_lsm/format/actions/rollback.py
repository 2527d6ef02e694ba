"""Encode and decode rollback plans and rollback metadata.

A *rollback plan* lists the files to delete, *rollback metadata* the files that were deleted. A rollback never appends
to logs. See docs/format/02-timeline.md, "Rollback".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.avro.container import AvroRecord, decode_record, encode_record


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """Files of one file group to delete.

    Attributes:
        latest_base_instant: base instant of the file slice; for log files Hudi writes the rolled-back instant.
        files: files as spelt in the plan; Hudi writes absolute paths or URIs.
    """

    partition_path: str
    file_id: str
    latest_base_instant: str
    files: tuple[str, ...]


_COMPLETED = "lsm.completed"
"""File id of a request without files, which Hudi passes over; its base instant is a completion time."""


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """Content of ``*.rollback.requested``.

    Attributes:
        instant, action: instant to roll back, and its action.
        requests: its files to delete.
        completed: completion time of a completed write that this package rolls back; None for other rollbacks.
    """

    instant: str
    action: str
    requests: tuple[RollbackRequest, ...]
    completed: str | None = None

    def encode(self) -> bytes:
        """Encode the requested file."""
        requests = [
            {
                "partitionPath": request.partition_path,
                "fileId": request.file_id,
                "latestBaseInstant": request.latest_base_instant,
                "filesToBeDeleted": list(request.files),
                "logBlocksToBeDeleted": {},
            }
            for request in (*self.requests, *self._mark())
        ]
        target = {"commitTime": self.instant, "action": self.action}
        record = {"instantToRollback": target, "RollbackRequests": requests, "version": 1}
        return encode_record("HoodieRollbackPlan", record)

    def _mark(self) -> tuple[RollbackRequest, ...]:
        if self.completed is None:
            return ()
        partition = self.requests[0].partition_path if self.requests else ""
        return (RollbackRequest(partition, _COMPLETED, self.completed, ()),)

    @classmethod
    def decode(cls, data: bytes, source: str) -> RollbackPlan:
        """Decode a rollback plan.

        Raises:
            CorruptFileError: the bytes are not such a record, or the plan has no instant.
        """
        record = decode_record("HoodieRollbackPlan", data, source)
        target = cast("dict[str, str] | None", record["instantToRollback"])
        if target is None:
            raise CorruptFileError(f"{source}: the plan names no instant to roll back; restore or delete the file")
        listed = cast("list[AvroRecord]", record["RollbackRequests"] or [])
        requests = [_request(request) for request in listed]
        marks = [request for request in requests if request.file_id == _COMPLETED and not request.files]
        return cls(
            target["commitTime"],
            target["action"],
            tuple(request for request in requests if request not in marks),
            marks[0].latest_base_instant if marks else None,
        )


def _request(record: AvroRecord) -> RollbackRequest:
    return RollbackRequest(
        partition_path=cast(str, record["partitionPath"]),
        file_id=cast("str | None", record["fileId"]) or "",
        latest_base_instant=cast("str | None", record["latestBaseInstant"]) or "",
        files=tuple(cast("list[str]", record["filesToBeDeleted"])),
    )


@dataclass(frozen=True, slots=True)
class RolledBackPartition:
    """Files of one partition that a rollback deleted or failed to delete."""

    partition_path: str
    deleted: tuple[str, ...]
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RollbackMetadata:
    """Content of a completed rollback.

    Attributes:
        start: instant of the rollback itself.
        duration_ms: duration in milliseconds.
        instant, action: instant that was rolled back, and its action.
    """

    start: str
    duration_ms: int
    instant: str
    action: str
    partitions: tuple[RolledBackPartition, ...]

    def encode(self) -> bytes:
        """Encode the completed file."""
        return encode_record("HoodieRollbackMetadata", self.record())

    def record(self) -> dict[str, object]:
        """Build the record, which is a part of a restore's, too."""
        partitions = {
            partition.partition_path: {
                "partitionPath": partition.partition_path,
                "successDeleteFiles": list(partition.deleted),
                "failedDeleteFiles": list(partition.failed),
                "rollbackLogFiles": {},
                "logFilesFromFailedCommit": {},
            }
            for partition in self.partitions
        }
        return {
            "startRollbackTime": self.start,
            "timeTakenInMillis": self.duration_ms,
            "totalFilesDeleted": sum(len(partition.deleted) for partition in self.partitions),
            "commitsRollback": [self.instant],
            "partitionMetadata": partitions,
            "version": 1,
            "instantsRollback": [{"commitTime": self.instant, "action": self.action}],
        }

    @classmethod
    def decode(cls, data: bytes, source: str) -> RollbackMetadata:
        """Decode a completed rollback.

        Raises:
            CorruptFileError: the bytes are not such a record, or the record has no rolled-back instant.
        """
        record = decode_record("HoodieRollbackMetadata", data, source)
        targets = cast("list[dict[str, str]]", record["instantsRollback"])
        if not targets:
            raise CorruptFileError(f"{source}: names no instant that was rolled back; restore the file")
        return cls(
            start=cast(str, record["startRollbackTime"]),
            duration_ms=cast(int, record["timeTakenInMillis"]),
            instant=targets[0]["commitTime"],
            action=targets[0]["action"],
            partitions=tuple(
                RolledBackPartition(
                    partition_path=cast(str, partition["partitionPath"]),
                    deleted=tuple(cast("list[str]", partition["successDeleteFiles"])),
                    failed=tuple(cast("list[str]", partition["failedDeleteFiles"])),
                )
                for partition in cast("dict[str, AvroRecord]", record["partitionMetadata"]).values()
            ),
        )
