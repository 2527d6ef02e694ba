"""``lsm``: what is printed, and what it says when something is wrong."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import streaming_lsm
from streaming_lsm import LsmTable
from streaming_lsm.cli.commands import main
from streaming_lsm.cli.options_page import options_page
from streaming_lsm.query.cdc.changes import Changes
from streaming_lsm.query.scan import Scan
from tests.support.small_tables import SCHEMA, create, rows

HOLDER = """
import sys

class Holder:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            {hold}

sys.meta_path.insert(0, Holder())
"""


@pytest.fixture
def table(tmp_path: Path) -> LsmTable:
    found = create(tmp_path / "orders")
    found.upsert(rows(("b", "FR", 1, 1), ("a", "FR", 1, 2), ("c", "DE", 1, 3)))
    found.upsert(rows(("a", "FR", 2, 20)))
    return found


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert bool(err) == bool(code), err
    return err if code else out


def path_of(table: LsmTable) -> str:
    return table.path.removeprefix("file://")


def test_a_read_is_explained(table: LsmTable, capsys: pytest.CaptureFixture[str]) -> None:
    how = ("read", path_of(table), "--where", "country == 'DE'", "--explain")
    assert run(capsys, *how).splitlines()[:2] == [
        "partitions: 1 of 2 read; 1 skipped by partition columns",
        "file slices: 1 of 3 read; 2 skipped by partition columns",
    ]
    found = json.loads(run(capsys, *how, "--format", "jsonl"))
    assert (found["file_slices"], found["skipped"]["by_partition"], found["row_groups"]["files"]) == (1, 2, 1)


def test_json_lines_are_sorted_by_partition_and_key(table: LsmTable, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "read", path_of(table), "--format", "jsonl").splitlines() == [
        '{"country": "DE", "id": "c", "qty": 3, "ts": 1}',
        '{"country": "FR", "id": "a", "qty": 20, "ts": 2}',
        '{"country": "FR", "id": "b", "qty": 1, "ts": 1}',
    ]


def test_columns_filter_meta_and_time_are_heeded(table: LsmTable, capsys: pytest.CaptureFixture[str]) -> None:
    first = table.timeline.completed_writes[0].requested
    shown = run(
        capsys,
        *("read", table.path, "--columns", "qty,id", "--where", "qty < 3 and country == 'FR'"),
        *("--as-of", first, "--format", "jsonl"),
    )
    assert [json.loads(line) for line in shown.splitlines()] == [{"id": "a", "qty": 2}, {"id": "b", "qty": 1}]
    (line,) = run(
        capsys, "read", table.path, "--meta", "--columns", "id", "--where", "id == 'c'", "--format", "jsonl"
    ).splitlines()
    assert json.loads(line)["_hoodie_commit_time"] == first
    assert len(json.loads(line)) == 6


def test_the_table_format_shows_headings_values_and_what_is_hidden(
    table: LsmTable, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = run(capsys, "read", path_of(table)).splitlines()
    assert lines[0].split() == ["id", "country", "ts", "qty"]
    assert sorted(line.split() for line in lines[1:]) == [
        ["a", "FR", "2", "20"],
        ["b", "FR", "1", "1"],
        ["c", "DE", "1", "3"],
    ]
    table.upsert(rows(*((f"k{number}", "DE", 1, number) for number in range(60))))
    assert run(capsys, "read", path_of(table)).splitlines()[-1].startswith("… and 13 more rows")


def test_files_are_written_in_every_format(table: LsmTable, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("jsonl", "csv", "parquet", "table"):
        assert run(capsys, "read", path_of(table), "--format", name, "--output", str(tmp_path / name)) == ""
    snapshot = table.scan().to_arrow()
    assert pq.read_table(tmp_path / "parquet").equals(snapshot)
    assert pa.csv.read_csv(tmp_path / "csv")["id"].to_pylist() == snapshot["id"].to_pylist()
    assert len((tmp_path / "jsonl").read_text().splitlines()) == 3


def test_a_limit_ends_the_output_in_every_format(table: LsmTable, capsys: pytest.CaptureFixture[str]) -> None:
    for name, lines in {"jsonl": 2, "csv": 3, "table": 3}.items():
        assert len(run(capsys, "read", path_of(table), "--format", name, "--limit", "2").splitlines()) == lines
    assert "the number of rows is negative" in run(capsys, "read", path_of(table), "--limit", "-1", code=2)


def test_keys_are_looked_up(table: LsmTable, capsys: pytest.CaptureFixture[str]) -> None:
    assert [line.split() for line in run(capsys, "lookup", path_of(table), "a", "x", "c").splitlines()] == [
        ["id", "country", "ts", "qty"],
        ["a", "FR", "2", "20"],
        ["c", "DE", "1", "3"],
    ]
    asked = ("lookup", path_of(table), "b")
    assert run(capsys, *asked, "--columns", "qty", "--json") == '{"qty": 1}\n'
    assert json.loads(run(capsys, *asked, "--json", "--explain"))["row_groups"]["files"] >= 1
    assert "'qyt' is not in the table" in run(capsys, *asked, "--columns", "qyt", code=2)


def test_read_takes_options_and_a_properties_file(
    table: LsmTable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = run(capsys, "read", path_of(table), "--format", "jsonl")
    for log in Path(path_of(table)).glob("*/*.log.parquet"):
        log.rename(log.with_name(log.name.replace(".log.parquet", ".parquet")))
    asked = ("read", path_of(table), "--format", "jsonl")
    assert "set lsm.read.rfc103.names=true" in run(capsys, *asked, code=2)
    assert run(capsys, *asked, "-o", "lsm.read.rfc103.names=true", "-o", "lsm.read.threads=1") == expected
    (tmp_path / "read.properties").write_text("lsm.read.rfc103.names=true\n")
    assert run(capsys, *asked, "--properties", str(tmp_path / "read.properties")) == expected
    assert "did you mean 'lsm.read.threads'" in run(capsys, *asked, "-o", "lsm.read.thread=1", code=2)


def test_changes_are_shown_as_rows_are_without_meta_columns(
    table: LsmTable, capsys: pytest.CaptureFixture[str]
) -> None:
    heading, *lines = run(capsys, "read", path_of(table), "--query-type", "cdc", "--begin", "000").splitlines()
    assert heading.split() == ["op", "ts_ms", "before", "after"]
    assert len(lines) == 4
    assert all("'country': " in line and "_hoodie_" not in line for line in lines)


def changes_of(table: LsmTable, *arguments: str) -> tuple[str, ...]:
    return ("read", path_of(table), "--query-type", "cdc", "--begin", "000", *arguments)


@pytest.mark.parametrize("mode", [None, "OP_KEY_ONLY", "DATA_BEFORE_AFTER"])
def test_changes_are_json_lines_in_the_order_of_the_writes(
    mode: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = pa.schema([*SCHEMA, ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(9, 2))])
    captured = {"hoodie.table.cdc.enabled": True, "hoodie.table.cdc.supplemental.logging.mode": mode} if mode else {}
    found = create(tmp_path, schema, **{"hoodie.datasource.write.table.type": "COPY_ON_WRITE", **captured})
    for second in (1, 2):
        row = [["z" if second == 1 else "a"], ["DE"], [1], [None], [second * 1_000_000 + 123_456], [second]]
        found.upsert(pa.table([pa.array(column, kind) for column, kind in zip(row, schema.types, strict=True)], schema))
    found.delete(pa.table({"id": ["z"], "country": ["DE"]}))
    first, second = ({"country": "DE", "id": name, "qty": None, "ts": 1} for name in "za")
    first |= {"at": "1970-01-01T00:00:01.123456Z", "price": "1.00"}
    second |= {"at": "1970-01-01T00:00:02.123456Z", "price": "2.00"}
    times = [write.requested for write in found.timeline.completed_writes]
    lines = run(capsys, *changes_of(found, "--format", "jsonl")).splitlines()
    assert [json.loads(line) for line in lines] == [
        {"op": "i", "ts_ms": times[0], "before": None, "after": first},
        {"op": "i", "ts_ms": times[1], "before": None, "after": second},
        {"op": "d", "ts_ms": times[2], "before": first, "after": None},
    ]
    assert [list(json.loads(line)) for line in lines] == [["after", "before", "op", "ts_ms"]] * 3
    shown = run(capsys, *changes_of(found))
    assert "'at': 1970-01-01 00:00:01.123456Z, 'price': 1.00}" in shown


@pytest.mark.parametrize("mode", ["jsonl", "table", "parquet"])
def test_a_limit_ends_changes_and_reads_no_further(
    table: LsmTable, mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table.upsert(rows(*((f"k{number}", "DE", 1, number) for number in range(60))))
    target = tmp_path / "written"
    whole = table.changes("000").to_arrow()
    read: list[int] = []
    batches = Changes.to_batches

    def counting(changes: Changes) -> Iterator[pa.RecordBatch]:
        for batch in batches(changes):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(Changes, "to_batches", counting)
    for limit in (0, 1, 2, 55):
        read.clear()
        run(capsys, *changes_of(table, "--format", mode, "--limit", str(limit), "--output", str(target)))
        if mode == "parquet":
            assert pq.read_table(target).equals(whole.slice(0, limit))
        else:
            assert len(target.read_text().splitlines()) == limit + (mode == "table")
        assert sum(read[:-1]) < max(limit, 1)
    assert "--limit -1: the number of rows is negative" in run(
        capsys, *changes_of(table, "--format", mode, "--limit", "-1", "--output", str(target)), code=2
    )


def test_changes_are_printed_as_they_are_read(
    table: LsmTable, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[int] = []
    batches = Changes.to_batches

    def looking(changes: Changes) -> Iterator[pa.RecordBatch]:
        for batch in batches(changes):
            printed.append(len(capsys.readouterr().out.splitlines()))
            yield batch

    monkeypatch.setattr(Changes, "to_batches", looking)
    last = len(run(capsys, *changes_of(table, "--format", "jsonl")).splitlines())
    assert printed[0] == 0
    assert sum(printed) + last == 4
    assert last < 4


def test_hidden_changes_are_counted(table: LsmTable, capsys: pytest.CaptureFixture[str]) -> None:
    table.upsert(rows(*((f"k{number}", "DE", 1, number) for number in range(60))))
    lines = run(capsys, *changes_of(table)).splitlines()
    assert (len(lines), lines[-1]) == (52, "… and 14 more rows; --format jsonl prints all")


def test_changes_are_no_csv(table: LsmTable, capsys: pytest.CaptureFixture[str]) -> None:
    assert "column 'before' has type struct<" in run(capsys, *changes_of(table, "--format", "csv"), code=2)


def test_a_limit_says_how_many_rows_the_table_format_shows(table: LsmTable, capsys: pytest.CaptureFixture[str]) -> None:
    table.upsert(rows(*((f"k{number}", "DE", 1, number) for number in range(60))))
    for limit, shown in ((50, 50), (55, 55), (100, 63)):
        lines = run(capsys, "read", path_of(table), "--limit", str(limit)).splitlines()
        assert len(lines) == shown + 1
        assert not lines[-1].startswith("…")


def test_times_with_a_zone_end_in_z_in_every_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = pa.struct([("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(9, 2)), ("name", pa.string())])
    schema = pa.schema([*SCHEMA, ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")), ("place", place)])
    noon = datetime.datetime(2026, 11, 20, 12, 0, 0, 5)
    nested = {"at": noon, "price": decimal.Decimal(1), "name": "x"}
    found = create(tmp_path, schema)
    found.upsert(pa.table([["a"], ["DE"], [1], [1], [noon], [noon], [nested]], schema=schema))
    read = ("read", str(tmp_path), "--columns", "at,local,place")
    zoned, local = "2026-11-20 12:00:00.000005Z", "2026-11-20 12:00:00.000005"
    shown = f"{zoned}  {local}  {{'at': {zoned}, 'price': 1.00, 'name': 'x'}}"
    assert run(capsys, *read).splitlines()[1] == shown
    assert shown in run(capsys, "history", str(tmp_path), "a")
    csv = run(capsys, "read", str(tmp_path), "--columns", "at,local", "--format", "csv").splitlines()[1]
    assert csv == f"{zoned},{local}"
    (line,) = run(capsys, *read, "--format", "jsonl").splitlines()
    row = {"at": f"{noon.isoformat()}Z", "local": noon.isoformat()}
    assert json.loads(line) == {**row, "place": {"at": row["at"], "price": "1.00", "name": "x"}}
    assert json.loads(run(capsys, "history", str(tmp_path), "a", "--json"))["at"] == row["at"]


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv", "table"])
@pytest.mark.parametrize(("failure", "code"), [(KeyboardInterrupt(), 130), (OSError(28, "No space left"), 2)])
def test_an_output_is_there_as_a_whole_or_as_it_was(
    table: LsmTable,
    tmp_path: Path,
    kind: str,
    failure: BaseException,
    code: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "written"
    folder.mkdir()
    batches = Scan.to_batches

    def broken(scan: Scan) -> Iterator[pa.RecordBatch]:
        yield next(batches(scan))
        raise failure

    with monkeypatch.context() as patched:
        patched.setattr(Scan, "to_batches", broken)
        how = ("read", path_of(table), "--format", kind, "--output", str(folder / "o"))
        run(capsys, *how, code=code)
        assert list(folder.iterdir()) == []
        (folder / "o").write_text("before")
        run(capsys, *how, code=code)
    assert [path.read_text() for path in folder.iterdir()] == ["before"]
    run(capsys, *how)
    assert [path.name for path in folder.iterdir()] == ["o"]
    assert (folder / "o").read_bytes() != b"before"


def test_links_modes_and_devices_stay_as_they_are(
    table: LsmTable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    how = ("read", path_of(table), "--format", "jsonl", "--output")
    kept, link, pipe = tmp_path / "kept", tmp_path / "link", tmp_path / "pipe"
    kept.touch(0o640)
    link.symlink_to(kept)
    run(capsys, *how, str(link))
    assert link.is_symlink()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640
    lines = kept.read_bytes()
    assert lines.count(b"\n") == 3
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    run(capsys, *how, str(pipe))
    assert os.read(reader, 10_000) == lines
    os.close(reader)
    run(capsys, *how, os.devnull)
    assert "Is a directory" in run(capsys, *how, str(tmp_path), code=2)
    assert "Is a directory" in run(capsys, *how, f"{tmp_path}/none/", code=2)


def test_one_row_is_not_rows(table: LsmTable, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = create(tmp_path / "one")
    one.upsert(rows(("a", "FR", 1, 1)))
    copied = run(capsys, "copy", path_of(one), str(tmp_path / "copy"))
    assert copied.startswith("1 row copied to ")
    assert run(capsys, "copy", path_of(table), str(tmp_path / "more")).startswith("3 rows copied to ")


@pytest.mark.parametrize(("verb", "version"), [("downgrade", "6"), ("downgrade", "10"), ("upgrade", "7")])
def test_versions_that_a_verb_never_makes_are_refused_with_those_it_does(
    verb: str, version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([verb, str(tmp_path), "--to", version])
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"invalid choice: {version} (choose from 8, 9" in last
    assert ("10)" in last) is (verb == "upgrade")


def test_csv_goes_to_the_screen(table: LsmTable, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["read", path_of(table), "--format", "csv", "--columns", "id", "--where", "id == 'c'"]) == 0
    assert capfdbinary.readouterr().out == b'"id"\n"c"\n'


def test_the_timeline_lists_actions_with_their_numbers(table: LsmTable, capsys: pytest.CaptureFixture[str]) -> None:
    heading, first, second = run(capsys, "timeline", path_of(table)).splitlines()
    assert heading.split()[:3] == ["requested", "completed", "action"]
    instant = table.timeline.completed_writes[0]
    assert first.split()[:4] == [instant.requested, instant.completed, "deltacommit", "UPSERT,"]
    assert "UPSERT, 1 file, 1 row, 0 deletes, " in second


def test_the_options_page_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "options") == options_page()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--columns", "nope"], "'nope'"),
        (["--where", "qty >"], "qty >"),
        (["--where", "open('x')"], "open('x')"),
        (["--where", "nope > 1"], "nope"),
        (["--as-of", "soon"], "'soon'"),
        (["--format", "parquet"], "--output"),
        (["--format", "jsonl", "--output", "/nowhere/at/all"], "/nowhere/at/all"),
        (["--format", "parquet", "--output", "/nowhere/at/all"], "lsm: /nowhere/at/all: No such file"),
        (["--format", "csv", "--output", "/nowhere/at/all"], "lsm: /nowhere/at/all: No such file"),
        (["--begin", "000"], "snapshot does not take --begin: leave it out"),
        (["--end", "000"], "snapshot does not take --end: leave it out"),
        (["--query-type", "read_optimized", "--begin", "000", "--end", "1"], "--begin, --end"),
        (["--query-type", "incremental"], "--begin"),
        (["--query-type", "incremental", "--begin", "000", "--as-of", "2026-11-20"], "--as-of"),
        (["--query-type", "cdc", "--begin", "000", "--columns", "id"], "--columns"),
        (["--query-type", "cdc", "--begin", "000", "--where", "qty > 1", "--meta"], "--where, --meta"),
    ],
    ids=str,
)
def test_what_the_user_can_mend_is_one_line_and_code_2(
    table: LsmTable, arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = run(capsys, "read", path_of(table), *arguments, code=2)
    assert error.startswith("lsm: ")
    assert named in error
    assert "Traceback" not in error


@pytest.mark.parametrize("verb", ["read", "timeline"])
def test_a_path_that_is_no_table_is_code_2(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert str(tmp_path / "none") in run(capsys, verb, str(tmp_path / "none"), code=2)
    assert not (tmp_path / "none").exists()


def test_nested_columns_are_no_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = pa.schema(
        [("id", pa.string()), ("country", pa.string()), ("ts", pa.int64()), ("tags", pa.list_(pa.string()))]
    )
    nested = create(tmp_path, schema)
    nested.upsert(pa.table([["a"], ["DE"], [1], [["t"]]], schema=schema))
    assert "'tags'" in run(capsys, "read", str(tmp_path), "--format", "csv", code=2)
    assert run(capsys, "read", str(tmp_path), "--format", "jsonl", "--columns", "tags") == '{"tags": ["t"]}\n'


def test_looking_changes_nothing(table: LsmTable, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(path_of(table))
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    run(capsys, "read", path_of(table))
    run(capsys, "timeline", path_of(table))
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"lsm {streaming_lsm.__version__}\n"


def test_without_rich_the_same_lines_are_printed(
    table: LsmTable, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs = [("read", path_of(table)), ("timeline", path_of(table)), ("compact", "--dry-run", path_of(table))]
    with_rich = [run(capsys, *verb) for verb in verbs]
    for module in ("rich", "rich.console", "rich.table"):
        monkeypatch.setitem(sys.modules, module, None)
    assert [run(capsys, *verb) for verb in verbs] == with_rich


def test_a_value_that_looks_like_markup_is_shown_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = create(tmp_path / "orders")
    found.upsert(rows(("[/b]", "FR", 1, 1), ("[red]a", "FR", 1, 2), (":smile:", "FR", 1, 3)))
    shown = run(capsys, "read", path_of(found), "--columns", "id").split()
    assert sorted(shown) == [":smile:", "[/b]", "[red]a", "id"]


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("read", "streaming_lsm.cli.commands"),
        ("read", "rich.console"),
        ("timeline", "rich.console"),
        ("compact --dry-run", "rich.console"),
    ],
)
def test_ctrl_c_ends_a_verb_in_one_line_with_status_130(
    table: LsmTable, tmp_path: Path, command: str, module: str
) -> None:
    """The process is held at a moment of its run by a module that is imported then, and interrupted there."""
    # In short sleeps: a signal that arrives right before a long sleep begins would wait for its end.
    wait = "[time.sleep(0.01) for _ in range(6000)]"
    hold = f"import pathlib, time; pathlib.Path({str(tmp_path / 'held')!r}).touch(); {wait}"
    (tmp_path / "sitecustomize.py").write_text(HOLDER.format(module=module, hold=hold))
    search = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    verb = subprocess.Popen(
        [sys.executable, "-m", "streaming_lsm", *command.split(), path_of(table)],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": search},
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while not (tmp_path / "held").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    verb.send_signal(signal.SIGINT)
    assert verb.communicate(timeout=30) == ("", "lsm: interrupted\n")
    assert verb.returncode == 130
