"""Data files: footers, columns, row order, meta columns, blooms, buckets.

See docs/format/01-table.md; docs/format/03-native-logs.md; docs/format/07-index-and-metadata.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .avro_io import arrow_schema, arrow_type
from .check_key_entries import KeyEntryChecks
from .check_stats import Listed
from .hashing import EMPTY_TEXT, NULL_TEXT, bucket_of, decode_bloom
from .report import Report
from .table import META, OPERATION, DataFile, Table

FOOTER = "hudi.log.format.metadata"
AVRO = "parquet.avro.schema"
BLOOM = "org.apache.hudi.bloomfilter"
BLOOM_TYPE = "hoodie_bloom_filter_type_code"
UNTIL = "lsm.tombstones.until"
CHAIN = "lsm.compacted.chain"
MOST_KEPT = 3
SEQNO = re.compile(r"(\d{17})_\d+_\d+")
FILE_ID = re.compile(r"(\d{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}-\d+")
UUID_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}-\d+")
HEADER_NAMES = {
    "VERSION",
    "INSTANT_TIME",
    "SCHEMA",
    "IS_PARTIAL",
    "BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS",
    "RECORD_POSITIONS",
    "COMPACTED_BLOCK_TIMES",
    "BLOCK_IDENTIFIER",
    "TARGET_INSTANT_TIME",
    "COMMAND_BLOCK_TYPE",
}
REWRITES = ("COMPACT", "LOG_COMPACT", "CLUSTER")
BLOOM_SAMPLE = 2000


class FileChecks:
    """Checks one file after the other; keeps what has to be unique across them."""

    def __init__(self, table: Table, listed: dict[str, Listed], report: Report) -> None:
        self.table, self.listed, self.report = table, listed, report
        self.seqnos: dict[str, str] = {}
        self.covers: dict[tuple[tuple[str, str], str], str] = {}
        self.chains: dict[str, tuple[tuple[str, str], list[str], dict[str, list[str]]]] = {}
        self.bases: dict[tuple[tuple[str, str], str], set[str]] = {}
        self.kept: dict[tuple[tuple[str, str], str], list[set[str]]] = {}
        self.key_entries = KeyEntryChecks(report)
        self.times = set(table.timeline.writes())
        self.key_fields = table.key_fields
        self.hash_fields = table.names("lsm.bucket.index.hash.field") or self.key_fields
        self.buckets = int(table.properties.get("lsm.bucket.index.num.buckets", "0") or 0)

    def run(self, files: list[DataFile]) -> None:
        self.bases = {(file.group, file.instant): set() for file in files if file.kind == "base"}
        for file in files:
            with self.report.guard("file.unreadable", file.relative):
                self._check(file)
        self._check_kept()
        self._check_chains()
        self.key_entries.finish()
        self._check_versions(files)
        self._check_groups(files)

    def _check(self, file: DataFile) -> None:
        if file.kind not in ("base", "log", "deletes"):
            return
        with pq.ParquetFile(file.path) as parquet:
            raw = parquet.metadata.metadata or {}
            footer = {key.decode("utf-8"): value.decode("utf-8") for key, value in raw.items()}
            self._check_encodings(file, parquet.metadata)
            rows = parquet.read()
        if not self.report.check("_hoodie_record_key" in rows.column_names, "rows.key", file.relative, "no key column"):
            return
        keys = rows.column("_hoodie_record_key").to_pylist()
        if file.kind == "base":
            self.bases[file.group, file.instant] |= set(keys)
            schema = self._check_base_footer(file, footer, keys)
        else:
            self._check_until(file, footer, keys)
            schema = self._check_log_footer(file, footer)
            with self.report.guard("footer.chain", file.relative):
                self._collect_chain(file, footer)
            with self.report.guard("keys.own", file.relative):
                self.key_entries.add(file, footer, keys)
        if schema is not None:
            with self.report.guard("file.columns", file.relative):
                self._check_columns(file, schema, rows.schema, footer)
        if self._check_keys(file, keys):
            self._check_buckets(file, keys)
            if file.kind == "deletes":
                self._check_partly_null(file, rows)
            else:
                self._check_meta(file, rows)
                self._check_texts(file, rows)

    # ------------------------------------------------------------ kept deletes (06, "Kept deletes")

    def _is_kept(self, file: DataFile) -> bool:
        return file.kind == "deletes" and (file.group, file.instant) in self.bases

    def _is_rewritten(self, file: DataFile) -> bool:
        one = self.listed.get(file.relative)
        return one is not None and one.operation in REWRITES and not self._is_kept(file)

    def _check_until(self, file: DataFile, footer: dict[str, str], keys: list[str]) -> None:
        code, until = "footer.until", footer.get(UNTIL)
        if until is None:
            self.report.check(not self._is_kept(file), code, file.relative, "missing")
            return
        right = len(until) == 17 and until.isdigit() and until <= file.instant
        self.report.check(right, code, file.relative, until)
        if not self._is_kept(file):
            merged = file.kind == "deletes" and self._is_rewritten(file)
            self.report.check(merged, code, file.relative, "neither of kept deletes nor of a log compaction")
            return
        self.report.check(bool(keys), "kept.empty", file.relative, "no delete")
        self.kept.setdefault((file.group, file.instant), []).append(set(keys))

    def _check_kept(self) -> None:
        for (group, instant), parts in self.kept.items():
            where = f"{group[1]} at {instant}"
            self.report.check(len(parts) <= MOST_KEPT, "kept.files", where, len(parts))
            every = [self.bases[group, instant], *parts]
            self.report.equal(sum(map(len, every)), len(set().union(*every)), "kept.keys", where)

    # ------------------------------------------------------------ footers and columns

    def _check_log_footer(self, file: DataFile, footer: dict[str, str]) -> dict[str, Any] | None:
        report, where = self.report, file.relative
        if not report.check(FOOTER in footer, "footer.missing", where, FOOTER):
            return None
        with report.guard("footer.json", where):
            header = json.loads(footer[FOOTER])
            report.check(all(isinstance(value, str) for value in header.values()), "footer.json", where, "not all text")
            stray = sorted(set(header) - HEADER_NAMES)
            report.check(not stray, "footer.names", where, stray)
            report.check(list(header)[:1] == ["VERSION"], "footer.order", where, f"{list(header)[:1]} is first")
            report.equal(header.get("VERSION"), "2", "footer.VERSION", where)
            report.equal(header.get("INSTANT_TIME"), file.instant, "footer.INSTANT_TIME", where)
            report.check("IS_PARTIAL" not in header, "footer.IS_PARTIAL", where, "not in lsm_tree")
            self._check_covers(file, header)
            if report.check("SCHEMA" in header, "footer.SCHEMA", where, "missing"):
                return self._check_schema(file, json.loads(header["SCHEMA"]), "footer.SCHEMA")
        return None

    def _check_covers(self, file: DataFile, header: dict[str, str]) -> None:
        text, code = header.get("COMPACTED_BLOCK_TIMES"), "footer.COMPACTED_BLOCK_TIMES"
        rewritten = self._is_rewritten(file)
        if not self.report.equal(text is not None, rewritten, code, file.relative) or text is None:
            return
        times = text.split(",")
        right = times == sorted(set(times)) and all(time.isdigit() and time < file.instant for time in times)
        self.report.check(right, code, file.relative, text)
        first = self.covers.setdefault((file.group, file.instant), text)
        self.report.equal(text, first, code, file.relative)

    def _collect_chain(self, file: DataFile, footer: dict[str, str]) -> None:
        if CHAIN not in footer:
            return
        direct = json.loads(footer[FOOTER]).get("COMPACTED_BLOCK_TIMES", "").split(",")
        found = {instant: text.split(",") for instant, text in json.loads(footer[CHAIN]).items()}
        self.chains[file.relative] = (file.group, direct, found)

    def _check_chains(self) -> None:
        """Compare each chain with what the replaced files, as far as they lie there, say themselves."""
        for where, (group, direct, found) in self.chains.items():
            pending, expected = list(direct), {}
            while pending:
                instant = pending.pop()
                text = self.covers.get((group, instant))
                if text is not None and instant not in expected:
                    expected[instant] = text.split(",")
                    pending += expected[instant]
            self.report.equal(found, expected, "footer.chain", where)

    def _check_base_footer(self, file: DataFile, footer: dict[str, str], keys: list[Any]) -> dict[str, Any] | None:
        report, where = self.report, file.relative
        report.check(FOOTER not in footer, "footer.names", where, f"{FOOTER} in a base file")
        report.equal(footer.get("writer.model.name"), "avro", "footer.writer-model", where)
        report.equal(footer.get("hoodie_min_record_key"), keys[0] if keys else None, "footer.min-key", where)
        report.equal(footer.get("hoodie_max_record_key"), keys[-1] if keys else None, "footer.max-key", where)
        if BLOOM in footer:
            with report.guard("footer.bloom", where):
                self._check_bloom(file, footer, [key for key in keys if key])
        report.check(BLOOM in footer or BLOOM_TYPE not in footer, "footer.bloom", where, "a type without a filter")
        if not report.check(AVRO in footer, "footer.missing", where, AVRO):
            return None
        with report.guard("footer.avro", where):
            return self._check_schema(file, json.loads(footer[AVRO]), "footer.avro")
        return None

    def _check_bloom(self, file: DataFile, footer: dict[str, str], keys: list[str]) -> None:
        kind = footer.get(BLOOM_TYPE, "SIMPLE")
        self.report.check(kind in ("SIMPLE", "DYNAMIC_V0"), "footer.bloom", file.relative, kind)
        bloom = decode_bloom(footer[BLOOM], kind == "DYNAMIC_V0")
        step = max(1, len(keys) // BLOOM_SAMPLE)
        missed = [key for key in keys[::step] if not bloom.might_contain(key)]
        self.report.check(not missed, "footer.bloom", file.relative, f"misses {missed[:3]}")
        strangers = sum(bloom.might_contain(f"\x7fno such key {number}") for number in range(20))
        self.report.check(strangers < 5, "footer.bloom", file.relative, f"holds {strangers} of 20 strangers")

    def _check_schema(self, file: DataFile, schema: dict[str, Any], code: str) -> dict[str, Any]:
        """The meta columns come first; the rest is the schema of the commit."""
        name, where = self.table.properties.get("hoodie.table.name", ""), file.relative
        if name.isidentifier():
            self.report.equal(schema.get("name"), f"{name}_record", code, where)
            self.report.equal(schema.get("namespace"), f"hoodie.{name}", code, where)
        fields = schema["fields"]
        width = 6 if len(fields) > 5 and fields[5]["name"] == OPERATION else 5
        names = tuple(one["name"] for one in fields[:width])
        self.report.equal(names, (*META, OPERATION)[:width], code, where)
        meta = all(one["type"] == ["null", "string"] and one.get("default", 0) is None for one in fields[:width])
        self.report.check(meta, code, where, "meta columns are not nullable strings")
        one = self.listed.get(where)
        text = (one.write.metadata().get("extraMetadata") or {}).get("schema") if one else None
        if text:
            own = arrow_schema({"fields": fields[width:]})
            self.report.equal(own, arrow_schema(json.loads(text)), code, where)
        return schema

    def _check_columns(self, file: DataFile, schema: dict[str, Any], found: pa.Schema, footer: dict[str, str]) -> None:
        where = file.relative
        if not self.report.check(AVRO in footer, "footer.missing", where, AVRO):
            return
        avro = json.loads(footer[AVRO])
        if file.kind == "deletes":
            self._check_delete_schema(where, schema, avro)
        else:
            self.report.check(avro == schema, "footer.avro", where, "differs from SCHEMA")
        wanted = arrow_schema(avro)
        if self.report.equal(found.names, wanted.names, "file.columns", where):
            for one, other in zip(found, wanted, strict=True):
                same = plain_type(one.type) == plain_type(other.type)
                self.report.check(same, "file.columns", where, f"{one.name} is {one.type}, not {other.type}")

    def _check_delete_schema(self, where: str, schema: dict[str, Any], avro: dict[str, Any]) -> None:
        named = avro.get("name"), avro.get("namespace")
        self.report.equal(named, ("hudi_delete_log_record", None), "deletes.schema", where)
        types = {one["name"]: one["type"] for one in schema["fields"]}
        fields = [(one["name"], one["type"]) for one in avro["fields"]]
        names = [name for name, _ in fields]
        order = self.table.ordering_fields
        self.report.equal(names, ["_hoodie_record_key", *order], "deletes.schema", where)
        self.report.equal(fields[0][1], "string", "deletes.schema", where)
        for name, kind in fields[1:]:
            nullable = isinstance(kind, list) and kind[0] == "null"
            same = name in types and arrow_type(kind) == arrow_type(types[name])
            self.report.check(nullable and same, "deletes.schema", where, f"{name} is {kind}")

    def _check_encodings(self, file: DataFile, metadata: Any) -> None:
        for group in range(metadata.num_row_groups):
            for number in range(metadata.num_columns):
                column = metadata.row_group(group).column(number)
                split = "BYTE_STREAM_SPLIT" in column.encodings
                refused = split or column.compression in ("BROTLI", "LZO")
                self.report.check(not refused, "file.encoding", file.relative, column.path_in_schema)

    # ------------------------------------------------------------ rows

    def _check_keys(self, file: DataFile, keys: list[Any]) -> bool:
        if not self.report.check(all(keys), "rows.key", file.relative, "null or empty record key"):
            return False
        raw = [str(key).encode("utf-8") for key in keys]
        wrong = next((later for earlier, later in pairwise(raw) if later < earlier), None)
        return self.report.check(wrong is None, "rows.sort", file.relative, f"{wrong!r} comes too late")

    def _check_buckets(self, file: DataFile, keys: list[str]) -> None:
        looked_up = "lsm.index.type" in self.table.properties
        match = (UUID_ID if looked_up else FILE_ID).fullmatch(file.file_id)
        if not self.report.check(match is not None, "file.file-id", file.relative) or not self.buckets:
            return
        assert match is not None
        number = int(match[1])
        self.report.check(number < self.buckets, "file.bucket", file.relative, f"{number} of {self.buckets}")
        stray = [key for key in set(keys) if bucket_of(key, self.key_fields, self.hash_fields, self.buckets) != number]
        self.report.check(not stray, "file.bucket", file.relative, f"{len(stray)} keys, {sorted(stray)[:3]}")

    def _check_partly_null(self, file: DataFile, rows: pa.Table) -> None:
        columns = [rows.column(name).is_null().to_pylist() for name in rows.column_names[1:]]
        mixed = [nulls for nulls in zip(*columns, strict=True) if any(nulls) and not all(nulls)]
        self.report.check(not mixed, "deletes.partly-null", file.relative, f"{len(mixed)} rows")

    def _check_meta(self, file: DataFile, rows: pa.Table) -> None:
        report, where = self.report, file.relative
        if not report.equal(tuple(rows.column_names[:5]), META, "file.columns", where):
            return
        times, seqnos, _, partitions, names = (rows.column(name).to_pylist() for name in META)
        report.check(
            set(partitions) <= {file.partition}, "meta.partition-path", where, sorted(map(str, partitions))[:1]
        )
        own = file.name if file.kind == "base" else file.file_id
        report.check(set(names) <= {own}, "meta.file-name", where, sorted(map(str, set(names)))[:2])
        one = self.listed.get(where)
        rewritten = one is not None and (
            one.operation in REWRITES or (file.kind == "base" and one.stat["prevCommit"] != "null")
        )
        if rewritten:
            stray = [time for time in set(times) if not time or time > file.instant or not self._known(time)]
        else:
            stray = [time for time in set(times) if time != file.instant]
        report.check(not stray, "meta.commit-time", where, stray[:2])
        for time, seqno in zip(times, seqnos, strict=True):
            match = SEQNO.fullmatch(seqno or "")
            report.check(match is not None and match[1] == time, "meta.seqno", where, f"{seqno} in a row of {time}")
        report.equal(len(set(seqnos)), len(seqnos), "meta.seqno-unique", where)
        if not rewritten:
            for seqno in seqnos:
                first = self.seqnos.setdefault(seqno, where)
                report.check(first == where, "meta.seqno-unique", where, f"{seqno} is also in {first}")

    def _known(self, time: str) -> bool:
        return time in self.times or time < self.table.timeline.first

    def _check_texts(self, file: DataFile, rows: pa.Table) -> None:
        """Key and partition text follow from the columns, where these are strings or integers."""
        generator = self.table.properties.get("hoodie.table.keygenerator.type", "")
        keys = rows.column("_hoodie_record_key").to_pylist()
        values = _texts(rows, self.key_fields)
        if values is not None and generator in ("SIMPLE", "COMPLEX", "NON_PARTITION"):
            single = len(self.key_fields) == 1 and generator != "COMPLEX"
            made = [str(parts[0]) if single else self._composite(parts) for parts in values]
            wrong = next((pair for pair in zip(keys, made, strict=True) if pair[0] != pair[1]), None)
            self.report.check(wrong is None, "rows.key-text", file.relative, wrong)
        fields = self.table.names("hoodie.table.partition.fields")
        encoded = self.table.properties.get("hoodie.datasource.write.partitionpath.urlencode") == "true"
        places = _texts(rows, fields) if fields and generator in ("SIMPLE", "COMPLEX") and not encoded else None
        if places is not None:
            hive = self.table.properties.get("hoodie.datasource.write.hive_style_partitioning") == "true"
            for parts in set(places):
                named = [text or "__HIVE_DEFAULT_PARTITION__" for text in parts]
                if hive:
                    named = [f"{name}={text}" for name, text in zip(fields, named, strict=True)]
                self.report.equal(file.partition, "/".join(named), "rows.partition-text", file.relative)

    def _composite(self, parts: Sequence[str | None]) -> str:
        texts = [NULL_TEXT if part is None else part or EMPTY_TEXT for part in parts]
        return ",".join(f"{name}:{text}" for name, text in zip(self.key_fields, texts, strict=True))

    # ------------------------------------------------------------ across files

    def _check_versions(self, files: list[DataFile]) -> None:
        versions: dict[tuple[str, str, str, str], set[int]] = {}
        for file in files:
            if file.kind != "base":
                place = file.partition, file.file_id, file.token, file.instant
                versions.setdefault(place, set()).add(file.version)
        for place, found in versions.items():
            whole = found == set(range(1, len(found) + 1))
            self.report.check(whole, "file.versions", "/".join(place[:2]), f"{sorted(found)} at {place[3]}")

    def _check_groups(self, files: list[DataFile]) -> None:
        replaced: set[tuple[str, str]] = set()
        for write in self.table.timeline.writes().values():
            if write.action == "replacecommit":
                for partition, ids in (write.metadata().get("partitionToReplaceFileIds") or {}).items():
                    replaced |= {(partition, file_id) for file_id in ids}
        groups: dict[tuple[str, str], set[str]] = {}
        for file in [] if "lsm.index.type" in self.table.properties else files:
            if file.group not in replaced:
                groups.setdefault((file.partition, file.file_id[:8]), set()).add(file.file_id)
        for (partition, bucket), ids in groups.items():
            self.report.check(len(ids) == 1, "bucket.groups", f"{partition}/{bucket}", sorted(ids))
        slices = [(file.group, file.instant) for file in files if file.kind == "base"]
        for group, instant in set(slices):
            once = slices.count((group, instant)) == 1
            self.report.check(once, "bucket.bases", "/".join(group), f"several base files at {instant}")


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Forget what does not matter: names and nullability of children, large and dictionary variants."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", plain_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(child.name, plain_type(child.type)) for child in kind])
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind


def _texts(rows: pa.Table, names: Sequence[str]) -> list[tuple[str | None, ...]] | None:
    columns = []
    for name in names:
        if name not in rows.column_names:
            return None
        column = rows.column(name)
        if not (pa.types.is_string(column.type) or pa.types.is_integer(column.type)):
            return None
        columns.append([None if value is None else str(value) for value in column.to_pylist()])
    return list(zip(*columns, strict=True))
