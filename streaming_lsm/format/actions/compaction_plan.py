"""Encode and decode compaction plans.

A *compaction plan* lists *compaction operations*, each of which merges one file slice into a new base file.
See docs/format/06-services.md, "Compaction"; docs/format/10-rules.md, "Rule 22", "Rule 23", "Rule 24".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.avro.container import AvroRecord, decode_record, encode_record

PLAN_VERSION = 2
"""Version of plans with file names instead of paths; version 3 is a hybrid plan."""

_PLAN = "HoodieCompactionPlan"


@dataclass(frozen=True, slots=True)
class CompactionOperation:
    """Operation that merges one file slice into one base file.

    Attributes:
        base_instant: instant of the base file; for a slice without base file its smallest log instant.
        logs: names of all logs of the slice, ascending, including those that a log compaction replaced.
        base_file: name of the base file; None if the slice has none.
        metrics: input of the compaction strategies, by Hudi's names (`TOTAL_LOG_FILES`, `TOTAL_LOG_FILES_SIZE`, …).
    """

    partition_path: str
    file_id: str
    base_instant: str
    logs: tuple[str, ...]
    base_file: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all files to merge, the base file first."""
        return (*((self.base_file,) if self.base_file else ()), *self.logs)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Content of ``*.compaction.requested`` and ``*.logcompaction.requested``.

    Attributes:
        operations: one per file group.
        version: version of the plan; this package writes 2.
    """

    operations: tuple[CompactionOperation, ...]
    version: int = PLAN_VERSION

    def encode(self) -> bytes:
        """Encode the requested file."""
        record = {
            "operations": [_operation_record(operation) for operation in self.operations],
            "extraMetadata": {},
            "version": self.version,
            "strategy": None,
            "preserveHoodieMetadata": False,
            "missingSchedulePartitions": [],
        }
        return encode_record(_PLAN, record)

    @classmethod
    def decode(cls, data: bytes, source: str) -> CompactionPlan:
        """Decode a plan.

        Raises:
            CorruptFileError: the bytes are not such a record, or an operation has no file group.
        """
        record = decode_record(_PLAN, data, source)
        listed = cast("list[AvroRecord]", record["operations"] or [])
        version = cast("int | None", record["version"])
        return cls(tuple(_operation(entry, source) for entry in listed), 1 if version is None else version)


def _operation_record(operation: CompactionOperation) -> dict[str, object]:
    return {
        "baseInstantTime": operation.base_instant,
        "deltaFilePaths": list(operation.logs),
        "dataFilePath": operation.base_file,
        "fileId": operation.file_id,
        "partitionPath": operation.partition_path,
        "metrics": dict(operation.metrics),
        "bootstrapFilePath": None,
    }


def _operation(record: AvroRecord, source: str) -> CompactionOperation:
    file_id = cast("str | None", record["fileId"])
    if not file_id:
        raise CorruptFileError(f"{source}: an operation names no file group; restore the file or delete it")
    return CompactionOperation(
        partition_path=cast("str | None", record["partitionPath"]) or "",
        file_id=file_id,
        base_instant=cast("str | None", record["baseInstantTime"]) or "",
        logs=tuple(cast("list[str]", record["deltaFilePaths"] or [])),
        base_file=cast("str | None", record["dataFilePath"]) or None,
        metrics=cast("dict[str, float]", record["metrics"] or {}),
    )
