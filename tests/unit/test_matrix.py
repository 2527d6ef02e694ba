"""The cells of `make matrix`: what is chosen, which versions they have, which interpreters they are made with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from streaming_lsm.errors import ConfigError
from tests.matrix.__main__ import TESTS, Outcome, table
from tests.matrix.cells import CELLS, ROOT, SPARKS, Cell, chosen
from tests.matrix.environment import find_python


def test_cells_are_chosen_by_name_and_all_without_one() -> None:
    assert [cell.name for cell in chosen(" 3.5-py311  oldest-py311")] == ["3.5-py311", "oldest-py311"]
    assert chosen("") == CELLS
    assert len(CELLS) == len(SPARKS) * 3 + 1
    with pytest.raises(ConfigError, match=r"no cell '3\.5-py310'; there are 3\.5-py311 "):
        chosen("3.5-py311 3.5-py310")


def test_a_cell_has_the_tested_versions_but_for_spark() -> None:
    pinned = dict(line.split("==") for line in Cell("3.5", (3, 12)).constraints().splitlines())
    assert pinned["pyspark"] == SPARKS["3.5"]
    assert "py4j" not in pinned, "PySpark pins it"
    listed = (Path(__file__).parents[2] / "conf" / "constraints.txt").read_text().splitlines()
    assert f"pyarrow=={pinned['pyarrow']}" in listed


def test_the_oldest_cell_has_the_lower_bounds_of_the_package() -> None:
    pinned = dict(line.split("==") for line in Cell("3.5", (3, 11), oldest=True).constraints().splitlines())
    assert (pinned["pyspark"], pinned["numpy"], pinned["pyarrow"]) == ("3.5.0", "2.0.0", "21.0.0")


@pytest.mark.parametrize(("cell", "needs"), [("3.5-py311", []), ("3.5-py313", ["setuptools"]), ("4.0-py313", [])])
def test_only_an_old_spark_on_a_new_python_needs_setuptools(cell: str, needs: list[str]) -> None:
    assert chosen(cell)[0].needs() == needs


def test_an_interpreter_that_does_not_start_is_passed_over(tmp_path: Path) -> None:
    version = sys.version_info[:2]
    shim = tmp_path / f"python{version[0]}.{version[1]}"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    variables = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    assert find_python(version, variables) is None
    assert find_python(version, {**variables, "MATRIX_PYTHONS": sys.executable}) == Path(sys.executable)
    assert find_python((3, 99), {**variables, "MATRIX_PYTHONS": sys.executable}) is None


@pytest.mark.parametrize("chosen_test", TESTS)
def test_a_cell_runs_tests_that_are_there(chosen_test: str) -> None:
    path, _, name = chosen_test.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text() if name else (ROOT / path).exists()


def test_the_table_tells_the_outcome_of_each_cell() -> None:
    passed, absent = (Outcome(status, "", 0, "") for status in ("passed", "no interpreter"))
    lines = table({Cell("3.5", (3, 11)): passed, Cell("3.5", (3, 13)): absent}).splitlines()
    assert lines[0] == "| PySpark | Python 3.11 | Python 3.12 | Python 3.13 |"
    assert lines[2:] == ["| 3.5 (3.5.9) | passed | - | no interpreter |"]
