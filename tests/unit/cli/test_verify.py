"""``lsm verify``: it finds each kind of damage, names the file, and is quiet about sound tables."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.cli.commands import main
from streaming_lsm.format.base_file_footer import BLOOM_KEY
from streaming_lsm.format.bloom import BloomFilter
from streaming_lsm.format.log.key_entries import ACCUMULATED_KEY, KeyEntry, own_footer
from tests.support.service_tables import grown
from tests.support.small_tables import create, rows

OPTIONS: dict[str, object] = {"hoodie.bucket.index.num.buckets": 1, "hoodie.clean.automatic": False}


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main([str(argument) for argument in arguments]) == code
    out, err = capsys.readouterr()
    assert err == ""
    return out


def findings(capsys: pytest.CaptureFixture[str], root: Path, *arguments: str, code: int = 1) -> list[tuple[str, str]]:
    document = json.loads(run(capsys, "verify", root, "--json", *arguments, code=code))
    assert document["is_sound"] is (code == 0)
    return [(found["kind"], found["path"]) for found in document["findings"]]


def small(root: Path) -> LsmTable:
    table = create(root, **OPTIONS)
    table.upsert(rows(("a", "nl", 1, 1), ("b", "nl", 1, 1), ("c", "nl", 1, 1)))
    table.delete(pa.table({"id": ["a"], "country": ["nl"]}))
    return table


def log_of(root: Path, ending: str = ".log.parquet") -> tuple[Path, str]:
    (found,) = (path for path in (root / "nl").glob(f"*{ending}") if ".deletes." not in path.name)
    return found, f"nl/{found.name}"


def rewrite(path: Path, order: list[int]) -> None:
    """Store other rows in a file with the same footer."""
    with pq.ParquetFile(path) as file:
        stored = file.read()
    pq.write_table(stored.take(order), path)
    for checksum in path.parent.glob(f".{path.name}.crc"):
        checksum.unlink()


@pytest.mark.parametrize("quick", [(), ("--quick",)])
def test_a_sound_table_has_no_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], quick: tuple[str, ...]
) -> None:
    table, _ = grown(tmp_path)
    assert run(capsys, "verify", tmp_path, *quick).endswith(" stored rows: no faults\n")
    table.compact()
    table.upsert(rows(("new", "nl", 1, 1)))
    assert run(capsys, "verify", tmp_path, *quick).startswith("3 live files, ")


def test_a_table_without_writes_has_no_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create(tmp_path)
    assert run(capsys, "verify", tmp_path) == "0 live files, 0 stored rows: no faults\n"


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small(tmp_path)
    path, name = log_of(tmp_path)
    path.unlink()
    line, summary = run(capsys, "verify", tmp_path, code=1).splitlines()
    assert line.startswith(f"missing: {name} in ")
    assert line.endswith("restore the file")
    assert summary == "1 live file, 1 stored row: 1 fault"


@pytest.mark.parametrize("damage", ["missing", "torn", "completionTime", "plan"])
def test_a_damaged_history_file_is_named_though_no_live_file_needs_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    keep = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    table = create(tmp_path, **{**OPTIONS, **keep, "hoodie.archive.automatic": False})
    for number in range(5):
        table.upsert(rows(("a", "nl", number, number)))
        table.compact()
    assert table.archive()
    table.upsert(rows(("a", "nl", 5, 5)))
    table.compact()
    table.clean()
    assert findings(capsys, tmp_path, code=0) == []
    (path,) = (tmp_path / ".hoodie/timeline/history").glob("*.parquet")
    if damage == "missing":
        path.unlink()
    elif damage == "torn":
        path.write_bytes(path.read_bytes()[:-20])
    else:
        group = pq.read_metadata(path).row_group(0)
        columns = [group.column(column) for column in range(group.num_columns)]
        (column,) = (column for column in columns if column.path_in_schema == damage)
        content = bytearray(path.read_bytes())
        content[column.data_page_offset + column.total_compressed_size - 3] ^= 0xFF
        path.write_bytes(content)
    for checksum in path.parent.glob(f".{path.name}.crc"):
        checksum.unlink()
    line, summary = run(capsys, "verify", tmp_path, code=1).splitlines()
    assert path.name in line
    assert "restore the file" in line
    assert summary.endswith(": 1 fault")


def test_a_damaged_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small(tmp_path)
    path, name = log_of(tmp_path)
    path.write_bytes(path.read_bytes()[:-8] + b"\0" * 8)
    assert findings(capsys, tmp_path, "--quick") == [("damaged", name)]


def test_a_damaged_page_of_any_column_is_found_by_reading_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small(tmp_path)
    path, name = log_of(tmp_path)
    with pq.ParquetFile(path) as file:
        group = file.metadata.row_group(0)
        column = group.column(group.num_columns - 1)
    content = bytearray(path.read_bytes())
    content[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1] ^= 0xFF
    path.write_bytes(content)
    assert findings(capsys, tmp_path, "--quick", code=0) == []
    assert findings(capsys, tmp_path) == [("damaged", name)]


def test_rows_out_of_order_are_found_though_the_footer_declares_their_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small(tmp_path)
    path, name = log_of(tmp_path)
    rewrite(path, [2, 0, 1])
    assert ("unsorted", name) in findings(capsys, tmp_path)


def test_rows_of_a_base_file_out_of_order_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small(tmp_path).compact()
    (path,) = (
        found
        for found in (tmp_path / "nl").glob("*.parquet")
        if ".log." not in found.name and "delete" not in found.name
    )
    rewrite(path, [1, 0])
    assert ("unsorted", f"nl/{path.name}") in findings(capsys, tmp_path)


@pytest.mark.parametrize("way", ["insert", "bulk_insert"])
def test_a_key_twice_in_a_file_is_no_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr("streaming_lsm.writable_table.reduces_keys", lambda *_, **__: False)  # as another program
    getattr(create(tmp_path, **OPTIONS), way)(rows(("a", "nl", 2, 1), ("a", "nl", 1, 2), ("b", "nl", 1, 1)))
    assert findings(capsys, tmp_path, code=0) == []


def test_other_rows_than_committed_are_found_by_the_footer_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small(tmp_path)
    path, name = log_of(tmp_path)
    rewrite(path, [0, 1])
    assert set(findings(capsys, tmp_path, "--quick")) == {("count", name), ("index", name)}


def with_footer(path: Path, **entries: str) -> None:
    """Store the same rows with other entries in the footer."""
    with pq.ParquetFile(path) as file:
        stored, footer = file.read(), dict(file.metadata.metadata)
    with pq.ParquetWriter(path, stored.schema) as writer:
        writer.write_table(stored)
        writer.add_key_value_metadata({key.decode(): value.decode() for key, value in footer.items()} | entries)
    for checksum in path.parent.glob(f".{path.name}.crc"):
        checksum.unlink()


def test_false_and_damaged_key_entries_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = create(tmp_path, **OPTIONS, **{"lsm.log.key.index.accumulated": True})
    for number in range(2):
        table.upsert(rows((f"a{number}", "nl", 1, 1), (f"b{number}", "nl", 1, 1)))
    first, second = sorted((tmp_path / "nl").glob("*.log.parquet"))
    bloom = BloomFilter.build([b"a0", b"other"], 2, 0.001, 2, "SIMPLE")
    with_footer(first, **own_footer(KeyEntry(2, ("a0", "b0"), bloom)))
    with_footer(second, **{BLOOM_KEY: bloom.encode(), ACCUMULATED_KEY: "0" * 40})
    found = findings(capsys, tmp_path)
    kinds = sorted((kind, path) for kind, path in found if kind != "count")
    assert kinds == [("index", f"nl/{path.name}") for path in (first, second, second)]
    told = run(capsys, "verify", tmp_path, code=1)
    assert "rules out the record key 'b0', which the file has" in told
    assert "the accumulated key entry in its footer is damaged" in told
    assert table.lookup(["b1"]).num_rows == 1


def test_files_of_no_commit_are_listed_and_do_no_harm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = small(tmp_path)
    table.upsert(rows(("d", "nl", 1, 1)))
    undone = table.timeline.completed_writes[-1]
    (late,) = (tmp_path / "nl").glob(f"*{undone.requested}*.parquet")
    content = late.read_bytes()
    table.rollback()
    late.write_bytes(content)
    assert findings(capsys, tmp_path, code=0) == [("uncommitted", f"nl/{late.name}")]
    assert run(capsys, "verify", tmp_path).splitlines()[-1].endswith("no faults, 1 file of no commit")
    assert late.exists()


def test_a_lost_timeline_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small(tmp_path)
    for file in (tmp_path / ".hoodie/timeline").iterdir():
        if file.is_file():
            file.unlink()
    line, *_ = run(capsys, "verify", tmp_path, code=1).splitlines()
    assert line.startswith("missing: nl/")
    assert "its instant files were lost" in line


def test_progress_is_shown_on_a_terminal_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small(tmp_path)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["verify", str(tmp_path)]) == 0
    shown = capsys.readouterr().err
    assert "\r[####################] 2 of 2 files checked" in shown
    assert shown.endswith(" \r")
    assert main(["compact", str(tmp_path)]) == 0
    assert "file groups merged" in capsys.readouterr().err
    assert main(["clean", "-o", "hoodie.clean.commits.retained=1", str(tmp_path)]) == 0
    assert main(["copy", str(tmp_path), str(tmp_path.with_name("copy"))]) == 0
    assert capsys.readouterr().err.count("\r[####################] 1 of 1 file groups read") == 2
    limits = [
        "-o",
        "hoodie.clean.commits.retained=1",
        "-o",
        "hoodie.keep.min.commits=2",
        "-o",
        "hoodie.keep.max.commits=3",
    ]
    for number in range(4):
        LsmTable(tmp_path).upsert(rows(("a", "nl", number + 5, 1)))
    assert main(["archive", *limits, str(tmp_path)]) == 0
    assert re.search(r"\r\[#{20}\] (\d+) of \1 actions archived", capsys.readouterr().err)


@pytest.mark.parametrize("options", [{}, {"hoodie.table.type": "COPY_ON_WRITE"}])
def test_a_bucket_with_two_live_file_groups_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: dict[str, object]
) -> None:
    table = create(tmp_path, **OPTIONS, **options)
    table.upsert(rows(("a", "nl", 1, 1), ("b", "be", 1, 1)))
    table.delete_partitions(["nl"])
    table.upsert(rows(("c", "nl", 1, 1)))
    assert findings(capsys, tmp_path, code=0) == []
    (write,) = (found for found in table.timeline.completed_writes if found.action == "replacecommit")
    path = tmp_path / write.path
    path.write_bytes(replace(table.timeline.read_commit(write), replaced={}).encode())
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    found = findings(capsys, tmp_path, "--quick")
    assert [one[0] for one in found if one[0] != "missing"] == ["doubled"]
    assert next(path for kind, path in found if kind == "doubled").startswith("nl/")
