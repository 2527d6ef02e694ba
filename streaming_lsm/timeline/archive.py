"""Read the archived timeline: completion times of instants that left the active timeline.

See docs/format/02-timeline.md, "Archived timeline".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm.bounded_json import SMALL, parse_json
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.avro.record_reader import decode_data_block
from streaming_lsm.format.log.inline_blocks import BlockType, Header, read_blocks
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.checked import read_checked
from streaming_lsm.timeline.instant import FLAT, FLAT_FOLDER, TIMELINE_FOLDER, WRITE_ACTIONS, Instant

HISTORY_FOLDER = f"{TIMELINE_FOLDER}/history"
ARCHIVE_FOLDER = f"{FLAT_FOLDER}/archived"
_ARCHIVE = re.compile(r"\.commits_\.archive\.[0-9]+(_[0-9-]+)?")
_ENTRY = ("actionState", "actionType", "commitTime")
_MOST_VERSION = 1 << 10
_MANIFEST = re.compile(r"manifest_([0-9]{1,18})")


def archived_completions(storage: Storage, layout: int = 2) -> dict[str, str]:
    """Return the completion time of every archived write, by requested time.

    Args:
        storage: the table.
        layout: the timeline layout; in layout 1 both times are the same.

    Raises:
        CorruptFileError: a file of the history is missing or cannot be read.
    """
    if layout == FLAT:
        return {time: time for time in _flat_completions(storage)}
    completions: dict[str, str] = {}
    for name in _members(storage):
        rows = _read(storage, f"{HISTORY_FOLDER}/{name}")
        for requested, completed, action in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            if action in WRITE_ACTIONS:
                completions[requested] = completed
    return completions


def _members(storage: Storage) -> list[str]:
    """Return the names of the files in the newest manifest; other files in the folder do not count."""
    version = _version(storage)
    if version is None:
        return []
    path = f"{HISTORY_FOLDER}/manifest_{version}"
    try:
        files = parse_json(storage.read(path, SMALL))["files"]
        names = [str(file["fileName"]) for file in files]
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptFileError(f"{path}: not a manifest of archived instants ({error}); restore the file") from None
    if any("/" in name for name in names):
        raise CorruptFileError(f"{path}: names a file outside {HISTORY_FOLDER}; restore the file")
    return names


def _version(storage: Storage) -> int | None:
    """Return the number of the newest manifest: that in ``_version_``, or the largest one while it is rewritten."""
    try:
        text = storage.read(f"{HISTORY_FOLDER}/_version_", _MOST_VERSION)
        return int(text)
    except FileNotFoundError:
        found = [_MANIFEST.fullmatch(entry.name) for entry in storage.list(HISTORY_FOLDER)]
        return max((int(match[1]) for match in found if match), default=None)
    except ValueError:
        raise CorruptFileError(f"{HISTORY_FOLDER}/_version_: not a number: {text[:40]!r}; restore the file") from None


def _read(storage: Storage, path: str) -> pa.Table:
    try:
        with storage.open_input(path) as source:
            columns = ["instantTime", "completionTime", "action"]
            return pq.read_table(source, columns=columns, page_checksum_verification=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptFileError(f"{path}: archived instants cannot be read ({error}); restore the file") from error


def _flat_completions(storage: Storage) -> Iterator[str]:
    """Yield the instants of the archived writes of layout 1: inline logs with a record for every state of an action."""
    for name in storage.names(ARCHIVE_FOLDER):
        if _ARCHIVE.fullmatch(name):
            path = f"{ARCHIVE_FOLDER}/{name}"
            for block in read_blocks(read_checked(storage, path), path):
                if block.type is not BlockType.AVRO_DATA:
                    raise CorruptFileError(f"{path}: a {block.type.name} block at {block.offset}; restore the file")
                schema = block.header.get(Header.SCHEMA, "")
                for entry in decode_data_block(schema, block.content, path, _ENTRY).to_pylist():
                    done = str(entry["actionState"]).upper() == "COMPLETED"
                    if done and Instant.completed_action(str(entry["actionType"])) in WRITE_ACTIONS:
                        yield str(entry["commitTime"])
