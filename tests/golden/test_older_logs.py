"""Inline logs of Hudi before 1.0: several writes share one, tails are torn, deletes may be serialised by Java."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.actions.commit import decode_json
from streaming_lsm.format.log.inline_blocks import BlockType, Header, encode_block, read_blocks
from streaming_lsm.java_properties import parse_properties, print_properties
from streaming_lsm.spark.queries.readers import scan_reader
from tests.support.hudi_tables import unpacked

SHARED = ["r015_mor_compaction", "r015_mor_rollback", "v6_mor_avro", "v6_mor_rollback"]
SERIALISED_BY_JAVA = struct.pack(">ii", 1, 4) + b"\xac\xed\0\5"


def _rows(table: LsmTable, **how: str) -> list[str]:
    return sorted(map(str, table.scan(meta=True, **how).to_arrow().to_pylist()))  # type: ignore[arg-type]


def _logs(path: Path) -> list[Path]:
    found = (log for log in path.rglob(".*.log.*") if ".hoodie" not in log.parts and not log.name.endswith(".crc"))
    return sorted(found)


def _change_properties(path: Path, **changes: str) -> None:
    file = path / ".hoodie/hoodie.properties"
    values = parse_properties(file.read_bytes(), "") | {f"hoodie.{key}": value for key, value in changes.items()}
    file.write_bytes(print_properties(values, []))


def _upgrade(path: Path) -> None:
    """The timeline as Hudi's upgrade from version 6 to 8 leaves it; the logs of older slices stay as they are."""
    folder = path / ".hoodie"
    (folder / "timeline/history").mkdir(parents=True)
    for file in list(folder.iterdir()):
        found = re.fullmatch(r"(\d{17})\.(\w+)(\.\w+)?", file.name)
        if found is None:
            continue
        time, action, state = found.groups()
        name, data = file.name, file.read_bytes()
        if state is None and action != "inflight":
            name = f"{time}_{int(time) + 400:017d}.{action}"
            data = decode_json(data, "").encode() if action in ("commit", "deltacommit") else data
        (folder / "timeline" / name).write_bytes(data)
        file.unlink()
    versions = {"table.version": "8", "table.initial.version": "6", "timeline.layout.version": "2"}
    _change_properties(path, **versions, **{"record.merge.mode": "EVENT_TIME_ORDERING"})


@pytest.mark.parametrize("name", SHARED)
def test_time_travel_behind_an_upgrade_leaves_out_the_blocks_of_later_writes(name: str, tmp_path: Path) -> None:
    path = unpacked(name, tmp_path)
    before = LsmTable(path)
    writes = [write.requested for write in before.timeline.completed_writes][-3:]
    expected = {write: _rows(before, as_of=write) for write in writes}
    assert len({tuple(rows) for rows in expected.values()}) == 3
    _upgrade(path)
    table = LsmTable(path)
    assert table.config.version == 8
    assert {write: _rows(table, as_of=write) for write in writes} == expected
    ends = [write.completed or "" for write in table.timeline.completed_writes][-3:]
    assert [_rows(table, as_of=end) for end in ends] == list(expected.values())


def test_a_log_of_version_6_is_read_up_to_a_tail_that_is_too_short_for_a_magic(tmp_path: Path) -> None:
    path = unpacked("v6_mor_avro", tmp_path)
    before = _rows(LsmTable(path))
    for log in _logs(path):
        log.write_bytes(log.read_bytes() + b"#HUDI")
    assert _rows(LsmTable(path)) == before


def test_such_a_tail_is_damage_from_version_8_on(tmp_path: Path) -> None:
    path = unpacked("v9_mor_avro", tmp_path)
    log = _logs(path)[0]
    log.write_bytes(log.read_bytes() + b"#HUDI")
    with pytest.raises(CorruptFileError, match=re.escape(log.name) + ".*damaged"):
        _rows(LsmTable(path))


def _java_deletes(path: Path, header_bytes: int = 0) -> Path:
    """Append a block of deletes as Java serialises them to the last of a table's logs."""
    log = _logs(path)[-1]
    header = dict(read_blocks(log.read_bytes(), log.name)[0].header)
    header[Header.BLOCK_IDENTIFIER] = "x" * header_bytes
    log.write_bytes(log.read_bytes() + encode_block(BlockType.DELETE, header, SERIALISED_BY_JAVA))
    return log


@pytest.mark.parametrize("name", ["v9_mor_avro", "v6_mor_avro"])
@pytest.mark.parametrize("header_bytes", [0, 20_000], ids=["short-header", "long-header"])
def test_deletes_that_java_serialised_are_refused_before_any_row(name: str, header_bytes: int, tmp_path: Path) -> None:
    path = unpacked(name, tmp_path)
    log = _java_deletes(path, header_bytes)
    scan = LsmTable(path, {"lsm.read.threads": 1}).scan()
    assert scan.slices[0].logs[0].path != log.relative_to(path).as_posix()
    for begin in (lambda: next(scan.to_batches()), scan_reader(scan).partitions):
        with pytest.raises(UnsupportedTable, match=re.escape(log.name) + ".*serialised by Java"):
            begin()


def test_they_are_refused_behind_a_torn_block_too(tmp_path: Path) -> None:
    path = unpacked("v6_mor_avro", tmp_path)
    log = _logs(path)[-1]
    log.write_bytes(log.read_bytes() + b"#HUDI#" + struct.pack(">q", 10**6))
    _java_deletes(path)
    with pytest.raises(UnsupportedTable, match=re.escape(log.name)):
        next(LsmTable(path, {"lsm.read.threads": 1}).scan().to_batches())


@pytest.mark.parametrize("content", [b"", b"#HU", b"#HUDI#", b"none of Hudi's"])
def test_what_a_torn_log_is_else_is_left_to_whoever_reads_it(content: bytes, tmp_path: Path) -> None:
    path = unpacked("v6_mor_avro", tmp_path)
    _logs(path)[-1].write_bytes(content)
    LsmTable(path).scan().check()


def _later(path: Path) -> Iterator[str]:
    """Give every block of a table's logs another instant, as one changed digit does; yields the names of the logs."""
    for log in _logs(path):
        made = b""
        for block in read_blocks(log.read_bytes(), log.name):
            instant = block.instant[:-1] + str((int(block.instant[-1]) + 1) % 10)
            made += encode_block(block.type, {**block.header, Header.INSTANT_TIME: instant}, bytes(block.content))
        log.write_bytes(made)
        yield log.name


def test_a_block_of_another_instant_than_its_file_is_damaged_where_no_older_logs_can_be(tmp_path: Path) -> None:
    path = unpacked("v9_mor_avro", tmp_path)
    before = _rows(LsmTable(path))
    names = list(_later(path))
    for read in (lambda: _rows(LsmTable(path)), lambda: LsmTable(path).incremental("000").to_arrow()):
        with pytest.raises(CorruptFileError, match=r"INSTANT_TIME.*not the instant of the file's name") as error:
            read()
        assert any(name in str(error.value) for name in names)
    _change_properties(path, **{"table.initial.version": "6"})
    assert len(_rows(LsmTable(path))) < len(before)  # as those of writes that were not completed


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("torn", [14, 16, 28], ids=["behind-its-length", "in-its-version", "in-its-header"])
def test_what_was_written_behind_a_block_that_a_dead_writer_began_is_read(name: str, torn: int, tmp_path: Path) -> None:
    path = unpacked(name, tmp_path)
    before = _rows(LsmTable(path))
    for log in _logs(path):
        data = log.read_bytes()
        at = read_blocks(data, log.name)[-1].offset
        _replace(log, data[:at] + data[at : at + torn] + data[at:])
    assert _rows(LsmTable(path)) == before


def test_so_it_is_behind_deletes_that_were_begun(tmp_path: Path) -> None:
    torn = 0
    for name in SHARED:
        path = unpacked(name, tmp_path)
        before = _rows(LsmTable(path))
        for log in _logs(path):
            data = log.read_bytes()
            for block in reversed(read_blocks(data, log.name)):
                if block.type is BlockType.DELETE:
                    content = data.index(bytes(block.content), block.offset)
                    _replace(log, data[: block.offset] + data[block.offset : content] + data[block.offset :])
                    torn += 1
                    break
        assert _rows(LsmTable(path)) == before
    assert torn


def _replace(log: Path, data: bytes) -> None:
    log.write_bytes(data)
    log.with_name(f".{log.name}.crc").unlink(missing_ok=True)


def test_changes_are_refused_before_the_first_one(tmp_path: Path) -> None:
    path = unpacked("v6_mor_avro", tmp_path)
    assert next(LsmTable(path).changes("000").to_batches()).num_rows
    log = _java_deletes(path)
    with pytest.raises(UnsupportedTable, match=re.escape(log.name) + ".*serialised by Java"):
        next(LsmTable(path).changes("000").to_batches())
