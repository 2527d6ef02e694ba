import itertools
import uuid

import pytest

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.table.file_names import (
    BaseFileName,
    InlineLogName,
    LogFileName,
    LogKind,
    WriteToken,
    bucket_file_id,
    bucket_of,
    parse_file_name,
)

FILE_ID = "00000003-be9e-4fda-89c3-1fd3e35c53a9-0"
INSTANT = "20261121040120865"
TOKEN = WriteToken(2, 15, 7)


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        (f"{FILE_ID}_2-15-7_{INSTANT}.parquet", BaseFileName(FILE_ID, "2-15-7", INSTANT, "parquet")),
        (f"{FILE_ID}_2-15-7_{INSTANT}_1.log.parquet", LogFileName(FILE_ID, TOKEN, INSTANT, 1, LogKind.DATA)),
        (f"{FILE_ID}_2-15-7_{INSTANT}_12.deletes.parquet", LogFileName(FILE_ID, TOKEN, INSTANT, 12, LogKind.DELETES)),
        (f"{FILE_ID}_2-15-7_{INSTANT}_1.cdc.parquet", LogFileName(FILE_ID, TOKEN, INSTANT, 1, LogKind.CDC)),
        (f"{FILE_ID}_2-15-7_{INSTANT}_1.log.lance", LogFileName(FILE_ID, TOKEN, INSTANT, 1, LogKind.DATA, "lance")),
        (f".{FILE_ID}_{INSTANT}.log.3_2-15-7", InlineLogName(FILE_ID, INSTANT, 3, TOKEN)),
        (f".{FILE_ID}_{INSTANT}.log.3_2-15-7.cdc", InlineLogName(FILE_ID, INSTANT, 3, TOKEN, cdc=True)),
        (f".{FILE_ID}_{INSTANT}.log.3", InlineLogName(FILE_ID, INSTANT, 3)),
    ],
)
def test_a_data_file_name_is_read_and_prints_back(name: str, parsed: object) -> None:
    assert parse_file_name(name) == parsed
    assert str(parsed) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".hoodie_partition_metadata",
        f"{FILE_ID}_2-15-7_{INSTANT}.parquet.marker.CREATE",
        f".{FILE_ID}_2-15-7_{INSTANT}.parquet.crc",
        f"..{FILE_ID}_{INSTANT}.log.3_2-15-7.crc",
        f".{FILE_ID}_{INSTANT}.archive.3_2-15-7",
        f"{FILE_ID}_2-15-7_{INSTANT}_1.delete.parquet",
        f"{FILE_ID}_2-15-7_{INSTANT}_1.parquet",
        f"{FILE_ID}_2-15-7_{INSTANT}_01.log.parquet",
        f"{FILE_ID}_02-15-7_{INSTANT}_1.log.parquet",
        f"{FILE_ID}_2-15-7_{INSTANT}_{'9' * 5000}.log.parquet",
        f"{FILE_ID}_2-15_{INSTANT}_1.log.parquet",
        f"{FILE_ID}_2-15-7_!_1.log.parquet",
        f"{FILE_ID}_2-15-7_..._1.log.parquet",
        f"{FILE_ID}_2-15-7_٢٠٢٦_1.log.parquet",
        f"../{FILE_ID}_2-15-7_{INSTANT}_1.log.parquet",
        f"{FILE_ID}\n_2-15-7_{INSTANT}_1.log.parquet",
        f"{FILE_ID}_2-15-7_{INSTANT}_1.log.parquet\n",
        f"{FILE_ID}_2-15-7_{INSTANT}.parquet\n",
        f"{FILE_ID}_2-15-7_{INSTANT}.csv",
        f"_2-15-7_{INSTANT}.parquet",
    ],
)
def test_any_other_name_is_no_data_file(name: str) -> None:
    assert parse_file_name(name) is None


@pytest.mark.parametrize(("suffix", "kind"), [("", LogKind.DATA), (".delete", LogKind.DELETES)])
def test_names_of_the_first_rfc_text_are_read_on_request(suffix: str, kind: LogKind) -> None:
    name = f"{FILE_ID}_2-15-7_{INSTANT}_4{suffix}.parquet"
    parsed = parse_file_name(name, rfc103_names=True)
    assert parsed == LogFileName(FILE_ID, TOKEN, INSTANT, 4, kind, rfc103=True)
    assert str(parsed) == name


def test_logs_sort_by_instant_version_kind_and_token() -> None:
    ascending: list[LogFileName | InlineLogName] = [
        LogFileName(FILE_ID, WriteToken(9, 0, 0), "20", 9, LogKind.CDC),
        InlineLogName(FILE_ID, "21", 1),
        LogFileName(FILE_ID, WriteToken(1, 0, 0), "21", 1, LogKind.DATA),
        LogFileName(FILE_ID, WriteToken(2, 0, 0), "21", 1, LogKind.DATA),
        LogFileName(FILE_ID, WriteToken(0, 0, 0), "21", 1, LogKind.DELETES),
        LogFileName(FILE_ID, WriteToken(0, 0, 0), "21", 1, LogKind.CDC),
        LogFileName(FILE_ID, WriteToken(0, 0, 0), "21", 2, LogKind.DATA),
        LogFileName(FILE_ID, WriteToken(0, 0, 0), "21", 10, LogKind.DATA),
        LogFileName(FILE_ID, WriteToken(0, 0, 0), "3", 1, LogKind.DATA),
    ]
    for older, newer in itertools.pairwise(ascending):
        assert older.sort_key < newer.sort_key


def test_a_file_id_carries_its_bucket() -> None:
    file_id = bucket_file_id(3, uuid.UUID("be9e4fda-89c3-4fd3-835c-53a9be9e4fda"))
    assert file_id == "00000003-89c3-4fd3-835c-53a9be9e4fda-0"
    assert bucket_of(file_id) == 3
    assert bucket_of(bucket_file_id(99_999_999, uuid.UUID(int=0))) == 99_999_999


@pytest.mark.parametrize("file_id", ["", "0000003-", "be9e4fda-89c3-4fd3-835c-53a9be9e4fda-0", "٠٠٠٠٠٠٠٣-x"])
def test_a_file_id_without_bucket_is_refused_by_name(file_id: str) -> None:
    with pytest.raises(UnsupportedTable, match="eight-digit"):
        bucket_of(file_id)


@pytest.mark.parametrize("bucket", [-1, 100_000_000])
def test_a_bucket_beyond_eight_digits_has_no_file_id(bucket: int) -> None:
    with pytest.raises(ValueError, match=str(bucket)):
        bucket_file_id(bucket, uuid.UUID(int=0))


@pytest.mark.parametrize("text", ["", "1-2", "1-2-3-4", "a-b-c", "1-2-3\n", "-1-2-3"])
def test_a_malformed_write_token_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write token"):
        WriteToken.parse(text)
