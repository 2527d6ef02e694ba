"""Change queries of tables of real Hudi, and what other programs may have left in a table."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import ConfigError, CorruptFileError, ReadOvertaken, UnsupportedTable
from streaming_lsm.format.avro.record_reader import decode_data_block
from streaming_lsm.format.log.inline_blocks import BlockType, Header, encode_block, read_blocks
from streaming_lsm.java_properties import parse_properties, print_properties
from streaming_lsm.schema import META_COLUMNS
from tests.support.hfiles import written
from tests.support.hudi_tables import MANIFESTS, unpacked

ARCHIVED = ("v9_cow_archived", "r015_cow_archived")
TOLD = [name for name in MANIFESTS if name not in ARCHIVED]
Rows = dict[tuple[str, str], str]


MOVED = ("_hoodie_file_name", "_hoodie_commit_time", "_hoodie_commit_seqno")
"""What a compaction rewrites, and Hudi's log compaction."""


def _shown(row: dict[str, object]) -> str:
    return str({name: value for name, value in row.items() if name not in MOVED})


def _state(table: LsmTable) -> Rows:
    found = table.scan(meta=True).to_arrow().to_pylist()
    return {(row["_hoodie_partition_path"], row["_hoodie_record_key"]): _shown(row) for row in found}


@pytest.mark.parametrize("name", TOLD)
def test_changes_lead_to_the_rows_there_are(name: str, tmp_path: Path) -> None:
    table = LsmTable(unpacked(name, tmp_path))
    if any(instant.action == "clean" for instant in table.timeline.instants):
        with pytest.raises(ReadOvertaken, match="were cleaned"):
            table.changes("000").to_arrow()
        return
    changes = table.changes("000").to_arrow().to_pylist()
    if any(change["after"] and change["after"]["_hoodie_record_key"] is None for change in changes):
        assert name == "v9_cow_cdc"  # images out of change logs, which have no meta columns
        return
    state: Rows = {}
    for change in changes:
        image = change["after"] or change["before"]
        key = (image["_hoodie_partition_path"], image["_hoodie_record_key"])
        assert (change["before"] is not None) == (key in state)
        state.pop(key, None)
        if change["after"] is not None:
            state[key] = _shown(image)
    assert state == _state(table)


def _with_native_change_logs(path: Path, left_out: tuple[str, ...] = ()) -> list[Path]:
    """Turn a table's change logs of inline blocks into native ones, as version 10 has them; returns the new files."""
    table, made = LsmTable(path).change_version(10), []
    for write in table.timeline.completed_writes:
        commit, stats = table.timeline.read_commit(write), []
        for stat in commit.stats:
            files = [_native_change_log(path, log, left_out) for log, _ in stat.cdc_files]
            made += files
            named = tuple((file.relative_to(path).as_posix(), file.stat().st_size) for file in files)
            stats.append(replace(stat, cdc_files=named))
        (path / write.path).write_bytes(replace(commit, stats=tuple(stats)).encode())
    return made


def _native_change_log(path: Path, log: str, left_out: tuple[str, ...]) -> Path:
    blocks = read_blocks((path / log).read_bytes(), log)
    rows = pa.Table.from_batches(
        [decode_data_block(block.header[Header.SCHEMA], block.content, log) for block in blocks]
    )
    folder, _, name = log.rpartition("/")
    found = re.fullmatch(r"\.([^_]+)_(\d+)\.log\.1_(.*)\.cdc", name)
    assert found is not None
    made = path / folder / f"{found[1]}_{found[3]}_{found[2]}_1.cdc.parquet"
    pq.write_table(rows.drop_columns(list(left_out)), made)
    (path / log).unlink()
    return made


@pytest.mark.parametrize("left_out", [(), ("after",)], ids=["both-images", "one-image"])
def test_native_change_logs_hold_the_same_changes(left_out: tuple[str, ...], tmp_path: Path) -> None:
    path = unpacked("v9_cow_cdc", tmp_path)
    before = _changes(path)
    made = _with_native_change_logs(path, left_out)
    assert len(made) > 2
    assert _changes(path) == before
    whole = made[0].read_bytes()
    # Of a log with one image only the footer is read.
    made[0].write_bytes(whole[:-10] if left_out else whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    with pytest.raises(CorruptFileError, match=re.escape(made[0].name)):
        _changes(path)
    made[0].unlink()
    assert _changes(path) == before  # worked out without it


def _changes(path: Path) -> list[str]:
    """The changes without what images out of change logs do not have."""
    return sorted(
        str([{name: value for name, value in (part or {}).items() if name not in META_COLUMNS} for part in images])
        + change["op"]
        + change["ts_ms"]
        for change in LsmTable(path).changes("000").to_arrow().to_pylist()
        for images in [(change["before"], change["after"])]
    )


@pytest.mark.parametrize(("name", "reason"), [(ARCHIVED[0], "were cleaned"), (ARCHIVED[1], "is archived")])
def test_changes_of_archived_writes_that_were_cleaned_are_refused(name: str, reason: str, tmp_path: Path) -> None:
    """Hudi cleans each table here; of version 6 the changes of archived writes are not read at all."""
    table = LsmTable(unpacked(name, tmp_path))
    with pytest.raises((ConfigError, ReadOvertaken), match=reason):
        table.changes("000").to_arrow()
    latest = max(write.completed or "" for write in table.timeline.completed_writes[:-1])
    assert len(table.changes(latest).to_arrow())


def test_changes_over_cleaned_states_are_refused(tmp_path: Path) -> None:
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.table.type": "COPY_ON_WRITE"}
    keyed = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.bucket.index.num.buckets": 1}
    rows = pa.table({"id": ["a", "b"], "n": [1, 2]})
    table = LsmTable.create(tmp_path, rows.schema, {**options, **keyed, "hoodie.clean.automatic": False})
    for _ in range(5):
        table.upsert(rows)
    assert len(table.changes("000").to_arrow()) == 10
    LsmTable(tmp_path, {"hoodie.clean.commits.retained": 2}).clean()
    with pytest.raises(ReadOvertaken, match=r"changes by .*commit.*cleaned"):
        table.changes("000").to_arrow()
    times = sorted(write.completed or "" for write in table.timeline.completed_writes)
    assert len(table.changes(times[-2]).to_arrow()) == 2


def _log(path: Path) -> Path:
    logs = [log for log in path.rglob(".*.log.*") if ".hoodie" not in log.parts and not log.name.endswith(".crc")]
    return min(logs, key=lambda log: log.name)


@pytest.mark.parametrize("content", [b"", b"#HU", b"#HUDI#", b"#HUDI#\0\0"])
def test_what_a_dead_write_of_version_6_has_left_is_passed_over(content: bytes, tmp_path: Path) -> None:
    path = unpacked("v6_mor_avro", tmp_path)
    before, log = _state(LsmTable(path)), _log(path)
    stem, _, rest = log.name.rpartition(".log.")
    (log.parent / f"{stem}.log.99_{rest.partition('_')[2]}").write_bytes(content)
    assert _state(LsmTable(path)) == before


def test_a_command_without_a_target_is_named(tmp_path: Path) -> None:
    path = unpacked("v9_mor_avro", tmp_path)
    log = _log(path)
    command = encode_block(BlockType.COMMAND, {Header.INSTANT_TIME: "1", Header.COMMAND_BLOCK_TYPE: "0"}, b"")
    log.write_bytes(log.read_bytes() + command)
    with pytest.raises(CorruptFileError, match=r"\.log\.1.*a command other than a rollback"):
        LsmTable(path).scan().to_arrow()


def test_rows_of_hfile_blocks_are_those_of_avro_blocks(tmp_path: Path) -> None:
    path = unpacked("v9_mor_avro", tmp_path)
    before, log = _state(LsmTable(path)), _log(path)
    blocks, made = read_blocks(log.read_bytes(), log.name), b""
    for block in blocks:
        content, kind = bytes(block.content), block.type
        if kind is BlockType.AVRO_DATA:
            schema = block.header[Header.SCHEMA]
            kind, content = BlockType.HFILE_DATA, written(_entries(content), schema_json=schema, created_ms=1)
        made += encode_block(kind, block.header, content)
    assert made != log.read_bytes()
    log.write_bytes(made)
    assert _state(LsmTable(path)) == before


def _entries(content: bytes) -> list[tuple[bytes, bytes]]:
    """Key and Avro bytes of each record, ascending; the key is the third of the meta columns."""
    found, at = [], 8
    while at < len(content):
        (size,) = struct.unpack_from(">i", content, at)
        datum, text, place = content[at + 4 : at + 4 + size], b"", 0
        for _ in range(3):
            length = datum[place + 1] >> 1
            text, place = datum[place + 2 : place + 2 + length], place + 2 + length
        found.append((text, datum))
        at += 4 + size
    return sorted(found)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hoodie.record.merge.strategy.id": "1897ef5f-18bc-4557-939c-9d6a8afd1519"}, "merge.strategy.id"),
        ({"hoodie.record.merge.mode": "CUSTOM"}, "merge.mode=CUSTOM"),
        ({"hoodie.compaction.payload.class": "org.example.Mine"}, "payload.class=org.example.Mine"),
    ],
)
def test_mergers_of_the_owner_are_refused_by_name(changes: dict[str, str], named: str, tmp_path: Path) -> None:
    path = unpacked("v9_mor_avro", tmp_path) / ".hoodie/hoodie.properties"
    path.write_bytes(print_properties({**parse_properties(path.read_bytes(), ""), **changes}, []))
    with pytest.raises(UnsupportedTable, match=named):
        LsmTable(path.parents[1])


def test_a_changelog_column_of_the_table_is_read(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("_hoodie_operation", pa.string())])
    options = {"hoodie.table.name": "t", "hoodie.write.table.version": 9, "hoodie.bucket.index.num.buckets": 1}
    table = LsmTable.create(tmp_path, schema, {**options, "hoodie.datasource.write.recordkey.field": "id"})
    table.upsert(pa.table([["a", "b"], ["I", "I"]], schema=schema))
    table.upsert(pa.table([["b"], ["D"]], schema=schema))
    assert table.scan(["id"]).to_arrow().to_pylist() == [{"id": "a"}]
