"""Tables that have a metadata table, and what must hold of it at every moment."""

from __future__ import annotations

import io
import json
import uuid
from pathlib import Path
from typing import Any, cast

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_lsm import LsmTable
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.metadata.column_stats import NO_TYPE, bounds_of
from streaming_lsm.format.metadata.group_files import DeletedKeys
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.index.stored_ranges import stored_ranges
from streaming_lsm.merge.table_rule import table_rule
from streaming_lsm.metadata.column_ranges import column_ranges
from streaming_lsm.metadata.file_blooms import file_blooms
from streaming_lsm.metadata.file_slices import METADATA_TABLE, MetadataFileGroup, MetadataFileSlice, counted_instants
from streaming_lsm.metadata.listing import listing_differences
from streaming_lsm.metadata.partition_ranges import partition_ranges
from streaming_lsm.query.queries import Queries, QueryOptions
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline
from tests.support.listed_files import decode_base

ENABLED = {"hoodie.metadata.enable": True}
RANGED = {**ENABLED, "hoodie.metadata.index.column.stats.enable": True}
LOCATED = {**ENABLED, "hoodie.metadata.record.index.enable": True}
LOCATED_BY_PARTITION = {**ENABLED, "hoodie.metadata.record.level.index.enable": True}
INDEXED = {
    **RANGED,
    "hoodie.metadata.index.partition.stats.enable": True,
    "hoodie.metadata.index.bloom.filter.enable": True,
    "hoodie.parquet.bloom.filter.enabled": True,
}
FLOATS = (5, 6)
PARTITIONS = "hoodie.table.metadata.partitions"


def has_metadata_table(root: Path) -> bool:
    """Whether readers take the table's files from a metadata table."""
    return bool(load_properties(LocalStorage(root)).get(PARTITIONS))


def metadata_timeline(root: Path) -> Timeline:
    """The metadata table's own timeline."""
    return Timeline.load(Subfolder(LocalStorage(root), METADATA_TABLE))


def assert_agrees(root: Path) -> None:
    """Where there is a metadata table, it says of the files what their folders say."""
    storage: Storage = LocalStorage(root)
    if has_metadata_table(root):
        assert listing_differences(storage, Timeline.load(storage)) == []


def _opened(table: Path | LsmTable) -> tuple[Storage, LsmTable]:
    opened = LsmTable(table, {"lsm.read.threads": 1}) if isinstance(table, Path) else table
    return opened.storage, opened


def _columns(storage: Storage) -> list[str]:
    definitions = json.loads(storage.read(".hoodie/.index_defs/index.json"))["indexDefinitions"]
    assert {
        name for name in definitions if not name.startswith(("record_index", "secondary_index_", "expr_index_"))
    } == {"column_stats"}
    found: list[str] = definitions["column_stats"]["sourceFields"]
    return found


def assert_ranges(table: Path | LsmTable) -> int:
    """The metadata table has the ranges of its columns in all files of the newest slices; return how many."""
    storage, opened = _opened(table)
    columns = _columns(storage)
    slices = opened.file_slices()
    files = [path for found in slices for path in found.paths]
    split = [(path.rpartition("/")[0], path.rpartition("/")[2]) for path in files]
    told = column_ranges(storage, Timeline.load(storage), split, columns)
    ours: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for column, found in told.items():
        for file, row in zip(found.files.tolist(), found.ranges.to_pylist(), strict=True):
            ours.setdefault((files[file], column), []).append(row)
    compared = 0
    for path in files:
        stored = {row["columnName"]: row for row in stored_ranges(storage, path, columns)}
        for column in columns:
            rows = ours.get((path, column), [])
            older = not rows and stored.get(column, {}).get("valueType", {}).get("typeOrdinal") == NO_TYPE
            if column not in stored or older:  # of a file, or of one without rows, that is older than the column
                assert not rows
                continue
            (row,) = rows
            for field in ("valueCount", "nullCount", "valueType", "isDeleted"):
                assert row[field] == stored[column][field], (path, column)
            for bound in ("minValue", "maxValue"):
                given = {name: value for name, value in (row[bound] or {}).items() if value is not None}
                if row["valueType"]["typeOrdinal"] in FLOATS:  # Hudi knows them, ours are the widest
                    assert bool(given) is bool(stored[column][bound]), (path, column)
                else:
                    assert given == (stored[column][bound] or {}), (path, column)
            compared += 1
    return compared


def assert_locations(root: Path | Storage) -> int:
    """The record index has the keys of the snapshot and no others, and the file group of each; return how many.

    It is read record by record, and merged in dictionaries.
    """
    storage = LocalStorage(root) if isinstance(root, Path) else root
    config = TableConfig.from_properties(load_properties(storage), storage.uri)
    scan = Queries(storage, config, table_rule(config), map, 1).snapshot(QueryOptions(["_hoodie_record_key"]), None)
    rows = {
        (found.partition_path, key): found.file_id
        for found in scan.slices
        for batch in scan.read_slice(found)
        for key in batch.column("_hoodie_record_key").to_pylist()
    }
    indexed = {place: found[1] for place, found in _indexed(storage).items()}
    told = {place: (indexed.get(place), rows.get(place)) for place in sorted({*indexed, *rows})}
    wrong = {place: found for place, found in told.items() if found[0] != found[1]}
    assert not wrong, f"in the index and in the table: {wrong}"
    return len(rows)


def _indexed(storage: Storage) -> dict[tuple[str, str], tuple[str, str]]:
    """Partition path and file id by partition path and record key."""
    metadata, data = Subfolder(storage, METADATA_TABLE), Timeline.load(storage)
    timeline, names = Timeline.load(metadata), metadata.names("record_index")
    ids = sorted({found.file_id for name in names if (found := parse_file_name(name)) is not None})
    indexed: dict[tuple[str, str], tuple[str, str]] = {}
    for file_id in ids:
        of_group: dict[str, dict[str, Any]] = {}
        newest = MetadataFileSlice.newest(timeline, names, MetadataFileGroup("record_index", file_id))
        for part in newest.parts(metadata, counted_instants(data)):
            if isinstance(part, DeletedKeys):
                for key in part.keys.to_pylist():
                    of_group.pop(str(key), None)
            else:
                of_group.update(_decoded(part))
        for key, found in of_group.items():
            partition = found["partitionName"]
            assert (partition, key) not in indexed, f"{key} is in two file groups"
            assert 0 < found["instantTime"] < 4e12, f"{key} is of {found['instantTime']} ms"
            high, low = (found[name] & (2**64 - 1) for name in ("fileIdHighBits", "fileIdLowBits"))
            group = uuid.UUID(int=high << 64 | low)
            assert found["fileIdEncoding"] == 0
            indexed[partition, key] = (partition, f"{group}-{found['fileIndex']}")
    return indexed


def _decoded(file: HFile) -> dict[str, dict[str, Any]]:
    """Locations by record key, decoded one by one."""
    schema = fastavro.parse_schema(json.loads(file.schema_json))
    return {
        key.decode(): cast("Any", fastavro.schemaless_reader(io.BytesIO(value), schema, None))["recordIndexMetadata"]
        for cells in file.cells()
        for key, value in zip(cells.keys.to_pylist(), cells.values.to_pylist(), strict=True)
    }


def assert_partition_ranges(table: Path | LsmTable) -> int:
    """The ranges of columns in partitions hold every row that the table has; return how many bound a column."""
    storage, opened = _opened(table)
    rows = opened.scan(meta=True).to_arrow()
    columns = [name for name in _columns(storage) if name in rows.schema.names]
    if not columns or not rows.num_rows:
        return 0
    paths = rows.column("_hoodie_partition_path")
    partitions = paths.unique().to_pylist()
    told = partition_ranges(storage, Timeline.load(storage), partitions, columns)
    bounded = 0
    for column in columns:
        low, high = bounds_of(told[column].ranges, rows.schema.field(column).type)
        for number, partition in enumerate(partitions):
            values = rows.column(column).filter(pc.equal(paths, partition)).drop_null()
            if pa.types.is_floating(values.type):
                values = values.filter(pc.invert(pc.is_nan(values)))
            if not len(values):
                continue
            (place,) = [place for place, found in enumerate(told[column].files.tolist()) if found == number]
            span = pc.min_max(values).as_py()
            for bound, end, sign in ((low, "min", 1), (high, "max", -1)):
                if bound[place].is_valid:
                    ordered = (bound[place].as_py(), span[end])[::sign]
                    assert ordered[0] <= ordered[1], (partition, column, end)
                    bounded += 1
    return bounded


def assert_blooms(table: Path | LsmTable) -> int:
    """There is the filter of every base file that has one, with all its keys; return how many there are."""
    storage, opened = _opened(table)
    slices = opened.file_slices()
    files = [(found.partition_path, found.base.path.rpartition("/")[2]) for found in slices if found.base]
    found = file_blooms(storage, Timeline.load(storage), files)
    for partition, name in files:
        content = pa.BufferReader(storage.read(f"{partition}/{name}" if partition else name))
        metadata = pq.read_metadata(content).metadata or {}
        assert ((partition, name) in found) is (b"org.apache.hudi.bloomfilter" in metadata), name
        if (partition, name) in found:
            keys = pq.read_table(content, columns=["_hoodie_record_key"]).column(0).combine_chunks()
            assert found[partition, name].contains(keys).all()
            absent = pa.array([f"absent {number}" for number in range(50)])
            assert not found[partition, name].contains(absent).all()
    return len(found)


def assert_indexes(table: LsmTable) -> None:
    """Each index that the metadata table has agrees with the files."""
    names = load_properties(table.storage).get(PARTITIONS, "").split(",")
    for name, holds in INDEXES.items():
        if name in names:
            holds(table)


INDEXES = {"column_stats": assert_ranges, "partition_stats": assert_partition_ranges, "bloom_filters": assert_blooms}
"""What must hold of each index, by its name."""


def assert_settled(root: Path) -> None:
    """There is one, it agrees, and nothing of an action that did not come to its end is left in it."""
    assert has_metadata_table(root)
    assert_agrees(root)
    own, data = metadata_timeline(root), Timeline.load(LocalStorage(root))
    assert own.pending == ()
    counts = counted_instants(data)
    assert [write for write in delta_commits(own) if not counts(write.requested)] == []
    bases = sorted((root / METADATA_TABLE / "files").glob("files-0000-0_*.hfile"))
    for base in (path for path in bases if ".log." not in path.name):
        # A tombstone outlives a compaction only when the file had not been listed: Hudi takes that for damage.
        listed = [
            file for record in decode_base(base.read_bytes(), base.name).values() for file in record.files.values()
        ]
        assert not any(file.is_deleted for file in listed)
    recorded = {instant.requested for instant in own.instants}
    for file in (root / METADATA_TABLE / "files").iterdir():
        name = parse_file_name(file.name)
        assert name is None or name.instant in recorded, file.name


def delta_commits(timeline: Timeline) -> list[Instant]:
    """Completed delta commits."""
    return [write for write in timeline.completed_writes if write.action == "deltacommit"]
