"""Check the folder of a new table: no table above or below it, and no timeline or data files of an earlier one.

A table that is being created counts as one: of two creations in nested folders at most one succeeds.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator

from streaming_lsm.config import CREATE_OVER_FILES
from streaming_lsm.errors import ConfigError, UnsupportedTable
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.format.table.partition_metadata import PARTITION_METADATA_NAME
from streaming_lsm.storage.base import Names, Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.storage.uris import open_storage, parent_uris
from streaming_lsm.timeline.instant import FLAT, FLAT_FOLDER, TIMELINE_FOLDER, Instant
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH, Place, place_of

_LOG = logging.getLogger(__name__)
_MAX_FOLDERS, _MAX_NAMES = 1_000, 100_000


def check_place(storage: Storage, *, over_files: bool) -> None:
    """Refuse the folder of a new table if it contains, or lies in, another table, or has data files of an earlier one.

    All folders above and below are searched: a data file that is missed here would become visible with the first write.

    Args:
        over_files: accept existing data files, whose rows become rows of the new table. Only 1,000 folders with 100,000
            names below are searched for other tables, breadth-first.

    Raises:
        ConfigError: there is a table above or below, finished or not; or there is a timeline without a
            hoodie.properties; or there are data files, and `over_files` is false.
    """
    if place_of(storage) is Place.TABLE:
        return  # the creation refuses it
    _refuse_old_timeline(storage)
    for uri in parent_uris(storage.uri):
        _refuse(storage.uri, uri, place_of(open_storage(uri)))
    for folder, names in _folders(storage, limited=over_files):
        if folder and FLAT_FOLDER in names and _has_table_folder(storage, folder):
            state = place_of(Subfolder(storage, folder))
            _refuse(storage.uri, f"{storage.uri}/{folder}", Place.CLAIMED if state is Place.FREE else state)
        old = next((name for name in names if _is_data(name)), None)
        if old is not None and not over_files:
            path = f"{folder}/{old}" if folder else old
            raise ConfigError(
                f"{storage.uri} is no table and has data files of one ({path}): remove them; restore its "
                f"{FLAT_FOLDER}; or set {CREATE_OVER_FILES.key}=true, to have their rows in the new table"
            )


def _has_table_folder(storage: Storage, folder: str) -> bool:
    """Return whether a listed folder of a table is there: in an object store it may hold only a given up claim."""
    return storage.is_file_system or storage.exists(f"{folder}/{FLAT_FOLDER}")


def _refuse(new: str, other: str, state: Place) -> None:
    """Raise `ConfigError` if the folder `other`, above or below the folder `new`, is a table or becomes one."""
    if state is Place.CLAIMED:
        raise ConfigError(
            f"a table is being created at {other}, and {new} would be above or below it: try again; if no process "
            f"creates it any more, remove {other}/{FLAT_FOLDER}"
        )
    if state is Place.TABLE and len(other) > len(new):
        raise ConfigError(
            f"there is a table at {other}, below {new}: a table cannot hold another; give another path, or move that "
            "table"
        )
    if state is Place.TABLE:
        raise ConfigError(f"{new} lies in the table at {other}: a table cannot hold another; give another path")


def _refuse_old_timeline(storage: Storage) -> None:
    """Refuse the folder of a table that lost its hoodie.properties: its commits would be the new table's."""
    found = (
        f"{folder}/{name}"
        for folder, layout in ((TIMELINE_FOLDER, 2), (FLAT_FOLDER, FLAT))
        for name in storage.names(folder)
        if _is_instant(name, layout)
    )
    instant = next(found, None)
    # The timeline is listed first: a table that another process creates in between has the file by then.
    if instant is not None and place_of(storage) is not Place.TABLE:
        raise ConfigError(
            f"{storage.uri} has the timeline of a table ({instant}) without its {PROPERTIES_PATH}: restore that file; "
            f"or, to create a new table, move {FLAT_FOLDER} and the data files away"
        )


def _is_instant(name: str, layout: int) -> bool:
    """Return whether a file name is that of an instant, known to this release or not."""
    try:
        return Instant.parse(name, layout) is not None
    except UnsupportedTable:
        return True


def _is_data(name: str) -> bool:
    return name == PARTITION_METADATA_NAME or parse_file_name(name, rfc103_names=True) is not None


def _folders(storage: Storage, *, limited: bool) -> Iterator[tuple[str, Names]]:
    """Yield folders and the names in them, breadth-first; if `limited`, up to the limits of `check_place`."""
    waiting = deque([""])
    folders = names = 0
    while waiting:
        folder = waiting.popleft()
        try:
            found = storage.names(folder)
        except PermissionError:
            continue
        folders, names = folders + 1, names + len(found)
        yield folder, found
        if limited and (folders >= _MAX_FOLDERS or names > _MAX_NAMES):
            _LOG.warning(
                "%s: only %d folders with %d names were searched for other tables", *(storage.uri, folders, names)
            )
            return
        below = (name for name in storage.folders(folder) if name != FLAT_FOLDER)
        waiting.extend(f"{folder}/{name}" if folder else name for name in below)
