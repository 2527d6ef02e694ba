"""Read and write the versions of a table's columns, which are kept where columns were changed by ids.

See docs/format/01-table.md, "Schema-on-read".
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.column_versions import ColumnVersions
from streaming_lsm.format.internal_schema import LATEST_SCHEMA_KEY, SCHEMA_FOLDER, InternalSchema, decode_versions
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline

_FILE = re.compile(r"(?P<instant>[0-9]{1,18})(_[0-9]{1,18})?\.schemacommit")


def column_versions(timeline: Timeline, needed: Collection[str] = ()) -> ColumnVersions | None:
    """Read the versions of the table's columns until a timeline; None if its newest write has no ids.

    Args:
        timeline: ends with the columns that are wanted.
        needed: columns by whose names the table's properties say how keys, paths and order are made.

    Raises:
        CorruptFileError: the versions before are missing or damaged.
        UnsupportedTable: the type of a column was changed other than to a wider one, or a needed one was renamed.
    """
    write = timeline.newest_with_schema
    text = None if write is None else timeline.read_commit(write).extra.get(LATEST_SCHEMA_KEY)
    if write is None or not text:
        return None
    found = timeline.facts.columns.get(write)
    if found is None:
        found = _read(timeline, write, text)
        timeline.facts.columns.clear()
        timeline.facts.columns[write] = found
    renamed = found.renamed_of(needed)
    if renamed is not None:
        raise UnsupportedTable(
            f"{write.path}: column {renamed[1]!r} was renamed from {renamed[0]!r}, with Hudi's schema-on-read, but the "
            "record key, partition path, order or deletes of the table are made from it: rename it back with Hudi"
        )
    return found


def _read(timeline: Timeline, write: Instant, text: str) -> ColumnVersions:
    """Read the versions until a write that has `text` as its internal schema; raises as `column_versions`."""
    latest = InternalSchema.decode(text, f"{write.path}: {LATEST_SCHEMA_KEY}")
    older = sorted((one for one in _versions(timeline.storage, latest) if one.version < latest.version), key=_version)
    fault = latest.fault_of_types(older)
    if fault:
        raise UnsupportedTable(
            f"{write.path}: {fault}, with Hudi's schema-on-read, and this is no wider type: read the table as of a "
            "time before the change, or write its rows to a new table with Hudi"
        )
    # Of the whole timeline, as other timelines that end with this write take them, too.
    told = _told(timeline.whole, [_version(one) for one in (*older, latest)])
    return ColumnVersions(latest, older, dict(told))


def save_column_versions(timeline: Timeline, versions: ColumnVersions, requested: str, time: str) -> None:
    """Write the file of all versions for a write that is not complete yet; readers look for what is completed in it.

    Files of writes that are no more on the active timeline are deleted, as Hudi does not take them.

    Args:
        timeline: the timeline just before the write.
        versions: as of the write.
        requested: requested time of the write.
        time: a later time.

    Raises:
        UnsupportedTable: they are more than readers take.
    """
    storage = timeline.storage
    content = versions.encode(storage.uri).encode()
    storage.put_if_absent(f"{SCHEMA_FOLDER}/{requested}_{time}.schemacommit", content)
    names = storage.names(SCHEMA_FOLDER)
    active = {write.requested for write in timeline.completed_writes}
    if any(instant in active for instant, _ in _files(names)):
        old = [name for name in names if name.partition(".")[0].partition("_")[0] < timeline.first]
        storage.delete_files([f"{SCHEMA_FOLDER}/{name}" for name in old])


def latest_schemas(storage: Storage) -> Mapping[str, str]:
    """Read the internal schemas of writes from their files of versions, by requested time.

    Raises:
        CorruptFileError: a file is damaged.
    """
    found = {}
    for instant, name in sorted(_files(storage.names(SCHEMA_FOLDER))):
        versions = _read_versions(storage, name)
        found[instant] = versions[0].encode() if versions else ""  # the newest is the first
    return found


def _read_versions(storage: Storage, name: str) -> list[InternalSchema]:
    path = f"{SCHEMA_FOLDER}/{name}"
    return decode_versions(storage.read(path).decode("utf-8", "replace"), f"{storage.uri}/{path}")


def _versions(storage: Storage, latest: InternalSchema) -> list[InternalSchema]:
    """Read the newest file that has a version; it has all versions before that, too, whatever became of its write."""
    for _, name in sorted(_files(storage.names(SCHEMA_FOLDER)), reverse=True):
        with suppress(FileNotFoundError):  # deleted by a write since, as it was that of an archived one
            found = _read_versions(storage, name)
            if any(one.version == latest.version for one in found):
                return found
    if latest.version:
        raise CorruptFileError(
            f"{storage.uri}/{SCHEMA_FOLDER}: no file has the columns as of {latest.version}, so that it is not known "
            "under which names older files have them; restore the folder"
        )
    return []


def _files(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(match["instant"], name) for name in names if (match := _FILE.fullmatch(name))]


def _version(schema: InternalSchema) -> int:
    return schema.version


def _told(timeline: Timeline, versions: Sequence[int]) -> Iterator[tuple[str, InternalSchema]]:
    """Read the version of each write that was completed after a change of columns, and begun before."""
    for write in timeline.completed_writes:
        begun, completed = int(write.requested), int(write.completed or 0)
        if bisect_right(versions, begun) < bisect_right(versions, completed):
            text = timeline.read_commit(write).extra.get(LATEST_SCHEMA_KEY)
            if text:
                yield write.requested, InternalSchema.decode(text, f"{write.path}: {LATEST_SCHEMA_KEY}")
