"""Inline logs of real Hudi, cut or changed at hundreds of places: named errors, and never other rows.

Inline logs have no checksums of their own. On a local disk Hadoop keeps them in a file beside each, as this package
does; the stored tables come without, so they are made here. Without such a file a changed byte in a value, or in the
schema of a block, goes unnoticed by any reader; everything else is found by lengths, types and the ends of records.
With LSM_ALL_FAULTS=1 several times as many places are changed.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CorruptFileError, LsmError
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.archive import History
from tests.support.crash_points import random_cases
from tests.support.hudi_tables import unpacked

CASES = ("v9_mor_avro", "v9_mor_parquet", "v9_mor_types", "v6_mor_avro")


def _rows(path: Path) -> dict[str, str]:
    rows = LsmTable(path, {"lsm.read.threads": 1}).scan(meta=True).to_arrow().to_pylist()
    found = {f"{row['_hoodie_partition_path']}/{row['_hoodie_record_key']}": str(row) for row in rows}
    assert len(found) == len(rows)
    return found


def _error(path: Path) -> LsmError | None:
    """What reading raises; nothing but our own errors may."""
    try:
        _rows(path)
    except LsmError as error:
        return error
    return None


def _largest_log(path: Path) -> Path:
    logs = [log for log in path.rglob(".*.log.*") if ".hoodie" not in log.parts and not log.name.endswith(".crc")]
    return max(logs, key=lambda log: (log.stat().st_size, log.name))


@pytest.mark.parametrize("name", CASES)
def test_a_log_cut_anywhere_is_a_named_error_or_what_a_failed_write_left(name: str, tmp_path: Path) -> None:
    path = unpacked(name, tmp_path)
    log, before = _largest_log(path), _rows(path)
    data = log.read_bytes()
    for cut in np.linspace(1, len(data) - 1, random_cases(60, 5)).astype(int):
        log.write_bytes(data[:cut])
        error = _error(path)
        if error is None:
            assert name.startswith("v6"), cut  # several writes share a log there, and a cut block is a failed one
            assert set(_rows(path).values()) & set(before.values())
        else:
            assert log.name in str(error)


def _changed(data: bytes, places: int) -> Iterator[bytes]:
    """The file with one bit changed, at so many places."""
    rng = np.random.default_rng(7)
    for place in rng.choice(len(data), min(places, len(data)), replace=False):
        changed = bytearray(data)
        changed[place] ^= 1 << int(rng.integers(8))
        yield bytes(changed)


def _write_checksums(file: Path) -> None:
    """As Hadoop keeps them beside a file on a local disk."""
    data = file.read_bytes()
    sums = [zlib.crc32(data[begin : begin + 512]) for begin in range(0, len(data), 512)]
    (file.parent / f".{file.name}.crc").write_bytes(struct.pack(f">4si{len(sums)}I", b"crc", 512, *sums))


@pytest.mark.parametrize("name", CASES)
def test_with_checksums_beside_it_every_changed_byte_is_a_named_error(name: str, tmp_path: Path) -> None:
    path = unpacked(name, tmp_path)
    log = _largest_log(path)
    _write_checksums(log)
    data = log.read_bytes()
    assert _rows(path)
    for changed in _changed(data, random_cases(500, 10)):
        log.write_bytes(changed)
        with pytest.raises(CorruptFileError, match=re.escape(log.name)):
            _rows(path)


def _read_changes(path: Path) -> None:
    LsmTable(path).changes("000").to_arrow()


def _read_archive(path: Path) -> None:
    History(LocalStorage(path), layout=1).writes()


@pytest.mark.parametrize(
    ("name", "pattern", "read"),
    [("v9_cow_cdc", ".*.cdc", _read_changes), ("r015_cow_archived", ".commits_.archive*", _read_archive)],
    ids=["changes", "archive"],
)
def test_checksums_beside_change_logs_and_archives_are_gone_by_too(
    name: str, pattern: str, read: Callable[[Path], None], tmp_path: Path
) -> None:
    path = unpacked(name, tmp_path)
    log = min(found for found in path.rglob(pattern) if not found.name.endswith(".crc"))
    _write_checksums(log)
    read(path)
    for changed in _changed(log.read_bytes(), random_cases(40, 20)):
        log.write_bytes(changed)
        with pytest.raises(CorruptFileError, match=re.escape(log.name)):
            read(path)


@pytest.mark.parametrize("name", CASES)
def test_without_checksums_a_changed_byte_is_a_named_error_or_goes_unnoticed(name: str, tmp_path: Path) -> None:
    path = unpacked(name, tmp_path)
    log = _largest_log(path)
    errors = []
    for changed in _changed(log.read_bytes(), random_cases(120, 50)):
        log.write_bytes(changed)
        errors.append(_error(path))
    named = [log.name in str(error) for error in errors if error is not None]
    assert len(named) > 10
    assert all(named)


def test_logs_written_here_have_checksums_beside_them(tmp_path: Path) -> None:
    options = {"hoodie.table.name": "t", "hoodie.write.table.version": 9, "hoodie.bucket.index.num.buckets": 1}
    rows = pa.table({"id": [f"k{number}" for number in range(3000)], "text": ["x" * 40] * 3000})
    table = LsmTable.create(tmp_path, rows.schema, {**options, "hoodie.datasource.write.recordkey.field": "id"})
    table.upsert(rows)
    log = _largest_log(tmp_path)
    data = log.read_bytes()
    assert len(data) > 2 * 65536
    for changed in _changed(data, random_cases(100, 25)):
        log.write_bytes(changed)
        with pytest.raises(CorruptFileError, match=re.escape(log.name)):
            table.scan().to_arrow()
    log.write_bytes(data)
    assert table.scan().to_arrow().num_rows == 3000
