"""Encode and decode restore plans and restore metadata (docs/format/02-timeline.md, "Restore").

A *restore plan* lists the actions that are undone to return to a savepoint, *restore metadata* those that were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.actions.rollback import RollbackMetadata
from streaming_lsm.format.avro.container import AvroRecord, decode_record, encode_record

UndoneAction = tuple[str, str]
"""Requested time and action."""


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Content of ``*.restore.requested``.

    Attributes:
        undone: the actions to undo, the last one first.
        savepoint: requested time of the savepoint.
    """

    undone: tuple[UndoneAction, ...]
    savepoint: str

    def encode(self) -> bytes:
        """Encode the requested file."""
        record = {
            "instantsToRollback": _infos(self.undone),
            "version": 2,
            "savepointToRestoreTimestamp": self.savepoint,
        }
        return encode_record("HoodieRestorePlan", record)

    @classmethod
    def decode(cls, data: bytes, source: str) -> RestorePlan:
        """Decode a plan.

        Raises:
            CorruptFileError: the bytes are not such a record.
        """
        record = decode_record("HoodieRestorePlan", data, source)
        listed = cast("list[dict[str, str]]", record["instantsToRollback"])
        savepoint = cast("str | None", record["savepointToRestoreTimestamp"]) or ""
        return cls(tuple((each["commitTime"], each["action"]) for each in listed), savepoint)


@dataclass(frozen=True, slots=True)
class RestoreMetadata:
    """Content of a completed restore.

    Attributes:
        start: requested time of the restore itself.
        duration_ms: duration in milliseconds.
        undone: the actions that were undone, the last one first.
        rollbacks: what was deleted for each of them; not decoded.
    """

    start: str
    duration_ms: int
    undone: tuple[UndoneAction, ...]
    rollbacks: tuple[RollbackMetadata, ...] = ()

    def encode(self) -> bytes:
        """Encode the completed file."""
        record = {
            "startRestoreTime": self.start,
            "timeTakenInMillis": self.duration_ms,
            "instantsToRollback": [requested for requested, _ in self.undone],
            "hoodieRestoreMetadata": {rollback.instant: [rollback.record()] for rollback in self.rollbacks},
            "version": 1,
            "restoreInstantInfo": _infos(self.undone),
        }
        return encode_record("HoodieRestoreMetadata", record)

    @classmethod
    def decode(cls, data: bytes, source: str) -> RestoreMetadata:
        """Decode a completed restore, without its rollbacks.

        Raises:
            CorruptFileError: the bytes are not such a record.
        """
        record = decode_record("HoodieRestoreMetadata", data, source)
        infos = cast("list[AvroRecord]", record["restoreInstantInfo"] or [])
        actions = {cast(str, each["commitTime"]): cast(str, each["action"]) for each in infos}
        listed = cast("list[str]", record["instantsToRollback"])
        if not all(requested.isdigit() for requested in listed):
            raise CorruptFileError(f"{source}: names {listed!r:.80} as undone, which are no instants; restore the file")
        undone = tuple((requested, actions.get(requested, "")) for requested in listed)
        return cls(cast(str, record["startRestoreTime"]), cast(int, record["timeTakenInMillis"]), undone)


def _infos(undone: tuple[UndoneAction, ...]) -> list[dict[str, str]]:
    return [{"commitTime": requested, "action": action} for requested, action in undone]
