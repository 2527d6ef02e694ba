"""hoodie.properties, folders and leftovers (docs/format/01-table.md; docs/format/10-rules.md, "Rule 31", "Rule 33")."""

from __future__ import annotations

import zlib
from pathlib import Path

from .report import Report
from .table import PARTITION_FILE, DataFile, Table, parse_name, parse_properties, walk

TRUTH = ("true", "false")
WRITTEN: dict[str, tuple[str, ...]] = {
    "hoodie.table.name": (),
    "hoodie.table.type": ("COPY_ON_WRITE", "MERGE_ON_READ"),
    "hoodie.table.version": ("10",),
    "hoodie.table.initial.version": (),
    "hoodie.timeline.layout.version": ("2",),
    "hoodie.table.checksum": (),
    "hoodie.table.storage.layout": ("lsm_tree",),
    "hoodie.meta.fields.mode": ("ALL",),
    "hoodie.populate.meta.fields": ("true",),
    "hoodie.table.base.file.format": ("PARQUET",),
    "hoodie.table.recordkey.fields": (),
    "hoodie.table.partition.fields": (),
    "hoodie.table.keygenerator.type": (),
    "hoodie.table.partition_extractor_class": (),
    "hoodie.record.merge.mode": ("COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING", "CUSTOM"),
    "hoodie.table.cdc.enabled": TRUTH,
    "hoodie.datasource.write.hive_style_partitioning": TRUTH,
    "hoodie.datasource.write.partitionpath.urlencode": TRUTH,
    "hoodie.datasource.write.drop.partition.columns": ("false",),
    "hoodie.partition.metafile.use.base.format": ("false",),
    "hoodie.table.timeline.timezone": ("LOCAL", "UTC"),
    "hoodie.timeline.path": ("timeline",),
    "hoodie.timeline.history.path": ("history",),
    "hoodie.archivelog.folder": ("history",),
    "hoodie.table.format": ("native",),
    "hoodie.table.multiple.base.file.formats.enable": ("false",),
}
BUCKETS = {"lsm.bucket.index.num.buckets": (), "lsm.bucket.index.hash.field": ()}
LOOKUPS = {
    "lsm.index.type": (
        "SIMPLE",
        "BLOOM",
        "GLOBAL_SIMPLE",
        "GLOBAL_BLOOM",
        "RECORD_INDEX",
        "GLOBAL_RECORD_LEVEL_INDEX",
        "RECORD_LEVEL_INDEX",
    )
}
MAY_BE_EMPTY = ("hoodie.table.partition.fields",)
NEVER = ("hoodie.table.precombine.field", "hoodie.table.log.file.format")
ONLY_CUSTOM = ("hoodie.record.merge.strategy.id", "hoodie.compaction.payload.class")
LOCKS = (".hoodie/lock", ".hoodie/.aux/lock")


def check_properties(table: Table, report: Report) -> None:
    """Every key marked W is there with a legal value; the checksum is right."""
    where, found = "hoodie.properties", table.properties
    of_index, other = (LOOKUPS, BUCKETS) if "lsm.index.type" in found else (BUCKETS, LOOKUPS)
    for key in other:
        report.check(key not in found, "props.extra", where, key)
    for key, legal in {**WRITTEN, **of_index}.items():
        if report.check(key in found, "props.missing", where, key):
            filled = bool(found[key]) or key in MAY_BE_EMPTY
            legal_value = not legal or found[key] in legal
            report.check(filled and legal_value, "props.value", where, f"{key}={found[key]}")
    for key in NEVER:
        report.check(key not in found, "props.extra", where, key)
    if table.merge_mode != "CUSTOM":
        for key in ONLY_CUSTOM:
            report.check(key not in found, "props.extra", where, f"{key} belongs to CUSTOM")
    named = f"{found.get('hoodie.database.name', '')}.{found.get('hoodie.table.name', '')}"
    report.equal(found.get("hoodie.table.checksum"), str(zlib.crc32(named.encode())), "props.checksum", where)
    _check_numbers(table, report)


def _check_numbers(table: Table, report: Report) -> None:
    where = "hoodie.properties"
    initial = table.properties.get("hoodie.table.initial.version", "10")
    report.check(initial.isdigit() and 0 <= int(initial) <= 10, "props.value", where, f"initial version {initial}")
    buckets = table.properties.get("lsm.bucket.index.num.buckets", "1")
    report.check(buckets.isdigit() and int(buckets) > 0, "props.value", where, f"{buckets} buckets")
    stray = set(table.names("lsm.bucket.index.hash.field")) - set(table.key_fields)
    report.check(not stray, "props.value", where, f"hash fields {sorted(stray)} are no key fields")


def check_folders(table: Table, report: Report) -> None:
    """Nothing lies about that belongs to no completed or pending instant."""
    hoodie = table.path / ".hoodie"
    report.check((hoodie / "timeline" / "history").is_dir(), "folder.missing", ".hoodie/timeline/history")
    for path in sorted(hoodie.iterdir()):
        if path.name.endswith(".backup"):
            report.add("leftover.backup", f".hoodie/{path.name}")
        elif path.is_file() and path.name not in ("hoodie.properties", "lock") and not _is_crc(path):
            report.add("leftover.unknown", f".hoodie/{path.name}")
    for place in LOCKS:
        report.check(not (table.path / place).exists(), "leftover.lock", place)
    for path in sorted((hoodie / ".locks").glob("*")):
        report.add("leftover.lock", f".hoodie/.locks/{path.name}")
    for folder, code in ((".temp", "leftover.markers"), (".heartbeat", "leftover.heartbeat")):
        for path in sorted((hoodie / folder).glob("*")):
            pending = path.name in table.timeline.pending
            report.check(pending or _is_crc(path), code, f".hoodie/{folder}/{path.name}", "its instant is not pending")


def _is_crc(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".crc")


def check_names(table: Table, report: Report) -> None:
    """Every file outside of .hoodie is a data file or partition metadata."""
    for path, partition in walk(table.path):
        known = path.name == PARTITION_FILE or _is_crc(path)
        where = path.relative_to(table.path).as_posix()
        found = parse_name(path, partition)
        if not known and report.check(found is not None, "file.name", where, "matches no pattern"):
            assert found is not None
            report.check(found.kind != "inline", "file.name", where, "inline log in a table of version 10")
            report.check(path.name.endswith(".parquet"), "file.name", where, "not Parquet")
            report.check(len(found.instant) == 17, "file.name", where, f"instant {found.instant}")


def check_partitions(table: Table, files: list[DataFile], known: set[str], report: Report) -> None:
    """Each partition has its metadata file; hive style and depth fit the partition fields."""
    fields = [name.split(":")[0] for name in table.names("hoodie.table.partition.fields")]
    hive = table.properties.get("hoodie.datasource.write.hive_style_partitioning") == "true"
    for partition in sorted({file.partition for file in files}):
        where = f"{partition}/{PARTITION_FILE}" if partition else PARTITION_FILE
        parts = partition.split("/") if partition else []
        report.check(len(parts) >= len(fields) and bool(parts) == bool(fields), "partition.depth", partition, fields)
        if hive and len(parts) == len(fields):
            fits = all(part.startswith(f"{name}=") for part, name in zip(parts, fields, strict=True))
            report.check(fits, "partition.hive", partition, fields)
        path = table.path / partition / PARTITION_FILE
        if not report.check(path.is_file(), "partition.metadata", where, "missing"):
            continue
        found = parse_properties(path.read_bytes())
        report.equal(found.get("partitionDepth"), str(len(parts)), "partition.metadata", where)
        time = found.get("commitTime", "")
        first = table.timeline.first
        report.check(
            time in known or (len(time) == 17 and time < first), "partition.metadata", where, f"commitTime {time}"
        )
