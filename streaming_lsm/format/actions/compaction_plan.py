"""Encode and decode compaction plans.

A *compaction plan* lists *compaction operations*. A FULL operation merges one file slice into a new base file, a LOG
operation merges logs of one slice into a larger log. A *hybrid plan* may have both.
See docs/format/06-services.md, "Compaction", "Log compaction", "Hybrid compaction"; docs/format/10-rules.md, "Rule 22",
"Rule 23", "Rule 24".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.avro.container import AvroRecord, decode_record, encode_record

PLAN_VERSION = 2
"""Version of plans with file names instead of paths."""
HYBRID_PLAN_VERSION = 3
"""Version of plans whose operations have a type."""
FULL, LOG = "FULL", "LOG"
"""Types of operations."""

_PLAN, _HYBRID_PLAN = "HoodieCompactionPlan", "HybridCompactionPlan"
_HYBRID_CLASS = "org.apache.hudi.table.action.compact.plan.generators.HybridCompactionPlanGenerator"
_LOG_CLASS = "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper"


@dataclass(frozen=True, slots=True)
class CompactionOperation:
    """Operation that merges one file slice into one base file, or logs of one slice into a larger log.

    Attributes:
        base_instant: instant of the base file; for a slice without base file its smallest log instant.
        logs: names of the logs, ascending. FULL: all logs of the slice, including those that a log compaction replaced;
            LOG: the logs to merge, none of which was replaced.
        base_file: name of the base file; None if the slice has none.
        metrics: input of the compaction strategies, by Hudi's names (`TOTAL_LOG_FILES`, `TOTAL_LOG_FILES_SIZE`, …).
        type: `FULL` or `LOG`.
    """

    partition_path: str
    file_id: str
    base_instant: str
    logs: tuple[str, ...]
    base_file: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    type: str = FULL

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all files of the operation, the base file first; a LOG operation does not read that."""
        return (*((self.base_file,) if self.base_file else ()), *self.logs)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Content of ``*.compaction.requested`` and ``*.logcompaction.requested``.

    Attributes:
        operations: one per file group.
        version: version of the plan; this package writes 3 if the plan may have operations of both types, else 2.
    """

    operations: tuple[CompactionOperation, ...]
    version: int = PLAN_VERSION

    def encode(self) -> bytes:
        """Encode the requested file.

        Raises:
            ValueError: operations of both types in a version that cannot tell them apart.
        """
        hybrid, types = self.version >= HYBRID_PLAN_VERSION, {operation.type for operation in self.operations}
        if len(types) > 1 and not hybrid:
            raise ValueError(f"plan version {self.version} has operations of one type only, not {sorted(types)}")
        is_log = types == {LOG} and not hybrid
        record = {
            "operations": [_operation_record(operation, hybrid=hybrid) for operation in self.operations],
            "extraMetadata": {},
            "version": self.version,
            "strategy": {"compactorClassName": _HYBRID_CLASS if hybrid else _LOG_CLASS} if hybrid or is_log else None,
            "preserveHoodieMetadata": is_log,
            "missingSchedulePartitions": [],
        }
        return encode_record(_HYBRID_PLAN if hybrid else _PLAN, record)

    @classmethod
    def decode(cls, data: bytes, source: str, *, log: bool = False) -> CompactionPlan:
        """Decode a plan.

        Args:
            log: whether it is of a ``logcompaction``, whose operations are of type LOG without saying so.

        Raises:
            CorruptFileError: the bytes are not such a record, an operation has no file group, or another type.
        """
        record = decode_record(_HYBRID_PLAN, data, source)
        listed = cast("list[AvroRecord]", record["operations"] or [])
        version = cast("int | None", record["version"])
        operations = tuple(_operation(entry, source, LOG if log else FULL) for entry in listed)
        return cls(operations, 1 if version is None else version)


def _operation_record(operation: CompactionOperation, *, hybrid: bool) -> dict[str, object]:
    return {
        "baseInstantTime": operation.base_instant,
        "deltaFilePaths": list(operation.logs),
        "dataFilePath": operation.base_file,
        "fileId": operation.file_id,
        "partitionPath": operation.partition_path,
        "metrics": dict(operation.metrics),
        "bootstrapFilePath": None,
        **({"operationType": operation.type} if hybrid else {}),
    }


def _operation(record: AvroRecord, source: str, default: str) -> CompactionOperation:
    file_id = cast("str | None", record["fileId"])
    if not file_id:
        raise CorruptFileError(f"{source}: an operation names no file group; restore the file or delete it")
    kind = cast("str | None", record["operationType"]) or default
    allowed = (LOG,) if default == LOG else (FULL, LOG)
    if kind not in allowed:
        raise CorruptFileError(
            f"{source}: file group {file_id} has an operation of type {kind:.80}, expected "
            f"{' or '.join(allowed)}: restore the file, or delete it to cancel the compaction"
        )
    return CompactionOperation(
        partition_path=cast("str | None", record["partitionPath"]) or "",
        file_id=file_id,
        base_instant=cast("str | None", record["baseInstantTime"]) or "",
        logs=tuple(cast("list[str]", record["deltaFilePaths"] or [])),
        base_file=cast("str | None", record["dataFilePath"]) or None,
        metrics=cast("dict[str, float]", record["metrics"] or {}),
        type=kind,
    )
