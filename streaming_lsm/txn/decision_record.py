"""Encode and decode decision records, files in ``.hoodie/.decisions`` (docs/layout.md, "Decision records")."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass

from streaming_lsm.bounded_json import parse_json
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import Instant

DECISION_FOLDER = ".hoodie/.decisions"
SAVEPOINT_RECORD = ".savepoint."
"""In the names of records of savepoints, whose requested time is that of a write."""

_MOST_HEAD = 1 << 12


def decision_path(requested: str) -> str:
    """Return the path of the decision record of an action without runs, that is of a write."""
    return f"{DECISION_FOLDER}/{requested}"


@dataclass(frozen=True, slots=True)
class Decision:
    """Record whether an action, or one run of it, is completed or undone.

    Attributes:
        path: path of the decision record.
        completed: the completed instant; None if the action is undone.
        data: content of the completed file.
    """

    path: str
    completed: Instant | None = None
    data: bytes = b""

    def encode(self) -> bytes:
        """Encode a line of JSON, followed by the content of the completed file.

        The line has the name of that file, or null, and a CRC-32 of name and content: a damaged record would publish a
        damaged commit.
        """
        name = self.completed.file_name if self.completed else None
        head = {"completed": name, "crc32": _checksum(name, self.data)}
        return json.dumps(head).encode() + b"\n" + self.data

    @classmethod
    def read(cls, storage: Storage, path: str) -> Decision:
        """Read a decision record.

        Raises:
            CorruptFileError: the record is damaged.
            FileNotFoundError: the record is missing.
        """
        head, line_feed, data = storage.read(path).partition(b"\n")
        try:
            fields = parse_json(head, _MOST_HEAD)
            name, checksum = fields["completed"], fields["crc32"]
            if not line_feed or checksum != _checksum(name, data):
                raise CorruptFileError(_damaged(storage, path))
            completed = None if name is None else Instant.parse(name)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise CorruptFileError(_damaged(storage, path)) from None
        requested = path.rpartition("/")[2].partition(".")[0]
        if name is not None and (completed is None or not completed.is_completed or completed.requested != requested):
            raise CorruptFileError(_damaged(storage, path))
        return cls(path, completed, data)


def _checksum(name: str | None, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32((name or "").encode()))


def _damaged(storage: Storage, path: str) -> str:
    return (
        f"{path} in {storage.uri} is not a decision record of its action: restore it; or, if none of the action's "
        "rows were acknowledged, delete it to have the action undone"
    )
