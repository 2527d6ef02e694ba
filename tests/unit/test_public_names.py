"""The names of the package: what is exported, what importing it costs, what it says about missing packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import streaming_lsm
from streaming_lsm import errors
from streaming_lsm.errors import LsmError

ROOT = Path(__file__).parents[2]


def python(*lines: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "\n".join(lines)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if (name + ".").startswith({package!r} + "."):
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Absent())
"""


def without(package: str) -> str:
    """Code after which `package` is not installed."""
    return ABSENT.format(package=package)


@pytest.mark.parametrize("name", streaming_lsm.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(streaming_lsm, name).__name__ == name
    assert name in dir(streaming_lsm)


def test_every_error_is_public() -> None:
    found = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, LsmError)}
    assert found - set(streaming_lsm.__all__) == set()


def test_every_public_name_is_in_the_documentation() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert [name for name in streaming_lsm.__all__ if f"`{name}" not in page] == []


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'LsmSinc'"):
        _ = streaming_lsm.LsmSinc


def test_importing_the_package_and_a_table_imports_neither_spark_nor_pandas() -> None:
    done = python(
        "import sys; from streaming_lsm import Instant, LsmTable, Scan",
        "print(sorted({'pyspark', 'pandas', 'rich', 'kafka', 'duckdb'} & set(sys.modules)))",
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("name", ["LsmSink", "LsmListener", "register"])
def test_what_needs_spark_names_the_extra_that_installs_it(name: str) -> None:
    done = python(without("pyspark"), f"from streaming_lsm import {name}")
    said = done.stderr.splitlines()[-1]
    assert f"{name} needs the package pyspark, which is not installed: pip install '.[spark]' in a checkout" in said


def test_a_module_of_the_spark_folder_names_the_extra_too() -> None:
    done = python("import sys; sys.modules['pyspark'] = None", "from streaming_lsm.spark.sink import LsmSink")
    said = done.stderr.splitlines()[-1]
    assert said.startswith("streaming_lsm.errors.MissingPackage: streaming_lsm.spark needs the package pyspark"), said


def test_what_needs_pandas_names_the_extra_that_installs_it(tmp_path: Path) -> None:
    done = python(
        without("pandas"),
        "import pyarrow as pa; from streaming_lsm import LsmTable",
        "options = {'hoodie.table.name': 't', 'hoodie.datasource.write.recordkey.field': 'id'}",
        f"table = LsmTable.create({str(tmp_path / 't')!r}, pa.schema([('id', pa.string())]), options)",
        "table.scan().to_pandas()",
    )
    assert (
        "Scan.to_pandas needs the package pandas, which is not installed: pip install" in done.stderr.splitlines()[-1]
    )


def test_a_module_that_is_missing_for_another_reason_is_named_as_python_does() -> None:
    done = python(without("streaming_lsm.spark.engine"), "from streaming_lsm import LsmSink")
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'streaming_lsm.spark.engine'"


@pytest.mark.parametrize(
    ("job", "package", "extra"),
    [("kafka_to_lsm", "pyspark", "spark"), ("produce_events", "kafka", "kafka"), ("run_kafka_demo", "kafka", "kafka")],
)
def test_a_job_without_its_packages_says_in_one_line_what_to_install(job: str, package: str, extra: str) -> None:
    arguments = {"produce_events": ["--bootstrap-servers", "localhost:1"]}.get(job, [])
    script = f"sys.argv = {[f'jobs/{job}.py', *arguments]!r}; import runpy"
    done = python(without(package), script, f"runpy.run_path('jobs/{job}.py', run_name='__main__')")
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"needs the package {package}, which is not installed: pip install '.[{extra}]' in a checkout")
    assert done.returncode == 2
