"""The file hoodie.properties: created last, changed under a backup, read through both (format 01)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from streaming_lsm.errors import CommitConflict, ConfigError, CorruptFileError, TableNotFound
from streaming_lsm.format.table_properties import table_checksum
from streaming_lsm.java_properties import parse_properties, print_properties
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.clock import Clock, system_clock
from streaming_lsm.timeline.instant import TIMELINE_FOLDER

PROPERTIES_PATH = ".hoodie/hoodie.properties"
BACKUP_PATH = ".hoodie/hoodie.properties.backup"

_CHECKSUM = "hoodie.table.checksum"
_FOLDERS = (
    TIMELINE_FOLDER,
    f"{TIMELINE_FOLDER}/history",
    ".hoodie/.temp",
    ".hoodie/.aux/.bootstrap/.partitions",
    ".hoodie/.aux/.bootstrap/.fileids",
    ".hoodie/.schema",
)


def create_table_files(storage: Storage, properties: Mapping[str, str], clock: Clock = system_clock) -> None:
    """Make a table out of a folder (format 01, Directories). There is a table once the last file is there.

    Raises:
        CommitConflict: there is a table already, perhaps made by another process this moment.
        ConfigError: a file is where the table's folder, or one above it, would be.
    """
    try:
        for folder in _FOLDERS:
            storage.make_folder(folder)
    except NotADirectoryError as error:
        raise ConfigError(
            f"{storage.uri} cannot be a table: {error.filename or 'it'} is a file; give another path, or move the file"
        ) from None
    try:
        if storage.exists(BACKUP_PATH):
            raise FileExistsError(BACKUP_PATH)
        storage.put_if_absent(PROPERTIES_PATH, _print(properties, "Properties saved on", clock))
    except FileExistsError as error:
        raise CommitConflict(f"{storage.uri} is a table already: open it instead of creating it") from error


def load_properties(storage: Storage) -> dict[str, str]:
    """Keys and values of hoodie.properties, or of its backup while somebody changes it.

    Raises:
        TableNotFound: neither file is there.
    """
    for _ in range(3):
        properties, backup = _read(storage, PROPERTIES_PATH), None
        if properties is None or not _is_whole(properties):
            backup = _read(storage, BACKUP_PATH)
        found = backup if backup is not None and _is_whole(backup) else properties
        # A change that ended between the two reads has removed the backup and left the new file.
        if found is not None:
            return found
    raise TableNotFound(f"{storage.uri} is no table: it has no {PROPERTIES_PATH}; check the path or create the table")


def update_properties(
    storage: Storage, changes: Mapping[str, str | None], clock: Clock = system_clock
) -> dict[str, str]:
    """Change keys of hoodie.properties; the table's lock must be held.

    Args:
        changes: new values; None removes the key.

    Returns:
        All keys and values after the change.

    Raises:
        TableNotFound: no such table.
        CorruptFileError: what was written does not read back.
    """
    current = _recovered(storage, clock)
    merged = {**current, **changes}
    updated = {key: value for key, value in merged.items() if value is not None}
    updated[_CHECKSUM] = _checksum(updated)
    storage.replace(BACKUP_PATH, _print(current, "Updated at", clock))
    # Hudi deletes and writes anew; replacing at once leaves its readers no moment without a file.
    storage.replace(PROPERTIES_PATH, _print(updated, "Updated at", clock))
    if _read(storage, PROPERTIES_PATH) != updated:
        raise CorruptFileError(
            f"{PROPERTIES_PATH} in {storage.uri} does not read back as written: restore it from {BACKUP_PATH}"
        )
    storage.delete(BACKUP_PATH)
    return updated


def _recovered(storage: Storage, clock: Clock) -> dict[str, str]:
    """The properties after what a dead process left of a change is undone or dropped."""
    found = _read(storage, PROPERTIES_PATH)
    if found is not None and _is_whole(found):
        storage.delete(BACKUP_PATH)
        return found
    found = load_properties(storage)
    storage.replace(PROPERTIES_PATH, _print(found, "Updated at", clock))
    return found


def _read(storage: Storage, path: str) -> dict[str, str] | None:
    try:
        return parse_properties(storage.read(path))
    except FileNotFoundError:
        return None


def _is_whole(properties: Mapping[str, str]) -> bool:
    return properties.get(_CHECKSUM) == _checksum(properties)


def _checksum(properties: Mapping[str, str]) -> str:
    return table_checksum(properties.get("hoodie.database.name"), properties.get("hoodie.table.name", ""))


def _print(properties: Mapping[str, str], title: str, clock: Clock) -> bytes:
    moment = datetime.fromtimestamp(clock() / 1000, UTC)
    iso = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return print_properties(properties, [f"{title} {iso}", f"{moment:%a %b %d %H:%M:%S} UTC {moment:%Y}"])
