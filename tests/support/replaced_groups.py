"""A completed replacecommit, as of another program: file groups are replaced by none."""

from __future__ import annotations

from collections.abc import Mapping

from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.schema import to_avro
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import Instant, State
from tests.support.small_tables import OPTIONS, SCHEMA


def put_replacement(
    storage: Storage, requested: str, completed: str, replaced: Mapping[str, tuple[str, ...]]
) -> Instant:
    """Create the files of the timeline; returns the completed instant.

    Args:
        replaced: file ids by partition.
    """
    action = Instant(requested, "replacecommit", State.REQUESTED)
    done = action.completed_at(completed)
    for path in (action.path, action.at(State.INFLIGHT).path):
        storage.put_if_absent(path, b"")
    schema = {"schema": to_avro(SCHEMA, str(OPTIONS["hoodie.table.name"]))}
    storage.put_if_absent(done.path, CommitMetadata((), "DELETE_PARTITION", schema, replaced=replaced).encode())
    return done
