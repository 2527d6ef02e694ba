"""Describe the indexes of a table: the partitions of its metadata table, and those that it could have.

See docs/format/07-index-and-metadata.md, "Metadata table". Nothing is changed, and no record is decoded: numbers are
those of names and trailers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streaming_lsm.errors import CorruptFileError, TableNotFound, UnsupportedTable
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.table.properties import listed
from streaming_lsm.metadata.commit import DELTA_COMMIT
from streaming_lsm.metadata.creation import INFLIGHT_KEY, PARTITIONS_KEY
from streaming_lsm.metadata.file_slices import METADATA_TABLE, MetadataFileSlice, counted_instants, is_first
from streaming_lsm.metadata.index_definitions import read_definitions
from streaming_lsm.metadata.partitions.registry import is_known
from streaming_lsm.services.context import ServiceContext
from streaming_lsm.services.indexes.names import OPTIONS
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline

_ATTEMPTS = 3
READY, UNREADABLE, BEING_BUILT, ABSENT = "ready", "unreadable", "being built", "absent"


@dataclass(frozen=True)
class IndexState:
    """An index that a table has, or could have.

    Attributes:
        name: partition of the metadata table.
        state: `READY`, `UNREADABLE`, `BEING_BUILT` or `ABSENT`.
        is_kept: whether writes of this package keep it up to date; else the next one drops it.
        file_groups, base_files, logs: numbers of file groups, and of files in their newest slices.
        bytes: size of these files.
        records: records in these files, older ones of a key and tombstones included.
        until: requested time of the newest action that it tells of; empty if none was completed since its creation.
        definition: what the table's index definitions say of it.
        note: why it cannot be read, or the option that asks for it.
    """

    name: str
    state: str
    is_kept: bool
    file_groups: int = 0
    base_files: int = 0
    logs: int = 0
    bytes: int = 0
    records: int = 0
    until: str = ""
    definition: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def columns(self) -> Sequence[str]:
        """The columns that the definition names."""
        found = self.definition.get("sourceFields")
        return [column for column in found if isinstance(column, str)] if isinstance(found, list) else []


def list_indexes(context: ServiceContext) -> tuple[IndexState, ...]:
    """Describe all indexes: those of the table first, then the others that this package makes.

    Raises:
        CorruptFileError: the table's timeline is damaged.
    """
    data = Timeline.load(context.storage, context.config.timeline_layout)
    properties = load_properties(context.storage)
    registered, building = (listed(properties.get(key, "")) for key in (PARTITIONS_KEY, INFLIGHT_KEY))
    definitions, why = _definitions(context, properties)
    found = [_state(context, data, name, definitions.get(name, {}), why) for name in registered]
    found += [
        IndexState(name, BEING_BUILT, False, note="it is being built") for name in building if name not in registered
    ]
    there = {*registered, *building}
    absent = [IndexState(name, ABSENT, True, note=f"{option.key}=true makes it") for name, option in OPTIONS.items()]
    return tuple(found + [state for state in absent if state.name not in there])


def _definitions(context: ServiceContext, properties: Mapping[str, str]) -> tuple[Mapping[str, Any], str]:
    try:
        return read_definitions(context.storage, properties), ""
    except (CorruptFileError, UnsupportedTable) as error:
        return {}, str(error)


def _state(context: ServiceContext, data: Timeline, name: str, definition: Mapping[str, Any], why: str) -> IndexState:
    fault = ""
    for _ in range(_ATTEMPTS):
        try:
            return _read_state(context, data, name, definition, why)
        except (CorruptFileError, UnsupportedTable, TableNotFound, OSError) as error:
            # A compaction of the metadata table may have deleted files meanwhile.
            fault = str(error)
    return IndexState(name, UNREADABLE, is_known(name), definition=definition, note=fault)


def _read_state(
    context: ServiceContext, data: Timeline, name: str, definition: Mapping[str, Any], why: str
) -> IndexState:
    metadata = Subfolder(context.storage, METADATA_TABLE)
    timeline, counts = Timeline.load(metadata, data.layout), counted_instants(data)
    sizes = {entry.name: entry.size for entry in metadata.list(name)}
    slices = MetadataFileSlice.newest_of_all(timeline, sizes, name, all_groups=True)
    if not slices:
        raise CorruptFileError(f"{metadata.uri}/{name} has no file")
    parts = [part for one in slices for part in one.parts(metadata, counts)]
    told = [
        write.requested
        for write in timeline.completed_writes
        if write.action == DELTA_COMMIT and not is_first(write.requested) and counts(write.requested)
    ]
    files = [str(file) for one in slices for file in (*((one.base,) if one.base else ()), *one.logs)]
    return IndexState(
        name,
        READY,
        is_known(name),
        file_groups=len(slices),
        base_files=sum(one.base is not None for one in slices),
        logs=sum(len(one.logs) for one in slices),
        bytes=sum(sizes[file] for file in files),
        records=sum(part.entry_count if isinstance(part, HFile) else len(part.keys) for part in parts),
        until=max(told, default=""),
        definition=definition,
        note=why,
    )
