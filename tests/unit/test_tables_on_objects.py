"""Tables in object stores: written, served and read as on a disk, and left in a form that other programs read."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.config import OPTIMISTIC
from streaming_lsm.errors import ConfigError, Fenced, TableNotFound, WriterTimeout
from streaming_lsm.lock.lock import LOCK_FILE
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.objects.probe import PROBE_NAME
from streaming_lsm.storage.uris import open_storage
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH
from streaming_lsm.txn.batch_ledger import BatchIdentity
from streaming_lsm.txn.outcome import Outcome
from tests.oracle.validator import validate
from tests.support.raw_objects import delete_all, download, raw_keys
from tests.support.s3_server import S3Server
from tests.support.small_tables import OPTIONS, SCHEMA, Row, rows, shown

SERVICES = {
    "hoodie.compact.inline": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.clean.commits.retained": 1,
}


RARELY_COMPACTED: dict[str, object] = {"hoodie.metadata.enable": True, "hoodie.metadata.compact.max.delta.commits": 100}


@pytest.fixture(params=["local", "memory", "s3"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "table") if request.param == "local" else str(request.getfixturevalue(f"{request.param}_uri"))


def new_table(uri: str, **options: object) -> LsmTable:
    return LsmTable.create(uri, SCHEMA, {**OPTIONS, **SERVICES, **options})


def row(key: str, ts: int) -> Row:
    return (key, "nl" if key < "m" else "de", ts, ts * 10)


def keys(*names: str) -> pa.Table:
    return rows(*(row(name, 0) for name in names)).select(["id", "country"])


@pytest.mark.parametrize("metadata", ["false", "true"], ids=["listing", "metadata"])
def test_a_table_lives_in_an_object_store_as_on_a_disk(uri: str, metadata: str, tmp_path: Path) -> None:
    table = new_table(uri, **{"hoodie.metadata.enable": metadata})
    first = table.upsert(rows(row("a", 1), row("b", 1), row("x", 1)))
    second = table.upsert(rows(row("a", 2), row("y", 2)))
    third = table.delete(keys("b"))
    assert first is not None
    assert second is not None
    assert third is not None
    after = [row("a", 2), row("x", 1), row("y", 2)]
    assert shown(table) == after
    assert table.compact() is not None
    assert shown(table) == after
    table.upsert(rows(row("x", 3)))
    assert table.compact() is not None
    table.upsert(rows(row("z", 4)))
    assert table.compact() is not None
    assert table.clean() is not None
    latest = [row("a", 2), row("x", 3), row("y", 2), row("z", 4)]
    opened = LsmTable(uri, OPTIONS)
    assert shown(opened) == latest
    assert shown(opened, as_of=opened.timeline.completed_writes[-1].requested) == latest
    changed = opened.incremental(third.completed or "").to_arrow()
    assert set(changed.column("id").to_pylist()) == {"x", "z"}
    if "://" in uri:
        copy = download(uri, tmp_path / "copy")
        assert [said for said in validate(copy) if not _is_of_objects(said)] == []
        assert shown(LsmTable(copy, OPTIONS)) == latest


def test_time_travel_reads_each_commit(uri: str) -> None:
    table = new_table(uri)
    moments = [table.upsert(rows(row("a", ts))) for ts in (1, 2, 3)]
    for ts, moment in enumerate(moments, 1):
        assert moment is not None
        assert shown(table, as_of=moment.completed) == [row("a", ts)]


def test_a_replayed_batch_is_written_once(uri: str) -> None:
    table = new_table(uri, **{"lsm.writer.id": "query"})
    assert table.upsert(rows(row("a", 1)), batch_id=7) is not None
    assert LsmTable(uri, {**OPTIONS, "lsm.writer.id": "query"}).upsert(rows(row("a", 1)), batch_id=7) is None


def test_a_folder_without_a_table_is_named(uri: str) -> None:
    with pytest.raises(TableNotFound, match="is no table"):
        LsmTable(uri, OPTIONS)


def test_a_table_is_created_once_and_none_inside_another(uri: str) -> None:
    new_table(uri)
    with pytest.raises(ConfigError, match="already"):
        new_table(uri)
    with pytest.raises(ConfigError, match="lies in the table"):
        new_table(f"{uri}/country=de/below")


@pytest.mark.parametrize("partition", ["nl", "de"])
def test_a_table_that_was_created_again_in_its_place_has_none_of_the_files_before(uri: str, partition: str) -> None:
    table = new_table(uri)
    for ts in range(2):
        table.upsert(rows(row("a", ts), row("b", ts)))
    delete_all(uri)
    new_table(uri).upsert(rows(("z", partition, 1, 10)))
    table.upsert(rows(row("c", 2)))
    assert shown(LsmTable(uri, OPTIONS)) == [row("c", 2), ("z", partition, 1, 10)]


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_a_creation_that_failed_is_in_no_ones_way(request: pytest.FixtureRequest, kind: str) -> None:
    root = str(request.getfixturevalue(f"{kind}_uri"))
    new_table(f"{root}/below/first")
    with pytest.raises(ConfigError, match=r"there is a table at .*below/first"):
        new_table(f"{root}/below")
    storage = open_storage(f"{root}/below")
    storage.delete_folder("first")
    storage.put_if_absent(f"second/{PROPERTIES_PATH}", b"#lsm.create=1\n")
    with pytest.raises(ConfigError, match=r"being created at .*below/second"):
        new_table(f"{root}/below")
    assert storage.delete_if_unchanged(f"second/{PROPERTIES_PATH}", b"#lsm.create=1\n", reused=True)
    new_table(f"{root}/below").upsert(rows(row("a", 1)))


def test_nothing_but_the_lock_is_left_beside_the_table(s3_uri: str) -> None:
    table = new_table(s3_uri)
    for ts in range(3):
        table.upsert(rows(row("a", ts), row("x", ts)))
    table.compact()
    beside = [
        path
        for path in raw_keys(s3_uri)
        if path.startswith(".hoodie/") and not path.startswith(".hoodie/timeline/") and "properties" not in path
    ]
    assert beside == [LOCK_FILE]
    assert not table.storage.exists(LOCK_FILE)


def requests_of_a_batch(server: S3Server, uri: str, commits: int, more: dict[str, object]) -> Counter[str]:
    """Kinds of the requests of a batch of four files after some others."""
    # Archiving after each fourth batch is a service beside it.
    options = {**OPTIONS, "hoodie.bucket.index.num.buckets": 4, "hoodie.archive.automatic": False, **more}
    table = LsmTable.create(uri, SCHEMA, options)
    batch = rows(*((f"k{number}", "nl", 1, 1) for number in range(100)))
    for _ in range(commits):
        table.upsert(batch)
    server.requests()
    table.upsert(batch)
    return Counter(_kind(request) for request in server.requests())


@pytest.mark.parametrize("commits", [2, 40])
def test_a_batch_lists_nothing_and_sends_twelve_requests_and_two_for_each_file(
    object_server: S3Server, s3_uri: str, commits: int
) -> None:
    found = requests_of_a_batch(object_server, s3_uri, commits, {})
    assert sum(found.values()) <= 12 + 2 * 4, found
    assert "LIST" not in found


@pytest.mark.parametrize("commits", [2, 12])
def test_a_metadata_table_adds_six_requests_to_a_batch_and_lists_nothing(
    object_server: S3Server, s3_uri: str, commits: int
) -> None:
    found = requests_of_a_batch(object_server, s3_uri, commits, RARELY_COMPACTED)
    assert sum(found.values()) <= 12 + 2 * 4 + 6, found
    assert "LIST" not in found
    assert LsmTable(s3_uri).check_indexes().findings == ()


def test_a_metadata_table_that_is_known_is_compacted_all_the_same(s3_uri: str) -> None:
    table = new_table(s3_uri, **{"hoodie.metadata.enable": True, "hoodie.metadata.compact.max.delta.commits": 3})
    for ts in range(10):
        table.upsert(rows(row("a", ts)))
        assert len([path for path in raw_keys(s3_uri) if "/files/" in path and ".log." in path]) <= 7
    assert table.check_indexes().findings == ()


def test_a_metadata_table_is_opened_again_when_another_writer_has_changed_it(
    object_server: S3Server, s3_uri: str
) -> None:
    ranged = {"hoodie.metadata.enable": True, "hoodie.metadata.index.column.stats.enable": True}
    table = new_table(s3_uri, **ranged)
    table.upsert(rows(row("a", 1)))
    other = LsmTable(s3_uri, {**OPTIONS, **SERVICES})

    def check(ts: int, *, is_listed: bool) -> None:
        object_server.requests()
        table.upsert(rows(row("a", ts)))
        assert ("LIST" in {_kind(request) for request in object_server.requests()}) == is_listed
        assert LsmTable(s3_uri).check_indexes().findings == ()

    for ts, change in enumerate(
        (
            lambda: other.upsert(rows(row("b", 2))),
            other.compact,
            lambda: other.drop_index("column_stats"),
            lambda: other.create_index("partition_stats"),
            lambda: LsmTable(s3_uri, {**OPTIONS, "hoodie.metadata.enable": False}).upsert(rows(row("x", 1))),
        ),
        start=2,
    ):
        change()
        check(2 * ts, is_listed=True)
    # The options ask for both: they are made again.
    names = [state.name for state in LsmTable(s3_uri).indexes() if state.state == "ready"]
    assert sorted(names) == ["column_stats", "files"]
    assert shown(LsmTable(s3_uri, OPTIONS)) == [row("a", 12), row("b", 2), row("x", 1)]


@pytest.mark.parametrize("name", ["secondary_index_qty", "record_index"])
def test_an_index_that_is_damaged_while_it_is_known_is_dropped_and_misses_no_row_afterwards(
    memory_uri: str, name: str
) -> None:
    options = {key: value for key, value in OPTIONS.items() if "bucket" not in key}
    # The options do not ask for the index: one that they ask for is made again.
    options |= {**RARELY_COMPACTED, "hoodie.index.type": "GLOBAL_SIMPLE"}
    table = LsmTable.create(memory_uri, SCHEMA, options)
    table.upsert(rows(row("a", 1)))
    table.create_index("record_index")
    if name != "record_index":
        table.create_index(name, {"hoodie.metadata.index.secondary.column": "qty"})
    table.upsert(rows(row("b", 2)))
    table.upsert(rows(row("c", 3)))
    storage, path = table.storage, ".hoodie/.index_defs/index.json"
    if name == "record_index":
        folder = f".hoodie/metadata/{name}"
        path = f"{folder}/{max(entry.name for entry in storage.list(folder) if '.log.' in entry.name)}"
    before = storage.read(path)
    storage.delete(path)
    if name != "record_index":
        storage.put_if_absent(path, before.replace(b'"qty"', b'"ts"'))
    table.upsert(rows(row("x", 4)))
    storage.delete(path)
    storage.put_if_absent(path, before)
    opened = LsmTable(memory_uri, {"hoodie.metadata.enable": True})
    assert name not in [state.name for state in opened.indexes() if state.state == "ready"]
    assert opened.check_indexes().findings == ()
    for wanted in ("id = 'x'", "qty = 40"):
        assert opened.scan(filter=wanted).count() == 1
    table.upsert(rows(row("y", 5)))
    assert LsmTable(memory_uri).check_indexes().findings == ()


def test_a_table_is_listed_again_when_another_writer_has_changed_it(object_server: S3Server, s3_uri: str) -> None:
    table = new_table(s3_uri)
    table.upsert(rows(row("a", 1)))
    other = LsmTable(s3_uri, {**OPTIONS, **SERVICES})
    other.upsert(rows(row("b", 2)))
    other.compact()
    object_server.requests()
    table.upsert(rows(row("c", 3)))
    assert "LIST" in {_kind(request) for request in object_server.requests()}
    table.upsert(rows(row("a", 4)))
    assert shown(LsmTable(s3_uri, OPTIONS)) == [row("a", 4), row("b", 2), row("c", 3)]
    assert len(table.timeline.completed_writes) == 5


def test_a_batch_that_another_writer_commits_beside_is_found_at_the_commit(s3_uri: str) -> None:
    table = new_table(s3_uri, **{"lsm.writer.id": "query"})
    table.upsert(rows(row("a", 1)), batch_id=0)
    outcome = Outcome((), "UPSERT", "{}")
    with table.transaction(BatchIdentity("query", 1)) as tx:
        tx.begin()
        options = {"lsm.writer.id": "query", "hoodie.write.concurrency.mode": OPTIMISTIC}
        other = LsmTable(s3_uri, {**OPTIONS, **SERVICES, **options})
        assert other.upsert(rows(row("b", 2)), batch_id=1) is not None
        tx.reconcile(outcome)
        with pytest.raises(Fenced, match="batch 1 of writer 'query' was committed"):
            tx.complete(outcome)
    assert shown(LsmTable(s3_uri, OPTIONS)) == [row("a", 1), row("b", 2)]


def test_a_program_that_ignores_the_lock_is_seen_within_a_minute(s3_uri: str) -> None:
    table, now = new_table(s3_uri, **{"lsm.write.single.writer.wait.ms": 0}), [0.0]
    table.runtime = replace(Runtime(), elapsed=lambda: now[0])
    table.upsert(rows(row("a", 1)))
    for name in ("timeline/20990101000000000.deltacommit.inflight", ".heartbeat/20990101000000000"):
        table.storage.put_if_absent(f".hoodie/{name}", b"")
    now[0] += 59
    table.upsert(rows(row("a", 2)))
    now[0] += 2
    with pytest.raises(WriterTimeout, match=r"20990101000000000\.deltacommit\.inflight"):
        table.upsert(rows(row("a", 3)))


def _kind(request: str) -> str:
    method, _, path = request.partition(" ")
    if "list-type" in path:
        return "LIST"
    return "DELETE" if path.endswith("?delete") else method


def _is_of_objects(violation: str) -> bool:
    """A store has no empty folders, the probe beside the table's files, and a lock that stays when it is released."""
    return violation.startswith(("folder.missing: .hoodie/", f"leftover.lock: {LOCK_FILE}")) or PROBE_NAME in violation
