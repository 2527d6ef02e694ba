"""Search record keys in the files of shards of the partition ``record_index``, and decode what they have.

See docs/format/07-index-and-metadata.md, "Record index".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import take
from streaming_lsm.arrow.columns import Flags, Int64s, flags, int64s, pc
from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.hfile.cells import Cells
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.metadata.record_index import PARTITION, decode_locations
from streaming_lsm.metadata.shard_files import LOCATED, LoggedKeys, ShardFile, encoded, whole

_FEW_CELLS, _MOST_TOGETHER = 1 << 11, 1 << 16
"""Cells of a file up to which they are decoded with those of other files, and cells that are decoded together."""


@dataclass(frozen=True)
class FoundKeys:
    """Locations of some record keys.

    Attributes:
        keys: index of the key of each location, int64 (n,), ascending once they are `joined`; in a partitioned index a
            key may have several.
        locations: the columns `LOCATED`, n rows.
    """

    keys: Int64s
    locations: pa.RecordBatch

    def at(self, places: Int64s) -> FoundKeys:
        """Return the locations with the places of their keys in place of their indices."""
        return FoundKeys(places[self.keys], self.locations)


@dataclass(frozen=True)
class FoundCells:
    """Cells of some record keys in an HFile, few enough to decode them with those of other files.

    Attributes:
        keys: see `FoundKeys`.
        cells: the cells, n.
        schema_json: Avro JSON of their values.
        source: name of the HFile, for messages. The HFile itself is closed again, as there may be thousands.
    """

    keys: Int64s
    cells: Cells
    schema_json: str
    source: str

    def at(self, places: Int64s) -> FoundCells:
        """See `FoundKeys.at`."""
        return replace(self, keys=places[self.keys])


def decoded(found: Iterable[FoundKeys | FoundCells]) -> Iterator[FoundKeys]:
    """Decode cells of several files together, as a call takes longer than a hundred cells."""
    waiting: list[FoundCells] = []
    count = 0
    for some in found:
        if isinstance(some, FoundKeys):
            yield some
            continue
        if waiting and (waiting[0].schema_json != some.schema_json or count + len(some.cells) > _MOST_TOGETHER):
            yield _decoded_together(waiting)
            waiting, count = [], 0
        waiting.append(some)
        count += len(some.cells)
    if waiting:
        yield _decoded_together(waiting)


def _decoded_together(found: Sequence[FoundCells]) -> FoundKeys:
    schema, source = found[0].schema_json, f"{len(found)} files of {PARTITION}"
    try:
        locations = encoded([decode_locations(Cells.joined([some.cells for some in found]), schema, source)])
    except (CorruptFileError, UnsupportedTable):
        for some in found:  # one of them names the file
            decode_locations(some.cells, schema, some.source)
        raise
    return FoundKeys(np.concatenate([some.keys for some in found]), locations)


def newest_found(parts: Sequence[ShardFile], keys: Any, scan_share: float) -> Iterator[FoundKeys | FoundCells]:
    """Find the newest record of each key in the files of a shard; one that a delete hides is not found."""
    left: Int64s = np.arange(len(keys))
    for part in _adjacent(reversed(parts)):
        if not len(left):
            return
        wanted = keys if len(left) == len(keys) else keys.take(pa.array(left))
        seen, found = _in_file(part, wanted, scan_share) if isinstance(part, HFile) else _in_logs(part, wanted)
        for some in found:
            yield some.at(left)
        left = left[~seen]


def _adjacent(parts: Iterable[ShardFile]) -> Iterator[HFile | Sequence[LoggedKeys]]:
    """Yield HFiles, and the small logs between them together, which are searched at once."""
    logs: list[LoggedKeys] = []
    for part in parts:
        if isinstance(part, LoggedKeys):
            logs.append(part)
            continue
        if logs:
            yield logs
            logs = []
        yield part
    if logs:
        yield logs


def _in_logs(logs: Sequence[LoggedKeys], wanted: Any) -> tuple[Flags, list[FoundCells]]:
    """Search keys in logs, the newest first: flag those that one has, and return the cells of each log."""
    nth = pc.index_in(wanted, value_set=pa.concat_arrays([log.keys for log in logs]))
    seen = flags(nth.is_valid())
    places, rows = np.flatnonzero(seen), int64s(nth.drop_null())
    ends = np.cumsum([len(log.keys) for log in logs])
    of_log = np.searchsorted(ends, rows, "right")
    found: list[FoundCells] = []
    for number in np.unique(of_log).tolist():
        log, is_of = logs[number], of_log == number
        if log.cells is not None:
            cells = log.cells.at(rows[is_of] - (ends[number] - len(log.keys)))
            found.append(FoundCells(places[is_of], cells, log.schema_json, log.source))
    return seen, found


def _in_file(file: HFile, wanted: Any, scan_share: float) -> tuple[Flags, list[FoundKeys | FoundCells]]:
    """Search keys in an HFile: flag those that it has, and return the locations, or the cells of few keys."""
    seen: Flags = np.zeros(len(wanted), np.bool_)
    is_many = len(wanted) > scan_share * file.entry_count
    cells = list((file.scan if is_many else file.seek)(wanted))
    if not cells:
        return seen, []
    found: Any = pa.concat_arrays([some.keys for some in cells])
    places = int64s(pc.index_in(found, value_set=wanted))
    seen[places] = True
    if len(found) <= _FEW_CELLS:
        values: Any = pa.concat_arrays([some.values for some in cells])
        return seen, [FoundCells(places, Cells.of(found, values), file.schema_json, file.source)]
    locations = encoded([decode_locations(some, file.schema_json, file.source) for some in cells])
    return seen, [FoundKeys(places, locations)]


def joined(parts: Sequence[FoundKeys]) -> FoundKeys:
    """Join locations, ascending by key."""
    keys = np.concatenate([np.zeros(0, np.int64), *(part.keys for part in parts)])
    locations = whole(pa.Table.from_batches([part.locations for part in parts], LOCATED))
    order = np.argsort(keys, kind="stable")
    return FoundKeys(keys[order], take_rows(locations, order))


def spread(found: FoundKeys, places: Int64s, nth: Int64s) -> FoundKeys:
    """Return the location of each key at `places`, given which of the distinct keys it is; a key has at most one."""
    at = np.minimum(np.searchsorted(found.keys, nth), max(len(found.keys) - 1, 0))
    has = found.keys[at] == nth if len(found.keys) else np.zeros(len(nth), np.bool_)
    return FoundKeys(places[has], take_rows(found.locations, at[has]))


def aligned(found: FoundKeys, count: int) -> pa.RecordBatch:
    """Return a row for each of `count` keys, null without a location."""
    rows, absent = np.zeros(count, np.int64), np.ones(count, np.bool_)
    rows[found.keys], absent[found.keys] = np.arange(len(found.keys)), False
    if not len(found.keys):
        return pa.RecordBatch.from_arrays([pa.nulls(count, field.type) for field in LOCATED], names=LOCATED.names)
    columns = [take(column, rows, absent) for column in found.locations.columns]
    return pa.RecordBatch.from_arrays(columns, names=LOCATED.names)


def take_rows(batch: pa.RecordBatch, places: Int64s) -> pa.RecordBatch:
    """Return the rows at some places."""
    indices: Any = pa.array(places)
    return batch.take(indices)
