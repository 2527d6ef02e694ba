"""Encode and decode the plan of an indexing action, and what it did (docs/format/02-timeline.md, "Indexing").

An *indexing* action builds a partition of the metadata table while writers go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.avro.container import AvroRecord, decode_record, encode_record

_VERSION = 1


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """Content of a requested indexing action of one partition.

    Attributes:
        partition: the partition of the metadata table.
        upto: requested time of the last write that was completed when the action was planned; empty without one.
        extra: further entries.
    """

    partition: str
    upto: str
    extra: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Encode the requested file."""
        return encode_record("HoodieIndexPlan", {"version": _VERSION, "indexPartitionInfos": [self._info]})

    def encode_completed(self, upto: str) -> bytes:
        """Encode the completed file of the action, which caught up with the writes until `upto`."""
        infos = [{**self._info, "indexUptoInstant": upto}]
        return encode_record("HoodieIndexCommitMetadata", {"version": _VERSION, "indexPartitionInfos": infos})

    @property
    def _info(self) -> AvroRecord:
        return {
            "version": _VERSION,
            "metadataPartitionPath": self.partition,
            "indexUptoInstant": self.upto,
            "extraMetadata": dict(self.extra),
        }

    @classmethod
    def decode_all(cls, data: bytes, source: str) -> tuple[IndexPlan, ...]:
        """Decode the plans of all partitions of a requested file; raises `CorruptFileError` if it is none."""
        record = decode_record("HoodieIndexPlan", data, source)
        infos = cast("list[AvroRecord] | None", record["indexPartitionInfos"]) or []
        plans = []
        for info in infos:
            partition = info["metadataPartitionPath"]
            if not isinstance(partition, str):
                raise CorruptFileError(f"{source} names no partition of the metadata table: delete it")
            extra = cast("Mapping[str, str] | None", info["extraMetadata"]) or {}
            plans.append(cls(partition, cast("str | None", info["indexUptoInstant"]) or "", extra))
        return tuple(plans)
