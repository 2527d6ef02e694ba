"""Check the folder of a new table: no table above or below it, and no data files of an earlier one."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator

from streaming_lsm.config import CREATE_OVER_FILES
from streaming_lsm.errors import ConfigError
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.format.table.partition_metadata import PARTITION_METADATA_NAME
from streaming_lsm.storage.base import Names, Storage
from streaming_lsm.storage.local import open_storage
from streaming_lsm.timeline.instant import FLAT_FOLDER
from streaming_lsm.timeline.properties_file import BACKUP_PATH, PROPERTIES_PATH

_LOG = logging.getLogger(__name__)
_MAX_FOLDERS, _MAX_NAMES = 1_000, 100_000


def check_place(storage: Storage, *, over_files: bool) -> None:
    """Refuse the folder of a new table if it contains, or lies in, another table, or has data files of an earlier one.

    All folders above are checked, and breadth-first at most 1,000 folders with 100,000 names below.

    Args:
        over_files: accept existing data files, whose rows become rows of the new table.

    Raises:
        ConfigError: there is a table above or below; or there are data files, and `over_files` is false.
    """
    above = next((uri for uri in _parents(storage.uri) if _is_table(open_storage(uri))), None)
    if above is not None:
        raise ConfigError(f"{storage.uri} lies in the table at {above}: a table cannot hold another; give another path")
    for folder, names in _folders(storage):
        if folder and FLAT_FOLDER in names:
            raise ConfigError(
                f"there is a table at {storage.uri}/{folder}, below {storage.uri}: a table cannot hold another; give "
                "another path, or move that table"
            )
        old = next((name for name in names if _is_data(name)), None)
        if old is not None and not over_files and not _is_table(storage):
            path = f"{folder}/{old}" if folder else old
            raise ConfigError(
                f"{storage.uri} is no table and has data files of one ({path}): remove them; restore its "
                f"{FLAT_FOLDER}; or set {CREATE_OVER_FILES.key}=true, to have their rows in the new table"
            )


def _parents(uri: str) -> Iterator[str]:
    """Yield the URIs of the folders above, the nearest first."""
    while uri.count("/") > 3:
        uri = uri.rpartition("/")[0]
        yield uri


def _is_table(storage: Storage) -> bool:
    return storage.exists(PROPERTIES_PATH) or storage.exists(BACKUP_PATH)


def _is_data(name: str) -> bool:
    return name == PARTITION_METADATA_NAME or parse_file_name(name, rfc103_names=True) is not None


def _folders(storage: Storage) -> Iterator[tuple[str, Names]]:
    """Yield folders and the names in them, breadth-first, up to the limits of `check_place`."""
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
        if folders >= _MAX_FOLDERS or names > _MAX_NAMES:
            _LOG.warning(
                "%s: only %d folders with %d names were searched for other tables and old data files",
                *(storage.uri, folders, names),
            )
            return
        entries = storage.list(folder)
        waiting.extend(e.path for e in entries if e.is_dir and not e.special and e.name != FLAT_FOLDER)
