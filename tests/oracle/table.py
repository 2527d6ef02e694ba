"""What lies in a table's folder: properties, timeline and data files, as found.

See docs/format/01-table.md; docs/format/02-timeline.md.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import duckdb

from .avro_io import read_record

META = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
OPERATION = "_hoodie_operation"
WRITES = ("commit", "deltacommit", "replacecommit")
PENDING_OF = {"compaction": "commit", "logcompaction": "deltacommit", "clustering": "replacecommit"}
METADATA_RECORD = {
    "commit": "HoodieCommitMetadata",
    "deltacommit": "HoodieCommitMetadata",
    "replacecommit": "HoodieReplaceCommitMetadata",
    "clean": "HoodieCleanMetadata",
    "rollback": "HoodieRollbackMetadata",
    "restore": "HoodieRestoreMetadata",
    "savepoint": "HoodieSavepointMetadata",
    "indexing": "HoodieIndexCommitMetadata",
}
PARTITION_FILE = ".hoodie_partition_metadata"

_COMPLETED = re.compile(r"(\d+)_(\d+)\.([a-z]+)")
_PENDING = re.compile(r"(\d+)\.(?:([a-z]+)\.)?(requested|inflight)")
_LOG = re.compile(r"([^._]+)_((\d+)-(\d+)-(\d+))_(\d+)_(\d+)\.(log|deletes|cdc)\.([^.]+)")
_BASE = re.compile(r"([^._]+)_(\d+-\d+-\d+)_(\d+)\.([A-Za-z0-9]+)")
_INLINE = re.compile(r"\.([^._]+)_([^.]*)\.(log|archive)\.(\d+)(_((\d+)-(\d+)-(\d+))(\.cdc)?)?")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(raw: bytes) -> dict[str, str]:
    """Parse Java properties text: Latin-1, comments, continued lines, backslash escapes."""
    lines: list[str] = []
    carried: str | None = None
    for line in re.split(r"\r\n|\n|\r", raw.decode("latin-1")):
        text = line.lstrip(" \t\f")
        if carried is None and (not text or text[0] in "#!"):
            continue
        text = (carried or "") + text
        trailing = len(text) - len(text.rstrip("\\"))
        carried = text[:-1] if trailing % 2 else None
        if carried is None:
            lines.append(text)
    if carried is not None:
        lines.append(carried)
    return dict(_split_property(line) for line in lines)


def _split_property(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    rest = line[at:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return _unescape(line[:at]), _unescape(rest)


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    plain = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", one, text, flags=re.DOTALL)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16")


@dataclass(frozen=True)
class DataFile:
    """A base, log, delete or CDC file by its name."""

    path: Path
    partition: str
    file_id: str
    token: str
    instant: str
    kind: str
    version: int = 0

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def relative(self) -> str:
        return f"{self.partition}/{self.name}" if self.partition else self.name

    @property
    def group(self) -> tuple[str, str]:
        return self.partition, self.file_id


@dataclass(frozen=True)
class Completed:
    """A completed action; ``raw`` holds the bytes of its metadata."""

    instant: str
    completion: str
    action: str
    raw: bytes
    archived: bool = False

    @cached_property
    def _record(self) -> dict[str, Any]:
        return read_record(self.raw, METADATA_RECORD[self.action])

    def metadata(self) -> dict[str, Any]:
        """Return the decoded metadata; do not change it."""
        return self._record


@dataclass
class Timeline:
    """The active timeline's entries and the history's completed ones."""

    completed: list[Completed] = field(default_factory=list)
    archived: list[Completed] = field(default_factory=list)
    pending: dict[str, str] = field(default_factory=dict)
    times: list[str] = field(default_factory=list)

    @property
    def first(self) -> str:
        """The smallest requested time of any action on the active timeline."""
        return min(self.times, default="")

    def writes(self) -> dict[str, Completed]:
        """Completed writes by requested time; the active timeline wins over the history."""
        found = {c.instant: c for c in self.archived if c.action in WRITES}
        found |= {c.instant: c for c in self.completed if c.action in WRITES}
        return dict(sorted(found.items()))


@dataclass(frozen=True)
class Table:
    """A table's folder, read once."""

    path: Path
    properties: dict[str, str]
    timeline: Timeline

    def names(self, key: str) -> list[str]:
        """Return a comma list of the properties."""
        return [name.strip() for name in self.properties.get(key, "").split(",") if name.strip()]

    @property
    def key_fields(self) -> list[str]:
        return self.names("hoodie.table.recordkey.fields")

    @property
    def merge_mode(self) -> str:
        unset = "EVENT_TIME_ORDERING" if self.names("hoodie.table.ordering.fields") else "COMMIT_TIME_ORDERING"
        return self.properties.get("hoodie.record.merge.mode", unset)

    @property
    def ordering_fields(self) -> list[str]:
        """The fields that decide between rows: none under COMMIT_TIME_ORDERING."""
        by_commit = self.merge_mode == "COMMIT_TIME_ORDERING"
        return [] if by_commit else self.names("hoodie.table.ordering.fields")

    def data_files(self) -> list[DataFile]:
        """List every file below the root that has a data file's name."""
        return [found for path, partition in walk(self.path) if (found := parse_name(path, partition))]


def open_table(path: str | os.PathLike[str]) -> Table:
    """Read properties and timeline of a table."""
    root = Path(path)
    properties = parse_properties((root / ".hoodie" / "hoodie.properties").read_bytes())
    return Table(root, properties, read_timeline(root))


def walk(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file outside of .hoodie with its partition path."""
    for folder, subfolders, names in os.walk(root):
        where = Path(folder)
        if where == root:
            subfolders[:] = [name for name in subfolders if name != ".hoodie"]
        subfolders.sort()
        partition = "" if where == root else where.relative_to(root).as_posix()
        for name in sorted(names):
            yield where / name, partition


def parse_name(path: Path, partition: str) -> DataFile | None:
    """Tell a data file by its name; a native log is never a base file."""
    if match := _LOG.fullmatch(path.name):
        file_id, token, _, _, _, instant, version, kind, _ = match.groups()
        return DataFile(path, partition, file_id, token, instant, kind, int(version))
    if match := _BASE.fullmatch(path.name):
        return DataFile(path, partition, match[1], match[2], match[3], "base")
    if match := _INLINE.fullmatch(path.name):
        return DataFile(path, partition, match[1], match[6] or "", match[2], "inline", int(match[4]))
    return None


def read_timeline(root: Path) -> Timeline:
    """Read the active timeline's names and bytes, and the history."""
    timeline = Timeline(archived=list(read_history(root)))
    folder = root / ".hoodie" / "timeline"
    started: dict[str, str] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if match := _COMPLETED.fullmatch(path.name):
            timeline.completed.append(Completed(match[1], match[2], match[3], path.read_bytes()))
            timeline.times.append(match[1])
        elif match := _PENDING.fullmatch(path.name):
            timeline.times.append(match[1])
            if match[2] != "savepoint":
                started[match[1]] = match[2] or "commit"
    done = {c.instant for c in timeline.completed if c.action != "savepoint"}
    timeline.pending = {time: action for time, action in sorted(started.items()) if time not in done}
    return timeline


def history_files(root: Path) -> list[Path]:
    """Name the archive's files by its newest manifest."""
    folder = root / ".hoodie" / "timeline" / "history"
    version = folder / "_version_"
    if version.is_file():
        manifest = folder / f"manifest_{int(version.read_text('utf-8'))}"
    else:
        numbers = [int(path.name[9:]) for path in folder.glob("manifest_*")]
        if not numbers:
            return []
        manifest = folder / f"manifest_{max(numbers)}"
    listed = json.loads(manifest.read_text("utf-8"))
    return [folder / str(entry["fileName"]) for entry in listed["files"]]


@cache
def database() -> duckdb.DuckDBPyConnection:
    """A database in memory for all reads of this process: to make one takes longer than to read a small table."""
    return duckdb.connect(config={"threads": 1, "autoinstall_known_extensions": False})


def read_history(root: Path) -> Iterator[Completed]:
    """Read archived actions out of the files that the newest manifest names."""
    paths = [literal_glob(path) for path in history_files(root)]
    if not paths:
        return
    with database().cursor() as con:
        rows = con.execute(
            "SELECT instantTime, completionTime, action, metadata FROM read_parquet(?)", [paths]
        ).fetchall()
    for instant, completion, action, raw in rows:
        yield Completed(instant, completion, action, bytes(raw or b""), archived=True)


def literal_glob(path: Path) -> str:
    """Escape a path for duckdb, which takes every path for a glob."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))
