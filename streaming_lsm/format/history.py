"""Encode and decode the files of the archived timeline (docs/format/02-timeline.md, "Archived timeline").

A *history file* is a Parquet file of archived instants, sorted by requested time; its name has the first and the last
of them, and its *level*. A *manifest* names the history files that count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm.bounded_json import SMALL, parse_json
from streaming_lsm.errors import CorruptFileError

INSTANT_COLUMNS = ("instantTime", "completionTime", "action")
"""Columns that say what was archived, without its content."""

_NAME = re.compile(r"(?P<first>[0-9]{1,32})_(?P<last>[0-9]{1,32})_(?P<level>[0-9])\.parquet")
_MANIFEST = re.compile(r"manifest_([0-9]{1,18})")
_VERSION = 1
_FIELDS: list[pa.Field[Any]] = [
    *(pa.field(name, pa.string()) for name in INSTANT_COLUMNS),
    pa.field("metadata", pa.binary()),
    pa.field("plan", pa.binary()),
    pa.field("version", pa.int32(), nullable=False),
]
_SCHEMA = pa.schema(_FIELDS)
_ROW_GROUP_BYTES = 8 << 20
TOP_LEVEL = 9
"""The highest level, as a name has one digit for it."""


@dataclass(frozen=True, slots=True)
class ArchivedInstant:
    """Hold a row of a history file: a completed instant and the contents of its files.

    Attributes:
        requested: requested time.
        completed: completion time.
        action: name of the action in the completed state.
        metadata: content of the completed file.
        plan: content of the requested file of a compaction, clean, rollback or replace action; None for others.
    """

    requested: str
    completed: str
    action: str
    metadata: bytes | None
    plan: bytes | None

    @property
    def size(self) -> int:
        """Bytes of the contents."""
        return len(self.metadata or b"") + len(self.plan or b"")


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """Describe a history file of a manifest.

    Attributes:
        name: name of the file.
        size: bytes.
        first, last: smallest and largest requested time of its instants.
        level: 0 for a file of newly archived instants; one more than that of the files from which it was merged.
    """

    name: str
    size: int
    first: str
    last: str
    level: int

    @classmethod
    def of(cls, name: str, size: int) -> HistoryFile:
        """Parse a name.

        Raises:
            ValueError: it is not the name of a history file.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"{name!r:.120} is not the name of a history file")
        return cls(name, size, match["first"], match["last"], int(match["level"]))

    @staticmethod
    def name_of(first: str, last: str, level: int) -> str:
        """Return the name of a file that begins with the instant `first` and ends with `last`."""
        return f"{first}_{last}_{level}.parquet"

    def may_have(self, requested: str) -> bool:
        """Return whether a requested time is in the range of the file."""
        return self.first <= requested <= self.last


@dataclass(frozen=True, slots=True)
class Manifest:
    """Hold the history files that count, the oldest instants first."""

    files: tuple[HistoryFile, ...] = ()

    def encode(self) -> bytes:
        """Encode the manifest as JSON."""
        files = [{"fileName": file.name, "fileLen": file.size} for file in self.files]
        return json.dumps({"files": files}, indent=2).encode()

    @classmethod
    def decode(cls, data: bytes, source: str) -> Manifest:
        """Decode a manifest.

        Raises:
            CorruptFileError: `data`, from the file `source`, is no manifest.
        """
        try:
            files = parse_json(data, SMALL)["files"]
            found = [HistoryFile.of(str(file["fileName"]), int(file["fileLen"])) for file in files]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptFileError(f"{source}: no manifest of archived instants ({error}); restore the file") from None
        return cls(tuple(sorted(found, key=lambda file: (file.first, file.last))))

    def with_files(self, added: Iterable[HistoryFile], removed: Iterable[HistoryFile] = ()) -> Manifest:
        """Return the manifest with more files, and without others."""
        gone = frozenset(removed)
        files = [*(file for file in self.files if file not in gone), *added]
        return Manifest(tuple(sorted(files, key=lambda file: (file.first, file.last))))


def manifest_name(number: int) -> str:
    """Return the name of a manifest."""
    return f"manifest_{number}"


def manifest_number(name: str) -> int | None:
    """Return the number of the manifest with this name; None for other files."""
    match = _MANIFEST.fullmatch(name)
    return int(match[1]) if match else None


def encode_instants(instants: Iterable[ArchivedInstant]) -> bytes:
    """Encode a history file; the rows are those given, in their order, of which few are held at a time."""
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(
        out, _SCHEMA, compression="gzip", use_dictionary=False, store_schema=False, write_page_checksum=True
    ) as writer:
        writer.add_key_value_metadata({"parquet.avro.schema": _avro_schema(), "writer.model.name": "avro"})
        for group in _row_groups(instants):
            writer.write_table(_table(group))
    return out.getvalue().to_pybytes()


def read_instants(source: pa.NativeFile, path: str) -> Iterator[ArchivedInstant]:
    """Read the instants of a history file, a row group at a time.

    Raises:
        CorruptFileError: the file is damaged, or an instant has no time or action.
        OSError: the system refused a read.
    """
    with damage_named(path):
        file = pq.ParquetFile(source, page_checksum_verification=True)
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, columns=[*INSTANT_COLUMNS, "metadata", "plan"])
            for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                if not all(row[: len(INSTANT_COLUMNS)]):
                    raise CorruptFileError(f"{path}: an archived instant without time or action; restore the file")
                yield ArchivedInstant(*row)


@contextmanager
def damage_named(path: str) -> Iterator[None]:
    """Raise errors of a damaged history file as `CorruptFileError`; those of the system, which have a number, stay."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise CorruptFileError(f"{path}: archived instants cannot be read ({error}); restore the file") from error


def _row_groups(instants: Iterable[ArchivedInstant]) -> Iterator[list[ArchivedInstant]]:
    """Divide instants into row groups of some MiB, so that a reader holds the contents of few of them."""
    group: list[ArchivedInstant] = []
    held = 0
    for instant in instants:
        if group and held + instant.size > _ROW_GROUP_BYTES:
            yield group
            group, held = [], 0
        group.append(instant)
        held += instant.size
    if group:
        yield group


def _table(instants: Sequence[ArchivedInstant]) -> pa.Table:
    columns: dict[str, list[Any]] = {
        "instantTime": [found.requested for found in instants],
        "completionTime": [found.completed for found in instants],
        "action": [found.action for found in instants],
        "metadata": [found.metadata for found in instants],
        "plan": [found.plan for found in instants],
        "version": [_VERSION] * len(instants),
    }
    return pa.table(columns, schema=_SCHEMA)


@cache
def _avro_schema() -> str:
    path = resources.files("streaming_lsm.format").joinpath("schemas", "HoodieLSMTimelineInstant.avsc")
    return json.dumps(json.loads(path.read_text("utf-8")), separators=(",", ":"))
