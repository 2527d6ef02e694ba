"""The README's snippets, run as they stand, in their order, with /lake in a temporary folder."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_the_snippets_run_and_show_the_rows(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "lake"
    names: dict[str, object] = {}
    for snippet in blocks("python"):
        exec(compile(snippet.replace("/lake", str(lake)), "README.md", "exec"), names)
    shown = capfd.readouterr().out
    assert re.search(r"o1 *\| *DE *\| *9", shown), "Spark shows the newer version of o1"
    assert re.search(r"DE .*9", shown), "duckdb sums quantities"
    names["query"].stop()  # type: ignore[attr-defined]
    rows = names["table"].scan().to_arrow().to_pylist()  # type: ignore[attr-defined]
    assert {(row["order_id"], row["qty"]) for row in rows} == {("o1", 9), ("o2", 7)}
    assert names["readings"].scan().to_arrow().column("sensor").to_pylist() == ["a"]  # type: ignore[attr-defined]
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("lsm ")]
    printed = [command_line(line.replace("/lake", str(lake))) for line in lines]
    assert "deltacommit" in printed[0]
    assert json.loads(printed[1])["order_id"] == "o1"


def command_line(line: str) -> str:
    command = [str(Path(sys.executable).parent / "lsm"), *shlex.split(line)[1:]]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_it_says_which_readers_there_are() -> None:
    assert "Table version 10 awaits readers in Hudi 1.3" in README
    assert "For today's Hudi write version 9 (`hoodie.write.table.version=9`)" in README


def test_every_page_it_links_to_is_there() -> None:
    for target in re.findall(r"\]\((docs/[^)#]+)", README):
        assert (ROOT / target).is_file(), target
