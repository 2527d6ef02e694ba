"""Encode and decode clean plans and clean metadata (docs/format/06-services.md, "Cleaning").

A *clean plan* lists the files to delete, *clean metadata* the files that were deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from streaming_lsm.bounded_json import parse_json
from streaming_lsm.format.avro.container import AvroRecord, decode_record, encode_record

_VERSION = 2
_SAVEPOINTS = "savepointed_timestamps"
_EXAMINED = "lsm.clean.examined"


@dataclass(frozen=True, slots=True)
class RetainedInstant:
    """Earliest commit to retain: the earliest write whose snapshot stays readable, at the time of planning.

    Attributes:
        requested: its requested time.
        action: its action.
        state: ``COMPLETED``, or a pending state if it is the earliest pending write.
    """

    requested: str
    action: str
    state: str


@dataclass(frozen=True, slots=True)
class Examined:
    """State what a clean has examined, from which the next one goes on (docs/format/06-services.md, "Cleaning").

    Attributes:
        until: every slice was examined that a write completed before this time has superseded.
        since: requested time such that no older write was completed at `until` or later.
        savepoints: file names of the savepoints whose files were retained.
        held: partitions with slices that only a pending compaction retained.
    """

    until: str
    since: str
    savepoints: tuple[str, ...] = ()
    held: tuple[str, ...] = ()

    def encode(self) -> str:
        """Encode the entry of the extra metadata."""
        return json.dumps([self.until, self.since, list(self.savepoints), list(self.held)], separators=(",", ":"))

    @classmethod
    def decode(cls, text: str | None) -> Examined | None:
        """Decode the entry; None if there is none, or one of another form: then nothing is known to be examined."""
        try:
            until, since, savepoints, held = cast("list[object]", parse_json(text or "null"))
        except (ValueError, TypeError, RecursionError):
            return None
        times, names = (until, since), (savepoints, held)
        if not all(isinstance(time, str) for time in times) or not all(isinstance(part, list) for part in names):
            return None
        kept, waiting = cast("list[str]", savepoints), cast("list[str]", held)
        return cls(cast(str, until), cast(str, since), tuple(map(str, kept)), tuple(map(str, waiting)))


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """Content of ``*.clean.requested``.

    Attributes:
        earliest: earliest commit to retain; None if the policy retains file versions.
        last_completed: requested time of the newest completed write, "" for none.
        policy: Hudi's name of the policy.
        files: files to delete by partition path, as spelt in the plan; Hudi writes absolute URIs.
        savepoints: savepointed instants whose files are retained.
        examined: what was examined; None in plans of other programs, and by file versions.
    """

    earliest: RetainedInstant | None
    last_completed: str
    policy: str
    files: Mapping[str, tuple[str, ...]]
    savepoints: tuple[str, ...] = ()
    examined: Examined | None = None

    def spelt_files(self) -> Iterator[tuple[str, str]]:
        """Yield every file as (partition path, file as spelt in the plan)."""
        return ((partition, file) for partition, files in self.files.items() for file in files)

    def encode(self) -> bytes:
        """Encode the requested file."""
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
            "extraMetadata": _extra(self.savepoints, self.examined),
        }
        return encode_record("HoodieCleanerPlan", record)

    @classmethod
    def decode(cls, data: bytes, source: str) -> CleanPlan:
        """Decode a plan; its list of partitions to delete is ignored, their files are not.

        Raises:
            CorruptFileError: the bytes are not such a record.
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
            examined=Examined.decode(_extra_of(record).get(_EXAMINED)),
        )


@dataclass(frozen=True, slots=True)
class CleanMetadata:
    """Content of a completed clean.

    Attributes:
        start: instant of the clean itself.
        duration_ms: duration in milliseconds.
        earliest: requested time of the earliest commit to retain, "" if the policy retains file versions.
        last_completed: requested time of the newest completed write at the time of planning.
        policy: Hudi's name of the policy.
        files: names of the deleted files by partition path.
        savepoints: savepointed instants whose files were retained.
        examined: see `CleanPlan`.
    """

    start: str
    duration_ms: int
    earliest: str
    last_completed: str
    policy: str
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    savepoints: tuple[str, ...] = ()
    examined: Examined | None = None

    def encode(self) -> bytes:
        """Encode the completed file."""
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
            "extraMetadata": _extra(self.savepoints, self.examined),
        }
        return encode_record("HoodieCleanMetadata", record)

    @classmethod
    def decode(cls, data: bytes, source: str) -> CleanMetadata:
        """Decode a completed clean.

        Raises:
            CorruptFileError: the bytes are not such a record.
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
            examined=Examined.decode(_extra_of(record).get(_EXAMINED)),
        )


def _retained_record(earliest: RetainedInstant) -> dict[str, str]:
    return {"timestamp": earliest.requested, "action": earliest.action, "state": earliest.state}


def _retained(record: Mapping[str, str]) -> RetainedInstant:
    return RetainedInstant(record["timestamp"], record["action"], record["state"])


def _extra(savepoints: tuple[str, ...], examined: Examined | None) -> dict[str, str]:
    kept = {_SAVEPOINTS: ",".join(savepoints)} if savepoints else {}
    return kept if examined is None else {**kept, _EXAMINED: examined.encode()}


def _savepoints(record: AvroRecord) -> tuple[str, ...]:
    return tuple(time for time in _extra_of(record).get(_SAVEPOINTS, "").split(",") if time)


def _extra_of(record: AvroRecord) -> dict[str, str]:
    return cast("dict[str, str]", record["extraMetadata"] or {})
