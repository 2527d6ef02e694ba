import pickle

import pytest

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.actions.commit import (
    NO_COMMIT,
    CommitMetadata,
    WriteStat,
    base_file_stat,
    decode_json,
    log_file_stat,
)
from streaming_lsm.format.avro.container import encode_record
from streaming_lsm.format.table.file_names import BaseFileName, LogFileName, LogKind, WriteToken

FILE_ID = "00000003-be9e-4fda-89c3-1fd3e35c53a9-0"
DATA = LogFileName(FILE_ID, WriteToken(2, 15, 7), "20261121040120865", 1, LogKind.DATA)
DELETES = LogFileName(FILE_ID, WriteToken(2, 15, 7), "20261121040120865", 1, LogKind.DELETES)
BASE = BaseFileName(FILE_ID, "2-15-7", "20261121040120865")


def test_a_data_log_counts_its_rows_as_writes() -> None:
    stat = log_file_stat("south", DATA, total_bytes=900, num_inserts=2, num_updates=5)
    record = stat.to_avro()
    assert record["path"] == f"south/{DATA}"
    assert record["prevCommit"] == DATA.instant
    assert (record["numWrites"], record["numInserts"], record["numUpdateWrites"], record["numDeletes"]) == (7, 2, 5, 0)
    assert (record["totalWriteBytes"], record["fileSizeInBytes"]) == (900, 900)
    assert (record["logVersion"], record["logOffset"], record["baseFile"]) == (1, 0, "")
    assert record["logFiles"] == [str(DATA)]


def test_a_delete_log_counts_only_deletes() -> None:
    record = log_file_stat("south", DELETES, total_bytes=500, num_deletes=3).to_avro()
    assert (record["numWrites"], record["numInserts"], record["numUpdateWrites"], record["numDeletes"]) == (0, 0, 0, 3)


def test_a_base_file_over_another_names_its_predecessor() -> None:
    older = BaseFileName(FILE_ID, "0-1-2", "20261121030000000")
    record = base_file_stat("", BASE, total_bytes=9, num_writes=4, num_updates=1, previous=older).to_avro()
    assert (record["path"], record["partitionPath"]) == (str(BASE), "")
    assert (record["prevCommit"], record["prevBaseFile"]) == (older.instant, str(older))
    assert (record["logVersion"], record["logOffset"], record["baseFile"], record["logFiles"]) == (None,) * 4


def test_a_first_base_file_has_no_predecessor() -> None:
    record = base_file_stat("a/b", BASE, total_bytes=9, num_writes=4, num_inserts=4).to_avro()
    assert (record["prevCommit"], record["prevBaseFile"]) == (NO_COMMIT, None)


def test_a_commit_reads_back_with_its_stats_grouped_by_partition() -> None:
    north = base_file_stat("north", BASE, total_bytes=9, num_writes=4)
    data = log_file_stat("south", DATA, total_bytes=900, num_updates=5)
    deletes = log_file_stat("south", DELETES, total_bytes=500, num_deletes=3)
    commit = CommitMetadata((data, north, deletes), "UPSERT", {"schema": "{}", "lsm.writers": "日本"})
    decoded = CommitMetadata.decode(commit.encode(), "t.deltacommit")
    assert decoded == CommitMetadata((data, deletes, north), "UPSERT", commit.extra)
    assert decoded.schema == "{}"


def test_a_replacecommit_keeps_the_replaced_file_ids_even_if_there_are_none() -> None:
    for replaced in ({}, {"south": ("a", "b"), "north": ()}):
        commit = CommitMetadata((), "INSERT_OVERWRITE", replaced=replaced)
        assert CommitMetadata.decode(commit.encode(), "t.replacecommit") == commit


def test_null_counts_read_as_zero_and_a_missing_partition_path_as_that_of_the_list() -> None:
    record = {"partitionToWriteStats": {"south": [{"fileId": "f"}]}}
    decoded = CommitMetadata.decode(encode_record("HoodieCommitMetadata", record), "t.commit")
    assert decoded == CommitMetadata((WriteStat("south", "f", "", NO_COMMIT),), "UNKNOWN")


def test_write_stats_travel_between_processes() -> None:
    stat = log_file_stat("south", DATA, total_bytes=900, num_updates=5)
    assert pickle.loads(pickle.dumps(stat)) == stat
    assert stat.file_name == str(DATA)


def test_another_record_in_place_of_a_commit_is_reported_by_name() -> None:
    plan = encode_record("HoodieRollbackPlan", {})
    with pytest.raises(CorruptFileError, match=r"t\.commit: holds a HoodieRollbackPlan"):
        CommitMetadata.decode(plan, "t.commit")


def test_the_json_of_a_commit_of_millions_of_empty_stats_is_refused_by_name_before_it_is_parsed() -> None:
    data = b'{"partitionToWriteStats":{"a":[' + b"{}," * 2_000_000 + b"{}]}}"
    with pytest.raises(CorruptFileError, match=r"20261122\.commit: not the JSON of a commit .* parts in "):
        decode_json(data, "20261122.commit")
