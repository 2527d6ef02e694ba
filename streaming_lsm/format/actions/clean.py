"""Plan and outcome of a clean (docs/format/06-services.md, "Cleaning"), and what savepoints keep from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from streaming_lsm.format.avro.container import AvroRecord, decode_record, encode_record

_VERSION = 2
_SAVEPOINTS = "savepointed_timestamps"


@dataclass(frozen=True, slots=True)
class RetainedInstant:
    """The earliest write whose state stays readable, as it was when the clean was planned.

    Attributes:
        requested: its requested time.
        action: its action.
        state: ``COMPLETED``, or a pending state when the earliest pending write decides.
    """

    requested: str
    action: str
    state: str


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """Content of ``*.clean.requested``.

    Attributes:
        earliest: what stays readable; None where the policy names no instant.
        last_completed: requested time of the newest completed write, "" for none.
        policy: Hudi's name of the policy.
        files: by partition path the files to delete, as the plan spells them; Hudi writes absolute URIs.
        savepoints: savepointed instants whose files are spared.
    """

    earliest: RetainedInstant | None
    last_completed: str
    policy: str
    files: Mapping[str, tuple[str, ...]]
    savepoints: tuple[str, ...] = ()

    def spelt_files(self) -> Iterator[tuple[str, str]]:
        """Every file as (partition path, spelling)."""
        return ((partition, file) for partition, files in self.files.items() for file in files)

    def encode(self) -> bytes:
        """Bytes of the requested file."""
        paths = {
            partition: [{"filePath": file, "isBootstrapBaseFile": False} for file in files]
            for partition, files in self.files.items()
        }
        record: dict[str, object] = {
            "earliestInstantToRetain": None if self.earliest is None else _retained_record(self.earliest),
            "lastCompletedCommitTimestamp": self.last_completed,
            "policy": self.policy,
            "filesToBeDeletedPerPartition": {},
            "version": _VERSION,
            "filePathsToBeDeletedPerPartition": paths,
            "partitionsToBeDeleted": [],
            "extraMetadata": _savepoint_entry(self.savepoints),
        }
        return encode_record("HoodieCleanerPlan", record)

    @classmethod
    def decode(cls, data: bytes, source: str) -> CleanPlan:
        """Read a plan; partitions that it would delete as a whole are passed over, their files are not.

        Raises:
            CorruptFileError: not such a record.
        """
        record = decode_record("HoodieCleanerPlan", data, source)
        earliest = cast("dict[str, str] | None", record["earliestInstantToRetain"])
        by_partition = cast("dict[str, list[AvroRecord]]", record["filePathsToBeDeletedPerPartition"] or {})
        bare = cast("dict[str, list[str]]", record["filesToBeDeletedPerPartition"] or {})
        paths = {
            partition: tuple(cast("str | None", file["filePath"]) or "" for file in files)
            for partition, files in by_partition.items()
        }
        return cls(
            earliest=None if earliest is None else _retained(earliest),
            last_completed=cast(str, record["lastCompletedCommitTimestamp"]),
            policy=cast(str, record["policy"]),
            files=paths or {partition: tuple(files) for partition, files in bare.items()},
            savepoints=_savepoints(record),
        )


@dataclass(frozen=True, slots=True)
class CleanMetadata:
    """Content of a completed clean.

    Attributes:
        start: instant of the clean itself.
        duration_ms: how long it took, in milliseconds.
        earliest: requested time of the earliest write whose state stays readable, "" when the policy names none.
        last_completed: requested time of the newest write when it was planned.
        policy: Hudi's name of the policy.
        files: by partition path the names of the deleted files.
        savepoints: savepointed instants whose files were spared.
    """

    start: str
    duration_ms: int
    earliest: str
    last_completed: str
    policy: str
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    savepoints: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Bytes of the completed file."""
        partitions = {
            partition: {
                "partitionPath": partition,
                "policy": self.policy,
                "deletePathPatterns": list(names),
                "successDeleteFiles": list(names),
                "failedDeleteFiles": [],
                "isPartitionDeleted": False,
            }
            for partition, names in self.files.items()
        }
        record = {
            "startCleanTime": self.start,
            "timeTakenInMillis": self.duration_ms,
            "totalFilesDeleted": sum(len(names) for names in self.files.values()),
            "earliestCommitToRetain": self.earliest,
            "lastCompletedCommitTimestamp": self.last_completed,
            "partitionMetadata": partitions,
            "version": _VERSION,
            "bootstrapPartitionMetadata": {},
            "extraMetadata": _savepoint_entry(self.savepoints),
        }
        return encode_record("HoodieCleanMetadata", record)

    @classmethod
    def decode(cls, data: bytes, source: str) -> CleanMetadata:
        """Read a completed clean.

        Raises:
            CorruptFileError: not such a record.
        """
        record = decode_record("HoodieCleanMetadata", data, source)
        partitions = cast("dict[str, AvroRecord]", record["partitionMetadata"])
        policies = {cast(str, partition["policy"]) for partition in partitions.values()}
        return cls(
            start=cast(str, record["startCleanTime"]),
            duration_ms=cast(int, record["timeTakenInMillis"]),
            earliest=cast(str, record["earliestCommitToRetain"]),
            last_completed=cast(str, record["lastCompletedCommitTimestamp"]),
            policy=min(policies, default=""),
            files={
                name: tuple(cast("list[str]", partition["successDeleteFiles"]))
                for name, partition in partitions.items()
            },
            savepoints=_savepoints(record),
        )


def decode_savepoint(data: bytes, source: str) -> dict[str, tuple[str, ...]]:
    """Names of the files that a completed savepoint keeps, by partition path.

    Raises:
        CorruptFileError: not such a record.
    """
    record = decode_record("HoodieSavepointMetadata", data, source)
    partitions = cast("dict[str, AvroRecord]", record["partitionMetadata"])
    return {name: tuple(cast("list[str]", kept["savepointDataFile"])) for name, kept in partitions.items()}


def _retained_record(earliest: RetainedInstant) -> dict[str, str]:
    return {"timestamp": earliest.requested, "action": earliest.action, "state": earliest.state}


def _retained(record: Mapping[str, str]) -> RetainedInstant:
    return RetainedInstant(record["timestamp"], record["action"], record["state"])


def _savepoint_entry(savepoints: tuple[str, ...]) -> dict[str, str]:
    return {_SAVEPOINTS: ",".join(savepoints)} if savepoints else {}


def _savepoints(record: AvroRecord) -> tuple[str, ...]:
    extra = cast("dict[str, str]", record["extraMetadata"] or {})
    return tuple(time for time in extra.get(_SAVEPOINTS, "").split(",") if time)
