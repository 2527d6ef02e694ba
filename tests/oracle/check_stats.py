"""Write stats against the files on disk.

See docs/format/02-timeline.md; docs/format/10-rules.md, "Rule 26", "Rule 34", "Rule 35", "Rule 36".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from .report import Report
from .table import Completed, DataFile, Table


@dataclass(frozen=True)
class Listed:
    """A stat with the write that it belongs to."""

    write: Completed
    operation: str
    stat: dict[str, Any]


def collect(table: Table, report: Report) -> dict[str, Listed]:
    """Return the stats of completed writes by the file's path below the root."""
    found: dict[str, Listed] = {}
    for write in table.timeline.writes().values():
        with report.guard("stats.unreadable", f"{write.instant}.{write.action}"):
            metadata = write.metadata()
            for partition, stats in (metadata.get("partitionToWriteStats") or {}).items():
                for stat in stats:
                    path = str(stat["path"])
                    report.check(path not in found, "stats.twice", path)
                    report.equal(stat["partitionPath"], partition, "stats.partition", path)
                    found[path] = Listed(write, str(metadata.get("operationType")), stat)
    return found


def cdc_paths(listed: dict[str, Listed]) -> dict[str, int]:
    """Return the CDC files that stats name, with their sizes."""
    return {path: size for one in listed.values() for path, size in (one.stat.get("cdcStats") or {}).items()}


class Cleaned:
    """What completed cleans have deleted."""

    def __init__(self, table: Table, report: Report) -> None:
        self.names: dict[str, set[str]] = {}
        self.partitions: dict[str, str] = {}
        for entry in table.timeline.archived + table.timeline.completed:
            if entry.action == "clean" and entry.raw:
                with report.guard("clean.unreadable", entry.instant):
                    self._add(entry.instant, entry.metadata())

    def _add(self, instant: str, metadata: dict[str, Any]) -> None:
        for partition, part in metadata["partitionMetadata"].items():
            deleted = self.names.setdefault(partition, set())
            deleted |= {str(path).rsplit("/", 1)[-1] for path in part["successDeleteFiles"]}
            if part["isPartitionDeleted"]:
                self.partitions[partition] = max(instant, self.partitions.get(partition, ""))

    def covers(self, partition: str, name: str, instant: str) -> bool:
        return name in self.names.get(partition, ()) or instant < self.partitions.get(partition, "")


def check_stats(table: Table, files: list[DataFile], listed: dict[str, Listed], report: Report) -> list[DataFile]:
    """Compare both ways; return the files of completed instants."""
    cleaned = Cleaned(table, report)
    writes = table.timeline.writes()
    on_disk = {file.relative: file for file in files}
    replaced = replaced_groups(table)
    cdc = cdc_paths(listed)
    captured = table.properties.get("hoodie.table.cdc.enabled") == "true"
    names_slices = captured and table.properties.get("hoodie.table.type") == "MERGE_ON_READ"
    live: list[DataFile] = []
    for path, file in on_disk.items():
        if file.instant in writes:
            live.append(file)
            report.check(path in listed or path in cdc, "stats.unlisted", path, "its instant's stats do not name it")
            deleted = file.name in cleaned.names.get(file.partition, ())
            report.check(not deleted, "clean.not-deleted", path)
        elif file.instant in table.timeline.pending:
            _check_markers(table, file, report)
        else:
            report.add("leftover.instant", path, f"instant {file.instant} is neither completed nor pending")
    for path, one in listed.items():
        if path in on_disk:
            with report.guard("stats.unreadable", path):
                names_slice = names_slices and one.operation not in ("COMPACT", "LOG_COMPACT")
                _check_stat(on_disk[path], one, _unreplaced(one, listed, replaced), report, names_slice)
        else:
            partition, _, name = path.rpartition("/")
            gone = cleaned.covers(partition, name, one.write.instant)
            report.check(gone, "stats.missing-file", path, "listed, not there, not cleaned")
    for path, size in cdc.items():
        if path in on_disk:
            report.equal(size, on_disk[path].path.stat().st_size, "stats.size", path)
    return live


def replaced_groups(table: Table) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Return the requested and completion times at which file groups were replaced, by partition and file id."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for write in table.timeline.writes().values():
        if write.action == "replacecommit":
            for partition, ids in (write.metadata().get("partitionToReplaceFileIds") or {}).items():
                for file_id in ids:
                    found.setdefault((partition, file_id), []).append(
                        (write.instant, write.completion or write.instant)
                    )
    return found


def _unreplaced(
    one: Listed, listed: dict[str, Listed], replaced: dict[tuple[str, str], list[tuple[str, str]]]
) -> dict[str, Listed]:
    """Leave out files of the group that were replaced before a file was requested: it begins the group anew.

    A compaction that was planned before the replacement was completed goes on with the files of its plan.
    """
    group = (one.stat["partitionPath"], one.stat["fileId"])
    since, completed = max((each for each in replaced.get(group, []) if each[1] < one.write.instant), default=("", ""))
    if not completed:
        return listed
    return {
        path: other
        for path, other in listed.items()
        if (other.stat["partitionPath"], other.stat["fileId"]) != group
        or other.write.instant > (completed if other.operation in ("COMPACT", "LOG_COMPACT") else since)
    }


def _check_markers(table: Table, file: DataFile, report: Report) -> None:
    folder = table.path / ".hoodie" / ".temp" / file.instant
    direct = list((folder / file.partition).glob(f"{file.name}.marker.*")) if folder.is_dir() else []
    lines = [line for path in folder.glob("MARKERS[0-9]*") for line in path.read_text("utf-8").splitlines()]
    named = any(line.startswith(f"{file.relative}.marker.") for line in lines)
    report.check(bool(direct) or named, "pending.marker", file.relative, "a pending file without a marker")


def _check_stat(file: DataFile, one: Listed, listed: dict[str, Listed], report: Report, names_slice: bool) -> None:
    stat, where = one.stat, file.relative
    report.equal(file.instant, one.write.instant, "stats.instant", where)
    report.equal(stat["fileId"], file.file_id, "stats.file-id", where)
    report.equal(stat["partitionPath"], file.partition, "stats.partition", where)
    size = file.path.stat().st_size
    report.equal(stat["fileSizeInBytes"], size, "stats.size", where)
    report.equal(stat["totalWriteBytes"], size, "stats.size", where)
    report.check(not stat["totalWriteErrors"], "stats.counts", where, "write errors")
    counts = {name: stat[name] or 0 for name in ("numWrites", "numInserts", "numUpdateWrites", "numDeletes")}
    rows = pq.read_metadata(file.path).num_rows
    changed = counts["numInserts"] + counts["numUpdateWrites"]
    if file.kind == "deletes":
        wanted = {"numWrites": 0, "numInserts": 0, "numUpdateWrites": 0, "numDeletes": rows}
        report.equal(counts, wanted, "stats.counts", where)
    elif file.kind == "log":
        right = (counts["numWrites"], changed, counts["numDeletes"]) == (rows, rows, 0)
        report.check(right, "stats.counts", where, f"{counts} for {rows} rows")
    else:
        right = counts["numWrites"] == rows and changed <= rows
        report.check(right, "stats.counts", where, f"{counts} for {rows} rows")
    if file.kind == "base":
        _check_base(file, stat, listed, report)
    else:
        _check_log(file, stat, report, names_slice)
        if names_slice:
            _check_slice(file, stat, listed, report)


def _check_slice(file: DataFile, stat: dict[str, Any], listed: dict[str, Listed], report: Report) -> None:
    """Check the slice that a log's stat names: files of its group, the log itself the last one."""
    group = {
        path.rsplit("/", 1)[-1]: other.write.instant
        for path, other in listed.items()
        if (other.stat["partitionPath"], other.stat["fileId"]) == file.group
    }
    base, logs = stat["baseFile"], stat["logFiles"]
    report.equal(logs[-1], file.name, "stats.logFiles", file.relative)
    report.check(set(logs) <= set(group), "stats.logFiles", file.relative, logs)
    since = group.get(base, "") if base else group.get(logs[0], "")
    report.equal(stat["prevCommit"], since, "stats.prevCommit", file.relative)


def _check_log(file: DataFile, stat: dict[str, Any], report: Report, names_slice: bool) -> None:
    wanted: dict[str, object] = {"logVersion": file.version, "logOffset": 0, "prevBaseFile": None}
    if not names_slice:
        wanted |= {"prevCommit": file.instant, "baseFile": "", "logFiles": [file.name]}
    for name, value in wanted.items():
        report.equal(stat[name], value, f"stats.{name}", file.relative)


def _check_base(file: DataFile, stat: dict[str, Any], listed: dict[str, Listed], report: Report) -> None:
    for name in ("logVersion", "logOffset", "baseFile", "logFiles"):
        report.check(not stat[name], f"stats.{name}", file.relative, stat[name])
    older = [
        (other.write.instant, path.rsplit("/", 1)[-1], bool(other.stat["logFiles"]))
        for path, other in listed.items()
        if (other.stat["partitionPath"], other.stat["fileId"]) == file.group and other.write.instant < file.instant
    ]
    bases = [(instant, name) for instant, name, is_log in older if not is_log]
    if bases:
        legal: list[str | None] = [max(bases)[0]]
        names: list[str | None] = [max(bases)[1]]
    else:
        legal, names = ["null", *sorted(instant for instant, _, _ in older)[:1]], [None, "", "null"]
    report.check(stat["prevCommit"] in legal, "stats.prevCommit", file.relative, f"{stat['prevCommit']}, not {legal}")
    report.check(stat["prevBaseFile"] in names, "stats.prevBaseFile", file.relative, f"{stat['prevBaseFile']}")
