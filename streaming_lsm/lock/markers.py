"""Create, list and delete markers (docs/format/01-table.md, "Markers").

A *marker* is a file that names a data file of a pending instant. It is created before the data file, so that rollback
and reconciliation find every file that the instant may have created.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from streaming_lsm.errors import CorruptFileError, EarlyConflict, Fenced, UnsupportedTable
from streaming_lsm.format.table.file_names import BaseFileName, bucket_of, parse_file_name
from streaming_lsm.lock.heartbeat import check_still_inflight, heartbeat_path
from streaming_lsm.lock.lock import Held
from streaming_lsm.storage.base import FileEntry, Storage
from streaming_lsm.timeline.instant import WRITE_ACTIONS, Instant, State

TEMP_FOLDER = ".hoodie/.temp"

_MARKER = ".marker."
_LINES = "MARKERS"
_DELETED_AT_A_TIME = 100
"""Files that are deleted after one look at the lock; an object store takes one request for them."""


def marker_folder(instant: str) -> str:
    """Return the folder of an instant's markers; on a disk it exists while the write is pending."""
    return f"{TEMP_FOLDER}/{instant}"


def marker_path(instant: str, partition: str, file_name: str) -> str:
    """Return the path of the marker of one data file."""
    return marker_of(instant, "/".join(part for part in (partition, file_name) if part))


def marker_of(instant: str, path: str) -> str:
    """Return the path of the marker of the data file at a path."""
    return f"{marker_folder(instant)}/{path}{_MARKER}CREATE"


def create_marker(storage: Storage, instant: str, partition: str, file_name: str) -> None:
    """Create the marker of a data file; called by a task before it creates the file or its partition's metadata file.

    On a disk the instant is checked to be inflight before and after. In an object store a marker that comes too late
    remains until the next recovery, and the task finds out when it ends.

    Raises:
        Fenced: the instant accepts no more files (it is committed or rolled back): stop.
        FileExistsError: the marker exists already.
    """
    if storage.is_file_system:
        _check_open(storage, instant)
    try:
        storage.put_if_absent(marker_path(instant, partition, file_name), b"")
    except FileNotFoundError:
        raise _fenced(storage, instant) from None
    if storage.is_file_system:
        # A rollback may have listed the folder between check and marker; it deleted the heartbeat before that.
        _check_open(storage, instant)


def check_no_earlier_write(storage: Storage, instant: str, partition: str, file_name: str) -> None:
    """Check by the markers that no write that began earlier, and is pending, changes the file group of a data file.

    Called by a task after `create_marker`, so that of two writes at once the later one finds the marker of the other.

    Raises:
        EarlyConflict: there is one.
    """
    group = _group(file_name)
    for other in storage.folders(TEMP_FOLDER):
        if not other.isdigit() or other >= instant:
            continue
        names = (
            name.partition(_MARKER)[0] for name in storage.names(f"{marker_folder(other)}/{partition}".rstrip("/"))
        )
        if any(_group(name) == group for name in names) and _is_pending(storage, other):
            raise EarlyConflict(
                f"the write {other} in {storage.uri} began earlier and is changing {group} of partition "
                f"{partition!r}, which the write {instant} changes: write the batch again"
            )


def _group(file_name: str) -> str | None:
    """Name the bucket of a file, or its file group where the id has no bucket."""
    name = parse_file_name(file_name, rfc103_names=True)
    if name is None:
        return None
    try:
        return f"bucket {bucket_of(name.file_id)}"
    except UnsupportedTable:
        return f"file group {name.file_id}"


def _is_pending(storage: Storage, instant: str) -> bool:
    """Return whether a write is pending, and its writer has not given it up."""
    written = (Instant(instant, action, State.INFLIGHT).path for action in sorted(WRITE_ACTIONS))
    return storage.exists(heartbeat_path(instant)) and any(storage.exists(path) for path in written)


def list_marked_files(storage: Storage, instant: str) -> tuple[str, ...]:
    """List the data files that the instant's markers name, as paths relative to the table; the files need not exist.

    Reads direct markers (one file each), and those that Hudi's timeline server collects in ``MARKERS<n>``. Files of
    other instants are left out, so that a marker cannot cause the deletion of another instant's file.

    Raises:
        CorruptFileError: a marker names a path outside the table.
    """
    folder = marker_folder(instant) + "/"
    named = {path for entry in storage.walk(marker_folder(instant)) for path in _named_files(storage, folder, entry)}
    return tuple(sorted(path for path in named if is_file_of(path, instant)))


def is_file_of(path: str, instant: str) -> bool:
    """Return whether a path's last component is the name of a data file of the instant."""
    name = parse_file_name(path.rpartition("/")[2], rfc103_names=True)
    return name is not None and name.instant == instant


def delete_files(storage: Storage, held: Held, paths: Iterable[str]) -> None:
    """Delete data files, log files before base files, and temporary files of failed attempts in their folders.

    Without its base file a slice does not exist: log files that remained after a crash would count to the slice before.

    Args:
        held: the lock, or the heartbeat of the instant; verified before at most a hundred deletions.

    Raises:
        Fenced: it is not held any more; the remaining files were not deleted.
    """
    ordered = sorted(paths, key=_logs_first)
    Deletion(storage, held)(ordered)
    sweep_partitions(storage, ordered)


@dataclass(frozen=True)
class Deletion:
    """Deletes data files in the given order; picklable if `held` is, as the heartbeat of an instant.

    Attributes:
        storage: the table's files.
        held: the lock, or the heartbeat of the instant; verified before at most a hundred deletions.
    """

    storage: Storage
    held: Held

    def __call__(self, paths: Sequence[str]) -> int:
        """Delete the files and return their number; raises as `delete_files`."""
        # The logs of a folder are gone before one of its base files: object stores delete many in any order.
        runs = groupby(paths, key=lambda path: (_is_base(path), path.rpartition("/")[0]))
        for _, files in runs:
            while few := tuple(islice(files, _DELETED_AT_A_TIME)):
                self.held.verify()
                self.storage.delete_files(few)
        return len(paths)


def in_portions(paths: Iterable[str], most: int) -> Iterator[tuple[str, ...]]:
    """Divide data files into portions of about `most`, which may be deleted at a time: slices stay together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        parsed = parse_file_name(name, rfc103_names=True)
        groups.setdefault((folder, parsed.file_id if parsed else name), []).append(path)
    portion: list[str] = []
    for key in sorted(groups):
        portion += groups[key]
        if len(portion) >= most:
            yield tuple(sorted(portion, key=_logs_first))
            portion = []
    if portion:
        yield tuple(sorted(portion, key=_logs_first))


def sweep_partitions(storage: Storage, paths: Iterable[str]) -> None:
    """Delete temporary files of failed attempts in the folders of data files."""
    for partition in sorted({path.rpartition("/")[0] for path in paths}):
        storage.sweep(partition)


def _logs_first(path: str) -> tuple[bool, str]:
    return _is_base(path), path


def _is_base(path: str) -> bool:
    return isinstance(parse_file_name(path.rpartition("/")[2]), BaseFileName)


def delete_markers(storage: Storage, instant: str) -> None:
    """Delete an instant's markers and their folder."""
    storage.delete_folder(marker_folder(instant))


def _check_open(storage: Storage, instant: str) -> None:
    check_still_inflight(storage, instant)
    # Another program that rolls the write back deletes the folder, and not the heartbeat.
    if not storage.exists(marker_folder(instant)):
        raise _fenced(storage, instant)


def _fenced(storage: Storage, instant: str) -> Fenced:
    return Fenced(
        f"{marker_folder(instant)} in {storage.uri} is gone: the write at {instant} is committed or rolled back, stop"
    )


def _named_files(storage: Storage, folder: str, entry: FileEntry) -> Iterator[str]:
    relative = entry.path.removeprefix(folder)
    if relative.startswith(_LINES) and relative.removeprefix(_LINES).isdigit():
        # Lines end at line feeds only: a partition's name may begin and end with other white space.
        lines = storage.read(entry.path).decode("utf-8", "replace").split("\n")
    else:
        lines = [relative]
    for line in lines:
        path, marker, _ = line.rpartition(_MARKER)
        if marker:
            yield _inside(path, entry.path)


def _inside(path: str, source: str) -> str:
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise CorruptFileError(f"{source}: marker of {path!r}, which is no path inside the table: delete the marker")
    return path
