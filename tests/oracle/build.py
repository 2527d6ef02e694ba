"""Makes tables of version 10 by hand: pyarrow for files, bare bytes for the timeline. Rows in, folders out.

The builder sorts rows, names files and fills stats; which instant writes what, and what a reader must find, is up to
the caller. It knows nothing of merging.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .avro_io import arrow_type, write_record
from .hashing import bucket_of, encode_bloom

Row = Mapping[str, Any]
NULLABLE_TEXT: list[str] = ["null", "string"]
META_COLUMNS = [
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
]
ESCAPED = set("\"#%'*/:=?\\\x7f{[]^") | {chr(code) for code in range(32)}


@dataclass
class Layout:
    """What a table is made of; ``fields`` are (name, Avro type) pairs."""

    fields: Sequence[tuple[str, Any]]
    key: Sequence[str] = ("id",)
    ordering: Sequence[str] = ("ts",)
    partition: Sequence[str] = ()
    mode: str = "EVENT_TIME_ORDERING"
    keygen: str = ""
    hive: bool = False
    urlencode: bool = False
    buckets: int = 2
    hash_fields: Sequence[str] = ()
    operation_column: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Group:
    """The files of one file group that completed writes have left."""

    base: str | None = None
    base_instant: str | None = None
    logs: list[tuple[str, str, str]] = field(default_factory=list)


class TableBuilder:
    """A table under construction."""

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path, self.layout, self.name = path, layout, path.name
        self.fields = list(layout.fields)
        self.groups: dict[tuple[str, str], Group] = {}
        self.seqnos: dict[tuple[str, str, str], str] = {}
        for folder in (
            "timeline/history",
            ".aux/.bootstrap/.partitions",
            ".aux/.bootstrap/.fileids",
            ".schema",
            ".temp",
        ):
            (path / ".hoodie" / folder).mkdir(parents=True)
        self.timeline = path / ".hoodie" / "timeline"
        self.write_properties()

    # ------------------------------------------------------------ properties and schemas

    def properties(self) -> dict[str, str]:
        layout = self.layout
        known = {
            "hoodie.table.name": self.name,
            "hoodie.table.type": "MERGE_ON_READ",
            "hoodie.table.version": "10",
            "hoodie.table.initial.version": "10",
            "hoodie.timeline.layout.version": "2",
            "hoodie.table.checksum": str(zlib.crc32(f".{self.name}".encode())),
            "hoodie.table.storage.layout": "lsm_tree",
            "hoodie.meta.fields.mode": "ALL",
            "hoodie.populate.meta.fields": "true",
            "hoodie.table.base.file.format": "PARQUET",
            "hoodie.table.recordkey.fields": ",".join(layout.key),
            "hoodie.table.partition.fields": ",".join(layout.partition),
            "hoodie.table.keygenerator.type": layout.keygen or self._keygen(),
            "hoodie.table.partition_extractor_class": "org.apache.hudi.hive.MultiPartKeysValueExtractor",
            "hoodie.record.merge.mode": layout.mode,
            "hoodie.table.cdc.enabled": "false",
            "hoodie.datasource.write.hive_style_partitioning": str(layout.hive).lower(),
            "hoodie.datasource.write.partitionpath.urlencode": str(layout.urlencode).lower(),
            "hoodie.datasource.write.drop.partition.columns": "false",
            "hoodie.partition.metafile.use.base.format": "false",
            "hoodie.table.timeline.timezone": "UTC",
            "hoodie.timeline.path": "timeline",
            "hoodie.timeline.history.path": "history",
            "hoodie.archivelog.folder": "history",
            "hoodie.table.format": "native",
            "hoodie.table.multiple.base.file.formats.enable": "false",
            "lsm.bucket.index.num.buckets": str(layout.buckets),
            "lsm.bucket.index.hash.field": ",".join(layout.hash_fields or layout.key),
        }
        if layout.ordering:
            known["hoodie.table.ordering.fields"] = ",".join(layout.ordering)
        return known | dict(layout.extra)

    def _keygen(self) -> str:
        if not self.layout.partition:
            return "NON_PARTITION"
        return "SIMPLE" if len(self.layout.key) == len(self.layout.partition) == 1 else "COMPLEX"

    def write_properties(self) -> None:
        lines = ["#Properties saved on 2026-11-20T10:00:00Z", "#Fri Nov 20 10:00:00 UTC 2026"]
        lines += [f"{key}={_escape(value)}" for key, value in sorted(self.properties().items())]
        (self.path / ".hoodie" / "hoodie.properties").write_text("\n".join(lines) + "\n", encoding="latin-1")

    def _record(self, fields: Sequence[dict[str, Any]]) -> dict[str, Any]:
        space = f"hoodie.{self.name}"
        return {"type": "record", "name": f"{self.name}_record", "namespace": space, "fields": list(fields)}

    def table_schema(self) -> dict[str, Any]:
        return self._record([_avro_field(name, kind) for name, kind in self.fields])

    def file_schema(self) -> dict[str, Any]:
        names = META_COLUMNS + (["_hoodie_operation"] if self.layout.operation_column else [])
        meta = [{"name": name, "type": NULLABLE_TEXT, "doc": "", "default": None} for name in names]
        return self._record(meta + self.table_schema()["fields"])

    def delete_schema(self) -> dict[str, Any]:
        fields: list[dict[str, Any]] = [{"name": "_hoodie_record_key", "type": "string"}]
        if self.layout.mode == "EVENT_TIME_ORDERING":
            types = dict(self.fields)
            fields += [
                {"name": name, "type": ["null", _bare(types[name])], "default": None} for name in self.layout.ordering
            ]
        return {"type": "record", "name": "hudi_delete_log_record", "fields": fields}

    # ------------------------------------------------------------ keys

    def record_key(self, row: Row) -> str:
        if len(self.layout.key) == 1 and self.layout.keygen != "COMPLEX" and self._keygen() != "COMPLEX":
            return str(row[self.layout.key[0]])
        texts = {None: "__null__", "": "__empty__"}
        return ",".join(f"{name}:{texts.get(row.get(name), row.get(name))}" for name in self.layout.key)

    def partition_path(self, row: Row) -> str:
        parts = []
        for name in self.layout.partition:
            text = str(row[name]) if row.get(name) not in (None, "") else "__HIVE_DEFAULT_PARTITION__"
            if self.layout.urlencode:
                text = "".join(f"%{ord(c):02X}" if c in ESCAPED else c for c in text)
            parts.append(f"{name}={text}" if self.layout.hive else text)
        return "/".join(parts)

    def bucket(self, key: str) -> int:
        fields = self.layout.hash_fields or self.layout.key
        return bucket_of(key, self.layout.key, fields, self.layout.buckets)

    def file_id(self, partition: str, bucket: int, generation: int = 0) -> str:
        rest = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{partition}/{bucket}/{generation}"))[8:]
        return f"{bucket:08d}{rest}-0"

    # ------------------------------------------------------------ actions

    @contextmanager
    def deltacommit(self, instant: str, completion: str | None, operation: str = "UPSERT") -> Iterator[Write]:
        """Write as a deltacommit; without a completion time it stays pending."""
        write = Write(self, instant)
        yield write
        self._touch(f"{instant}.deltacommit.requested", f"{instant}.deltacommit.inflight")
        self._finish(write, completion, "deltacommit", operation)

    @contextmanager
    def abandoned(self, instant: str) -> Iterator[Write]:
        """Write files that no instant of the timeline stands for."""
        yield Write(self, instant)

    @contextmanager
    def compaction(self, instant: str, completion: str | None) -> Iterator[Write]:
        """Write base files as a FULL compaction; the caller says what is in them."""
        write = Write(self, instant, keeps_meta=True)
        yield write
        plan = self._plan(write, lambda log: log[1] < instant)
        (self.timeline / f"{instant}.compaction.requested").write_bytes(plan)
        self._touch(f"{instant}.compaction.inflight")
        self._finish(write, completion, "commit", "COMPACT")

    @contextmanager
    def logcompaction(self, instant: str, completion: str | None, covers: Sequence[str]) -> Iterator[Write]:
        """Write log files that stand for the instants in ``covers``."""
        write = Write(self, instant, covers=covers, keeps_meta=True)
        yield write
        plan = self._plan(write, lambda log: log[2] in covers)
        (self.timeline / f"{instant}.logcompaction.requested").write_bytes(plan)
        self._touch(f"{instant}.logcompaction.inflight")
        self._finish(write, completion, "deltacommit", "LOG_COMPACT")

    @contextmanager
    def replacecommit(self, instant: str, completion: str, replaced: dict[str, list[str]]) -> Iterator[Write]:
        """Write new file groups and make ``replaced`` (partition → file ids) invisible."""
        write = Write(self, instant, generation=1)
        yield write
        request = write_record("HoodieRequestedReplaceMetadata", {"operationType": "INSERT_OVERWRITE"})
        (self.timeline / f"{instant}.replacecommit.requested").write_bytes(request)
        self._touch(f"{instant}.replacecommit.inflight")
        self._finish(write, completion, "replacecommit", "INSERT_OVERWRITE", partitionToReplaceFileIds=replaced)

    def rollback(self, instant: str, completion: str, target: str) -> None:
        """Record the rollback of a deltacommit; its files and timeline entries are the caller's business."""
        info = {"commitTime": target, "action": "deltacommit"}
        plan = {"instantToRollback": info, "RollbackRequests": []}
        done = {
            "startRollbackTime": instant,
            "timeTakenInMillis": 5,
            "totalFilesDeleted": 0,
            "commitsRollback": [target],
            "partitionMetadata": {},
            "instantsRollback": [info],
        }
        (self.timeline / f"{instant}.rollback.requested").write_bytes(write_record("HoodieRollbackPlan", plan))
        self._touch(f"{instant}.rollback.inflight")
        (self.timeline / f"{instant}_{completion}.rollback").write_bytes(write_record("HoodieRollbackMetadata", done))

    def archive(self, instants: Sequence[str]) -> None:
        """Move completed writes from the active timeline into one history file."""
        rows = []
        for instant in sorted(instants):
            (done,) = self.timeline.glob(f"{instant}_*")
            completion, action = done.name.split("_")[1].split(".")
            row = {
                "instantTime": instant,
                "completionTime": completion,
                "action": action,
                "metadata": done.read_bytes(),
            }
            rows.append(row | {"plan": None, "version": 1})
            for path in self.timeline.glob(f"{instant}[._]*"):
                path.unlink()
        text, raw = pa.string(), pa.binary()
        columns = [("instantTime", text), ("completionTime", text), ("action", text), ("metadata", raw), ("plan", raw)]
        schema = pa.schema([pa.field(*c) for c in columns] + [pa.field("version", pa.int32(), nullable=False)])
        history = self.timeline / "history"
        name = f"{min(instants)}_{max(instants)}_0.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema), history / name, compression="gzip")
        listed = {"files": [{"fileName": name, "fileLen": (history / name).stat().st_size}]}
        (history / "manifest_1").write_text(json.dumps(listed), encoding="utf-8")
        (history / "_version_").write_text("1", encoding="utf-8")

    def _plan(self, write: Write, takes: Any) -> bytes:
        operations = []
        for partition, file_id in sorted({(stat["partitionPath"], stat["fileId"]) for stat in write.stats}):
            group = self.groups.get((partition, file_id), Group())
            logs = [log for log in sorted(group.logs, key=_log_order) if takes(log)]
            operations.append(
                {
                    "baseInstantTime": group.base_instant or min((log[2] for log in logs), default=write.instant),
                    "deltaFilePaths": [log[0] for log in logs],
                    "dataFilePath": group.base,
                    "fileId": file_id,
                    "partitionPath": partition,
                    "metrics": {"TOTAL_LOG_FILES": float(len(logs))},
                }
            )
        strategy = {"compactorClassName": "org.apache.hudi.LogCompaction"} if write.covers else None
        plan = {"operations": operations, "version": 2, "strategy": strategy, "missingSchedulePartitions": []}
        return write_record("HoodieCompactionPlan", plan | {"preserveHoodieMetadata": bool(write.covers)})

    def _finish(self, write: Write, completion: str | None, action: str, operation: str, **more: Any) -> None:
        if completion is None:
            write.leave_markers()
            return
        stats: dict[str, list[Any]] = {}
        for stat in write.stats:
            stats.setdefault(stat["partitionPath"], []).append(stat)
        metadata = {
            "partitionToWriteStats": stats,
            "compacted": operation in ("COMPACT", "LOG_COMPACT"),
            "extraMetadata": {"schema": json.dumps(self.table_schema())},
            "version": 1,
            "operationType": operation,
        }
        record = "HoodieReplaceCommitMetadata" if action == "replacecommit" else "HoodieCommitMetadata"
        (self.timeline / f"{write.instant}_{completion}.{action}").write_bytes(write_record(record, metadata | more))
        write.publish(completion)

    def _touch(self, *names: str) -> None:
        for name in names:
            (self.timeline / name).write_bytes(b"")


class Write:
    """The files of one action."""

    def __init__(
        self,
        table: TableBuilder,
        instant: str,
        covers: Sequence[str] = (),
        keeps_meta: bool = False,
        generation: int = 0,
    ) -> None:
        self.table, self.instant, self.covers = table, instant, covers
        self.keeps_meta, self.generation = keeps_meta, generation
        self.stats: list[dict[str, Any]] = []
        self._count = 0

    def log(self, rows: Sequence[Row], version: int = 1, token: str = "0-1-1") -> None:
        """Write data logs, one per file group that has rows."""
        for (partition, bucket), members in self._split(rows).items():
            self._write_log("log", partition, bucket, members, version, token)

    def deletes(self, rows: Sequence[Row], version: int = 1, token: str = "0-1-1") -> None:
        """Write delete logs; rows name key, partition and, if given, ordering values."""
        for (partition, bucket), members in self._split(rows).items():
            self._write_log("deletes", partition, bucket, members, version, token)

    def base(self, rows: Sequence[Row], token: str = "0-1-1") -> None:
        """Write base files, one per file group that has rows."""
        for (partition, bucket), members in self._split(rows).items():
            self._write_base(partition, bucket, members, token)

    def empty_base(self, partition: str, bucket: int) -> None:
        """Write a base file without rows."""
        self._write_base(partition, bucket, [], "0-1-1")

    def leave_markers(self) -> None:
        """Leave a marker for each file, as an unfinished write does."""
        for stat in self.stats:
            marker = self.table.path / ".hoodie" / ".temp" / self.instant / f"{stat['path']}.marker.CREATE"
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.write_bytes(b"")

    def publish(self, completion: str) -> None:
        """Note the files in the table's file groups."""
        for stat in self.stats:
            group = self.table.groups.setdefault((stat["partitionPath"], stat["fileId"]), Group())
            name = stat["path"].rsplit("/", 1)[-1]
            if stat["logFiles"]:
                group.logs.append((name, completion, self.instant))
            else:
                group.base, group.base_instant = name, self.instant
                group.logs = [log for log in group.logs if log[1] >= self.instant]

    def _split(self, rows: Sequence[Row]) -> dict[tuple[str, int], list[Row]]:
        found: dict[tuple[str, int], list[Row]] = {}
        for row in sorted(rows, key=lambda row: self.table.record_key(row).encode("utf-8")):
            place = self.table.partition_path(row), self.table.bucket(self.table.record_key(row))
            found.setdefault(place, []).append(row)
        return dict(sorted(found.items()))

    def _with_meta(self, row: Row, partition: str, file_name: str) -> dict[str, Any]:
        key = self.table.record_key(row)
        time = row.get("_hoodie_commit_time", self.instant)
        seqno = self.table.seqnos.get((time, partition, key)) if self.keeps_meta else None
        if seqno is None:
            seqno = f"{time}_0_{self._count}"
            self._count += 1
            self.table.seqnos[time, partition, key] = seqno
        meta = dict(zip(META_COLUMNS, (time, seqno, key, partition, file_name), strict=True))
        return dict(row) | meta

    def _folder(self, partition: str) -> Path:
        folder = self.table.path / partition
        folder.mkdir(parents=True, exist_ok=True)
        marker = folder / ".hoodie_partition_metadata"
        if not marker.exists():
            depth = len(partition.split("/")) if partition else 0
            text = f"#partition metadata\n#Fri Nov 20 10:00:00 UTC 2026\ncommitTime={self.instant}\n"
            marker.write_text(f"{text}partitionDepth={depth}\n", encoding="latin-1")
        return folder

    def _write_log(self, kind: str, partition: str, bucket: int, rows: list[Row], version: int, token: str) -> None:
        file_id = self.table.file_id(partition, bucket, self.generation)
        name = f"{file_id}_{token}_{self.instant}_{version}.{kind}.parquet"
        schema = self.table.file_schema() if kind == "log" else self.table.delete_schema()
        header = {"VERSION": "2", "INSTANT_TIME": self.instant, "SCHEMA": json.dumps(self.table.file_schema())}
        if self.covers:
            header["COMPACTED_BLOCK_TIMES"] = ",".join(sorted(self.covers))
        if kind == "log":
            filled = [self._with_meta(row, partition, file_id) for row in rows]
        else:
            filled = [dict(row) | {"_hoodie_record_key": self.table.record_key(row)} for row in rows]
        path = self._folder(partition) / name
        footer = {"parquet.avro.schema": json.dumps(schema), "hudi.log.format.metadata": json.dumps(header)}
        _write_parquet(path, schema, filled, footer)
        log = {"prevCommit": self.instant, "logVersion": version, "logOffset": 0, "baseFile": "", "logFiles": [name]}
        self._add_stat(path, partition, file_id, len(rows), kind, log)

    def _write_base(self, partition: str, bucket: int, rows: list[Row], token: str) -> None:
        file_id = self.table.file_id(partition, bucket, self.generation)
        name = f"{file_id}_{token}_{self.instant}.parquet"
        filled = [self._with_meta(row, partition, name) for row in rows]
        keys = [row["_hoodie_record_key"] for row in filled]
        footer = {"parquet.avro.schema": json.dumps(self.table.file_schema()), "writer.model.name": "avro"}
        footer |= {"org.apache.hudi.bloomfilter": encode_bloom(keys), "hoodie_bloom_filter_type_code": "DYNAMIC_V0"}
        if keys:
            footer |= {"hoodie_min_record_key": keys[0], "hoodie_max_record_key": keys[-1]}
        path = self._folder(partition) / name
        _write_parquet(path, self.table.file_schema(), filled, footer)
        group = self.table.groups.get((partition, file_id), Group())
        base = {"prevCommit": group.base_instant or "null", "logFiles": None, "prevBaseFile": group.base}
        self._add_stat(path, partition, file_id, len(rows), "base", base)

    def _add_stat(self, path: Path, partition: str, file_id: str, rows: int, kind: str, more: dict[str, Any]) -> None:
        size = path.stat().st_size
        stat = {
            "fileId": file_id,
            "path": path.relative_to(self.table.path).as_posix(),
            "partitionPath": partition,
            "numWrites": 0 if kind == "deletes" else rows,
            "numInserts": rows if kind == "base" else 0,
            "numUpdateWrites": rows if kind == "log" else 0,
            "numDeletes": rows if kind == "deletes" else 0,
            "totalWriteBytes": size,
            "fileSizeInBytes": size,
            "totalWriteErrors": 0,
        }
        self.stats.append(stat | more)


def _escape(value: str) -> str:
    escaped = "".join(f"\\{c}" if c in "\\:=#!" else c for c in value)
    return "".join(c if ord(c) < 127 else f"\\u{ord(c):04x}" for c in escaped)


def _log_order(log: tuple[str, str, str]) -> tuple[str, int, int]:
    stem, kind, _ = log[0].split(".")
    return log[2], int(stem.rsplit("_", 1)[1]), ("log", "deletes").index(kind)


def _avro_field(name: str, kind: Any) -> dict[str, Any]:
    null = {"default": None} if isinstance(kind, list) else {}
    return {"name": name, "type": kind} | null


def _bare(kind: Any) -> Any:
    return next(branch for branch in kind if branch != "null") if isinstance(kind, list) else kind


def _write_parquet(path: Path, avro: dict[str, Any], rows: Sequence[Row], footer: Mapping[str, str]) -> None:
    fields = [pa.field(f["name"], arrow_type(f["type"]), isinstance(f["type"], list)) for f in avro["fields"]]
    schema = pa.schema(fields)
    table = pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)
    with pq.ParquetWriter(path, schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(dict(footer))
