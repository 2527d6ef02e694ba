"""The file hoodie.properties: created last, changed under a backup, read through both (format 01).

This package writes a checksum of all keys and values as a comment into it, above the first key and below the last. Hudi
drops comments when it rewrites the file, so that the checksums are there exactly as long as they are right. There are
two of them so that a file with one damaged byte has a whole one left.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from streaming_lsm.errors import CommitConflict, ConfigError, CorruptFileError, SchemaError, TableNotFound
from streaming_lsm.format.table_properties import table_checksum
from streaming_lsm.java_properties import parse_properties, print_properties
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.clock import Clock, system_clock
from streaming_lsm.timeline.instant import TIMELINE_FOLDER

PROPERTIES_PATH = ".hoodie/hoodie.properties"
BACKUP_PATH = ".hoodie/hoodie.properties.backup"

PROPERTIES_BYTES = 4 << 20
"""More than any table needs; the schema of 10,000 columns takes 0.7 MiB."""
_MOST_LINES = 2000
"""Tables have fewer than a hundred keys; each unknown one is compared with those that are missing."""

_CHECKSUM = "hoodie.table.checksum"
_SUM = re.compile(rb"^[#!]lsm\.checksum=(.*)$", re.MULTILINE)
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


@dataclass(frozen=True, slots=True)
class _Found:
    """The keys and values of a file, and what is wrong with it."""

    values: Mapping[str, str]
    fault: CorruptFileError | None = None

    @property
    def is_whole(self) -> bool:
        return self.fault is None and self.values.get(_CHECKSUM) == _checksum(self.values)


def load_properties(storage: Storage) -> dict[str, str]:
    """Keys and values of hoodie.properties, or of its backup while somebody changes it.

    Raises:
        TableNotFound: neither file is there.
        CorruptFileError: the file is damaged, and there is no backup.
    """
    for _ in range(3):
        properties, backup = _read(storage, PROPERTIES_PATH), None
        if properties is None or not properties.is_whole:
            backup = _read(storage, BACKUP_PATH)
        found = backup if backup is not None and backup.is_whole else properties
        # A change that ended between the two reads has removed the backup and left the new file.
        if found is not None:
            if found.fault:
                raise found.fault
            return dict(found.values)
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
    if _read(storage, PROPERTIES_PATH) != _Found(updated):
        raise CorruptFileError(
            f"{PROPERTIES_PATH} in {storage.uri} does not read back as written: restore it from {BACKUP_PATH}"
        )
    storage.delete(BACKUP_PATH)
    return updated


def _recovered(storage: Storage, clock: Clock) -> dict[str, str]:
    """The properties after what a dead process left of a change is undone or dropped."""
    found = _read(storage, PROPERTIES_PATH)
    if found is not None and found.is_whole:
        storage.delete(BACKUP_PATH)
        return dict(found.values)
    restored = load_properties(storage)
    storage.replace(PROPERTIES_PATH, _print(restored, "Updated at", clock))
    return restored


def _read(storage: Storage, path: str) -> _Found | None:
    source = f"{storage.uri}/{path}"
    try:
        data = storage.read(path, PROPERTIES_BYTES)
        if data.count(b"\n") + data.count(b"\r") > _MOST_LINES:
            raise CorruptFileError(f"{source}: more than {_MOST_LINES} lines: restore the file from a copy")
        values = parse_properties(data, source)
    except FileNotFoundError:
        return None
    except CorruptFileError as error:
        return _Found({}, error)
    sums = {found.strip() for found in _SUM.findall(data)}
    if sums <= {_sum(values)}:
        return _Found(values)
    return _Found(
        values,
        CorruptFileError(
            f"{source}: its keys and values do not fit its checksum, {_sum(values).decode()} by now: restore the file "
            "from a copy; if it was changed on purpose, remove its lines '#lsm.checksum='"
        ),
    )


def _sum(properties: Mapping[str, str]) -> bytes:
    """A checksum of all keys and values, in any order."""
    return b"crc32:%08x" % zlib.crc32(json.dumps(sorted(properties.items())).encode())


def _checksum(properties: Mapping[str, str]) -> str:
    return table_checksum(properties.get("hoodie.database.name"), properties.get("hoodie.table.name", ""))


def _print(properties: Mapping[str, str], title: str, clock: Clock) -> bytes:
    moment = datetime.fromtimestamp(clock() / 1000, UTC)
    iso = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    checksum = f"lsm.checksum={_sum(properties).decode()}"
    titles = [f"{title} {iso}", f"{moment:%a %b %d %H:%M:%S} UTC {moment:%Y}", checksum]
    data = print_properties(properties, titles) + f"#{checksum}\n".encode()
    if len(data) > PROPERTIES_BYTES:
        raise SchemaError(
            f"{PROPERTIES_PATH} would have {len(data)} bytes, and no reader takes more than {PROPERTIES_BYTES}: give "
            "the table fewer columns, or shorter names"
        )
    return data
