"""Create, read and update hoodie.properties and its backup (docs/format/01-table.md, "hoodie.properties").

This package writes a checksum of all keys and values as a comment, above the first key and below the last one. Hudi
drops comments when it rewrites the file, so that a stale checksum cannot remain. It is written twice, so that one
damaged byte leaves one of them valid.

An update is a compare-and-swap: it takes effect only if the file still has the content that was read under the lock.

A *claim* is the content of the file while its table is being created: one comment, with a token of the creation. The
folder is no table yet. The claim is replaced by the table's keys only if it is unchanged.
"""

from __future__ import annotations

import json
import re
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from types import MappingProxyType

from streaming_lsm.errors import (
    CommitConflict,
    ConfigError,
    CorruptFileError,
    Fenced,
    LsmError,
    SchemaError,
    TableNotFound,
)
from streaming_lsm.format.table.properties import table_checksum
from streaming_lsm.java_properties import parse_properties, print_properties
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.clock import Clock, system_clock
from streaming_lsm.timeline.instant import FLAT_FOLDER, TIMELINE_FOLDER

PROPERTIES_PATH = ".hoodie/hoodie.properties"
BACKUP_PATH = ".hoodie/hoodie.properties.backup"

PROPERTIES_BYTES = 4 << 20
"""Size limit of the file; the schema of 10,000 columns takes 0.7 MiB."""
_MAX_LINES = 2000
"""Limit of lines; tables have fewer than a hundred keys, and each unknown key is compared with the missing ones."""

_CHECKSUM = "hoodie.table.checksum"
_SUM = re.compile(rb"^[#!]lsm\.checksum=(.*)$", re.MULTILINE)
_CLAIM = b"#lsm.create="
_ATTEMPTS = 16
_FOLDERS = (
    TIMELINE_FOLDER,
    f"{TIMELINE_FOLDER}/history",
    ".hoodie/.temp",
    ".hoodie/.aux/.bootstrap/.partitions",
    ".hoodie/.aux/.bootstrap/.fileids",
    ".hoodie/.schema",
)


def create_table_files(
    storage: Storage,
    properties: Mapping[str, str],
    clock: Clock = system_clock,
    verify: Callable[[], None] = lambda: None,
    title: str = "Properties saved on",
) -> None:
    """Create the folders of a table, and last the keys of its hoodie.properties, which make the folder a table.

    See docs/format/01-table.md, "Directories".

    Args:
        verify: called while the folder is claimed, raises if the table must not be created. Of two creations in nested
            folders, the later claim is made before its `verify`, which sees the other claim or table.
        title: comment at the top of hoodie.properties, before the time.

    Raises:
        CommitConflict: there is a table already, or another process creates it at the same time.
        ConfigError: a file is where the table's folder, or one above it, would be.
    """
    data = _print(properties, title, clock)
    try:
        with _claimed(storage) as claim:
            verify()
            for folder in _FOLDERS:
                storage.make_folder(folder)
            if not storage.replace_if_unchanged(PROPERTIES_PATH, data, claim):
                raise _created_by_another(storage)
    except NotADirectoryError as error:
        raise ConfigError(
            f"{storage.uri} cannot be a table: {error.filename or 'it'} is a file; give another path, or move the file"
        ) from None


@contextmanager
def _claimed(storage: Storage) -> Iterator[bytes]:
    """Claim hoodie.properties; take over the claim of another creation, which may have died and fails otherwise.

    After an exception the claim is deleted, and its folder, if nothing else is in it.
    """
    if storage.exists(BACKUP_PATH):
        raise _exists_already(storage)
    claim = _CLAIM + uuid.uuid4().hex.encode() + b"\n"
    try:
        try:
            storage.put_if_absent(PROPERTIES_PATH, claim)
        except FileExistsError:
            _take_over(storage, claim)
        if storage.exists(BACKUP_PATH):
            raise _exists_already(storage)
        yield claim
    except BaseException:
        with suppress(OSError):
            if storage.delete_if_unchanged(PROPERTIES_PATH, claim, reused=True):
                storage.delete_empty_folder(FLAT_FOLDER)
        raise


def _take_over(storage: Storage, claim: bytes) -> None:
    found = _raw(storage)
    if found is not None and not found.startswith(_CLAIM):
        raise _exists_already(storage)
    if found is None or not storage.replace_if_unchanged(PROPERTIES_PATH, claim, found):
        raise _created_by_another(storage)


def _exists_already(storage: Storage) -> CommitConflict:
    return CommitConflict(f"there is a table at {storage.uri} already; open it with LsmTable(path)")


def _created_by_another(storage: Storage) -> CommitConflict:
    return CommitConflict(f"another process creates a table at {storage.uri} at this moment: try again, or open it")


class Place(Enum):
    """Enumerate the states of a folder in which a table may be."""

    FREE = "no table"
    CLAIMED = "a table is being created, or its creation died"
    TABLE = "a table"


def place_of(storage: Storage) -> Place:
    """Return whether a folder is a table."""
    try:
        found = _raw(storage)
    except (LsmError, OSError):
        # Damaged; or not readable, as a folder above may be.
        return Place.TABLE if storage.exists(PROPERTIES_PATH) else Place.FREE
    if found is None:
        return Place.TABLE if storage.exists(BACKUP_PATH) else Place.FREE
    return Place.CLAIMED if found.startswith(_CLAIM) else Place.TABLE


def _raw(storage: Storage) -> bytes | None:
    with suppress(FileNotFoundError):
        return storage.read(PROPERTIES_PATH, PROPERTIES_BYTES)
    return None


@dataclass(frozen=True, slots=True)
class _Found:
    """Hold the keys and values of a file, and its damage, if any."""

    values: Mapping[str, str]
    data: bytes
    fault: CorruptFileError | None = None

    @property
    def is_whole(self) -> bool:
        return self.fault is None and self.values.get(_CHECKSUM) == _checksum(self.values)


def load_properties(storage: Storage) -> dict[str, str]:
    """Load the keys and values of hoodie.properties, or of its backup during an update.

    Raises:
        TableNotFound: both files are missing.
        CorruptFileError: the file is damaged, and there is no backup.
    """
    for _ in range(3):
        properties, backup = _read(storage, PROPERTIES_PATH), None
        if properties is None or not properties.is_whole:
            backup = _read(storage, BACKUP_PATH)
        found = backup if backup is not None and backup.is_whole else properties
        # An update that ended between the two reads has deleted the backup and left the new file.
        if found is not None:
            if found.fault:
                raise found.fault
            return dict(found.values)
    raise TableNotFound(f"{storage.uri} is no table: it has no {PROPERTIES_PATH}; check the path or create the table")


def update_properties(
    storage: Storage,
    changes: Mapping[str, str | None],
    verify: Callable[[], None] = lambda: None,
    clock: Clock = system_clock,
) -> dict[str, str]:
    """Update keys of hoodie.properties.

    Args:
        changes: new values; None removes the key.
        verify: raises `Fenced` if the caller does not hold the table's lock any more; by default nothing is verified,
            for tables without other writers.

    Returns:
        All keys and values after the change.

    Raises:
        TableNotFound: no such table.
        CorruptFileError: the file does not read back as written.
        Fenced: another writer took the lock, or changed the file; the update was not made.
    """
    current = _recovered(storage, clock)
    merged = {**current.values, **changes}
    updated = {key: value for key, value in merged.items() if value is not None}
    updated[_CHECKSUM] = _checksum(updated)
    # Verified after the read: a writer that takes the lock later rewrites the file (see `fence_properties`).
    verify()
    storage.replace(BACKUP_PATH, _print(current.values, "Updated at", clock))
    # Hudi deletes the file and writes it again; an atomic replace leaves readers no moment without a file.
    if not storage.replace_if_unchanged(PROPERTIES_PATH, _print(updated, "Updated at", clock), current.data):
        storage.delete(BACKUP_PATH)
        raise Fenced(f"{PROPERTIES_PATH} in {storage.uri} was changed by another writer at this moment: stop")
    written = _read(storage, PROPERTIES_PATH)
    if written is None or written.fault or written.values != updated:
        verify()
        raise CorruptFileError(
            f"{PROPERTIES_PATH} in {storage.uri} does not read back as written: restore it from {BACKUP_PATH}"
        )
    storage.delete(BACKUP_PATH)
    return updated


def finish_update(storage: Storage, verify: Callable[[], None], clock: Clock = system_clock) -> None:
    """Undo an update at which the storage failed, or delete its backup if it took effect.

    Args:
        verify: raises `Fenced` if the caller does not hold the table's lock any more.
    """
    if storage.exists(BACKUP_PATH):
        verify()
        _recovered(storage, clock)


def fence_properties(storage: Storage, token: str, clock: Clock = system_clock) -> None:
    """Rewrite hoodie.properties with the same keys, so that updates that began before cannot take effect.

    Called by a writer that took the lock over from another one, which may be stopped in the middle of an update.

    Args:
        token: unique to the writer; written as a comment, so that the content differs from all earlier ones.

    Raises:
        CommitConflict: other programs change the file repeatedly.
        TableNotFound: no such table.
    """
    for _ in range(_ATTEMPTS):
        current = _recovered(storage, clock)
        fenced = _print(current.values, f"lsm.lock={token}", clock)
        if storage.replace_if_unchanged(PROPERTIES_PATH, fenced, current.data):
            return
    raise CommitConflict(f"{PROPERTIES_PATH} in {storage.uri} is changed all the time; retry")


def _recovered(storage: Storage, clock: Clock) -> _Found:
    """Read hoodie.properties, after an interrupted update is undone or its backup is deleted.

    Raises:
        CorruptFileError: the file is damaged, and there is no backup.
        TableNotFound: no such table.
    """
    found = _read(storage, PROPERTIES_PATH)
    if found is not None and found.is_whole:
        storage.delete(BACKUP_PATH)
        return found
    restored = load_properties(storage)
    data = _print(restored, "Updated at", clock)
    with suppress(FileExistsError):
        if found is None:
            storage.put_if_absent(PROPERTIES_PATH, data)
        else:
            storage.replace_if_unchanged(PROPERTIES_PATH, data, found.data)
    return _Found(restored, data)


def _read(storage: Storage, path: str) -> _Found | None:
    source, data = f"{storage.uri}/{path}", b""
    try:
        data = storage.read(path, PROPERTIES_BYTES)
        if data.startswith(_CLAIM):
            return None
        if data.count(b"\n") + data.count(b"\r") > _MAX_LINES:
            raise CorruptFileError(f"{source}: more than {_MAX_LINES} lines: restore the file from a copy")
        values, checksum = _parsed(data, source)
    except FileNotFoundError:
        return None
    except CorruptFileError as error:
        return _Found({}, data, error)
    sums = {found.strip() for found in _SUM.findall(data)}
    if sums <= {checksum}:
        return _Found(values, data)
    return _Found(
        values,
        data,
        CorruptFileError(
            f"{source}: its keys and values do not fit its checksum, {checksum.decode()} by now: restore the file "
            "from a copy; if it was changed on purpose, remove its lines '#lsm.checksum='"
        ),
    )


@lru_cache(maxsize=16)
def _parsed(data: bytes, source: str) -> tuple[Mapping[str, str], bytes]:
    """Return keys and values, and their checksum; cached, as each write reads the file again, mostly unchanged.

    Raises:
        CorruptFileError: see `parse_properties`.
    """
    values = parse_properties(data, source)
    return MappingProxyType(values), _sum(values)


def _sum(properties: Mapping[str, str]) -> bytes:
    """Return the checksum of all keys and values, independent of their order."""
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
            f"{PROPERTIES_PATH} would have {len(data)} bytes, more than the {PROPERTIES_BYTES} that readers accept: "
            "give the table fewer columns, or shorter names"
        )
    return data
