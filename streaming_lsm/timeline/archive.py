"""The archived timeline: when instants that left the active timeline were completed (format 02, Archived timeline)."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, WRITE_ACTIONS

HISTORY_FOLDER = f"{TIMELINE_FOLDER}/history"
_MANIFEST = re.compile(r"manifest_([0-9]{1,18})")


def archived_completions(storage: Storage) -> dict[str, str]:
    """Requested → completion time of every archived write.

    Raises:
        CorruptFileError: a file of the history is missing or cannot be read.
    """
    completions: dict[str, str] = {}
    for name in _members(storage):
        rows = _read(storage, f"{HISTORY_FOLDER}/{name}")
        for requested, completed, action in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            if action in WRITE_ACTIONS:
                completions[requested] = completed
    return completions


def _members(storage: Storage) -> list[str]:
    """Names of the valid files, by the newest manifest; the folder itself may hold others."""
    version = _version(storage)
    if version is None:
        return []
    path = f"{HISTORY_FOLDER}/manifest_{version}"
    try:
        files = json.loads(storage.read(path))["files"]
        names = [str(file["fileName"]) for file in files]
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(f"{path}: not a manifest of archived instants ({error}); restore the file") from None
    if any("/" in name for name in names):
        raise CorruptFileError(f"{path}: names a file outside {HISTORY_FOLDER}; restore the file")
    return names


def _version(storage: Storage) -> int | None:
    """Number of the newest manifest: what ``_version_`` says, or the largest there is while that is rewritten."""
    try:
        text = storage.read(f"{HISTORY_FOLDER}/_version_")
        return int(text)
    except FileNotFoundError:
        found = [_MANIFEST.fullmatch(entry.name) for entry in storage.list(HISTORY_FOLDER)]
        return max((int(match[1]) for match in found if match), default=None)
    except ValueError:
        raise CorruptFileError(f"{HISTORY_FOLDER}/_version_: not a number: {text[:40]!r}; restore the file") from None


def _read(storage: Storage, path: str) -> pa.Table:
    try:
        with storage.open_input(path) as source:
            return pq.read_table(source, columns=["instantTime", "completionTime", "action"])
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptFileError(f"{path}: archived instants cannot be read ({error}); restore the file") from error
