"""Decode clustering plans (docs/format/06-services.md, "Clustering")."""

from __future__ import annotations

from typing import cast

from streaming_lsm.format.avro.container import AvroRecord, decode_record


def clustered_groups(data: bytes, source: str) -> frozenset[tuple[str, str]]:
    """Return the partition path and file id of each file group that a requested replace action clusters.

    Args:
        data: content of the requested file; empty for an action without a plan, such as insert_overwrite.
        source: path of the file, for messages.

    Raises:
        CorruptFileError: the bytes are no such plan.
    """
    if not data:
        return frozenset()
    plan = cast("AvroRecord | None", decode_record("HoodieRequestedReplaceMetadata", data, source)["clusteringPlan"])
    groups = cast("list[AvroRecord]", (plan or {}).get("inputGroups") or [])
    slices = [found for group in groups for found in cast("list[AvroRecord]", group["slices"] or [])]
    return frozenset((str(found["partitionPath"] or ""), str(found["fileId"] or "")) for found in slices)
