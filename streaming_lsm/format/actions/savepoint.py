"""Encode and decode savepoints (docs/format/02-timeline.md, "Savepoint").

A *savepoint* lists the files that a clean must retain, so that the table can be read, or restored, as of a write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from streaming_lsm.format.avro.container import AvroRecord, decode_record, encode_record


@dataclass(frozen=True, slots=True)
class SavepointMetadata:
    """Content of a completed savepoint.

    Attributes:
        user: who made it.
        saved_ms: when it was made, milliseconds since the epoch.
        comment: why it was made.
        files: names of the retained files, base files and logs, by partition path.
    """

    user: str
    saved_ms: int
    comment: str
    files: Mapping[str, tuple[str, ...]]

    def encode(self) -> bytes:
        """Encode the completed file."""
        partitions = {
            partition: {"partitionPath": partition, "savepointDataFile": list(names)}
            for partition, names in self.files.items()
        }
        record = {
            "savepointedBy": self.user,
            "savepointedAt": self.saved_ms,
            "comments": self.comment,
            "partitionMetadata": partitions,
            "version": 1,
        }
        return encode_record("HoodieSavepointMetadata", record)

    @classmethod
    def decode(cls, data: bytes, source: str) -> SavepointMetadata:
        """Decode a completed savepoint.

        Raises:
            CorruptFileError: the bytes are not such a record.
        """
        record = decode_record("HoodieSavepointMetadata", data, source)
        partitions = cast("dict[str, AvroRecord]", record["partitionMetadata"])
        return cls(
            user=cast(str, record["savepointedBy"]),
            saved_ms=cast(int, record["savepointedAt"]),
            comment=cast(str, record["comments"]),
            files={name: tuple(cast("list[str]", kept["savepointDataFile"])) for name, kept in partitions.items()},
        )


def decode_savepoint(data: bytes, source: str) -> Mapping[str, tuple[str, ...]]:
    """Decode the names of the files that a completed savepoint retains, by partition path; raises as `decode`."""
    return SavepointMetadata.decode(data, source).files
