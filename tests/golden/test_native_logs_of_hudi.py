"""Real tables with their inline logs written anew as native ones, all of them or every other one: the same rows.

No release of Hudi writes native logs yet; so they are made here, block by block, in the order and with the entries that
docs/format/03-native-logs.md gives them.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.cli.commands import main
from streaming_lsm.format.actions.commit import WriteStat, file_path
from streaming_lsm.format.avro.record_reader import decode_data_block
from streaming_lsm.format.log.delete_block import decode_delete_block
from streaming_lsm.format.log.inline_blocks import BlockType, Header, LogBlock, read_blocks
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.schema import PARTITION_PATH, delete_log_schema, with_meta
from tests.support.hudi_tables import FOLDER, MANIFESTS, reads, unpacked
from tests.support.printed_rows import printed_lines

NAMES = [name for name, found in MANIFESTS.items() if "_mor_" in name and found["table_version"] > 6]
QUERIES = {"snapshot": "snapshot", "time_travel": "snapshot", "incremental": "incremental"}
ENTRIES = (Header.SCHEMA, Header.COMPACTED_BLOCK_TIMES, Header.IS_PARTIAL)
SOME_BASE = "20200101000000000"


@pytest.mark.parametrize("every", [1, 2], ids=["all", "every-other"])
@pytest.mark.parametrize("name", NAMES)
def test_native_logs_show_what_hudi_read_of_inline_ones(
    name: str, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Hudi read them by the merge rule of version 9 (docs/format/05-merge.md, "Pairwise rule").
    monkeypatch.setattr(TableConfig, "folds_logs_first", True)
    path = unpacked(name, tmp_path)
    table = LsmTable(path).change_version(10)
    logs = [log for log in sorted(path.rglob(".*.log.*")) if ".hoodie" not in log.parts]
    chosen = [log for log in logs if log.suffix not in (".crc", ".cdc")][::every]
    assert chosen
    written = {log.relative_to(path).as_posix(): _write_native(table, log) for log in chosen}
    _commit_native(table, written)
    for kind, read in [(kind, read) for table_name, kind, read in reads() if table_name == name and kind in QUERIES]:
        expected = (FOLDER / read["file"]).read_text(encoding="utf-8").splitlines()
        assert _printed(path, kind, read) == sorted(expected), read["file"]


def _printed(path: Path, kind: str, read: dict[str, str]) -> list[str]:
    printed = path.parent / "printed.jsonl"
    command = [
        "read",
        str(path),
        "--query-type",
        QUERIES[kind],
        "--format",
        "jsonl",
        "--meta",
        "--output",
        str(printed),
    ]
    for name, option in (("begin", "--begin"), ("end", "--end"), ("as_of", "--as-of")):
        command += [option, read[name]] if name in read else []
    assert main(command) == 0
    return printed_lines(printed)


def _commit_native(table: LsmTable, written: dict[str, list[Path]]) -> None:
    """The commits of inline logs, by path, as if they had written these files."""
    for write in table.timeline.completed_writes:
        found = table.timeline.read_commit(write)
        stats: list[WriteStat] = []
        for stat in found.stats:
            files = written.get(stat.path)
            named = [(file.name, file.stat().st_size) for file in files or ()]
            natives = [replace(stat, path=file_path(stat.partition_path, n), total_bytes=size) for n, size in named]
            stats += [stat] if files is None else natives
        table.storage.replace(write.path, replace(found, stats=tuple(stats)).encode())


def _write_native(table: LsmTable, log: Path) -> list[Path]:
    """A file for each block; a delete file shares the version of the data file before it, as those of one flush do."""
    found = re.fullmatch(r"\.([^_]+)_(\d+)\.log\.\d+_(.*)", log.name)
    assert found is not None
    file_id, instant, token = found.groups()
    version, last = 1, ""
    files = []
    for block in read_blocks(log.read_bytes(), log.name):
        kind = "deletes" if block.type is BlockType.DELETE else "log"
        if last and (last, kind) != ("log", "deletes"):
            version += 1
        last = kind
        rows = _rows(table, block)
        file = log.parent / f"{file_id}_{token}_{instant}_{version}.{kind}.parquet"
        files.append(file)
        with pq.ParquetWriter(file, rows.schema, store_schema=False) as writer:
            writer.write_table(rows)
            writer.add_key_value_metadata({"hudi.log.format.metadata": json.dumps(_footer(block, len(rows)))})
    log.unlink()
    return files


def _rows(table: LsmTable, block: LogBlock) -> pa.Table:
    if block.type is BlockType.PARQUET_DATA:
        return pq.read_table(pa.BufferReader(bytes(block.content)))
    if block.type is BlockType.AVRO_DATA:
        return pa.Table.from_batches([decode_data_block(block.header[Header.SCHEMA], block.content, "block")])
    ordering = list(delete_log_schema(with_meta(table.schema), table.rule.ordering_fields))[1:]
    return pa.Table.from_batches([decode_delete_block(block.content, ordering, "block")]).drop_columns([PARTITION_PATH])


def _footer(block: LogBlock, count: int) -> dict[str, str]:
    """The header's entries, and row positions, which are to be left aside."""
    positions = struct.pack(">i", count) + bytes(number & 127 for number in range(count))
    return {
        "VERSION": "2",
        "INSTANT_TIME": block.instant,
        **{entry.name: block.header[entry] for entry in ENTRIES if entry in block.header},
        Header.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS.name: SOME_BASE,
        Header.RECORD_POSITIONS.name: base64.b64encode(positions).decode(),
    }
