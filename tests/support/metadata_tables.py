"""Tables that have a metadata table, and what must hold of it at every moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streaming_lsm import LsmTable
from streaming_lsm.format.metadata.files_partition import decode_base
from streaming_lsm.format.metadata.group_files import DeletedKeys
from streaming_lsm.format.metadata.records import RecordLocation, read_records
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.index.stored_ranges import stored_ranges
from streaming_lsm.merge.table_rule import table_rule
from streaming_lsm.metadata.column_ranges import column_ranges
from streaming_lsm.metadata.file_slices import METADATA_TABLE, MetadataFileGroup, MetadataFileSlice, counted_instants
from streaming_lsm.metadata.listing import listing_differences
from streaming_lsm.query.queries import Queries, QueryOptions
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline

ENABLED = {"hoodie.metadata.enable": True}
RANGED = {**ENABLED, "hoodie.metadata.index.column.stats.enable": True}
LOCATED = {**ENABLED, "hoodie.metadata.record.index.enable": True}
LOCATED_BY_PARTITION = {**ENABLED, "hoodie.metadata.record.level.index.enable": True}
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


def assert_ranges(root: Path) -> int:
    """The metadata table has the ranges of its columns in all files of the newest slices; return how many."""
    storage = LocalStorage(root)
    definitions = json.loads((root / ".hoodie/.index_defs/index.json").read_text("utf-8"))["indexDefinitions"]
    assert list(definitions) == ["column_stats"]
    columns = definitions["column_stats"]["sourceFields"]
    slices = LsmTable(root, {"lsm.read.threads": 1}).file_slices()
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
            if column not in stored:
                assert all((row["valueType"] or {}).get("typeOrdinal") in (5, 6, 8) for row in rows)
                continue
            (row,) = rows
            for field in ("valueCount", "nullCount", "valueType", "isDeleted"):
                assert row[field] == stored[column][field], (path, column)
            for bound in ("minValue", "maxValue"):
                given = {name: value for name, value in (row[bound] or {}).items() if value is not None}
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
        of_group: dict[str, RecordLocation] = {}
        newest = MetadataFileSlice.newest(timeline, names, MetadataFileGroup("record_index", file_id))
        for part in newest.parts(metadata, counted_instants(data)):
            if isinstance(part, DeletedKeys):
                for key in part.keys.to_pylist():
                    of_group.pop(str(key), None)
            else:
                of_group.update({key: found for key, found in read_records(part) if isinstance(found, RecordLocation)})
        for key, found in of_group.items():
            assert (found.partition, key) not in indexed, f"{key} is in two file groups"
            assert 0 < found.instant_ms < 4e12, f"{key} is of {found.instant_ms} ms"
            indexed[found.partition, key] = (found.partition, found.file_id)
    return indexed


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
