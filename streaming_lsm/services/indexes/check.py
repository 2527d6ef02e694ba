"""Verify the indexes of a table: compare each partition of its metadata table with the table's files.

Nothing is changed, and no lock is held: other processes may write, compact and clean meanwhile. A difference counts if
the timeline has not changed since it was loaded, or if it is there in every look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from streaming_lsm import config
from streaming_lsm.errors import ConfigError, CorruptFileError, TableNotFound, UnsupportedTable
from streaming_lsm.format.table.properties import listed
from streaming_lsm.metadata.creation import PARTITIONS_KEY
from streaming_lsm.metadata.file_slices import METADATA_TABLE, DamagedAction, MetadataFileSlice
from streaming_lsm.metadata.listing import folder_listing, listing_differences, metadata_listing
from streaming_lsm.metadata.partitions.base import DAMAGE
from streaming_lsm.metadata.state import check_newest_known, check_properties, check_up_to_date
from streaming_lsm.services.context import ServiceContext, read_clean_plan
from streaming_lsm.services.indexes.bloom_check import check_bloom_filters
from streaming_lsm.services.indexes.data_readers import DATA_READERS, DataFault
from streaming_lsm.services.indexes.entry_check import check_secondary_index
from streaming_lsm.services.indexes.expression_check import check_expression_index
from streaming_lsm.services.indexes.findings import (
    BEHIND,
    DAMAGED,
    WRONG,
    Checked,
    CheckedState,
    IndexFinding,
)
from streaming_lsm.services.indexes.key_check import check_record_index
from streaming_lsm.services.indexes.names import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    EXPRESSION,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    SECONDARY,
    in_order,
)
from streaming_lsm.services.indexes.range_check import check_column_stats, check_partition_stats
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.instant import FLAT, Instant
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH, load_properties
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.planned_actions import pending_cleans

Check = Callable[[CheckedState], Checked]
_CHECKS: Mapping[str, Check] = {
    COLUMN_STATS: check_column_stats,
    PARTITION_STATS: check_partition_stats,
    BLOOM_FILTERS: check_bloom_filters,
    RECORD_INDEX: check_record_index,
}
_LOOKS = 3
_NAMED = 3


@dataclass(frozen=True)
class IndexCheck:
    """The result for a table.

    Attributes:
        records: number of records that were compared, by index; of ``files`` the number of files.
        findings: by index.
        unchecked: why an index is not compared, by its name: it is of another program.
    """

    records: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[IndexFinding, ...] = ()
    unchecked: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_sound(self) -> bool:
        """Whether all that was compared agrees."""
        return not self.findings


def check_indexes(context: ServiceContext, name: str | None = None) -> IndexCheck:
    """Compare the indexes of a table with its files; nothing is changed.

    Args:
        context: the table.
        name: the only index to check.

    Raises:
        ConfigError: the table has no such index.
        CorruptFileError: a data file cannot be read, see ``lsm verify``.
        ReadOvertaken: cleans have deleted files before they were read, in every look.
        StorageError: a file cannot be read at present.
    """
    found: IndexCheck | None = None
    for look in range(_LOOKS):
        storage, before = context.storage, _Moment.of(context)
        try:
            now = _look(storage, before, context.options[config.READ_THREADS], name)
        except DataFault as error:
            if look + 1 < _LOOKS and _Moment.of(context) != before:
                continue
            raise error.fault from error
        if found is not None:
            known = set(map(_known_by, found.findings))
            now = replace(now, findings=tuple(one for one in now.findings if _known_by(one) in known))
        found = now
        if found.is_sound or _Moment.of(context) == before:
            break
    assert found is not None
    return found


def _known_by(found: IndexFinding) -> tuple[str, str, str]:
    """Return by what a finding is known again: a file that is damaged by its name, which the message has."""
    return found.index, found.kind, found.message if found.kind == DAMAGED else ""


@dataclass(frozen=True)
class _Moment:
    """A state of a table and of its metadata table.

    Attributes:
        data: timeline of the table.
        properties: its properties, read later.
        timeline: timeline of the metadata table, loaded later; None without one.
        fault: why it cannot be loaded.
        instants: of both timelines.
        own: content of the properties of the metadata table; None without one.
    """

    data: Timeline = field(compare=False)
    properties: Mapping[str, str]
    timeline: Timeline | None = field(compare=False)
    fault: str
    instants: tuple[Sequence[Instant], Sequence[Instant]]
    own: bytes | None

    @classmethod
    def of(cls, context: ServiceContext) -> _Moment:
        """Load both timelines."""
        data = Timeline.load(context.storage, context.config.timeline_layout)
        properties = load_properties(context.storage)
        metadata, own = Subfolder(context.storage, METADATA_TABLE), None
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            own = metadata.read(PROPERTIES_PATH)
        timeline, fault = None, ""
        try:
            timeline = Timeline.load(metadata, data.layout)
        except (CorruptFileError, TableNotFound, NotADirectoryError) as error:
            fault = str(error)
        return cls(data, properties, timeline, fault, (data.instants, timeline.instants if timeline else ()), own)


def _look(storage: Storage, moment: _Moment, threads: int, only: str | None) -> IndexCheck:
    """Check the indexes of a table as it is now."""
    properties, data, timeline = moment.properties, moment.data, moment.timeline
    names = in_order(listed(properties.get(PARTITIONS_KEY, "")))
    if only is not None and only not in names:
        raise ConfigError(f"{storage.uri} has no index {only!r}; it has {', '.join(names) or 'none'}")
    if not names:
        return IndexCheck()
    if timeline is None:
        return IndexCheck(findings=(IndexFinding(FILES, DAMAGED, moment.fault),))
    state = CheckedState(
        storage=storage,
        data=data,
        timeline=timeline,
        properties=properties,
        files=folder_listing(storage, data),
        doomed=_doomed(storage, data),
        readers=DATA_READERS,
        threads=threads,
    )
    records: dict[str, int] = {}
    findings: list[IndexFinding] = []
    unchecked: dict[str, str] = {}
    for name in names if only is None else [only]:
        try:
            checked = _checked(name, state)
        except UnsupportedTable as error:
            unchecked[name] = str(error)
        else:
            records[name] = checked.records
            findings += (one for one in checked.findings if one not in findings)
    return IndexCheck(records, tuple(findings), unchecked)


def _check_of(name: str) -> Check:
    if name == FILES:
        return _check_files
    if name.startswith(SECONDARY):
        return partial(check_secondary_index, name)
    if name.startswith(EXPRESSION):
        return partial(check_expression_index, name)
    if name not in _CHECKS:
        raise UnsupportedTable("another program made it; the next write drops it")
    return _CHECKS[name]


def _checked(name: str, state: CheckedState) -> Checked:
    check = _check_of(name)
    if name != FILES and state.data.layout == FLAT:
        raise UnsupportedTable("it is compared from table version 8 on")
    try:
        if name != FILES:
            # One without records counts, too: keys are distributed by the number of file groups.
            MetadataFileSlice.newest_of_all(state.timeline, state.metadata.names(name), name, all_groups=True)
        return check(state)
    except DamagedAction as error:  # the next write drops all indexes for it
        return Checked(0, (IndexFinding(FILES, DAMAGED, str(error)),))
    except (CorruptFileError, TableNotFound, FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        return Checked(0, (IndexFinding(name, DAMAGED, str(error)),))
    except pa.ArrowInvalid as error:  # a key that is no UTF-8 text
        return Checked(0, (IndexFinding(name, DAMAGED, f"{METADATA_TABLE}/{name}: {error}"),))


def _check_files(state: CheckedState) -> Checked:
    """Compare the listing of files with the table's folders, and the properties and actions with those of the table."""
    count = sum(map(len, metadata_listing(state.storage, state.data).values()))
    told = [
        line
        for line in listing_differences(state.storage, state.data)
        if not any(line.startswith(f"{path}:") for path in state.doomed)
    ]
    findings = [IndexFinding(FILES, WRONG, _joined(told), len(told))] if told else []
    if state.data.layout != FLAT:
        try:
            check_properties(state.metadata, state.properties["hoodie.table.version"])
        except DAMAGE as error:  # the next write drops it for this
            findings.append(IndexFinding(FILES, DAMAGED, str(error)))
        try:
            check_up_to_date(state.timeline, state.data)
            check_newest_known(state.timeline, state.data)
        except CorruptFileError as error:
            findings.append(IndexFinding(FILES, BEHIND, str(error)))
    return Checked(count, tuple(findings))


def _joined(lines: Sequence[str]) -> str:
    more = f"; and {len(lines) - _NAMED:,} more" if len(lines) > _NAMED else ""
    return "; ".join(lines[:_NAMED]) + more


def _doomed(storage: Storage, data: Timeline) -> frozenset[str]:
    """Return the paths of files that pending cleans delete, which may be gone while they are listed."""
    paths: set[str] = set()
    for pending in pending_cleans(data):
        for partition, file in read_clean_plan(storage, pending).spelt_files():
            name = file.rpartition("/")[2]
            paths.add(f"{partition}/{name}" if partition else name)
    return frozenset(paths)
