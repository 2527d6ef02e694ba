"""``lsm index``: what it creates, drops and shows, and the differences that ``verify`` finds and repairs."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.cli.commands import main
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.metadata.group_files import base_content
from streaming_lsm.format.metadata.record_index import parse_shard
from streaming_lsm.metadata.listing import folder_listing
from streaming_lsm.services.indexes import check
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.txn.transaction import Transaction
from tests.support.crash_points import sample
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.hudi_tables import unpacked
from tests.support.metadata_tables import (
    ENABLED,
    INDEXED,
    LOCATED,
    LOCATED_BY_PARTITION,
    PARTITIONS,
    assert_indexes,
    assert_locations,
    assert_settled,
)
from tests.support.small_tables import create, rows, shown

METADATA = ".hoodie/metadata"
ALL = ("files", "column_stats", "partition_stats", "bloom_filters", "record_index")
FEW_SHARDS = {
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.metadata.record.index.max.filegroup.count": 2,
}
PARTITIONED = "hoodie.metadata.record.level.index.enable"
BLOOMS = {"hoodie.parquet.bloom.filter.enabled": True}
ROWS = rows(*((f"k{number:02d}", "nl" if number % 2 else "be", number, number) for number in range(40)))
Change = Callable[[Any, Any, Any], tuple[Any, Any]]


@pytest.fixture(autouse=True)
def _quiet_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main(["index", *(str(argument) for argument in arguments)]) == code
    out, err = capsys.readouterr()
    return err if code == 2 else out


def verified(capsys: pytest.CaptureFixture[str], root: Path, *more: str, code: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run(capsys, "verify", root, *more, "--json", code=code))
    assert document["is_sound"] is (code == 0)
    return document


def found(document: dict[str, Any]) -> set[tuple[str, str, int]]:
    return {(one["index"], one["kind"], one["count"]) for one in document["findings"]}


def registered(root: Path) -> list[str]:
    return [name for name in load_properties(LocalStorage(root)).get(PARTITIONS, "").split(",") if name]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with base files and logs, and all indexes but ``record_index``."""
    root = tmp_path_factory.mktemp("indexed") / "table"
    table = create(root, **BLOOMS)
    table.upsert(ROWS)
    table.compact()
    table.upsert(rows(("k01", "nl", 99, 1), ("k50", "nl", 99, 1)))
    for name in ALL[:-1]:
        table.create_index(name)
    return root


def indexed(template: Path, root: Path, *, by_partition: bool = False) -> LsmTable:
    """A copy of it with all indexes."""
    shutil.copytree(template, root, dirs_exist_ok=True)
    LsmTable(root, FEW_SHARDS).create_index("record_index", {PARTITIONED: True} if by_partition else None)
    return LsmTable(root, {"lsm.read.threads": 1})


def rewrite(root: Path, partition: str, change: Change) -> None:
    """Store other records in a base file of an index, the first that has some."""
    paths = sorted(path for path in (root / METADATA / partition).glob("*.hfile") if ".log." not in path.name)
    opened = {path: [*HFile.open(path.read_bytes(), "").cells()] for path in paths}
    first = next(path for path in paths if opened[path])
    cells = [(part.keys, part.values) for part in opened[first]]
    keys, values = (pa.concat_arrays(list(column)) for column in zip(*cells, strict=True))
    # Records name their file, the names of shards have one length.
    others: Any = pa.array(
        [
            value.replace(path.name.encode(), first.name.encode())
            for path in paths
            for part in opened[path]
            for value in part.values.to_pylist()
            if path != first
        ],
        values.type,
    )
    first.write_bytes(base_content(*change(keys, values, others), 1, "other"))


def without_first(keys: Any, values: Any, others: Any) -> tuple[Any, Any]:
    return keys[1:], values[1:]


def swapped(keys: Any, values: Any, others: Any) -> tuple[Any, Any]:
    """Give each key the record of another one, the last one that of a key in another file, if there is one."""
    return keys, pa.concat_arrays([values[1:], others[:1], values[:1]])[: len(keys)]


def renamed_last(keys: Any, values: Any, others: Any) -> tuple[Any, Any]:
    last = keys[-1].as_py() + b"~"
    return pa.concat_arrays([keys[:-1], pa.array([last], keys.type)]), values


def test_indexes_are_created_shown_verified_and_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = create(tmp_path, **BLOOMS, **FEW_SHARDS)
    table.upsert(ROWS)
    table.compact()
    assert "has no metadata table: create the index 'files' first" in run(
        capsys, "create", tmp_path, "record_index", code=2
    )
    for name in ALL:
        assert run(capsys, "create", tmp_path, name).startswith(f"created {name}: ")
    assert registered(tmp_path) == list(ALL)
    assert_settled(tmp_path)
    assert_indexes(table)
    assert assert_locations(tmp_path) == 40

    table.upsert(rows(("k01", "nl", 99, 1), ("k50", "nl", 99, 1)))
    states = {one["name"]: one for one in json.loads(run(capsys, "show", tmp_path, "--json"))["indexes"]}
    assert [states[name]["state"] for name in ALL] == ["ready"] * 5
    assert states["record_index"]["records"] == 42
    assert states["record_index"]["file_groups"] == 10
    assert {one["until"] for one in states.values()} == {table.timeline.completed_writes[-1].requested}
    assert states["column_stats"]["columns"][-4:] == ["id", "country", "ts", "qty"]
    files = [path for path in (tmp_path / METADATA / "bloom_filters").iterdir() if not path.name.startswith(".")]
    assert states["bloom_filters"]["bytes"] == sum(path.stat().st_size for path in files)
    assert "ready" in run(capsys, "show", tmp_path, "files").splitlines()[1]

    document = verified(capsys, tmp_path)
    assert set(document["records"]) == set(ALL)
    assert document["records"]["record_index"] == 41
    assert run(capsys, "verify", tmp_path, "files").endswith(": no differences\n")
    run(capsys, "create", tmp_path, "secondary_index_where", "--columns", "country")
    (state,) = json.loads(run(capsys, "show", tmp_path, "secondary_index_where", "--json"))["indexes"]
    assert (state["columns"], state["records"]) == (["country"], 41)
    assert verified(capsys, tmp_path, "secondary_index_where")["records"] == {"secondary_index_where": 41}
    run(capsys, "drop", tmp_path, "secondary_index_where")
    assert run(capsys, "drop", tmp_path, "record_index") == "dropped record_index\n"
    assert registered(tmp_path) == list(ALL[:-1])
    assert not (tmp_path / METADATA / "record_index").exists()
    assert "absent" in run(capsys, "show", tmp_path, "record_index")
    run(capsys, "drop", tmp_path, "files")
    assert registered(tmp_path) == []
    assert not (tmp_path / METADATA).exists()
    assert run(capsys, "verify", tmp_path) == "compared no index: no differences\n"
    assert len(shown(table)) == 41


def test_what_cannot_be_created_or_dropped_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = create(tmp_path, **{"hoodie.datasource.write.partitionpath.field": None})
    table.upsert(rows(("a", "nl", 1, 1)))
    assert "has no index 'files'; it has none" in run(capsys, "drop", tmp_path, "files", code=2)
    run(capsys, "create", tmp_path, "files")
    run(capsys, "create", tmp_path, "column_stats", "--columns", "qty")
    (state,) = json.loads(run(capsys, "show", tmp_path, "column_stats", "--json"))["indexes"]
    assert state["columns"][-1] == "qty"
    assert len(state["columns"]) == 4
    for arguments, why in (
        (("create", tmp_path, "column_stats"), "has column_stats already"),
        (("create", tmp_path, "partition_stats"), "the table is not partitioned"),
        (("create", tmp_path, "bloom"), "expected one of files, column_stats"),
        (("create", tmp_path, "record_index", "-o", "hoodie.metadata.record.index.enable=false"), "the options say"),
        (("create", tmp_path, "record_index", "--columns", "qty"), "--columns says nothing about record_index"),
        (("create", tmp_path, "secondary_index_qty", "--function", "lower"), "--function says nothing about secondary"),
        (("create", tmp_path, "bloom_filters", "--by-partition"), "--by-partition says nothing about bloom_filters"),
        (("create", tmp_path, "secondary_index_qty"), "is an index of one column: name it by --columns"),
        (("create", tmp_path, "secondary_index_qty", "--columns", "qty,ts"), "qty,ts: secondary_index_qty is an index"),
        (("create", tmp_path, "expr_index_ts", "--columns", "ts"), "name its function by --function"),
        (("create", tmp_path, "column_stats", "--columns", ","), "--columns ',': a name is empty"),
        (("drop", tmp_path, "record_index"), "has no index 'record_index'; it has files, column_stats"),
        (("verify", tmp_path, "record_index"), "has no index 'record_index'"),
        (("show", tmp_path, "bloom"), "has no index 'bloom'"),
    ):
        assert why in run(capsys, *arguments, code=2)
    assert registered(tmp_path) == ["files", "column_stats"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (without_first, {(name, "missing") for name in ALL[1:]}),
        (swapped, {(name, "wrong") for name in ALL[1:]}),
        (
            renamed_last,
            {
                *((name, "missing") for name in ALL[1:]),
                *((name, "left over") for name in ("bloom_filters", "record_index")),
            },
        ),
    ],
)
def test_other_records_are_found_and_the_indexes_are_built_again(
    change: Change,
    expected: set[tuple[str, str]],
    template: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = indexed(template, tmp_path)
    for name in ALL[1:]:
        rewrite(tmp_path, name, change)
    told = {(index, kind): count for index, kind, count in found(verified(capsys, tmp_path, code=1))}
    # A key of another name may be one of another shard.
    assert told.keys() - {("record_index", "damaged")} == expected
    assert all(count == 1 for (_, kind), count in told.items() if kind != "wrong")
    assert verified(capsys, tmp_path, "--repair")["rebuilt"] == list(ALL[1:])
    assert registered(tmp_path) == list(ALL)
    assert_indexes(table)
    assert assert_locations(tmp_path) == 41
    assert_settled(tmp_path)


@pytest.mark.parametrize("by_partition", [False, True])
def test_a_damaged_and_a_stale_part_are_reported_and_all_is_built_again_in_its_form(
    by_partition: bool,
    template: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = indexed(template, tmp_path, by_partition=by_partition)
    path = next((tmp_path / METADATA / "record_index").glob("*.hfile"))
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    assert found(verified(capsys, tmp_path, code=1)) == {("record_index", "damaged", 1)}
    (state,) = LsmTable(tmp_path).indexes()[4:]
    assert (state.name, state.state) == ("record_index", "unreadable")
    assert path.name in state.note
    path.write_bytes(content)
    assert verified(capsys, tmp_path)["findings"] == []

    table.upsert(rows(("k60", "be", 1, 1)))
    newest = max((tmp_path / METADATA / ".hoodie" / "timeline").glob("*.deltacommit"))
    newest.unlink()
    document = verified(capsys, tmp_path, code=1)
    assert ("files", "behind", 1) in found(document)
    assert {index for index, _, _ in found(document)} == set(ALL) - {"bloom_filters"}
    with caplog.at_level(logging.ERROR):
        said = run(capsys, "verify", tmp_path, "--repair").splitlines()
    assert said[0].split() == ["index", "finding", "what"]
    assert said[-2] == f"built again: {', '.join(ALL)}"
    assert said[-1].endswith(": no differences")
    shards = [parse_shard(path.name.partition("_")[0]) for path in (tmp_path / METADATA / "record_index").glob("rec*")]
    assert {shard[0] for shard in shards if shard} == ({"be", "nl"} if by_partition else {None})
    assert assert_locations(tmp_path) == 42
    assert_indexes(table)
    assert_settled(tmp_path)


def unchecked(text: str) -> str:
    return re.sub("#lsm.checksum=.*", "", text)


def assert_a_write_drops_all(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A write to a copy of the table drops its metadata table as a whole, and says so once."""
    copy = Path(shutil.copytree(root, root.with_name(f"{root.name}-written")))
    with caplog.at_level(logging.WARNING):
        LsmTable(copy).upsert(rows(("k60", "be", 1, 1)))
    assert caplog.text.count("dropped ") == 1
    assert "dropped the metadata table of" in caplog.text
    assert not (copy / METADATA).exists()


def assert_dropped_or_built_again(
    table: LsmTable, before: Any, root: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Queries are right, a write drops the damaged metadata table, and a repair builds all of it again."""
    assert shown(LsmTable(root)) == before
    assert_a_write_drops_all(root, caplog)
    assert verified(capsys, root, "--repair")["rebuilt"] == list(ALL)
    assert verified(capsys, root)["findings"] == []
    assert_indexes(table)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("version=", "version=1"),
        lambda text: unchecked(text).replace("table.version=10", "table.version=9"),
        lambda text: unchecked(text).replace("=MERGE_ON_READ", "=COPY_ON_WRITE"),
        lambda text: "#lsm.create=1\n",
    ],
    ids=["cut", "changed", "another version", "another type", "claimed"],
)
def test_properties_of_the_metadata_table_that_a_write_would_drop_it_for_are_reported(
    damage: Callable[[str], str],
    template: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = indexed(template, tmp_path)
    before = shown(table)
    path = tmp_path / METADATA / ".hoodie/hoodie.properties"
    path.write_text(damage(path.read_text()))
    document = verified(capsys, tmp_path, code=1)
    assert found(document) == {("files", "damaged", 1)}
    assert document["records"]["files"]
    assert "hoodie.properties" in document["findings"][0]["message"]
    assert_dropped_or_built_again(table, before, tmp_path, capsys, caplog)


@pytest.mark.parametrize("is_newest", [False, True])
def test_an_action_of_the_metadata_table_that_cannot_be_read_is_reported_once_and_all_is_built_again(
    is_newest: bool,
    template: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = indexed(template, tmp_path)
    table.upsert(rows(("k60", "be", 1, 1)))
    before = shown(table)
    path = sorted((tmp_path / METADATA / ".hoodie/timeline").glob("*_*.deltacommit"))[-1 if is_newest else -2]
    path.write_bytes(path.read_bytes()[:-200])
    for only in ((), ("record_index",)):
        document = verified(capsys, tmp_path, *only, code=1)
        assert found(document) == {("files", "damaged", 1)}
        assert document["findings"][0]["message"].startswith(f"{METADATA}: .hoodie/timeline/{path.name}: ")
    assert_dropped_or_built_again(table, before, tmp_path, capsys, caplog)
    table.upsert(rows(("k61", "be", 1, 1)))  # of a process that knew the former metadata table
    assert verified(capsys, tmp_path)["findings"] == []
    assert_indexes(table)


@pytest.mark.parametrize("version", ["10 ", "010"])
def test_a_version_with_blanks_or_zeros_is_no_damage(
    version: str, template: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    indexed(template, tmp_path)
    path = tmp_path / ".hoodie/hoodie.properties"
    path.write_text(unchecked(path.read_text()).replace("table.version=10", f"table.version={version}"))
    assert verified(capsys, tmp_path)["findings"] == []
    LsmTable(tmp_path).upsert(rows(("k60", "be", 1, 1)))
    assert verified(capsys, tmp_path)["findings"] == []
    assert [index.state for index in LsmTable(tmp_path).indexes()[:5]] == ["ready"] * 5
    LsmTable(tmp_path).rebuild_indexes(["files"])
    LsmTable(tmp_path).upsert(rows(("k61", "be", 1, 1)))
    assert [index.state for index in LsmTable(tmp_path).indexes()[:5]] == ["ready"] * 5


@pytest.mark.parametrize("name", ALL[1:])
def test_a_file_group_that_is_gone_is_reported_even_if_it_had_no_records(
    name: str, template: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = indexed(template, tmp_path)
    before = shown(table)
    paths = [path for path in (tmp_path / METADATA / name).iterdir() if not path.name.startswith(".")]
    last = max(path.name.partition("_")[0] for path in paths)
    for path in paths:
        if path.name.startswith(f"{last}_"):
            path.unlink()
    assert found(verified(capsys, tmp_path, code=1)) == {(name, "damaged", 1)}
    assert shown(LsmTable(tmp_path)) == before
    assert verified(capsys, tmp_path, "--repair")["rebuilt"] == [
        one for one in ALL[1:] if one == name or (name, one) == ("column_stats", "partition_stats")
    ]
    assert verified(capsys, tmp_path)["findings"] == []


def test_an_index_that_is_created_beside_a_write_has_its_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path, **ENABLED, **FEW_SHARDS)
    table.upsert(ROWS)
    reconcile, created = Transaction.reconcile, []

    def meanwhile(self: Transaction, outcome: Any) -> None:
        reconcile(self, outcome)
        if not created:
            created.append(run(capsys, "create", tmp_path, "record_index"))

    monkeypatch.setattr(Transaction, "reconcile", meanwhile)
    table.upsert(rows(("k70", "be", 1, 1), ("k01", "nl", 99, 1)))
    assert created
    assert assert_locations(tmp_path) == 41
    assert verified(capsys, tmp_path)["records"] == {"files": 6, "record_index": 41}


def test_after_a_rebuild_that_dies_each_index_agrees_or_is_absent(template: Path, tmp_path: Path) -> None:
    indexed(template, tmp_path / "whole")

    def rebuild(name: str, fates: dict[int, Fault]) -> FaultyStorage:
        root = tmp_path / name
        shutil.copytree(tmp_path / "whole", root)
        table = LsmTable(root)
        faulty = FaultyStorage(LocalStorage(root), fates)
        table.storage = faulty
        with suppress(Killed):
            table.rebuild_indexes(["record_index", "bloom_filters"])
        return faulty

    calls = rebuild("unharmed", {}).calls
    changing = [number for number, (call, _) in enumerate(calls) if "put" in call or "delete" in call]
    for call in sample(changing, 3, 12):
        root = tmp_path / f"killed {call}"
        rebuild(root.name, {call: Fault.KILL_AFTER})
        table = LsmTable(root)
        assert table.check_indexes().findings == ()
        assert {"files", "column_stats", "partition_stats"} <= set(registered(root))
        table.upsert(rows(("k80", "be", 1, 1)))
        assert table.check_indexes().findings == ()
        if "record_index" in registered(root):
            assert assert_locations(root) == 42


@pytest.mark.parametrize("name", ["v9_cow_hive_mdt", "v9_mor_mdt_full"])
def test_indexes_of_hudi_agree_but_for_keys_that_it_does_not_index(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = unpacked(name, tmp_path)
    if name == "v9_cow_hive_mdt":
        assert verified(capsys, root)["records"].keys() == {"files", "column_stats", "partition_stats"}
        return
    # Hudi's bucket index inserts into logs, whose keys Hudi does not index.
    document = verified(capsys, root, code=1)
    assert found(document) == {("record_index", "missing", 32)}
    assert len(document["records"]) == 5
    assert verified(capsys, root, "--repair")["rebuilt"] == ["record_index"]
    assert assert_locations(root) == 51


@pytest.mark.parametrize("more", [{**INDEXED, **LOCATED}, {**INDEXED, **LOCATED_BY_PARTITION}])
def test_indexes_agree_after_each_action(more: dict[str, object], tmp_path: Path) -> None:
    table = create(tmp_path, **more, **FEW_SHARDS, **{"hoodie.clean.commits.retained": 1})
    steps: list[Callable[[], object]] = [
        lambda: table.upsert(ROWS),
        lambda: table.delete(ROWS.slice(3, 4)),
        lambda: table.compact(),
        lambda: table.upsert(rows(("k03", "nl", 80, 1))),
        lambda: table.rollback(),
        lambda: table.insert_overwrite(rows(("k91", "be", 1, 1))),
        lambda: table.clean(),
    ]
    for step in steps:
        step()
        assert table.check_indexes().findings == (), step
    assert table.check_indexes().records.keys() == set(ALL)


def test_files_that_compactions_of_the_metadata_table_take_during_each_look_are_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path, **INDEXED, **{"hoodie.metadata.compact.max.delta.commits": 1})
    for _ in range(3):
        table.upsert(ROWS)
    original, looks = folder_listing, []

    def listed_then_compacted(*arguments: Any) -> Any:
        found = original(*arguments)
        looks.append(found)
        for _ in range(3):
            table.upsert(ROWS)
        return found

    monkeypatch.setattr(check, "folder_listing", listed_then_compacted)
    assert table.check_indexes("column_stats").findings == ()
    assert len(looks) > 1
