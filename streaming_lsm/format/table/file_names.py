"""Parse and print the names of base files, native logs (version 2) and inline logs (version 1).

See docs/format/01-table.md, "File ids, tokens, names".
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from streaming_lsm.errors import UnsupportedTable

BucketId = tuple[str, int]
"""Partition path and bucket number; the simple bucket index has at most one live file group per bucket."""


MAX_BUCKETS = 100_000_000
"""Limit of the bucket number, the first eight digits of a file id."""

SortKey = tuple[str, int, int, str]
"""Position of a log among the logs of its slice: instant, version, rank of the kind, token (none first)."""

# The patterns are narrower than Hudi's: a name is accepted only if it prints back as itself, so that no two names
# are parsed to one file. Instants are digits, because any other text would sort before or after all valid instants.
_FILE_ID = r"(?P<file_id>[^._/\x00-\x1f\x7f]+)"
_TOKEN = r"(?P<token>[0-9]{1,10}-[0-9]{1,10}-[0-9]{1,10})"
_INSTANT = r"(?P<instant>[0-9]{1,32})"
_VERSION = r"(?P<version>[0-9]{1,10})"
_NATIVE = re.compile(rf"{_FILE_ID}_{_TOKEN}_{_INSTANT}_{_VERSION}\.(?P<kind>log|deletes|cdc)\.(?P<format>[A-Za-z0-9]+)")
_RFC103 = re.compile(rf"{_FILE_ID}_{_TOKEN}_{_INSTANT}_{_VERSION}(?P<delete>\.delete)?\.parquet")
_INLINE = re.compile(rf"\.{_FILE_ID}_{_INSTANT}\.log\.{_VERSION}(_{_TOKEN}(?P<cdc>\.cdc)?)?")
_BASE_TOKEN = r"(?P<token>[A-Za-z0-9-]+)"
_BASE = re.compile(rf"(?P<file_id>[A-Za-z0-9-]+)_{_BASE_TOKEN}_{_INSTANT}\.(?P<extension>parquet|orc|lance)")
# File ids of a metadata table have names of partitions and columns.
_HFILE = re.compile(rf"{_FILE_ID}_{_BASE_TOKEN}_{_INSTANT}\.(?P<extension>hfile)")
_BUCKET = re.compile(r"[0-9]{8}")


@dataclass(frozen=True, slots=True)
class WriteToken:
    """Write token, the task attempt that wrote a file: task partition, stage, attempt."""

    task: int
    stage: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.task}-{self.stage}-{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> WriteToken:
        """Parse ``task-stage-attempt``.

        Raises:
            ValueError: `text` is not three decimal numbers joined by ``-``.
        """
        match = re.fullmatch(_TOKEN, text)
        if match is None:
            raise ValueError(f"write token {text!r}: expected <task>-<stage>-<attempt>")
        task, stage, attempt = text.split("-")
        return cls(int(task), int(stage), int(attempt))


class LogKind(StrEnum):
    """Kind of a native log. Of logs with the same instant and version, the later kind in this order is newer."""

    DATA = "log"
    DELETES = "deletes"
    CDC = "cdc"

    @property
    def rank(self) -> int:
        """Rank in the merge order: data, deletes, change capture (docs/format/01-table.md, "Order of log files")."""
        return _RANKS[self]


_RANKS = {LogKind.DATA: 0, LogKind.DELETES: 1, LogKind.CDC: 2}


@dataclass(frozen=True, slots=True)
class BaseFileName:
    """Name of a base file: ``<file id>_<token>_<instant>.<extension>``, with the base instant of the file slice."""

    file_id: str
    token: str
    instant: str
    extension: str = "parquet"

    def __str__(self) -> str:
        return f"{self.file_id}_{self.token}_{self.instant}.{self.extension}"


@dataclass(frozen=True, slots=True)
class LogFileName:
    """Name of a native log of table version 10: ``<file id>_<token>_<instant>_<version>.<kind>.<format>``.

    Attributes:
        version: log version, from 1 for each (file id, token, instant); the data and delete log of a flush share it.
        format: suffix of the file format; other formats than ``parquet`` are recognised, but not readable.
        rfc103: whether the name has the form of the first version of RFC-103 (read-only).
    """

    file_id: str
    token: WriteToken
    instant: str
    version: int
    kind: LogKind
    format: str = "parquet"
    rfc103: bool = False

    @property
    def is_change_log(self) -> bool:
        """Whether it is a change log, which CDC queries read and merges ignore."""
        return self.kind is LogKind.CDC

    def __str__(self) -> str:
        kind = f".{self.kind}"
        if self.rfc103:
            kind = ".delete" if self.kind is LogKind.DELETES else ""
        return f"{self.file_id}_{self.token}_{self.instant}_{self.version}{kind}.{self.format}"

    @property
    def sort_key(self) -> SortKey:
        """Sort key, ascending from older to newer."""
        return (self.instant, self.version, self.kind.rank, str(self.token))


@dataclass(frozen=True, slots=True)
class InlineLogName:
    """Name of an inline log of table versions up to 9: ``.<file id>_<instant>.log.<version>[_<token>[.cdc]]``."""

    file_id: str
    instant: str
    version: int
    token: WriteToken | None = None
    cdc: bool = False

    @property
    def is_change_log(self) -> bool:
        """Whether it is a change log, which CDC queries read and merges ignore."""
        return self.cdc

    def __str__(self) -> str:
        token = "" if self.token is None else f"_{self.token}"
        return f".{self.file_id}_{self.instant}.log.{self.version}{token}{'.cdc' if self.cdc else ''}"

    @property
    def sort_key(self) -> SortKey:
        """Sort key, ascending from older to newer; comparable with the sort key of a `LogFileName`."""
        kind = LogKind.CDC if self.cdc else LogKind.DATA
        return (self.instant, self.version, kind.rank, "" if self.token is None else str(self.token))


_KEPT_NAMES = 1 << 16
"""Parsed names that are kept: a change query looks at those of a file group once for each of its writes."""

DataFileName = BaseFileName | LogFileName | InlineLogName


@lru_cache(maxsize=_KEPT_NAMES)
def parse_file_name(name: str, *, rfc103_names: bool = False) -> DataFileName | None:
    """Parse the name of a data file.

    Native logs are tested before base files, whose pattern also matches them.

    Args:
        name: file name without folders.
        rfc103_names: also accept the log names of the first version of RFC-103.

    Returns:
        The parsed name; None if it is not a data file (checksums, markers, partition metadata, …).
    """
    parsed = _native(name) or (_rfc103(name) if rfc103_names else None) or _inline(name) or _base(name)
    return parsed if parsed is not None and str(parsed) == name else None


def _native(name: str) -> LogFileName | None:
    match = _NATIVE.fullmatch(name)
    if match is None:
        return None
    token = WriteToken.parse(match["token"])
    kind = LogKind(match["kind"])
    return LogFileName(
        file_id=match["file_id"],
        token=token,
        instant=match["instant"],
        version=int(match["version"]),
        kind=kind,
        format=match["format"],
    )


def _rfc103(name: str) -> LogFileName | None:
    match = _RFC103.fullmatch(name)
    if match is None:
        return None
    token = WriteToken.parse(match["token"])
    kind = LogKind.DELETES if match["delete"] else LogKind.DATA
    return LogFileName(match["file_id"], token, match["instant"], int(match["version"]), kind, rfc103=True)


def _inline(name: str) -> InlineLogName | None:
    match = _INLINE.fullmatch(name)
    if match is None:
        return None
    token = WriteToken.parse(match["token"]) if match["token"] else None
    return InlineLogName(match["file_id"], match["instant"], int(match["version"]), token, bool(match["cdc"]))


def _base(name: str) -> BaseFileName | None:
    match = _BASE.fullmatch(name) or _HFILE.fullmatch(name)
    return BaseFileName(match["file_id"], match["token"], match["instant"], match["extension"]) if match else None


def bucket_of(file_id: str) -> int:
    """Parse the bucket number of a file id (docs/format/07-index-and-metadata.md, "Simple bucket index").

    Raises:
        UnsupportedTable: the file id does not begin with eight digits.
    """
    if not _BUCKET.match(file_id):
        raise UnsupportedTable(
            f"file id {file_id!r} does not begin with an eight-digit bucket number: the table was not written with a "
            "simple bucket index, and can only be read; `lsm copy` copies it to a table with one"
        )
    return int(file_id[:8])


def fixed_file_id(bucket: int) -> str:
    """Create the file id of a new file group on which all writers agree: zeros but for the bucket number."""
    return bucket_file_id(bucket, uuid.UUID(int=0))


def bucket_file_id(bucket: int, unique: uuid.UUID) -> str:
    """Create the file id of a new file group: the bucket number, the rest of a random UUID, ``-0``.

    Raises:
        ValueError: `bucket` does not fit into eight digits.
    """
    if not 0 <= bucket < MAX_BUCKETS:
        raise ValueError(f"bucket {bucket}: expected 0 to {MAX_BUCKETS - 1}")
    return f"{bucket:08d}{str(unique)[8:]}-0"
