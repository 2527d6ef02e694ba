"""Commit metadata as JSON, as tables up to version 6 keep it (format 02, Layout 1)."""

from __future__ import annotations

import json
from collections import defaultdict

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.avro import AvroValue
from streaming_lsm.format.commit import CommitMetadata, WriteStat


def decode_json(data: bytes, source: str) -> CommitMetadata:
    """Read a completed commit, deltacommit or replacecommit; the keys are the names of the Avro fields.

    Raises:
        CorruptFileError: the bytes are not such an object; the message names `source`.
    """
    try:
        record = json.loads(data)
        by_partition = record["partitionToWriteStats"]
        stats = [_stat(stat, partition) for partition, listed in by_partition.items() for stat in listed]
        replaced = record.get("partitionToReplaceFileIds")
        return CommitMetadata(
            stats=tuple(stats),
            operation_type=str(record.get("operationType") or "UNKNOWN"),
            extra={str(key): str(value) for key, value in (record.get("extraMetadata") or {}).items()},
            compacted=bool(record.get("compacted")),
            replaced=None if replaced is None else {key: tuple(map(str, ids)) for key, ids in replaced.items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise CorruptFileError(f"{source}: not the JSON of a commit ({reason:.200}); restore the file") from None


def _stat(stat: dict[str, AvroValue], partition: str) -> WriteStat:
    """Fields that a release of that time did not know are null."""
    return WriteStat.from_avro(defaultdict(lambda: None, stat), partition)
