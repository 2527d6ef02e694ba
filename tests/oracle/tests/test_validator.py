"""The validator passes the golden tables and names what is wrong with broken ones."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ..avro_io import pinned, read_record, write_record
from ..build import TableBuilder
from ..golden import at
from ..hashing import encode_bloom
from ..validator import codes, validate
from ..writer import GOLDEN, Layout

FOOTER = "hudi.log.format.metadata"
Change = Callable[[Path], object]


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_golden_tables_have_the_violations_written_down(name: str, tmp_path: Path) -> None:
    table = GOLDEN[name](tmp_path)
    violations = validate(table.path)
    assert codes(violations) == set(table.violations), violations


# ---------------------------------------------------------------- ways to break a table


def one(root: Path, pattern: str) -> Path:
    return sorted(root.glob(pattern))[0]


def touch(place: str, content: bytes = b"") -> Change:
    def change(root: Path) -> None:
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_bytes(content)

    return change


def properties(old: str, new: str) -> Change:
    def change(root: Path) -> None:
        path = root / ".hoodie" / "hoodie.properties"
        text = path.read_text("latin-1")
        assert old in text
        path.write_text(text.replace(old, new), "latin-1")

    return change


def timeline(pattern: str, rename: Callable[[str], str] | None = None, raw: bytes | None = None) -> Change:
    def change(root: Path) -> None:
        path = one(root / ".hoodie" / "timeline", pattern)
        if raw is not None:
            path.write_bytes(raw)
        elif rename is not None:
            path.rename(path.with_name(rename(path.name)))
        else:
            path.unlink()

    return change


def commit(pattern: str, edit: Callable[[dict[str, Any]], None]) -> Change:
    def change(root: Path) -> None:
        path = one(root / ".hoodie" / "timeline", pattern)
        metadata = read_record(path.read_bytes(), "HoodieCommitMetadata")
        edit(metadata)
        path.write_bytes(write_record("HoodieCommitMetadata", metadata))

    return change


def stat(name: str, value: Any) -> Change:
    def edit(metadata: dict[str, Any]) -> None:
        next(iter(metadata["partitionToWriteStats"].values()))[0][name] = value

    return commit("*.deltacommit", edit)


def rewrite(
    pattern: str,
    rows: Callable[[pa.Table], pa.Table] = lambda table: table,
    footer: Callable[[dict[str, str]], object] = lambda _: None,
    **options: Any,
) -> Change:
    """Rewrite one data file; its stats then name another size, which is a violation of its own."""

    def change(root: Path) -> None:
        path = one(root, pattern)
        table = rows(pq.read_table(path, partitioning=None))
        raw = pq.read_metadata(path).metadata
        entries = {key.decode(): value.decode() for key, value in raw.items() if key != b"ARROW:schema"}
        footer(entries)
        with pq.ParquetWriter(path, table.schema.remove_metadata(), **options) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata(entries)

    return change


def header(edit: Callable[[dict[str, str]], dict[str, str]]) -> Callable[[dict[str, str]], None]:
    def change(entries: dict[str, str]) -> None:
        entries[FOOTER] = json.dumps(edit(json.loads(entries[FOOTER])))

    return change


def column(name: str, value: Any) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        where = table.column_names.index(name)
        values = table.column(where).to_pylist()
        values[-1] = value
        return table.set_column(where, table.schema.field(where), pa.array(values, table.schema.field(where).type))

    return change


def with_codec(root: Path) -> None:
    path = one(root / ".hoodie" / "timeline", "*_*.deltacommit")
    record = read_record(path.read_bytes(), "HoodieCommitMetadata")
    out = io.BytesIO()
    fastavro.writer(out, pinned("HoodieCommitMetadata"), [record], codec="deflate")
    path.write_bytes(out.getvalue())


def second_group(root: Path) -> None:
    path = one(root, "00000000-*.log.parquet")
    shutil.copy(path, path.with_name("00000000-0000-4000-8000-000000000000-0" + path.name[38:]))


def rename_everywhere(old: str, new: str) -> Change:
    """Rename a data file on disk and in its stats."""

    def change(root: Path) -> None:
        path = one(root, f"*{old}*")
        renamed = path.name.replace(old, new)

        def edit(metadata: dict[str, Any]) -> None:
            for stats in metadata["partitionToWriteStats"].values():
                for entry in stats:
                    if entry["path"] == path.name:
                        entry |= {"path": renamed, "fileId": renamed[:38], "logFiles": [renamed]}
                        entry["logVersion"] = int(renamed.split("_")[3].split(".")[0])

        commit(f"{path.name.split('_')[2]}_*.deltacommit", edit)(root)
        path.rename(path.with_name(renamed))

    return change


def delete_field(name: str) -> Callable[[dict[str, str]], None]:
    def change(entries: dict[str, str]) -> None:
        schema = json.loads(entries["parquet.avro.schema"])
        schema["fields"][0]["name"] = name
        entries["parquet.avro.schema"] = json.dumps(schema)

    return change


LOGS = "base_and_logs"
BASE = f"*_{at(1)}.parquet"
BLOOM = "org.apache.hudi.bloomfilter"
BROKEN: list[tuple[str, str, Change]] = [
    # hoodie.properties
    ("props.checksum", LOGS, properties("hoodie.table.checksum=", "hoodie.table.checksum=1")),
    ("props.missing", LOGS, properties("hoodie.record.merge.mode", "hoodie.record.merge.mood")),
    ("props.missing", LOGS, properties("hoodie.meta.fields.mode", "hoodie.meta.fields")),
    ("props.value", LOGS, properties("layout=lsm_tree", "layout=default")),
    ("props.value", LOGS, properties("hoodie.table.version=10", "hoodie.table.version=9")),
    (
        "props.extra",
        LOGS,
        properties("hoodie.table.format=native", "hoodie.table.format=native\nhoodie.table.precombine.field=ts"),
    ),
    ("table.unreadable", LOGS, lambda root: (root / ".hoodie" / "hoodie.properties").unlink()),
    # leftovers
    ("leftover.backup", LOGS, touch(".hoodie/hoodie.properties.backup")),
    ("leftover.unknown", LOGS, touch(".hoodie/tmp123")),
    ("leftover.lock", LOGS, touch(".hoodie/lock")),
    ("leftover.markers", LOGS, touch(f".hoodie/.temp/{at(1)}/x.marker.CREATE")),
    ("leftover.heartbeat", LOGS, touch(f".hoodie/.heartbeat/{at(1)}")),
    ("leftover.instant", LOGS, touch(f"00000000-0000-4000-8000-000000000000-0_0-1-1_{at(99)}_1.log.parquet")),
    ("file.name", LOGS, touch("part-0000.parquet.tmp")),
    ("file.name", LOGS, touch(f".00000000-0000-4000-8000-000000000000-0_{at(1)}.log.1_0-1-1")),
    ("pending.marker", "pending_write", lambda root: one(root / ".hoodie" / ".temp" / at(3), "*.log.*").unlink()),
    # timeline
    ("timeline.name", LOGS, touch(".hoodie/timeline/20261120.deltacommit.requested")),
    ("timeline.name", LOGS, touch(f".hoodie/timeline/{at(50)}.upsert.requested")),
    ("timeline.triple", LOGS, timeline("*.inflight")),
    ("timeline.triple", LOGS, timeline("*.requested")),
    ("timeline.times", LOGS, timeline(f"{at(1)}_*", rename=lambda _: f"{at(1)}_{at(2)}.deltacommit")),
    ("timeline.order", LOGS, timeline(f"{at(2)}_*", rename=lambda _: f"{at(2)}_{at(1, 900)}.deltacommit")),
    ("timeline.content", LOGS, timeline("*.requested", raw=b"{}")),
    ("timeline.content", LOGS, timeline("*_*.deltacommit", raw=b"")),
    ("timeline.container", LOGS, timeline("*_*.deltacommit", raw=b"Obj\x01\x00")),
    ("timeline.container", LOGS, with_codec),
    ("commit.schema", LOGS, commit("*.deltacommit", lambda metadata: metadata["extraMetadata"].clear())),
    ("commit.operation", LOGS, commit("*.deltacommit", lambda metadata: metadata.update(operationType="MERGE"))),
    ("commit.compacted", LOGS, commit("*.deltacommit", lambda metadata: metadata.update(compacted=True))),
    ("plan.late-log", "compacted", timeline(f"{at(2)}_*", rename=lambda _: f"{at(2)}_{at(8)}.deltacommit")),
    # stats
    ("stats.missing-file", LOGS, lambda root: one(root, "*.log.parquet").unlink()),
    (
        "stats.unlisted",
        LOGS,
        lambda root: shutil.copy(p := one(root, "*.log.parquet"), str(p).replace("0-1-1", "7-1-1")),
    ),
    ("stats.size", LOGS, stat("fileSizeInBytes", 1)),
    ("stats.counts", LOGS, stat("numWrites", 99)),
    ("stats.counts", "log_only", stat("numInserts", 1)),
    ("stats.prevCommit", "log_only", stat("prevCommit", "null")),
    ("stats.prevCommit", LOGS, stat("prevCommit", at(0))),
    ("stats.logVersion", "log_only", stat("logVersion", 2)),
    ("stats.logFiles", "log_only", stat("logFiles", [])),
    ("stats.file-id", LOGS, stat("fileId", "x")),
    ("stats.partition", LOGS, stat("partitionPath", "x")),
    # data files
    ("file.unreadable", LOGS, lambda root: one(root, "*.log.parquet").write_bytes(b"PAR1")),
    ("rows.sort", "log_versions", rewrite("*_1.log.parquet", rows=lambda t: t.take([1, 0]))),
    ("rows.key", "log_only", rewrite("*.log.parquet", rows=column("_hoodie_record_key", None))),
    ("rows.key-text", "log_only", rewrite("*.log.parquet", rows=column("id", "other"))),
    ("rows.partition-text", "hive_partitions", rewrite("*/*.log.parquet", rows=column("country", "FR"))),
    ("meta.commit-time", "log_only", rewrite("*.log.parquet", rows=column("_hoodie_commit_time", at(0)))),
    ("meta.seqno", "log_only", rewrite("*.log.parquet", rows=column("_hoodie_commit_seqno", "1_2"))),
    (
        "meta.seqno-unique",
        "log_versions",
        rewrite("*_2.log.parquet", rows=column("_hoodie_commit_seqno", f"{at(1)}_0_0")),
    ),
    ("meta.partition-path", "log_only", rewrite("*.log.parquet", rows=column("_hoodie_partition_path", "p"))),
    ("meta.file-name", "compacted", rewrite(f"*_{at(3)}.parquet", rows=column("_hoodie_file_name", "old.parquet"))),
    ("footer.missing", "log_only", rewrite("*.log.parquet", footer=lambda entries: entries.pop(FOOTER))),
    ("footer.missing", "log_only", rewrite("*.log.parquet", footer=lambda entries: entries.pop("parquet.avro.schema"))),
    ("footer.VERSION", "log_only", rewrite("*.log.parquet", footer=header(lambda h: h | {"VERSION": "1"}))),
    ("footer.order", "log_only", rewrite("*.log.parquet", footer=header(lambda h: dict(reversed(h.items()))))),
    ("footer.INSTANT_TIME", "log_only", rewrite("*.log.parquet", footer=header(lambda h: h | {"INSTANT_TIME": at(9)}))),
    ("footer.SCHEMA", "log_only", rewrite("*.log.parquet", footer=header(lambda h: {"VERSION": "2"}))),
    ("footer.names", "log_only", rewrite("*.log.parquet", footer=header(lambda h: h | {"BLOCK_TYPE": "data"}))),
    (
        "footer.COMPACTED_BLOCK_TIMES",
        "log_compaction",
        rewrite("*.log.parquet", footer=header(lambda h: h | {"COMPACTED_BLOCK_TIMES": f"{at(2)}, {at(1)}"})),
    ),
    ("footer.min-key", LOGS, rewrite(BASE, footer=lambda entries: entries.pop("hoodie_min_record_key"))),
    ("footer.max-key", LOGS, rewrite(BASE, footer=lambda entries: entries.update(hoodie_max_record_key="a"))),
    ("footer.bloom", LOGS, rewrite(BASE, footer=lambda entries: entries.pop(BLOOM))),
    ("footer.bloom", LOGS, rewrite(BASE, footer=lambda entries: entries.update({BLOOM: encode_bloom(["stranger"])}))),
    ("footer.bloom", LOGS, rewrite(BASE, footer=lambda entries: entries.update({BLOOM: entries[BLOOM][:-8]}))),
    ("file.columns", "log_only", rewrite("*.log.parquet", rows=lambda t: t.drop_columns(["name"]))),
    (
        "file.columns",
        "log_only",
        rewrite("*.log.parquet", rows=lambda t: t.set_column(7, "ts", t.column("ts").cast(pa.int32()))),
    ),
    ("file.encoding", "log_only", rewrite("*.log.parquet", compression="brotli")),
    ("file.bucket", "log_only", rename_everywhere("00000000-", "00000001-")),
    ("file.versions", "log_versions", rename_everywhere("_10.log", "_12.log")),
    ("bucket.groups", "log_only", second_group),
    ("deletes.schema", LOGS, rewrite("*.deletes.parquet", footer=delete_field("record_key"))),
    ("deletes.partly-null", "two_ordering_fields", rewrite("*.deletes.parquet", rows=column("seq", None))),
    # partitions
    (
        "partition.metadata",
        "hive_partitions",
        lambda root: (root / "country=NL" / ".hoodie_partition_metadata").unlink(),
    ),
    (
        "partition.metadata",
        "hive_partitions",
        touch("country=NL/.hoodie_partition_metadata", f"commitTime={at(1)}\npartitionDepth=2\n".encode()),
    ),
    (
        "partition.metadata",
        "hive_partitions",
        touch("country=NL/.hoodie_partition_metadata", f"commitTime={at(77)}\npartitionDepth=1\n".encode()),
    ),
]


@pytest.mark.parametrize(
    ("code", "name", "change"), BROKEN, ids=[f"{number}-{code}" for number, (code, _, _) in enumerate(BROKEN)]
)
def test_broken_copies_are_named(code: str, name: str, change: Change, tmp_path: Path) -> None:
    table = GOLDEN[name](tmp_path)
    assert code not in codes(validate(table.path))
    change(table.path)
    violations = validate(table.path)
    assert code in codes(violations), violations


def cleaned_table(tmp_path: Path, named: bool) -> TableBuilder:
    table = TableBuilder(tmp_path / "t", Layout([("id", "string"), ("ts", "long")], buckets=1))
    with table.deltacommit(at(1), at(1, 500)) as write:
        write.log([{"id": "a", "ts": 1}])
    with table.compaction(at(2), at(2, 500)) as write:
        write.base([{"id": "a", "ts": 1, "_hoodie_commit_time": at(1)}])
    gone = one(table.path, "*.log.parquet")
    gone.unlink()
    part = {
        "partitionPath": "",
        "policy": "KEEP_LATEST_COMMITS",
        "deletePathPatterns": [gone.name],
        "successDeleteFiles": [gone.name] if named else [],
        "failedDeleteFiles": [],
    }
    plan = {"policy": "KEEP_LATEST_COMMITS", "lastCompletedCommitTimestamp": at(2)}
    done = {
        "startCleanTime": at(3),
        "timeTakenInMillis": 1,
        "totalFilesDeleted": 1,
        "earliestCommitToRetain": at(2),
        "partitionMetadata": {"": part},
    }
    (table.timeline / f"{at(3)}.clean.requested").write_bytes(write_record("HoodieCleanerPlan", plan))
    (table.timeline / f"{at(3)}.clean.inflight").write_bytes(b"")
    (table.timeline / f"{at(3)}_{at(3, 500)}.clean").write_bytes(write_record("HoodieCleanMetadata", done))
    return table


def test_cleaned_files_may_be_gone(tmp_path: Path) -> None:
    assert validate(cleaned_table(tmp_path, named=True).path) == []


def test_files_that_no_clean_names_may_not_be_gone(tmp_path: Path) -> None:
    assert codes(validate(cleaned_table(tmp_path, named=False).path)) == {"stats.missing-file"}


def test_cleaned_files_that_are_still_there_are_named(tmp_path: Path) -> None:
    table = cleaned_table(tmp_path, named=True)
    name = table.groups[next(iter(table.groups))].base
    raw = (table.timeline / f"{at(3)}_{at(3, 500)}.clean").read_bytes()
    metadata = read_record(raw, "HoodieCleanMetadata")
    metadata["partitionMetadata"][""]["successDeleteFiles"].append(name)
    (table.timeline / f"{at(3)}_{at(3, 500)}.clean").write_bytes(write_record("HoodieCleanMetadata", metadata))
    assert codes(validate(table.path)) == {"clean.not-deleted"}
