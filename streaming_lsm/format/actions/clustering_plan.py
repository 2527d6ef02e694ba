"""Encode and decode clustering plans (docs/format/06-services.md, "Clustering").

A *clustering plan* lists *input groups*. The file slices of an input group are in one partition; their rows are sorted
together, and written to new file groups, which replace those of the slices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.actions.commit import file_path
from streaming_lsm.format.avro.container import AvroRecord, decode_record, encode_record

CLUSTER = "CLUSTER"
"""Operation type of a clustering."""
SORT_COLUMNS_PARAM = "hoodie.clustering.plan.strategy.sort.columns"
LAYOUT_PARAM = "hoodie.layout.optimize.strategy"
TARGET_BYTES_PARAM = "hoodie.clustering.plan.strategy.target.file.max.bytes"

_REQUEST = "HoodieRequestedReplaceMetadata"
_STRATEGY = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"


@dataclass(frozen=True, slots=True)
class ClusteredSlice:
    """A file slice that is clustered.

    Attributes:
        base_file: name of the base file; None if the slice has none.
        logs: names of the logs, ascending.
    """

    partition_path: str
    file_id: str
    base_file: str | None = None
    logs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InputGroup:
    """File slices of one partition whose rows are sorted together.

    Attributes:
        outputs: number of file groups that are expected to be written.
        metrics: bytes and files that are read, by Hudi's names.
    """

    slices: tuple[ClusteredSlice, ...]
    outputs: int
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusteringPlan:
    """Content of ``*.clustering.requested``.

    Attributes:
        groups: the input groups.
        params: how rows are sorted and files sized, by the keys of the options. Hudi reads the sort columns from them.
        version: version of the plan.
    """

    groups: tuple[InputGroup, ...]
    params: Mapping[str, str] = field(default_factory=dict)
    version: int = 1

    @property
    def sort_columns(self) -> tuple[str, ...]:
        """The columns by which rows are sorted; none for the record key."""
        names = (name.strip() for name in self.params.get(SORT_COLUMNS_PARAM, "").split(","))
        return tuple(name for name in names if name)

    @property
    def file_groups(self) -> frozenset[tuple[str, str]]:
        """Partition path and file id of each file group that is replaced."""
        return frozenset((one.partition_path, one.file_id) for group in self.groups for one in group.slices)

    def encode(self, base_path: str) -> bytes:
        """Encode the requested file.

        Args:
            base_path: path or URI of the table, nothing of it quoted: Hudi names files by their whole paths.
        """
        strategy = {"strategyClassName": _STRATEGY, "strategyParams": dict(self.params), "version": 1}
        plan = {
            "inputGroups": [_group_record(group, base_path) for group in self.groups],
            "strategy": strategy,
            "extraMetadata": {},
            "version": self.version,
            "preserveHoodieMetadata": True,
            "missingSchedulePartitions": [],
        }
        request = {"operationType": CLUSTER, "clusteringPlan": plan, "extraMetadata": {}, "version": 1}
        return encode_record(_REQUEST, request)

    @classmethod
    def decode(cls, data: bytes, source: str) -> ClusteringPlan:
        """Decode a plan.

        Raises:
            CorruptFileError: the bytes are not such a record, it has no plan, or a slice has no file group.
        """
        plan = cast("AvroRecord | None", decode_record(_REQUEST, data, source)["clusteringPlan"])
        if plan is None:
            raise CorruptFileError(f"{source}: there is no clustering plan; restore the file or delete it")
        strategy = cast("AvroRecord", plan["strategy"] or {})
        version = cast("int | None", plan["version"])
        return cls(
            tuple(_group(record, source) for record in cast("list[AvroRecord]", plan["inputGroups"] or [])),
            cast("dict[str, str]", strategy.get("strategyParams") or {}),
            1 if version is None else version,
        )


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
    plan = cast("AvroRecord | None", decode_record(_REQUEST, data, source)["clusteringPlan"])
    groups = cast("list[AvroRecord]", (plan or {}).get("inputGroups") or [])
    slices = [found for group in groups for found in cast("list[AvroRecord]", group["slices"] or [])]
    return frozenset((str(found["partitionPath"] or ""), str(found["fileId"] or "")) for found in slices)


def _group_record(group: InputGroup, base_path: str) -> dict[str, object]:
    return {
        "slices": [_slice_record(one, base_path) for one in group.slices],
        "metrics": dict(group.metrics),
        "numOutputFileGroups": group.outputs,
        "extraMetadata": {},
        "version": 1,
    }


def _slice_record(one: ClusteredSlice, base_path: str) -> dict[str, object]:
    def whole(name: str) -> str:
        return f"{base_path}/{file_path(one.partition_path, name)}"

    return {
        "dataFilePath": whole(one.base_file) if one.base_file else "",
        "deltaFilePaths": [whole(name) for name in one.logs],
        "fileId": one.file_id,
        "partitionPath": one.partition_path,
        "bootstrapFilePath": "",
        "version": 1,
    }


def _group(record: AvroRecord, source: str) -> InputGroup:
    outputs = cast("int | None", record["numOutputFileGroups"])
    return InputGroup(
        tuple(_slice(one, source) for one in cast("list[AvroRecord]", record["slices"] or [])),
        1 if outputs is None else outputs,
        cast("dict[str, float]", record["metrics"] or {}),
    )


def _slice(record: AvroRecord, source: str) -> ClusteredSlice:
    file_id = cast("str | None", record["fileId"])
    if not file_id:
        raise CorruptFileError(f"{source}: a slice names no file group; restore the file or delete it")
    if record["bootstrapFilePath"]:
        raise CorruptFileError(f"{source}: file group {file_id} has a bootstrap file: finish the clustering with Hudi")
    path = cast("str | None", record["dataFilePath"])
    logs = (name.rpartition("/")[2] for name in cast("list[str]", record["deltaFilePaths"] or []))
    return ClusteredSlice(
        partition_path=cast("str | None", record["partitionPath"]) or "",
        file_id=file_id,
        base_file=path.rpartition("/")[2] if path else None,
        logs=tuple(logs),
    )
