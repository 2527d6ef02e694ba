"""Reading of objects: a Parquet file costs its footer and the column chunks that are asked for."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.exceptions import NotSupportedError

from streaming_lsm.errors import StorageError
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.objects.connection import connect
from streaming_lsm.storage.objects.ranged_file import BLOCK_BYTES, TAIL_BYTES, RangedFile
from streaming_lsm.storage.uris import open_storage
from tests.support.s3_server import S3Server


def test_a_small_file_is_one_request(server: S3Server, s3_uri: str) -> None:
    storage = open_storage(s3_uri)
    table = pa.table({"key": [f"k{number}" for number in range(1000)]})
    with storage.create("f.parquet") as file:
        pq.write_table(table, file)
    server.requests()
    with storage.open_input("f.parquet") as source:
        assert pq.read_table(source).equals(table)
    assert [request.partition(" ")[0] for request in server.requests()] == ["GET"]


def test_of_a_large_file_the_footer_and_the_chunks_that_are_read_are_fetched(server: S3Server, s3_uri: str) -> None:
    storage = open_storage(s3_uri)
    numbers = np.random.default_rng(5).integers(0, 1 << 62, (4, 400_000))
    table = pa.table({f"c{column}": numbers[column] for column in range(4)})
    with storage.create("f.parquet") as file:
        pq.write_table(table, file, row_group_size=200_000, compression="none", use_dictionary=False)
    fetched = 0
    whole = RangedFile._fetch

    def counted(self: RangedFile, start: int, count: int) -> bytes:
        nonlocal fetched
        fetched += count
        return whole(self, start, count)

    with pytest.MonkeyPatch.context() as patch, storage.open_input("f.parquet") as source:
        patch.setattr(RangedFile, "_fetch", counted)
        server.requests()
        parquet = pq.ParquetFile(source)
        assert fetched == 0, "the footer came when the file was opened"
        assert parquet.read(columns=["c1"]).equals(table.select(["c1"]))
        size = source.size()
    assert size > 12_000_000
    assert 3_200_000 <= fetched < 3_600_000
    assert len(server.requests()) == 2


@pytest.mark.parametrize("size", [0, 1, TAIL_BYTES, TAIL_BYTES + 1, 3 * BLOCK_BYTES + 17])
def test_any_sequence_of_reads_gives_the_bytes_of_the_file(objects: Storage, size: int) -> None:
    chance = random.Random(size)
    data = chance.randbytes(size)
    objects.replace("f", data)
    model = io.BytesIO(data)
    with objects.open_input("f") as file:
        assert file.size() == size
        for _ in range(60):
            position = chance.randint(0, size)
            count = chance.choice([0, 1, 100, BLOCK_BYTES // 2, BLOCK_BYTES, size])
            file.seek(position)
            model.seek(position)
            assert file.read(count) == model.read(count)
            assert file.tell() == model.tell()
        file.seek(0)
        assert file.read() == data


def test_a_file_that_is_replaced_while_it_is_read_is_an_error(objects: Storage) -> None:
    objects.replace("f", bytes(2 * BLOCK_BYTES))
    with objects.open_input("f") as file:
        objects.replace("f", b"1" * 2 * BLOCK_BYTES)
        with pytest.raises((StorageError, OSError), match="replaced while it was read"):
            file.read(10)


def test_a_file_that_is_deleted_while_it_is_read_is_missing(objects: Storage) -> None:
    objects.replace("f", bytes(2 * BLOCK_BYTES))
    with objects.open_input("f") as file:
        objects.delete("f")
        with pytest.raises(FileNotFoundError):
            file.read(10)


def test_a_position_before_the_file_is_refused(objects: Storage) -> None:
    objects.replace("f", b"123")
    scheme, _, rest = objects.uri.partition("://")
    container, _, prefix = rest.partition("/")
    file = RangedFile(connect(scheme, container), f"{prefix}/f", "f")
    with pytest.raises(ValueError, match="before the first byte"):
        file.seek(-1)
    assert file.seek(-1, io.SEEK_END) == 2
    assert file.read() == b"3"
    assert file.read() == b""


@pytest.mark.parametrize("size", [0, 10, TAIL_BYTES + 10])
def test_a_store_without_suffix_ranges_is_read_by_its_size(
    memory_uri: str, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    storage = open_storage(memory_uri)
    data = random.Random(size).randbytes(size)
    storage.replace("f", data)
    get = obstore.get

    def as_azure(store: Any, key: str, *, options: Any = None) -> Any:
        if options and "suffix" in options["range"]:
            raise NotSupportedError("Operation not supported: Azure does not support suffix ranges")
        return get(store, key, options=options)

    monkeypatch.setattr(obstore, "get", as_azure)
    with storage.open_input("f") as file:
        assert file.size() == size
        assert file.read() == data


def test_interleaved_reads_of_many_columns_fetch_each_byte_once(
    memory_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(memory_uri)
    storage.replace("f", bytes(24 * BLOCK_BYTES))
    fetched = 0
    whole = RangedFile._fetch

    def counted(self: RangedFile, start: int, count: int) -> bytes:
        nonlocal fetched
        fetched += count
        return whole(self, start, count)

    monkeypatch.setattr(RangedFile, "_fetch", counted)
    piece = 256 << 10
    with storage.open_input("f") as file:
        for turn in range(4):
            for column in range(20):
                file.seek(column * BLOCK_BYTES + turn * piece)
                assert len(file.read(piece)) == piece
    assert fetched == 20 * BLOCK_BYTES
